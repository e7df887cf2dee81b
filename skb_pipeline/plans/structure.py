"""What a plan says about its variables: types, connection to the target, the two ends of a negated hop; and which of
its hops are one match: the required part, and each optional condition.

Shared by validation and by every engine, so that none reads a plan in its own way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from skb_pipeline.plans.plan import TARGET, Condition, Direction, Hop, Plan
from skb_pipeline.plans.schema import GraphSchema, Triple


@dataclass(frozen=True)
class Negation:
    """A negated hop as engines read it.

    Attributes:
        hop: position in ``Part.hops``.
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
    """Labels a target node can have: the declared ones, narrowed by every required hop at the target.

    A hop into T with a ``to_label`` keeps that label only; a positive hop keeps the labels that its relation
    can join to its other end in its direction. Empty when no label fits every hop.
    """
    return _narrowed(
        declared_target_labels(plan, schema), [plan.hops[i] for i in group_hops(plan).required], plan, schema
    )


def condition_labels(plan: Plan, schema: GraphSchema, group: Group) -> tuple[str, ...]:
    """Labels of target nodes that can meet an optional condition: those of the plan, narrowed by the condition's own
    hops at the target."""
    return _narrowed(target_labels(plan, schema), [plan.hops[i] for i in group.hops], plan, schema)


def _narrowed(labels: tuple[str, ...], hops: Iterable[Hop], plan: Plan, schema: GraphSchema) -> tuple[str, ...]:
    fixed = _fixed_types(plan)
    for hop in hops:
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
    """Variables reached from T through positive hops, optional ones too, T among them."""
    return _reached(hop for hop in plan.hops if not hop.negated)


def _reached(hops: Iterable[Hop]) -> set[str]:
    """Variables reached from T through these hops, T among them."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for hop in hops:
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


@dataclass(frozen=True)
class Group:
    """The hops of one optional condition.

    Attributes:
        hops: positions in ``plan.hops``, ascending.
        at_target: the condition hangs off T alone; else it is met together with the required part.
    """

    hops: tuple[int, ...]
    at_target: bool


@dataclass(frozen=True)
class Groups:
    """Hops that are connected to T: the required ones, and those of each optional condition, in the order of their
    first hops."""

    required: tuple[int, ...]
    optional: tuple[Group, ...]


def group_hops(plan: Plan) -> Groups:
    """Tell required hops from optional conditions; the rule in words is in ``docs/plans.md``. Any plan will do: hops
    apart from T, and negated hops that no reading fits, are in no group."""
    hops, anchors = plan.hops, {anchor.var for anchor in plan.anchors}
    if not any(hop.optional for hop in hops):
        connected, uses = connected_variables(plan), variable_uses(plan)
        required = [i for i, hop in enumerate(hops) if _part_of(hop, anchors, connected, uses) is not None]
        return Groups(tuple(required), ())
    firm = _reached(hop for hop in hops if not hop.negated and not hop.optional)
    connected, uses = connected_variables(plan), variable_uses(plan)
    required = []
    members: dict[str, list[int]] = {}  # by a variable of the branch, or the hop itself where it has none of its own
    names: dict[str, str] = {}

    def branch_of(var: str) -> str:
        while names.setdefault(var, var) != var:
            var = names[var]
        return var

    loose = [i for i, hop in enumerate(hops) if not hop.negated and (hop.optional or hop.from_var not in firm)]
    for i in loose:
        own = [var for var in (hops[i].from_var, hops[i].to_var) if var not in firm]
        if len(own) == 2:
            names[branch_of(own[0])] = branch_of(own[1])
    touched: dict[str, set[str]] = defaultdict(set)
    for i, hop in enumerate(hops):
        subject = _part_of(hop, anchors, connected, uses)
        if subject is None:
            continue
        ends = {subject} if hop.negated else {hop.from_var, hop.to_var}
        own = sorted(ends - firm)
        if not own and not hop.optional:
            required.append(i)
            continue
        key = branch_of(own[0]) if own else f"{i}"
        place = f"var {key}" if own else f"hop {key}"
        members.setdefault(place, []).append(i)
        touched[place] |= ends & firm
    groups = [Group(tuple(group), touched[place] == {TARGET}) for place, group in members.items()]
    return Groups(tuple(required), tuple(sorted(groups, key=lambda group: group.hops)))


def _part_of(hop: Hop, anchors: Collection[str], connected: Collection[str], uses: Mapping[str, int]) -> str | None:
    """A variable of the match that a hop has: of a negated one its subject. None for a hop in no match."""
    if not hop.negated:
        return hop.from_var if hop.from_var in connected else None
    ends = negation_ends(hop, anchors, connected, uses)
    return None if ends is None else ends[0]


@dataclass(frozen=True)
class Part:
    """Hops that one match has to satisfy, as engines read them. Whether a hop is optional means nothing here.

    Attributes:
        hops: positive and negated ones, in plan order; may be empty, as T is part of every match.
        types: node types of every variable of the plan; those of T are the ones this match can have.
        anchors: those in a positive hop, in plan order.
        scored: those of ``anchors`` whose cosines the match scores, in the order of addition. A match of a part
            without any scores 1.
        negations: of its negated hops.
        where: conditions on the fields of its variables other than T.
    """

    hops: tuple[Hop, ...]
    types: Mapping[str, tuple[str, ...]]
    anchors: tuple[str, ...]
    scored: tuple[str, ...]
    negations: tuple[Negation, ...]
    where: tuple[Condition, ...]

    @property
    def positive(self) -> list[int]:
        """Positions of positive hops."""
        return [i for i, hop in enumerate(self.hops) if not hop.negated]

    def conditions_on(self, var: str) -> list[Condition]:
        """Its conditions on one variable."""
        return [condition for condition in self.where if condition.var == var]


@dataclass(frozen=True)
class Parts:
    """A valid plan with hops, taken apart.

    Attributes:
        labels: node types of answers.
        required: the required part. Without a positive hop it selects nothing: its negations, at T, only filter.
        optional: one part per optional condition. One that hangs off another variable than T has the required part's
            hops too, whose anchors it does not score.
        where: conditions on the fields of T, which filter the candidates.
    """

    labels: tuple[str, ...]
    required: Part
    optional: tuple[Part, ...]
    where: tuple[Condition, ...]

    @property
    def selects(self) -> bool:
        """Whether the required part has a positive hop; else candidates are what meets an optional condition."""
        return bool(self.required.positive)


def take_apart(plan: Plan, schema: GraphSchema) -> Parts:
    """The parts of a valid plan that has hops."""
    groups, labels = group_hops(plan), target_labels(plan, schema)
    required = _part(plan, groups.required, labels)
    optional = []
    for group in groups.optional:
        chosen = group.hops if group.at_target else sorted({*groups.required, *group.hops})
        own = _part(plan, chosen, condition_labels(plan, schema, group))
        known = {TARGET, *(var for i in required.positive for var in _ends(required.hops[i]))}
        scored = tuple(var for var in own.anchors if var not in known)
        optional.append(replace(own, scored=scored))
    return Parts(labels, required, tuple(optional), tuple(c for c in plan.where if c.var == TARGET))


def _ends(hop: Hop) -> tuple[str, str]:
    return hop.from_var, hop.to_var


def _part(plan: Plan, chosen: Sequence[int], labels: tuple[str, ...]) -> Part:
    hops = tuple(plan.hops[i] for i in chosen)
    types: dict[str, tuple[str, ...]] = {var: (label,) for var, label in _fixed_types(plan).items()}
    types[TARGET] = labels
    anchors, uses = {anchor.var for anchor in plan.anchors}, variable_uses(plan)
    # Which end of a negated hop is the subject is decided by the plan as a whole.
    connected = connected_variables(plan)
    negated = []
    for i, hop in enumerate(hops):
        ends = negation_ends(hop, anchors, connected, uses) if hop.negated else None
        if ends is not None:
            negated.append(Negation(i, *ends))
    here = _reached(hop for hop in hops if not hop.negated)
    matched = tuple(a.var for a in plan.anchors if a.var in here)
    variables = {var for hop in hops for var in _ends(hop)} - {TARGET}
    where = tuple(c for c in plan.where if c.var in variables)
    return Part(hops, types, matched, matched, tuple(negated), where)
