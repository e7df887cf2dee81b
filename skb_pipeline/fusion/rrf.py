"""Weighted reciprocal rank fusion of any number of rankings; weights may differ from query to query.

For a node with rank r_i (from 1) in list i the score is

    sum over the lists of w_i / (k + r_i)

where a list that does not hold the node contributes nothing (Cormack, Clarke, Büttcher: "Reciprocal Rank Fusion
outperforms Condorcet and individual rank learning methods", SIGIR 2009; with weights as in GRASP, Stage 2). Weights are
taken as they are: they need not sum to 1 and are not scaled.

Ties decide results here, since few distinct scores are possible. Scores are compared exactly, as fractions, and equal
ones are ordered by the best rank in any list, then canonically. The comparison goes through integers: every term is
rounded down to a multiple of a unit so small that the error of a sum is less than what unequal sums differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

VERSION = "3"
Weight = int | float | Fraction | str
"""Not negative. A float is the decimal number it prints as (0.1 is 1/10), a text is what it says ("0.1", "1/3")."""

_ABSENT = np.iinfo(np.int64).max
_BITS = 52
"""Per part of a long integer. A part is exact as a float, and a sum of 2048 parts fits 64 bits."""


@dataclass(frozen=True)
class FusionReport:
    """What met what.

    Attributes:
        queries: queries with a hit in at least one list.
        shared: (query, node) pairs that stand in at least two lists. 0 although several lists answer many queries
            usually means that they name the same nodes differently.
        only: name of a list -> queries that only this list has hits for.
        repeated: name of a list -> its rows that name a node again for the same query; only the best rank counts.
    """

    queries: int
    shared: int
    only: dict[str, int]
    repeated: dict[str, int]

    def metadata(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


class _Pairs(NamedTuple):
    """What is fused, one entry per distinct (query, node) of any list.

    Attributes:
        query: int64 [pairs], position in the order of queries.
        node: int64 [pairs].
        ranks: int64 [lists, pairs], the best rank in each list, ``_ABSENT`` where a list does not hold the node.
    """

    query: np.ndarray
    node: np.ndarray
    ranks: np.ndarray

    def at(self, chosen: np.ndarray) -> _Pairs:
        """Some of the pairs, in the order given."""
        return _Pairs(self.query[chosen], self.node[chosen], self.ranks[:, chosen])


class _Sums(NamedTuple):
    """Scores as long integers: times ``2 ** exponent``, a score is ``sum_j parts[j] / 2 ** (_BITS * (j + 1))``.

    Each is too small by less than ``slack`` of the last unit, and unequal scores differ by more than that.

    Attributes:
        parts: int64 [at least 2, pairs], each from 0 to ``2 ** _BITS - 1``.
    """

    parts: np.ndarray
    exponent: int
    slack: int


def rrf(
    lists: Mapping[str, pd.DataFrame],
    *,
    weights: Mapping[str, Weight],
    k: int,
    canonical: np.ndarray,
    depth: int,
    query_order: Sequence[str],
    factors: Mapping[str, Mapping[str, Fraction]] | None = None,
) -> tuple[pd.DataFrame, FusionReport]:
    """Fuse rankings.

    Args:
        lists: name -> frame of the ranking contract; only ``query_id``, ``node_id`` and ``rank`` are read. Ranks are
            taken as they are, also where some are left out. Of a node that a list names twice the best rank counts.
        weights: of every list, by name; at least one is positive.
        k: rank constant, an integer >= 0.
        canonical: int64, indexed by node id (``skb.store.canonical_positions``).
        depth: rows kept per query.
        query_order: every query id once; the order of the result.
        factors: name -> query id -> what the list's weight is multiplied with for that query, not negative; 1 where
            none is given.

    Returns:
        Frame with ``query_id``, ``node_id``, ``rank`` (int32), ``score`` (float64, the one nearest to the fraction, so
        equal fractions have equal floats), and the report. A list of weight 0 still brings its nodes: those that no
        other list holds stand behind all others, with score 0.

    Raises:
        ValueError: weights, k, a rank or a node id are out of range, weights and lists have different names, or a
            query is not in ``query_order``.
    """
    if k < 0 or int(k) != k:
        raise ValueError(f"k must be an integer of at least 0, not {k}")
    exact = _checked_weights(lists, weights)
    pairs, repeated = _joined(lists, canonical, query_order)
    per_query = [_times(exact, [(factors or {}).get(name, {}).get(query) for name in lists]) for query in query_order]
    alike = {own: i for i, own in enumerate(dict.fromkeys(per_query))}
    group = np.array([alike[own] for own in per_query], dtype=np.int64)
    parts = [
        _fused(pairs.at(np.flatnonzero(group[pairs.query] == i)), own, int(k), canonical, depth)
        for own, i in alike.items()
    ]
    frame = pd.concat(parts or [_fused(pairs, exact, int(k), canonical, depth)], ignore_index=True)
    frame = frame.sort_values(["query", "rank"], ignore_index=True)
    frame.insert(0, "query_id", np.asarray(query_order, dtype=object)[frame.pop("query").to_numpy(np.int64)])
    return frame, _report(pairs, list(lists), repeated)


def _times(weights: Sequence[Fraction], factors: Sequence[Fraction | None]) -> tuple[Fraction, ...]:
    """Weights of one query."""
    if any(factor is not None and factor < 0 for factor in factors):
        raise ValueError(f"factors must be at least 0, not {min(f for f in factors if f is not None)}")
    return tuple(w if factor is None else w * factor for w, factor in zip(weights, factors, strict=True))


def _fused(pairs: _Pairs, weights: Sequence[Fraction], k: int, canonical: np.ndarray, depth: int) -> pd.DataFrame:
    """The best of queries with the same weights: ``query`` (position), ``node_id``, ``rank``, ``score``."""
    sums = _exact_sums(pairs.ranks, weights, k)
    order = _best_first(pairs, sums, canonical)
    query = pairs.query[order]
    rank = np.arange(1, len(query) + 1) - np.searchsorted(query, query)
    kept = order[rank <= depth]
    top = pairs.at(kept)
    return pd.DataFrame(
        {
            "query": top.query,
            "node_id": top.node,
            "rank": rank[rank <= depth].astype(np.int32),
            "score": _as_floats(sums._replace(parts=sums.parts[:, kept]), top.ranks, weights, k),
        }
    )


def as_fraction(weight: Weight) -> Fraction:
    """The number a weight stands for, see ``Weight``; this does not check its sign.

    Raises:
        ValueError: it is no finite number.
    """
    try:
        return Fraction(repr(float(weight)) if isinstance(weight, float) else weight)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"a weight must be a number, not {weight!r}") from error


def _checked_weights(lists: Mapping[str, pd.DataFrame], weights: Mapping[str, Weight]) -> list[Fraction]:
    """Weights in the order of the lists."""
    if not lists or lists.keys() != weights.keys():
        raise ValueError(f"lists and weights must have the same names, not {[*lists]} and {[*weights]}")
    exact = [as_fraction(weights[name]) for name in lists]
    for name, weight in zip(lists, exact, strict=True):
        if weight < 0:
            raise ValueError(f"weight of {name} must be at least 0, not {weights[name]}")
    if not any(exact):
        raise ValueError("at least one weight must be above 0")
    return exact


def _joined(
    lists: Mapping[str, pd.DataFrame], canonical: np.ndarray, query_order: Sequence[str]
) -> tuple[_Pairs, dict[str, int]]:
    """The distinct (query, node) of all lists, and how many rows of each list name one of them again."""
    queries, nodes = pd.Index(query_order, dtype=object), len(canonical)
    codes = []
    for name, frame in lists.items():
        query, node = queries.get_indexer(frame["query_id"]), frame["node_id"].to_numpy(np.int64)
        if (query < 0).any():
            unknown = frame["query_id"].to_numpy()[query < 0][0]
            raise ValueError(f"query {unknown!r} of {name} is not among the queries to be fused")
        if len(node) and not 0 <= node.min() <= node.max() < nodes:
            raise ValueError(f"{name} holds a node id outside 0 .. {nodes - 1}")
        codes.append(query.astype(np.int64) * nodes + node)
    distinct, place = np.unique(np.concatenate(codes), return_inverse=True)
    ranks = np.full((len(codes), len(distinct)), _ABSENT)
    repeated, start = {}, 0
    for own, (name, frame) in zip(ranks, lists.items(), strict=True):
        given = frame["rank"].to_numpy(np.int64)
        if (given < 1).any():
            raise ValueError(f"{name} holds the rank {given.min()}; ranks must be at least 1")
        np.minimum.at(own, place[start : start + len(given)], given)
        repeated[name] = len(given) - int((own != _ABSENT).sum())
        start += len(given)
    return _Pairs(distinct // max(nodes, 1), distinct % max(nodes, 1), ranks), repeated


def _exact_sums(ranks: np.ndarray, weights: Sequence[Fraction], k: int) -> _Sums:
    """Scores of all pairs, so exactly that unequal ones can be told apart.

    A score is a fraction over b * d, with b that of all weights and d at most the product of the largest k + r_i. So
    unequal ones differ by at least 1 / (b * d * d).
    """
    n = len(weights)
    b = math.lcm(*(w.denominator for w in weights))
    d = math.prod(k + int(own[own != _ABSENT].max(initial=1)) for own in ranks)
    precision = (2 * n * b * d * d).bit_length()
    most = sum(weights, Fraction(0)) / (k + 1)
    exponent = most.numerator.bit_length() - most.denominator.bit_length() + 1  # most < 2 ** exponent
    length = max(2, math.ceil((exponent + precision) / _BITS))
    shift = _BITS * length - exponent
    parts = np.zeros((length, ranks.shape[1]), dtype=np.int64)
    for own, w in zip(ranks, weights, strict=True):
        held = own != _ABSENT
        distinct, place = np.unique(own[held], return_inverse=True)
        terms = [(w.numerator << shift) // (w.denominator * (k + int(rank))) for rank in distinct]
        for j, part in enumerate(parts):
            below = _BITS * (length - 1 - j)
            part[held] += np.array([(term >> below) & (2**_BITS - 1) for term in terms], dtype=np.int64)[place]
    for j in range(length - 1, 0, -1):
        parts[j - 1] += parts[j] >> _BITS
        parts[j] &= 2**_BITS - 1
    return _Sums(parts, exponent, slack=n)


def _best_first(pairs: _Pairs, sums: _Sums, canonical: np.ndarray) -> np.ndarray:
    """Positions of the pairs, int64: by query, falling score, best rank, canonical position."""
    order = np.lexsort((*-sums.parts[::-1], pairs.query))
    query, parts = pairs.query[order], sums.parts[:, order]
    step = np.zeros(max(len(order) - 1, 0), dtype=np.int64)
    for part in parts:
        # A step of two or more stays large whatever the parts behind it are.
        step = np.clip(step, -2, 2) * 2**_BITS + part[:-1] - part[1:]
    lower = (np.diff(query) != 0) | (step >= sums.slack)
    group = np.concatenate([np.zeros(min(len(order), 1), dtype=np.int64), np.cumsum(lower)])
    return order[np.lexsort((canonical[pairs.node[order]], pairs.ranks[:, order].min(axis=0), group))]


def _as_floats(sums: _Sums, ranks: np.ndarray, weights: Sequence[Fraction], k: int) -> np.ndarray:
    """The float64 nearest to each score.

    Where both ends of the interval that the score lies in have the same nearest float, that is it; the rare others are
    computed as fractions.
    """
    first, second = sums.parts[:2]
    low = first + second * 2.0**-_BITS
    high = first + (second + sums.slack + 1) * 2.0**-_BITS  # 1 for the parts behind the second
    floats = np.ldexp(low, sums.exponent - _BITS)
    for i in np.flatnonzero((low != high) & sums.parts.any(axis=0)):
        held = [(w, int(rank)) for w, rank in zip(weights, ranks[:, i], strict=True) if rank != _ABSENT]
        floats[i] = float(sum((w / (k + rank) for w, rank in held), Fraction(0)))
    return floats


def _report(pairs: _Pairs, names: Sequence[str], repeated: dict[str, int]) -> FusionReport:
    held = pairs.ranks != _ABSENT
    asked = np.unique(pairs.query)
    answers = np.array([np.isin(asked, pairs.query[own]) for own in held])  # [lists, queries]
    alone = answers & (answers.sum(axis=0) == 1)
    return FusionReport(
        queries=len(asked),
        shared=int((held.sum(axis=0) > 1).sum()),
        only={name: int(own.sum()) for name, own in zip(names, alone, strict=True)},
        repeated=repeated,
    )
