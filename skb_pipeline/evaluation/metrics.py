"""The four metrics, from ranked id lists and answer sets; never from score vectors.

Everything that compares a ranking with the answers of its queries belongs here; averages, intervals and tables
do not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from skb_pipeline.storage.frames import Column, Frame

VERSION = "3"
METRICS = ("hit@1", "hit@5", "recall@20", "mrr")
QUERY_METRICS = Frame(
    name="QueryMetrics",
    description="The four metrics of every query of one system.",
    file="query_metrics.parquet",
    key=("query_id",),
    columns={
        "query_id": Column(pa.string(), filled=True, unique=True),
        "split": Column(pa.string(), filled=True),
        **{metric: Column(pa.float64(), filled=True, least=0, most=1) for metric in METRICS},
        "n_answers": Column(pa.int64(), filled=True),
        "n_hits_listed": Column(pa.int64(), filled=True),
    },
)

CONTRACT = (
    "Metrics are computed from ranked id lists, one list per query. "
    "hit@k: 1 if an answer stands in the first k, else 0. "
    "recall@20: distinct answers in the first 20 / all distinct answers, so it stays below 1 for a query with "
    "more than 20. "
    "mrr: 1 / rank of the first answer over the stored list, 0 when none is listed; lists are stored to depth "
    "1,000 by first-stage retrievers and to depth 100 after fusion and reranking, unless a depth is stated below. "
    "Values are means over queries with at least one answer: queries without answers are left out and counted, "
    "answers absent from the SKB stay in the denominator and are counted, an empty list scores 0."
)

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Up to this many ids a position table (4 bytes per id) is cheaper than numbering the ids anew.
_DIRECT_IDS = 2**24
_UNLISTED = np.iinfo(np.int64).max


@dataclass(frozen=True)
class MetricReport:
    """What was counted while a ranking was evaluated.

    Attributes:
        queries: queries evaluated, that is with at least one answer.
        queries_without_answers: queries left out.
        absent_answers: distinct (query, answer) pairs whose node is not in the SKB; None when the SKB's ids were
            not given.
        absent_examples: up to five such node ids, ascending.
        empty_rankings: evaluated queries without any hit; they score 0.
        duplicate_rows: rows that repeat a (query, node) of the ranking; the first was kept. More than 0 is a
            fault of whatever produced the ranking.
        duplicate_example: id of the first query with such a row, or None.
        foreign_queries: queries of the ranking that are not among the queries evaluated; their rows are ignored.
        depth: hits in the longest list of an evaluated query, duplicates removed.
    """

    queries: int
    queries_without_answers: int
    absent_answers: int | None
    absent_examples: tuple[int, ...]
    empty_rankings: int
    duplicate_rows: int
    duplicate_example: str | None
    foreign_queries: int
    depth: int

    def as_metadata(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {**asdict(self), "absent_examples": list(self.absent_examples)}


@dataclass(frozen=True)
class RankedLists:
    """The rows of a ranking grouped by query and in rank order.

    Attributes:
        nodes: int64 [rows], node ids.
        start, stop: int64 [queries], the slice of ``nodes`` that belongs to each query; equal when it is empty.
        foreign_queries: number of query ids in the ranking that were not asked for.
    """

    nodes: IntArray
    start: IntArray
    stop: IntArray
    foreign_queries: int


def query_metrics(
    ranking: pd.DataFrame, queries: pd.DataFrame, *, known_node_ids: Collection[int] | IntArray | None = None
) -> pd.DataFrame:
    """The frame of :func:`evaluate_ranking` without its report; same arguments, same errors."""
    return evaluate_ranking(ranking, queries, known_node_ids=known_node_ids)[0]


def evaluate_ranking(
    ranking: pd.DataFrame, queries: pd.DataFrame, *, known_node_ids: Collection[int] | IntArray | None = None
) -> tuple[pd.DataFrame, MetricReport]:
    """Score every query that has an answer.

    With A the distinct answers of a query and r(a) the 1-based position of an answer in its list without
    duplicates: hit@k = [min r(a) <= k], recall@20 = |{a : r(a) <= 20}| / |A|, mrr = 1 / min r(a), or 0 when no
    answer is listed. These are trec_eval's success_k, recall_20 and recip_rank; for mrr see Craswell, "Mean Reciprocal
    Rank" (Encyclopedia of Database Systems, 2009).

    Args:
        ranking: columns ``query_id`` (str), ``node_id`` (int), ``rank`` (int, 1-based, no gaps); rows in any
            order. Only ranks are read, not scores.
        queries: columns ``query_id`` (str, unique), ``split`` (str), ``answer_ids`` (list or array of int; None
            counts as empty).
        known_node_ids: ids of all nodes of the SKB, to count answers that are absent from it.

    Returns:
        One row per query with an answer, in the order of ``queries``: ``query_id``, ``split``, the METRICS
        (float64 in [0, 1]), ``n_answers`` and ``n_hits_listed`` (int64: distinct answers, and how many of them
        stand anywhere in the list); and the report.

    Raises:
        KeyError: a column is missing.
        TypeError: ids or ranks are not integers.
        ValueError: a query id occurs twice, a split is null, or ranks have gaps or ties.
    """
    _require_columns(queries, "queries", "query_id", "split", "answer_ids")
    if queries["split"].isna().any():
        raise ValueError(f"query {queries.loc[queries['split'].isna(), 'query_id'].iloc[0]!r} has no split")
    query_ids = unique_query_ids(queries)
    answers, n_answers = distinct_answers(queries)
    lists = ranked_lists(ranking, query_ids)
    positions, depth, repeated = _answer_positions(lists, answers, n_answers)

    answered = n_answers > 0
    scores, listed = _scores(positions, n_answers[answered])
    frame = queries.loc[answered, ["query_id", "split"]].reset_index(drop=True)
    frame = frame.assign(**scores, n_answers=n_answers[answered], n_hits_listed=listed)
    absent = None if known_node_ids is None else _absent(answers, known_node_ids)
    report = MetricReport(
        queries=int(answered.sum()),
        queries_without_answers=int((~answered).sum()),
        absent_answers=None if absent is None else len(absent),
        absent_examples=() if absent is None else tuple(np.unique(absent)[:5].tolist()),
        empty_rankings=int((depth[answered] == 0).sum()),
        duplicate_rows=int(repeated.sum()),
        duplicate_example=str(query_ids[int(repeated.argmax())]) if repeated.any() else None,
        foreign_queries=lists.foreign_queries,
        depth=int(depth[answered].max(initial=0)),
    )
    return frame, report


def unique_query_ids(queries: pd.DataFrame) -> pd.Index:
    """The query ids as an index.

    Raises:
        ValueError: an id occurs twice.
    """
    ids = pd.Index(queries["query_id"].to_numpy(dtype=object))
    if not ids.is_unique:
        raise ValueError(f"query id {ids[ids.duplicated()][0]!r} occurs more than once in the queries")
    return ids


def distinct_answers(queries: pd.DataFrame) -> tuple[IntArray, IntArray]:
    """Distinct answers of each query: all of them one query after the other (ascending), and counts [queries].

    Raises:
        TypeError: the answers of a query are not a list of integers.
    """
    arrays = [
        _answer_array(query_id, value)
        for query_id, value in zip(queries["query_id"], queries["answer_ids"], strict=True)
    ]
    owner = np.repeat(np.arange(len(arrays)), [len(array) for array in arrays])
    flat = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
    order = np.lexsort((flat, owner))
    owner, flat = owner[order], flat[order]
    new = np.ones(len(flat), dtype=bool)
    new[1:] = (owner[1:] != owner[:-1]) | (flat[1:] != flat[:-1])
    return flat[new], np.bincount(owner[new], minlength=len(arrays)).astype(np.int64)


def ranked_lists(ranking: pd.DataFrame, query_ids: pd.Index) -> RankedLists:
    """Group a ranking by query and put each list in rank order.

    Rows already in that order, as every producer of this package writes them, are only checked. The same
    (query, node, rank) twice is let through, so that the caller can count the duplicate.

    Raises:
        KeyError, TypeError, ValueError: as for :func:`evaluate_ranking`.
    """
    _require_columns(ranking, "ranking", "query_id", "node_id", "rank")
    ids = ranking["query_id"].to_numpy(dtype=object)
    nodes = _integers(ranking, "node_id")
    ranks = _integers(ranking, "rank")
    start, stop = _runs(ids)
    if not (pd.Index(ids[start]).is_unique and _counts_up(ranks, start)):
        order = np.lexsort((nodes, ranks, pd.factorize(ids)[0]))
        ids, nodes, ranks = ids[order], nodes[order], ranks[order]
        start, stop = _runs(ids)
        _check_ranks(ids, nodes, ranks, start)
    owner = query_ids.get_indexer(pd.Index(ids[start]))
    known = owner >= 0
    bounds = np.zeros((2, len(query_ids)), dtype=np.int64)
    bounds[:, owner[known]] = start[known], stop[known]
    return RankedLists(nodes, bounds[0], bounds[1], int((~known).sum()))


def _answer_positions(
    lists: RankedLists, answers: IntArray, n_answers: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """1-based position of every answer (0 when not listed), and per query list length and duplicates removed.

    ``place[node]`` is the position at which the node was last seen, in this list or an earlier one, so an answer
    costs one look-up and a comparison, whatever the length of the list, and nothing is cleared between queries.
    """
    nodes, answers, span = _table_ids(lists.nodes, answers)
    place = np.zeros(span, dtype=np.int32)
    counting = np.arange((lists.stop - lists.start).max(initial=0), dtype=np.int32)
    positions = np.zeros(len(answers), dtype=np.int64)
    depth = np.zeros(len(n_answers), dtype=np.int64)
    repeated = np.zeros(len(n_answers), dtype=np.int64)
    own_stop = n_answers.cumsum()
    bounds = zip(
        lists.start.tolist(), lists.stop.tolist(), (own_stop - n_answers).tolist(), own_stop.tolist(), strict=True
    )
    for query, (start, stop, own_start, own_end) in enumerate(bounds):
        if start == stop:
            continue
        listed = nodes[start:stop]
        here = counting[: stop - start]
        place[listed] = here
        if not (place.take(listed) == here).all():  # a repeated node has one place for several positions
            listed = listed[np.sort(np.unique(listed, return_index=True)[1])]
            repeated[query] = stop - start - len(listed)
            place[listed] = counting[: len(listed)]
        depth[query] = len(listed)
        if own_start < own_end:
            own = answers[own_start:own_end]
            at = np.minimum(place.take(own), len(listed) - 1)
            positions[own_start:own_end] = np.where(listed.take(at) == own, at + 1, 0)
    return positions, depth, repeated


def _scores(positions: IntArray, n_answers: IntArray) -> tuple[dict[str, FloatArray], IntArray]:
    """METRICS per answered query, and how many of its answers are listed. ``n_answers`` holds no zero."""
    if len(n_answers) == 0:
        return {name: np.empty(0) for name in METRICS}, np.empty(0, dtype=np.int64)
    begin = n_answers.cumsum() - n_answers
    found = positions > 0
    first = np.minimum.reduceat(np.where(found, positions, _UNLISTED), begin)
    in_20 = np.add.reduceat((found & (positions <= 20)).astype(np.int64), begin)
    scores = {
        "hit@1": (first <= 1).astype(np.float64),
        "hit@5": (first <= 5).astype(np.float64),
        "recall@20": in_20 / n_answers,
        "mrr": np.where(first < _UNLISTED, 1.0 / first, 0.0),
    }
    return scores, np.add.reduceat(found.astype(np.int64), begin)


def _table_ids(nodes: IntArray, answers: IntArray) -> tuple[IntArray, IntArray, int]:
    """Both id arrays as indices into a table of the returned size; renumbered when the ids are far apart."""
    both = (nodes, answers)
    low = min(int(ids.min(initial=0)) for ids in both)
    high = max(int(ids.max(initial=0)) for ids in both)
    if low >= 0 and high < max(_DIRECT_IDS, 4 * len(nodes)):
        return nodes, answers, high + 1
    codes, distinct = pd.factorize(np.concatenate(both))
    return codes[: len(nodes)], codes[len(nodes) :], len(distinct)


def _absent(answers: IntArray, known_node_ids: Collection[int] | IntArray) -> IntArray:
    known = np.fromiter(known_node_ids, dtype=np.int64, count=len(known_node_ids))
    return answers[~np.isin(answers, known)]


def _answer_array(query_id: object, value: object) -> IntArray:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return np.empty(0, dtype=np.int64)
    array = np.asarray(value)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"answer_ids of query {query_id!r} must be a list of integers, got {value!r}")
    return array.astype(np.int64)


def _runs(ids: npt.NDArray[np.object_]) -> tuple[IntArray, IntArray]:
    """Start and stop of every stretch of equal neighbours."""
    if len(ids) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    start = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))
    return start, np.append(start[1:], len(ids))


def _counts_up(ranks: IntArray, start: IntArray) -> bool:
    """Whether every stretch holds the ranks 1, 2, 3 ... in this order."""
    breaks = np.flatnonzero(ranks[1:] - ranks[:-1] != 1) + 1  # always one where a next stretch starts with 1
    return bool(np.array_equal(breaks, start[1:]) and (ranks[start] == 1).all())


def _check_ranks(ids: npt.NDArray[np.object_], nodes: IntArray, ranks: IntArray, start: IntArray) -> None:
    step = np.diff(ranks, prepend=0)
    step[start] = ranks[start]
    again = (step == 0) & (nodes == np.roll(nodes, 1))
    again[start] = False
    wrong = np.flatnonzero((step != 1) & ~again)
    if len(wrong):
        raise ValueError(
            f"ranking of query {ids[wrong[0]]!r}: ranks must be 1, 2, 3 ... without gaps, one node per rank "
            f"(node {nodes[wrong[0]]} has rank {ranks[wrong[0]]})"
        )


def _integers(frame: pd.DataFrame, column: str) -> IntArray:
    if not pd.api.types.is_integer_dtype(frame[column]) and len(frame):
        raise TypeError(f"ranking column {column!r} must hold integers, not {frame[column].dtype}")
    return frame[column].to_numpy(dtype=np.int64)


def _require_columns(frame: pd.DataFrame, name: str, *columns: str) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise KeyError(f"{name} has no column {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}")
