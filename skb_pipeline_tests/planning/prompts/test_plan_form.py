from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.planning.prompts.plan_form import MOST_ANCHORS, MOST_HOPS, NotInFormError, PlanForm, fitting_mode
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.plans.validation import MAX_ANCHORS, MAX_HOPS, validate
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, Graph
from skb_pipeline_tests.conformance.plans import small_cases
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.planning.prompts.json_schemas import KEYWORDS, misfits, parts, values

ODD = GraphSchema(
    ("gene/protein", "`tick`", 'quo"te', "naïve\n"),
    (
        Triple("gene/protein", "off-label use", "`tick`"),
        Triple('quo"te', "x'); DROP", "gene/protein"),
        Triple("naïve\n", "___", "naïve\n"),
    ),
    ("gene/protein", 'quo"te'),
)
UNDIRECTED = GraphSchema(
    ("p", "q"), (Triple("p", "x", "q"), Triple("p", "y", "p")), ("p", "q"), (Triple("p", "y", "p"),)
)
"""No direction filters anything here: two types one way, one type symmetric."""
OPTIONS = [(negated, modes) for negated in (False, True) for modes in (False, True)]
EMPTY = Graph({}, [])


@given(data=st.data())
@settings(max_examples=examples(150))
@pytest.mark.parametrize(("negated", "modes"), OPTIONS)
def test_every_valid_plan_has_the_form(negated, modes, data) -> None:
    plan = data.draw(small_cases(EMPTY)).plan
    form = PlanForm(RANDOM_SCHEMA, negated, modes)
    if len(plan.hops) > MOST_HOPS or (not negated and any(hop.negated for hop in plan.hops)):
        return
    dumped = form.dump(plan)
    assert list(misfits(dumped, form.json_schema())) == []
    read = validate(json.dumps(dumped), RANDOM_SCHEMA)
    assert read.status is PlanStatus.VALID
    assert read.plan is not None
    assert read.plan.model_copy(update={"retrieval_mode": None}) == plan


@given(data=st.data())
@settings(max_examples=examples(60))
@pytest.mark.parametrize("schema", [RANDOM_SCHEMA, ODD], ids=["random", "odd names"])
@pytest.mark.parametrize(("negated", "modes"), OPTIONS)
def test_whatever_has_the_form_is_a_plan(schema, negated, modes, data) -> None:
    form = PlanForm(schema, negated, modes)
    value = data.draw(values(form.json_schema()))
    plan = Plan.model_validate_json(json.dumps(value))
    assert form.dump(plan) == value


@pytest.mark.parametrize(("negated", "modes"), OPTIONS)
def test_only_what_all_converters_read(negated, modes) -> None:
    schema = PlanForm(ODD, negated, modes).json_schema()
    for part in parts(schema):
        assert set(part) <= KEYWORDS[part["type"]]
        if part["type"] == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        if part["type"] == "string":
            assert "enum" in part or part["maxLength"] <= 400
    assert json.loads(json.dumps(schema)) == schema


def test_names_and_limits() -> None:
    plan = PlanForm(ODD).json_schema()["properties"]
    anchor, hop = (plan[name]["items"]["properties"] for name in ("anchors", "hops"))
    assert anchor["label"]["enum"] == ["gene/protein", "`tick`", 'quo"te', "naïve\n"]
    assert hop["rel"]["enum"] == ["off-label use", "x'); DROP", "___"]
    assert hop["to_label"]["enum"] == [*anchor["label"]["enum"], ""]
    assert plan["target"]["properties"]["labels"]["items"]["enum"] == ["gene/protein", 'quo"te']
    assert plan["target"]["properties"]["labels"]["maxItems"] == 2
    assert (plan["anchors"]["maxItems"], plan["hops"]["maxItems"]) == (MOST_ANCHORS, MOST_HOPS)
    assert MOST_ANCHORS <= MAX_ANCHORS
    assert MOST_HOPS <= MAX_HOPS


def test_options_are_no_part_of_the_form_unless_on() -> None:
    off, on = PlanForm(ODD).json_schema(), PlanForm(ODD, negated_hops=True, retrieval_modes=True).json_schema()
    assert "retrieval_mode" not in off["properties"]
    assert "negated" not in off["properties"]["hops"]["items"]["properties"]
    assert next(iter(on["properties"])) == "retrieval_mode"
    assert on["properties"]["retrieval_mode"]["enum"] == [
        "doc_search", "graph_filter_doc", "graph_expand", "graph_strict", "skip",
    ]  # fmt: skip
    assert on["properties"]["hops"]["items"]["properties"]["negated"] == {"type": "boolean"}


@pytest.mark.parametrize(("negated", "modes"), OPTIONS)
def test_what_no_prompt_offers_yet_is_no_part_of_the_form(negated: bool, modes: bool) -> None:
    for schema, more in ((UNDIRECTED, set()), (ODD, {"direction"})):
        plan = PlanForm(schema, negated, modes).json_schema()["properties"]
        assert {*plan} - {"retrieval_mode"} == {"anchors", "hops", "target", "risk_level"}
        assert {*plan["hops"]["items"]["properties"]} - {"negated"} == {"from", "rel", "to_var", "to_label"} | more


@pytest.mark.parametrize(
    ("hop", "where"),
    [
        ({"optional": True}, []),
        ({}, [{"var": "T", "field": "f", "op": "=", "value": 1}]),
    ],
)
def test_a_plan_that_says_more_than_the_form_is_not_cut_down_to_it(hop, where) -> None:
    hops = [{"from": "a", "rel": "x", "to_var": "T", "to_label": "p", **hop}]
    with pytest.raises(NotInFormError, match="an optional hop or a condition"):
        PlanForm(RANDOM_SCHEMA, True, True).dump(_plan(hops=hops, where=where))


def test_an_anchor_of_several_texts_is_not_cut_down_to_one() -> None:
    anchors = [{"var": "a", "text": "x", "label": "p", "any_of": ["y"]}]
    with pytest.raises(NotInFormError, match="an anchor of several texts"):
        PlanForm(RANDOM_SCHEMA, True, True).dump(_plan(anchors=anchors))


@pytest.mark.parametrize("negated", [False, True])
def test_directions_are_part_of_the_form_where_they_filter_edges(negated: bool) -> None:
    hop = {"from": "a", "rel": "x", "to_var": "T", "to_label": "p"}
    plan = _plan("p", hops=[{**hop, "direction": "in"}])
    form = PlanForm(RANDOM_SCHEMA, negated)
    shown = form.dump(plan)["hops"][0]
    assert shown == {**hop, "direction": "in"} | ({"negated": False} if negated else {})
    assert list(shown) == list(form.json_schema()["properties"]["hops"]["items"]["properties"])
    assert form.dump(_plan("p"))["hops"][0]["direction"] == "any"
    with pytest.raises(NotInFormError, match="has a direction"):
        PlanForm(UNDIRECTED, negated).dump(plan)


def _plan(anchor: str = "q", rel: str = "x", **changes: object) -> Plan:
    plan = {
        "anchors": [{"var": "a", "text": "t", "label": anchor}],
        "hops": [{"from": "a", "rel": rel, "to_var": "T", "to_label": "p"}],
        "target": {"labels": ["p"]},
    }
    return Plan.model_validate({**plan, **changes})


def test_what_the_form_has_no_place_for_is_refused() -> None:
    form = PlanForm(RANDOM_SCHEMA)
    negated = [*_plan().model_dump(by_alias=True)["hops"],
               {"from": "T", "rel": "y", "to_var": "n", "to_label": "r", "negated": True}]  # fmt: skip
    with pytest.raises(NotInFormError, match="negated"):
        form.dump(_plan(hops=negated))
    assert PlanForm(RANDOM_SCHEMA, negated_hops=True).dump(_plan(hops=negated))["hops"][1]["negated"] is True
    with pytest.raises(NotInFormError, match="skip"):
        form.dump(Plan(retrieval_mode="skip"))
    assert "retrieval_mode" not in form.dump(_plan(retrieval_mode="graph_strict"))


@pytest.mark.parametrize(
    ("plan", "mode"),
    [
        (_plan(), "graph_strict"),
        (_plan(target={"labels": ["p"], "relevance_text": "blue"}), "graph_filter_doc"),
        (_plan(target={"labels": ["p"], "relevance_text": " "}), "graph_strict"),
        (_plan("p", target={"labels": ["p"], "relevance_text": "blue"}), "graph_expand"),
        (_plan("p", "y", target={}), "graph_expand"),
        (Plan(), "skip"),
        (_plan(retrieval_mode="graph_filter_doc"), "graph_filter_doc"),
    ],
)
def test_mode_of_a_plan_without_one(plan, mode) -> None:
    form = PlanForm(RANDOM_SCHEMA, retrieval_modes=True)
    assert form.dump(plan)["retrieval_mode"] == mode
    if plan.retrieval_mode is None:
        assert fitting_mode(plan, RANDOM_SCHEMA) == mode
