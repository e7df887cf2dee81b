"""Valid plans with bindings over any graph: a seeded generator and hypothesis strategies."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import duckdb
import numpy as np
from hypothesis import strategies as st

from skb_pipeline.plans.plan import Direction, Plan, PlanStatus
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema, TypedField
from skb_pipeline.plans.structure import variable_types
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, VALUES, Graph, draw_fields
from skb_pipeline_tests.conformance.oracle import OracleGraph


@dataclass(frozen=True)
class PlanCase:
    """A valid plan with candidates for its anchors."""

    plan: Plan
    bindings: Bindings

    def features(self) -> set[str]:
        """What is special about the plan's shape, to count what a run covered."""
        positive = [hop for hop in self.plan.hops if not hop.negated]
        variables = {v for hop in positive for v in (hop.from_var, hop.to_var)}
        pairs = [frozenset((hop.from_var, hop.to_var)) for hop in positive]
        relations = Counter(hop.rel for hop in positive)
        uses = Counter(v for hop in positive for v in (hop.from_var, hop.to_var))
        free = uses.keys() - {"T", *(anchor.var for anchor in self.plan.anchors)}
        found = {f"{len(self.plan.anchors)} anchors", f"{len(positive)} positive hops"}
        for name, holds in [
            ("negation", len(positive) < len(self.plan.hops)),
            ("relation twice", max(relations.values()) == 2),
            ("relation three times", max(relations.values()) > 2),
            ("parallel hops", len(set(pairs)) < len(pairs)),
            ("shared free variable", any(uses[var] > 2 for var in free)),
            ("self-loop hop", any(len(pair) == 1 for pair in pairs)),
            ("cycle", len(positive) >= len(variables) and all(len(p) == 2 for p in pairs)),
            ("several target labels", len(self.plan.target.labels) > 1),
            ("no target label", not self.plan.target.labels),
            ("direction", any(hop.direction != "any" for hop in positive)),
            ("negated direction", any(hop.negated and hop.direction != "any" for hop in self.plan.hops)),
            *self._extensions(),
        ]:
            if holds:
                found.add(name)
        return found

    def _extensions(self) -> list[tuple[str, bool]]:
        hops = self.plan.hops
        optional = [hop for hop in hops if hop.optional]
        firm = [hop for hop in hops if not hop.negated and not hop.optional]
        at_target = [hop for hop in optional if "T" in (hop.from_var, hop.to_var)]
        conditions = self.plan.where
        anchors = {anchor.var for anchor in self.plan.anchors}
        positive = {v for hop in hops if not hop.negated for v in (hop.from_var, hop.to_var)}
        return [
            ("optional", bool(optional)),
            ("several optional hops", len(optional) > 1),
            ("optional negation", any(hop.negated for hop in optional)),
            ("nothing required", bool(optional) and not any("T" in (h.from_var, h.to_var) for h in firm)),
            ("optional away from the target", len(at_target) < len(optional)),
            ("where on the target", any(c.var == "T" for c in conditions)),
            ("where on an anchor", any(c.var in anchors for c in conditions)),
            ("where on a free variable", any(c.var in positive - anchors - {"T"} for c in conditions)),
            ("where on a negated end", any(c.var not in positive for c in conditions)),
            ("where and optional", bool(conditions and optional)),
        ]


def _valid(plan: dict[str, Any], schema: GraphSchema) -> Plan:
    checked = validate(plan, schema)
    if checked.status is not PlanStatus.VALID or checked.plan is None:
        raise AssertionError(f"the generator made a plan that is not valid: {checked}")
    return checked.plan


def directions(one: str, relation: str, other: str, schema: GraphSchema) -> list[str]:
    """The directions that edges from a node of type ``one`` to a node of type ``other`` may have."""
    return [d.value for d in (Direction.OUT, Direction.IN) if schema.allows(one, relation, other, d)]


def soften(
    plan: dict[str, Any],
    schema: GraphSchema,
    luck: Callable[[], float],
    choose: Callable[[Sequence[Any]], Any],
    value_of: Callable[[str, TypedField], Any],
) -> Plan:
    """A valid plan with some of its hops optional, and with conditions on fields; sometimes as it is.

    Args:
        plan: valid.
        luck: gives numbers from 0 to 1.
        choose: draws from a list.
        value_of: a value for a field of a type.
    """
    changed = {**plan, "hops": [dict(hop) for hop in plan["hops"]], "where": []}
    share = choose([0.0, 0.0, 0.3, 0.6, 1.0])
    for hop in changed["hops"]:
        hop["optional"] = luck() < share
    types = variable_types(Plan.model_validate(changed), schema)
    for _ in range(choose([0, 0, 1, 1, 2])):
        var = choose(["T", *sorted(types)])
        of_var = [field for field in schema.fields if field.node_type in types[var]]
        if not of_var:
            continue
        field = choose(of_var)
        op = choose(field.kind.operators)
        value = value_of(field.node_type, field)
        if op == "in":
            value = [value, value_of(field.node_type, field)]
        elif op == "contains":
            value = value[: choose([1, 2, 5])] or "r"
        changed["where"].append({"var": var, "field": field.name, "op": op, "value": value})
    checked = validate(changed, schema)
    if checked.status is PlanStatus.VALID and checked.plan is not None:
        return checked.plan
    # Of several labels no one may fit all hops that are now one condition, or a value be longer than cleaning leaves.
    return _valid(plan, schema)


@dataclass
class _Draft:
    """A plan grown around one true match: ``nodes`` holds it, ``used`` its edges."""

    nodes: dict[str, int]
    anchors: list[str] = field(default_factory=list)
    hops: list[dict[str, Any]] = field(default_factory=list)
    used: set[int] = field(default_factory=set)


class _Generator:
    def __init__(
        self, graph: OracleGraph, schema: GraphSchema, seed: int, max_hops: int, max_anchors: int, hard: bool
    ) -> None:
        self.hard = hard
        self.graph, self.schema, self.rng = graph, schema, random.Random(seed)
        self.max_hops, self.max_anchors = max_hops, max_anchors
        self.degree = {n: sum(map(len, by.values())) for n, by in graph.incident.items()}
        self.by_type: dict[str, list[int]] = {kind: [] for kind in schema.node_types}
        for node in sorted(graph.types):
            self.by_type[graph.types[node]].append(node)
        self.starts = [n for kind in schema.candidate_types for n in self.by_type[kind] if self.degree.get(n)]
        if not self.starts:
            raise ValueError("no node of a candidate type has an edge")

    def draw(self) -> PlanCase:
        while True:
            draft = _Draft({"T": self.quiet(self.starts)})
            size = self.rng.randint(1, self.max_hops)
            for i in range(size):
                self.grow(draft, last=i == size - 1)
            if self.rng.random() < 0.3:
                self.negate(draft)
            if draft.anchors:
                return self.finish(draft)

    def quiet(self, nodes: list[int]) -> int:
        """Mostly a node with few edges."""
        tries = 4 if self.rng.random() < 0.8 else 1
        return min((self.rng.choice(nodes) for _ in range(tries)), key=lambda n: self.degree.get(n, 0))

    def grow(self, draft: _Draft, last: bool) -> None:
        """One more hop along an edge that the match does not use yet; sometimes one that may not exist."""
        if self.rng.random() < 0.05 and self.close(draft):
            return
        var = self.rng.choice(list(draft.nodes))
        node = draft.nodes[var]
        choices = {
            relation: [(other, edge) for other, edge in self.graph.around(node, relation) if edge not in draft.used]
            for relation in sorted(self.graph.incident.get(node, {}))
        }
        choices = {relation: ends for relation, ends in choices.items() if ends}
        if not choices:
            return
        relation = self.rng.choice(list(choices))
        other, edge = self.rng.choice(choices[relation])
        draft.used.add(edge)
        known = [v for v, n in draft.nodes.items() if n == other]
        if known and self.rng.random() < 0.7:
            self.add(draft, var, relation, self.rng.choice(known), either=True, edge=edge)
            return
        new = f"v{len(draft.nodes)}"
        draft.nodes[new] = other
        anchor = len(draft.anchors) < self.max_anchors and (self.rng.random() < 0.55 or (last and not draft.anchors))
        if anchor:
            draft.anchors.append(new)
        self.add(draft, var, relation, new, either=anchor, edge=edge)
        self.close_known(draft)

    def close_known(self, draft: _Draft) -> None:
        """Sometimes one more hop along an unused edge between nodes of the match: parallel edges, cycles."""
        if len(draft.hops) >= self.max_hops or self.rng.random() < 0.5:
            return
        owners: dict[int, list[str]] = {}
        for var, node in draft.nodes.items():
            owners.setdefault(node, []).append(var)
        found = [
            (node, relation, other, edge)
            for node in owners
            for relation in sorted(self.graph.incident[node])
            for other, edge in self.graph.around(node, relation)
            if other in owners and edge not in draft.used
        ]
        if found:
            node, relation, other, edge = self.rng.choice(found)
            draft.used.add(edge)
            ends = self.rng.choice(owners[node]), self.rng.choice(owners[other])
            self.add(draft, ends[0], relation, ends[1], either=True, edge=edge)

    def close(self, draft: _Draft) -> bool:
        """A hop between two variables that the schema allows, whether or not the match has the edge."""
        found = [
            (one, relation, other)
            for one in draft.nodes
            for other in draft.nodes
            for relation in self.schema.relations
            if self.schema.allows(self.type_of(draft, one), relation, self.type_of(draft, other))
        ]
        if found and draft.hops:
            self.add(draft, *self.rng.choice(found), either=False)
            return True
        return False

    def negate(self, draft: _Draft) -> None:
        var = self.rng.choice(list(draft.nodes))
        kind = self.type_of(draft, var)
        found = [
            (relation, other)
            for relation in self.schema.relations
            for other in self.schema.node_types
            if self.schema.allows(kind, relation, other)
        ]
        relation, other = self.rng.choice(found)
        matched = [a for a in draft.anchors if self.type_of(draft, a) == other and a != var]
        pool = self.by_type[other]
        if matched and self.rng.random() < 0.3:
            self.add(draft, var, relation, self.rng.choice(matched), negated=True, either=False)
        elif pool and self.rng.random() < 0.8 and draft.anchors and len(draft.anchors) < self.max_anchors:
            draft.anchors.append("n")
            # A hub, so that the negation has something to forbid.
            draft.nodes["n"] = max(self.rng.choices(pool, k=5), key=lambda n: self.degree.get(n, 0))
            self.add(draft, var, relation, "n", negated=True, either=True)
        else:
            hop = {"from": var, "rel": relation, "to_var": "n", "to_label": other, "negated": True}
            draft.hops.append({**hop, "direction": self.direction(kind, relation, other)})

    def direction(self, one: str, relation: str, other: str, true: str | None = None) -> str:
        """Of a hop between two types: mostly any, else the true one where it is known, else one that may be wrong."""
        luck = self.rng.random()
        if luck < 0.7:
            return "any"
        return (
            true if true is not None and luck < 0.9 else self.rng.choice(directions(one, relation, other, self.schema))
        )

    def add(
        self,
        draft: _Draft,
        one: str,
        relation: str,
        other: str,
        *,
        either: bool,
        negated: bool = False,
        edge: int | None = None,
    ) -> None:
        """A hop; ``either``: it may be turned round. ``edge``: the edge between the two nodes of the match."""
        if either and self.rng.random() < 0.5:
            # A free variable is declared by the hop that brought it in, which is not turned round.
            one, other = other, one
        label = "" if other == "T" and self.rng.random() < 0.5 else self.type_of(draft, other)
        true = None if edge is None else "out" if self.graph.edges[edge][0] == draft.nodes[one] else "in"
        direction = self.direction(self.type_of(draft, one), relation, self.type_of(draft, other), true)
        hop = {"from": one, "rel": relation, "to_var": other, "to_label": label, "negated": negated}
        draft.hops.append({**hop, "direction": direction})

    def type_of(self, draft: _Draft, var: str) -> str:
        return self.graph.types[draft.nodes[var]]

    def finish(self, draft: _Draft) -> PlanCase:
        self.rng.shuffle(draft.anchors)
        kind = self.type_of(draft, "T")
        more = self.rng.sample(self.schema.candidate_types, self.rng.randint(0, len(self.schema.candidate_types)))
        labels = self.rng.choice([[], [kind], list(dict.fromkeys([*more, kind]))])
        plan = {
            "anchors": [{"var": v, "text": "x", "label": self.type_of(draft, v)} for v in draft.anchors],
            "hops": self.rng.sample(draft.hops, len(draft.hops)),
            "target": {"labels": labels},
        }
        bindings = {var: self.candidates(draft, var) for var in draft.anchors}
        if self.hard:
            return PlanCase(_valid(plan, self.schema), bindings)
        softened = soften(plan, self.schema, self.rng.random, self.rng.choice, self.value)
        return PlanCase(softened, bindings)

    def value(self, kind: str, field: TypedField) -> Any:
        """A value of some node of the graph, or another one."""
        found = [self.graph.fields.get(node, {}).get(field.name) for node in self.rng.choices(self.by_type[kind], k=3)]
        found = [value for value in found if value is not None] or list(VALUES[field.kind])
        return self.rng.choice(found)

    def candidates(self, draft: _Draft, var: str) -> tuple[np.ndarray, np.ndarray]:
        """Mostly the node of the match and a few others, rarely without it or without any."""
        luck = self.rng.random()
        nodes = [] if luck < 0.07 else [draft.nodes[var]]
        if luck > 0.02:
            nodes += [self.quiet(self.by_type[self.type_of(draft, var)]) for _ in range(self.rng.randint(0, 4))]
        distinct = list(dict.fromkeys(nodes))
        self.rng.shuffle(distinct)
        cosines = [self.rng.choice([0.1, 0.2, 0.3, 0.7, self.rng.random()]) for _ in distinct]
        return np.array(distinct, dtype=np.int64), np.array(cosines, dtype=np.float64)


def plan_stream(
    graph: OracleGraph, schema: GraphSchema, seed: int, *, max_hops: int = 4, max_anchors: int = 3, hard: bool = False
) -> Iterator[PlanCase]:
    """Random valid plans without end. Most have an answer: each grows around one true match. ``hard``: without optional
    hops and conditions."""
    generator = _Generator(graph, schema, seed, max_hops, max_anchors, hard)
    while True:
        yield generator.draw()


def random_plans(
    con: duckdb.DuckDBPyConnection,
    schema: GraphSchema,
    n: int,
    seed: int,
    *,
    max_hops: int = 4,
    max_anchors: int = 3,
) -> list[PlanCase]:
    """``n`` random plans over the store; the same seed and store give the same plans."""
    graph = OracleGraph.load(con)
    return list(islice(plan_stream(graph, schema, seed, max_hops=max_hops, max_anchors=max_anchors), n))


@st.composite
def small_graphs(draw: st.DrawFn, schema: GraphSchema = RANDOM_SCHEMA) -> Graph:
    """Up to seven nodes and twelve edges."""
    types = draw(st.lists(st.sampled_from(schema.node_types), min_size=1, max_size=7))
    ids = draw(st.permutations(range(len(types))))
    nodes = dict(zip(ids, types, strict=True))
    possible = [
        (head, relation, tail)
        for head_type, relation, tail_type in schema.triples
        for head in nodes
        for tail in nodes
        if nodes[head] == head_type and nodes[tail] == tail_type
    ]
    edges = draw(st.lists(st.sampled_from(possible), max_size=12, unique=True)) if possible else []
    return Graph(nodes, edges, draw_fields(nodes, schema, lambda values: draw(st.sampled_from(values))))


@st.composite
def small_cases(
    draw: st.DrawFn, graph: Graph, schema: GraphSchema = RANDOM_SCHEMA, *, directed: bool = False, soft: bool = False
) -> PlanCase:
    """A valid plan over the schema, drawn without regard for the edges, with candidates from the graph. ``directed``:
    hops may have a direction; ``soft``: they may be optional, and there may be conditions on fields."""

    def direction(one: str, relation: str, other: str) -> str:
        possible = directions(types[one], relation, types[other], schema) if directed else []
        return draw(st.sampled_from(["any", *possible]))

    types = {"T": draw(st.sampled_from(schema.candidate_types))}
    hops: list[tuple[str, str, str, bool]] = []

    def hop_from(var: str) -> tuple[str, str]:
        ends = [(t.relation, t.tail) for t in schema.triples if t.head == types[var]]
        ends += [(t.relation, t.head) for t in schema.triples if t.tail == types[var]]
        return draw(st.sampled_from(ends))

    for i in range(draw(st.integers(1, 3))):
        var = draw(st.sampled_from(list(types)))
        relation, types[f"v{i}"] = hop_from(var)
        hops.append((var, relation, f"v{i}", False))
    anchors = draw(st.lists(st.sampled_from([v for v in types if v != "T"]), min_size=1, max_size=3, unique=True))
    closable = [
        (one, t.relation, other, False)
        for t in schema.triples
        for one in types
        for other in types
        if (types[one], types[other]) == (t.head, t.tail)
    ]
    if closable:
        hops += draw(st.lists(st.sampled_from(closable), max_size=2))
    if draw(st.booleans()):
        var = draw(st.sampled_from(list(types)))
        relation, types["n"] = hop_from(var)
        hops.append((var, relation, "n", True))
        if draw(st.booleans()):
            anchors.append("n")
    labels = draw(st.sampled_from([[], [types["T"]], list(schema.candidate_types)]))
    plan = {
        "anchors": [{"var": v, "text": "x", "label": types[v]} for v in anchors],
        "hops": [
            {
                "from": one,
                "rel": rel,
                "to_var": other,
                "to_label": types[other],
                "negated": negated,
                "direction": direction(one, rel, other),
            }
            for one, rel, other, negated in draw(st.permutations(hops))
        ],
        "target": {"labels": labels},
    }
    valid = _valid(plan, schema)
    if soft:
        valid = soften(
            plan,
            schema,
            lambda: draw(st.floats(0, 0.99)),
            lambda values: draw(st.sampled_from(values)),
            lambda _, field: draw(st.sampled_from(VALUES[field.kind])),
        )
    bindings = {}
    for var in anchors:
        pool = [node for node, kind in graph.nodes.items() if kind == types[var]]
        chosen = draw(st.lists(st.sampled_from(pool), unique=True)) if pool else []
        cosines = [draw(st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0, -0.25, math.pi / 4])) for _ in chosen]
        bindings[var] = (np.array(chosen, dtype=np.int64), np.array(cosines, dtype=np.float64))
    return PlanCase(valid, bindings)
