"""Rows that are arrays of one length: vectors, or scores as arrays of length 1.

A cache folder belongs to one fingerprint (model, settings). It holds immutable parts, each a NumPy file of records
(key, vector) that appears in one step; a killed run leaves whole parts and at most a scratch file. Parts of similar
size are merged as they become many, so that even a large cache has a few dozen.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.rows.base import check_keys, distinct, no_rows

FINGERPRINT = "fingerprint.json"
_PARTS = "part-*.npy"
_SCRATCH_SECONDS = 3600.0
"""Age after which a scratch file cannot belong to a live writer: the largest merge takes minutes."""
_FAN_IN = 16
"""Parts of one size class that become one part. Each row is written again at most once per class."""
_BLOCK = 65_536
"""Rows copied at once."""
_ATTEMPTS = 10
"""At opening, while other processes replace parts."""


class ArrayRows:
    """A :class:`~skb_pipeline.storage.rows.base.RowCache` of float32 arrays, all of one length.

    Several processes may put and merge at the same time. What others put is seen after opening anew.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, Any], *, must_keep: bool = True) -> None:
        """Open or start a cache.

        Args:
            folder: made when absent.
            fingerprint: plain JSON values that every row in the folder depends on.
            must_keep: without it no folder is made or cleaned, and rows that the place does not take (it is not
                there, full, or not to be written) last as long as this object.

        Raises:
            ManifestMismatchError: the folder belongs to another fingerprint, or to none although it holds rows.
        """
        self.folder, self.must_keep = folder, must_keep
        self._takes = True
        """Whether rows may be put into the folder."""
        told = json.loads(json.dumps(fingerprint, allow_nan=False))
        if must_keep:
            folder.mkdir(parents=True, exist_ok=True)
            if not _is_claimed(folder, told):
                atomic.write_json(folder / FINGERPRINT, told)
            _sweep(folder)
        else:
            self._takes = _is_claimed(folder, told)
        self._reload()

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def dimension(self) -> int | None:
        """Length of a row, or None while the cache is empty."""
        return self._parts[0]["vector"].shape[1] if self._parts else None

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Keys without a row, each once, in order of appearance."""
        return [key for key in distinct(keys) if key not in self._row_of]

    def put(self, keys: Sequence[str], values: np.ndarray) -> None:
        """Add rows as one part that is on disk, whole, when this returns.

        Args:
            keys: n distinct keys; those the cache has already are left as they are.
            values: float32 [n, dim], finite.

        Raises:
            ValueError: shapes do not fit each other or the cache, a key is malformed or repeated, or a row is not
                finite (the key is named).
        """
        values = np.asarray(values)
        self._check(keys, values)
        new = [i for i, key in enumerate(keys) if key not in self._row_of]
        if not new:
            return
        records = np.empty(len(new), dtype=[("key", "S64"), ("vector", np.float32, (values.shape[1],))])
        records["key"] = [keys[i] for i in new]
        records["vector"] = values[new]
        self._take(records)

    def _take(self, records: np.ndarray) -> None:
        if self._takes:
            try:
                self._register(_write_part(self.folder, self._next_number, [(records, range(len(records)))]))
                self.merge()
                return
            except OSError as error:
                if self.must_keep or error.errno not in atomic.CANNOT_WRITE:
                    raise
                self._takes = False
        if records["key"][0].decode() not in self._row_of:
            self._add(records, None)

    def get(self, keys: Sequence[str]) -> np.ndarray:
        """Rows of ``keys`` in their order, float32 [n, dim] (dim is 0 for an empty cache).

        Raises:
            KeyError: a key has no row.
        """
        absent = self.missing(keys)
        if absent:
            raise no_rows(absent)
        rows = np.fromiter((self._row_of[key] for key in keys), dtype=np.int64, count=len(keys))
        found = np.empty((len(keys), self.dimension or 0), dtype=np.float32)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for place in np.unique(owner):
            mine = owner == place
            found[mine] = self._parts[place]["vector"][rows[mine] - self._starts[place]]
        return found

    def merge(self, at: int = _FAN_IN) -> int:
        """Make one part of those of a size class wherever there are ``at`` of them or more; :meth:`put` does so too.

        Numbers of rows within a class differ by less than a factor of 16. A run that is killed meanwhile leaves
        rows twice and loses none; doubles go with the next merge of their parts.

        Returns:
            How many parts became part of another.
        """
        merged = 0
        while True:
            classes: dict[int, list[int]] = defaultdict(list)
            for place, part in enumerate(self._parts):
                if self._paths[place] is not None:
                    classes[int(math.log(len(part), _FAN_IN))].append(place)
            many = next((places for places in classes.values() if len(places) >= max(at, 2)), None)
            if many is None:
                return merged
            self._replace(many)
            merged += len(many)

    def _current_rows(self, place: int) -> list[int]:
        """Rows of a part that :meth:`get` reads."""
        start = self._starts[place]
        return [row for row, key in enumerate(_keys(self._parts[place])) if self._row_of[key] == start + row]

    def _replace(self, places: list[int]) -> None:
        """Put one part with the current rows of some in their place."""
        pieces = [(self._parts[place], self._current_rows(place)) for place in places]
        paths = [path for place in places if (path := self._paths[place]) is not None]
        if any(rows for _, rows in pieces):
            # Under the lowest number, so that these rows still come before doubles of them in later parts.
            self._register(_write_part(self.folder, min(map(_number, paths)), pieces), instead=True)
        for place in sorted(places, reverse=True):
            for column in (self._parts, self._paths, self._starts):
                del column[place]
        for path in paths:
            path.unlink(missing_ok=True)  # another process may have done the same

    def _check(self, keys: Sequence[str], values: np.ndarray) -> None:
        if values.ndim != 2 or len(values) != len(keys) or values.shape[1] == 0 or values.dtype != np.float32:
            raise ValueError(f"{len(keys)} keys need float32 [{len(keys)}, dim], not {values.dtype} {values.shape}")
        if self.dimension not in (None, values.shape[1]):
            raise ValueError(f"rows have {values.shape[1]} numbers, those in {self.folder} have {self.dimension}")
        check_keys(keys, len(values))
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            raise ValueError(f"row of {keys[bad[0]]} is not finite")

    def _reload(self) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            self._row_of: dict[str, int] = {}
            self._parts: list[np.ndarray] = []
            self._paths: list[Path | None] = []  # None: in memory only
            self._starts: list[int] = []  # row numbers of a part that is gone are not given again
            self._n_rows = 0
            self._next_number = 0
            try:
                for path in sorted(self.folder.glob(_PARTS)):
                    self._register(path)
                return
            except FileNotFoundError:  # another process has just merged it
                if attempt == _ATTEMPTS:
                    raise

    def _register(self, path: Path, *, instead: bool = False) -> None:
        """Take up a part; ``instead``: its rows go before those known so far."""
        self._add(np.load(path, mmap_mode="r"), path, instead=instead)
        self._next_number = max(self._next_number, _number(path) + 1)

    def _add(self, part: np.ndarray, path: Path | None, *, instead: bool = False) -> None:
        if self.dimension not in (None, part["vector"].shape[1]):
            raise ManifestMismatchError(f"{path} holds rows of another length than the parts before it")
        numbered = zip(_keys(part), range(self._n_rows, self._n_rows + len(part)), strict=True)
        if instead:
            self._row_of.update(numbered)
        else:
            for key, row in numbered:
                self._row_of.setdefault(key, row)
        self._starts.append(self._n_rows)
        self._n_rows += len(part)
        self._parts.append(part)
        self._paths.append(path)


def kept_keys(folder: Path) -> set[str]:
    """Keys of the rows in a cache's folder, which is neither made nor touched; none where there is no such folder."""
    found: set[str] = set()
    for path in sorted(folder.glob(_PARTS)):
        try:
            found.update(_keys(np.load(path, mmap_mode="r")))
        except FileNotFoundError:  # another process has just merged it
            continue
    return found


def _keys(part: np.ndarray) -> list[str]:
    return [key.decode() for key in part["key"].tolist()]


def _number(path: Path) -> int:
    return int(path.name.split("-")[1])


def _write_part(folder: Path, number: int, pieces: Sequence[tuple[np.ndarray, Sequence[int]]]) -> Path:
    """Write rows of some records as one part, under a name no other process can choose; it sorts by ``number``."""
    path = folder / f"part-{number:08d}-{uuid4().hex[:8]}.npy"
    scratch = folder / atomic.scratch_name()
    header = {
        **np.lib.format.header_data_from_array_1_0(pieces[0][0]),
        "shape": (sum(len(rows) for _, rows in pieces),),
    }
    with scratch.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for records, rows in pieces:
            for start in range(0, len(rows), _BLOCK):
                records[rows[start : start + _BLOCK]].tofile(file)
    atomic.fsync_one(scratch)
    scratch.rename(path)
    atomic.fsync_one(folder)
    return path


def _is_claimed(folder: Path, fingerprint: dict[str, Any]) -> bool:
    """Whether the folder says that it belongs to this fingerprint; one that holds nothing says nothing.

    Raises:
        ManifestMismatchError: it belongs to another one, or to none although it holds rows.
    """
    path = folder / FINGERPRINT
    holds_rows = any(
        folder.glob(_PARTS)
    )  # looked for first: another process that starts the cache claims it, then puts
    if path.is_file():
        have = json.loads(path.read_text())
        names = sorted(key for key in have.keys() | fingerprint.keys() if have.get(key) != fingerprint.get(key))
        if names:
            told = ", ".join(f"{name} is {have.get(name)!r}, expected {fingerprint.get(name)!r}" for name in names)
            raise ManifestMismatchError(f"rows in {folder} were made by something else: {told}")
        return True
    if holds_rows:
        raise ManifestMismatchError(f"{folder} holds rows but does not say what made them")
    return False


def _sweep(folder: Path) -> None:
    """Remove scratch files of killed writers, but not those of writers at work."""
    for leftover in folder.glob(f"{atomic.SCRATCH_PREFIX}*"):
        try:
            if time.time() - leftover.stat().st_mtime > _SCRATCH_SECONDS:
                leftover.unlink()
        except FileNotFoundError:
            continue
