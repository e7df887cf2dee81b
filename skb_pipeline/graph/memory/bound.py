"""A valid plan with its names, node ids and candidates looked up in one graph: what the in-memory routes work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skb_pipeline.graph.memory.csr import CsrGraph, Relation
from skb_pipeline.graph.memory.ways import HEAD, TAIL, Way
from skb_pipeline.plans.plan import Hop, Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import course_of, negations, scored_anchors, variable_types


@dataclass(frozen=True, eq=False)
class Candidates:
    """Nodes an anchor is bound to: int32 positions, ascending, and float64 cosines."""

    nodes: np.ndarray
    cosines: np.ndarray


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable of the match.

    Attributes:
        name: as in the plan.
        types: its node types.
        lows, highs: int32, the ranges of positions that have these types.
        candidates: of an anchor; None for a free variable and for T.
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

    Where ``other`` is an anchor, these are all of its candidates, whether or not a match may use them.
    """

    subject: str
    name: str
    relation: Relation
    other: Variable


@dataclass(frozen=True)
class BoundPlan:
    """Variables of positive hops, the hops, the negations, and the scored anchors in the order of addition."""

    variables: Mapping[str, Variable]
    hops: tuple[BoundHop, ...]
    bans: tuple[Ban, ...]
    scored: tuple[str, ...]

    @property
    def impossible(self) -> bool:
        """Whether a relation without edges or an anchor without candidates rules out every match."""
        dead = any(hop.relation is None for hop in self.hops)
        return dead or any(v.candidates is not None and not len(v.candidates.nodes) for v in self.variables.values())


def bind_plan(plan: Plan, schema: GraphSchema, graph: CsrGraph, bindings: Bindings) -> BoundPlan:
    """Look everything up.

    Args:
        plan: valid as it stands.
        bindings: checked (``results.check_bindings``).

    Raises:
        ValueError: a bound node does not exist or does not have its anchor's label.
    """
    types = variable_types(plan, schema)
    candidates = {anchor.var: _candidates(graph, anchor.var, anchor.label, bindings) for anchor in plan.anchors}

    def variable(name: str) -> Variable:
        ranges = [graph.type_range(kind) for kind in types[name]]
        lows, highs = (np.array([r[end] for r in ranges], dtype=np.int32) for end in (0, 1))
        return Variable(name, types[name], lows, highs, candidates.get(name))

    def relation(hop: Hop, near: str) -> Relation | None:
        """The hop's relation as read from the rows of ``near``."""
        found, course = graph.relation(hop.rel), course_of(hop, types, schema)
        if found is None or course is None:
            return found
        free = (0, 0) if course.undirected is None else graph.type_range(course.undirected)
        return replace(found, way=Way(HEAD if near == course.head else TAIL, *free))

    positive = [hop for hop in plan.hops if not hop.negated]
    hops = tuple(BoundHop(hop.from_var, hop.to_var, hop.rel, relation(hop, hop.from_var)) for hop in positive)
    bans = []
    for negation in negations(plan):
        hop = plan.hops[negation.hop]
        forbidden = relation(hop, negation.subject)
        if forbidden is not None:  # a relation without edges forbids nothing
            bans.append(Ban(negation.subject, hop.rel, forbidden, variable(negation.other)))
    names = dict.fromkeys(name for hop in hops for name in (hop.one, hop.other))
    return BoundPlan({name: variable(name) for name in names}, hops, tuple(bans), tuple(scored_anchors(plan)))


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
