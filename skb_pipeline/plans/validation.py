"""From whatever a planner wrote to a plan that engines may execute, with a reason for each part left out.

The rules in words: ``docs/plans.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from skb_pipeline.plans.plan import (
    NOT_EXECUTED,
    TARGET,
    Condition,
    Direction,
    Dropped,
    Hop,
    MatchMode,
    Plan,
    PlanStatus,
    ValidatedPlan,
)
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.plans.structure import (
    condition_labels,
    connected_variables,
    declared_target_labels,
    group_hops,
    negation_ends,
    target_labels,
    variable_types,
    variable_uses,
)
from skb_pipeline.text.cleaning import clean_text, storable

MAX_ANCHORS = 12
MAX_HOPS = 12
"""Far above any sensible plan; beyond it the join order alone would take an engine minutes."""
MAX_CONDITIONS = 12
MAX_VALUES = 100
"""Values in the list of one condition."""
MAX_TEXTS = 20
"""Other texts of one anchor."""

GRAPH_MODES = ("graph_filter_doc", "graph_expand", "graph_strict")
"""Retrieval modes that follow hops."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_SHOWN = 80
"""Characters of a foreign string that a reason repeats."""


def parse_plan_json(text: str) -> Any:
    """Strict JSON: what ``json.loads`` gives, but repeated keys, NaN and infinities are refused.

    Raises:
        ValueError: the text is not such JSON (or nested too deeply to be a plan).
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {_show(key)} is repeated")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def validate(plan: Plan | Mapping[str, Any] | str, schema: GraphSchema) -> ValidatedPlan:
    """Check a plan and reduce it to the part that is connected to the target.

    Args:
        plan: a plan, its JSON object, or JSON text.
        schema: names and triples of the dataset.

    Returns:
        ``valid``: the plan as it is. ``degraded``: the part that is executed, and what was dropped.
        ``fallback``: no plan; ``faults`` says why. Each anchor, hop and condition of a well-formed plan is either
        in the returned plan or in ``dropped``. A bad plan never raises.
    """
    try:
        parsed = _parse(plan)
    except ValidationError as error:
        return _fallback([_schema_fault(e) for e in error.errors(include_url=False, include_input=False)])
    except ValueError as error:
        return _fallback([Dropped(part="plan", reason=f"not a JSON plan: {error}")])
    if parsed.retrieval_mode == "skip":
        return _fallback([Dropped(part="retrieval_mode", reason="skip asks for text search alone")], parsed, schema)
    faults = find_faults(parsed, schema)
    if faults:
        return _fallback(faults, parsed, schema)
    if parsed.retrieval_mode == "doc_search":
        return ValidatedPlan(status=PlanStatus.VALID, plan=parsed)
    return _reduce(parsed, schema)


def find_faults(plan: Plan, schema: GraphSchema) -> list[Dropped]:
    """Everything that makes a plan invalid, in a fixed order; empty when nothing does.

    Parts that are merely not connected to the target are no faults. A plan that is too large gets that fault
    alone.
    """
    oversize = list(_size_faults(plan))
    return oversize or [
        *_anchor_faults(plan, schema),
        *_target_faults(plan, schema),
        *_hop_name_faults(plan, schema),
        *_type_faults(plan),
        *_triple_faults(plan, schema),
        *_negation_faults(plan),
        *_mode_faults(plan, schema),
        *_condition_faults(plan, schema),
    ]


def _parse(plan: Plan | Mapping[str, Any] | str) -> Plan:
    if isinstance(plan, Plan):
        return plan
    content = parse_plan_json(plan) if isinstance(plan, str) else plan
    try:
        return Plan.model_validate(clean_texts(content))
    except RecursionError:
        raise ValueError("nested too deeply") from None


_VARIABLES = frozenset({"var", "from", "from_var", "to_var"})
"""Keys of names of variables."""


def clean_texts(content: Any) -> Any:
    """A plan's object with its texts cleaned as those of the SKB are, so that names and values can meet; blanks at
    their ends stay, which linking and comparing leave out anyway. Names of variables are the plan's own: cleaned, two
    of them could become one."""
    if isinstance(content, str):
        if storable(content) != content:
            return content  # half a surrogate pair is a fault of its own
        cleaned = clean_text(content)
        return content if cleaned == content.strip() else cleaned
    if isinstance(content, Mapping):
        return {key: value if key in _VARIABLES else clean_texts(value) for key, value in content.items()}
    return [clean_texts(item) for item in content] if isinstance(content, list) else content


def _schema_fault(error: Any) -> Dropped:
    path = ""
    for step in error["loc"]:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += ("." if path else "") + (step if re.fullmatch(r"\w{1,40}", step, re.ASCII) else _show(step))
    return Dropped(part=path or "plan", reason=str(error["msg"]))


def _size_faults(plan: Plan) -> Iterable[Dropped]:
    lists = [(f"where[{i}].value", c.value, MAX_VALUES) for i, c in enumerate(plan.where) if isinstance(c.value, list)]
    lists += [(f"anchors[{i}].any_of", list(anchor.any_of), MAX_TEXTS) for i, anchor in enumerate(plan.anchors)]
    for part, size, most in (
        ("anchors", len(plan.anchors), MAX_ANCHORS),
        ("hops", len(plan.hops), MAX_HOPS),
        ("where", len(plan.where), MAX_CONDITIONS),
        *((part, len(values), most) for part, values, most in lists),
    ):
        if size > most:
            yield Dropped(part=part, reason=f"{size} are too many; at most {most} are allowed")


def _anchor_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    seen: set[str] = set()
    for i, anchor in enumerate(plan.anchors):
        if anchor.var == TARGET:
            yield Dropped(part=f"anchors[{i}].var", reason=f"the target {TARGET!r} cannot be an anchor")
        elif anchor.var in seen:
            yield Dropped(part=f"anchors[{i}].var", reason=f"variable {_show(anchor.var)} names two anchors")
        seen.add(anchor.var)
        if anchor.label not in schema.node_types:
            yield _unknown(f"anchors[{i}].label", "type", anchor.label, schema.node_types)


def _target_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    for i, label in enumerate(plan.target.labels):
        if label not in schema.candidate_types:
            kind = "type" if label not in schema.node_types else "candidate type"
            yield _unknown(f"target.labels[{i}]", kind, label, schema.candidate_types)


def _hop_name_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    for i, hop in enumerate(plan.hops):
        yield from _undeclared_fault(f"hops[{i}].from", hop.from_var, plan)
        if hop.rel not in schema.relations:
            yield _unknown(f"hops[{i}].rel", "relation", hop.rel, schema.relations)
        if hop.to_var == TARGET:
            labels = declared_target_labels(plan, schema)
            if hop.to_label and hop.to_label not in labels:
                reason = f"{_show(hop.to_label)} is not a label of the target; allowed: {_listed(labels)}"
                yield Dropped(part=f"hops[{i}].to_label", reason=reason)
        elif hop.to_label not in schema.node_types:
            yield _unknown(f"hops[{i}].to_label", "type", hop.to_label, schema.node_types)


def _undeclared_fault(part: str, var: str, plan: Plan) -> Iterable[Dropped]:
    declared = {TARGET, *(a.var for a in plan.anchors), *(h.to_var for h in plan.hops)}
    if var not in declared:
        known = ", ".join(map(_show, sorted(declared)))
        yield Dropped(part=part, reason=f"variable {_show(var)} is not declared; declared: {known}")


def _type_faults(plan: Plan) -> Iterable[Dropped]:
    """One variable, one type; of T one in each match."""
    types: dict[tuple[str, int], str] = {}
    for anchor in plan.anchors:
        if anchor.var != TARGET:
            types.setdefault((anchor.var, 0), anchor.label)
    groups = group_hops(plan)
    match_of = {i: place for place, group in enumerate(groups.optional, start=1) for i in group.hops}
    required = {plan.hops[i].to_label for i in groups.required if plan.hops[i].to_var == TARGET} - {""}
    for i, hop in enumerate(plan.hops):
        if hop.to_var == TARGET and not hop.to_label:
            continue
        match = match_of.get(i, 0) if hop.to_var == TARGET else 0
        # What the required part says of T is true in every match.
        wanted = sorted(required)[0] if match and len(required) == 1 else hop.to_label
        first = types.setdefault((hop.to_var, match), wanted)
        if first != hop.to_label:
            reason = f"variable {_show(hop.to_var)} has type {_show(first)} already, not {_show(hop.to_label)}"
            yield Dropped(part=f"hops[{i}].to_label", reason=reason)


def _triple_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    types, groups = variable_types(plan, schema), group_hops(plan)
    of_target = {i: _target_types_by_label(plan, groups.required, schema) for i in range(len(plan.hops))}
    for group in groups.optional:
        labels = _target_types_by_label(plan, (*groups.required, *group.hops), schema)
        of_target |= dict.fromkeys(group.hops, labels)
    sound = True
    for i, hop in enumerate(plan.hops):
        known = types | {TARGET: of_target[i]}
        ends = known.get(hop.from_var, ()), known.get(hop.to_var, ())
        if hop.rel not in schema.relations or not _all_known(ends, schema):
            sound = False
        elif not _allowed(hop, ends, schema):
            sound = False
            yield Dropped(part=f"hops[{i}]", reason=_triple_reason(hop, ends, schema))
    if not sound:
        return
    # Each hop may fit some label of the target and yet no label fit them all.
    declared = _target_types_by_label(plan, groups.required, schema)
    if declared and not target_labels(plan, schema):
        yield Dropped(part="target.labels", reason=f"none of {_listed(declared)} fits every hop at the target")
        return
    for group in groups.optional:
        if not condition_labels(plan, schema, group):
            fits = _listed(target_labels(plan, schema))
            reason = f"none of the target's labels {fits} fits every hop of this optional condition at the target"
            yield Dropped(part=f"hops[{group.hops[0]}]", reason=reason)


def _target_types_by_label(plan: Plan, hops: Iterable[int], schema: GraphSchema) -> tuple[str, ...]:
    """The target's labels, narrowed by the ``to_label`` of some hops into it but not by relations."""
    into = [plan.hops[i] for i in hops if plan.hops[i].to_var == TARGET and plan.hops[i].to_label]
    return tuple(label for label in declared_target_labels(plan, schema) if all(label == h.to_label for h in into))


def _all_known(ends: Iterable[Sequence[str]], schema: GraphSchema) -> bool:
    return all(types and all(t in schema.node_types for t in types) for types in ends)


def _allowed(hop: Hop, ends: tuple[Sequence[str], Sequence[str]], schema: GraphSchema) -> bool:
    if hop.from_var == hop.to_var:
        return any(schema.allows(t, hop.rel, t, hop.direction) for t in ends[0])
    return any(schema.allows(a, hop.rel, b, hop.direction) for a in ends[0] for b in ends[1])


def _triple_reason(hop: Hop, ends: tuple[Sequence[str], Sequence[str]], schema: GraphSchema) -> str:
    joins = ", ".join(f"({_listed(triple)})" for triple in schema.triples_of(hop.rel))
    between = [r for r in schema.relations if _allowed(hop.model_copy(update={"rel": r}), ends, schema)]
    one, other = (" or ".join(map(_show, types)) for types in ends)
    if hop.direction is Direction.ANY:
        fault, others = f"does not join {one} and {other}", "join these types"
    else:
        head, tail = (one, other) if hop.direction is Direction.OUT else (other, one)
        fault, others = f"has no edges from {head} to {tail} (direction {hop.direction})", "have such"
    return (
        f"relation {_show(hop.rel)} {fault}; it joins: {joins}; relations that {others}: {_listed(between) or 'none'}"
    )


def _negation_faults(plan: Plan) -> Iterable[Dropped]:
    anchors = {anchor.var for anchor in plan.anchors}
    connected, uses = connected_variables(plan), variable_uses(plan)
    for i, hop in enumerate(plan.hops):
        ends = {hop.from_var, hop.to_var}
        if not hop.negated or not ends & connected:
            continue
        if negation_ends(hop, anchors, connected, uses) is None:
            reason = (
                "one end of a negated hop must be connected to the target by positive hops, and the other end "
                "must be an anchor or a variable used nowhere else"
            )
            yield Dropped(part=f"hops[{i}]", reason=reason)
    if uses[TARGET] and connected == {TARGET} and not _positive_at_target(plan):
        yield Dropped(part="target", reason="the target is in negated hops only")


def _positive_at_target(plan: Plan) -> bool:
    return any(not hop.negated and TARGET in (hop.from_var, hop.to_var) for hop in plan.hops)


def _mode_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    """A retrieval mode that does not fit the plan's shape."""
    mode = plan.retrieval_mode
    if mode == "doc_search":
        yield from _doc_search_faults(plan, schema)
    elif mode in GRAPH_MODES and not plan.hops:
        yield Dropped(part="retrieval_mode", reason=f"{mode} needs a hop to the target; only doc_search has none")
    elif mode == "graph_expand":
        yield from _expand_faults(plan, schema)


def _expand_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    labels, connected = target_labels(plan, schema), connected_variables(plan)
    seeds = [anchor.label for anchor in plan.anchors if anchor.var in connected]
    # Without labels, some hop has a fault of its own, and which types the target has is not known.
    if labels and not set(seeds) & {*labels}:
        reason = (
            f"graph_expand starts from an anchor of the target's type ({' or '.join(map(repr, labels))}) that positive "
            f"hops connect to the target; the anchors so connected have the types: {_listed(seeds) or 'none'}"
        )
        yield Dropped(part="retrieval_mode", reason=reason)


def _doc_search_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    if plan.hops or len(plan.anchors) != 1 or plan.anchors[0].match_mode is not MatchMode.DOC:
        modes = [anchor.match_mode.value for anchor in plan.anchors]
        reason = (
            f"doc_search takes one anchor with match_mode doc and no hops; "
            f"got anchors with modes {modes} and {len(plan.hops)} hops"
        )
        yield Dropped(part="retrieval_mode", reason=reason)
        return
    if plan.anchors[0].any_of:
        yield Dropped(part="anchors[0].any_of", reason="doc_search compares documents with one text")
    labels = declared_target_labels(plan, schema)
    label = plan.anchors[0].label
    if label in schema.node_types and label not in labels:
        yield _unknown("anchors[0].label", "label of the target", label, labels)


def _condition_faults(plan: Plan, schema: GraphSchema) -> Iterable[Dropped]:
    types = variable_types(plan, schema)
    for i, condition in enumerate(plan.where):
        yield from _undeclared_fault(f"where[{i}].var", condition.var, plan)
        if not fits_comparison(condition):
            takes = {"in": "a list that is not empty", "contains": "a text that is not empty"}
            reason = f"{condition.op} takes {takes.get(condition.op, 'a text or a number')}"
            yield Dropped(part=f"where[{i}].value", reason=reason)
        elif plan.retrieval_mode == "doc_search" and condition.var != TARGET:
            yield Dropped(part=f"where[{i}].var", reason=f"doc_search takes conditions on {TARGET!r} alone")
        elif _all_known([types.get(condition.var, ())], schema):
            yield from field_faults(f"where[{i}]", condition, types[condition.var], schema)


def field_faults(part: str, condition: Condition, types: Sequence[str], schema: GraphSchema) -> Iterable[Dropped]:
    """A field that no type of a variable has, or a comparison that does not suit it.

    Args:
        part: what the condition is called in the faults.
        condition: its variable does not matter.
        types: of the variable.
        schema: of the dataset.
    """
    kinds = {t: kind for t in types if (kind := schema.kind_of(t, condition.field)) is not None}
    if not kinds:
        allowed = ", ".join(f"{name!r} ({kind})" for name, kind in schema.fields_of(types).items())
        reason = f"{_show(condition.field)} is not a known field of {' or '.join(map(_show, types))}; allowed: "
        yield Dropped(part=f"{part}.field", reason=reason + (allowed or "none, it has no fields that can be compared"))
        return
    kind = kinds[next(iter(kinds))]
    if len({*kinds.values()}) > 1:
        told = ", ".join(f"{k} of {_show(t)}" for t, k in kinds.items())
        yield Dropped(part=f"{part}.field", reason=f"{_show(condition.field)} is not one thing in all types: {told}")
    elif condition.op not in kind.operators:
        reason = f"{condition.op} does not suit {_show(condition.field)}, a {kind}; allowed: {_listed(kind.operators)}"
        yield Dropped(part=f"{part}.op", reason=reason)
    elif not all(_fits_kind(v, kind) for v in _values(condition)):
        takes = {
            FieldKind.NUMBER: "numbers",
            FieldKind.DATE: "dates such as '2020-01-31'",
            FieldKind.TEXT: "texts",
        }
        yield Dropped(part=f"{part}.value", reason=f"{_show(condition.field)} is compared with {takes[kind]}")


def _values(condition: Condition) -> list[str | int | float]:
    return condition.value if isinstance(condition.value, list) else [condition.value]


def _fits_kind(value: str | int | float, kind: FieldKind) -> bool:
    if kind is FieldKind.NUMBER:
        return not isinstance(value, str)
    return isinstance(value, str) and (kind is FieldKind.TEXT or bool(_DATE.fullmatch(value)))


def fits_comparison(condition: Condition) -> bool:
    """Whether the value is of the form that the operator takes."""
    value = condition.value
    if condition.op == "in":
        return isinstance(value, list) and bool(value)
    if condition.op == "contains":
        return isinstance(value, str) and bool(value)
    return not isinstance(value, list)


def _reduce(plan: Plan, schema: GraphSchema) -> ValidatedPlan:
    """Drop what is not connected to the target and a text that must not rank. The plan has no faults."""
    anchors = {anchor.var for anchor in plan.anchors}
    connected, uses = connected_variables(plan), variable_uses(plan)
    dropped: list[Dropped] = []
    hops, negated_anchors = [], set()
    for i, hop in enumerate(plan.hops):
        ends = negation_ends(hop, anchors, connected, uses) if hop.negated else None
        if ends is not None:
            negated_anchors.add(ends[1])
        if ends is None and (hop.negated or hop.from_var not in connected):
            reason = f"{_show(hop.from_var)} is not connected to the target by positive hops"
            dropped.append(Dropped(part=f"hops[{i}]", reason=reason))
        else:
            hops.append(hop)
    kept = []
    for i, anchor in enumerate(plan.anchors):
        if anchor.var in connected or anchor.var in negated_anchors:
            kept.append(anchor)
        else:
            reason = f"{_show(anchor.var)} is not connected to the target by positive hops"
            dropped.append(Dropped(part=f"anchors[{i}]", reason=reason))
    known = {TARGET, *(var for hop in hops for var in (hop.from_var, hop.to_var))}
    where = []
    for i, condition in enumerate(plan.where):
        if condition.var in known:
            where.append(condition)
        else:
            reason = f"{_show(condition.var)} is not connected to the target by positive hops"
            dropped.append(Dropped(part=f"where[{i}]", reason=reason))
    if not anchors & connected:
        reason = "no anchor is connected to the target by positive hops (only doc_search goes without hops)"
        return _fallback([*dropped, Dropped(part="plan", reason=reason)], plan, schema)
    target = plan.target
    if plan.retrieval_mode == "graph_strict" and target.relevance_text.strip():
        dropped.append(Dropped(part="target.relevance_text", reason="graph_strict only filters; no text ranks"))
        target = target.model_copy(update={"relevance_text": ""})
    if not dropped:
        return ValidatedPlan(status=PlanStatus.VALID, plan=plan)
    reduced = plan.model_copy(update={"anchors": kept, "hops": hops, "where": where, "target": target})
    return ValidatedPlan(status=PlanStatus.DEGRADED, plan=reduced, dropped=dropped)


def _fallback(faults: list[Dropped], plan: Plan | None = None, schema: GraphSchema | None = None) -> ValidatedPlan:
    """No plan; parts without a fault of their own are listed too, so that none is lost without a word. Types of answers
    that the plan asks for and the schema has still say what a text search looks for."""
    rest, types = [], []
    if plan is not None:
        sizes = {"anchors": len(plan.anchors), "hops": len(plan.hops), "where": len(plan.where)}
        parts = [f"{name}[{i}]" for name, size in sizes.items() for i in range(size)]
        # A fault of a whole list, such as too many hops, names all of them.
        named = {re.split(r"(?<=\])", fault.part)[0] for fault in faults}
        rest = [Dropped(part=p, reason=NOT_EXECUTED) for p in parts if not {p, p.partition("[")[0]} & named]
    if plan is not None and schema is not None:
        types = [name for name in schema.candidate_types if name in plan.target.labels]
    return ValidatedPlan(status=PlanStatus.FALLBACK, plan=None, dropped=[*faults, *rest], search_types=types)


def _unknown(part: str, what: str, name: str, allowed: Iterable[str]) -> Dropped:
    return Dropped(part=part, reason=f"{_show(name)} is not a known {what}; allowed: {_listed(allowed)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _show(name: str) -> str:
    """A foreign string as printable text of bounded length."""
    return repr(name) if len(name) <= _SHOWN else repr(name[:_SHOWN]) + "…"


def check_executable(plan: Plan, schema: GraphSchema) -> None:
    """What every engine asks first.

    Raises:
        ValueError: the plan is not valid as it stands, or it is a ``doc_search``, which is no matter of the graph.
    """
    checked = validate(plan, schema)
    if checked.status is not PlanStatus.VALID:
        reasons = "; ".join(f"{d.part}: {d.reason}" for d in checked.faults)
        raise ValueError(f"the plan is not executable as it stands ({checked.status}): {reasons}")
    if not plan.hops:
        raise ValueError("a doc_search plan has no hops; it is answered by document search")
