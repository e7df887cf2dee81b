"""Plans as a careless or hostile planner may write them: valid ones, changed at random, as objects or as text."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema, Triple, TypedField
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, Graph
from skb_pipeline_tests.conformance.plans import PlanCase

NAMES = {
    "p": "Order",
    "q": "X]->(n) DETACH DELETE n //",
    "r": "a`b",
    "x": "'; DROP TABLE nodes; --",
    "y": "\\u0060]-() DETACH DELETE n //",
    "z": 'off-label "use"',
}
"""The types and relations of ``RANDOM_SCHEMA`` under names that are syntax to somebody."""
FIELDS = {"size": "size` = 1 SET n.x", "day": "\\u0060', '$.a') --", "word": 'a/~b"$%s{0}', "name": "nodeId"}
"""And its fields."""
SCHEMA = GraphSchema(
    tuple(NAMES[kind] for kind in RANDOM_SCHEMA.node_types),
    tuple(Triple(*(NAMES[name] for name in triple)) for triple in RANDOM_SCHEMA.triples),
    tuple(NAMES[kind] for kind in RANDOM_SCHEMA.candidate_types),
    tuple(Triple(*(NAMES[name] for name in triple)) for triple in RANDOM_SCHEMA.symmetric),
    tuple(TypedField(NAMES[f.node_type], FIELDS[f.name], f.kind) for f in RANDOM_SCHEMA.fields),
)

ATTACKS = [
    *NAMES.values(),
    "CONTAINS",
    "order",
    "Order ",
    "`) MATCH (m) DETACH DELETE m //",
    "a``b",
    "\\u0060",
    "\u0060",
    "') OR 1=1; DELETE FROM edges; --",
    "nodes; DROP TABLE adjacency",
    "$ids_0",
    "candidate",
    "T",
    "t",
    "a0",
    "",
    " ",
    "\x00",
    "line\nbreak\r\u2028",
    "\ud800",
    "\u202etxet\u202c",
    "Ⅻ́🧨",
    "%s {0} {x} ${y}",
    "x" * 5000,
    "Order,a`b",
    "NaN",
]
JUNK: list[Any] = [
    None, True, 0, -1, 10**400, 1.5, float("nan"), float("inf"), [], {}, [[]], [None], {"": {}}, {"var": 1}, b"bytes",
    {1: 2}, {None: None}, {"a", "b"}, object, ("a",), "T", *ATTACKS,
]  # fmt: skip


def with_hostile_names(graph: Graph) -> Graph:
    """A graph of ``RANDOM_SCHEMA`` as one of ``SCHEMA``."""
    return Graph(
        {node: NAMES[kind] for node, kind in graph.nodes.items()},
        [(head, NAMES[relation], tail) for head, relation, tail in graph.edges],
        {node: {FIELDS[name]: value for name, value in fields.items()} for node, fields in graph.fields.items()},
    )


@dataclass(frozen=True)
class HostileCase:
    """What a planner wrote (an object of any kind, or text), and candidates for the variables it may use."""

    written: Any
    bindings: Bindings


def hostile_cases(base: list[PlanCase], n: int, seed: int) -> Iterator[HostileCase]:
    """``n`` cases; the same seed gives the same. About half are still a plan of the right form."""
    rng = random.Random(seed)
    for _ in range(n):
        case = rng.choice(base)
        written = case.plan.model_dump(mode="json", by_alias=True)
        bindings = dict(case.bindings)
        for _ in range(rng.choice([1, 1, 2, 3])):
            if not isinstance(written, dict):
                break
            changes = HARMLESS if rng.random() < 0.6 else HARMFUL
            written = rng.choice(changes)(rng, written, bindings)
        yield HostileCase(_as_text(rng, written) if rng.random() < 0.4 else written, bindings)


Change = Callable[[random.Random, dict[str, Any], dict[str, Any]], Any]
"""(random numbers, plan to change, its bindings) -> the changed plan."""


def _texts(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Texts are data whatever they hold."""
    for anchor in _dicts(plan.get("anchors")):
        if rng.random() < 0.7:
            anchor["text"] = rng.choice(ATTACKS)
    if isinstance(plan.get("target"), dict):
        plan["target"]["relevance_text"] = rng.choice(ATTACKS)
    return plan


def _rename(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """A variable may be called anything, if it is called so everywhere."""
    found = sorted({v for v in _variables(plan) if isinstance(v, str) and v != "T"})
    if not found:
        return plan
    old, new = rng.choice(found), rng.choice(ATTACKS)
    for part, key in _variable_places(plan):
        if part[key] == old:
            part[key] = new
    if old in bindings:
        bindings[new] = bindings.pop(old)
    return plan


def _loose_part(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """A condition that has nothing to do with the target."""
    triple = rng.choice(SCHEMA.triples)
    if isinstance(plan.get("anchors"), list) and isinstance(plan.get("hops"), list):
        plan["anchors"].append({"var": "loose", "text": rng.choice(ATTACKS), "label": triple.head})
        plan["hops"].append({"from": "loose", "rel": triple.relation, "to_var": "end", "to_label": triple.tail})
    return plan


def _shuffle(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    if isinstance(plan.get("hops"), list):
        rng.shuffle(plan["hops"])
    return plan


def _mode(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    plan["retrieval_mode"] = rng.choice(["doc_search", "graph_filter_doc", "graph_expand", "graph_strict", "skip"])
    plan["risk_level"] = rng.choice(["no_trade", "weak", "normal", "aggressive"])
    return plan


def _flip(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Negate a hop, or write it from its other end: sometimes still a plan, sometimes not."""
    hops = _dicts(plan.get("hops"))
    if hops and rng.random() < 0.5:
        hop = rng.choice(hops)
        hop["negated"] = not hop.get("negated")
    elif hops:
        hop = rng.choice(hops)
        hop["from"], hop["to_var"] = hop.get("to_var"), hop.get("from")
    return plan


def _direct(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Give hops a direction, which may contradict their types."""
    for hop in _dicts(plan.get("hops")):
        if rng.random() < 0.5:
            hop["direction"] = rng.choice(["any", "out", "in"])
    return plan


def _soften(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Make hops optional, which leaves a plan a plan but for what it then means."""
    for hop in _dicts(plan.get("hops")):
        if rng.random() < 0.5:
            hop["optional"] = rng.random() < 0.8
    return plan


def _where(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Conditions, most of which suit some field, on some variable."""
    field = rng.choice(SCHEMA.fields)
    values = {"number": [20, 1.5, -0.0, 10**30], "date": ["2020-01-01", "1999-12-31"], "text": [*ATTACKS[:8], "re"]}
    op = rng.choice(field.kind.operators)
    value = rng.choice(values[field.kind])
    found = plan.get("where")
    conditions = found if isinstance(found, list) else []
    var = rng.choice([*_variables(plan), "T", "T"])
    conditions.append({"var": var, "field": field.name, "op": op, "value": [value] if op == "in" else value})
    return {**plan, "where": conditions}


def _spellings(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Other texts of anchors, which are data too."""
    for anchor in _dicts(plan.get("anchors")):
        anchor["any_of"] = [text for text in rng.choices(ATTACKS, k=rng.randint(0, 3)) if text.strip()]
    return plan


def _wrong_condition(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """A field or a value that is none."""
    op, value = rng.choice(
        [("<=", 20), ("=", "red"), ("in", ["red", 1.5]), ("contains", "re"), ("in", []), ("<", []), ("=", "2020-1-1")]
    )
    var = rng.choice([*_variables(plan), "T"])
    field = rng.choice([*ATTACKS, *FIELDS.values()])
    plan["where"] = [{"var": var, "field": field, "op": op, "value": rng.choice([value, value, *JUNK])}]
    return plan


def _junk(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Something of another kind in some place."""
    places = list(_places(plan))
    container, key = rng.choice(places)
    container[key] = copy.deepcopy(rng.choice(JUNK))
    return plan


def _foreign_name(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    places = [
        (hop, key) for hop in _dicts(plan.get("hops")) for key in ("rel", "to_label", "from", "to_var", "direction")
    ]
    places += [(anchor, key) for anchor in _dicts(plan.get("anchors")) for key in ("label", "var", "match_mode")]
    places += [(part, key) for part in _dicts(plan.get("where")) for key in ("var", "field", "op", "value")]
    places += [(plan, "risk_level"), (plan, "retrieval_mode")]
    container, key = rng.choice(places)
    container[key] = rng.choice(ATTACKS)
    return plan


def _lose_key(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    dicts = [plan, *_dicts(plan.get("anchors")), *_dicts(plan.get("hops")), *_dicts(plan.get("where"))]
    chosen = rng.choice(dicts)
    if chosen:
        del chosen[rng.choice(list(chosen))]
    return plan


def _foreign_key(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    chosen = rng.choice(
        [plan, *_dicts(plan.get("anchors")), *_dicts(plan.get("hops")), *_dicts(plan.get("where"))]
    )  # fmt: skip
    chosen[rng.choice([*ATTACKS, "from_var", "score", "__class__"])] = copy.deepcopy(rng.choice(JUNK))
    return plan


def _huge(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    """Far too many parts, or a few too many."""
    key = rng.choice(["anchors", "hops", "where"])
    if isinstance(plan.get(key), list):
        plan[key] = plan[key] * rng.choice([2, 2, 13, 13, 1000])
    return plan


def _nested(rng: random.Random, plan: dict[str, Any], bindings: dict[str, Any]) -> Any:
    inner: Any = plan if rng.random() < 0.5 else rng.choice(ATTACKS)
    for _ in range(rng.choice([1, 2, 50, 3000])):
        inner = [inner] if rng.random() < 0.5 else {"anchors": inner}
    if rng.random() < 0.3:
        return inner
    return {**plan, rng.choice(["anchors", "hops", "target"]): inner}


HARMLESS: list[Change] = [
    _texts, _rename, _loose_part, _loose_part, _shuffle, _mode, _flip, _direct, _soften, _where, _spellings,
]  # fmt: skip
HARMFUL: list[Change] = [
    _junk,
    _junk,
    _foreign_name,
    _foreign_name,
    _lose_key,
    _foreign_key,
    _huge,
    _nested,
    _wrong_condition,
]


def _as_text(rng: random.Random, written: Any) -> Any:
    """Text as a model would give it, sometimes broken; objects that JSON lacks become text of their own."""
    try:
        text = json.dumps(written, default=repr, ensure_ascii=rng.random() < 0.5)
    except (RecursionError, TypeError, ValueError):
        return repr(type(written))
    luck = rng.random()
    if luck < 0.1:
        return text[: rng.randrange(len(text) + 1)]
    if luck < 0.2:
        key = rng.choice(["anchors", "hops", "target", "risk_level"])
        return text[:-1] + f', "{key}": []' + "}"
    if luck < 0.25:
        return "```json\n" + text + "\n```"
    if luck < 0.3:
        return "[" * 100_000 + text
    if luck < 0.35:
        return text.replace('"x"', rng.choice(["NaN", "-Infinity", "1e999", "'x'", '"\\u0060"', '"\\ud800"']))
    return text


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _variable_places(plan: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    places = [(anchor, "var") for anchor in _dicts(plan.get("anchors"))]
    places += [(hop, key) for hop in _dicts(plan.get("hops")) for key in ("from", "to_var")]
    places += [(condition, "var") for condition in _dicts(plan.get("where"))]
    return [(part, key) for part, key in places if key in part]


def _variables(plan: dict[str, Any]) -> list[Any]:
    return [part[key] for part, key in _variable_places(plan)]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in nested dicts and lists, but not those deep inside."""
    stack = [(value, 0)]
    while stack:
        container, depth = stack.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container))[:20]:
            yield container, key
            if isinstance(container[key], dict | list) and depth < 5:
                stack.append((container[key], depth + 1))
