"""Brute force: every match of a plan, one by one, in plain Python. It decides what is correct.

It shares no code with any engine and reads a plan by itself; plans must be valid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import duckdb

from skb_pipeline.plans.plan import Hop, Plan
from skb_pipeline.plans.results import Bindings


class TooManyStepsError(Exception):
    """The plan has more partial matches than the budget allows."""


@dataclass(frozen=True)
class OracleGraph:
    """Nodes and edges as dicts: type and canonical position per node, (other end, edge id) per node and relation,
    (head, tail) per edge id."""

    types: Mapping[int, str]
    canonical: Mapping[int, int]
    incident: Mapping[int, Mapping[str, list[tuple[int, int]]]]
    edges: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, nodes: Iterable[tuple[int, str, int]], edges: Iterable[tuple[int, int, str, int]]) -> OracleGraph:
        """From (node id, type, canonical position) and (edge id, head, relation, tail)."""
        nodes, edges = list(nodes), list(edges)
        incident: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for edge, head, relation, tail in edges:
            incident[head][relation].append((tail, edge))
            if head != tail:
                incident[tail][relation].append((head, edge))
        ends = {edge: (head, tail) for edge, head, _, tail in edges}
        return cls({n: t for n, t, _ in nodes}, {n: c for n, _, c in nodes}, incident, ends)

    @classmethod
    def load(cls, con: duckdb.DuckDBPyConnection) -> OracleGraph:
        """From the tables ``nodes`` and ``edges`` (not from the adjacency, which engines read)."""
        return cls.of(
            con.execute("SELECT node_id, node_type, canonical FROM nodes").fetchall(),
            con.execute("SELECT edge_id, head, relation, tail FROM edges").fetchall(),
        )

    def around(self, node: int, relation: str) -> list[tuple[int, int]]:
        """(other end, edge id) of the node's edges of one relation."""
        return self.incident.get(node, {}).get(relation, [])


@dataclass
class _Search:
    graph: OracleGraph
    plan: Plan
    candidates: dict[str, dict[int, float]]
    allowed: dict[str, set[str]]
    symmetric: Collection[tuple[str, str, str]]
    steps_left: int

    def matches(self, hops: list[Hop], found: dict[str, int], used: frozenset[int]) -> Iterator[dict[str, int]]:
        """Assignments that extend ``found``, with pairwise different edges for ``hops``."""
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TooManyStepsError
        if not hops:
            yield found
            return
        hop = next(h for h in hops if h.from_var in found or h.to_var in found)
        rest = [h for h in hops if h is not hop]
        known, other = (hop.from_var, hop.to_var) if hop.from_var in found else (hop.to_var, hop.from_var)
        for node, edge in self.graph.around(found[known], hop.rel):
            forth = known == hop.from_var
            runs = self.runs(hop, edge, *((found[known], node) if forth else (node, found[known])))
            if edge not in used and runs and self.fits(other, node, found):
                yield from self.matches(rest, {**found, other: node}, used | {edge})

    def runs(self, hop: Hop, edge: int, one: int, other: int) -> bool:
        """Whether an edge between the nodes of ``from`` and ``to_var`` has the hop's direction."""
        if hop.direction == "any" or (self.graph.types[one], hop.rel, self.graph.types[other]) in self.symmetric:
            return True
        return self.graph.edges[edge] == ((one, other) if hop.direction == "out" else (other, one))

    def fits(self, var: str, node: int, found: Mapping[str, int]) -> bool:
        if var in found:
            return found[var] == node
        if var in self.candidates:
            return node in self.candidates[var]
        return self.graph.types[node] in self.allowed[var]

    def refuted(self, match: Mapping[str, int]) -> bool:
        """Whether some negated hop finds an edge."""
        positive = {v for h in self.plan.hops if not h.negated for v in (h.from_var, h.to_var)}
        for hop in self.plan.hops:
            if not hop.negated:
                continue
            if hop.to_var not in positive and hop.to_var not in self.candidates:
                one = match[hop.from_var]
                hit = any(
                    self.graph.types[node] == hop.to_label and self.runs(hop, edge, one, node)
                    for node, edge in self.graph.around(one, hop.rel)
                )
            else:
                forward = hop.to_var in self.candidates and hop.from_var in positive
                subject, anchor = (hop.from_var, hop.to_var) if forward else (hop.to_var, hop.from_var)
                node = match[subject]
                hit = any(
                    end in self.candidates[anchor] and self.runs(hop, edge, *((node, end) if forward else (end, node)))
                    for end, edge in self.graph.around(node, hop.rel)
                )
            if hit:
                return True
        return False

    def score(self, match: Mapping[str, int]) -> float:
        cosines = [self.candidates[a.var][match[a.var]] for a in self.plan.anchors if a.var in match]
        total = cosines[0]
        for cosine in cosines[1:]:
            total += cosine
        return total


def enumerate_answers(
    graph: OracleGraph,
    plan: Plan,
    bindings: Bindings,
    candidate_types: Iterable[str],
    *,
    symmetric: Collection[tuple[str, str, str]] = (),
    max_steps: int = 1_000_000,
) -> list[tuple[int, float]]:
    """All answers as (node id, score), in result order.

    Args:
        symmetric: (type, relation, type) whose edges have no direction.

    Raises:
        ValueError: the plan has optional hops or conditions, which nothing executes yet.
        TooManyStepsError: more than ``max_steps`` partial matches.
    """
    if plan.where or any(hop.optional for hop in plan.hops):
        raise ValueError("optional hops and conditions on fields are not executed yet")
    candidates = {a.var: dict(zip(*(x.tolist() for x in bindings[a.var]), strict=True)) for a in plan.anchors}
    allowed = {hop.to_var: {hop.to_label} for hop in plan.hops if hop.to_var != "T"}
    allowed["T"] = set(plan.target.labels or candidate_types)
    for hop in plan.hops:
        if hop.to_var == "T" and hop.to_label:
            allowed["T"] &= {hop.to_label}
    search = _Search(graph, plan, candidates, allowed, symmetric, max_steps)
    positive = [hop for hop in plan.hops if not hop.negated]
    used_vars = {v for hop in positive for v in (hop.from_var, hop.to_var)}
    # Start where the fewest candidates are; which anchor comes first does not change the set of matches.
    start = min((var for var in candidates if var in used_vars), key=lambda var: len(candidates[var]))
    best: dict[int, float] = {}
    for node in candidates[start]:
        for match in search.matches(positive, {start: node}, frozenset()):
            if not search.refuted(match):
                best[match["T"]] = max(best.get(match["T"], float("-inf")), search.score(match))
    return sorted(best.items(), key=lambda item: (-item[1], graph.canonical[item[0]]))
