"""Why a question was missed: each in exactly one bucket, counted per system, split and slice.

A question is missed by a system when no right answer stands among its first 20. What follows is asked in this order,
and the first that holds is the bucket:

1. ``answer not in the SKB``: none of the answers is a node.
2. ``not linked``: linking was tried and an entity that the question needs is not among the linked nodes. Where the
   question's gold anchors are known these must all be there (rule ``gold anchors``), else any linked node will do (rule
   ``any anchor``). A planner that knows none of the question's names (``no_mention``) did not link it either.
3. ``no plan``: nothing could be executed; the cause is the planner's.
4. ``wrong plan``: the plan was executed, no answer is among its candidates, and one can be reached from the linked
   nodes over at most ``REACH_HOPS`` edges of whatever relation.
5. ``unreachable``: the same, and none can be reached so.
6. ``cut``: an answer is among the candidates and not in the system's list, or a limit stopped the plan (its cause).
7. ``ranked below``: an answer is in the list, below 20.

Of a system without plans only 1, 6 and 7 are asked (rule ``text``): its candidates are all documents. A plan that is a
document search (rule ``document search``) links nothing, and its candidates are the nodes of its target's types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.evaluation.slices import slice_masks
from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import GraphOutcome
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.storage.frames import Column, Frame
from skb_pipeline.text.sinks import markdown_table

if TYPE_CHECKING:
    from skb_pipeline.graph.memory.csr import CsrGraph
    from skb_pipeline.graph.memory.executor import MemoryExecutor

VERSION = "1"
WITHIN = 20
"""A question is missed when no right answer has a rank up to this."""
REACH_HOPS = 3
"""Edges over which an answer counts as reachable."""
REACH_ENTRIES = 2_000_000
"""Adjacency entries read for one question, before its answers are taken for reachable (cause ``many neighbours``)."""
_TIMEOUT_S = 60.0
FOUND = "found"


class Bucket(StrEnum):
    """Why a question was missed, in the order in which it is asked."""

    NOT_IN_SKB = "answer not in the SKB"
    NOT_LINKED = "not linked"
    NO_PLAN = "no plan"
    WRONG_PLAN = "wrong plan"
    UNREACHABLE = "unreachable"
    CUT = "cut"
    RANKED_BELOW = "ranked below"


class Rule(StrEnum):
    """What decided whether a question was linked."""

    GOLD = "gold anchors"
    LINKS = "any anchor"
    SEARCH = "document search"
    TEXT = "text"


MISSES = Frame(
    name="Misses",
    description="For each system and question with answers, the rank of the first right one, and why it was missed.",
    file="misses.parquet",
    key=("system", "query_id"),
    columns={
        "system": Column(pa.string(), filled=True),
        "query_id": Column(pa.string(), filled=True),
        "rank": Column(pa.int64(), least=1),
        "bucket": Column(pa.string(), one_of=[*Bucket]),
        "cause": Column(pa.string()),
        "rule": Column(pa.string(), one_of=[*Rule]),
    },
)
"""``rank`` is null where no right answer is listed; ``bucket``, ``cause`` and ``rule`` are null where the question was
not missed, and ``rule`` where it was not asked for."""
BUCKET_ROWS = Frame(
    name="Buckets",
    description="Questions in each bucket by system, split and slice.",
    file="buckets.parquet",
    key=("system", "split", "slice", "bucket"),
    columns={
        **{name: Column(pa.string(), filled=True) for name in ("system", "split", "slice", "bucket")},
        "questions": Column(pa.int64(), filled=True, least=0),
        "of": Column(pa.int64(), filled=True, least=1),
    },
)
"""``of``: questions with answers of the split and slice; the buckets and ``found`` add up to it."""

Links = Mapping[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Verdict:
    """What a plan did to a question; ``bucket`` is None where an answer is among the candidates."""

    bucket: Bucket | None
    rule: Rule | None
    cause: str | None = None


@dataclass(frozen=True)
class Listed:
    """One system.

    Attributes:
        ranking: ``query_id, node_id, rank``.
        plans: name of the system whose plans it rests on (itself, or a part of it); None without any.
        outcomes: rows of ``graph.branch.OUTCOMES``, of a system that executes plans.
    """

    ranking: pd.DataFrame
    plans: str | None = None
    outcomes: pd.DataFrame | None = None


class Reach:
    """What a plan could have found, looked up in the graph.

    Args:
        graph: None where there is none: then nothing is known, see :meth:`reaches`.
        schema: plans are checked against it.
        entries: adjacency entries read for one question.

    Attributes:
        unsettled: why :meth:`reaches` gives None.
    """

    def __init__(self, graph: CsrGraph | None, schema: GraphSchema | None, *, entries: int = REACH_ENTRIES) -> None:
        self._graph, self._schema, self._entries = graph, schema, entries
        self.unsettled = "no graph" if graph is None else "many neighbours"

    @cached_property
    def _executor(self) -> MemoryExecutor | None:
        if self._graph is None or self._schema is None:
            return None
        from skb_pipeline.graph.memory.executor import MemoryExecutor

        return MemoryExecutor(self._graph, self._schema)

    def reaches(self, anchors: np.ndarray, answers: np.ndarray) -> bool | None:
        """Whether an answer is at most ``REACH_HOPS`` edges from an anchor (int64 node ids); None where that is not
        settled."""
        return None if self._graph is None else reachable(self._graph, anchors, answers, entries=self._entries)

    def candidates(self, plan: Plan, links: Links) -> set[int] | None:
        """All answers of a plan, executed once more; None if a limit stops it, or there is no graph."""
        if self._executor is None:
            return None
        result = self._executor.execute(plan, links, limit=max(1, self._executor.n_nodes), timeout_s=_TIMEOUT_S)
        done = result.outcome in (GraphOutcome.OK, GraphOutcome.EMPTY)
        return set(result.node_ids.tolist()) if done else None


def reachable(
    graph: CsrGraph, anchors: np.ndarray, answers: np.ndarray, *, hops: int = REACH_HOPS, entries: int = REACH_ENTRIES
) -> bool | None:
    """Whether some answer is at most ``hops`` edges, of any relation and either direction, from some anchor.

    Both sides grow, the one with fewer nodes first, until they meet.

    Args:
        anchors, answers: int64 node ids; unknown ones are ignored.
        hops: edges.
        entries: adjacency entries that may be read.

    Returns:
        None if ``entries`` ran out.
    """
    edges = [graph.positions(np.asarray(ids, dtype=np.int64)) for ids in (anchors, answers)]
    edges = [np.unique(side[side >= 0]) for side in edges]
    seen = [np.zeros(graph.n_nodes, dtype=bool) for _ in edges]
    for side, mark in zip(edges, seen, strict=True):
        mark[side] = True
    if (seen[0][edges[1]]).any():
        return True
    for _ in range(hops):
        near = 0 if len(edges[0]) <= len(edges[1]) else 1
        found = _neighbours(graph, edges[near], entries)
        if found is None:
            return None
        entries -= len(found)
        fresh = np.unique(found[~seen[near][found]])
        if seen[1 - near][fresh].any():
            return True
        if not len(fresh):
            return False
        seen[near][fresh] = True
        edges[near] = fresh
    return False


def _neighbours(graph: CsrGraph, positions: np.ndarray, most: int) -> np.ndarray | None:
    """Neighbours of some positions with repetitions; None if there are more than ``most``."""
    parts = [np.empty(0, dtype=np.int64)]
    for name in graph.relations:
        relation = graph.relation(name)
        assert relation is not None
        rows = positions - relation.first_row
        rows = rows[(rows >= 0) & (rows < len(relation.indptr) - 1)]
        starts = relation.indptr[rows].astype(np.int64)
        counts = relation.indptr[rows + 1].astype(np.int64) - starts
        total = int(counts.sum())
        most -= total
        if most < 0:
            return None
        places = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(total)
        parts.append(relation.neighbours[places].astype(np.int64))
    return np.concatenate(parts)


def build_misses(
    queries: pd.DataFrame, systems: Mapping[str, Listed], shown: Sequence[str], nodes: pd.DataFrame, reach: Reach
) -> pd.DataFrame:
    """Rows of ``MISSES``.

    Args:
        queries: ``query_id``, ``answer_ids`` and, where they are known, ``anchor_ids`` (the gold plan's, a list of
            ``{var, node_id}``). Questions without answers have no rows.
        systems: by name; those that others rest on are among them.
        shown: systems that get rows, in this order.
        nodes: index ``node_id``, columns ``external_id, node_type``.
        reach: what plans could have found.
    """
    asked = _asked(queries)
    judges = {
        name: _PlanJudge(listed, asked, nodes, reach) for name, listed in systems.items() if listed.outcomes is not None
    }
    known = set(nodes.index[nodes.index.isin({a for question in asked.values() for a in question.answers})])
    rows: list[dict[str, Any]] = []
    for system in shown:
        listed = systems[system]
        ranks = first_ranks(asked, listed.ranking)
        judge = judges.get(listed.plans) if listed.plans is not None else None
        for query_id, question in asked.items():
            rank = ranks.get(query_id)
            row: dict[str, Any] = {"system": system, "query_id": query_id, "rank": rank}
            if rank is None or rank > WITHIN:
                there = question.answers & known
                row |= _told(_verdict(judge, query_id, there), rank) if there else _told(_ABSENT, rank)
                if judge is None:
                    row["rule"] = Rule.TEXT.value
            rows.append(row)
    return pd.DataFrame(rows, columns=MISSES.names).astype({"rank": "Int64"})


@dataclass(frozen=True)
class _Question:
    answers: frozenset[int]
    anchors: frozenset[int] | None


_ABSENT = Verdict(Bucket.NOT_IN_SKB, None)


def _asked(queries: pd.DataFrame) -> dict[str, _Question]:
    """Questions with answers, in their order."""
    gold = queries["anchor_ids"] if "anchor_ids" in queries.columns else [None] * len(queries)
    return {
        str(query_id): _Question(
            frozenset(int(a) for a in answers),
            None if anchors is None or _is_nan(anchors) else frozenset(int(a["node_id"]) for a in anchors),
        )
        for query_id, answers, anchors in zip(queries["query_id"], queries["answer_ids"], gold, strict=True)
        if answers is not None and not _is_nan(answers) and len(answers)
    }


def _is_nan(value: Any) -> bool:
    return isinstance(value, float)


def first_ranks(asked: Mapping[str, _Question], ranking: pd.DataFrame) -> dict[str, int]:
    """Rank of the first right answer by query; queries without a listed one are left out."""
    pairs = pd.DataFrame(
        [(query_id, answer) for query_id, question in asked.items() for answer in question.answers],
        columns=["query_id", "node_id"],
    ).astype({"node_id": "int64"})
    found = pairs.merge(ranking[["query_id", "node_id", "rank"]], on=["query_id", "node_id"])
    return {str(query_id): int(rank) for query_id, rank in found.groupby("query_id")["rank"].min().items()}


def _verdict(judge: _PlanJudge | None, query_id: str, answers: frozenset[int]) -> Verdict:
    return Verdict(None, Rule.TEXT) if judge is None else judge.verdict(query_id, answers)


def _told(verdict: Verdict, rank: int | None) -> dict[str, str | None]:
    bucket = verdict.bucket or (Bucket.CUT if rank is None else Bucket.RANKED_BELOW)
    return {"bucket": bucket.value, "cause": verdict.cause, "rule": verdict.rule}


class _PlanJudge:
    """The first five rules, for the plans of one system; each question is looked at once and only when asked for."""

    def __init__(self, listed: Listed, asked: Mapping[str, _Question], nodes: pd.DataFrame, reach: Reach) -> None:
        assert listed.outcomes is not None
        self._outcomes = listed.outcomes.set_index("query_id").to_dict("index")
        self._ranks = first_ranks(asked, listed.ranking)
        self._lengths = listed.ranking.groupby("query_id").size().to_dict()
        self._asked, self._nodes, self._reach = asked, nodes, reach
        self._ids = _ids_of(nodes, (row["links"] for row in self._outcomes.values()))
        self._known: dict[str, Verdict] = {}

    def verdict(self, query_id: str, answers: frozenset[int]) -> Verdict:
        """Of one question whose answers in the SKB are ``answers``, of which there is one or more."""
        if query_id not in self._known:
            self._known[query_id] = self._judge(query_id, answers)
        return self._known[query_id]

    def _judge(self, query_id: str, answers: frozenset[int]) -> Verdict:
        outcome, gold = self._outcomes[query_id], self._asked[query_id].anchors
        rule = Rule.LINKS if gold is None else Rule.GOLD
        if not isinstance(outcome["plan"], str):
            unknown = outcome["cause"] == PlanCause.NO_MENTION
            return Verdict(Bucket.NOT_LINKED if unknown else Bucket.NO_PLAN, rule, str(outcome["cause"]))
        plan = Plan.model_validate_json(outcome["plan"])
        if not plan.hops:
            found = self._is_candidate(query_id, plan, {}, answers)
            return Verdict(None if found else Bucket.WRONG_PLAN, Rule.SEARCH)
        links = self._links(outcome["links"])
        linked = {int(node) for ids, _ in links.values() for node in ids}
        if not (linked >= gold if gold is not None else linked or not plan.anchors):
            return Verdict(Bucket.NOT_LINKED, rule, _unlinked(outcome["unlinked"]))
        stopped = outcome["outcome"] in (GraphOutcome.ROW_LIMIT, GraphOutcome.TIMEOUT)
        if not stopped and self._is_candidate(query_id, plan, links, answers):
            return Verdict(None, rule)
        reached = self._reach.reaches(np.array(sorted(linked), np.int64), np.array(sorted(answers), np.int64))
        if reached is False:
            return Verdict(Bucket.UNREACHABLE, rule)
        if stopped:
            return Verdict(Bucket.CUT, rule, str(outcome["outcome"]))
        return Verdict(Bucket.WRONG_PLAN, rule, None if reached else self._reach.unsettled)

    def _is_candidate(self, query_id: str, plan: Plan, links: Links, answers: frozenset[int]) -> bool:
        """Whether an answer is among the candidates. A list that holds them all tells; else the plan is executed once
        more, and if that is impossible an answer that is not listed counts as cut."""
        if query_id in self._ranks:
            return True
        if self._outcomes[query_id]["n_cand"] <= self._lengths.get(query_id, 0):
            return False
        if not plan.hops:
            labels = plan.target.labels
            return not labels or bool(self._nodes["node_type"].reindex(sorted(answers)).isin(labels).any())
        candidates = self._reach.candidates(plan, links)
        return candidates is None or bool(candidates & answers)

    def _links(self, text: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Node ids and cosines by anchor variable."""
        told = json.loads(text) if isinstance(text, str) else {}
        found = {}
        for var, linked in told.items():
            pairs = [(self._ids.get((n["node_type"], n["external_id"])), n["cosine"]) for n in linked]
            kept = [(node, cosine) for node, cosine in pairs if node is not None]
            found[var] = np.array([k[0] for k in kept], np.int64), np.array([k[1] for k in kept], np.float64)
        return found


def _ids_of(nodes: pd.DataFrame, links: Iterable[Any]) -> dict[tuple[str, str], int]:
    """Node ids of all linked nodes by (type, external id)."""
    wanted = {
        (node["node_type"], node["external_id"])
        for text in links
        if isinstance(text, str)
        for linked in json.loads(text).values()
        for node in linked
    }
    some = nodes[nodes["external_id"].isin({external_id for _, external_id in wanted})]
    keys = zip(some["node_type"], some["external_id"], strict=True)
    return {key: int(node) for key, node in zip(keys, some.index, strict=True) if key in wanted}


def _unlinked(text: Any) -> str | None:
    """Why anchors have no node; None where each has some."""
    reasons = json.loads(text) if isinstance(text, str) else {}
    return "; ".join(f"{var}: {reason}" for var, reason in reasons.items()) or None


def bucket_table(misses: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """Rows of ``BUCKET_ROWS``: each system's buckets and ``found``, also those with no question, by split and slice.

    Args:
        misses: rows of ``MISSES``.
        queries: the same questions, with the columns that make slices.
    """
    rows = [
        (system, split, name, bucket, int(counts.get(bucket, 0)), len(own))
        for system, split, name, own in _parts(misses, queries)
        for counts in [own.fillna(FOUND).value_counts()]
        for bucket in (FOUND, *(b.value for b in Bucket))
    ]
    return pd.DataFrame(rows, columns=BUCKET_ROWS.names).astype({"questions": "int64", "of": "int64"})


def _parts(misses: pd.DataFrame, queries: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.Series]]:
    masks = slice_masks(queries)
    for system, own in misses.groupby("system", sort=False):
        buckets = queries["query_id"].map(own.set_index("query_id")["bucket"])
        answered = queries["query_id"].isin(own["query_id"])
        for split in sorted(queries["split"].dropna().unique()):
            for name, mask in masks.items():
                part = mask & (queries["split"] == split) & answered
                if part.any():
                    yield str(system), str(split), name, buckets[part]


def wide_buckets(rows: pd.DataFrame, *, split: str, slice: str = "all") -> list[dict[str, Any]]:
    """One row per system, a column per bucket, for people.

    Args:
        rows: rows of ``BUCKET_ROWS``.
        split, slice: what is shown.
    """
    chosen = rows[(rows["split"] == split) & (rows["slice"] == slice)]
    return [
        {
            "system": system,
            "n": int(own["of"].iloc[0]),
            **dict(zip(own["bucket"], own["questions"].tolist(), strict=True)),
        }
        for system, own in chosen.groupby("system", sort=False)
    ]


WIDE = ("system", "n", FOUND, *(bucket.value for bucket in Bucket))
"""Columns of :func:`wide_buckets`."""


def buckets_markdown(rows: pd.DataFrame, *, split: str) -> str:
    """:func:`wide_buckets` of all questions of a split, as a Markdown table."""
    return markdown_table(WIDE, [[row[c] for c in WIDE] for row in wide_buckets(rows, split=split)], numbers_from=1)
