import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings

from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.memory.ways import EITHER, HEAD, TAIL
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.skb.store import TABLES
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline_tests.conformance.graphs import Graph, bind, loaded, make_plan
from skb_pipeline_tests.conformance.plans import small_graphs
from skb_pipeline_tests.examples import examples

# Ids have gaps and are not in canonical order, which is 7, 40, 3, 9, 12; a self-loop, parallel edges, a free node.
NODES = {7: "paper", 40: "author", 3: "paper", 9: "author", 12: "field"}
EDGES = [(40, "writes", 7), (3, "cites", 7), (7, "cites", 3), (3, "cites", 3), (9, "writes", 3), (9, "writes", 7)]
SCHEMA = GraphSchema(
    ("paper", "author", "field"), (Triple("author", "writes", "paper"), Triple("paper", "cites", "paper")), ("paper",)
)
PLAN = make_plan({"a": "author"}, ["a -writes- m:paper", "m -cites- T:paper"])


def rows_of(graph: CsrGraph) -> dict[str, dict[int, list[tuple[int, int]]]]:
    """relation -> node id -> (neighbour's id, edge id), in stored order; without empty rows."""
    found: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for name in graph.relations:
        relation = graph.relation(name)
        assert relation is not None
        rows = found[name] = {}
        for i, (begin, end) in enumerate(zip(relation.indptr[:-1], relation.indptr[1:], strict=True)):
            entries = slice(begin, end)
            pairs = zip(graph.node_ids[relation.neighbours[entries]], relation.edge_ids[entries], strict=True)
            if begin < end:
                rows[int(graph.node_ids[relation.first_row + i])] = [(int(n), int(e)) for n, e in pairs]
    return found


def ends_of(graph: CsrGraph) -> dict[tuple[int, int], int]:
    """(node id, edge id) -> which end of the edge the node is."""
    found = {}
    for name in graph.relations:
        relation = graph.relation(name)
        assert relation is not None
        rows = np.repeat(np.arange(len(relation.indptr) - 1), np.diff(relation.indptr)) + relation.first_row
        nodes = graph.node_ids[rows].tolist()
        found |= dict(zip(zip(nodes, relation.edge_ids.tolist(), strict=True), relation.ends.tolist(), strict=True))
    return found


def test_every_edge_is_at_both_ends_and_a_self_loop_once() -> None:
    with loaded(Graph(NODES, EDGES)) as con:
        graph = CsrGraph.from_skb(con)
    assert graph.node_types == ("author", "field", "paper")
    assert graph.node_ids.tolist() == [40, 9, 12, 7, 3]  # by type, then canonical order
    assert graph.canonical.tolist() == [1, 3, 4, 0, 2]
    assert [graph.type_range(t) for t in ("author", "field", "paper", "drug")] == [(0, 2), (2, 3), (3, 5), (0, 0)]
    assert rows_of(graph) == {
        "cites": {7: [(3, 1), (3, 2)], 3: [(7, 1), (7, 2), (3, 3)]},
        "writes": {40: [(7, 0)], 9: [(7, 5), (3, 4)], 7: [(40, 0), (9, 5)], 3: [(9, 4)]},
    }
    assert graph.n_entries == 11
    assert graph.ends.dtype == np.uint8
    ends = ends_of(graph)
    assert (ends[3, 1], ends[7, 1], ends[3, 3]) == (HEAD, TAIL, EITHER)
    cites = graph.relation("cites")
    assert cites is not None
    assert (cites.first_row, len(cites.indptr)) == (3, 3)  # rows for papers alone
    assert graph.relation("likes") is None


@settings(max_examples=examples(40))
@given(small_graphs())
def test_rows_equal_those_of_a_dictionary(graph: Graph) -> None:
    expected: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for edge, (head, relation, tail) in enumerate(graph.edges):
        for near, far in {(head, tail), (tail, head)}:
            expected.setdefault(relation, {}).setdefault(near, []).append((far, edge))
    with loaded(graph) as con:
        built = CsrGraph.from_skb(con)
    place = {node: i for i, node in enumerate(built.node_ids.tolist())}
    for rows in expected.values():
        for entries in rows.values():
            entries.sort(key=lambda pair: (place[pair[0]], pair[1]))
    assert rows_of(built) == expected
    at_ends: dict[tuple[int, int], int] = {}
    for edge, (head, _, tail) in enumerate(graph.edges):
        for node, end in ((head, HEAD), (tail, TAIL)):
            at_ends[node, edge] = at_ends.get((node, edge), 0) | end
    assert ends_of(built) == at_ends
    for kind in set(graph.nodes.values()):
        ids = built.node_ids[slice(*built.type_range(kind))].tolist()
        assert ids == [node for node, of in graph.nodes.items() if of == kind]  # in canonical order


def test_positions_of_known_and_unknown_ids() -> None:
    with loaded(Graph(NODES, EDGES)) as con:
        graph = CsrGraph.from_skb(con)
    ids = np.array([3, 40, 8, -1, 41, 2**31 + 3, 2**40, 9])
    assert graph.positions(ids).tolist() == [4, 0, -1, -1, -1, -1, -1, 1]


def test_ids_beyond_32_bits_and_with_huge_gaps_are_kept() -> None:
    big = 2**40
    with loaded(Graph({big: "paper", 5: "paper"}, [(big, "cites", 5)])) as con:
        graph = CsrGraph.from_skb(con)
    assert rows_of(graph) == {"cites": {big: [(5, 0)], 5: [(big, 0)]}}
    assert graph.positions(np.array([5, big, 6])).tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("head", "tail", "end"), [(7, 999, "tail"), (999, 7, "head"), (7, 2**40, "tail"), (-3, 7, "head")]
)
def test_an_edge_without_a_node_at_an_end_is_an_error(head: int, tail: int, end: str) -> None:
    with loaded(Graph(NODES, EDGES)) as con:
        con.execute("INSERT INTO edges VALUES (99, ?, 'cites', ?)", [head, tail])
        with pytest.raises(ValueError, match=f"1 edges of relation 'cites' have a {end} that is no node"):
            CsrGraph.from_skb(con)


def test_a_negative_node_id_is_an_error() -> None:
    with loaded(Graph({-1: "paper"}, [])) as con, pytest.raises(ValueError, match="-1 is negative"):
        CsrGraph.from_skb(con)


@pytest.mark.parametrize("nodes", [{}, {1: "paper", 2: "author"}])
def test_a_store_without_edges_gives_no_answers(nodes: dict[int, str], tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(TABLES)
        for place, (node, kind) in enumerate(nodes.items()):
            con.execute("INSERT INTO nodes VALUES (?, 'x' || ?, ?, '', '{}', '', ?)", [node, node, kind, place])
        CsrGraph.from_skb(con).save(tmp_path / "graph")
    graph = CsrGraph.load(tmp_path / "graph")
    assert (graph.n_nodes, graph.n_entries) == (len(nodes), 0)
    bindings = bind(a={node: 0.5 for node, kind in nodes.items() if kind == "author"})
    assert MemoryExecutor(graph, SCHEMA).execute(PLAN, bindings).outcome == "empty"


@pytest.mark.parametrize("mmap", [True, False])
def test_a_saved_graph_gives_the_same_answers(tmp_path: Path, mmap: bool) -> None:
    with loaded(Graph(NODES, EDGES)) as con:
        built = CsrGraph.from_skb(con, data={"skb": "v1"})
    built.save(tmp_path / "graph")
    graph = CsrGraph.load(tmp_path / "graph", mmap=mmap, data={"skb": "v1"})
    assert (rows_of(graph), ends_of(graph)) == (rows_of(built), ends_of(built))
    assert graph.data == {"skb": "v1"}
    assert graph.nbytes() == built.nbytes() == built.nbytes(edge_ids=False) + 11 * (4 + 1)
    results = [MemoryExecutor(g, SCHEMA).execute(PLAN, bind(a={9: 0.5, 40: 0.25})) for g in (built, graph)]
    assert [r.node_ids.tolist() for r in results] == [[7, 3]] * 2
    assert [r.scores.tolist() for r in results] == [[0.5, 0.5]] * 2


def test_a_graph_that_does_not_fit_its_manifest_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    with loaded(Graph(NODES, EDGES)) as con:
        CsrGraph.from_skb(con, data={"skb": "v1"}).save(folder)
    with pytest.raises(ManifestMismatchError, match=r"v1.*v2"):
        CsrGraph.load(folder, data={"skb": "v2"})
    whole = np.load(folder / "neighbours.npy")
    np.save(folder / "neighbours.npy", whole[:-1])
    with pytest.raises(ManifestMismatchError, match=r"neighbours is int32\[10\], expected int32\[11\]"):
        CsrGraph.load(folder)
    np.save(folder / "neighbours.npy", whole.astype(np.int64))
    with pytest.raises(ManifestMismatchError, match="neighbours is int64"):
        CsrGraph.load(folder)
    np.save(folder / "neighbours.npy", whole)
    indptr = np.load(folder / "indptr.npy")
    indptr[-1] -= 1
    np.save(folder / "indptr.npy", indptr)
    with pytest.raises(ManifestMismatchError, match="rows of relation 'writes' do not cover"):
        CsrGraph.load(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    with pytest.raises(ManifestMismatchError, match="format 1"):
        CsrGraph.load(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError):
        CsrGraph.load(folder)
