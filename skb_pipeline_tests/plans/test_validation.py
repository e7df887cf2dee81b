import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.graph.sql import compile_sql
from skb_pipeline.plans.plan import NOT_EXECUTED, Direction, Plan, PlanStatus
from skb_pipeline.plans.schema import FieldKind, GraphSchema, Triple, TypedField
from skb_pipeline.plans.structure import take_apart, variable_types
from skb_pipeline.plans.validation import MAX_CONDITIONS, MAX_HOPS, MAX_VALUES, parse_plan_json, validate
from skb_pipeline_tests.examples import examples

SHOP = GraphSchema(
    ("product", "brand", "color", "store"),
    (
        Triple("product", "has", "brand"),
        Triple("product", "has", "color"),
        Triple("product", "also_buy", "product"),
        Triple("store", "sells", "brand"),
        Triple("brand", "owns", "brand"),
    ),
    ("product", "brand"),
    fields=(
        TypedField("product", "price_min", FieldKind.NUMBER),
        TypedField("product", "sold", FieldKind.DATE),
        TypedField("product", "origin", FieldKind.TEXT),
        TypedField("brand", "origin", FieldKind.TEXT),
        TypedField("brand", "sold", FieldKind.NUMBER),
        TypedField("color", "hue", FieldKind.TEXT),
    ),
)


def anchor(var: str, label: str, **more: Any) -> dict[str, Any]:
    return {"var": var, "text": "x", "label": label, **more}


def hop(one: str, rel: str, other: str, label: str, negated: bool = False, **more: Any) -> dict[str, Any]:
    return {"from": one, "rel": rel, "to_var": other, "to_label": label, "negated": negated, **more}


def condition(var: str, op: str, value: Any, field: str = "price_min") -> dict[str, Any]:
    return {"var": var, "field": field, "op": op, "value": value}


def plan(anchors: list[Any], hops: list[Any], *labels: str, **more: Any) -> dict[str, Any]:
    return {"anchors": anchors, "hops": hops, "target": {"labels": list(labels)}, **more}


NEGATION_RULE = (
    "one end of a negated hop must be connected to the target by positive hops, and the other end "
    "must be an anchor or a variable used nowhere else"
)

B, E, C, P = anchor("b", "brand"), anchor("e", "brand"), anchor("c", "color"), anchor("p", "product")
B_T, E_T, P_T = hop("b", "has", "T", "product"), hop("e", "has", "T", "product"), hop("p", "also_buy", "T", "product")
P_M, M_T = hop("p", "also_buy", "m", "product"), hop("m", "also_buy", "T", "product")

VALID = {
    "one hop": plan([B], [B_T], "product"),
    "written from the target": plan([B], [hop("T", "has", "b", "brand")], "product"),
    "no target label": plan([B], [B_T]),
    "declared by a later hop": plan([B], [hop("m", "also_buy", "T", "product"), hop("b", "has", "m", "product")]),
    "unanchored leaf": plan([B], [B_T, hop("T", "has", "k", "color")]),
    "cycle": plan([P], [P_M, M_T, hop("T", "also_buy", "p", "product")]),
    "same hop twice": plan([P], [P_T] * 2),
    "loop at the target": plan([B], [B_T, hop("T", "also_buy", "T", "product")]),
    "negated with anchor": plan([B, C], [B_T, hop("c", "has", "T", "product", True)]),
    "negated without anchor": plan([B], [B_T, hop("T", "has", "k", "color", True)]),
    "negated, same anchor": plan([P], [P_T, {**P_T, "negated": True}]),
    "negated between anchors": plan([B, E], [B_T, E_T, hop("b", "owns", "e", "brand", True)]),
    "directed": plan([P], [{**P_M, "direction": "out"}, {**M_T, "direction": "in"}]),
    "directed as the types imply": plan([B], [hop("T", "has", "b", "brand", direction="out")]),
    "negated with a direction": plan([B], [B_T, hop("T", "also_buy", "k", "product", True, direction="in")]),
    "directed loop at the target": plan([B], [B_T, hop("T", "also_buy", "T", "product", direction="out")]),
    "optional hop": plan([B, C], [B_T, hop("c", "has", "T", "product", optional=True)]),
    "all optional": plan([B, C], [{**B_T, "optional": True}, hop("c", "has", "T", "product", optional=True)]),
    "optional negated hop": plan([B, C], [B_T, hop("c", "has", "T", "product", True, optional=True)]),
    "optional hops to other types": plan(
        [B, E], [{**B_T, "optional": True}, hop("e", "owns", "T", "brand", optional=True)]),
    "conditions": plan(
        [B], [B_T, hop("T", "has", "k", "color")],
        where=[condition("T", "<=", 20), condition("T", ">", 5.5), condition("k", "in", ["red", "blue"], "hue"),
               condition("b", "contains", "x", "origin"), condition("T", ">=", "2020-01-31", "sold")]),
    "a condition on several types": plan([B], [hop("b", "owns", "T", "")], "brand", "product",
                                         where=[condition("T", "!=", "x", "origin")]),
    "a condition on documents": plan(
        [anchor("q", "product", match_mode="doc")], [], "product", retrieval_mode="doc_search",
        where=[condition("T", "=", 3)]),
    "several texts": plan([anchor("b", "brand", any_of=["y", "z"])], [B_T]),
    "label left open": plan([B], [hop("b", "owns", "T", "")], "product", "brand"),
    "document search": plan([anchor("q", "product", match_mode="doc")], [], "product", retrieval_mode="doc_search"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_valid_plans_come_back_unchanged(name: str) -> None:
    checked = validate(VALID[name], SHOP)
    assert (checked.status, checked.dropped) == (PlanStatus.VALID, [])
    assert checked.plan == Plan.model_validate(VALID[name])
    assert validate(json.dumps(VALID[name]), SHOP) == checked
    assert checked.plan is not None
    assert validate(checked.plan, SHOP) == checked


FAULTY: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "unknown relation": (
        plan([P], [hop("p", "BOUGHT_WITH", "T", "product")]),
        [("hops[0].rel", "'BOUGHT_WITH' is not a known relation; allowed: 'has', 'also_buy', 'sells', 'owns'")],
    ),
    "two types in one": (
        plan([anchor("b", "Product,Brand")], [B_T]),
        [("anchors[0].label", "'Product,Brand' is not a known type; allowed: 'product', 'brand', 'color', 'store'")],
    ),
    "wrong ends": (
        plan([B], [hop("b", "also_buy", "k", "color"), B_T]),
        [("hops[0]", "relation 'also_buy' does not join 'brand' and 'color'; "
           "it joins: ('product', 'also_buy', 'product'); relations that join these types: none")],
    ),
    "wrong end at the target": (
        plan([C], [hop("c", "has", "T", "")], "brand"),
        [("hops[0]", "relation 'has' does not join 'color' and 'brand'; "
           "it joins: ('product', 'has', 'brand'), ('product', 'has', 'color'); "
           "relations that join these types: none")],
    ),
    "no label for all hops": (
        plan([C, anchor("s", "store")], [hop("T", "has", "c", "color"), hop("s", "sells", "T", "")]),
        [("target.labels", "none of 'product', 'brand' fits every hop at the target")],
    ),
    "direction against the types": (
        plan([B], [hop("b", "has", "T", "product", direction="out")]),
        [("hops[0]", "relation 'has' has no edges from 'brand' to 'product' (direction out); it joins: "
           "('product', 'has', 'brand'), ('product', 'has', 'color'); relations that have such: none")],
    ),
    "direction against the types of a negated hop": (
        plan([B, C], [B_T, hop("T", "has", "c", "color", True, direction="in")]),
        [("hops[1]", "relation 'has' has no edges from 'color' to 'product' (direction in); it joins: "
           "('product', 'has', 'brand'), ('product', 'has', 'color'); relations that have such: none")],
    ),
    "no label for an optional condition": (
        plan([B, anchor("s", "store")], [B_T, hop("s", "sells", "T", "", optional=True)]),
        [("hops[1]", "relation 'sells' does not join 'store' and 'product'; "
           "it joins: ('store', 'sells', 'brand'); relations that join these types: none")],
    ),
    "no label for all hops of an optional condition": (
        plan([C, anchor("s", "store")], [
            hop("T", "has", "c", "color", optional=True), hop("s", "sells", "m", "brand"),
            hop("T", "owns", "m", "brand", optional=True), hop("m", "has", "T", "", optional=True)]),
        [("hops[1]", "none of the target's labels 'product', 'brand' fits every hop of this optional condition at the "
           "target")],
    ),
    "only optional negation": (
        plan([B], [hop("b", "has", "T", "product", True, optional=True)]),
        [("target", "the target is in negated hops only")],
    ),
    "faulty conditions": (
        plan([B], [B_T], where=[condition("k", "=", 1), condition("T", "in", []), condition("T", "contains", 3),
                                condition("b", "<", ["a"])]),
        [
            ("where[0].var", "variable 'k' is not declared; declared: 'T', 'b'"),
            ("where[1].value", "in takes a list that is not empty"),
            ("where[2].value", "contains takes a text that is not empty"),
            ("where[3].value", "< takes a text or a number"),
        ],
    ),
    "conditions on fields that are not there or otherwise": (
        plan([B, C], [B_T, hop("c", "has", "T", "product"), hop("c", "has", "s", "product")],
             where=[condition("T", "=", 1, "prize"), condition("T", "contains", "1"), condition("T", "<", "1"),
                    condition("b", "<", "x", "origin"), condition("T", "=", "May", "sold"),
                    condition("b", "=", 3, "origin"), condition("T", "in", [1, "x"])]),
        [
            ("where[0].field", "'prize' is not a known field of 'product'; allowed: "
               "'price_min' (number), 'sold' (date), 'origin' (text)"),
            ("where[1].op", "contains does not suit 'price_min', a number; "
               "allowed: '=', '!=', '<', '<=', '>', '>=', 'in'"),
            ("where[2].value", "'price_min' is compared with numbers"),
            ("where[3].op", "< does not suit 'origin', a text; allowed: '=', '!=', 'in', 'contains'"),
            ("where[4].value", "'sold' is compared with dates such as '2020-01-31'"),
            ("where[5].value", "'origin' is compared with texts"),
            ("where[6].value", "'price_min' is compared with numbers"),
        ],
    ),
    "a condition on two kinds": (
        plan([P], [hop("p", "also_buy", "T", "", optional=True)], "product", "brand",
             where=[condition("T", "=", 1, "sold")]),
        [("where[0].field", "'sold' is not one thing in all types: date of 'product', number of 'brand'")],
    ),
    "a condition on a type without fields": (
        plan([anchor("s", "store")], [hop("s", "sells", "T", "brand")], where=[condition("s", "=", 1)]),
        [("where[0].field", "'price_min' is not a known field of 'store'; allowed: "
           "none, it has no fields that can be compared")],
    ),
    "a condition on the text of a document search": (
        plan([anchor("q", "product", match_mode="doc")], [], "product", retrieval_mode="doc_search",
             where=[condition("q", "=", 1)]),
        [("where[0].var", "doc_search takes conditions on 'T' alone")],
    ),
    "document search for several texts": (
        plan([anchor("q", "product", match_mode="doc", any_of=["y"])], [], "product", retrieval_mode="doc_search"),
        [("anchors[0].any_of", "doc_search compares documents with one text")],
    ),
    "several faults": (
        plan([B, anchor("b", "colour"), anchor("T", "brand")], [hop("x", "nope", "T", "product")], "toy", "color"),
        [
            ("anchors[1].var", "variable 'b' names two anchors"),
            ("anchors[1].label", "'colour' is not a known type; allowed: 'product', 'brand', 'color', 'store'"),
            ("anchors[2].var", "the target 'T' cannot be an anchor"),
            ("target.labels[0]", "'toy' is not a known type; allowed: 'product', 'brand'"),
            ("target.labels[1]", "'color' is not a known candidate type; allowed: 'product', 'brand'"),
            ("hops[0].from", "variable 'x' is not declared; declared: 'T', 'b'"),
            ("hops[0].rel", "'nope' is not a known relation; allowed: 'has', 'also_buy', 'sells', 'owns'"),
            ("hops[0].to_label", "'product' is not a label of the target; allowed: 'toy', 'color'"),
        ],
    ),
    "variable with two types": (
        plan([B], [B_T, hop("T", "has", "b", "color")], "product"),
        [("hops[1].to_label", "variable 'b' has type 'brand' already, not 'color'")],
    ),
    "target with two types": (
        plan([B], [B_T, hop("b", "owns", "T", "brand")]),
        [("hops[1].to_label", "variable 'T' has type 'product' already, not 'brand'")],
    ),
    "label outside the target's": (
        plan([B], [hop("b", "owns", "T", "brand")], "product"),
        [("hops[0].to_label", "'brand' is not a label of the target; allowed: 'product'")],
    ),
    "target only negated": (
        plan([B], [hop("b", "has", "T", "product", True)]),
        [("target", "the target is in negated hops only")],
    ),
    "negated to a matched variable": (
        plan([B], [B_T, hop("T", "also_buy", "m", "product"), hop("T", "also_buy", "m", "product", True)]),
        [("hops[2]", NEGATION_RULE)],
    ),
    "condition behind a negation": (
        plan([B, C], [B_T, hop("T", "also_buy", "m", "product", True), hop("c", "has", "m", "product")]),
        [("hops[1]", NEGATION_RULE)],
    ),
    "document search with a hop": (
        plan([B], [B_T], retrieval_mode="doc_search"),
        [("retrieval_mode", "doc_search takes one anchor with match_mode doc and no hops; "
           "got anchors with modes ['name'] and 1 hops")],
    ),
    "document search for another type": (
        plan([anchor("q", "color", match_mode="doc")], [], "brand", retrieval_mode="doc_search"),
        [("anchors[0].label", "'color' is not a known label of the target; allowed: 'brand'")],
    ),
    "skip": (plan([B], [B_T], retrieval_mode="skip"), [("retrieval_mode", "skip asks for text search alone")]),
    "no anchors": (
        plan([], [hop("T", "has", "k", "color")]),
        [("plan", "no anchor is connected to the target by positive hops (only doc_search goes without hops)")],
    ),
    "document anchor without the mode": (
        plan([anchor("q", "product", match_mode="doc")], []),
        [
            ("anchors[0]", "'q' is not connected to the target by positive hops"),
            ("plan", "no anchor is connected to the target by positive hops (only doc_search goes without hops)"),
        ],
    ),
    "target apart from the anchors": (
        plan([B, P], [hop("b", "has", "m", "product"), hop("T", "also_buy", "k", "product")]),
        [
            ("hops[0]", "'b' is not connected to the target by positive hops"),
            ("anchors[0]", "'b' is not connected to the target by positive hops"),
            ("anchors[1]", "'p' is not connected to the target by positive hops"),
            ("plan", "no anchor is connected to the target by positive hops (only doc_search goes without hops)"),
        ],
    ),
    "anchor behind a negation only": (
        plan([C], [hop("T", "also_buy", "m", "product"), hop("c", "has", "T", "product", True)]),
        [("plan", "no anchor is connected to the target by positive hops (only doc_search goes without hops)")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_every_fault_is_listed_with_the_allowed_values(name: str) -> None:
    raw, expected = FAULTY[name]
    checked = validate(raw, SHOP)
    assert (checked.status, checked.plan) == (PlanStatus.FALLBACK, None)
    assert [(d.part, d.reason) for d in checked.faults] == expected


@pytest.mark.parametrize("name", FAULTY)
def test_parts_without_a_fault_of_their_own_are_listed_as_not_executed(name: str) -> None:
    raw, _ = FAULTY[name]
    named = {re.match(r"[a-z_]+(\[\d+\])?", d.part)[0] for d in validate(raw, SHOP).dropped}  # type: ignore[index]
    assert named >= {f"anchors[{i}]" for i in range(len(raw["anchors"]))}
    assert named >= {f"hops[{i}]" for i in range(len(raw["hops"]))}
    assert named >= {f"where[{i}]" for i in range(len(raw.get("where", [])))}


DEGRADED = {
    "pair apart": (
        plan([B, C], [hop("c", "has", "m", "product"), B_T, hop("m", "also_buy", "k", "product")]),
        ["hops[0]", "hops[2]", "anchors[1]"],
        (["b"], [("b", "T")]),
    ),
    "anchor without hop": (plan([C, B], [B_T]), ["anchors[0]"], (["b"], [("b", "T")])),
    "negation that hangs on nothing": (
        plan([B, C], [B_T, hop("c", "has", "m", "product", True)]),
        ["hops[1]", "anchors[1]"],
        (["b"], [("b", "T")]),
    ),
    "negated anchor with a part of its own": (
        plan([B, C], [B_T, hop("c", "has", "T", "product", True), hop("c", "has", "m", "product")]),
        ["hops[2]"],
        (["b", "c"], [("b", "T"), ("c", "T")]),
    ),
}


@pytest.mark.parametrize("name", DEGRADED)
def test_parts_apart_from_the_target_are_dropped_with_a_reason(name: str) -> None:
    raw, parts, (anchors, hops) = DEGRADED[name]
    checked = validate(raw, SHOP)
    assert checked.status is PlanStatus.DEGRADED
    assert [d.part for d in checked.dropped] == parts
    assert all("not connected to the target" in d.reason for d in checked.dropped)
    assert checked.plan is not None
    assert [a.var for a in checked.plan.anchors] == anchors
    assert [(h.from_var, h.to_var) for h in checked.plan.hops] == hops
    assert validate(checked.plan, SHOP).status is PlanStatus.VALID


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "plan: not a JSON plan"),
        ("{", "plan: not a JSON plan"),
        ("[]", "plan: Input should be"),
        ("null", "plan: Input should be"),
        ('{"risk_level": "weak", "risk_level": "normal"}', "plan: not a JSON plan: key 'risk_level' is repeated"),
        ('{"target": {"labels": [], "labels": []}}', "plan: not a JSON plan: key 'labels' is repeated"),
        ('{"anchors": NaN}', "plan: not a JSON plan: NaN is not JSON"),
        ('{"anchors": [-Infinity]}', "plan: not a JSON plan: -Infinity is not JSON"),
        ('{"anchors": ' + "[" * 100_000, "plan: not a JSON plan: nested too deeply"),
        ('{"anchors": ' + "1" * 10_000 + "}", "plan: not a JSON plan"),
        ('{"risk_level": "severe"}', "risk_level: Input should be 'no_trade', 'weak', 'normal' or 'aggressive'"),
        ('{"hops": [{"from": "a"}]}', "hops[0].rel: Field required"),
        ('{"anchors": [{"var": "\\ud800", "text": "x", "label": "brand"}]}', "anchors[0].var: Input should be"),
        ('{"\\ud800 $x": 1}', "plan: "),
        ('{"hops": [{"from": "a", "rel": "r", "to_var": "T", "to_label": "", "direction": "up"}]}',
         "hops[0].direction: Input should be 'any', 'out' or 'in'"),
        ('{"where": [{"var": "T", "field": "f", "op": "~", "value": 1}]}', "where[0].op: Input should be '=', "),
        ('{"where": [{"var": "T", "field": "f", "op": "=", "value": null}]}', "where[0].value: Value error"),
        ('{"where": [{"var": "T", "field": "f", "op": "=", "value": 1e999}]}', "where[0].value: Value error"),
        ('{"where": [{"var": "T", "field": "f", "op": "in", "value": [true]}]}', "where[0].value: Value error"),
        ('{"where": [{"var": "T", "field": "f", "op": "in", "value": ["\\ud800"]}]}', "where[0].value: Value error"),
    ],
)  # fmt: skip
def test_text_that_is_no_plan_is_a_fallback_with_the_fault(text: str, fault: str) -> None:
    checked = validate(text, SHOP)
    assert checked.status is PlanStatus.FALLBACK
    assert f"{checked.faults[0].part}: {checked.faults[0].reason}".startswith(fault)
    json.loads(checked.model_dump_json())


def test_strict_json_still_reads_json() -> None:
    assert parse_plan_json('{"a": [1, {"b": null}], "c": {"b": 2}}') == {"a": [1, {"b": None}], "c": {"b": 2}}


def test_oversized_plans_are_refused_without_listing_everything() -> None:
    raw = plan([B], [B_T] + [hop("T", "has", f"k{i}", "color") for i in range(10_000)])
    checked = validate(raw, SHOP)
    assert [(f.part, f.reason) for f in checked.faults] == [
        ("hops", f"10001 are too many; at most {MAX_HOPS} are allowed")
    ]


def test_too_many_conditions_or_values_are_refused() -> None:
    raw = plan([B], [B_T], where=[condition("T", "=", 1)] * 100)
    assert [(f.part, f.reason) for f in validate(raw, SHOP).faults] == [
        ("where", f"100 are too many; at most {MAX_CONDITIONS} are allowed")
    ]
    raw = plan([B], [B_T], where=[condition("T", "in", list(range(1000)))])
    assert [(f.part, f.reason) for f in validate(raw, SHOP).faults] == [
        ("where[0].value", f"1000 are too many; at most {MAX_VALUES} are allowed")
    ]


def test_long_foreign_strings_are_cut_in_reasons() -> None:
    (fault,) = validate(plan([B], [hop("b", "x" * 100_000, "T", "product")]), SHOP).faults
    assert len(fault.reason) < 300


def test_target_labels_narrow_to_what_positive_hops_allow() -> None:
    def labels(*hops: dict[str, Any]) -> tuple[str, ...]:
        return variable_types(Plan.model_validate(plan([B, C], list(hops))), SHOP)["T"]

    assert labels(hop("b", "owns", "T", "")) == ("brand",)
    assert labels(hop("T", "has", "b", "brand")) == ("product",)
    assert labels(hop("T", "has", "b", "brand", True)) == ("product", "brand")
    assert labels(hop("T", "also_buy", "T", "")) == ("product",)
    assert labels(hop("T", "also_buy", "T", "", direction="in")) == ("product",)
    assert labels(hop("T", "has", "b", "brand", direction="out")) == ("product",)
    assert labels(hop("T", "has", "b", "brand", direction="in")) == ()
    # An edge of "owns" joins brands either way; "has" would make the target a product.
    assert labels(hop("b", "owns", "T", "", direction="out")) == ("brand",)


def test_structure_of_negated_hops_and_scored_anchors() -> None:
    checked = validate(VALID["negated with anchor"], SHOP).plan
    assert checked is not None
    required = take_apart(checked, SHOP).required
    assert [(n.hop, n.subject, n.other) for n in required.negations] == [(1, "T", "c")]
    assert required.scored == ("b",)
    between = validate(VALID["negated between anchors"], SHOP).plan
    assert between is not None
    assert [(n.subject, n.other) for n in take_apart(between, SHOP).required.negations] == [("b", "e")]


def test_optional_conditions_are_branches() -> None:
    """Required: e and m. Conditions: the branch over n with c and the hop behind it; the hop between m and T; the
    negation at m."""
    hops = [
        hop("T", "also_buy", "m", "product"),
        hop("m", "has", "e", "brand"),
        hop("T", "also_buy", "n", "product", optional=True),
        hop("n", "has", "c", "color"),
        hop("n", "also_buy", "z", "product", True),
        hop("m", "also_buy", "T", "product", optional=True),
        hop("m", "has", "k", "color", True, optional=True),
        hop("m", "also_buy", "p", "product", True),
    ]
    where = [condition("n", "<", 1), condition("T", "<", 2), condition("m", "<", 3), condition("p", "<", 4)]
    checked = validate(plan([E, C, P], hops, where=where), SHOP)
    assert (checked.status, checked.dropped) == (PlanStatus.VALID, [])
    assert checked.plan is not None
    parts = take_apart(checked.plan, SHOP)
    of = {id(h): i for i, h in enumerate(checked.plan.hops)}
    assert parts.selects
    assert [of[id(h)] for h in parts.required.hops] == [0, 1, 7]
    assert [[of[id(h)] for h in part.hops] for part in parts.optional] == [[2, 3, 4], [0, 1, 5, 7], [0, 1, 6, 7]]
    assert [part.scored for part in parts.optional] == [("c",), (), ()]
    assert [part.anchors for part in parts.optional] == [("c",), ("e",), ("e",)]
    assert [c.value for c in parts.where] == [2]
    assert [[c.value for c in part.where] for part in (parts.required, *parts.optional)] == [
        [3, 4],
        [1],
        [3, 4],
        [3, 4],
    ]


def test_optional_hops_do_not_narrow_the_target() -> None:
    checked = validate(VALID["optional hops to other types"], SHOP).plan
    assert checked is not None
    parts = take_apart(checked, SHOP)
    assert (parts.labels, parts.selects) == (("product", "brand"), False)
    assert [part.types["T"] for part in parts.optional] == [("product",), ("brand",)]


VARS = st.sampled_from(["T", "a", "b", "m", "k", "'; --"])
LABELS = st.sampled_from(["product", "product", "brand", "color", "store", "", "Order"])
RELATIONS = st.sampled_from(["has", "has", "also_buy", "sells", "owns", "X]->(n) DETACH DELETE n //"])
ANCHORS = st.fixed_dictionaries({"var": VARS, "text": st.just("x"), "label": LABELS})
HOPS = st.fixed_dictionaries(
    {"from": VARS, "rel": RELATIONS, "to_var": VARS, "to_label": LABELS, "negated": st.booleans()},
    optional={"direction": st.sampled_from(["any", "out", "in"]), "optional": st.sampled_from([False, False, True])},
)
CONDITIONS = st.builds(condition, VARS, st.sampled_from(["=", "<", "in", "contains"]), st.sampled_from([1, "x", ["x"]]))
PLANS = st.fixed_dictionaries(
    {
        "anchors": st.lists(ANCHORS, max_size=3, unique_by=lambda a: a["var"]),
        "hops": st.lists(HOPS, max_size=4),
        "target": st.fixed_dictionaries({"labels": st.lists(LABELS, max_size=2)}),
        "retrieval_mode": st.sampled_from([None, None, None, "doc_search", "skip", "graph_strict"]),
    },
    optional={"where": st.lists(CONDITIONS, max_size=2)},
)


@st.composite
def sound_plans(draw: st.DrawFn) -> dict[str, Any]:
    """Plans without unknown names whose hops fit the schema, connected or not."""
    types = {"T": "product", "a": "brand", "c": "color", "p": "product", "m": "product", "k": "brand"}
    possible = [
        hop(one, triple.relation, other, types[other], negated, direction=direction)
        for triple in SHOP.triples
        for one in types
        for other in types
        for negated in (False, True)
        for direction in ("any", "out", "in")
        if SHOP.allows(types[one], triple.relation, types[other], Direction(direction))
    ]
    anchors = draw(st.lists(st.sampled_from("acp"), unique=True, min_size=1))
    hops = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=6))
    return plan([anchor(var, types[var]) for var in anchors], hops, *draw(st.sampled_from([(), ("product",)])))


@settings(max_examples=examples(400))
@given(raw=st.one_of(PLANS, sound_plans()))
def test_each_part_is_executed_or_dropped_and_what_is_left_compiles(raw: dict[str, Any]) -> None:
    checked = validate(raw, SHOP)
    assert checked == validate(json.dumps(raw), SHOP)
    original = Plan.model_validate(raw)
    dropped = {re.split(r"(?<=\])", d.part)[0] for d in checked.dropped}
    kept_anchors = [a for i, a in enumerate(original.anchors) if f"anchors[{i}]" not in dropped]
    kept_hops = [h for i, h in enumerate(original.hops) if f"hops[{i}]" not in dropped]
    if checked.plan is None:
        assert checked.status is PlanStatus.FALLBACK
        assert (kept_anchors, kept_hops) == ([], [])
        assert {f"where[{i}]" for i in range(len(original.where))} <= dropped
        assert any(d.reason != NOT_EXECUTED for d in checked.dropped)
        return
    assert (checked.status is PlanStatus.VALID) == (not checked.dropped)
    assert (checked.plan.anchors, checked.plan.hops) == (kept_anchors, kept_hops)
    again = validate(checked.plan, SHOP)
    assert (again.status, again.plan, again.dropped) == (PlanStatus.VALID, checked.plan, [])
    if checked.plan.hops:
        compile_sql(checked.plan, SHOP)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(["anchors", "hops", "target", "risk_level", "retrieval_mode", "x"])


@settings(max_examples=examples(300))
@given(raw=st.one_of(st.text(), st.dictionaries(FIELDS, JSON_VALUES)))
def test_no_input_raises(raw: Any) -> None:
    checked = validate(raw, SHOP)
    assert checked.status is PlanStatus.FALLBACK
    assert checked.faults


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["product"], ["product"]), (["product", "Nothing"], ["product"]), ([], []), (["Nothing"], [])],
)
def test_a_plan_without_use_still_says_which_types_a_text_search_looks_for(labels, expected) -> None:
    checked = validate({"anchors": [], "hops": [], "target": {"labels": labels}}, SHOP)
    assert (checked.plan, checked.search_types) == (None, expected)


def test_texts_are_cleaned_and_names_of_variables_are_the_plans_own() -> None:
    one, other = anchor("b", "bra\u200bnd"), anchor("b\u200b", "brand")
    checked = validate(plan([one, other], [B_T, hop("b\u200b", "h\ufeffas", "T", "product")], "product"), SHOP)
    assert checked.status is PlanStatus.VALID
    assert checked.plan is not None
    assert [(a.var, a.label) for a in checked.plan.anchors] == [("b", "brand"), ("b\u200b", "brand")]
    assert [h.rel for h in checked.plan.hops] == ["has", "has"]
