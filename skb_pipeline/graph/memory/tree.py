"""Whether message passing is exact for a plan, and the tree it then runs on.

It is exact if three things hold.

1. The positive hops form a tree over the variables. Then branches are independent but for edges they might share.
2. No stored edge can serve two hops, or the two hops meet at a variable (see :func:`couplings`). Two hops can share an
   edge only if they have one relation and their ends can be the same two nodes.
3. Scores can be carried as one number per node. Matches are compared by a floating-point sum in the order of the
   anchors. That sum does not decrease when a term or a first part of it grows, so the best value of one anchor, or of
   anchors that are a first part of the sum, may be chosen alone; the best value of any other group may not, since its
   partial sums may round differently. Anchors whose candidates have one cosine are constants and do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from skb_pipeline.graph.memory.bound import BoundHop, BoundPlan, Variable
from skb_pipeline.plans.plan import TARGET


@dataclass(frozen=True)
class Term:
    """What one number stands for: the cosine of anchor ``last``, or if ``prefix`` the sum up to and with it."""

    last: int
    prefix: bool


@dataclass(eq=False)
class TreeNode:
    """A variable with the hops that lead away from the target.

    Attributes:
        variable: itself.
        branches: hops to its children.
        varying: positions (in the order of addition) of anchors with differing cosines in this subtree.
        term: what the number it sends to its parent stands for; None: no varying anchor below.
        pair: the two branches that could use one edge, if there are such.
        chained: the branch that could use the edge that leads to the parent.
    """

    variable: Variable
    branches: list[Branch] = field(default_factory=list)
    varying: frozenset[int] = frozenset()
    term: Term | None = None
    pair: tuple[Branch, Branch] | None = None
    chained: Branch | None = None


@dataclass(eq=False)
class Branch:
    """A hop from a variable to its child; ``anchored`` if there is an anchor at or below the child."""

    hop: BoundHop
    child: TreeNode
    anchored: bool


@dataclass(frozen=True)
class Tree:
    """Root (the target), whether hops are coupled, and the cosine of each scored anchor (None: it varies)."""

    root: TreeNode
    coupled: bool
    constants: tuple[float | None, ...]


def build_tree(plan: BoundPlan) -> Tree | None:
    """The tree for message passing; None where it would not be exact."""
    if len(plan.hops) != len(plan.variables) - 1:
        return None  # connected, so more hops than that close a cycle
    coupled = couplings(plan)
    meetings = [_meeting(plan.hops[i], plan.hops[j]) for i, j in coupled]
    hops = [i for pair in coupled for i in pair]
    if None in meetings or len(set(hops)) < len(hops) or len(set(meetings)) < len(meetings):
        return None
    constants = tuple(_constant(plan.variables[name]) for name in plan.scored)
    root = _grow(plan, TARGET, None, constants)
    exact = _set_terms(root, constants)
    if not exact:
        return None
    for (i, j), meeting in zip(coupled, meetings, strict=True):
        _mark(root, meeting, plan.hops[i], plan.hops[j])
    return Tree(root, bool(coupled), constants)


def couplings(plan: BoundPlan) -> list[tuple[int, int]]:
    """Pairs of hops that could use one stored edge."""
    return [(i, j) for i, j in combinations(range(len(plan.hops)), 2) if _may_share(plan, plan.hops[i], plan.hops[j])]


def _may_share(plan: BoundPlan, a: BoundHop, b: BoundHop) -> bool:
    """Whether the ends of the two hops can be the same two nodes."""
    if a.name != b.name:
        return False
    one, other, third, fourth = (plan.variables[name] for name in (a.one, a.other, b.one, b.other))
    straight = _may_coincide(one, third) and _may_coincide(other, fourth)
    return straight or (_may_coincide(one, fourth) and _may_coincide(other, third))


def _may_coincide(a: Variable, b: Variable) -> bool:
    if a.name == b.name:
        return True
    if a.candidates is not None and b.candidates is not None:
        return len(np.intersect1d(a.candidates.nodes, b.candidates.nodes, assume_unique=True)) > 0
    return not set(a.types).isdisjoint(b.types)


def _meeting(a: BoundHop, b: BoundHop) -> str | None:
    """The variable both hops have; None if there is none."""
    shared = {a.one, a.other} & {b.one, b.other}
    return shared.pop() if len(shared) == 1 else None


def _constant(variable: Variable) -> float | None:
    cosines = variable.candidates.cosines if variable.candidates is not None else np.empty(0)
    return float(cosines[0]) if len(cosines) and (cosines == cosines[0]).all() else None


def _grow(plan: BoundPlan, name: str, above: BoundHop | None, constants: tuple[float | None, ...]) -> TreeNode:
    node = TreeNode(plan.variables[name])
    if name in plan.scored and constants[plan.scored.index(name)] is None:
        node.varying = frozenset({plan.scored.index(name)})
    for hop in plan.hops:
        if hop is not above and name in (hop.one, hop.other):
            child = _grow(plan, hop.other if hop.one == name else hop.one, hop, constants)
            anchored = child.variable.candidates is not None or any(b.anchored for b in child.branches)
            node.branches.append(Branch(hop, child, anchored))
            node.varying |= child.varying
    return node


def _set_terms(node: TreeNode, constants: tuple[float | None, ...], is_root: bool = True) -> bool:
    """Set ``term`` in a subtree; False if some score below the root is no single number (see the module)."""
    if not all(_set_terms(branch.child, constants, is_root=False) for branch in node.branches):
        return False
    if not node.varying:
        return True
    last = max(node.varying)
    node.term = Term(last, prefix=len(node.varying) > 1)
    return is_root or len(node.varying) == 1 or all(j in node.varying or constants[j] is not None for j in range(last))


def _mark(node: TreeNode, meeting: str | None, a: BoundHop, b: BoundHop) -> None:
    """Note a coupling at the variable where its hops meet."""
    if node.variable.name == meeting:
        both = [branch for branch in node.branches if branch.hop in (a, b)]
        if len(both) == 2:
            node.pair = both[0], both[1]
        else:
            node.chained = both[0]
    for branch in node.branches:
        _mark(branch.child, meeting, a, b)
