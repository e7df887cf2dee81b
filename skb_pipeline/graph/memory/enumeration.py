"""Every match of a plan, one after the other: exact for all plans, within a row limit and a wall clock limit.

A depth-first search along the hops. It keeps no table of partial matches, so memory does not grow with their number.
Two things keep it short: nodes with many edges are looked up by the candidates wanted from them rather than read
through, and once the target and all anchors are bound, the first match of the remaining hops ends the search below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skb_pipeline.graph.memory.bound import Ban, BoundHop, BoundPlan
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.message_passing import CHUNK, NOTHING, Traversal, mean_degree
from skb_pipeline.graph.memory.tree import couplings
from skb_pipeline.graph.memory.ways import EVERY_WAY, Way
from skb_pipeline.plans.plan import TARGET

if TYPE_CHECKING:
    from skb_pipeline.graph.memory.enumeration_kernel import Rows, Steps, Variables


class TooManyRowsError(Exception):
    """The plan has more partial matches than the row limit."""


@dataclass(frozen=True)
class Step:
    """One hop of the search, from a bound variable; ``closing``: the far end is bound as well."""

    hop: int
    near: str
    far: str
    closing: bool


def enumerate_plan(plan: BoundPlan, traversal: Traversal, row_limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions (int32, distinct, in no order) of all answers, and their scores (float64).

    Args:
        plan: possible (``BoundPlan.impossible`` is false).
        row_limit: most partial matches.

    Raises:
        TooManyRowsError: the limit was passed.
        TimeUpError: the traversal's deadline has passed.
    """
    from skb_pipeline.graph.memory import enumeration_kernel as kernel

    start, order = search_order(plan, traversal)
    names = list(plan.variables)
    number = {name: i for i, name in enumerate(names)}
    rows = _rows(traversal.graph)
    steps = _steps(plan, traversal.graph, order, number)
    variables = _variables(plan, traversal.graph, names)
    begin, end = variables.candidate_starts[number[start]], variables.candidate_starts[number[start] + 1]
    state = kernel.new_state(len(order), len(names))
    state.entry[0], state.end[0] = begin, end
    scored = np.array([number[name] for name in plan.scored], dtype=np.int64)
    try:
        status = kernel.RUNNING
        while status == kernel.RUNNING:
            traversal.meter.check()
            status = kernel.search(
                rows,
                steps,
                variables,
                scored,
                number[TARGET],
                number[start],
                _decided(plan, start, order),
                state,
                traversal.best,
                traversal.touched,
                row_limit,
                CHUNK,
            )
        if status == kernel.TOO_MANY_ROWS:
            raise TooManyRowsError
        nodes = traversal.touched[: state.counters[1]].copy()
        return nodes, traversal.best[nodes]
    finally:
        traversal.best[traversal.touched[: state.counters[1]]] = NOTHING
        traversal.meter.touched_edges += int(state.counters[3])


def search_order(plan: BoundPlan, traversal: Traversal) -> tuple[str, list[Step]]:
    """Where to start and the order of hops, by estimated partial matches."""
    hanging = _hanging(plan)
    orders = [_greedy(plan, traversal, start, hanging) for start in plan.scored]
    _, start, steps = min(orders, key=lambda found: found[0])
    return start, steps


def _greedy(plan: BoundPlan, traversal: Traversal, start: str, hanging: set[int]) -> tuple[float, str, list[Step]]:
    """(estimated partial matches, start, steps) with the hop next that multiplies them least."""
    bound, left, steps = {start}, set(range(len(plan.hops))), []
    matches = total = float(_count(plan, start))
    while left:
        options = []
        for i in sorted(left):
            hop = plan.hops[i]
            for near, far in ((hop.one, hop.other), (hop.other, hop.one)):
                if near in bound:
                    closing = far in bound
                    growth = 0.0 if closing else _growth(plan, traversal, hop, near, far)
                    options.append((i in hanging, growth, i, Step(i, near, far, closing)))
        _, growth, i, step = min(options, key=lambda option: option[:3])
        left.remove(i)
        bound.add(step.far)
        steps.append(step)
        matches *= growth if not step.closing else 1.0
        total += matches
    return total, start, steps


def _count(plan: BoundPlan, name: str) -> int:
    candidates = plan.variables[name].candidates
    return 0 if candidates is None else len(candidates.nodes)


def _growth(plan: BoundPlan, traversal: Traversal, hop: BoundHop, near: str, far: str) -> float:
    """Estimated matches of a hop per match before it."""
    relation, one, other = hop.relation, plan.variables[near], plan.variables[far]
    if relation is None:
        return 0.0
    if one.candidates is None:
        degree = mean_degree(relation, one)
    else:
        degree = traversal.fanout(relation, one.candidates.nodes) / len(one.candidates.nodes)
    if other.candidates is None:
        return degree
    return degree * len(other.candidates.nodes) / max(other.size, 1)


def _hanging(plan: BoundPlan) -> set[int]:
    """Hops that lead to neither the target nor an anchor: they can only fail, so they come last."""
    left = set(range(len(plan.hops)))
    fixed = {TARGET, *plan.scored}
    while True:
        ends_of = {i: {plan.hops[i].one, plan.hops[i].other} for i in left}
        uses = Counter(name for ends in ends_of.values() for name in ends)
        loose = {i for i, ends in ends_of.items() if any(uses[name] == 1 for name in ends - fixed)}
        if not loose:
            return set(range(len(plan.hops))) - left
        left -= loose


def _decided(plan: BoundPlan, start: str, order: Sequence[Step]) -> int:
    """Depth at which the last of target and scored anchors is bound."""
    needed = {TARGET, *plan.scored} - {start}
    return max((depth for depth, step in enumerate(order, 1) if not step.closing and step.far in needed), default=0)


def _rows(graph: CsrGraph) -> Rows:
    from skb_pipeline.graph.memory import enumeration_kernel as kernel

    starts = graph.indptr_starts, graph.first_rows
    return kernel.Rows(graph.indptr, *starts, graph.neighbours, graph.entry_starts, graph.edge_ids, graph.ends)


def _steps(plan: BoundPlan, graph: CsrGraph, order: Sequence[Step], number: Mapping[str, int]) -> Steps:
    from skb_pipeline.graph.memory import enumeration_kernel as kernel

    depth = {step.hop: i for i, step in enumerate(order)}
    clash = np.zeros((len(order), len(order)), dtype=np.bool_)
    for i, j in couplings(plan):
        clash[depth[i], depth[j]] = clash[depth[j], depth[i]] = True
    kinds = []
    for step in order:
        anchor = plan.variables[step.far].candidates is not None
        kinds.append(kernel.CLOSING if step.closing else kernel.ANCHOR if anchor else kernel.FREE)
    return kernel.Steps(
        near=np.array([number[step.near] for step in order], dtype=np.int64),
        far=np.array([number[step.far] for step in order], dtype=np.int64),
        relation=np.array([graph.relations.index(plan.hops[step.hop].name) for step in order], dtype=np.int64),
        kind=np.array(kinds, dtype=np.int64),
        way=_ways([_way(plan.hops[step.hop], step.near) for step in order]),
        clash=clash,
        clashing=np.asarray(clash.any(axis=1)),
    )


def _variables(plan: BoundPlan, graph: CsrGraph, names: Sequence[str]) -> Variables:
    from skb_pipeline.graph.memory import enumeration_kernel as kernel

    variables = [plan.variables[name] for name in names]
    linked = [v.candidates for v in variables]
    candidates = [np.empty(0, np.int32) if c is None else c.nodes for c in linked]
    bans = [[ban for ban in plan.bans if ban.subject == name] for name in names]
    flat: list[Ban] = [ban for group in bans for ban in group]
    banned = [np.empty(0, np.int32) if b.other.candidates is None else b.other.candidates.nodes for b in flat]
    return kernel.Variables(
        candidate_starts=_starts(candidates),
        candidates=_flat(candidates, np.int32),
        cosines=_flat([np.empty(0) if c is None else c.cosines for c in linked], np.float64),
        range_starts=_starts([v.lows for v in variables]),
        lows=_flat([v.lows for v in variables], np.int32),
        highs=_flat([v.highs for v in variables], np.int32),
        ban_starts=_starts(bans),
        ban_relation=np.array([graph.relations.index(ban.name) for ban in flat], dtype=np.int64),
        ban_way=_ways([ban.relation.way for ban in flat]),
        ban_low=np.array([ban.other.lows[0] for ban in flat], dtype=np.int32),
        ban_high=np.array([ban.other.highs[0] for ban in flat], dtype=np.int32),
        ban_listed=np.array([ban.other.candidates is not None for ban in flat], dtype=np.bool_),
        banned_starts=_starts(banned),
        banned=_flat(banned, np.int32),
    )


def _way(hop: BoundHop, near: str) -> Way:
    """As read from the rows of ``near``."""
    way = EVERY_WAY if hop.relation is None else hop.relation.way
    return way if hop.one == near else way.turned()


def _ways(ways: Sequence[Way]) -> np.ndarray:
    """int64 [ways, 3]."""
    return np.array(ways, dtype=np.int64).reshape(-1, 3)


def _starts(groups: Sequence[Sized]) -> np.ndarray:
    """int64 [groups + 1], where each group begins in their concatenation."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum([len(g) for g in groups], dtype=np.int64)])


def _flat(groups: Sequence[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *groups])
