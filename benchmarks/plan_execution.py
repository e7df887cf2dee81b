"""Wall time of plans in memory, as SQL and, if wanted, as Cypher over Bolt, on equal answers.

    python benchmarks/plan_execution.py --scale 0.1
    python benchmarks/plan_execution.py --scale 1          # 1.04 M nodes, 9.4 M edges
    python benchmarks/plan_execution.py --scale 0.1 --bolt --plans 30

The graph is synthetic: products, brands, categories and colours in the numbers of STaRK-Amazon, with hubs (a category
has up to 40,000 products at scale 1). Each anchor has 20 candidates: the true one, and of the others half drawn
uniformly and half in proportion to their edges, so that hubs are common. Every plan has an answer.

Each plan is executed by all engines one after the other; their answers, scores and counts must be equal. The time is
that of the whole call: checks of plan and bindings, execution, ordering; over Bolt also two round trips. S4 uses one
relation twice. A plan without any anchor is not valid, so S6 is one anchor with two hops that are not anchored. S7 to
S10 have optional hops and conditions on the price of products, which nine of ten have.

With ``--bolt`` the graph is also put into the server that is packaged for the tests, in bulk, or into that of
NEO4J_URI (an empty database), by MERGE. The packaged one is no Neo4j: it says how plans fare on a server at all, not
how fast Neo4j is.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from bolt_bulk import write_database

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.graph.sql import execute_sql
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings, GraphResult
from skb_pipeline.plans.schema import FieldKind, GraphSchema, Triple, TypedField
from skb_pipeline.skb.store import TABLES, build_adjacency
from skb_pipeline.storage.duck import connect

NODES = {"product": 957_192, "brand": 62_000, "category": 850, "color": 15_500}
EDGES = {
    "also_buy": ("product", 3_700_000),
    "also_view": ("product", 2_900_000),
    "has_brand": ("brand", 800_000),
    "has_category": ("category", 1_600_000),
    "has_color": ("color", 440_000),
}
SCHEMA = GraphSchema(
    tuple(NODES),
    tuple(Triple("product", r, tail) for r, (tail, _) in EDGES.items()),
    ("product",),
    fields=(TypedField("product", "price", FieldKind.NUMBER),),
)
ALSO = ("also_buy", "also_view")
WARM_UP = {False: 5, True: 30}
"""Plans per shape whose times do not count, without and with a server, whose compiler takes longer."""


@dataclass(frozen=True)
class Shape:
    """Hops as (near, far, place of the relation among those drawn for a plan), which variables are anchors, places of
    the hops that are optional, and variables whose price is at most the median."""

    title: str
    hops: tuple[tuple[str, str, int], ...]
    anchors: tuple[str, ...]
    optional: tuple[int, ...] = ()
    cheap: tuple[str, ...] = ()


SHAPES = {
    "S1": Shape("1 anchor, 1 hop", (("T", "a", 0),), ("a",)),
    "S2": Shape("2 anchors, 1 hop each", (("T", "a", 0), ("T", "b", 1)), ("a", "b")),
    "S3": Shape("1 anchor, 2 hops", (("T", "m", 0), ("m", "a", 1)), ("a",)),
    "S4": Shape("2 hops of one relation, 2nd anchor", (("T", "m", 0), ("m", "a", 0), ("T", "b", 1)), ("a", "b")),
    "S5": Shape("1 anchor, 1 free hop", (("T", "a", 0), ("T", "x", 1)), ("a",)),
    "S6": Shape("1 anchor, 2 free hops", (("T", "a", 0), ("T", "x", 1), ("x", "y", 2)), ("a",)),
    "S7": Shape("1 required anchor, 2 optional", (("T", "a", 0), ("T", "b", 1), ("T", "c", 2)), tuple("abc"), (1, 2)),
    "S8": Shape("3 optional anchors", (("T", "a", 0), ("T", "b", 1), ("T", "c", 2)), tuple("abc"), (0, 1, 2)),
    "S9": Shape("1 anchor, price of the answer", (("T", "a", 0),), ("a",), cheap=("T",)),
    "S10": Shape(
        "2 hops, price on the way, 1 optional", (("T", "m", 0), ("m", "a", 1), ("T", "b", 2)), ("a", "b"), (2,), ("m",)
    ),
}


Execute = Callable[[Plan, Bindings], GraphResult]


def main() -> None:
    """Build the graph, run all shapes, print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--plans", type=int, default=100, help="per shape")
    parser.add_argument("--candidates", type=int, default=20, help="per anchor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bolt", action="store_true", help="also as Cypher on a server")
    parser.add_argument("--heap", default="4g", help="of the packaged server")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        con = stack.enter_context(connect(Path(folder) / "skb.duckdb"))
        fill_store(con, args.scale, rng)
        CsrGraph.from_skb(duckdb_of_two_nodes())  # compiles the loops
        begin = time.perf_counter()
        graph = CsrGraph.from_skb(con)
        report_graph(con, graph, time.perf_counter() - begin)
        executor = MemoryExecutor(graph, SCHEMA, FieldValues.of(con, SCHEMA))
        engines: dict[str, Execute] = {
            "memory": executor.execute,
            "SQL": lambda plan, bindings: execute_sql(con, plan, SCHEMA, bindings),
        }
        if args.bolt:
            engines["Bolt"] = stack.enter_context(bolt_engine(con, args.heap))
        print(f"{args.plans} plans per shape, {args.candidates} candidates per anchor; milliseconds p50/p95")
        head = "".join(f"{name:>17}" for name in engines)
        print(f"{'':44}{head}{'SQL CPU':>9}  p50 as a multiple of memory's; routes")
        for name, shape in SHAPES.items():
            cases = [draw_case(graph, shape, args.candidates, rng) for _ in range(WARM_UP[args.bolt] + args.plans)]
            print(f"{name} {shape.title:41}{run_shape(engines, cases, args.plans)}", flush=True)
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


@contextmanager
def bolt_engine(con: duckdb.DuckDBPyConnection, heap: str) -> Iterator[Execute]:
    """A server that holds the graph of the store."""
    from skb_pipeline_tests.bolt_loader import GraphRows
    from skb_pipeline_tests.bolt_server import external_server, packaged_server

    def fill(folder: Path) -> None:
        begin = time.perf_counter()
        write_database(con, SCHEMA, folder, heap)
        print(f"written in bulk in {time.perf_counter() - begin:.0f} s", flush=True)

    external = bool(os.environ.get("NEO4J_URI"))
    with external_server() if external else packaged_server(heap, fill) as server:
        if external:
            begin = time.perf_counter()
            server.hold(GraphRows.of(con), SCHEMA)
            print(f"loaded over Bolt in {time.perf_counter() - begin:.0f} s", flush=True)
        yield BoltExecutor(server.driver, SCHEMA, server.database).execute


def fill_store(con: duckdb.DuckDBPyConnection, scale: float, rng: np.random.Generator) -> None:
    """Nodes and edges as an SKB file has them. Categories keep their number at every scale, so hubs grow with it."""
    con.execute(TABLES)
    sizes = {kind: n if kind == "category" else max(round(n * scale), 10) for kind, n in NODES.items()}
    firsts = dict(zip(sizes, np.cumsum([0, *sizes.values()])[:-1].tolist(), strict=True))
    kinds = np.repeat(np.array(list(sizes), dtype=object), list(sizes.values()))
    con.register("node_rows", pd.DataFrame({"node_id": np.arange(len(kinds)), "node_type": kinds}))
    con.execute(
        "INSERT INTO nodes "
        "SELECT node_id, node_id::VARCHAR, node_type, 'n' || node_id, CASE WHEN node_type = 'product' AND "
        "node_id % 10 > 0 THEN json_object('price', hash(node_id) % 10000 / 100.0) ELSE '{}' END, '', node_id "
        "FROM node_rows"
    )
    n_edges = 0
    for relation, (tail, n) in EDGES.items():
        count = round(n * scale)
        heads = firsts["product"] + skewed(sizes["product"], count, 1000.0, 0.9, rng)
        spread, uniform = (8.0, 0.0) if tail == "category" else (300.0, 0.25)
        tails = firsts[tail] + skewed(sizes[tail], count, spread, uniform, rng)
        pairs = np.unique(heads * len(kinds) + tails)
        rows = pd.DataFrame({"head": pairs // len(kinds), "tail": pairs % len(kinds)})
        con.register("edge_rows", rows.assign(edge_id=np.arange(len(rows)) + n_edges))
        con.execute("INSERT INTO edges SELECT edge_id, head, ?, tail FROM edge_rows", [relation])
        n_edges += len(rows)
    build_adjacency(con)


def skewed(size: int, count: int, spread: float, uniform: float, rng: np.random.Generator) -> np.ndarray:
    """``count`` numbers below ``size``: a share ``uniform`` evenly, the others as 1 / (rank + spread).

    Ranks are a random order of the numbers.
    """
    logs = rng.uniform(np.log(spread), np.log(size + spread), count)
    ranks = np.minimum((np.exp(logs) - spread).astype(np.int64), size - 1)
    even = rng.random(count) < uniform
    ranks[even] = rng.integers(0, size, int(even.sum()))
    return rng.permutation(size)[ranks]


def duckdb_of_two_nodes() -> duckdb.DuckDBPyConnection:
    """A store with one edge."""
    con = duckdb.connect()
    con.execute(TABLES)
    con.execute("INSERT INTO nodes SELECT i, i::VARCHAR, 'product', 'n', '{}', '', i FROM range(2) r(i)")
    con.execute("INSERT INTO edges VALUES (0, 0, 'also_buy', 1)")
    return con


def report_graph(con: duckdb.DuckDBPyConnection, graph: CsrGraph, seconds: float) -> None:
    """Size, build time and bytes per edge."""
    row = con.execute("SELECT count(*) FROM edges").fetchone()
    n_edges = int(row[0]) if row else 0
    degrees = np.zeros(graph.n_nodes, dtype=np.int64)
    for name in graph.relations:
        relation = graph.relation(name)
        if relation is not None:
            degrees[relation.first_row : relation.first_row + len(relation.indptr) - 1] += np.diff(relation.indptr)
    p50, p95, p999 = np.percentile(degrees, [50, 95, 99.9])
    print(f"{graph.n_nodes:,} nodes, {n_edges:,} edges, built in {seconds:.2f} s")
    print(f"degree p50 {p50:.0f}, p95 {p95:.0f}, p99.9 {p999:.0f}, max {degrees.max():,}")
    print(f"bytes per edge: {graph.nbytes(edge_ids=False) / n_edges:.1f}, with edge ids {graph.nbytes() / n_edges:.1f}")


def draw_case(graph: CsrGraph, shape: Shape, n_candidates: int, rng: np.random.Generator) -> tuple[Plan, Bindings]:
    """A plan grown around one true match, with candidates."""
    while True:
        relations = draw_relations(shape, rng)
        nodes = {"T": int(rng.integers(*graph.type_range("product")))}
        for near, far, place in shape.hops:
            around = neighbours(graph, relations[place], nodes[near])
            if not len(around):
                break
            nodes[far] = int(rng.choice(around))
        else:
            break
    hops = [
        {
            "from": near,
            "rel": relations[place],
            "to_var": far,
            "to_label": kind_of(graph, nodes[far]),
            "optional": i in shape.optional,
        }
        for i, (near, far, place) in enumerate(shape.hops)
    ]
    where = [{"var": var, "field": "price", "op": "<=", "value": 50} for var in shape.cheap]
    anchors = [{"var": var, "text": "x", "label": kind_of(graph, nodes[var])} for var in shape.anchors]
    target = {"labels": ["product"]}
    plan = Plan.model_validate({"anchors": anchors, "hops": hops, "target": target, "where": where})
    place_of = {near: place for near, _, place in reversed(shape.hops)} | {far: p for _, far, p in shape.hops}
    bindings = {}
    for var in shape.anchors:
        positions = candidates(graph, relations[place_of[var]], nodes[var], n_candidates, rng)
        bindings[var] = graph.node_ids[positions].astype(np.int64), rng.random(len(positions))
    return plan, bindings


def draw_relations(shape: Shape, rng: np.random.Generator) -> list[str]:
    """Different relations; one whose far end has hops of its own other than of the same relation joins products."""
    names = rng.permutation(list(EDGES)).tolist()
    onward = {place for _, far, place in shape.hops for near, _, other in shape.hops if near == far and other != place}
    for place in onward:
        other = next(i for i, name in enumerate(names) if name in ALSO and i not in onward - {place})
        names[place], names[other] = names[other], names[place]
    return names


def neighbours(graph: CsrGraph, name: str, node: int) -> np.ndarray:
    """Positions of a node's neighbours."""
    relation = graph.relation(name)
    row = node - relation.first_row if relation is not None else -1
    if relation is None or not 0 <= row < len(relation.indptr) - 1:
        return np.empty(0, dtype=np.int32)
    return relation.neighbours[relation.indptr[row] : relation.indptr[row + 1]]


def kind_of(graph: CsrGraph, node: int) -> str:
    """Type of a position."""
    return graph.node_types[int(np.searchsorted(graph.type_starts, node, side="right")) - 1]


def candidates(graph: CsrGraph, name: str, true: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """The true node, and of its type half of the others uniformly, half as the ends of random edges."""
    low, high = graph.type_range(kind_of(graph, true))
    relation = graph.relation(name)
    assert relation is not None
    ends = relation.neighbours[rng.integers(0, len(relation.neighbours), 40 * n)]
    by_edges = ends[(ends >= low) & (ends < high)][: (n - 1) // 2]
    uniform = rng.integers(low, high, n - 1 - len(by_edges))
    return np.array(list(dict.fromkeys([true, *by_edges.tolist(), *uniform.tolist()])), dtype=np.int64)


def run_shape(engines: Mapping[str, Execute], cases: list[tuple[Plan, Bindings]], counted: int) -> str:
    """One line of figures over the last ``counted`` plans; those before warm the engines up.

    Raises:
        AssertionError: two engines differ, so that their times say nothing.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    routes: Counter[str] = Counter()
    for plan, bindings in cases:
        results = {name: measured(times[name], execute, plan, bindings) for name, execute in engines.items()}
        first = results["memory"]
        for name, result in results.items():
            assert (result.outcome, result.n_cand) == (first.outcome, first.n_cand), (name, plan, result, first)
            assert (result.optional, result.lacking) == (first.optional, first.lacking), (name, plan, result, first)
            np.testing.assert_array_equal(result.node_ids, first.node_ids)
            np.testing.assert_array_equal(result.scores, first.scores)
        routes[str(first.route)] += 1
    walls = {name: np.percentile([wall for wall, _ in pairs[-counted:]], [50, 95]) for name, pairs in times.items()}
    cpu = {name: np.median([used for _, used in pairs[-counted:]]) for name, pairs in times.items()}
    figures = "".join(f"{f'{p50:.2f}/{p95:.2f}':>17}" for p50, p95 in walls.values())
    ratios = ", ".join(f"{name} {p50 / walls['memory'][0]:.1f}" for name, (p50, _) in walls.items() if name != "memory")
    used = ", ".join(f"{route} {n}" for route, n in routes.most_common())
    return f"{figures}{cpu['SQL'] / cpu['memory']:9.1f}  {ratios}; {used}"


def measured(into: list[tuple[float, float]], execute: Execute, plan: Plan, bindings: Bindings) -> GraphResult:
    """The result; the call's wall time and this process's CPU time (ms, all threads) are appended to ``into``."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = execute(plan, bindings)
    into.append(((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000))
    return result


if __name__ == "__main__":
    main()
