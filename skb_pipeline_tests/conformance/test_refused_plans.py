"""What every engine refuses alike: directions that no edge can have, optional hops and conditions on fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.graph.neo4j.cypher import compile_cypher
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.conformance.compare import check_case
from skb_pipeline_tests.conformance.engines import ENGINES
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, loaded
from skb_pipeline_tests.conformance.oracle import enumerate_answers
from skb_pipeline_tests.conformance.plans import PlanCase, small_cases, small_graphs
from skb_pipeline_tests.examples import examples

SETTINGS = settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def check_refused(con: duckdb.DuckDBPyConnection, plan: Plan, bindings: Bindings, reason: str) -> None:
    over_bolt = BoltExecutor(cast(Any, None), RANDOM_SCHEMA)  # it must not get as far as the server
    refusals: list[Callable[[], object]] = [
        lambda: compile_cypher(plan, RANDOM_SCHEMA),
        lambda: over_bolt.execute(plan, bindings),
    ]
    refusals += [lambda run=run: run(con, plan, RANDOM_SCHEMA, bindings, 10) for run in ENGINES.values()]
    for refuse in refusals:
        with pytest.raises(ValueError, match=reason):
            refuse()


@SETTINGS
@given(data=st.data())
def test_a_direction_is_executed_or_refused(data: st.DataObject) -> None:
    graph = data.draw(small_graphs())
    case = data.draw(small_cases(graph, directed=True))
    i = data.draw(st.integers(0, len(case.plan.hops) - 1))
    dumped = case.plan.model_dump(mode="json", by_alias=True)
    dumped["hops"][i]["direction"] = data.draw(st.sampled_from(["out", "in"]))
    plan = Plan.model_validate(dumped)
    checked = validate(plan, RANDOM_SCHEMA)
    oracle = graph.oracle()
    with loaded(graph) as con:
        if checked.status is PlanStatus.VALID:
            check_case(con, oracle, RANDOM_SCHEMA, PlanCase(plan, case.bindings))
            return
        assert {fault.part for fault in checked.faults} <= {f"hops[{i}]", "target.labels"}
        check_refused(con, plan, case.bindings, "has no edges from|fits every hop")
    if not plan.hops[i].negated:
        types, symmetric = RANDOM_SCHEMA.candidate_types, RANDOM_SCHEMA.symmetric
        assert enumerate_answers(oracle, plan, case.bindings, types, symmetric=symmetric) == []


@SETTINGS
@given(data=st.data())
def test_optional_hops_and_conditions_are_refused(data: st.DataObject) -> None:
    graph = data.draw(small_graphs())
    case = data.draw(small_cases(graph, directed=True))
    dumped = case.plan.model_dump(mode="json", by_alias=True)
    expected = []
    for i in data.draw(st.sets(st.integers(0, len(case.plan.hops) - 1))):
        dumped["hops"][i]["optional"] = True
    expected += [f"hops[{i}].optional" for i, hop in enumerate(dumped["hops"]) if hop.get("optional")]
    variables = sorted({"T", *(anchor.var for anchor in case.plan.anchors), *(hop.to_var for hop in case.plan.hops)})
    n_conditions = data.draw(st.integers(0 if expected else 1, 2))
    dumped["where"] = [
        {"var": data.draw(st.sampled_from(variables)), "field": "price", "op": op, "value": value}
        for op, value in [("<=", 20), ("in", ["red", 1.5])][:n_conditions]
    ]
    expected += [f"where[{i}]" for i in range(n_conditions)]
    plan = Plan.model_validate(dumped)
    checked = validate(plan, RANDOM_SCHEMA)
    assert (checked.status, [fault.part for fault in checked.faults]) == (PlanStatus.FALLBACK, expected)
    with loaded(graph) as con:
        check_refused(con, plan, case.bindings, "not executed yet")
    with pytest.raises(ValueError, match="not executed yet"):
        enumerate_answers(graph.oracle(), plan, case.bindings, RANDOM_SCHEMA.candidate_types)
