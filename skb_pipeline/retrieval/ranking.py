"""The ranking contract: what every branch, fusion and reranker hands on, and the rule that breaks ties.

A ranking has the columns of ``RANKING``. Per query the ranks are 1..n without gaps, no node occurs twice,
scores are finite and do not rise, and nodes of equal score stand in canonical order. Rows are sorted by query
order, then rank. A query without hits has no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.errors import UserError
from skb_pipeline.storage.frames import Column, Frame

VERSION = "1"
RANKING = Frame(
    name="Ranking",
    description="Hits of every query: rank from 1 without gaps, finite score, no node twice.",
    file="ranking.parquet",
    key=("query_id", "node_id"),
    columns={
        "query_id": Column(pa.string(), filled=True),
        "node_id": Column(pa.int64(), filled=True, least=0),
        "rank": Column(pa.int32(), filled=True, least=1),
        "score": Column(pa.float64(), filled=True),
    },
)
_NUMPY_TYPES = {"node_id": np.int64, "rank": np.int32, "score": np.float64}


class RankingError(UserError, ValueError):
    """Hits that cannot become a ranking: duplicates, unknown nodes or queries, scores that are not finite."""


class Hits(NamedTuple):
    """Scored nodes of several queries as flat arrays of one length, in any order.

    Attributes:
        query: int64, position of the query in the list that was searched.
        node_id: int64.
        score: float64, higher is better.
    """

    query: np.ndarray
    node_id: np.ndarray
    score: np.ndarray

    @classmethod
    def concatenate(cls, parts: Sequence[Hits]) -> Hits:
        """All parts one after the other; no part gives empty arrays."""
        return cls(
            np.concatenate([np.empty(0, np.int64), *(p.query for p in parts)]),
            np.concatenate([np.empty(0, np.int64), *(p.node_id for p in parts)]),
            np.concatenate([np.empty(0, np.float64), *(p.score for p in parts)]),
        )


def top_k_with_ties(scores: np.ndarray, k: int, canonical: np.ndarray) -> np.ndarray:
    """Positions of the ``k`` best scores, best first; equal scores in canonical order, also at the cut.

    Args:
        scores: float [n], finite.
        k: how many; more than n gives n.
        canonical: int64 [n], canonical position of each scored node.

    Returns:
        int64 [min(k, n)].
    """
    kept = np.arange(len(scores), dtype=np.int64)
    if k < len(scores):
        if k <= 0:
            return kept[:0]
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        above = np.flatnonzero(scores > bound)
        tied = np.flatnonzero(scores == bound)
        room = k - len(above)
        if room < len(tied):
            tied = tied[np.argpartition(canonical[tied], room - 1)[:room]]
        kept = np.concatenate([above, tied])
    return kept[np.lexsort((canonical[kept], -scores[kept]))]


def canonical_of(node_ids: np.ndarray, canonical: np.ndarray) -> np.ndarray:
    """Canonical position of each node.

    Args:
        node_ids: int64 [n].
        canonical: int64, indexed by node id, -1 where no node has the id (``skb.store.canonical_positions``).

    Raises:
        RankingError: an id is not a node of the SKB (an index of other data, a position taken for an id).
    """
    ids = np.asarray(node_ids, dtype=np.int64)
    known = (ids >= 0) & (ids < len(canonical))
    known[known] = canonical[ids[known]] >= 0
    if not known.all():
        raise RankingError(f"{int((~known).sum())} node ids are not in the SKB, such as {ids[~known][:5].tolist()}")
    return canonical[ids]


def build_ranking(
    query_ids: Sequence[str] | np.ndarray,
    node_ids: np.ndarray,
    scores: np.ndarray,
    *,
    canonical: np.ndarray,
    depth: int,
    query_order: Sequence[str],
) -> pd.DataFrame:
    """The ranking of scored (query, node) pairs given as flat arrays in any order.

    Args:
        query_ids: text [n].
        node_ids: integer [n].
        scores: float [n], higher is better.
        canonical: int64, indexed by node id (``skb.store.canonical_positions``).
        depth: rows kept per query.
        query_order: every query id once; the order of the result.

    Raises:
        RankingError: arrays of different length, a pair twice, a score that is not finite, a query not in
            ``query_order`` or a node not in the SKB.
    """
    given = pd.Index(np.asarray(query_ids, dtype=object), dtype=object)
    positions = _query_index(query_order).get_indexer(given).astype(np.int64)
    if (positions < 0).any():
        raise RankingError(f"query {given[positions < 0][0]!r} is not in the query order")
    return rank_hits(
        Hits(positions, np.asarray(node_ids), np.asarray(scores)),
        canonical=canonical,
        depth=depth,
        query_order=query_order,
    )


def rank_hits(hits: Hits, *, canonical: np.ndarray, depth: int, query_order: Sequence[str]) -> pd.DataFrame:
    """Like :func:`build_ranking` for hits whose ``query`` is a position in ``query_order``."""
    names = np.asarray(_query_index(query_order), dtype=object)
    query = np.asarray(hits.query, dtype=np.int64)
    node = _as_ids(hits.node_id)
    score = np.asarray(hits.score, dtype=np.float64)
    if not len(query) == len(node) == len(score):
        raise RankingError(f"arrays differ in length: {len(query)} queries, {len(node)} nodes, {len(score)} scores")
    if depth < 1:
        raise RankingError(f"depth must be at least 1, not {depth}")
    if len(query) and not (query.min() >= 0 and query.max() < len(names)):
        raise RankingError(f"query positions must lie in 0..{len(names) - 1}")
    _check_finite(names[query], node, score)
    place = canonical_of(node, canonical)
    order = np.lexsort((place, -score, query))
    query, node, score = query[order], node[order], score[order]
    _check_pairs(names, query, node)
    rank = _position_in_run(query) + 1
    kept = rank <= depth
    return pd.DataFrame(
        {
            "query_id": names[query[kept]],
            "node_id": node[kept],
            "rank": rank[kept].astype(np.int32),
            "score": score[kept],
        }
    )


def _query_index(query_order: Sequence[str]) -> pd.Index[Any]:
    index = pd.Index(np.asarray(query_order, dtype=object), dtype=object)
    if not index.is_unique:
        raise RankingError(f"query order holds {index[index.duplicated()][0]!r} twice")
    return index


def _as_ids(values: np.ndarray) -> np.ndarray:
    ids = np.asarray(values)
    if len(ids) and ids.dtype.kind not in "iu":
        raise RankingError(f"node ids must be integers, not {ids.dtype}")
    return ids.astype(np.int64)


def _check_finite(names: np.ndarray, node: np.ndarray, score: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(score))
    if len(bad):
        i = bad[0]
        raise RankingError(
            f"{len(bad)} scores are not finite, such as {score[i]} of node {node[i]} for query {names[i]!r}"
        )


def _check_pairs(names: np.ndarray, query: np.ndarray, node: np.ndarray) -> None:
    twice = _repeated_pairs(query, node)
    if len(twice):
        i = twice[0]
        raise RankingError(f"node {node[i]} occurs twice for query {names[query[i]]!r}")


def _repeated_pairs(query: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Positions of rows whose (query, node) occurs in another row."""
    order = np.lexsort((node, query))
    same = (query[order][1:] == query[order][:-1]) & (node[order][1:] == node[order][:-1])
    return order[1:][same]


def _position_in_run(values: np.ndarray) -> np.ndarray:
    """0-based position of each element within its run of equal neighbours."""
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.empty(0, np.int64)
    lengths = np.diff(np.r_[starts, len(values)])
    return np.arange(len(values)) - np.repeat(starts, lengths)


def check_ranking(
    frame: pd.DataFrame,
    *,
    query_order: Sequence[str] | None = None,
    depth: int | None = None,
    canonical: np.ndarray | None = None,
) -> list[str]:
    """Every way in which ``frame`` breaks the ranking contract, as sentences; empty when it keeps it.

    Args:
        frame: what claims to be a ranking.
        query_order: checks that queries are known and stand in this order.
        depth: checks that no query has more rows.
        canonical: int64, indexed by node id; checks that nodes are known and ties are in canonical order.
    """
    problems = _type_problems(frame)
    if problems or frame.empty:
        return problems
    query, names = pd.factorize(frame["query_id"])
    query = query.astype(np.int64)
    node, rank, score = (frame[name].to_numpy() for name in _NUMPY_TYPES)

    def report(rows: np.ndarray, what: str) -> None:
        if len(rows):
            i = int(rows[0])
            problems.append(f"{what}: {len(rows)} rows, such as row {i} (query {names[query[i]]!r}, node {node[i]})")

    runs = query[np.r_[True, query[1:] != query[:-1]]]
    if len(runs) != len(names):
        problems.append("rows of one query are not next to each other")
    report(np.flatnonzero(~np.isfinite(score)), "score is not finite")
    report(_repeated_pairs(query, node), "node occurs twice for a query")
    report(np.flatnonzero(rank != _position_in_run(query) + 1), "rank is not 1..n without gaps")
    if depth is not None:
        report(np.flatnonzero(rank > depth), f"rank is below the depth {depth}")
    same = query[1:] == query[:-1]
    report(np.flatnonzero(same & (score[1:] > score[:-1])) + 1, "score rises with the rank")
    if canonical is not None:
        try:
            place = canonical_of(node, canonical)
        except RankingError as error:
            problems.append(str(error))
        else:
            tied = same & (score[1:] == score[:-1])
            report(np.flatnonzero(tied & (place[1:] < place[:-1])) + 1, "tie is not in canonical order")
    if query_order is not None:
        where = _query_index(query_order).get_indexer(pd.Index(names, dtype=object))[query]
        report(np.flatnonzero(where < 0), "query is not in the query order")
        report(np.flatnonzero(where[1:] < where[:-1]) + 1, "query stands out of the query order")
    return problems


def _type_problems(frame: pd.DataFrame) -> list[str]:
    if list(frame.columns) != RANKING.names:
        return [f"columns are {list(frame.columns)}, not {RANKING.names}"]
    problems = [
        f"{name} is {frame[name].dtype}, not {np.dtype(kind)}"
        for name, kind in _NUMPY_TYPES.items()
        if frame[name].dtype != kind
    ]
    if pd.api.types.infer_dtype(frame["query_id"], skipna=False) not in ("string", "empty"):
        problems.append("query_id holds values that are not text")
    return problems
