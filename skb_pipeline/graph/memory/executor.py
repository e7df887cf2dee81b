"""``MemoryExecutor``: plans over a ``CsrGraph``, by the cheapest route that is exact for them."""

from __future__ import annotations

import threading
import time
from enum import StrEnum

import numpy as np

from skb_pipeline.graph.memory.bound import BoundPlan, bind_plan
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.enumeration import TooManyRowsError, enumerate_plan
from skb_pipeline.graph.memory.message_passing import Meter, TimeUpError, Traversal, TreeEvaluation
from skb_pipeline.graph.memory.tree import Tree, build_tree
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings, GraphOutcome, GraphResult, check_bindings, no_answers
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import check_executable

VERSION = "1"


class Route(StrEnum):
    """How a plan is executed. All give the answers, scores and counts of ``docs/plans.md``.

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

    def __init__(self, graph: CsrGraph, schema: GraphSchema) -> None:
        self.graph, self.schema = graph, schema
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
            row_limit: most partial matches that an enumeration may make (outcome ``row_limit``, no answers).
                Message passing makes none.
            timeout_s: seconds of wall time (outcome ``timeout``, no answers), looked at every two million edges.

        Raises:
            ValueError: plan not executable, bindings malformed, a bound node absent or not of its anchor's label, or
                a limit that is not positive.
        """
        for name, value in (("limit", limit), ("row_limit", row_limit), ("timeout_s", timeout_s)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, not {value}")
        begin = time.perf_counter()
        check_executable(plan, self.schema)
        bound = bind_plan(plan, self.schema, self.graph, check_bindings(plan, bindings))
        tree = build_tree(bound)
        route = _route(tree)
        with self._lock:
            meter = self._traversal.meter = Meter(begin + timeout_s)
            try:
                nodes, scores = self._run(bound, tree, row_limit)
            except TimeUpError:
                return no_answers(GraphOutcome.TIMEOUT, route, _since(begin), meter.touched_edges)
            except TooManyRowsError:
                return no_answers(GraphOutcome.ROW_LIMIT, route, _since(begin), meter.touched_edges)
        if not len(nodes):
            return no_answers(GraphOutcome.EMPTY, route, _since(begin), meter.touched_edges)
        first = top_answers(scores, self.graph.canonical[nodes], limit)
        return GraphResult(
            node_ids=self.graph.node_ids[nodes[first]].astype(np.int64),
            scores=scores[first],
            n_cand=len(nodes),
            outcome=GraphOutcome.OK,
            route=route,
            milliseconds=_since(begin),
            touched_edges=meter.touched_edges,
        )

    def _run(self, plan: BoundPlan, tree: Tree | None, row_limit: int) -> tuple[np.ndarray, np.ndarray]:
        if plan.impossible:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float64)
        if tree is None:
            return enumerate_plan(plan, self._traversal, row_limit)
        return TreeEvaluation(tree, plan, self._traversal).run()


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
