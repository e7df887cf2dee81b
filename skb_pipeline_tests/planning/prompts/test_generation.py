"""Guidance made for a dataset: hints from its schema, examples from training questions only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.prompts.generation import MOST_HINTS, generate_guidance, schema_hints
from skb_pipeline.planning.prompts.prompt_set import PromptSet
from skb_pipeline.plans.plan import Plan, PlanStatus, ValidatedPlan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline.questions.generate import generate_questions
from skb_pipeline_tests.planning.prompts.small_skbs import NamedSkb
from skb_pipeline_tests.questions.small_skb import build, shop, shop_spec
from skb_pipeline_tests.toy import toy_spec

BRAND, BUY, VIEW = "product <-has_brand- brand", "product <-also_buy- product", "product <-also_view- product"


def question(number: int, split: str, anchor: str, rel: str, answers: Sequence[int], **changes: Any) -> dict[str, Any]:
    label = "brand" if rel == "has_brand" else "product"
    plan = {
        "anchors": [{"var": "a", "text": anchor, "label": label}],
        "hops": [{"from": "a", "rel": rel, "to_var": "T", "to_label": "product"}],
        "target": {"labels": ["product"]},
    }
    row = {
        "query_id": f"{split}-{number:03}", "query": f"{split} {number}: {rel} {anchor}?", "split": split,
        "answer_ids": list(answers), "template": f"product <-{rel}- {label}", "gold_plan": json.dumps(plan),
    }  # fmt: skip
    return {**row, **changes}


class Recorder:
    """Answers every plan with the same ids, and keeps the plans it was given."""

    def __init__(self, top: Sequence[int] = (1, 2), n_cand: int = 2) -> None:
        self.top, self.n_cand, self.plans = list(top), n_cand, []

    def __call__(self, plans: Sequence[ValidatedPlan]) -> list[tuple[int, list[int]]]:
        self.plans += [checked.plan for checked in plans]
        return [(self.n_cand, self.top)] * len(plans)


def spec_with(**plans: Any) -> DatasetSpec:
    return toy_spec(candidates=["product"], plans=plans)


def make(rows: Sequence[dict[str, Any]], run: Any, **plans: Any) -> Any:
    spec = spec_with(**plans)
    columns = ["query_id", "query", "split", "answer_ids", "template", "gold_plan"]
    return generate_guidance(spec, GraphSchema.from_spec(spec), pd.DataFrame(rows, columns=columns), run)


def test_questions_of_other_splits_change_nothing() -> None:
    train = [question(i, "train", f"n{i}", rel, [1]) for i, rel in enumerate(["has_brand", "also_buy", "also_buy"])]
    others = [question(i, split, "z", "also_view", [1]) for split in ("val", "test", "human") for i in range(9)]
    alone, mixed = Recorder(), Recorder()
    expected = make(train, alone)
    assert make([*others, *train, *others], mixed) == expected
    assert mixed.plans == alone.plans
    assert len(expected.kept.examples) == 3
    # Most frequent templates of training come first, though also_view has most questions.
    directed = [BUY.replace("also_buy", f"also_buy, {direction}") for direction in ("in", "out")]
    assert [hint.path for hint in expected.kept.hints[:3]] == [*directed, BRAND]
    shown = PromptSet(spec_with(), expected.kept).messages("q")[0].content
    assert not any(row["query"] in shown for row in others)


def test_one_example_per_template_then_what_brings_new_relations() -> None:
    both = json.loads(question(0, "train", "x", "also_buy", [])["gold_plan"])
    both["hops"].append({"from": "a", "rel": "similar", "to_var": "T", "to_label": "product"})
    rows = [
        *(question(i, "train", f"n{i}", "also_buy", [1]) for i in range(5)),
        *(question(i, "train", f"n{i}", "has_brand", [1]) for i in range(5, 8)),
        question(8, "train", "n8", "also_buy", [1], gold_plan=json.dumps(both)),
        question(9, "train", "n9", "also_view", [1]),
    ]
    made = make(rows, Recorder(), examples=4)
    assert [example.question.split(":")[0] for example in made.kept.examples] == [
        "train 8",  # two relations at once
        "train 5",
        "train 9",
        "train 0",
    ]
    assert make(list(reversed(rows)), Recorder(), examples=4) == made


def test_examples_are_verified_and_those_that_fail_are_replaced() -> None:
    rows = [question(i, "train", f"n{i}", "also_buy", [1 if i == 7 else 99]) for i in range(8)]
    made = make(rows, Recorder(), examples=2)
    assert [example.question.split(":")[0] for example in made.kept.examples] == ["train 7"]
    assert len(made.faults) == 7
    assert "none of its answers is among the first 10" in made.faults[0][1]
    assert "8 were executed and 1 taken" in made.notes[0]


def test_an_answer_at_place_eleven_does_not_count() -> None:
    rows = [question(0, "train", "n", "also_buy", [11])]
    assert make(rows, Recorder(range(1, 12))).kept.examples == ()
    assert len(make(rows, Recorder(range(2, 12))).kept.examples) == 1


def test_only_so_many_plans_are_executed() -> None:
    run = Recorder()
    make([question(i, "train", f"n{i}", "also_buy", [99]) for i in range(500)], run, examples=3)
    assert len(run.plans) == 15


@pytest.mark.parametrize(
    ("n_cand", "text", "level"),
    [(20, "", "aggressive"), (21, "", "normal"), (1, "blue", "normal"), (200, "", "normal"), (201, "", "weak")],
)
def test_risk_levels_follow_the_criteria_of_the_prompt(n_cand, text, level) -> None:
    row = question(0, "train", "n", "also_buy", [1])
    plan = json.loads(row["gold_plan"])
    plan["target"]["relevance_text"] = text
    made = make([{**row, "gold_plan": json.dumps(plan)}], Recorder(n_cand=n_cand))
    assert made.kept.examples[0].plan.risk_level == level


def test_gold_plans_that_a_prompt_cannot_show_are_left_out_and_counted() -> None:
    row = question(0, "train", "n", "also_buy", [1])
    plan = json.loads(row["gold_plan"])
    negated = {"from": "T", "rel": "similar", "to_var": "n", "to_label": "product", "negated": True}
    rows = [
        {**row, "gold_plan": json.dumps({**plan, "hops": [*plan["hops"], negated]})},
        question(1, "train", "n", "made_by", [1]),
        question(2, "train", "n", "also_buy", [1], gold_plan="no plan"),
        question(3, "train", "n", "also_buy", [1], gold_plan=None),
        question(4, "train", "n", "also_buy", [1], query="very " * 120 + "long"),
    ]
    made = make(rows, Recorder())
    assert made.kept.examples == ()
    reasons = [reason for _, reason in made.faults]
    assert len(reasons) == 4
    assert "longer than 500" in reasons[3]
    assert "negated hops are off" in reasons[0]
    assert "'made_by' is not a known relation" in reasons[1]
    assert "no training question has a usable gold plan" in made.notes[-1]
    assert len(make(rows, Recorder(), negated_hops=True).kept.examples) == 1


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([], "no training questions"),
        ([question(0, "test", "n", "also_buy", [1])], "no training questions"),
        ([question(0, "train", "n", "also_buy", [1], gold_plan=None, template=None)], "usable gold plan"),
    ],
)
def test_without_training_plans_there_are_hints_alone(rows, note) -> None:
    made = make(rows, lambda plans: pytest.fail("nothing to execute"))
    assert made.kept.examples == ()
    assert made.kept.hints
    assert note in made.notes[-1]


def test_examples_can_be_switched_off() -> None:
    made = make([question(0, "train", "n", "also_buy", [1])], Recorder(), examples=0)
    assert made.kept.examples == ()
    assert "switched off" in made.notes[0]


def test_hints_are_valid_paths_with_the_words_of_the_schema() -> None:
    spec = shop_spec()
    schema = GraphSchema.from_spec(spec)
    hints = schema_hints(spec, {})
    assert len(hints) == MOST_HINTS
    assert len({hint.path for hint in hints}) == MOST_HINTS
    for hint in hints:
        assert validate(hint.skeleton, schema).status is PlanStatus.VALID
    sizes = [len(hint.skeleton.hops) for hint in hints]
    assert sizes == sorted(sizes)
    first = schema_hints(toy_spec(candidates=["product"]), {BRAND: 1})[0]
    assert first.signals == 'a brand is named and products are asked for; words for it: "products" / "brand"'
    assert first.skeleton.anchors[0].text == "BRAND"
    two = "product <-also_buy- product <-has_brand- brand"
    path = schema_hints(toy_spec(candidates=["product"]), {two: 3})[0]
    assert path.path == "product <-also_buy, in- product <-has_brand- brand"
    assert "joined through a product that is not named" in path.signals
    assert [hop.rel for hop in path.skeleton.hops] == ["has_brand", "also_buy"]
    assert [hop.direction for hop in path.skeleton.hops] == ["any", "out"]  # the product between is the head
    assert path.signals.endswith(
        '"also bought", as seen from the product before it (the other way "also bought (reverse)")'
    )


def test_hints_lead_to_candidate_types_only() -> None:
    assert all(hint.skeleton.target.labels == ["brand"] for hint in schema_hints(toy_spec(candidates=["brand"]), {}))


def test_guidance_of_generated_questions() -> None:
    """The whole way, over a made-up catalogue with ambiguous names and hubs, with real execution."""
    spec = shop_spec()
    con = build(shop())
    questions, _ = generate_questions(con, spec)
    skb = NamedSkb(con, spec)
    made = generate_guidance(spec, skb.schema, questions, skb.run)
    assert len(made.kept.examples) == spec.plans.examples == 8
    train = questions[questions["split"] == "train"].set_index("query")
    templates = Counter()
    for example in made.kept.examples:
        row = train.loc[example.question]
        templates[row["template"]] += 1
        (n_cand, top), *_ = skb.run([validate(example.plan, skb.schema)])
        assert set(top[:10]) & set(row["answer_ids"])
        assert n_cand > 0
        assert example.plan == Plan.model_validate_json(row["gold_plan"]).model_copy(
            update={"risk_level": example.plan.risk_level}
        )
    assert set(templates.values()) == {1}
    relations = {hop.rel for example in made.kept.examples for hop in example.plan.hops}
    assert relations == {triple.relation for triple in spec.triples}
    assert generate_guidance(spec, skb.schema, questions, skb.run) == made
    counts = train["template"].value_counts()
    asked = [counts.get(hint.path.replace(", in", "").replace(", out", ""), 0) for hint in made.kept.hints]
    assert asked == sorted(asked, reverse=True)
