"""Scores and counts of optional conditions, for engines that have the nodes of every part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skb_pipeline.plans.results import ConditionCount, rarity

Met = tuple[np.ndarray, np.ndarray]
"""Nodes that meet a condition (distinct integers below some size), and the score of the best match of each."""


@dataclass(frozen=True, eq=False)
class Weighed:
    """What optional conditions make of candidates.

    Attributes:
        scores: float64, per candidate.
        counts: per condition.
        met: number of candidates that meet exactly 0, 1, ... conditions; empty without conditions.
    """

    scores: np.ndarray
    counts: tuple[ConditionCount, ...]
    met: tuple[int, ...]


def meeting_any(conditions: Sequence[Met], size: int) -> np.ndarray:
    """Nodes that meet at least one condition, ascending; all are below ``size``."""
    marked = np.zeros(size, dtype=np.bool_)
    for nodes, _ in conditions:
        marked[nodes] = True
    return np.flatnonzero(marked)


def weigh(nodes: np.ndarray, scores: np.ndarray, conditions: Sequence[Met], n_all: int, size: int) -> Weighed:
    """Add weight times value of every met condition, one condition after the other in their order.

    Args:
        nodes: candidates, distinct integers below ``size``.
        scores: float64, of the required part; 0 where nothing is required.
        conditions: met by which nodes of the target's types.
        n_all: nodes of the target's types.
        size: more than any node.
    """
    values = np.full(size if conditions else 0, np.nan)
    n_met = np.zeros(len(nodes), dtype=np.int64)
    counts = []
    for met, value in conditions:
        weight = rarity(len(met), n_all)
        values[met] = value
        found = values[nodes]
        has = ~np.isnan(found)
        scores = scores + np.where(has, weight * found, 0.0)
        n_met += has
        counts.append(ConditionCount(len(met), int(has.sum()), weight))
        values[met] = np.nan
    met_exactly = np.bincount(n_met, minlength=len(conditions) + 1) if conditions else n_met[:0]
    return Weighed(scores, tuple(counts), tuple(met_exactly.tolist()))
