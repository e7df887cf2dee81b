"""Tiny graphs with answers worked out by hand, and random ones; each loads into DuckDB."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import FieldKind, GraphSchema, Triple, TypedField
from skb_pipeline.skb.store import TABLES, build_adjacency
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.conformance.oracle import OracleGraph


@dataclass(frozen=True)
class Graph:
    """Nodes (id -> type, in canonical order), edges (head, relation, tail; the position is the edge id) and values of
    fields by node."""

    nodes: dict[int, str]
    edges: Sequence[tuple[int, str, int]]
    fields: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def oracle(self) -> OracleGraph:
        """The graph as the oracle wants it."""
        return OracleGraph.of(
            [(node, kind, place) for place, (node, kind) in enumerate(self.nodes.items())],
            [(i, head, relation, tail) for i, (head, relation, tail) in enumerate(self.edges)],
            self.fields,
        )


def load_graph(con: duckdb.DuckDBPyConnection, graph: Graph) -> None:
    """Fill an empty connection with the tables of an SKB and its adjacency."""
    con.execute(TABLES)
    nodes = pd.DataFrame({"node_id": list(graph.nodes), "node_type": list(graph.nodes.values())}, dtype=object)
    edges = pd.DataFrame(graph.edges, columns=["head", "relation", "tail"], dtype=object)
    values = [json.dumps(graph.fields.get(node, {})) for node in graph.nodes]
    con.register("node_rows", nodes.astype({"node_id": "int64"}).assign(canonical=range(len(nodes)), fields=values))
    con.register("edge_rows", edges.astype({"head": "int64", "tail": "int64"}).assign(edge_id=range(len(edges))))
    con.execute(
        "INSERT INTO nodes SELECT node_id, node_id::VARCHAR, node_type::VARCHAR, 'n' || node_id, fields::VARCHAR, '', "
        "canonical FROM node_rows"
    )
    con.execute("INSERT INTO edges SELECT edge_id, head, relation::VARCHAR, tail FROM edge_rows")
    con.unregister("node_rows")
    con.unregister("edge_rows")
    build_adjacency(con)


@contextmanager
def loaded(graph: Graph) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an in-memory store that holds the graph."""
    with connect() as con:
        load_graph(con, graph)
        yield con


def bind(**candidates: dict[int, float]) -> Bindings:
    """Bindings from ``variable={node: cosine}``."""
    return {
        var: (np.array(list(c), dtype=np.int64), np.array(list(c.values()), dtype=np.float64))
        for var, c in candidates.items()
    }


def make_plan(
    anchors: dict[str, str], hops: Sequence[str], labels: Sequence[str] = (), where: Sequence[str] = ()
) -> Plan:
    """A plan in short form: ``{"a": "paper"}``, ``["a -cites-> T:paper", "maybe not T -topic- f:field"]``, and
    conditions such as ``T.year >= 2000``, with a JSON value. An arrow gives the direction, ``<-cites-`` for ``in``;
    ``maybe`` makes a hop optional."""
    rows: list[dict[str, Any]] = []
    for text in hops:
        found = re.fullmatch(r"(maybe )?(not )?(.+?) (<?)-(.+)-(>?) (.+?):(.*)", text)
        assert found is not None, text
        optional, negated, one, back, relation, forth, var, label = found.groups()
        direction = "in" if back else "out" if forth else "any"
        hop = {"from": one, "rel": relation, "to_var": var, "to_label": label}
        rows.append({**hop, "negated": bool(negated), "direction": direction, "optional": bool(optional)})
    conditions = []
    for text in where:
        name, op, value = text.split(" ", 2)
        var, _, key = name.partition(".")
        conditions.append({"var": var, "field": key, "op": op, "value": json.loads(value)})
    return Plan.model_validate(
        {
            "anchors": [{"var": var, "text": "x", "label": label} for var, label in anchors.items()],
            "hops": rows,
            "target": {"labels": list(labels)},
            "where": conditions,
        }
    )


@dataclass(frozen=True)
class Case:
    """A plan with its bindings and the answers, in order; how many candidates meet 0, 1, ... optional conditions, and
    nodes that lack a value."""

    plan: Plan
    bindings: Bindings
    answers: list[tuple[int, float]]
    met: tuple[int, ...] = ()
    lacking: int = 0


@dataclass(frozen=True)
class TinyGraph:
    """A graph made for one question of semantics."""

    name: str
    schema: GraphSchema
    graph: Graph
    cases: list[Case] = field(default_factory=list)


def _schema(
    candidates: Sequence[str], *triples: tuple[str, str, str], symmetric: Sequence[tuple[str, str, str]] = ()
) -> GraphSchema:
    types = tuple(dict.fromkeys(t for head, _, tail in triples for t in (head, tail)))
    return GraphSchema(
        types, tuple(Triple(*t) for t in triples), tuple(candidates), tuple(Triple(*t) for t in symmetric)
    )


def _same(kind: str, *ids: int) -> dict[int, str]:
    return dict.fromkeys(ids, kind)


def _tiny_graphs() -> list[TinyGraph]:
    product = _schema(["product"], ("product", "also_buy", "product"), ("product", "also_view", "product"))
    paper = _schema(["paper"], ("paper", "cites", "paper"))
    writes = _schema(["paper"], ("author", "writes", "paper"))
    topic = _schema(["paper"], ("paper", "topic", "field"))
    drug = _schema(["drug"], ("drug", "indication", "disease"), ("drug", "contraindication", "disease"))
    linked = _schema(
        ["drug", "gene", "phenotype"],
        ("disease", "linked", "drug"),
        ("disease", "linked", "gene"),
        ("phenotype", "linked", "disease"),
        ("gene", "expressed", "tissue"),
    )
    return [
        TinyGraph(
            "parallel edges of two relations",
            product,
            Graph(_same("product", 1, 2, 3), [(1, "also_buy", 2), (1, "also_view", 2), (3, "also_view", 1)]),
            [
                # One anchor in two hops is one binding: its cosine counts once.
                Case(
                    make_plan({"a": "product"}, ["a -also_buy- T:product", "a -also_view- T:product"]),
                    bind(a={1: 0.9}),
                    [(2, 0.9)],
                ),
                Case(make_plan({"a": "product"}, ["a -also_view- T:product"]), bind(a={1: 0.9}), [(2, 0.9), (3, 0.9)]),
                # There and back: over the other relation only.
                Case(
                    make_plan({"a": "product"}, ["a -also_buy- m:product", "m -also_view- T:product"]),
                    bind(a={1: 0.9}),
                    [(1, 0.9)],
                ),
            ],
        ),
        TinyGraph(
            "reciprocal pair of a relation that is not symmetric",
            paper,
            Graph(_same("paper", 1, 2, 3), [(1, "cites", 2), (2, "cites", 1), (2, "cites", 3)]),
            [
                # 1 -> 2 over one edge and back over the other is a match.
                Case(
                    make_plan({"a": "paper"}, ["a -cites- m:paper", "m -cites- T:paper"]),
                    bind(a={1: 0.5}),
                    [(1, 0.5), (3, 0.5)],
                ),
                # Two hops between the same variables need two stored edges: 2-3 has one only.
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper", "a -cites- T:paper"]),
                    bind(a={2: 0.5}),
                    [(1, 0.5)],
                ),
            ],
        ),
        TinyGraph(
            "self-loops",
            paper,
            Graph(_same("paper", 1, 2, 3), [(1, "cites", 1), (1, "cites", 2), (3, "cites", 1)]),
            [
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper"]), bind(a={1: 1.0}), [(1, 1.0), (2, 1.0), (3, 1.0)]
                ),
                # The loop serves one hop, not both: 1 itself is no answer.
                Case(
                    make_plan({"a": "paper"}, ["a -cites- m:paper", "m -cites- T:paper"]),
                    bind(a={1: 1.0}),
                    [(2, 1.0), (3, 1.0)],
                ),
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper", "T -cites- T:paper"]),
                    bind(a={3: 1.0, 1: 0.5}),
                    [(1, 1.0)],
                ),
            ],
        ),
        TinyGraph(
            "two hops over one relation",
            product,
            Graph(_same("product", 0, 1, 2), [(0, "also_buy", 1), (1, "also_buy", 2)]),
            [
                Case(
                    make_plan({"a": "product"}, ["a -also_buy- m:product", "m -also_buy- T:product"]),
                    bind(a={0: 0.8}),
                    [(2, 0.8)],
                ),
                # The same plan written from the target.
                Case(
                    make_plan({"a": "product"}, ["T -also_buy- m:product", "m -also_buy- a:product"]),
                    bind(a={0: 0.8}),
                    [(2, 0.8)],
                ),
            ],
        ),
        TinyGraph(
            "three sibling anchors over one relation",
            writes,
            Graph(
                {**_same("paper", 1, 2), **_same("author", 10, 11, 12)},
                [(10, "writes", 1), (11, "writes", 1), (12, "writes", 1), (10, "writes", 2), (11, "writes", 2)],
            ),
            [
                # Three different authors are needed, so paper 2 is out and c is 12 on paper 1.
                Case(
                    make_plan(
                        {"a": "author", "b": "author", "c": "author"},
                        ["a -writes- T:paper", "b -writes- T:paper", "c -writes- T:paper"],
                    ),
                    bind(a={10: 0.5, 11: 0.4}, b={10: 0.3, 11: 0.6}, c={10: 0.2, 12: 0.7}),
                    [(1, 0.5 + 0.6 + 0.7)],
                ),
                # Each anchor's best candidate is the same author, who cannot serve twice.
                Case(
                    make_plan({"a": "author", "b": "author"}, ["a -writes- T:paper", "T -writes- b:author"]),
                    bind(a={10: 0.9, 11: 0.5}, b={10: 0.8, 11: 0.1}),
                    [(1, 0.5 + 0.8), (2, 0.5 + 0.8)],
                ),
                # 0.1 + 0.2 + 0.3 depends on the order of addition: it is the order of the anchors.
                Case(
                    make_plan(
                        {"c": "author", "a": "author", "b": "author"},
                        ["a -writes- T:paper", "b -writes- T:paper", "c -writes- T:paper"],
                    ),
                    bind(a={10: 0.2}, b={11: 0.3}, c={12: 0.1}),
                    [(1, 0.1 + 0.2 + 0.3)],
                ),
            ],
        ),
        TinyGraph(
            "hub",
            topic,
            Graph(
                {99: "field", **_same("paper", *range(30, 0, -1))},  # canonical order is descending here
                [(i, "topic", 99) for i in range(1, 31)],
            ),
            [
                Case(
                    make_plan({"a": "field"}, ["a -topic- T:paper"]),
                    bind(a={99: 0.7}),
                    [(i, 0.7) for i in range(30, 0, -1)],
                ),
                Case(
                    make_plan({"a": "paper"}, ["a -topic- f:field", "f -topic- T:paper"]),
                    bind(a={5: 0.7, 6: 0.2}),
                    # 5 is reached from 6 alone, since its own edge may not be used twice.
                    [(i, 0.7) for i in range(30, 0, -1) if i != 5] + [(5, 0.2)],
                ),
            ],
        ),
        TinyGraph(
            "cycle",
            paper,
            Graph(_same("paper", 1, 2, 3, 4), [(1, "cites", 2), (2, "cites", 3), (3, "cites", 1), (3, "cites", 4)]),
            [
                Case(
                    make_plan({"a": "paper"}, ["a -cites- m:paper", "m -cites- T:paper", "T -cites- a:paper"]),
                    bind(a={1: 0.4, 4: 0.9}),
                    [(2, 0.4), (3, 0.4)],
                ),
                # A free variable shared by two branches.
                Case(
                    make_plan(
                        {"a": "paper", "b": "paper"}, ["a -cites- m:paper", "b -cites- m:paper", "m -cites- T:paper"]
                    ),
                    bind(a={1: 0.4}, b={4: 0.5}),
                    [(2, 0.4 + 0.5)],
                ),
                # An anchor in the middle.
                Case(
                    make_plan({"a": "paper", "b": "paper"}, ["b -cites- a:paper", "a -cites- T:paper"]),
                    bind(a={3: 0.25, 2: 0.5}, b={4: 0.125, 1: 0.0625}),
                    # b=1, a=2 gives 3 (0.5625); a=3 with b=4 gives 1 and 2 (0.375), with b=1 gives 4 and 2 (0.3125).
                    [(3, 0.5625), (1, 0.375), (2, 0.375), (4, 0.3125)],
                ),
                # A negated hop between two matched anchors is read from the one it starts from: 4 has an edge to
                # candidate 3 of b, whereas 1, which b is here, has none to 4.
                Case(
                    make_plan(
                        {"a": "paper", "b": "paper"},
                        ["a -cites- T:paper", "b -cites- T:paper", "not a -cites- b:paper"],
                    ),
                    bind(a={4: 0.25}, b={1: 0.5, 3: 0.75}),
                    [],
                ),
                Case(
                    make_plan(
                        {"a": "paper", "b": "paper"},
                        ["a -cites- T:paper", "b -cites- T:paper", "not b -cites- a:paper"],
                    ),
                    bind(a={4: 0.25}, b={1: 0.5, 3: 0.75}),
                    [(3, 0.75)],
                ),
            ],
        ),
        TinyGraph(
            "negation",
            drug,
            Graph(
                {**_same("drug", 1, 2, 3), **_same("disease", 10, 11, 12)},
                [
                    *((i, "indication", 10) for i in (1, 2, 3)),
                    (2, "contraindication", 11),
                    (1, "contraindication", 12),
                ],
            ),
            [
                Case(
                    make_plan(
                        {"x": "disease", "y": "disease"},
                        ["x -indication- T:drug", "not y -contraindication- T:drug"],
                    ),
                    bind(x={10: 0.9}, y={11: 0.8}),
                    [(1, 0.9), (3, 0.9)],
                ),
                # Any candidate of the anchor counts, and it counts from the other end as well.
                Case(
                    make_plan(
                        {"y": "disease", "x": "disease"},
                        ["not T -contraindication- y:disease", "x -indication- T:drug"],
                    ),
                    bind(x={10: 0.9}, y={11: 0.8, 12: 0.1}),
                    [(3, 0.9)],
                ),
                # Without an anchor: no edge to any disease.
                Case(
                    make_plan({"x": "disease"}, ["x -indication- T:drug", "not T -contraindication- z:disease"]),
                    bind(x={10: 0.9}),
                    [(3, 0.9)],
                ),
                # A candidate list without nodes forbids nothing.
                Case(
                    make_plan(
                        {"x": "disease", "y": "disease"},
                        ["x -indication- T:drug", "not T -contraindication- y:disease"],
                    ),
                    bind(x={10: 0.9}, y={}),
                    [(1, 0.9), (2, 0.9), (3, 0.9)],
                ),
                # A negated hop names an anchor that is also matched: all of its candidates count, not only the
                # one in the match.
                Case(
                    make_plan({"x": "disease"}, ["x -indication- T:drug", "not x -contraindication- T:drug"]),
                    bind(x={10: 0.9, 12: 0.3}),
                    [(2, 0.9), (3, 0.9)],
                ),
                # Negation at a free variable in the middle: 10 is reached back through 3 alone.
                Case(
                    make_plan(
                        {"x": "drug"},
                        ["x -indication- m:disease", "m -indication- T:drug", "not m -contraindication- z:drug"],
                        ["drug"],
                    ),
                    bind(x={1: 0.6}),
                    [(2, 0.6), (3, 0.6)],
                ),
            ],
        ),
        TinyGraph(
            "several target labels",
            linked,
            Graph(
                {5: "gene", 4: "phenotype", 3: "drug", 1: "disease", 9: "tissue"},
                [(1, "linked", 3), (1, "linked", 5), (4, "linked", 1), (5, "expressed", 9)],
            ),
            [
                Case(
                    make_plan({"a": "disease"}, ["a -linked- T:"], ["drug", "gene"]),
                    bind(a={1: 0.5}),
                    [(5, 0.5), (3, 0.5)],
                ),
                Case(
                    make_plan({"a": "disease"}, ["T -linked- a:disease"]),
                    bind(a={1: 0.5}),
                    [(5, 0.5), (4, 0.5), (3, 0.5)],
                ),
                # to_label narrows the target.
                Case(
                    make_plan({"a": "disease"}, ["a -linked- T:phenotype"], ["drug", "phenotype"]),
                    bind(a={1: 0.5}),
                    [(4, 0.5)],
                ),
                # A hop that only genes have narrows it too.
                Case(
                    make_plan({"a": "disease"}, ["a -linked- T:", "T -expressed- t:tissue"]),
                    bind(a={1: 0.5}),
                    [(5, 0.5)],
                ),
                # A negated hop that only genes can have forbids no drug.
                Case(
                    make_plan({"a": "disease"}, ["a -linked- T:", "not T -expressed- t:tissue"]),
                    bind(a={1: 0.5}),
                    [(4, 0.5), (3, 0.5)],
                ),
                Case(make_plan({"a": "disease"}, ["a -linked- T:"]), bind(a={}), []),
            ],
        ),
        *_directed_graphs(),
        _soft_graph(),
    ]


def _soft_graph() -> TinyGraph:
    """Four products. Of brand 10 are two, of colour 20 three; a rarity is the logarithm of one over such a share."""
    half, three, one = 0.693147, 0.287682, 1.386294
    schema = GraphSchema(
        ("product", "brand", "colour"),
        (
            Triple("product", "of", "brand"),
            Triple("product", "has", "colour"),
            Triple("product", "also", "product"),
            Triple("brand", "owns", "brand"),
        ),
        ("product", "brand"),
        fields=(TypedField("product", "price", FieldKind.NUMBER), TypedField("brand", "land", FieldKind.TEXT)),
    )
    graph = Graph(
        {**_same("product", 1, 2, 3, 4), 10: "brand", 11: "brand", 20: "colour"},
        [
            *((1, "of", 10), (2, "of", 10), (3, "of", 11)),
            *((i, "has", 20) for i in (1, 3, 4)),
            *((1, "also", 4), (10, "owns", 11)),
        ],
        {1: {"price": 10}, 3: {"price": 30.5}, 4: {"price": 5}, 10: {"land": "Peru"}, 11: {"land": None}},
    )
    brand_and_colour = {"b": "brand", "c": "colour"}
    bound = bind(b={10: 0.5}, c={20: 0.8})
    has_colour, maybe_colour = "c -has- T:product", "maybe c -has- T:product"
    by_brand, maybe_brand = "b -of- T:product", "maybe b -of- T:product"

    def case(hops: Sequence[str], answers: list[tuple[int, float]], *met: int, **more: Any) -> Case:
        lacking = more.pop("lacking", 0)
        used = {var: kind for var, kind in brand_and_colour.items() if any(f"{var} -" in hop for hop in hops)}
        return Case(make_plan(used, hops, ["product"], **more), bound, answers, met, lacking)

    return TinyGraph(
        "optional conditions and fields",
        schema,
        graph,
        [
            case([by_brand, maybe_colour], [(1, 0.5 + three * 0.8), (2, 0.5)], 1, 1),
            case([maybe_brand, has_colour], [(1, 0.8 + half * 0.5), (3, 0.8), (4, 0.8)], 2, 1),
            # Nothing is required: what meets one of them is there.
            case(
                [maybe_brand, maybe_colour],
                [(1, half * 0.5 + three * 0.8), (2, half * 0.5), (3, three * 0.8), (4, three * 0.8)],
                *(0, 3, 1),
            ),
            # Without a cosine a condition is worth its weight.
            case(["maybe not b -of- T:product", has_colour], [(3, 0.8 + half), (4, 0.8 + half), (1, 0.8)], 1, 2),
            case(
                [has_colour, "maybe T -also- m:product", maybe_brand],
                [(1, 0.8 + half + half * 0.5), (4, 0.8 + half), (3, 0.8)],
                *(1, 1, 1),
            ),
            # A hop behind an optional one is part of its condition.
            case(
                [has_colour, "maybe T -also- m:product", "b -of- m:product"],
                [(4, 0.8 + one * 0.5), (1, 0.8), (3, 0.8)],
                2,
                1,
            ),
            # A condition of another variable: it is met together with the required part, whose cosines it leaves.
            case(
                [has_colour, "T -also- m:product", "maybe b -of- m:product"],
                [(4, 0.8 + one * 0.5), (1, 0.8)],
                *(1, 1),
            ),
            # A required negation filters what meets an optional condition.
            case([maybe_brand, "not c -has- T:product"], [(2, half * 0.5)], 0, 1),
            # Of the others 2 has no price; it counts only where it is a candidate but for that.
            case([has_colour], [(1, 0.8), (3, 0.8)], where=["T.price > 6"]),
            case([by_brand], [(1, 0.5)], where=["T.price <= 10"], lacking=1),
            case([by_brand], [], where=["T.price != 10"], lacking=1),
            case([by_brand, maybe_colour], [(1, 0.5 + three * 0.8)], 0, 1, where=["T.price in [10, 5]"], lacking=1),
            case([by_brand], [(1, 0.5), (2, 0.5)], where=['b.land = "pERU"']),
            case([by_brand], [], where=['b.land != "Peru"']),
            case([has_colour, "T -of- k:brand"], [(1, 0.8)], where=['k.land contains "ER"']),
            # The free end of a negation: no product of a brand whose land is Peru.
            case([has_colour, "not T -of- k:brand"], [(3, 0.8), (4, 0.8)], where=['k.land = "Peru"']),
            # Optional hops do not narrow the answers' types, which are six nodes here; each has its own.
            Case(
                make_plan({"b": "brand", "d": "brand"}, ["maybe b -of- T:product", "maybe d -owns- T:brand"]),
                bind(b={10: 0.5}, d={10: 0.5}),
                [(11, 1.791759 * 0.5), (1, 1.098612 * 0.5), (2, 1.098612 * 0.5)],
                (0, 3, 0),
            ),
        ],
    )


def _directed_graphs() -> list[TinyGraph]:
    paper = _schema(["paper"], ("paper", "cites", "paper"))
    writes = _schema(["paper"], ("author", "writes", "paper"))
    similar = _schema(["paper"], ("paper", "similar", "paper"), symmetric=[("paper", "similar", "paper")])
    trade = _schema(["shop"], ("shop", "supplies", "firm"), ("firm", "supplies", "shop"))
    linked = _schema(
        ["drug", "gene", "phenotype"],
        ("disease", "linked", "drug"),
        ("disease", "linked", "gene"),
        ("phenotype", "linked", "disease"),
    )
    mixed = _schema(
        ["p", "q"],
        ("p", "near", "p"),
        ("p", "near", "q"),
        ("q", "near", "p"),
        ("q", "of", "r"),
        ("p", "of", "r"),
        symmetric=[("p", "near", "p")],
    )
    chain = Graph(_same("paper", 1, 2, 3), [(1, "cites", 2), (2, "cites", 3)])
    siblings = Graph(_same("paper", 1, 2, 3, 4), [(1, "cites", 3), (2, "cites", 3), (3, "cites", 4), (4, "cites", 1)])
    p_and_q = Graph(
        {**_same("p", 1, 2, 3), **_same("q", 11, 12), 20: "r"},
        [(1, "near", 2), (3, "near", 1), (1, "near", 11), (12, "near", 1), *((i, "of", 20) for i in (2, 3, 11, 12))],
    )
    a = bind(a={1: 0.5})
    return [
        TinyGraph(
            "direction along a chain",
            paper,
            chain,
            [
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper"]), bind(a={2: 0.5}), [(3, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a <-cites- T:paper"]), bind(a={2: 0.5}), [(1, 0.5)]),
                # The same two, written from the target.
                Case(make_plan({"a": "paper"}, ["T <-cites- a:paper"]), bind(a={2: 0.5}), [(3, 0.5)]),
                Case(make_plan({"a": "paper"}, ["T -cites-> a:paper"]), bind(a={2: 0.5}), [(1, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a -cites-> m:paper", "m -cites-> T:paper"]), a, [(3, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a <-cites- m:paper", "m <-cites- T:paper"]), a, []),
                Case(make_plan({"a": "paper"}, ["a <-cites- m:paper", "m <-cites- T:paper"]), bind(a={3: 1}), [(1, 1)]),
                # Forth and back would use one edge twice.
                Case(make_plan({"a": "paper"}, ["a -cites-> m:paper", "m <-cites- T:paper"]), a, []),
                Case(make_plan({"a": "paper"}, ["a -cites-> m:paper", "T -cites- m:paper"]), a, [(3, 0.5)]),
                # A hop that only filters.
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper", "T -cites-> m:paper"]),
                    bind(a={2: 0.5}),
                    [],
                ),
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper", "T <-cites- m:paper"]),
                    bind(a={1: 0.25, 3: 0.5}),
                    [(2, 0.5)],  # from 3, as the edge from 1 may not be used twice
                ),
                # Over an undirected hop back to where the answer is cited.
                Case(
                    make_plan({"a": "paper"}, ["a -cites- m:paper", "m <-cites- T:paper"]), bind(a={3: 0.5}), [(1, 0.5)]
                ),
            ],
        ),
        TinyGraph(
            "direction at a reciprocal pair and a self-loop",
            paper,
            Graph(_same("paper", 1, 2, 3), [(1, "cites", 2), (2, "cites", 1), (2, "cites", 3), (3, "cites", 3)]),
            [
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper"]), a, [(2, 0.5)]),
                # Out over one edge of the pair and back over the other.
                Case(make_plan({"a": "paper"}, ["a -cites-> m:paper", "m -cites-> T:paper"]), a, [(1, 0.5), (3, 0.5)]),
                # There and back the same way needs one edge twice.
                Case(make_plan({"a": "paper"}, ["a -cites-> m:paper", "T -cites-> m:paper"]), a, []),
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper", "a <-cites- T:paper"]), a, [(2, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper", "a -cites-> T:paper"]), a, []),
                Case(
                    make_plan({"a": "paper"}, ["a -cites-> T:paper", "a -cites- T:paper"]), bind(a={2: 0.5}), [(1, 0.5)]
                ),
                # A self-loop has every direction, and is still one edge.
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper"]), bind(a={3: 0.5}), [(3, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a <-cites- T:paper"]), bind(a={3: 0.5}), [(2, 0.5), (3, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper", "T <-cites- T:paper"]), a, []),
                Case(make_plan({"a": "paper"}, ["a -cites-> T:paper", "T -cites-> T:paper"]), bind(a={2: 1}), [(3, 1)]),
                Case(make_plan({"a": "paper"}, ["a -cites-> m:paper", "m <-cites- T:paper"]), bind(a={3: 1}), [(2, 1)]),
            ],
        ),
        TinyGraph(
            "direction of siblings over one relation",
            paper,
            siblings,
            [
                Case(
                    make_plan({"a": "paper", "b": "paper"}, ["a -cites-> T:paper", "b <-cites- T:paper"]),
                    bind(a={1: 0.5, 2: 0.25, 4: 0.125}, b={1: 0.5, 4: 0.25}),
                    [(3, 0.5 + 0.25)],
                ),
                Case(
                    make_plan({"a": "paper", "b": "paper"}, ["a -cites-> T:paper", "b -cites-> T:paper"]),
                    bind(a={1: 0.5, 2: 0.25}, b={1: 0.5, 2: 0.125}),
                    # One of them has to take its second best: 1 and 2, or 2 and 1.
                    [(3, 0.25 + 0.5)],
                ),
                Case(
                    make_plan({"a": "paper", "b": "paper"}, ["a -cites-> T:paper", "b -cites- T:paper"]),
                    bind(a={1: 0.5, 2: 0.25}, b={1: 0.5, 4: 0.375}),
                    [(3, 0.5 + 0.375)],
                ),
                # Three over one relation.
                Case(
                    make_plan(
                        {"a": "paper", "b": "paper"}, ["a -cites-> T:paper", "b -cites-> T:paper", "T -cites-> m:paper"]
                    ),
                    bind(a={1: 0.5}, b={1: 0.5, 2: 0.25}),
                    [(3, 0.5 + 0.25)],
                ),
                # A cycle that runs one way round.
                Case(
                    make_plan({"a": "paper"}, ["a -cites-> m:paper", "m -cites-> T:paper", "T -cites-> a:paper"]),
                    bind(a={1: 0.5, 2: 0.25}),
                    [(4, 0.5)],
                ),
                Case(
                    make_plan({"a": "paper"}, ["a -cites-> m:paper", "m -cites-> T:paper", "T <-cites- a:paper"]), a, []
                ),
            ],
        ),
        TinyGraph(
            "direction of a negated hop",
            paper,
            siblings,
            [
                # 4 cites 1 and is cited by 3; 3 is cited by 1.
                Case(make_plan({"a": "paper"}, ["a -cites- T:paper", "not T -cites-> a:paper"]), a, [(3, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a -cites- T:paper", "not a -cites-> T:paper"]), a, [(4, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a -cites- T:paper", "not T <-cites- a:paper"]), a, [(4, 0.5)]),
                # Without an anchor: cited by nobody.
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper", "not T <-cites- z:paper"]),
                    bind(a={3: 0.5}),
                    [(2, 0.5)],
                ),
                Case(
                    make_plan({"a": "paper"}, ["a -cites- T:paper", "not T -cites-> z:paper"]),
                    bind(a={3: 0.5}),
                    [],
                ),
                # In a plan that is enumerated.
                Case(
                    make_plan(
                        {"a": "paper"},
                        ["a -cites- m:paper", "m -cites- T:paper", "T -cites- a:paper", "not T <-cites- a:paper"],
                    ),
                    bind(a={1: 0.5, 2: 0.25}),
                    [(4, 0.5)],
                ),
                Case(
                    make_plan(
                        {"a": "paper"},
                        ["a -cites- m:paper", "m -cites- T:paper", "T -cites- a:paper", "not m <-cites- z:paper"],
                    ),
                    a,
                    [],
                ),
            ],
        ),
        TinyGraph(
            "direction that the types imply",
            writes,
            Graph({1: "paper", 2: "paper", 10: "author"}, [(10, "writes", 1), (10, "writes", 2)]),
            [
                Case(make_plan({"a": "author"}, ["a -writes-> T:paper"]), bind(a={10: 0.5}), [(1, 0.5), (2, 0.5)]),
                Case(make_plan({"a": "paper"}, ["a <-writes- m:author", "m -writes-> T:paper"]), a, [(2, 0.5)]),
            ],
        ),
        TinyGraph(
            "direction on a symmetric relation",
            similar,
            Graph(_same("paper", 1, 2, 3), [(1, "similar", 2), (2, "similar", 3)]),
            [
                Case(
                    make_plan({"a": "paper"}, [f"a {left}-similar-{right} T:paper"]),
                    bind(a={2: 0.5}),
                    [(1, 0.5), (3, 0.5)],
                )
                for left, right in (("", ">"), ("<", ""), ("", ""))
            ]
            + [
                Case(make_plan({"a": "paper"}, ["a <-similar- m:paper", "m <-similar- T:paper"]), a, [(3, 0.5)]),
                Case(
                    make_plan(
                        {"a": "paper"}, ["a <-similar- m:paper", "m -similar- T:paper", "not T -similar-> a:paper"]
                    ),
                    a,
                    [(3, 0.5)],
                ),
            ],
        ),
        TinyGraph(
            "one relation both ways between two types",
            trade,
            Graph(
                {**_same("shop", 1, 2), **_same("firm", 10, 11)},
                [(1, "supplies", 10), (10, "supplies", 1), (2, "supplies", 10), (11, "supplies", 2)],
            ),
            [
                Case(
                    make_plan({"a": "firm"}, ["a -supplies-> T:shop"]),
                    bind(a={10: 0.5, 11: 0.25}),
                    [(1, 0.5), (2, 0.25)],
                ),
                Case(
                    make_plan({"a": "firm"}, ["a <-supplies- T:shop"]),
                    bind(a={10: 0.5, 11: 0.25}),
                    [(1, 0.5), (2, 0.5)],
                ),
                Case(
                    make_plan({"a": "firm"}, ["a <-supplies- T:shop", "not T <-supplies- a:firm"]),
                    bind(a={10: 0.5}),
                    [(2, 0.5)],
                ),
                Case(make_plan({"a": "shop"}, ["a -supplies-> m:firm", "m -supplies-> T:shop"]), a, [(1, 0.5)]),
            ],
        ),
        TinyGraph(
            "direction and several target labels",
            linked,
            Graph(
                {5: "gene", 4: "phenotype", 3: "drug", 1: "disease"},
                [(1, "linked", 3), (1, "linked", 5), (4, "linked", 1)],
            ),
            [
                Case(make_plan({"a": "disease"}, ["a -linked-> T:"]), a, [(5, 0.5), (3, 0.5)]),
                Case(make_plan({"a": "disease"}, ["a <-linked- T:"]), a, [(4, 0.5)]),
                Case(make_plan({"a": "disease"}, ["T <-linked- a:disease"], ["phenotype", "drug"]), a, [(3, 0.5)]),
                # A negated hop whose direction only phenotypes can have forbids no drug, though it has such an edge.
                Case(
                    make_plan({"a": "disease"}, ["a -linked- T:", "not T -linked-> z:disease"]), a, [(5, 0.5), (3, 0.5)]
                ),
                Case(make_plan({"a": "disease"}, ["a -linked- T:", "not T <-linked- a:disease"]), a, [(4, 0.5)]),
            ],
        ),
        TinyGraph(
            "symmetric within one of the target's types only",
            mixed,
            p_and_q,
            [
                Case(make_plan({"a": "p"}, ["a -near-> T:"]), a, [(2, 0.5), (3, 0.5), (11, 0.5)]),
                Case(make_plan({"a": "p"}, ["a <-near- T:"]), a, [(2, 0.5), (3, 0.5), (12, 0.5)]),
                Case(make_plan({"a": "p"}, ["a <-near- T:q"]), a, [(12, 0.5)]),
                # Reached from elsewhere, and looked up from the target.
                Case(make_plan({"b": "r"}, ["b -of- T:", "T -near-> m:p"]), bind(b={20: 1}), [(2, 1), (3, 1), (12, 1)]),
                Case(
                    make_plan({"b": "r", "a": "p"}, ["b -of- T:", "T -near-> a:p"]),
                    bind(b={20: 1}, a={1: 0.5, 2: 0.75}),
                    [(2, 1.5), (3, 1.5), (12, 1.5)],
                ),
                Case(make_plan({"b": "r"}, ["b -of- T:", "not T -near-> m:p"]), bind(b={20: 1}), [(11, 1)]),
                Case(
                    make_plan({"b": "r", "a": "p"}, ["b -of- T:", "not T <-near- a:p"]),
                    bind(b={20: 1}, a={1: 0.5}),
                    [(12, 1)],
                ),
                # Enumerated.
                Case(
                    make_plan({"a": "p"}, ["a -near-> T:", "T -of- r:r", "r -of- m:p", "m -near- a:p", "a -near- k:q"]),
                    a,
                    [(2, 0.5), (3, 0.5), (11, 0.5)],
                ),
            ],
        ),
    ]


TINY_GRAPHS = _tiny_graphs()

RANDOM_SCHEMA = GraphSchema(
    ("p", "q", "r"),
    (
        Triple("p", "x", "q"),
        Triple("q", "x", "r"),
        Triple("p", "x", "p"),
        Triple("p", "y", "p"),
        Triple("q", "z", "q"),
        Triple("r", "y", "p"),
        Triple("p", "y", "q"),
        Triple("q", "y", "p"),
    ),
    ("p", "q"),
    (Triple("p", "y", "p"),),
    (
        TypedField("p", "size", FieldKind.NUMBER),
        TypedField("q", "size", FieldKind.NUMBER),
        TypedField("p", "day", FieldKind.DATE),
        TypedField("p", "word", FieldKind.TEXT),
        TypedField("q", "word", FieldKind.TEXT),
        TypedField("r", "name", FieldKind.TEXT),
    ),
)
"""Relations that join several pairs of types, so that the type of an end matters; ``y`` runs both ways between two
types and is symmetric within one of them. ``name`` is a key that nodes of a Cypher store have otherwise."""

VALUES: Mapping[FieldKind, Sequence[Any]] = {
    FieldKind.NUMBER: [-1, 0, 1, 2, 2.5, 1e300, 0.1],
    FieldKind.DATE: ["1999-12-31", "2020-01-01", "2020-01-31"],
    FieldKind.TEXT: ["red", "Red", "dark RED", "a.b", "aXb", "line\nbreak", "Ärger", "ärger", "", "{0}|$x"],
}
"""What nodes of random graphs have in their fields, or nothing."""


def draw_fields(
    nodes: Mapping[int, str], schema: GraphSchema, choose: Callable[[Sequence[Any]], Any]
) -> dict[int, dict[str, Any]]:
    """Values by node; ``choose`` draws one of a list."""
    return {
        node: {f.name: choose([None, *VALUES[f.kind]]) for f in schema.fields if f.node_type == kind}
        for node, kind in nodes.items()
    }


def random_graph(seed: int, n_nodes: int, n_edges: int, schema: GraphSchema = RANDOM_SCHEMA) -> Graph:
    """A graph with hubs, self-loops and reciprocal pairs; canonical order is not the order of ids."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(n_nodes)
    types = dict(zip(ids.tolist(), rng.choice(schema.node_types, n_nodes).tolist(), strict=True))
    by_type = {kind: [node for node, k in types.items() if k == kind] for kind in schema.node_types}
    edges: set[tuple[int, str, int]] = set()
    attempts = 0
    while len(edges) < n_edges and attempts < 20 * n_edges:
        attempts += 1
        head, relation, tail = schema.triples[rng.integers(len(schema.triples))]
        # Squared uniform numbers favour the first nodes, which become hubs.
        ends = [pool[int(len(pool) * rng.random() ** 2)] for pool in (by_type[head], by_type[tail]) if pool]
        if len(ends) == 2:
            edges.add((ends[0], relation, ends[1]))
    fields = draw_fields(types, schema, lambda values: values[rng.integers(len(values))])
    return Graph(types, sorted(edges), fields)


def describe(plan: Plan, bindings: Bindings) -> str:
    """A plan and its bindings as JSON, for messages of failed comparisons."""
    bound = {var: dict(zip(*(x.tolist() for x in pair), strict=True)) for var, pair in bindings.items()}
    return json.dumps({"plan": plan.model_dump(mode="json", by_alias=True), "bindings": bound}, indent=1)
