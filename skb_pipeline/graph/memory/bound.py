"""A part of a valid plan with its names, node ids and candidates looked up in one graph: what the in-memory routes work
on.

Two things are put as candidates that are none in the plan. A free variable with conditions on its fields has the nodes
that meet them. And a part without an anchor starts from T, which then has all nodes of its types with cosine 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.csr import CsrGraph, Relation
from skb_pipeline.graph.memory.ways import HEAD, TAIL, Way
from skb_pipeline.plans.plan import TARGET, Hop, Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import Part, course_of


@dataclass(frozen=True, eq=False)
class Candidates:
    """Nodes a variable is bound to: int32 positions, ascending, and float64 cosines."""

    nodes: np.ndarray
    cosines: np.ndarray


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable of the match.

    Attributes:
        name: as in the plan.
        types: its node types.
        lows, highs: int32, the ranges of positions that have these types.
        candidates: None where any node of its types will do.
    """

    name: str
    types: tuple[str, ...]
    lows: np.ndarray
    highs: np.ndarray
    candidates: Candidates | None

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """``lows`` and ``highs`` as pairs."""
        return list(zip(self.lows.tolist(), self.highs.tolist(), strict=True))

    @cached_property
    def size(self) -> int:
        """Number of nodes of its types."""
        return sum(high - low for low, high in self.ranges)


@dataclass(frozen=True)
class BoundHop:
    """A positive hop between two variables: ``relation`` as read from the rows of ``one`` (None: the graph has no edge
    of it)."""

    one: str
    other: str
    name: str
    relation: Relation | None


@dataclass(frozen=True)
class Ban:
    """A negated hop: ``subject`` has no edge of relation ``name`` to any node of ``other``. ``relation`` is as read
    from the rows of ``subject``.

    Where ``other`` has candidates, these are all of them, whether or not a match may use them.
    """

    subject: str
    name: str
    relation: Relation
    other: Variable


@dataclass(frozen=True)
class BoundPlan:
    """Variables of positive hops and T, the hops, the negations, and the variables whose cosines are added, in this
    order; those of anchors that the part does not score are 0."""

    variables: Mapping[str, Variable]
    hops: tuple[BoundHop, ...]
    bans: tuple[Ban, ...]
    scored: tuple[str, ...]

    @property
    def impossible(self) -> bool:
        """Whether a relation without edges or an anchor without candidates rules out every match."""
        dead = any(hop.relation is None for hop in self.hops)
        return dead or any(v.candidates is not None and not len(v.candidates.nodes) for v in self.variables.values())


def bind_candidates(
    plan: Plan, graph: CsrGraph, bindings: Bindings, fields: FieldValues | None
) -> dict[str, Candidates]:
    """The candidates of a plan's anchors that meet the conditions on them.

    Args:
        plan: valid as it stands.
        bindings: checked (``results.check_bindings``).
        fields: None will do for a plan without conditions.

    Raises:
        ValueError: a bound node does not exist or does not have its anchor's label.
    """
    found = {}
    for anchor in plan.anchors:
        linked = _candidates(graph, anchor.var, anchor.label, bindings)
        conditions = [condition for condition in plan.where if condition.var == anchor.var]
        if conditions and fields is not None:
            low, _ = graph.type_range(anchor.label)
            kept = fields.meeting(anchor.label, conditions)[linked.nodes - low]
            linked = Candidates(linked.nodes[kept], linked.cosines[kept])
        found[anchor.var] = linked
    return found


def bind_part(
    part: Part,
    schema: GraphSchema,
    graph: CsrGraph,
    candidates: Mapping[str, Candidates],
    fields: FieldValues | None,
) -> BoundPlan:
    """Look everything up.

    Args:
        part: of a valid plan.
        candidates: of its anchors (:func:`bind_candidates`).
        fields: None will do for a part without conditions.
    """
    types = part.types

    def variable(name: str) -> Variable:
        ranges = [graph.type_range(kind) for kind in types[name]]
        lows, highs = (np.array([r[end] for r in ranges], dtype=np.int32) for end in (0, 1))
        linked = candidates.get(name)
        if linked is not None and name in part.anchors and name not in part.scored:
            linked = Candidates(linked.nodes, np.zeros(len(linked.nodes)))
        elif linked is None and name == TARGET and not part.anchors:
            nodes = np.concatenate([np.arange(low, high, dtype=np.int32) for low, high in sorted(ranges)])
            linked = Candidates(nodes, np.ones(len(nodes)))
        elif linked is None and part.conditions_on(name) and fields is not None:
            met = fields.meeting(types[name][0], part.conditions_on(name))
            nodes = (np.flatnonzero(met) + ranges[0][0]).astype(np.int32)
            linked = Candidates(nodes, np.zeros(len(nodes)))
        return Variable(name, types[name], lows, highs, linked)

    def relation(hop: Hop, near: str) -> Relation | None:
        """The hop's relation as read from the rows of ``near``."""
        found, course = graph.relation(hop.rel), course_of(hop, types, schema)
        if found is None or course is None:
            return found
        free = (0, 0) if course.undirected is None else graph.type_range(course.undirected)
        return replace(found, way=Way(HEAD if near == course.head else TAIL, *free))

    positive = [part.hops[i] for i in part.positive]
    hops = tuple(BoundHop(hop.from_var, hop.to_var, hop.rel, relation(hop, hop.from_var)) for hop in positive)
    bans = []
    for negation in part.negations:
        hop = part.hops[negation.hop]
        forbidden = relation(hop, negation.subject)
        if forbidden is not None:  # a relation without edges forbids nothing
            bans.append(Ban(negation.subject, hop.rel, forbidden, variable(negation.other)))
    names = dict.fromkeys([*(name for hop in hops for name in (hop.one, hop.other)), TARGET])
    return BoundPlan({name: variable(name) for name in names}, hops, tuple(bans), part.anchors or (TARGET,))


def _candidates(graph: CsrGraph, var: str, label: str, bindings: Bindings) -> Candidates:
    ids, cosines = bindings[var]
    positions = graph.positions(ids)
    low, high = graph.type_range(label)
    wrong = ids[(positions < low) | (positions >= high)]
    if len(wrong):
        shown = np.sort(wrong)[:5].tolist()
        raise ValueError(f"anchor {var!r}: nodes {shown} are not of its label {label!r}")
    order = np.argsort(positions)
    return Candidates(positions[order].astype(np.int32), cosines[order])
