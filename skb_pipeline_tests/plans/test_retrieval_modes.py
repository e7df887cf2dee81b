"""The retrieval modes of a plan: which shapes they allow, and what is said of the others."""

from typing import Any

import pytest

from skb_pipeline.plans.plan import NOT_EXECUTED, Plan, PlanStatus
from skb_pipeline.plans.validation import GRAPH_MODES, check_executable, validate
from skb_pipeline_tests.plans.test_validation import B_T, P_T, SHOP, B, C, P, anchor, hop, plan

Q = anchor("q", "product", match_mode="doc")


def with_text(text: str, **of_plan: Any) -> dict[str, Any]:
    made = plan([B], [B_T], "product", **of_plan)
    return {**made, "target": {**made["target"], "relevance_text": text}}


@pytest.mark.parametrize(
    "raw",
    [
        with_text("for winter hikes", retrieval_mode="graph_filter_doc"),
        with_text("", retrieval_mode="graph_strict"),
        with_text(" \n", retrieval_mode="graph_strict"),
        plan([P], [P_T], "product", retrieval_mode="graph_expand"),
        plan([P], [P_T], retrieval_mode="graph_expand"),
        plan([B, P], [B_T, P_T], "product", retrieval_mode="graph_expand"),
        # Two hops away, and the seed is no neighbour of the target.
        plan([P], [hop("p", "has", "k", "brand"), hop("k", "has", "T", "product")], retrieval_mode="graph_expand"),
        plan([B], [hop("b", "owns", "T", "")], "product", "brand", retrieval_mode="graph_expand"),
        {**plan([Q], [], "product", retrieval_mode="doc_search"), "risk_level": "aggressive"},
    ],
)
def test_a_mode_that_fits_changes_nothing(raw: dict[str, Any]) -> None:
    checked = validate(raw, SHOP)
    assert (checked.status, checked.dropped) == (PlanStatus.VALID, [])
    assert checked.plan == Plan.model_validate(raw)


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_a_graph_mode_needs_a_hop(mode: str) -> None:
    checked = validate(plan([P], [], "product", retrieval_mode=mode), SHOP)
    assert checked.status is PlanStatus.FALLBACK
    assert [(d.part, d.reason) for d in checked.dropped] == [
        ("retrieval_mode", f"{mode} needs a hop to the target; only doc_search has none"),
        ("anchors[0]", NOT_EXECUTED),
    ]


NOT_CONNECTED = "that positive hops connect to the target; the anchors so connected have the types:"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (plan([B], [B_T], "product"), f"'product') {NOT_CONNECTED} 'brand'"),
        # Which of its labels the target can have, the hop decides.
        (plan([B], [B_T]), f"'product') {NOT_CONNECTED} 'brand'"),
        # A seed that no hop reaches, or only a negated one, is none.
        (plan([B, P], [B_T], "product"), f"'product') {NOT_CONNECTED} 'brand'"),
        (plan([B, P], [B_T, {**P_T, "negated": True}], "product"), f"'product') {NOT_CONNECTED} 'brand'"),
        (plan([], [hop("T", "has", "k", "color")], "product"), f"'product') {NOT_CONNECTED} none"),
    ],
)
def test_an_expansion_needs_a_seed_of_the_targets_type(raw: dict[str, Any], reason: str) -> None:
    checked = validate({**raw, "retrieval_mode": "graph_expand"}, SHOP)
    assert checked.status is PlanStatus.FALLBACK
    (fault,) = checked.faults
    assert (fault.part, fault.reason) == (
        "retrieval_mode",
        f"graph_expand starts from an anchor of the target's type ({reason}",
    )
    # Without the mode there is nothing wrong with a plan that has an anchor.
    assert bool(validate(raw, SHOP).plan) == bool(raw["anchors"])


def test_an_unknown_relation_is_not_told_as_a_fault_of_the_mode_too() -> None:
    checked = validate(plan([B], [hop("b", "nope", "T", "product")], "product", retrieval_mode="graph_expand"), SHOP)
    assert [fault.part for fault in checked.faults] == ["hops[0].rel"]


def test_a_strict_filter_does_not_rank_by_text_and_says_so() -> None:
    raw = with_text("for winter hikes", retrieval_mode="graph_strict")
    checked = validate(raw, SHOP)
    assert checked.status is PlanStatus.DEGRADED
    assert [(d.part, d.reason) for d in checked.faults] == [
        ("target.relevance_text", "graph_strict only filters; no text ranks")
    ]
    assert checked.plan is not None
    assert checked.plan == Plan.model_validate(with_text("", retrieval_mode="graph_strict"))
    check_executable(checked.plan, SHOP)
    with pytest.raises(ValueError, match=r"target\.relevance_text: graph_strict only filters"):
        check_executable(Plan.model_validate(raw), SHOP)


def test_a_strict_filter_with_a_text_and_a_loose_part_names_both() -> None:
    raw = with_text("x", retrieval_mode="graph_strict")
    checked = validate({**raw, "anchors": [B, C]}, SHOP)
    assert [d.part for d in checked.dropped] == ["anchors[1]", "target.relevance_text"]
    assert checked.plan is not None
    assert [a.var for a in checked.plan.anchors] == ["b"]
