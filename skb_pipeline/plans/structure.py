"""What a plan says about its variables: types, connection to the target, the two ends of a negated hop.

Shared by validation and by every engine, so that none reads a plan in its own way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from skb_pipeline.plans.plan import TARGET, Direction, Hop, Plan
from skb_pipeline.plans.schema import GraphSchema, Triple


@dataclass(frozen=True)
class Negation:
    """A negated hop as engines read it.

    Attributes:
        hop: position in ``plan.hops``.
        subject: the variable of the match that must have no such edge.
        other: the other end: an anchor (any of its candidates counts) or a variable used nowhere else (any
            node of its type counts).
    """

    hop: int
    subject: str
    other: str


@dataclass(frozen=True)
class Course:
    """The direction of a hop, where some edges between the types of its ends run the other way.

    Attributes:
        head, tail: the variables whose nodes must be the head and the tail of the edge.
        undirected: a type within which the direction means nothing, since the relation is symmetric there; only a
            target of several types can have it beside others. None: there is no such type.
    """

    head: str
    tail: str
    undirected: str | None


def course_of(hop: Hop, types: Mapping[str, Sequence[str]], schema: GraphSchema) -> Course | None:
    """What a hop's direction has to filter; None where every edge of its relation between its ends will do.

    Args:
        hop: of a valid plan.
        types: node types of every variable (:func:`variable_types`).
    """
    if hop.direction is Direction.ANY or hop.from_var == hop.to_var:  # a self-loop runs either way
        return None
    ends = hop.from_var, hop.to_var
    head, tail = ends if hop.direction is Direction.OUT else ends[::-1]
    pairs = [(one, other) for one in types[head] for other in types[tail]]
    undirected = [one for one, other in pairs if one == other and Triple(one, hop.rel, one) in schema.symmetric]
    backward = any(
        schema.allows(one, hop.rel, other, Direction.IN)
        for one, other in pairs
        if one != other or one not in undirected
    )
    # One end is not the target and has one type, so there is at most one pair within a type.
    return Course(head, tail, undirected[0] if undirected else None) if backward else None


def declared_target_labels(plan: Plan, schema: GraphSchema) -> tuple[str, ...]:
    """Labels of the target as the plan lists them, without repetition; all candidate types if it lists none."""
    return tuple(dict.fromkeys(plan.target.labels)) or schema.candidate_types


def target_labels(plan: Plan, schema: GraphSchema) -> tuple[str, ...]:
    """Labels a target node can have: the declared ones, narrowed by every hop at the target.

    A hop into T with a ``to_label`` keeps that label only; a positive hop keeps the labels that its relation
    can join to its other end in its direction. Empty when no label fits every hop.
    """
    labels = declared_target_labels(plan, schema)
    fixed = _fixed_types(plan)
    for hop in plan.hops:
        if hop.to_var == TARGET and hop.to_label:
            labels = tuple(label for label in labels if label == hop.to_label)
        if hop.negated or TARGET not in (hop.from_var, hop.to_var):
            continue
        ends = hop.from_var, hop.to_var
        labels = tuple(x for x in labels if _joins(hop, schema, *(fixed.get(var, x) for var in ends)))
    return labels


def _joins(hop: Hop, schema: GraphSchema, one: str, other: str) -> bool:
    return schema.allows(one, hop.rel, other, hop.direction)


def _fixed_types(plan: Plan) -> dict[str, str]:
    """Type of every variable other than T; the first declaration counts."""
    types = {anchor.var: anchor.label for anchor in reversed(plan.anchors)}
    for hop in plan.hops:
        if hop.to_var != TARGET:
            types.setdefault(hop.to_var, hop.to_label)
    types.pop(TARGET, None)
    return types


def variable_types(plan: Plan, schema: GraphSchema) -> dict[str, tuple[str, ...]]:
    """Node types of every variable; one for each but T, which may have several."""
    types: dict[str, tuple[str, ...]] = {var: (label,) for var, label in _fixed_types(plan).items()}
    types[TARGET] = target_labels(plan, schema)
    return types


def variable_uses(plan: Plan) -> Counter[str]:
    """How many hop ends each variable is."""
    return Counter(var for hop in plan.hops for var in (hop.from_var, hop.to_var))


def connected_variables(plan: Plan) -> set[str]:
    """Variables reached from T through positive hops, T among them."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for hop in plan.hops:
        if not hop.negated:
            neighbours[hop.from_var].add(hop.to_var)
            neighbours[hop.to_var].add(hop.from_var)
    seen, frontier = {TARGET}, [TARGET]
    while frontier:
        fresh = neighbours[frontier.pop()] - seen
        seen |= fresh
        frontier.extend(fresh)
    return seen


def negation_ends(
    hop: Hop, anchors: Collection[str], connected: Collection[str], uses: Mapping[str, int]
) -> tuple[str, str] | None:
    """(subject, other end) of a negated hop, or None where no reading fits (see :class:`Negation`).

    With two anchors that are both connected, the subject is the variable the hop starts from.
    """
    for subject, other in ((hop.from_var, hop.to_var), (hop.to_var, hop.from_var)):
        free = other != TARGET and uses[other] == 1
        if subject in connected and subject != other and (other in anchors or free):
            return subject, other
    return None


def negations(plan: Plan) -> list[Negation]:
    """The negated hops of a valid plan, in plan order."""
    anchors = {anchor.var for anchor in plan.anchors}
    connected, uses = connected_variables(plan), variable_uses(plan)
    found = []
    for i, hop in enumerate(plan.hops):
        ends = negation_ends(hop, anchors, connected, uses) if hop.negated else None
        if ends is not None:
            found.append(Negation(i, *ends))
    return found


def scored_anchors(plan: Plan) -> list[str]:
    """Anchors whose cosines are summed, in plan order: those in a positive hop of a valid plan."""
    connected = connected_variables(plan)
    return [anchor.var for anchor in plan.anchors if anchor.var in connected]
