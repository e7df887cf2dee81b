"""Which templates a schema gives."""

from __future__ import annotations

import pytest

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.questions.templates import enumerate_templates, schema_steps
from skb_pipeline_tests.questions.small_skb import SPEC_DATA, shop_spec


def test_a_triple_gives_a_step_from_each_end_and_one_per_direction_where_edges_run_either_way() -> None:
    triples = (Triple("a", "r", "b"), Triple("b", "r", "a"), Triple("a", "s", "a"), Triple("b", "s", "b"),
               Triple("a", "t", "b"))  # fmt: skip
    schema = GraphSchema(("a", "b"), triples, ("a",), (Triple("b", "s", "b"),))
    assert schema_steps(schema) == [
        ("a", "r", "b", "in"), ("a", "r", "b", "out"), ("a", "s", "a", "in"), ("a", "s", "a", "out"),
        ("a", "t", "b", "any"), ("b", "r", "a", "in"), ("b", "r", "a", "out"), ("b", "s", "b", "any"),
        ("b", "t", "a", "any"),
    ]  # fmt: skip


def test_every_shape_of_a_small_schema() -> None:
    data = {**SPEC_DATA, "relations": SPEC_DATA["relations"][:1], "questions": {}}
    names = [template.name for template in enumerate_templates(DatasetSpec.model_validate(data))]
    assert names == [
        "brand <-made_by- product",
        "brand <-made_by- product & <-made_by- product",
        "brand <-made_by- product <-made_by- brand",
        "product <-made_by- brand",
        "product <-made_by- brand & <-made_by- brand",
        "product <-made_by- brand <-made_by- product",
    ]


def test_only_candidates_are_asked_for() -> None:
    spec = DatasetSpec.model_validate({**SPEC_DATA, "candidates": ["brand"]})
    templates = enumerate_templates(spec)
    assert {template.target for template in templates} == {"brand"}
    assert any(step.target == "category" for t in templates for step in t.steps[1:]) is False
    assert any(step.target == "product" for t in templates for step in t.steps[1:])


def test_two_hops_go_from_the_anchor_over_the_middle_to_the_target() -> None:
    by_name = {template.name: template for template in enumerate_templates(shop_spec())}
    template = by_name["category <-IN_CATEGORY- product <-made_by- brand"]
    plan = template.plan(["Acme"], "blue").model_dump(mode="json", by_alias=True)
    assert plan["anchors"] == [{"var": "a1", "text": "Acme", "label": "brand", "match_mode": "name"}]
    assert [(h["from"], h["rel"], h["to_var"], h["to_label"]) for h in plan["hops"]] == [
        ("a1", "made_by", "m1", "product"),
        ("m1", "IN_CATEGORY", "T", "category"),
    ]
    assert plan["target"] == {"var": "T", "labels": ["category"], "relevance_text": "blue"}


def test_names_that_cannot_be_told_apart_are_refused() -> None:
    data = {
        **SPEC_DATA,
        "questions": {},
        "relations": [
            {"name": "r", "head": "product", "tail": "brand"},
            {"name": "r- brand & <-r", "head": "product", "tail": "brand"},
        ],
    }
    with pytest.raises(ValueError, match="two templates are both named"):
        enumerate_templates(DatasetSpec.model_validate(data))
