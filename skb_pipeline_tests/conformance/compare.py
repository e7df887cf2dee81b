"""Engine against oracle, for one plan or for many random plans over a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import numpy as np

from skb_pipeline.plans.results import GraphOutcome, GraphResult
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline_tests.conformance.engines import ENGINES, Engine
from skb_pipeline_tests.conformance.graphs import describe
from skb_pipeline_tests.conformance.oracle import Evaluation, OracleGraph, TooManyStepsError, evaluate
from skb_pipeline_tests.conformance.plans import PlanCase, plan_stream


@dataclass
class Report:
    """What :func:`check_plans_over_store` compared."""

    compared: int = 0
    empty: int = 0
    capped: int = 0
    replaced: int = 0
    """Plans given up because the oracle would have needed too many steps."""
    features: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)


def assert_same(result: GraphResult, answers: list[tuple[int, float]], limit: int, context: str = "") -> None:
    """Same nodes in the same order, scores equal to the last bit, same count before the cap."""
    assert result.outcome is (GraphOutcome.OK if answers else GraphOutcome.EMPTY), context
    assert (result.node_ids.dtype, result.scores.dtype) == (np.int64, np.float64)
    assert result.n_cand == len(answers), f"n_cand {result.n_cand}, oracle {len(answers)}\n{context}"
    got = list(zip(result.node_ids.tolist(), result.scores.tolist(), strict=True))
    assert got == answers[:limit], f"got {got[:20]}, oracle {answers[:20]}\n{context}"


def assert_same_counts(result: GraphResult, expected: Evaluation, context: str = "") -> None:
    """Same counts of optional conditions and of missing values."""
    optional = [(c.nodes, c.candidates, c.weight) for c in result.optional]
    assert (optional, list(result.met), result.lacking) == (expected.optional, expected.met, expected.lacking), context


def check_case(
    con: duckdb.DuckDBPyConnection,
    graph: OracleGraph,
    schema: GraphSchema,
    case: PlanCase,
    *,
    limit: int = 1000,
    engines: Mapping[str, Engine] | None = None,
    max_steps: int = 1_000_000,
) -> tuple[list[tuple[int, float]], list[str]]:
    """Compare all engines on one plan; gives the answers and the routes taken."""
    expected = evaluate(graph, case.plan, case.bindings, schema, max_steps=max_steps)
    answers = expected.answers
    routes = []
    for name, engine in (ENGINES if engines is None else engines).items():
        result = engine(con, case.plan, schema, case.bindings, limit)
        context = f"engine {name}\n{describe(case.plan, case.bindings)}"
        assert_same(result, answers, limit, context)
        assert_same_counts(result, expected, context)
        routes.append(f"{name}: {result.route}")
    return answers, routes


def check_plans_over_store(
    con: duckdb.DuckDBPyConnection,
    schema: GraphSchema,
    n: int,
    seed: int,
    *,
    engines: Mapping[str, Engine] | None = None,
    limit: int = 1000,
    max_steps: int = 30_000,
) -> Report:
    """Compare engines with the oracle on ``n`` random plans over a store.

    Raises:
        AssertionError: an engine differs; the message holds the plan.
        RuntimeError: more than ``10 n`` plans were too large for the oracle.
    """
    graph = OracleGraph.load(con)
    report = Report()
    stream = plan_stream(graph, schema, seed)
    while report.compared < n:
        case = next(stream)
        try:
            answers, routes = check_case(con, graph, schema, case, limit=limit, engines=engines, max_steps=max_steps)
        except TooManyStepsError:
            report.replaced += 1
            if report.replaced > 10 * n:
                raise RuntimeError(f"{report.replaced} plans gave up, {report.compared} compared") from None
            continue
        report.compared += 1
        report.empty += not answers
        report.capped += len(answers) > limit
        report.features.update(case.features())
        report.routes.update(routes)
    return report
