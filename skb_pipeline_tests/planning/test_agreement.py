from __future__ import annotations

from typing import Any

import pytest

from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.plans.plan import Plan


def plan(anchors: list[tuple[str, str, str]], hops: list[tuple[Any, ...]], labels: tuple[str, ...] = ("t",)) -> Plan:
    return Plan.model_validate(
        {
            "anchors": [{"var": var, "text": text, "label": label} for var, text, label in anchors],
            "hops": [
                {"from": h[0], "rel": h[1], "to_var": h[2], "to_label": h[3], "negated": len(h) > 4} for h in hops
            ],
            "target": {"labels": list(labels)},
        }
    )


CHAIN = plan([("a", "Acme", "b")], [("a", "r", "m", "x"), ("m", "s", "T", "t")])


def test_renamed_reordered_and_turned_round() -> None:
    other = plan([("z", "acme", "b")], [("q", "s", "T", "t"), ("z", "r", "q", "x")])
    assert plans_agree(CHAIN, other)
    back = plan([("z", "ACME", "b")], [("T", "s", "q", "x"), ("q", "r", "z", "b")])
    assert plans_agree(CHAIN, back)


@pytest.mark.parametrize(
    "other",
    [
        plan([("a", "Acne", "b")], [("a", "r", "m", "x"), ("m", "s", "T", "t")]),
        plan([("a", "Acme", "c")], [("a", "r", "m", "x"), ("m", "s", "T", "t")]),
        plan([("a", "Acme", "b")], [("a", "s", "m", "x"), ("m", "r", "T", "t")]),
        plan([("a", "Acme", "b")], [("a", "r", "m", "y"), ("m", "s", "T", "t")]),
        plan([("a", "Acme", "b")], [("a", "r", "m", "x"), ("m", "s", "T", "t", "negated")]),
        plan([("a", "Acme", "b")], [("a", "r", "m", "x"), ("m", "s", "T", "u")], ("u",)),
        plan([("a", "Acme", "b")], [("a", "r", "m", "x"), ("m", "s", "T", "t"), ("a", "r", "T", "t")]),
    ],
)
def test_another_query(other) -> None:
    assert not plans_agree(CHAIN, other)
    assert not plans_agree(other, CHAIN)


def test_which_of_two_equal_anchors_hangs_where() -> None:
    shared = plan(
        [("a", "A", "b"), ("c", "C", "b")],
        [("a", "r", "m", "x"), ("c", "r", "m", "x"), ("m", "s", "T", "t")],
    )
    apart = plan(
        [("a", "A", "b"), ("c", "C", "b")],
        [("a", "r", "m", "x"), ("m", "s", "T", "t"), ("c", "r", "n", "x"), ("n", "s", "T", "t")],
    )
    assert plans_agree(shared, shared)
    assert not plans_agree(shared, apart)
    swapped = plan(
        [("a", "C", "b"), ("c", "A", "b")],
        [("c", "r", "k", "x"), ("k", "s", "T", "t"), ("a", "r", "l", "x"), ("l", "s", "T", "t")],
    )
    assert plans_agree(apart, swapped)


def test_same_parts_joined_otherwise() -> None:
    """Equal anchors, equal relations, but the pairs of hops are exchanged."""
    one = plan(
        [("a", "A", "b"), ("c", "C", "b")],
        [("a", "r", "m", "x"), ("m", "s", "T", "t"), ("c", "s", "n", "x"), ("n", "r", "T", "t")],
    )
    other = plan(
        [("a", "A", "b"), ("c", "C", "b")],
        [("a", "s", "m", "x"), ("m", "r", "T", "t"), ("c", "r", "n", "x"), ("n", "s", "T", "t")],
    )
    assert not plans_agree(one, other)


def test_what_ranks_is_not_compared_and_a_hop_narrows_the_labels() -> None:
    loose = CHAIN.model_copy(update={"target": CHAIN.target.model_copy(update={"labels": [], "relevance_text": "x"})})
    assert plans_agree(CHAIN, loose)


def test_no_plan() -> None:
    assert plans_agree(None, None)
    assert not plans_agree(CHAIN, None)
