"""The relations that STaRK's loader keeps, for comparison with published numbers."""

from __future__ import annotations

import numpy as np


def is_symmetric(heads: np.ndarray, tails: np.ndarray) -> bool:
    """Whether every pair of nodes has as many edges in one direction as in the other, whatever their relations.

    Args:
        heads, tails: int64 [edges], not negative.
    """
    size = int(max(heads.max(initial=-1), tails.max(initial=-1))) + 1
    return bool(np.array_equal(np.sort(heads * size + tails), np.sort(tails * size + heads)))


def merge_pairs(heads: np.ndarray, tails: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One edge per pair of nodes, as ``SKB.__init__`` in ``stark_qa/skb/knowledge_base.py`` (Wu et al., 2024) makes it:
    ``to_undirected(..., reduce="mean")`` on the type codes, then a cut to integers.

    Codes of a pair are averaged over the edges of both directions, each as often as it is stored. As the outcome is the
    same in both directions, one edge stands for both here; it keeps the direction of the pair's first edge.

    Args:
        heads, tails, codes: int64 [edges], not negative.

    Returns:
        (rows int64 [pairs], ascending: places of the first edge of each pair; codes int64 [pairs]).
    """
    low, high = np.minimum(heads, tails), np.maximum(heads, tails)
    keys = low * (int(high.max(initial=-1)) + 1) + high
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    total = np.bincount(group, weights=codes, minlength=len(first))
    merged = (total // np.bincount(group, minlength=len(first))).astype(np.int64)
    order = np.argsort(first)
    return first[order], merged[order]
