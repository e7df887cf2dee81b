"""The Cypher text on a real server against the oracle: the same cases as for the engines without a server."""

from __future__ import annotations

import json

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.results import Bindings, GraphResult
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.plans.validation import validate
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.bolt_loader import GraphRows
from skb_pipeline_tests.bolt_server import BoltServer
from skb_pipeline_tests.conformance.compare import assert_same, check_case, check_plans_over_store
from skb_pipeline_tests.conformance.engines import Engine, run_sql
from skb_pipeline_tests.conformance.graphs import (
    RANDOM_SCHEMA,
    TINY_GRAPHS,
    Graph,
    TinyGraph,
    bind,
    loaded,
    random_graph,
)
from skb_pipeline_tests.conformance.plans import small_cases, small_graphs
from skb_pipeline_tests.conformance.test_hostile_names import HOSTILE
from skb_pipeline_tests.conformance.test_random_plans import SOFT
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.shared_data import build_shared_skb, shared_spec

SHAPES = (
    "3 anchors",
    "4 positive hops",
    "negation",
    "relation three times",
    "parallel hops",
    "cycle",
    "shared free variable",
    "direction",
    "negated direction",
    "optional",
    "nothing required",
)
"""What random plans over any graph must cover: without one of these, agreement would mean less."""


@pytest.fixture(scope="module")
def run_cypher(bolt_server: BoltServer) -> Engine:
    """An engine over the server. Plans on one connection share the load of its store.

    The packaged server never forgets a name, and keeps labels and relationship types in one name space, so what is a
    label in one test must not be a relationship type in another.
    """
    last: list[duckdb.DuckDBPyConnection] = []

    def run(
        con: duckdb.DuckDBPyConnection, plan: Plan, schema: GraphSchema, bindings: Bindings, limit: int
    ) -> GraphResult:
        if last != [con]:
            bolt_server.hold(GraphRows.of(con), schema)
            last[:] = [con]
        return BoltExecutor(bolt_server.driver, schema, bolt_server.database).execute(plan, bindings, limit=limit)

    return run


@pytest.mark.parametrize("tiny", [pytest.param(tiny, id=tiny.name) for tiny in TINY_GRAPHS])
def test_answers_worked_out_by_hand(tiny: TinyGraph, run_cypher: Engine) -> None:
    with loaded(tiny.graph) as con:
        for i, case in enumerate(tiny.cases):
            for limit in (1000, 2):
                result = run_cypher(con, case.plan, tiny.schema, case.bindings, limit)
                assert_same(result, case.answers, limit, f"case {i}")


def test_random_plans(run_cypher: Engine) -> None:
    engines = {"sql": run_sql, "cypher": run_cypher}
    with loaded(random_graph(3, 300, 2500)) as con:
        report = check_plans_over_store(con, RANDOM_SCHEMA, 80, seed=17, limit=50, engines=engines, max_steps=10_000)
    assert report.compared == 80
    assert report.empty < 40
    assert report.capped > 0
    for feature in (*SHAPES, *SOFT, "self-loop hop"):
        assert report.features[feature] > 0, (feature, report)


@pytest.mark.deep
@pytest.mark.shared_data
def test_a_thousand_plans_over_a_part_of_primekg(
    run_cypher: Engine, bolt_server: BoltServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The first thousand of the plans that memory and SQL are compared on."""
    schema = GraphSchema.from_spec(shared_spec("primekg_partial"))
    path = build_shared_skb("primekg_partial", tmp_path_factory.mktemp("primekg"))
    with connect(path, read_only=True) as con:
        report = check_plans_over_store(con, schema, 1000, seed=77, engines={"cypher": run_cypher})
        (n_nodes,) = con.execute("SELECT count(*) FROM nodes").fetchone() or (0,)
    assert (report.compared, report.routes) == (1000, {"cypher: cypher": 1000})
    assert report.empty < 600
    for feature in (*SHAPES, "several target labels", "no target label"):
        assert report.features[feature] > 0, (feature, report)
    assert bolt_server.count_nodes() == n_nodes > 10_000


@pytest.mark.deep
def test_a_thousand_random_plans(run_cypher: Engine) -> None:
    with loaded(random_graph(5, 1000, 12_000)) as con:
        report = check_plans_over_store(con, RANDOM_SCHEMA, 1000, seed=7, engines={"cypher": run_cypher})
    assert report.compared == 1000


@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_small_graphs(data: st.DataObject, run_cypher: Engine) -> None:
    graph = data.draw(small_graphs())
    with loaded(graph) as con:
        for _ in range(3):
            case = data.draw(small_cases(graph, directed=True, soft=True))
            limit = data.draw(st.sampled_from([1, 3, 1000]))
            check_case(con, graph.oracle(), RANDOM_SCHEMA, case, limit=limit, engines={"cypher": run_cypher})


def _plan(kind: str, relation: str) -> dict[str, object]:
    return {
        "anchors": [{"var": relation or "a", "text": relation or "x", "label": kind}],
        "hops": [{"from": relation or "a", "rel": relation, "to_var": "T", "to_label": kind}],
        "target": {"labels": [kind]},
    }


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
def test_hostile_names_of_a_schema(name: str, run_cypher: Engine, bolt_server: BoltServer) -> None:
    other = f"{name}?"
    schema = GraphSchema(
        (name, "plain"),
        (Triple(name, name, name), Triple(name, other, name), Triple(name, "lies in", "plain")),
        (name,),
    )
    graph = Graph({1: name, 2: name, 3: name, 4: "plain"}, [(1, name, 2), (3, other, 1), (2, "lies in", 4)])
    checked = validate(json.dumps(_plan(name, name)), schema)
    assert checked.status is PlanStatus.VALID
    assert checked.plan is not None
    with loaded(graph) as con:
        assert_same(run_cypher(con, checked.plan, schema, bind(**{name: {1: 0.5}}), 10), [(2, 0.5)], 10)
        hops = [
            {"from": name, "rel": name, "to_var": "T", "to_label": name},
            {"from": "T", "rel": "lies in", "to_var": "p", "to_label": "plain", "negated": True},
        ]
        negated = Plan.model_validate({**_plan(name, name), "hops": hops})
        assert_same(run_cypher(con, negated, schema, bind(**{name: {1: 0.5}}), 10), [], 10)
    assert bolt_server.count_nodes() == 4


@pytest.mark.parametrize("name", HOSTILE)
def test_a_plan_with_names_that_the_schema_lacks(name: str, run_cypher: Engine, bolt_server: BoltServer) -> None:
    schema = GraphSchema(("paper",), (Triple("paper", "cites", "paper"),), ("paper",))
    with loaded(Graph(dict.fromkeys((1, 2), "paper"), [(1, "cites", 2)])) as con:
        for attack in (_plan("paper", name), _plan(name, "cites"), _plan(name, name)):
            plan = Plan.model_validate(attack)
            with pytest.raises(ValueError, match="not executable"):
                run_cypher(con, plan, schema, bind(**{plan.anchors[0].var: {1: 0.5}}), 10)
    assert bolt_server.count_nodes() == 2
