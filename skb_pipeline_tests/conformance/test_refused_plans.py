"""What every engine refuses alike: directions that no edge can have, and fields that nodes do not have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.graph.neo4j.cypher import compile_cypher
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.conformance.compare import check_case
from skb_pipeline_tests.conformance.engines import ENGINES
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, Graph, bind, loaded, make_plan
from skb_pipeline_tests.conformance.oracle import evaluate
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
        assert evaluate(oracle, plan, case.bindings, RANDOM_SCHEMA).answers == []


@SETTINGS
@given(data=st.data())
def test_conditions_on_fields_that_are_not_there_are_refused(data: st.DataObject) -> None:
    graph = data.draw(small_graphs())
    case = data.draw(small_cases(graph, directed=True, soft=True))
    dumped = case.plan.model_dump(mode="json", by_alias=True)
    variables = sorted({"T", *(anchor.var for anchor in case.plan.anchors), *(hop.to_var for hop in case.plan.hops)})
    wrong = {"var": data.draw(st.sampled_from(variables)), "field": "colour", "op": "=", "value": 1}
    dumped["where"] = [*dumped.get("where", []), wrong]
    plan = Plan.model_validate(dumped)
    with loaded(graph) as con:
        check_refused(con, plan, case.bindings, "'colour' is not a known field of")


def test_an_executor_without_fields_refuses_conditions() -> None:
    plan = make_plan({"a": "q"}, ["a -x- T:p"], where=["T.size > 1"])
    with loaded(Graph({1: "p", 2: "q"}, [(1, "x", 2)])) as con:
        executor = MemoryExecutor(CsrGraph.from_skb(con), RANDOM_SCHEMA)
        with pytest.raises(ValueError, match="conditions on fields need the values of fields"):
            executor.execute(plan, bind(a={2: 1.0}))
    names = replace(GraphNames.of(RANDOM_SCHEMA), properties={})
    with pytest.raises(ValueError, match=r"the graph was loaded without the fields \['size'\]"):
        compile_cypher(plan, RANDOM_SCHEMA, names=names)
