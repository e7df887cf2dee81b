"""Types, relations and names that are syntax to somebody: in the schema they work, in a plan they are data."""

import json

import pytest

from skb_pipeline.graph.sql import compile_sql
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.conformance.compare import assert_same
from skb_pipeline_tests.conformance.engines import ENGINES
from skb_pipeline_tests.conformance.graphs import Graph, bind, loaded

HOSTILE = [
    "off-label use",
    "gene/protein",
    "Order",
    "SELECT",
    "X]->(n) DETACH DELETE n //",
    "'; DROP TABLE nodes; --",
    "back`tick",
    '12" skillet',
    "a\\",
    "a\\u0060b",
    "$limit",
    "?",
    "%s {0} {x}",
    "naïve ⇒ τ",
    "line\nbreak",
    "",
]


def _plan(kind: str, relation: str, var: str = "a") -> dict[str, object]:
    return {
        "anchors": [{"var": var, "text": relation or "x", "label": kind}],
        "hops": [{"from": var, "rel": relation, "to_var": "T", "to_label": kind}],
        "target": {"labels": [kind]},
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
def test_hostile_names_of_a_schema_give_right_answers(name: str, engine: str) -> None:
    other = f"{name}?"
    schema = GraphSchema(
        (name, "plain"), (Triple(name, name, name), Triple(name, other, name), Triple(name, "r", "plain")), (name,)
    )
    graph = Graph({1: name, 2: name, 3: name, 4: "plain"}, [(1, name, 2), (3, other, 1), (2, "r", 4)])
    checked = validate(json.dumps(_plan(name, name, var=name)), schema)
    assert (checked.status, checked.dropped) == (PlanStatus.VALID, [])
    with loaded(graph) as con:
        assert checked.plan is not None
        result = ENGINES[engine](con, checked.plan, schema, bind(**{name: {1: 0.5}}), 10)
        assert_same(result, [(2, 0.5)], 10)
        negated = {
            **_plan(name, name),
            "hops": [
                {"from": "a", "rel": name, "to_var": "T", "to_label": name},
                {"from": "T", "rel": "r", "to_var": "p", "to_label": "plain", "negated": True},
            ],
        }
        result = ENGINES[engine](con, Plan.model_validate(negated), schema, bind(a={1: 0.5}), 10)
        assert_same(result, [], 10)
        assert con.execute("SELECT count(*) FROM nodes").fetchone() == (4,)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_plan_with_names_that_the_schema_lacks_never_reaches_the_store(name: str, engine: str) -> None:
    schema = GraphSchema(("paper",), (Triple("paper", "cites", "paper"),), ("paper",))
    graph = Graph(dict.fromkeys((1, 2), "paper"), [(1, "cites", 2)])
    with loaded(graph) as con:
        for attack in (_plan("paper", name), _plan(name, "cites"), _plan(name, name)):
            checked = validate(attack, schema)
            assert (checked.status, checked.plan) == (PlanStatus.FALLBACK, None)
            with pytest.raises(ValueError, match="not executable"):
                ENGINES[engine](con, Plan.model_validate(attack), schema, bind(a={1: 0.5}), 10)
        assert con.execute("SELECT count(*) FROM nodes").fetchone() == (2,)
        assert con.execute("SELECT count(*) FROM adjacency").fetchone() == (2,)


@pytest.mark.parametrize("name", [name for name in HOSTILE if name])
def test_sql_text_depends_on_the_shape_alone(name: str) -> None:
    def text(kind: str, relation: str) -> str:
        schema = GraphSchema((kind,), (Triple(kind, relation, kind),), (kind,))
        return compile_sql(Plan.model_validate(_plan(kind, relation, var=relation)), schema).text

    assert text(name, f"{name}!") == text("paper", "cites")
