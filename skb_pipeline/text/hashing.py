"""Seeded 64-bit hashes: every choice made for a question comes from here, never from a random generator.

A choice depends on text keys alone, so it is the same in every process, for every numbering of the nodes and for
every order of the rows, and a node that comes or goes leaves the choices about other nodes as they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def key_hash(*parts: str | int) -> int:
    """64-bit BLAKE2b of the parts; ``("ab", "c")`` and ``("a", "bc")`` differ."""
    data = json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def mix(key: int, hashes: np.ndarray) -> np.ndarray:
    """Combine one key with many hashes: the finaliser of SplitMix64 (Steele et al. 2014, figure 13).

    Args:
        key: 64-bit key.
        hashes: uint64 array, one hash per item.

    Returns:
        uint64 array of the same shape; different for every ``key``, bijective in ``hashes``.
    """
    z = np.asarray(hashes, dtype=np.uint64) ^ np.uint64(key)
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def happens(share: float, *parts: str | int) -> bool:
    """True for a ``share`` (0..1) of all keys."""
    return key_hash(*parts) < share * 2.0**64


def choose(options: Sequence[Item], *parts: str | int) -> Item:
    """One of the options, evenly over all keys.

    Raises:
        ValueError: there are no options.
    """
    if not options:
        raise ValueError("nothing to choose from")
    return options[key_hash(*parts) % len(options)]
