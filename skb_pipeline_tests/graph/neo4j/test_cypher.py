import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.graph.neo4j.cypher import HEADER, compile_candidate_check, compile_cypher
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.schema import FieldKind, GraphSchema, Triple, TypedField
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, bind, make_plan
from skb_pipeline_tests.conformance.plans import small_cases, small_graphs
from skb_pipeline_tests.examples import examples

SHOP = GraphSchema(
    ("product", "brand", "colour"),
    (
        Triple("product", "has-brand", "brand"),
        Triple("product", "has colour", "colour"),
        Triple("product", "also_buy", "product"),
    ),
    ("product", "brand"),
)
SIBLINGS = make_plan({"a": "product", "b": "product"}, ["a -also_buy- T:product", "b -also_buy- T:product"])


def _lines(plan: Plan, costs: dict[str, int] | None = None, schema: GraphSchema = SHOP) -> list[str]:
    return compile_cypher(plan, schema, costs).text.splitlines()


def test_a_whole_text() -> None:
    plan = make_plan(
        {"c": "colour", "b": "brand", "d": "colour"},
        [
            "T -has colour- c:colour",
            "b -has-brand- m:product",
            "m -also_buy- T:product",
            "not T -has colour- d:colour",
            "not m -has colour- x:colour",
        ],
        ["product"],
    )
    compiled = compile_cypher(plan, SHOP, {"c": 10, "b": 2, "d": 1})
    assert compiled.text == (
        "UNWIND $candidates AS candidate\n"
        "MATCH (a1:`_Entity_` {nodeId: candidate.id})\n"
        "WHERE a1:`Brand`\n"
        "MATCH (a1)-[:`HAS_BRAND`]-(v0:`Product`)\n"
        "WHERE NOT EXISTS { (v0)-[:`HAS_COLOUR`]-(:`Colour`) }\n"
        "WITH v0, max(candidate.cosine) AS s1\n"
        "MATCH (v0)-[:`ALSO_BUY`]-(t:`Product`)\n"
        "WHERE NOT EXISTS { (t)-[:`HAS_COLOUR`]-(n3:`Colour`) WHERE n3.nodeId IN $ids_2 }\n"
        "WITH t, max(s1) AS s1\n"
        "MATCH (t)-[:`HAS_COLOUR`]-(a0:`Colour`)\n"
        "WHERE a0.nodeId IN $ids_0\n"
        "WITH t.nodeId AS id, t.canonical AS canonical, max($cosines_0[toString(a0.nodeId)] + s1) AS score\n"
        "ORDER BY score DESC, canonical\n"
        "WITH collect([id, score]) AS answers\n"
        "RETURN size(answers) AS n_cand, answers[..$limit] AS answers"
    )
    assert (compiled.starts, compiled.checked, compiled.forbidding) == ({0: 1}, (0,), (2,))
    bindings = bind(c={7: 0.5, 8: 0.25}, b={1: 1.0}, d={9: 0.125})
    values = compiled.parameters(bindings, 20)
    assert values == {
        "candidates": [{"id": 1, "cosine": 1.0}],
        "ids_0": [7, 8],
        "cosines_0": {"7": 0.5, "8": 0.25},
        "ids_2": [9],
        "limit": 20,
    }
    assert set(re.findall(r"\$(\w+)", compiled.text)) == set(values)
    assert type(values["candidates"][0]["id"]) is int  # type: ignore[index]
    assert type(values["candidates"][0]["cosine"]) is float  # type: ignore[index]


@pytest.mark.parametrize(
    ("costs", "start"), [(None, 0), ({"a": 3, "b": 2}, 1), ({"a": 2, "b": 2}, 0), ({"a": 0, "b": 1}, 0)]
)
def test_it_starts_from_the_cheapest_anchor(costs: dict[str, int] | None, start: int) -> None:
    assert compile_cypher(SIBLINGS, SHOP, costs).starts == {0: start}


def test_an_anchor_in_negated_hops_only_is_never_the_start() -> None:
    plan = make_plan({"n": "brand", "a": "product"}, ["a -also_buy- T:product", "not T -has-brand- n:brand"])
    compiled = compile_cypher(plan, SHOP, {"n": 0, "a": 5})
    assert (compiled.starts, compiled.checked, compiled.forbidding) == ({0: 1}, (), (0,))


def test_an_anchor_that_starts_and_forbids_has_both_parameters() -> None:
    plan = make_plan(
        {"a": "product"}, ["a -also_buy- m:product", "m -has-brand- T:brand", "not m -also_buy- a:product"]
    )
    values = compile_cypher(plan, SHOP).parameters(bind(a={4: 0.5}), 1)
    assert values == {"candidates": [{"id": 4, "cosine": 0.5}], "ids_0": [4], "limit": 1}


def test_edges_of_a_relation_that_occurs_once_have_no_name() -> None:
    plan = make_plan({"a": "product"}, ["a -also_buy- m:product", "m -has-brand- T:brand"])
    assert "<>" not in compile_cypher(plan, SHOP).text
    assert "WITH v0, max(candidate.cosine) AS score" in _lines(plan)


def test_edges_are_remembered_until_the_last_hop_of_their_relation() -> None:
    plan = make_plan({"a": "product"}, ["a -also_buy- m:product", "m -also_buy- p:product", "p -has-brand- T:brand"])
    assert [line for line in _lines(plan) if line.startswith(("WITH v", "WHERE r"))] == [
        "WITH v0, r0, max(candidate.cosine) AS score",
        "WHERE r1 <> r0",
        "WITH v1, max(score) AS score",
    ]


def test_cosines_are_added_in_plan_order_whatever_the_start() -> None:
    plan = make_plan(
        {"a": "product", "b": "brand", "c": "colour"},
        ["a -also_buy- T:product", "T -has-brand- b:brand", "T -has colour- c:colour"],
    )
    # The start c waits in a column of its own until a and b are added.
    assert [line for line in _lines(plan, {"a": 3, "b": 2, "c": 1}) if "max(" in line] == [
        "WITH t, max(candidate.cosine) AS s2",
        "WITH t, s2, max($cosines_0[toString(a0.nodeId)]) AS score",
        "WITH t.nodeId AS id, t.canonical AS canonical, max(score + $cosines_1[toString(a1.nodeId)] + s2) AS score",
    ]


def test_branches_that_only_remove_rows_come_before_the_target() -> None:
    plan = make_plan(
        {"a": "product", "b": "brand"},
        ["a -also_buy- T:product", "a -has colour- x:colour", "a -has-brand- b:brand"],
    )
    assert [line for line in _lines(plan) if line.startswith("MATCH (a0)-")] == [
        "MATCH (a0)-[:`HAS_BRAND`]-(a1:`Brand`)",
        "MATCH (a0)-[:`HAS_COLOUR`]-(v0:`Colour`)",
        "MATCH (a0)-[:`ALSO_BUY`]-(t:`Product`)",
    ]


def test_several_target_labels_and_a_closing_hop() -> None:
    schema = GraphSchema(("p", "q"), tuple(Triple(a, r, b) for r in ("x", "y") for a in "pq" for b in "pq"), ("p", "q"))
    plan = make_plan({"a": "p"}, ["a -x- T:", "T -y- a:p"])
    lines = _lines(plan, schema=schema)
    assert "MATCH (a0)-[:`X`]-(t:`P`|`Q`)" in lines
    assert "MATCH (t)-[:`Y`]-(a0)" in lines


TRADE = GraphSchema(
    ("firm", "shop"),
    (
        Triple("firm", "supplies", "shop"),
        Triple("shop", "supplies", "firm"),
        Triple("firm", "supplies", "firm"),
        Triple("firm", "owns", "shop"),
    ),
    ("firm", "shop"),
    (Triple("firm", "supplies", "firm"),),
)


def test_arrows_where_a_direction_filters_and_nowhere_else() -> None:
    plan = make_plan(
        {"a": "firm"},
        [
            "a -supplies-> m:shop",
            "T -supplies-> m:shop",
            "m <-owns- b:firm",
            "a <-supplies- c:firm",
            "not m <-supplies- z:firm",
        ],
        ["firm"],
    )
    assert [
        line for line in _lines(plan, schema=TRADE) if line.startswith(("MATCH (a0)-", "MATCH (v", "WHERE NOT"))
    ] == [
        "MATCH (a0)-[r3:`SUPPLIES`]-(v2:`Firm`)",  # symmetric
        "MATCH (a0)-[r0:`SUPPLIES`]->(v0:`Shop`)",
        "WHERE NOT EXISTS { (v0)<-[:`SUPPLIES`]-(:`Firm`) } AND r0 <> r3",
        "MATCH (v0)-[:`OWNS`]-(v1:`Firm`)",  # owned by firms only
        "MATCH (v0)<-[r1:`SUPPLIES`]-(t:`Firm`)",
    ]


def test_a_direction_that_filters_one_of_two_target_types() -> None:
    """Within firms the relation is symmetric, between firms and shops it runs both ways."""
    plan = make_plan({"a": "firm"}, ["a -supplies-> T:", "not T -supplies-> z:firm"])
    lines = _lines(plan, schema=TRADE)
    assert lines[lines.index("MATCH (a0)-[r0:`SUPPLIES`]-(t:`Firm`|`Shop`)") + 1] == (
        "WHERE NOT EXISTS { (t)-[:`SUPPLIES`]->(:`Firm`) } AND "
        "(NOT t:`Firm` OR NOT EXISTS { (t)-[:`SUPPLIES`]-(:`Firm`) }) AND (startNode(r0) = a0 OR t:`Firm`)"
    )


def test_a_header_says_that_it_was_not_run_if_asked() -> None:
    plain = compile_cypher(SIBLINGS, SHOP).text
    assert compile_cypher(SIBLINGS, SHOP, header=True).text == f"{HEADER}\n{plain}"
    assert "//" not in plain


def test_plan_text_never_reaches_the_statement() -> None:
    hostile = "x`}) DETACH DELETE n //"
    plan = make_plan(
        {"a": "product"}, ["a -also_buy- m:product", "m -has-brand- T:brand", "not T -has-brand- z:product"]
    )

    def renamed(var: str) -> str:
        return hostile + var if var != "T" else var

    dump = plan.model_dump(by_alias=True)
    for anchor in dump["anchors"]:
        anchor |= {"var": renamed(anchor["var"]), "text": hostile}
    for hop in dump["hops"]:
        hop |= {"from": renamed(hop["from"]), "to_var": renamed(hop["to_var"])}
    other = Plan.model_validate(dump)
    assert compile_cypher(other, SHOP).text == compile_cypher(plan, SHOP).text
    names = GraphNames.of(SHOP)
    assert compile_candidate_check(other, names) == compile_candidate_check(plan, names)


def test_the_check_counts_edges_of_the_hops_at_each_anchor() -> None:
    plan = make_plan(
        {"a": "product", "n": "colour"},
        ["a -also_buy- T:product", "a -has-brand- b:brand", "a -also_buy- m:product", "not T -has colour- n:colour"],
    )
    assert compile_candidate_check(plan, GraphNames.of(SHOP)) == (
        "UNWIND $ids_0 AS id\nMATCH (n:`_Entity_` {nodeId: id})\n"
        "RETURN 0 AS anchor, id, n:`Product` AS fits, COUNT { (n)-[:`ALSO_BUY`|`HAS_BRAND`]-() } AS edges\n"
        "UNION ALL\n"
        "UNWIND $ids_1 AS id\nMATCH (n:`_Entity_` {nodeId: id})\n"
        "RETURN 1 AS anchor, id, n:`Colour` AS fits, 0 AS edges"
    )


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {
                "anchors": [{"var": "a", "text": "x", "label": "product", "match_mode": "doc"}],
                "retrieval_mode": "doc_search",
            },
            "answered by document search",
        ),
        (
            {
                "anchors": [{"var": "a", "text": "x", "label": "product"}],
                "hops": [{"from": "a", "rel": "ALSO_BUY", "to_var": "T", "to_label": "product"}],
            },
            "not executable as it stands .fallback.: hops.0..rel: 'ALSO_BUY' is not a known relation",
        ),
        (
            {
                "anchors": [{"var": v, "text": "x", "label": "product"} for v in "ab"],
                "hops": [{"from": "a", "rel": "also_buy", "to_var": "T", "to_label": "product"}],
            },
            "not executable as it stands .degraded.: anchors.1.",
        ),
    ],
)
def test_plans_that_are_not_executable_are_refused(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_cypher(Plan.model_validate(plan), SHOP)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_hop_is_followed_once_from_a_variable_in_scope(data: st.DataObject) -> None:
    case = data.draw(small_cases(data.draw(small_graphs()), directed=True))
    costs = {var: data.draw(st.integers(0, 3)) for var in case.bindings}
    compiled = compile_cypher(case.plan, RANDOM_SCHEMA, costs)
    start, *rest = compiled.text.split("\nMATCH ")
    assert start == "UNWIND $candidates AS candidate"
    scope = {"candidate", *re.findall(r"^\((\w+):", rest.pop(0))}
    relations = []
    for part in rest:
        match = re.match(r"\((\w+)\)<?-\[(\w*):`(\w)`\]->?\((\w+)[:)]", part)
        assert match is not None, compiled.text
        near, edge, relation, far = match.groups()
        assert near in scope, compiled.text
        relations.append(relation)
        scope |= {far, *([edge] if edge else [])}
        compared = {name for pair in re.findall(r"(r\d+) <> (r\d+)", part) for name in pair}
        assert compared <= scope, compiled.text
        if "\nWITH " in part and "ORDER BY" not in part:
            kept = part.split("\nWITH ")[1]
            scope = set(re.findall(r"(?:^|, )([atvr]\d*)(?=,)", kept))
    positive = [hop.rel.upper() for hop in case.plan.hops if not hop.negated]
    assert sorted(relations) == sorted(positive)
    values = compiled.parameters(case.bindings, 5)
    assert set(re.findall(r"\$(\w+)", compiled.text)) == set(values)
    assert not any(isinstance(value, np.ndarray | np.generic) for value in values.values())


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_statement_of_several_parts_has_the_parameters_that_it_names(data: st.DataObject) -> None:
    case = data.draw(small_cases(data.draw(small_graphs()), directed=True, soft=True))
    compiled = compile_cypher(case.plan, RANDOM_SCHEMA)
    values = compiled.parameters(case.bindings, 5)
    limit = set() if compiled.parts else {"limit"}
    assert set(re.findall(r"\$(\w+)", compiled.text)) == {*values} - {"limit"} | limit
    assert compiled.text.count("UNION ALL") == len(compiled.parts)


def test_the_texts_of_optional_conditions() -> None:
    schema = GraphSchema(SHOP.node_types, SHOP.triples, SHOP.candidate_types, fields=(
        TypedField("product", "name", FieldKind.TEXT), TypedField("product", "pri`ce", FieldKind.NUMBER)))  # fmt: skip
    plan = make_plan(
        {"a": "product", "b": "brand"},
        ["a -also_buy- T:product", "maybe T -has-brand- b:brand"],
        ["product"],
        ["T.pri`ce < 5", 'a.name contains "C++"'],
    )
    compiled = compile_cypher(plan, schema)
    columns = (
        "WITH t.nodeId AS id, t.canonical AS canonical, (t.`pri``ce` IS NOT NULL) AS has, "
        "coalesce(t.`pri``ce` < $value_1, false) AS meets, max(candidate.cosine) AS score\n"
        "WITH collect([id, score, canonical, has, meets]) AS answers\n"
    )
    assert compiled.text == (
        "UNWIND $candidates AS candidate\n"
        "MATCH (a0:`_Entity_` {nodeId: candidate.id})\n"
        "WHERE a0:`Product` AND (a0.`name_2` =~ $value_0)\n"
        "MATCH (a0)-[:`ALSO_BUY`]-(t:`Product`)\n"
        f"{columns}RETURN 0 AS part, size(answers) AS n, answers\n"
        "UNION ALL\n"
        "UNWIND $candidates_1 AS candidate\n"
        "MATCH (a1:`_Entity_` {nodeId: candidate.id})\n"
        "WHERE a1:`Brand`\n"
        "MATCH (a1)-[:`HAS_BRAND`]-(t:`Product`)\n"
        f"{columns}RETURN 1 AS part, size(answers) AS n, answers\n"
        "UNION ALL\n"
        "MATCH (t:`_Entity_`)\nWHERE t:`Product`\nRETURN -1 AS part, count(t) AS n, [] AS answers"
    )
    assert compiled.values == {"value_0": r"(?is).*(?:C\+\+).*", "value_1": 5.0}
