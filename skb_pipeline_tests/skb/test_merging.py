"""Rows of one key that differ: one node, by a rule that does not see the order of rows."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import Edge, ListSource, buy, toy_spec

Node = tuple[Any, Any, dict[str, Any]]


def load(path: Path, nodes: list[Node], edges: list[Edge] | None = None, **spec: Any) -> LoadReport:
    path.unlink(missing_ok=True)
    return ingest(toy_spec(**spec), ListSource(nodes, edges or []), path)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with connect(path, read_only=True) as con:
        return con.execute(query).fetchall()


def fields(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = rows(path, "SELECT node_type, external_id, fields::VARCHAR FROM nodes")
    return {(node_type, external_id): json.loads(text) for node_type, external_id, text in found}


def test_differing_rows_become_one_node_with_all_its_edges(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    nodes: list[Node] = [
        ("product", "b7", {"title": "Kettle", "price": "30"}),
        ("product", "b7", {"title": "Kettle, 1.7 l", "price": "30", "feature": ["steel"]}),
        ("product", "b7", {"title": "Kettle", "price": "30"}),
        ("product", "b7", {"price": "29", "feature": ["steel", "cordless"], "rank": 4}),
        ("product", "c1", {"title": "Mug"}),
        ("brand", "b7", {"name": "Kettle Co"}),
    ]
    edges = [buy("b7", "c1"), buy("c1", "b7", "similar"), ("product", "c1", "has_brand", "brand", "b7")]
    report = load(path, nodes, edges)
    assert report.nodes == {"rows_in": 6, "stored": 3, "quarantined": 0, "duplicates_dropped": 1, "merged": 2}
    assert report.edges["stored"] == 3
    # Fullest rows first: those with three fields, in the order of their content ('{"feature": ["steel", "cordless"]'
    # comes before '{"feature": ["steel"]').
    assert fields(path) == {
        ("product", "b7"): {"title": "Kettle, 1.7 l", "price": 29, "feature": ["steel", "cordless"], "rank": 4},
        ("product", "c1"): {"title": "Mug"},
        ("brand", "b7"): {"name": "Kettle Co"},
    }
    assert rows(path, "SELECT name FROM nodes WHERE external_id = 'b7' ORDER BY 1") == [
        ("Kettle Co",),
        ("Kettle, 1.7 l",),
    ]
    assert rows(path, "SELECT alias FROM aliases") == [("Kettle",)]
    merged = report.merged_nodes
    assert (merged.nodes, merged.rows, merged.examples) == (1, 2, ["product b7"])
    assert merged.conflicts == {"product.price": 1, "product.title": 1}
    assert merged.conflict_examples == {
        "product.price": ["b7: 29.0, not 30.0"],
        "product.title": ['b7: "Kettle, 1.7 l", not "Kettle"'],
    }
    assert merged.lists_joined == {}


def test_lists_have_the_items_of_all_rows_once_and_are_no_conflict(tmp_path: Path) -> None:
    nodes: list[Node] = [
        ("product", "1", {"title": "a", "feature": ["x", "y"], "aliases": ["A"]}),
        ("product", "1", {"title": "a", "feature": "z", "aliases": ["a", "AA"]}),
        ("product", "1", {"title": "a", "feature": ["y", "w"]}),
    ]
    report = load(tmp_path / "s.duckdb", nodes)
    (stored,) = fields(tmp_path / "s.duckdb").values()
    assert stored == {"title": "a", "feature": ["x", "y", "z", "w"], "aliases": ["A", "a", "AA"]}
    assert report.merged_nodes.conflicts == {}
    assert report.merged_nodes.lists_joined == {"product.aliases": 1, "product.feature": 1}
    # A name is no alias of its own node, whichever row says so.
    assert rows(tmp_path / "s.duckdb", "SELECT alias FROM aliases ORDER BY 1") == [("A",), ("AA",)]


def test_values_parsed_out_of_a_field_come_from_the_row_of_the_field(tmp_path: Path) -> None:
    types = {
        "product": {
            "fields": {"title": "text", "price": {"shape": "text", "parse": "price"}, **dict.fromkeys("xyz", "text")},
            "name_field": "title",
            "document": ["title", "price"],
        }
    }
    relations = [{"name": "also_buy", "head": "product", "tail": "product"}]
    more = dict.fromkeys("xyz", "w")
    for unclear, kept in [
        ({"price": "ask us"}, {"price": "$5", "price_min": 5, "price_max": 5}),
        # The fullest row comes first, and no number of another one stands beside its text.
        ({"price": "ask us", **more}, {"price": "ask us", **more}),
    ]:
        prices: list[dict[str, Any]] = [{"price": "$7"}, unclear, {"price": "$5"}]
        nodes: list[Node] = [("product", "1", {"title": "a", **values}) for values in prices]
        report = load(tmp_path / "s.duckdb", nodes, node_types=types, relations=relations)
        (stored,) = fields(tmp_path / "s.duckdb").values()
        assert stored == {"title": "a", **kept}
        assert report.merged_nodes.conflicts == {"product.price": 1}


def test_a_merged_node_equals_one_that_was_whole_from_the_start(tmp_path: Path) -> None:
    about = 'naïve \u001f “quoted” \\ and "plain"'
    whole: Node = ("product", "9", {"title": "T", "about": about, "price": 1e22, "rank": 2**62, "feature": ["a"]})
    parts: list[Node] = [("product", "9", {name: value}) for name, value in whole[2].items()]
    one = load(tmp_path / "a.duckdb", [whole])
    many = load(tmp_path / "b.duckdb", parts)
    assert many.data_version == one.data_version
    assert many.nodes["merged"] == 4
    everything = "SELECT * FROM nodes"
    assert rows(tmp_path / "a.duckdb", everything) == rows(tmp_path / "b.duckdb", everything)


ROW = st.fixed_dictionaries(
    {},
    optional={
        "title": st.sampled_from(["a", "b", "ä"]),
        "feature": st.lists(st.sampled_from(["x", "y", "z"]), max_size=3),
        "aliases": st.sampled_from(["a", "q"]),
        "rank": st.sampled_from(["1", "10", "many"]),
    },
)
NODES = st.lists(st.tuples(st.just("product"), st.sampled_from(["1", "2"]), ROW), max_size=10)


@settings(max_examples=examples(60, quick=6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NODES, st.randoms())
def test_the_order_of_rows_changes_nothing(tmp_path: Path, nodes: list[Node], order: random.Random) -> None:
    first = load(tmp_path / "a.duckdb", nodes)
    assert first.nodes["stored"] == len({key for _, key, _ in nodes})
    assert len(nodes) == sum(first.nodes[what] for what in ("stored", "quarantined", "duplicates_dropped", "merged"))
    order.shuffle(nodes)
    second = load(tmp_path / "b.duckdb", nodes)
    assert second == first
    for table in ("nodes", "aliases"):
        query = f"SELECT * FROM {table} ORDER BY ALL"
        assert rows(tmp_path / "a.duckdb", query) == rows(tmp_path / "b.duckdb", query)


def test_rows_of_two_files_merge_whatever_the_files_are_called(tmp_path: Path) -> None:
    texts = ['{"id": 1, "title": "Lamp", "rank": 3}\n{"id": 2, "title": "Rug"}\n',
             '{"id": 2, "title": "Rug, red", "feature": ["wool"]}\n{"id": 1, "price": 12.5}\n']  # fmt: skip
    versions = set()
    for case, (first, second) in enumerate([texts, texts[::-1]]):
        folder = tmp_path / str(case)
        folder.mkdir()
        (folder / "p1.jsonl").write_text(first)
        (folder / "p2.jsonl").write_text(second)
        table = {"files": "p*.jsonl", "id": "id", "type_value": "product",
                 "fields": {f: f for f in ("title", "rank", "price", "feature")}}  # fmt: skip
        source = TablesSource(TablesArgs.model_validate({"folder": str(folder), "nodes": [table]}))
        report = ingest(toy_spec(), source, folder / "s.duckdb")
        versions.add(report.data_version)
        assert fields(folder / "s.duckdb") == {
            ("product", "1"): {"title": "Lamp", "rank": 3, "price": 12.5},
            ("product", "2"): {"title": "Rug, red", "feature": ["wool"]},
        }
        assert rows(folder / "s.duckdb", "SELECT alias FROM aliases") == [("Rug",)]
    assert len(versions) == 1


@pytest.mark.deep
def test_many_rows_that_differ_are_merged_in_batches(tmp_path: Path) -> None:
    """More than one batch on both ways, and one key with many rows."""
    nodes: list[Node] = [
        ("product", str(i % 6000), {"title": f"t{i % 6000}", "rank": i // 6000}) for i in range(12_000)
    ]
    nodes += [("product", "x", {"title": f"name {i}", "feature": [f"f{i}"]}) for i in range(2_000)]
    report = load(tmp_path / "s.duckdb", nodes)
    assert report.nodes == {"rows_in": 14_000, "stored": 6_001, "quarantined": 0, "duplicates_dropped": 0,
                            "merged": 6_000 + 1_999}  # fmt: skip
    assert report.merged_nodes.conflicts == {"product.rank": 6_000, "product.title": 1}
    assert rows(tmp_path / "s.duckdb", "SELECT count(*) FROM aliases") == [(1_999,)]
    ranks = "SELECT DISTINCT fields->>'rank' FROM nodes WHERE external_id <> 'x'"
    assert rows(tmp_path / "s.duckdb", ranks) == [("0",)]
