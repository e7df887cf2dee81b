"""Brute force: every match of a plan, one by one, in plain Python. It decides what is correct.

It shares no code with any engine and reads a plan by itself; plans must be valid.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from skb_pipeline.plans.plan import Condition, Hop, Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema


class TooManyStepsError(Exception):
    """The plan has more partial matches than the budget allows."""


@dataclass(frozen=True)
class OracleGraph:
    """Nodes and edges as dicts: type and canonical position per node, (other end, edge id) per node and relation,
    (head, tail) per edge id, and the values of fields per node."""

    types: Mapping[int, str]
    canonical: Mapping[int, int]
    incident: Mapping[int, Mapping[str, list[tuple[int, int]]]]
    edges: Mapping[int, tuple[int, int]]
    fields: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        nodes: Iterable[tuple[int, str, int]],
        edges: Iterable[tuple[int, int, str, int]],
        fields: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> OracleGraph:
        """From (node id, type, canonical position) and (edge id, head, relation, tail)."""
        nodes, edges = list(nodes), list(edges)
        incident: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for edge, head, relation, tail in edges:
            incident[head][relation].append((tail, edge))
            if head != tail:
                incident[tail][relation].append((head, edge))
        ends = {edge: (head, tail) for edge, head, _, tail in edges}
        return cls({n: t for n, t, _ in nodes}, {n: c for n, _, c in nodes}, incident, ends, fields or {})

    @classmethod
    def load(cls, con: duckdb.DuckDBPyConnection) -> OracleGraph:
        """From the tables ``nodes`` and ``edges`` (not from the adjacency, which engines read)."""
        return cls.of(
            con.execute("SELECT node_id, node_type, canonical FROM nodes").fetchall(),
            con.execute("SELECT edge_id, head, relation, tail FROM edges").fetchall(),
            {node: json.loads(text) for node, text in con.execute("SELECT node_id, fields FROM nodes").fetchall()},
        )

    def around(self, node: int, relation: str) -> list[tuple[int, int]]:
        """(other end, edge id) of the node's edges of one relation."""
        return self.incident.get(node, {}).get(relation, [])


@dataclass
class _Search:
    graph: OracleGraph
    plan: Plan
    schema: GraphSchema
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
        return self.graph.types[node] in self.allowed[var] and (var == "T" or self.meets(var, node))

    def value(self, node: int, condition: Condition) -> Any:
        """The value of a typed field; None where there is none."""
        kinds = [f.kind for f in self.schema.fields if f[:2] == (self.graph.types[node], condition.field)]
        return self.graph.fields.get(node, {}).get(condition.field) if kinds else None

    def meets(self, var: str, node: int) -> bool:
        """Whether a node meets all conditions on a variable."""
        for condition in self.plan.where:
            if condition.var == var:
                value, given = self.value(node, condition), condition.value
                if value is None:
                    return False
                of_text = (self.graph.types[node], condition.field, "text") in self.schema.fields
                if of_text:
                    value = _small(value)
                    given = [_small(v) for v in given] if isinstance(given, list) else _small(given)
                if not _compares(value, condition.op, given):
                    return False
        return True

    def subject(self, hop: Hop) -> tuple[str, str | None]:
        """Of a negated hop the variable that must have no such edge, and the anchor at its other end (None: a free
        variable is there)."""
        positive = {v for h in self.plan.hops if not h.negated for v in (h.from_var, h.to_var)}
        if hop.to_var not in positive and hop.to_var not in self.candidates:
            return hop.from_var, None
        forward = hop.to_var in self.candidates and hop.from_var in positive
        return (hop.from_var, hop.to_var) if forward else (hop.to_var, hop.from_var)

    def refuted(self, negated: Iterable[Hop], match: Mapping[str, int]) -> bool:
        """Whether some negated hop finds an edge."""
        for hop in negated:
            subject, anchor = self.subject(hop)
            node = match[subject]
            forward = subject == hop.from_var
            for end, edge in self.graph.around(node, hop.rel):
                if anchor is None:
                    wanted = self.graph.types[end] == hop.to_label and self.meets(hop.to_var, end)
                else:
                    wanted = end in self.candidates[anchor]
                if wanted and self.runs(hop, edge, *((node, end) if forward else (end, node))):
                    return True
        return False

    def score(self, match: Mapping[str, int], variables: Collection[str]) -> float:
        """Sum of the cosines of those anchors; 1 without any."""
        cosines = [self.candidates[a.var][match[a.var]] for a in self.plan.anchors if a.var in variables]
        total = cosines[0] if cosines else 1.0
        for cosine in cosines[1:]:
            total += cosine
        return total

    def best(self, hops: Sequence[Hop], scored: Collection[str], labels: set[str]) -> dict[int, float]:
        """Target nodes of matches of these hops, with the score of their best one."""
        self.allowed["T"] = labels
        for hop in hops:
            if hop.to_var == "T" and hop.to_label:
                self.allowed["T"] = self.allowed["T"] & {hop.to_label}
        positive = [hop for hop in hops if not hop.negated]
        negated = [hop for hop in hops if hop.negated]
        used = {v for hop in positive for v in (hop.from_var, hop.to_var)}
        # Start where the fewest candidates are; which variable comes first does not change the set of matches.
        starts = {v: [*c] for v, c in self.candidates.items() if v in used}
        start = min(starts, key=lambda var: len(starts[var]), default="T")
        nodes = starts.get(start, [n for n, kind in self.graph.types.items() if kind in self.allowed["T"]])
        best: dict[int, float] = {}
        for node in nodes:
            for match in self.matches(positive, {start: node}, frozenset()):
                if not self.refuted(negated, match):
                    best[match["T"]] = max(best.get(match["T"], float("-inf")), self.score(match, scored))
        return best

    def target_labels(self, hops: Sequence[Hop], candidate_types: Iterable[str]) -> set[str]:
        """Types that answers of a required part can have."""
        labels = set(self.plan.target.labels or candidate_types)
        for hop in hops:
            if hop.to_var == "T" and hop.to_label:
                labels &= {hop.to_label}
            if hop.negated or "T" not in (hop.from_var, hop.to_var):
                continue

            def joins(label: str, hop: Hop = hop) -> bool:
                one, other = ({label} if v == "T" else self.allowed[v] for v in (hop.from_var, hop.to_var))
                out = any((a, hop.rel, b) in self.schema.triples for a in one for b in other)
                back = any((b, hop.rel, a) in self.schema.triples for a in one for b in other)
                return {"out": out, "in": back, "any": out or back}[hop.direction]

            labels = {label for label in labels if joins(label)}
        return labels


def _small(text: str) -> str:
    return "".join(c.lower() if "A" <= c <= "Z" else c for c in text)


def _compares(value: Any, op: str, given: Any) -> bool:
    match op:
        case "=":
            return bool(value == given)
        case "!=":
            return bool(value != given)
        case "<":
            return bool(value < given)
        case "<=":
            return bool(value <= given)
        case ">":
            return bool(value > given)
        case ">=":
            return bool(value >= given)
        case "in":
            return value in given
    return given in value


@dataclass
class Evaluation:
    """What a plan gives.

    Attributes:
        answers: (node id, score), in result order.
        optional: per optional condition: nodes that meet it, candidates that meet it, weight.
        met: how many candidates meet 0, 1, ... optional conditions; empty without any.
        lacking: nodes that lack a value.
    """

    answers: list[tuple[int, float]]
    optional: list[tuple[int, int, float]]
    met: list[int]
    lacking: int


def conditions_of(search: _Search) -> tuple[list[Hop], list[tuple[list[Hop], set[str]]]]:
    """The required hops; and of each optional condition the hops that are matched for it (the required ones too, unless
    it hangs off T alone) and its own variables."""
    plan = search.plan
    firm, grown = {"T"}, True
    while grown:
        more = {
            v
            for hop in plan.hops
            if not hop.negated and not hop.optional and {hop.from_var, hop.to_var} & firm
            for v in (hop.from_var, hop.to_var)
        }
        grown = not more <= firm
        firm |= more
    inside = [{search.subject(h)[0]} if h.negated else {h.from_var, h.to_var} for h in plan.hops]
    required = [h for h, ends in zip(plan.hops, inside, strict=True) if ends <= firm and not h.optional]
    left = [i for i, hop in enumerate(plan.hops) if not (inside[i] <= firm and not hop.optional)]
    branches = []
    while left:
        group, own = [left.pop(0)], set[str]()
        grown = True
        while grown:
            own |= set[str]().union(*(inside[i] for i in group)) - firm
            more_hops = [i for i in left if inside[i] & own]
            group += more_hops
            left = [i for i in left if i not in more_hops]
            grown = bool(more_hops)
        touched = set[str]().union(*(inside[i] for i in group)) & firm
        alone = touched == {"T"}
        whole = [h for i, h in enumerate(plan.hops) if i in group or (not alone and any(h is r for r in required))]
        branches.append((whole, own))
    return required, branches


def evaluate(
    graph: OracleGraph, plan: Plan, bindings: Bindings, schema: GraphSchema, *, max_steps: int = 1_000_000
) -> Evaluation:
    """All that a plan gives.

    Raises:
        TooManyStepsError: more than ``max_steps`` partial matches.
    """
    candidates = {a.var: dict(zip(*(x.tolist() for x in bindings[a.var]), strict=True)) for a in plan.anchors}
    allowed = {hop.to_var: {hop.to_label} for hop in plan.hops if hop.to_var != "T"}
    allowed |= {a.var: {a.label} for a in plan.anchors}
    search = _Search(graph, plan, schema, candidates, allowed, schema.symmetric, max_steps)
    for var, nodes in candidates.items():
        candidates[var] = {node: cosine for node, cosine in nodes.items() if search.meets(var, node)}
    required, branches = conditions_of(search)
    labels = search.target_labels(required, schema.candidate_types)
    firm = {v for hop in required if not hop.negated for v in (hop.from_var, hop.to_var)}
    parts = [search.best(hops, own, labels) for hops, own in branches]
    if firm:
        base = search.best(required, firm, labels)
    else:
        base = {node: 0.0 for part in parts for node in part if not search.refuted(required, {"T": node})}
    on_target = [condition for condition in plan.where if condition.var == "T"]
    lacking = sum(any(search.value(node, condition) is None for condition in on_target) for node in base)
    base = {node: score for node, score in base.items() if search.meets("T", node)}
    n_all = sum(kind in labels for kind in graph.types.values())
    optional = []
    for part in parts:
        weight = round(math.log(n_all / len(part)), 6) if part else 0.0
        optional.append((len(part), len(part.keys() & base.keys()), weight))
        for node in base:
            if node in part:
                base[node] += weight * part[node]
    n_met = [sum(node in part for part in parts) for node in base]
    met = [n_met.count(k) for k in range(len(parts) + 1)] if parts else []
    answers = sorted(base.items(), key=lambda item: (-item[1], graph.canonical[item[0]]))
    return Evaluation(answers, optional, met, lacking)
