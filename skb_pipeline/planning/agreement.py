"""Whether two plans ask the same: equal up to names of variables, order, direction of hops and spelling of anchors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from skb_pipeline.linking.folding import fold
from skb_pipeline.plans.plan import TARGET, Plan

_Kind = tuple[object, ...]
_Edge = tuple[str, bool, frozenset[str]]


def plans_agree(one: Plan | None, other: Plan | None) -> bool:
    """Whether there is a renaming of variables that makes two plans the same query.

    Compared are anchors (folded text, label, match mode), hops (relation, negation, the two ends in either direction),
    types of free variables and the labels of the target after hops into it have narrowed them. What only ranks or
    weighs is not compared: relevance text, risk level, retrieval mode. A negated hop between two anchors that are both
    matched is the one case where the direction would matter; it is not compared either. Two plans that are both None
    (text search alone) agree.
    """
    if one is None or other is None:
        return one is other
    kinds, other_kinds = _kinds(one), _kinds(other)
    if Counter(kinds.values()) != Counter(other_kinds.values()):
        return False
    edges = Counter(_edges(one))
    if Counter((rel, negated) for rel, negated, _ in edges.elements()) != Counter(
        (hop.rel, hop.negated) for hop in other.hops
    ):
        return False
    return _match(list(kinds), {}, kinds, other_kinds, edges, Counter(_edges(other)))


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
    for (rel, negated, ends), count in edges.items():
        if ends <= renamed.keys():
            found[rel, negated, frozenset(renamed[end] for end in ends)] += count
    return found


def _chosen(edges: Counter[_Edge], variables: Iterable[str]) -> Counter[_Edge]:
    names = frozenset(variables)
    return Counter({edge: count for edge, count in edges.items() if edge[2] <= names})


def _kinds(plan: Plan) -> dict[str, _Kind]:
    """What each variable is."""
    kinds: dict[str, _Kind] = {TARGET: ("target", _target_labels(plan))}
    for anchor in plan.anchors:
        kinds[anchor.var] = ("anchor", fold(anchor.text) or anchor.text, anchor.label, anchor.match_mode)
    for hop in plan.hops:
        kinds.setdefault(hop.to_var, ("free", hop.to_label))
    for hop in plan.hops:
        kinds.setdefault(hop.from_var, ("undeclared",))
    return kinds


def _target_labels(plan: Plan) -> frozenset[str]:
    labels = frozenset(plan.target.labels)
    for hop in plan.hops:
        if hop.to_var == TARGET and hop.to_label:
            labels = labels & {hop.to_label} if labels else frozenset({hop.to_label})
    return labels


def _edges(plan: Plan) -> list[_Edge]:
    return [(hop.rel, hop.negated, frozenset((hop.from_var, hop.to_var))) for hop in plan.hops]
