"""``BoltExecutor``: plans on a server that speaks Bolt and Cypher (Neo4j), through the official driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from skb_pipeline.graph.neo4j.cypher import CompiledCypher, compile_candidate_check, compile_cypher
from skb_pipeline.graph.optional_conditions import meeting_any, weigh
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings, GraphOutcome, GraphResult, check_bindings, no_answers
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import check_executable

if TYPE_CHECKING:
    from neo4j import Driver, Record

VERSION = "2"
ROUTE = "cypher"

TIMEOUT_CODES = frozenset(
    {
        "Neo.ClientError.Transaction.TransactionTimedOut",
        "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration",
    }
)


class BoltExecutor:
    """Executes plans over one graph on a server; may be shared by threads, as the driver may.

    Args:
        driver: an open driver; the caller closes it. A user that may only read is enough, and safer.
        schema: the dataset's names.
        database: the server's database; None is the user's home database.
        names: what they are called in the store, and which of several graphs in the database is meant; None: as
            :meth:`GraphNames.of` has it, for a database with one graph.
    """

    def __init__(
        self, driver: Driver, schema: GraphSchema, database: str | None = None, *, names: GraphNames | None = None
    ) -> None:
        self.driver, self.schema, self.database = driver, schema, database
        self.names = names or GraphNames.of(schema)

    @cached_property
    def n_nodes(self) -> int:
        """Nodes of the graph, counted on the server once."""
        (record,) = self._read(f"MATCH (n:{self.names.entity_label}) RETURN count(n) AS n", {}, None)
        return int(record["n"])

    def execute(
        self, plan: Plan, bindings: Bindings, *, limit: int = 1000, timeout_s: float | None = None
    ) -> GraphResult:
        """Answers of a plan, in two round trips: labels and edges of the candidates, then the plan itself.

        Args:
            plan: valid as it stands, with hops.
            bindings: candidates per anchor (:data:`~skb_pipeline.plans.results.Bindings`).
            limit: most answers returned; ``n_cand`` counts all of them.
            timeout_s: seconds after which the server ends a statement (outcome ``timeout``, no answers). The server
                does it, so one that lacks transaction timeouts does not. None: the server's default.

        Raises:
            ValueError: plan not executable, bindings malformed, a bound node absent or not of its anchor's label,
                ``limit`` below 1, ``timeout_s`` not positive, or the graph was loaded without a field that is compared.
            neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError: the server refuses or cannot be reached.
                Transient errors are tried again first, for up to the driver's ``max_transaction_retry_time``.
        """
        from neo4j.exceptions import Neo4jError

        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s must be positive, not {timeout_s}")
        start = time.perf_counter()
        checked = check_bindings(plan, bindings)
        check_executable(plan, self.schema)
        try:
            costs = self._count_edges(plan, checked, timeout_s)
            compiled = compile_cypher(plan, self.schema, costs, names=self.names)
            records = self._read(compiled.text, compiled.parameters(checked, limit), timeout_s)
        except Neo4jError as error:
            if error.code not in TIMEOUT_CODES:
                raise
            return no_answers(GraphOutcome.TIMEOUT, ROUTE, _since(start))
        if compiled.parts:
            return _put_together(records, compiled, limit, start)
        (record,) = records
        lacking = int(record.get("lacking", 0))
        if not record["n_cand"]:
            return replace(no_answers(GraphOutcome.EMPTY, ROUTE, _since(start)), lacking=lacking)
        return GraphResult(
            node_ids=np.array([node for node, _ in record["answers"]], dtype=np.int64),
            scores=np.array([score for _, score in record["answers"]], dtype=np.float64),
            n_cand=record["n_cand"],
            outcome=GraphOutcome.OK,
            route=ROUTE,
            milliseconds=_since(start),
            lacking=lacking,
        )

    def _count_edges(self, plan: Plan, bindings: Bindings, timeout_s: float | None) -> dict[str, int]:
        """Edges of all candidates, per anchor.

        Raises:
            ValueError: a bound node does not exist or does not have its anchor's label.
        """
        ids = [bindings[anchor.var][0].tolist() for anchor in plan.anchors]
        parameters = {f"ids_{i}": nodes for i, nodes in enumerate(ids)}
        edges: list[dict[int, int]] = [{} for _ in ids]
        for record in self._read(compile_candidate_check(plan, self.names), parameters, timeout_s):
            if record["fits"]:
                edges[record["anchor"]][record["id"]] = record["edges"]
        for anchor, nodes, found in zip(plan.anchors, ids, edges, strict=True):
            wrong = sorted({*nodes} - {*found})
            if wrong:
                raise ValueError(f"anchor {anchor.var!r}: nodes {wrong[:5]} are not of its label {anchor.label!r}")
        return {anchor.var: sum(found.values()) for anchor, found in zip(plan.anchors, edges, strict=True)}

    def _read(self, text: str, parameters: dict[str, Any], timeout_s: float | None) -> list[Record]:
        from neo4j import Query, RoutingControl

        query = Query(text, timeout=timeout_s)
        return self.driver.execute_query(query, parameters, routing_=RoutingControl.READ, database_=self.database)[0]


@dataclass(frozen=True, eq=False)
class _Found:
    """Target nodes of one part: int64 ids, float64 scores, int64 canonical positions, and as bool whether each has the
    values that conditions on T ask for, and meets them."""

    ids: np.ndarray
    scores: np.ndarray
    canonical: np.ndarray
    has: np.ndarray
    meets: np.ndarray

    @classmethod
    def of(cls, answers: Sequence[Sequence[Any]]) -> Self:
        columns = list(zip(*answers, strict=True)) or [()] * 5
        kinds = (np.int64, np.float64, np.int64, np.bool_, np.bool_)
        return cls(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))


def _put_together(records: Sequence[Record], compiled: CompiledCypher, limit: int, start: float) -> GraphResult:
    """What all parts of a plan with optional conditions give."""
    # Some stores give no record at all for a part whose labels no node has.
    answers = {record["part"]: record["answers"] for record in records}
    n_all = sum(record["n"] for record in records if record["part"] == -1)
    found = {part: _Found.of(answers.get(part, [])) for part in compiled.parts}
    every = np.unique(np.concatenate([part.ids for part in found.values()]))
    canonical = np.zeros(len(every), dtype=np.int64)
    has, meets = np.zeros(len(every), dtype=np.bool_), np.zeros(len(every), dtype=np.bool_)
    places = {}
    for number, part in found.items():
        places[number] = at = np.searchsorted(every, part.ids)
        canonical[at], has[at], meets[at] = part.canonical, part.has, part.meets
    met = [(places[i + 1], found[i + 1].scores) for i in range(compiled.n_optional)]
    if compiled.selects:
        nodes, scores = places[0], found[0].scores
    else:
        nodes = meeting_any(met, len(every))
        if 0 in found:  # T's negations filter
            nodes = nodes[np.isin(nodes, places[0])]
        scores = np.zeros(len(nodes))
    lacking = int(np.count_nonzero(~has[nodes]))
    kept = meets[nodes]
    nodes, scores = nodes[kept], scores[kept]
    weighed = weigh(nodes, scores, met, n_all, len(every))
    first = np.lexsort((canonical[nodes], -weighed.scores))[:limit]
    return GraphResult(
        node_ids=every[nodes[first]],
        scores=weighed.scores[first],
        n_cand=len(nodes),
        outcome=GraphOutcome.OK if len(nodes) else GraphOutcome.EMPTY,
        route=ROUTE,
        milliseconds=_since(start),
        optional=weighed.counts,
        met=weighed.met,
        lacking=lacking,
    )


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
