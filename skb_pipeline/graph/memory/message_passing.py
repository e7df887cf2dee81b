"""Max-plus message passing over a tree of hops: time linear in the edges touched, no match is ever enumerated.

Each variable keeps one value per node, the best of its subtree; branches meet at their variable. The branch that costs
least is expanded first. The others are then carried over their hop from whichever end has fewer edges: *pushed* from
the child's nodes or *pulled* by the nodes that are left. Branches without an anchor only filter.

Where two hops that meet at a variable could use one edge, its nodes keep the best value, the edge it came over, and
the best value over any other edge (the runner-up). Of two branches, one takes its runner-up if both best values came
over one edge. For a branch and the hop to the parent, the runner-up is what passes over the edge of the best value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from skb_pipeline.graph.memory.bound import Ban, BoundPlan, Variable
from skb_pipeline.graph.memory.csr import CsrGraph, Relation
from skb_pipeline.graph.memory.tree import Branch, Term, Tree, TreeNode

NOTHING = -np.inf
CHUNK = 2_000_000
"""Entries read between two looks at the clock; some ten milliseconds."""

_NO_VALUES = np.empty(0, dtype=np.float64)
_NO_EDGES = np.empty(0, dtype=np.int64)


class TimeUpError(Exception):
    """The wall clock limit of an execution has passed."""


@dataclass
class Meter:
    """Wall clock limit (``time.perf_counter`` value) and entries read so far."""

    deadline: float
    touched_edges: int = 0

    def check(self) -> None:
        """Raise :class:`TimeUpError` after the deadline."""
        if time.perf_counter() > self.deadline:
            raise TimeUpError


@dataclass(frozen=True, eq=False)
class Message:
    """Values of some distinct nodes.

    Attributes:
        nodes: int32 positions.
        values: float64, best per node; 0 where no term is carried.
        runners, vias: the best that does not use the stored edge ``vias`` (int64), or -inf; None where not needed.
    """

    nodes: np.ndarray
    values: np.ndarray
    runners: np.ndarray | None = None
    vias: np.ndarray | None = None

    def keep(self, kept: np.ndarray) -> Message:
        """The nodes where ``kept`` (bool) is true."""
        runners = None if self.runners is None else self.runners[kept]
        vias = None if self.vias is None else self.vias[kept]
        return Message(self.nodes[kept], self.values[kept], runners, vias)


class Traversal:
    """Single hops over a graph. Its scratch arrays, 12 to 28 bytes per node, are for one thread at a time."""

    def __init__(self, graph: CsrGraph) -> None:
        from skb_pipeline.graph.memory import kernels

        self.graph, self.kernels = graph, kernels
        self.best = np.full(graph.n_nodes, NOTHING)
        self.touched = np.empty(graph.n_nodes, dtype=np.int32)
        self._runner: np.ndarray | None = None
        self._via: np.ndarray | None = None
        self.meter = Meter(np.inf)

    def fanout(self, relation: Relation, nodes: np.ndarray) -> int:
        """Entries in the rows of some nodes."""
        return int(self.kernels.fanout(relation.indptr, relation.first_row, nodes))

    def has_neighbour(self, relation: Relation, nodes: np.ndarray, other: Variable) -> np.ndarray:
        """bool per node: whether it has a neighbour of the other variable's types. ``relation`` is as read from the
        rows of ``nodes``."""
        rows = relation.indptr, relation.neighbours, relation.ends, relation.first_row, relation.way
        self.meter.check()
        self.meter.touched_edges += len(nodes)
        return np.asarray(self.kernels.has_neighbour(*rows, nodes, other.lows, other.highs))

    def spread(self, relation: Relation, message: Message, to: Variable, *, two: bool = False) -> Message:
        """Carry a message over a hop, to all nodes of the other variable's types that it reaches. ``relation`` is as
        read from the rows of the message's nodes."""
        try:
            touched = self._push(relation, message, to, two)
            nodes = self.touched[:touched].copy()
            return self._taken(nodes, two)
        finally:
            self._clean()

    def carry(self, relation: Relation, message: Message, nodes: np.ndarray, to: Variable, *, two: bool) -> Message:
        """Carry a message over a hop to given nodes of the other variable; -inf for those it does not reach.
        ``relation`` is as read from the rows of the message's nodes."""
        if self.fanout(relation, message.nodes) <= self.fanout(relation, nodes):
            try:
                self._push(relation, message, to, two)
                return self._taken(nodes, two)
            finally:
                self._clean()
        return self._pull(relation.turned(), message, nodes, two)

    def _push(self, relation: Relation, message: Message, to: Variable, two: bool) -> int:
        """Fill the scratch arrays; gives the number of nodes reached."""
        runner, via = self._second() if two else (_NO_VALUES, _NO_EDGES)
        self._progress = np.zeros(3, dtype=np.int64)
        while self._progress[0] < len(message.nodes):
            self.meter.check()
            self.kernels.push(
                relation.indptr,
                relation.neighbours,
                relation.edge_ids,
                relation.ends,
                relation.first_row,
                relation.way,
                message.nodes,
                message.values,
                _NO_VALUES if message.runners is None else message.runners,
                _NO_EDGES if message.vias is None else message.vias,
                to.lows,
                to.highs,
                self.best,
                runner,
                via,
                self.touched,
                self._progress,
                CHUNK,
            )
        self.meter.touched_edges += int(self._progress[2])
        return int(self._progress[1])

    def _taken(self, nodes: np.ndarray, two: bool) -> Message:
        if not two:
            return Message(nodes, self.best[nodes])
        runner, via = self._second()
        return Message(nodes, self.best[nodes], runner[nodes], via[nodes])

    def _clean(self) -> None:
        """Undo a push, finished or not."""
        reached = self.touched[: self._progress[1]]
        self.best[reached] = NOTHING
        if self._runner is not None:
            self._runner[reached] = NOTHING

    def _pull(self, relation: Relation, message: Message, nodes: np.ndarray, two: bool) -> Message:
        values = np.full(len(nodes), NOTHING)
        runners = np.full(len(nodes), NOTHING) if two else _NO_VALUES
        vias = np.full(len(nodes), -1, dtype=np.int64) if two else _NO_EDGES
        avoiding = message.runners is not None
        runner, via = self._second() if avoiding else (_NO_VALUES, _NO_EDGES)
        progress = np.zeros(3, dtype=np.int64)
        try:
            self.best[message.nodes] = message.values
            if message.runners is not None and message.vias is not None:
                runner[message.nodes], via[message.nodes] = message.runners, message.vias
            while progress[0] < len(nodes):
                self.meter.check()
                self.kernels.pull(
                    relation.indptr,
                    relation.neighbours,
                    relation.edge_ids,
                    relation.ends,
                    relation.first_row,
                    relation.way,
                    nodes,
                    self.best,
                    runner,
                    via,
                    values,
                    runners,
                    vias,
                    progress,
                    CHUNK,
                )
        finally:
            self.best[message.nodes] = NOTHING
            if avoiding:
                runner[message.nodes] = NOTHING
        self.meter.touched_edges += int(progress[2])
        return Message(nodes, values, runners, vias) if two else Message(nodes, values)

    def _second(self) -> tuple[np.ndarray, np.ndarray]:
        if self._runner is None or self._via is None:
            self._runner = np.full(self.graph.n_nodes, NOTHING)
            self._via = np.full(self.graph.n_nodes, -1, dtype=np.int64)
        return self._runner, self._via


def allowed(traversal: Traversal, ban: Ban, nodes: np.ndarray, subject: Variable) -> np.ndarray:
    """bool per node of a negation's subject: whether it has no such edge."""
    if ban.other.candidates is None:
        return ~traversal.has_neighbour(ban.relation, nodes, ban.other)
    linked = ban.other.candidates.nodes
    message = Message(linked, np.zeros(len(linked)))
    reached = traversal.carry(ban.relation.turned(), message, nodes, subject, two=False)
    return np.asarray(reached.values == NOTHING)


@dataclass(eq=False)
class _Table:
    """What is known at a variable: nodes, and columns of equal length that are filtered with them.

    ``terms`` are the values of one match per node. ``spares`` replace some of them in a second match that is also
    possible: it uses other edges, see the module.
    """

    nodes: np.ndarray
    terms: dict[Term, np.ndarray] = field(default_factory=dict)
    spares: dict[Term, np.ndarray] = field(default_factory=dict)
    waiting: Message | None = None

    def keep(self, kept: np.ndarray) -> None:
        if kept.all():
            return
        self.nodes = self.nodes[kept]
        self.terms = {term: values[kept] for term, values in self.terms.items()}
        self.spares = {term: values[kept] for term, values in self.spares.items()}
        if self.waiting is not None:
            self.waiting = self.waiting.keep(kept)


class TreeEvaluation:
    """One plan, evaluated from its anchors to the target."""

    def __init__(self, tree: Tree, plan: BoundPlan, traversal: Traversal) -> None:
        self.tree, self.plan, self.traversal = tree, plan, traversal

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions (int32, distinct, in no order) of all answers, and their scores (float64).

        Raises:
            TimeUpError: the traversal's deadline has passed.
        """
        table = self._evaluate(self.tree.root, None)
        if not len(table.nodes):
            return table.nodes, _NO_VALUES
        last = len(self.tree.constants) - 1
        return table.nodes, self._best_of(table, lambda terms: self._add_up(terms, last, len(table.nodes)))

    def _evaluate(self, node: TreeNode, within: np.ndarray | None) -> _Table:
        """The nodes of a variable that its subtree allows; ``within`` lists the only ones wanted (None: all)."""
        table = self._start(node, within)
        pending = list(node.branches)
        while pending and (table is None or len(table.nodes)):
            branch = pending[0]
            if len(pending) > 1:
                branch = min(pending, key=lambda b: self._cost(b, None if table is None else table.nodes))
            pending.remove(branch)
            two = branch is node.chained or (node.pair is not None and branch in node.pair)
            if table is None:
                reached = self._spread(branch, node.variable, two)
                table = _Table(reached.nodes)
            else:
                reached = self._carry(branch, table.nodes, node.variable, two)
                kept = reached.values > NOTHING
                table.keep(kept)
                reached = reached.keep(kept)
            self._add(node, branch, table, reached)
        if table is None:
            raise AssertionError(f"variable {node.variable.name!r} has neither candidates nor branches")
        if node.variable.candidates is None:
            self._apply_bans(node, table)
        return table

    def _apply_bans(self, node: TreeNode, table: _Table) -> None:
        for ban in self.plan.bans:
            if ban.subject == node.variable.name:
                table.keep(allowed(self.traversal, ban, table.nodes, node.variable))

    def _start(self, node: TreeNode, within: np.ndarray | None) -> _Table | None:
        """Candidates, reduced by negations before they are expanded; of a variable without any what is wanted."""
        candidates = node.variable.candidates
        if candidates is None:
            return None if within is None else _Table(within)
        table = _Table(candidates.nodes)
        if node.variable.name in self.plan.scored:
            place = self.plan.scored.index(node.variable.name)
            if self.tree.constants[place] is None:
                table.terms[Term(place, prefix=False)] = candidates.cosines
        self._apply_bans(node, table)
        return table

    def _spread(self, branch: Branch, to: Variable, two: bool) -> Message:
        message = self._message(branch.child, self._evaluate(branch.child, None))
        return self.traversal.spread(_edges(branch), message, to, two=two)

    def _carry(self, branch: Branch, nodes: np.ndarray, to: Variable, two: bool) -> Message:
        """A branch's values at given nodes of the variable above it."""
        child, relation = branch.child, _edges(branch)
        if self._only_exists(branch) and not two:
            found = self.traversal.has_neighbour(relation.turned(), nodes, child.variable)
            return Message(nodes, np.where(found, 0.0, NOTHING))
        within = None
        if child.variable.candidates is None and self._descent(branch, nodes) < self._climb(branch):
            around = Message(nodes, np.zeros(len(nodes)))
            within = self.traversal.spread(relation.turned(), around, child.variable).nodes
        message = self._message(child, self._evaluate(child, within))
        return self.traversal.carry(relation, message, nodes, to, two=two)

    def _only_exists(self, branch: Branch) -> bool:
        """Whether the child is a free variable with no other condition than its type."""
        child = branch.child
        banned = any(ban.subject == child.variable.name for ban in self.plan.bans)
        return child.variable.candidates is None and not child.branches and not banned

    def _cost(self, branch: Branch, nodes: np.ndarray | None) -> float:
        """Estimated entries read to bring a branch to the variable above it, of which ``nodes`` are left."""
        if nodes is None:
            return self._climb(branch)
        if self._only_exists(branch):
            return len(nodes)
        candidates = branch.child.variable.candidates
        if candidates is None:
            return min(self._climb(branch), self._descent(branch, nodes))
        relation = _edges(branch)
        return min(self.traversal.fanout(relation, candidates.nodes), self.traversal.fanout(relation, nodes))

    def _climb(self, branch: Branch) -> float:
        """Cost of expanding a branch from an anchor at or below its child; infinite if there is none."""
        variable = branch.child.variable
        if variable.candidates is not None:
            return self.traversal.fanout(_edges(branch), variable.candidates.nodes)
        below = min((self._climb(b) for b in branch.child.branches), default=np.inf)
        if below == np.inf:
            return np.inf
        reached = min(below, float(variable.size))
        return below + reached * mean_degree(_edges(branch), variable)

    def _descent(self, branch: Branch, nodes: np.ndarray) -> float:
        """Cost of going down from ``nodes``, evaluating the child at what they reach, and coming back."""
        variable = branch.child.variable
        entries = self.traversal.fanout(_edges(branch), nodes)
        reached = min(entries, variable.size)
        return 2 * entries + reached * sum(mean_degree(_edges(b), variable) for b in branch.child.branches)

    def _add(self, node: TreeNode, branch: Branch, table: _Table, reached: Message) -> None:
        """Columns for a branch whose values were carried to the table's nodes; all of them are reached."""
        term = branch.child.term
        if node.pair is not None and branch in node.pair:
            if table.waiting is None:
                table.waiting = reached
            else:
                first = node.pair[1] if branch is node.pair[0] else node.pair[0]
                self._join_pair(table, first.child.term, term, reached)
            return
        if term is not None:
            table.terms[term] = reached.values
        if branch is node.chained:
            table.waiting = reached
            if term is not None and reached.runners is not None:
                table.spares[term] = reached.runners

    @staticmethod
    def _join_pair(table: _Table, first_term: Term | None, term: Term | None, second: Message) -> None:
        """Two branches over different edges: where both best values have one edge, either takes its runner-up."""
        first, table.waiting = table.waiting, None
        if first is None or first.runners is None or second.runners is None:
            raise AssertionError("a pair of branches was carried without its runners-up")
        clash = first.vias == second.vias
        one_way = first.values, np.where(clash, second.runners, second.values)
        other_way = np.where(clash, first.runners, first.values), second.values
        possible = one_way[1] > NOTHING
        other_possible = other_way[0] > NOTHING
        for place, key in enumerate((first_term, term)):
            if key is not None:
                table.terms[key] = np.where(possible, one_way[place], other_way[place])
                table.spares[key] = np.where(other_possible, other_way[place], one_way[place])
        table.keep(possible | other_possible)

    def _message(self, node: TreeNode, table: _Table) -> Message:
        """What a variable sends to its parent."""
        if not len(table.nodes):  # not all of its branches were looked at then
            return Message(table.nodes, _NO_VALUES)

        def score(terms: Mapping[Term, np.ndarray]) -> np.ndarray:
            if node.term is None:
                return np.zeros(len(table.nodes))
            return self._add_up(terms, node.term.last, len(table.nodes)) if node.term.prefix else terms[node.term]

        if node.chained is None or table.waiting is None or table.waiting.runners is None:
            return Message(table.nodes, self._best_of(table, score))
        spare = np.where(table.waiting.runners > NOTHING, score(table.terms | table.spares), NOTHING)
        return Message(table.nodes, score(table.terms), spare, table.waiting.vias)

    @staticmethod
    def _best_of(table: _Table, score: Callable[[Mapping[Term, np.ndarray]], np.ndarray]) -> np.ndarray:
        values = score(table.terms)
        return np.maximum(values, score(table.terms | table.spares)) if table.spares else values

    def _add_up(self, terms: Mapping[Term, np.ndarray], last: int, size: int) -> np.ndarray:
        """Cosines of the scored anchors up to ``last``, added one by one in their order as every engine does."""
        known = {term.last: values for term, values in terms.items()}
        total: np.ndarray | float | None = None
        begin = 0
        for term, values in terms.items():
            if term.prefix:
                total, begin = values, term.last + 1
        for place in range(begin, last + 1):
            constant = self.tree.constants[place]
            value = known[place] if constant is None else constant
            total = value if total is None else total + value
        return total if isinstance(total, np.ndarray) else np.full(size, total, dtype=np.float64)


def mean_degree(relation: Relation, variable: Variable) -> float:
    """Mean number of a relation's entries per node of a variable's types."""
    rows = len(relation.indptr) - 1
    entries = 0
    for bounds in variable.ranges:
        low, high = (min(max(bound - relation.first_row, 0), rows) for bound in bounds)
        entries += int(relation.indptr[high]) - int(relation.indptr[low])
    return entries / max(variable.size, 1)


def _edges(branch: Branch) -> Relation:
    """The relation of a branch as read from the rows of its child."""
    relation = branch.hop.relation
    if relation is None:
        raise AssertionError(f"no edge of {branch.hop.name!r}: the plan is impossible and must not be evaluated")
    return relation if branch.hop.one == branch.child.variable.name else relation.turned()
