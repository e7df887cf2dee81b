"""Weighted reciprocal rank fusion of two rankings with fixed weight and rank constant.

For a node with ranks r1 and r2 (from 1) in the two lists the score is

    w / (k + r1) + (1 - w) / (k + r2)

where a list that does not hold the node contributes nothing (Cormack, Clarke, Büttcher: "Reciprocal Rank Fusion
outperforms Condorcet and individual rank learning methods", SIGIR 2009, with a weight as in GRASP, Stage 2).

Ties decide results here, since few distinct scores are possible. Scores are compared exactly, as fractions, and equal
ones are ordered by the better of the two ranks, then canonically.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

_ABSENT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class FusionReport:
    """What met what.

    Attributes:
        queries: queries with a hit in at least one list.
        only_first, only_second: queries that only one list has hits for.
        shared: (query, node) pairs that stand in both lists. 0 although both lists answer many queries usually means
            that the lists name the same nodes differently.
    """

    queries: int
    only_first: int
    only_second: int
    shared: int

    def metadata(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def static_rrf(
    first: pd.DataFrame,
    second: pd.DataFrame,
    *,
    weight: float,
    k: int,
    canonical: np.ndarray,
    depth: int,
    query_order: Sequence[str],
) -> tuple[pd.DataFrame, FusionReport]:
    """Fuse two rankings.

    Args:
        first, second: frames of the ranking contract; only ``query_id``, ``node_id`` and ``rank`` are read.
        weight: w in [0, 1], of the first list. It is taken as the decimal number it prints as, so 0.1 is 1/10.
        k: rank constant, an integer >= 0.
        canonical: int64, indexed by node id (``skb.store.canonical_positions``).
        depth: rows kept per query.
        query_order: every query id once; the order of the result.

    Returns:
        Frame with ``query_id``, ``node_id``, ``rank`` (int32), ``score`` (float64; equal fractions have equal
        floats), and the report. A list of weight 0 still brings its nodes, behind all others, with score 0.

    Raises:
        ValueError: weight or k is out of range, or a query is not in ``query_order``.
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be between 0 and 1, not {weight}")
    if k < 0 or int(k) != k:
        raise ValueError(f"k must be an integer of at least 0, not {k}")
    pairs = _outer_join(first, second, query_order)
    w = Fraction(repr(weight))
    pairs["score"], pairs["group"] = _exact_scores(pairs, w, int(k))
    order = np.lexsort(
        (
            canonical[pairs["node_id"].to_numpy()],
            pairs[["r1", "r2"]].min(axis=1).to_numpy(),
            pairs["group"].to_numpy(),
            pairs["query"].to_numpy(),
        )
    )
    pairs = pairs.iloc[order]
    pairs["rank"] = pairs.groupby("query").cumcount().astype(np.int32) + np.int32(1)
    report = _report(pairs)
    kept = pairs[pairs["rank"] <= depth]
    names = np.asarray(query_order, dtype=object)
    frame = pd.DataFrame(
        {
            "query_id": names[kept["query"].to_numpy()],
            "node_id": kept["node_id"].to_numpy(np.int64),
            "rank": kept["rank"].to_numpy(np.int32),
            "score": kept["score"].to_numpy(np.float64),
        }
    )
    return frame, report


def _outer_join(first: pd.DataFrame, second: pd.DataFrame, query_order: Sequence[str]) -> pd.DataFrame:
    """One row per (query position, node) of either list, with its ranks; ``_ABSENT`` where it does not stand."""
    place = {query_id: position for position, query_id in enumerate(query_order)}
    sides = []
    for name, frame in (("r1", first), ("r2", second)):
        positions = np.array([place.get(query_id, -1) for query_id in frame["query_id"]], dtype=np.int64)
        if (positions < 0).any():
            unknown = frame["query_id"].to_numpy()[positions < 0][0]
            raise ValueError(f"query {unknown!r} of a ranking is not among the queries to be fused")
        nodes, ranks = frame["node_id"].to_numpy(np.int64), frame["rank"].to_numpy(np.float64)
        sides.append(pd.DataFrame({"query": positions, "node_id": nodes, name: ranks}))
    pairs = sides[0].merge(sides[1], how="outer", on=["query", "node_id"])
    return pairs.fillna({"r1": 0, "r2": 0}).astype(np.int64).replace({"r1": {0: _ABSENT}, "r2": {0: _ABSENT}})


def _exact_scores(pairs: pd.DataFrame, w: Fraction, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (float64) and their place among all distinct scores (int64, 0 = best), compared as fractions.

    The distinct pairs of ranks are few, so each fraction is computed once with integers of any size.
    """
    ranks = pairs[["r1", "r2"]].drop_duplicates()
    fractions = [
        (w / (k + int(r1)) if r1 != _ABSENT else Fraction(0))
        + ((1 - w) / (k + int(r2)) if r2 != _ABSENT else Fraction(0))
        for r1, r2 in ranks.itertuples(index=False)
    ]
    place = {value: i for i, value in enumerate(sorted(set(fractions), reverse=True))}
    ranks["score"] = [float(value) for value in fractions]
    ranks["group"] = [place[value] for value in fractions]
    merged = pairs[["r1", "r2"]].merge(ranks, how="left", on=["r1", "r2"])
    return merged["score"].to_numpy(np.float64), merged["group"].to_numpy(np.int64)


def _report(pairs: pd.DataFrame) -> FusionReport:
    has = pd.DataFrame({"query": pairs["query"], "first": pairs["r1"] != _ABSENT, "second": pairs["r2"] != _ABSENT})
    by_query = has.groupby("query")[["first", "second"]].any()
    return FusionReport(
        queries=len(by_query),
        only_first=int((~by_query["second"]).sum()),
        only_second=int((~by_query["first"]).sum()),
        shared=int((has["first"] & has["second"]).sum()),
    )
