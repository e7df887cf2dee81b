"""A cache of vectors keyed by what they were computed from, so that only new rows are computed again.

A cache folder belongs to one fingerprint (model, settings). It holds immutable parts, each a NumPy file of records
(key, vector) that appears in one step; a killed run leaves whole parts and at most a scratch file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ManifestMismatchError

_FINGERPRINT = "fingerprint.json"
_PARTS = "part-*.npy"
_SCRATCH_SECONDS = 3600.0
"""Age after which a scratch file cannot belong to a live writer: writing a part takes seconds."""


class VectorCache:
    """Vectors by key. Several processes may append at the same time; :meth:`prune` must run alone.

    Keys are sha256 in hex (64 characters). Vectors are float32 and all of one length.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, Any]) -> None:
        """Open or start a cache.

        Args:
            folder: made when absent.
            fingerprint: plain JSON values that every vector in the folder depends on.

        Raises:
            ManifestMismatchError: the folder belongs to another fingerprint, or to none although it holds vectors.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _claim(folder, json.loads(json.dumps(fingerprint, allow_nan=False)))
        _sweep(folder)
        self._reload()

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, key: str) -> bool:
        return key in self._row_of

    @property
    def dimension(self) -> int | None:
        """Length of a vector, or None while the cache is empty."""
        return self._parts[0]["vector"].shape[1] if self._parts else None

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Keys without a vector, each once, in order of appearance."""
        return [key for key in dict.fromkeys(keys) if key not in self._row_of]

    def append(self, keys: Sequence[str], vectors: np.ndarray) -> None:
        """Add vectors as one part that is on disk, whole, when this returns.

        Args:
            keys: n distinct keys; those the cache has already are left as they are.
            vectors: float32 [n, dim], finite.

        Raises:
            ValueError: shapes do not fit each other or the cache, a key is malformed or repeated, or a vector is not
                finite (the key is named).
        """
        vectors = np.asarray(vectors)
        self._check(keys, vectors)
        new = [i for i, key in enumerate(keys) if key not in self._row_of]
        if not new:
            return
        records = np.empty(len(new), dtype=[("key", "S64"), ("vector", np.float32, (vectors.shape[1],))])
        records["key"] = [keys[i] for i in new]
        records["vector"] = vectors[new]
        self._register(_write_part(self.folder, self._next_number, records))

    def get(self, keys: Sequence[str]) -> np.ndarray:
        """Vectors of ``keys`` in their order, float32 [n, dim] (dim is 0 for an empty cache).

        Raises:
            KeyError: a key has no vector.
        """
        absent = self.missing(keys)
        if absent:
            raise KeyError(f"{len(absent)} keys have no vector, such as {absent[0]}")
        rows = np.fromiter((self._row_of[key] for key in keys), dtype=np.int64, count=len(keys))
        found = np.empty((len(keys), self.dimension or 0), dtype=np.float32)
        starts = np.cumsum([0, *(len(part) for part in self._parts)])
        owner = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(owner):
            mine = owner == number
            found[mine] = self._parts[number]["vector"][rows[mine] - starts[number]]
        return found

    def prune(self, keep: Collection[str]) -> int:
        """Remove vectors whose key is not in ``keep`` (and doubles); return how many rows went from the disk."""
        wanted, removed = set(keep), 0
        for path, part in zip(self._paths, self._parts, strict=True):
            keys = _keys(part)
            kept = [i for i, key in enumerate(keys) if key in wanted]
            wanted.difference_update(keys)
            removed += len(keys) - len(kept)
            if len(kept) == len(keys):
                continue
            if kept:
                _write_part(self.folder, self._next_number, part[kept])
                self._next_number += 1
            path.unlink()
        self._reload()
        return removed

    def _check(self, keys: Sequence[str], vectors: np.ndarray) -> None:
        if vectors.ndim != 2 or len(vectors) != len(keys) or vectors.shape[1] == 0 or vectors.dtype != np.float32:
            raise ValueError(f"{len(keys)} keys need float32 [{len(keys)}, dim], not {vectors.dtype} {vectors.shape}")
        if self.dimension not in (None, vectors.shape[1]):
            raise ValueError(f"vectors have {vectors.shape[1]} numbers, those in {self.folder} have {self.dimension}")
        if len(set(keys)) != len(keys):
            raise ValueError("a key is repeated")
        for key in keys:
            if len(key) != 64 or not key.isascii():
                raise ValueError(f"{key!r} is not a sha256 in hex")
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise ValueError(f"vector of {keys[bad[0]]} is not finite")

    def _reload(self) -> None:
        self._row_of: dict[str, int] = {}
        self._parts: list[np.ndarray] = []
        self._paths: list[Path] = []
        self._n_rows = 0
        self._next_number = 0
        for path in sorted(self.folder.glob(_PARTS)):
            self._register(path)

    def _register(self, path: Path) -> None:
        part = np.load(path, mmap_mode="r")
        if self.dimension not in (None, part["vector"].shape[1]):
            raise ManifestMismatchError(f"{path} holds vectors of another length than the parts before it")
        for i, key in enumerate(_keys(part)):
            self._row_of.setdefault(key, self._n_rows + i)
        self._n_rows += len(part)
        self._parts.append(part)
        self._paths.append(path)
        self._next_number = int(path.name.split("-")[1]) + 1


def _keys(part: np.ndarray) -> list[str]:
    return [key.decode() for key in part["key"].tolist()]


def _write_part(folder: Path, number: int, records: np.ndarray) -> Path:
    """Write one part under a name no other process can choose; it sorts by ``number``."""
    path = folder / f"part-{number:08d}-{uuid4().hex[:8]}.npy"
    scratch = folder / atomic.scratch_name()
    with scratch.open("wb") as file:
        np.save(file, records)
    atomic.fsync_one(scratch)
    scratch.rename(path)
    atomic.fsync_one(folder)
    return path


def _claim(folder: Path, fingerprint: dict[str, Any]) -> None:
    path = folder / _FINGERPRINT
    if path.is_file():
        have = json.loads(path.read_text())
        names = sorted(key for key in have.keys() | fingerprint.keys() if have.get(key) != fingerprint.get(key))
        if names:
            told = ", ".join(f"{name} is {have.get(name)!r}, expected {fingerprint.get(name)!r}" for name in names)
            raise ManifestMismatchError(f"vectors in {folder} were made by something else: {told}")
    elif any(folder.glob(_PARTS)):
        raise ManifestMismatchError(f"{folder} holds vectors but does not say what made them")
    else:
        atomic.write_json(path, fingerprint)


def _sweep(folder: Path) -> None:
    """Remove scratch files of killed writers, but not those of writers at work."""
    for leftover in folder.glob(f"{atomic.SCRATCH_PREFIX}*"):
        try:
            if time.time() - leftover.stat().st_mtime > _SCRATCH_SECONDS:
                leftover.unlink()
        except FileNotFoundError:
            continue
