"""The one interface of row caches, and what it asks of keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

V = TypeVar("V")
_KEY = re.compile("[0-9a-f]{64}")


class RowCache(Protocol[V]):
    """Rows by key. ``V`` is what holds n rows in order, such as float32 [n, dim] or a sequence of n records.

    A key is a sha256 in hex of all that the row depends on and the cache as a whole does not say. So a row never
    changes: rows of one key that several processes put are equal, or equally good, and the first one stays.

    Processes may use one cache at the same time. What another one puts is seen at once or after opening anew.
    """

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Keys without a row, each once, in order of appearance."""
        ...

    def get(self, keys: Sequence[str]) -> V:
        """Rows of ``keys`` in their order; a key that is repeated gives its row again.

        Raises:
            KeyError: a key has no row; the first such is named.
        """
        ...

    def put(self, keys: Sequence[str], values: V) -> None:
        """Add rows. They are on the disk when this returns; a process that is killed meanwhile leaves all or none.

        Args:
            keys: n distinct keys; those that have a row keep it.
            values: n rows.

        Raises:
            ValueError: a key is malformed or repeated, or the values do not fit. Nothing was added.
        """
        ...


def distinct(keys: Iterable[str]) -> list[str]:
    """Each key once, in order of appearance."""
    return list(dict.fromkeys(keys))


def check_keys(keys: Sequence[str], values: int) -> None:
    """Refuse what :meth:`RowCache.put` refuses of keys.

    Raises:
        ValueError: there are not as many as ``values``, one is no sha256 in hex, or one is repeated.
    """
    if len(keys) != values:
        raise ValueError(f"{len(keys)} keys need as many rows, not {values}")
    for key in keys:
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"{key!r} is not a sha256 in hex")
    if len(set(keys)) != len(keys):
        raise ValueError("a key is repeated")


def no_rows(absent: Sequence[str]) -> KeyError:
    """The error of :meth:`RowCache.get` for some keys."""
    return KeyError(f"{len(absent)} keys have no row, such as {absent[0]}")
