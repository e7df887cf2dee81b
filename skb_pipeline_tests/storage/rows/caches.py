"""The row caches there are, each with a way to make rows that carry a number."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline.storage.rows.base import RowCache
from skb_pipeline.storage.rows.records import RecordRows

FINGERPRINT: dict[str, Any] = {"model": "m", "revision": "1", "max_length": 8}


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def vectors(*numbers: float) -> np.ndarray:
    return np.array([[n, n + 0.5] for n in numbers], dtype=np.float32)


@dataclass(frozen=True)
class Kind:
    """One kind of cache: how a folder of it is opened, and its rows as numbers and back."""

    name: str
    open: Callable[[Path], Any]
    rows: Callable[[Sequence[float]], Any]
    numbers: Callable[[Any], list[float]]

    @contextmanager
    def opened(self, folder: Path) -> Iterator[RowCache[Any]]:
        cache = self.open(folder)
        yield cache
        if isinstance(cache, RecordRows):
            cache.close()

    def number_of(self, folder: Path, keys: Sequence[str]) -> list[float]:
        """What a process that opens the folder anew reads."""
        with self.opened(folder) as cache:
            return self.numbers(cache.get(keys))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("vectors", lambda f: ArrayRows(f, FINGERPRINT), lambda n: vectors(*n), lambda rows: rows[:, 0].tolist()),
        Kind(
            "scores",
            lambda f: ArrayRows(f, FINGERPRINT),
            lambda n: np.array(n, dtype=np.float32).reshape(-1, 1),
            lambda rows: rows[:, 0].tolist(),
        ),
        Kind(
            "records",
            lambda f: RecordRows(f, "thing"),
            lambda n: [{"number": value, "text": "long " * 20} for value in n],
            lambda rows: [row["number"] for row in rows],
        ),
    )
}
