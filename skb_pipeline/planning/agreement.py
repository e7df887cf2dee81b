"""Whether two plans ask the same: equal up to names of variables, order, the end a hop is written from and spelling of
anchors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skb_pipeline.linking.folding import fold
from skb_pipeline.plans.plan import TARGET, Direction, Hop, Plan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import course_of, variable_types

_Kind = tuple[object, ...]


@dataclass(frozen=True)
class _Edge:
    """A hop. ``ends`` are head and tail where it is ``directed``, else sorted."""

    rel: str
    negated: bool
    optional: bool
    directed: bool
    ends: tuple[str, ...]

    @property
    def label(self) -> tuple[str, bool, bool, bool]:
        return self.rel, self.negated, self.optional, self.directed

    def renamed(self, names: Mapping[str, str]) -> _Edge:
        ends = tuple(names[end] for end in self.ends)
        return _Edge(*self.label, ends if self.directed else tuple(sorted(ends)))


def plans_agree(one: Plan | None, other: Plan | None, schema: GraphSchema | None = None) -> bool:
    """Whether there is a renaming of variables that makes two plans the same query.

    Compared are anchors (folded texts, label, match mode), hops (relation, negation, direction, whether they are
    optional, the two ends whichever it is written from), conditions on fields, types of free variables and the labels
    of the target after hops into it have narrowed them. What only ranks or weighs is not compared: relevance text, risk
    level, retrieval mode. From which end a negated hop between two anchors that are both matched is written would
    matter; it is not compared either. Two plans that are both None (text search alone) agree.

    Args:
        schema: with it a direction that filters nothing (the types imply it, or the relation is symmetric) is equal to
            none.
    """
    if one is None or other is None:
        return one is other
    kinds, other_kinds = _kinds(one), _kinds(other)
    if Counter(kinds.values()) != Counter(other_kinds.values()):
        return False
    edges, other_edges = (Counter(_edges(plan, schema)) for plan in (one, other))
    if Counter(edge.label for edge in edges.elements()) != Counter(edge.label for edge in other_edges.elements()):
        return False
    return _match(list(kinds), {}, kinds, other_kinds, edges, other_edges)


def _match(
    left: Sequence[str],
    renamed: Mapping[str, str],
    kinds: Mapping[str, _Kind],
    other_kinds: Mapping[str, _Kind],
    edges: Counter[_Edge],
    other_edges: Counter[_Edge],
) -> bool:
    """Try all renamings of the variables in ``left`` that keep kinds and the hops among those already renamed."""
    if not left:
        return True
    var, rest = left[0], left[1:]
    for candidate, kind in other_kinds.items():
        if kind != kinds[var] or candidate in renamed.values():
            continue
        trial = {**renamed, var: candidate}
        if _within(edges, trial) == _chosen(other_edges, trial.values()) and _match(
            rest, trial, kinds, other_kinds, edges, other_edges
        ):
            return True
    return False


def _within(edges: Counter[_Edge], renamed: Mapping[str, str]) -> Counter[_Edge]:
    """Hops whose ends are all renamed, under the new names."""
    found: Counter[_Edge] = Counter()
    for edge, count in edges.items():
        if renamed.keys() >= {*edge.ends}:
            found[edge.renamed(renamed)] += count
    return found


def _chosen(edges: Counter[_Edge], variables: Iterable[str]) -> Counter[_Edge]:
    names = frozenset(variables)
    return Counter({edge: count for edge, count in edges.items() if names.issuperset(edge.ends)})


def _kinds(plan: Plan) -> dict[str, _Kind]:
    """What each variable is, and the conditions on it."""
    kinds: dict[str, _Kind] = {TARGET: ("target", _target_labels(plan))}
    for anchor in plan.anchors:
        texts = frozenset(fold(text) or text for text in anchor.texts)
        kinds[anchor.var] = ("anchor", texts, anchor.label, anchor.match_mode)
    for hop in plan.hops:
        kinds.setdefault(hop.to_var, ("free", hop.to_label))
    for hop in plan.hops:
        kinds.setdefault(hop.from_var, ("undeclared",))
    conditions: dict[str, set[tuple[object, ...]]] = {}
    for condition in plan.where:
        kinds.setdefault(condition.var, ("undeclared",))
        value = frozenset(condition.value) if isinstance(condition.value, list) else condition.value
        conditions.setdefault(condition.var, set()).add((condition.field, condition.op, value))
    return {var: (*kind, frozenset(conditions.get(var, ()))) for var, kind in kinds.items()}


def _target_labels(plan: Plan) -> frozenset[str]:
    labels = frozenset(plan.target.labels)
    for hop in plan.hops:
        if hop.to_var == TARGET and hop.to_label:
            labels = labels & {hop.to_label} if labels else frozenset({hop.to_label})
    return labels


def _edges(plan: Plan, schema: GraphSchema | None) -> list[_Edge]:
    types = variable_types(plan, schema) if schema is not None else {}

    def edge(hop: Hop) -> _Edge:
        ends = hop.from_var, hop.to_var
        directed = hop.direction is not Direction.ANY and hop.from_var != hop.to_var
        if directed and schema is not None and types.keys() >= {*ends}:
            directed = course_of(hop, types, schema) is not None
        ordered = ends if directed else tuple(sorted(ends))
        reverse = directed and hop.direction is Direction.IN
        return _Edge(hop.rel, hop.negated, hop.optional, directed, ordered[::-1] if reverse else ordered)

    return [edge(hop) for hop in plan.hops]
