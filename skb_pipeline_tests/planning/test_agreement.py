from __future__ import annotations

from typing import Any

import pytest

from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.schema import GraphSchema, Triple


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


SCHEMA = GraphSchema(
    ("b", "x", "t"),
    (Triple("b", "r", "x"), Triple("x", "s", "t"), Triple("t", "c", "t"), Triple("t", "y", "t")),
    ("t",),
    (Triple("t", "y", "t"),),
)


def directed(*hops: tuple[str, str, str, str, str], **changes: Any) -> Plan:
    """Hops (from, relation, to, label, direction) from the anchor a of type t."""
    rows = [{"from": h[0], "rel": h[1], "to_var": h[2], "to_label": h[3], "direction": h[4]} for h in hops]
    anchors = [{"var": "a", "text": "A", "label": "t"}]
    return Plan.model_validate({"anchors": anchors, "hops": rows, "target": {"labels": ["t"]}, **changes})


@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["without schema", "with schema"])
def test_direction(schema) -> None:
    out, back, loose = (directed(("a", "c", "T", "t", direction)) for direction in ("out", "in", "any"))
    assert not plans_agree(out, back, schema)
    assert not plans_agree(out, loose, schema)
    assert not plans_agree(loose, out, schema)
    assert plans_agree(out, directed(("T", "c", "a", "t", "in")), schema)
    assert not plans_agree(out, directed(("T", "c", "a", "t", "out")), schema)
    chain = directed(("a", "c", "m", "t", "out"), ("m", "c", "T", "t", "in"))
    assert plans_agree(chain, directed(("T", "c", "k", "t", "out"), ("a", "c", "k", "t", "out")), schema)
    assert not plans_agree(chain, directed(("a", "c", "m", "t", "in"), ("m", "c", "T", "t", "out")), schema)
    loop = [directed(("a", "c", "T", "t", "any"), ("T", "c", "T", "t", direction)) for direction in ("any", "in")]
    assert plans_agree(*loop, schema)


def test_a_direction_without_effect_is_equal_to_none_where_the_schema_is_known() -> None:
    symmetric = [directed(("a", "y", "T", "t", direction)) for direction in ("out", "any")]
    implied = [directed(("a", "s", "m", "x", direction), ("m", "s", "T", "t", "any")) for direction in ("in", "any")]
    for one, other in (symmetric, implied):
        assert plans_agree(one, other, SCHEMA)
        assert not plans_agree(one, other)


def test_optional_hops_and_conditions() -> None:
    hop = {"from": "a", "rel": "c", "to_var": "T", "to_label": "t"}
    assert not plans_agree(directed(hops=[hop]), directed(hops=[{**hop, "optional": True}]))

    def where(*conditions: tuple[str, Any], var: str = "T") -> Plan:
        rows = [{"var": var, "field": "f", "op": op, "value": value} for op, value in conditions]
        return directed(hops=[hop], where=rows)

    assert plans_agree(where(("<", 20), ("in", ["x", "y"])), where(("in", ["y", "x"]), ("<", 20.0)))
    for other in (where(), where(("<", 21)), where((">", 20)), where(("<", "20")), where(("<", 20), var="a")):
        assert not plans_agree(where(("<", 20)), other)


def test_no_plan() -> None:
    assert plans_agree(None, None)
    assert not plans_agree(CHAIN, None)
