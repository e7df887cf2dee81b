"""``MemoryExecutor``: plans over a ``CsrGraph``, by the cheapest route that is exact for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import numpy as np

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.bound import BoundPlan, Candidates, bind_candidates, bind_part
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.enumeration import TooManyRowsError, enumerate_plan
from skb_pipeline.graph.memory.message_passing import Meter, TimeUpError, Traversal, TreeEvaluation, allowed
from skb_pipeline.graph.memory.tree import Tree, build_tree
from skb_pipeline.graph.optional_conditions import meeting_any, weigh
from skb_pipeline.plans.plan import TARGET, Plan
from skb_pipeline.plans.results import Bindings, GraphOutcome, GraphResult, check_bindings, no_answers
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import Part, Parts, take_apart
from skb_pipeline.plans.validation import check_executable

VERSION = "2"


class Route(StrEnum):
    """How a plan is executed. All give the answers, scores and counts of ``docs/plans.md``. Of a plan with optional
    conditions it is that of the costliest part.

    ``MESSAGE_PASSING``: a tree in which no edge could be used twice. ``MESSAGE_PASSING_TOP2``: a tree in which two
    hops that meet at a variable could use one edge. ``ENUMERATION``: everything else.
    """

    MESSAGE_PASSING = "message_passing"
    MESSAGE_PASSING_TOP2 = "message_passing_top2"
    ENUMERATION = "enumeration"


class MemoryExecutor:
    """Executes plans over one graph.

    Calls from several threads wait for each other, as they share scratch arrays (12 to 28 bytes per node); executors
    over one graph are cheap, so each thread may have its own.
    """

    def __init__(self, graph: CsrGraph, schema: GraphSchema, fields: FieldValues | None = None) -> None:
        """``fields`` are those of the SKB that the graph was made from; without them conditions are refused."""
        self.graph, self.schema, self.fields = graph, schema, fields
        self._traversal = Traversal(graph)
        self._lock = threading.Lock()

    @property
    def n_nodes(self) -> int:
        """Nodes of the graph."""
        return self.graph.n_nodes

    def execute(
        self,
        plan: Plan,
        bindings: Bindings,
        *,
        limit: int = 1000,
        row_limit: int = 5_000_000,
        timeout_s: float = 10.0,
    ) -> GraphResult:
        """Answers of a plan.

        Args:
            plan: valid as it stands, with hops.
            bindings: candidates per anchor (:data:`~skb_pipeline.plans.results.Bindings`).
            limit: most answers returned; ``n_cand`` counts all of them.
            row_limit: most partial matches that an enumeration may make for one part of the plan (outcome
                ``row_limit``, no answers). Message passing makes none.
            timeout_s: seconds of wall time (outcome ``timeout``, no answers), looked at every two million edges.

        Raises:
            ValueError: plan not executable, bindings malformed, a bound node absent or not of its anchor's label, a
                limit that is not positive, or conditions on fields without the values of fields.
        """
        for name, value in (("limit", limit), ("row_limit", row_limit), ("timeout_s", timeout_s)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        begin = time.perf_counter()
        check_executable(plan, self.schema)
        if plan.where and self.fields is None:
            raise ValueError("conditions on fields need the values of fields, which this executor was made without")
        candidates = bind_candidates(plan, self.graph, check_bindings(plan, bindings), self.fields)
        parts = take_apart(plan, self.schema)
        with self._lock:
            meter = self._traversal.meter = Meter(begin + timeout_s)
            run = _Run(self, parts, candidates, row_limit)
            try:
                found = run.answers(limit)
            except TimeUpError:
                return no_answers(GraphOutcome.TIMEOUT, run.route, _since(begin), meter.touched_edges)
            except TooManyRowsError:
                return no_answers(GraphOutcome.ROW_LIMIT, run.route, _since(begin), meter.touched_edges)
        return replace(found, milliseconds=_since(begin), touched_edges=meter.touched_edges)


class _Run:
    """One execution: part after part, and then the candidates."""

    def __init__(
        self, executor: MemoryExecutor, parts: Parts, candidates: Mapping[str, Candidates], row_limit: int
    ) -> None:
        self.graph, self.fields, self.traversal = executor.graph, executor.fields, executor._traversal
        self.parts, self.row_limit = parts, row_limit

        def bind(part: Part) -> BoundPlan:
            return bind_part(part, executor.schema, executor.graph, candidates, executor.fields)

        self.required, self.optional = bind(parts.required), [bind(part) for part in parts.optional]
        executed = [*([self.required] if parts.selects else []), *self.optional]
        self.trees = {id(plan): build_tree(plan) for plan in executed}
        self.route = max((_route(tree) for tree in self.trees.values()), key=list(Route).index)

    def answers(self, limit: int) -> GraphResult:
        """Raises TimeUpError and TooManyRowsError."""
        size = self.graph.n_nodes
        nodes, scores = self._matches(self.required) if self.parts.selects else (np.empty(0, np.int32), np.empty(0))
        met = []
        for part, plan in zip(self.parts.optional, self.optional, strict=True):
            meeting, values = self._matches(plan)
            met.append((meeting, values if part.scored else np.ones(len(meeting))))
        if not self.parts.selects:
            nodes = self._allowed(meeting_any(met, size).astype(np.int32))
            scores = np.zeros(len(nodes))
        lacking = 0
        if self.parts.where:
            has, meets = self._where(nodes)
            lacking = int(np.count_nonzero(~has))
            nodes, scores = nodes[meets], scores[meets]
        n_all = sum(high - low for low, high in map(self.graph.type_range, self.parts.labels)) if met else 0
        weighed = weigh(nodes, scores, met, n_all, size)
        first = top_answers(weighed.scores, self.graph.canonical[nodes], limit)
        return GraphResult(
            node_ids=self.graph.node_ids[nodes[first]].astype(np.int64),
            scores=weighed.scores[first],
            n_cand=len(nodes),
            outcome=GraphOutcome.OK if len(nodes) else GraphOutcome.EMPTY,
            route=self.route,
            milliseconds=0.0,
            optional=weighed.counts,
            met=weighed.met,
            lacking=lacking,
        )

    def _matches(self, plan: BoundPlan) -> tuple[np.ndarray, np.ndarray]:
        """Positions (int32) of a part's target nodes and their scores."""
        if plan.impossible:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float64)
        tree = self.trees[id(plan)]
        if tree is None:
            return enumerate_plan(plan, self.traversal, self.row_limit)
        return TreeEvaluation(tree, plan, self.traversal).run()

    def _allowed(self, nodes: np.ndarray) -> np.ndarray:
        """Those that the negations of a required part without positive hops leave."""
        for ban in self.required.bans:
            nodes = nodes[allowed(self.traversal, ban, nodes, self.required.variables[TARGET])]
        return nodes

    def _where(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """bool per node: whether it has the values that the conditions on T ask for, and whether it meets them."""
        has, meets = np.zeros(len(nodes), dtype=np.bool_), np.zeros(len(nodes), dtype=np.bool_)
        if self.fields is None:
            raise AssertionError("conditions on fields without their values")
        for label in self.parts.labels:
            low, high = self.graph.type_range(label)
            here = (nodes >= low) & (nodes < high)
            places = nodes[here] - low
            has[here] = self.fields.having(label, self.parts.where)[places]
            meets[here] = self.fields.meeting(label, self.parts.where)[places]
        return has, meets


def _route(tree: Tree | None) -> Route:
    if tree is None:
        return Route.ENUMERATION
    return Route.MESSAGE_PASSING_TOP2 if tree.coupled else Route.MESSAGE_PASSING


def top_answers(scores: np.ndarray, canonical: np.ndarray, limit: int) -> np.ndarray:
    """Places of the ``limit`` best, by score (descending), then canonical order.

    Args:
        scores: float64 [n].
        canonical: int32 [n], distinct.

    Returns:
        int64 [min(n, limit)].
    """
    places = np.arange(len(scores))
    if len(scores) > limit:
        lowest = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        above, equal = np.flatnonzero(scores > lowest), np.flatnonzero(scores == lowest)
        missing = limit - len(above)
        if missing < len(equal):
            equal = equal[np.argpartition(canonical[equal], missing - 1)[:missing]]
        places = np.concatenate([above, equal])
    return places[np.lexsort((canonical[places], -scores[places]))]


def _since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1000
