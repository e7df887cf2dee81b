import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.questions.from_source import queries_from_source
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.shared_data import build_shared_skb, shared_spec
from skb_pipeline_tests.toy import toy_spec


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), folder / name)


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Any]:
    write(tmp_path, "products.parquet", [
        {"asin": "007", "title": "NA", "tags": "a | b"}, {"asin": "8", "title": "Tent", "tags": None},
    ])  # fmt: skip
    write(tmp_path, "brands.parquet", [{"id": 9, "name": "Acme"}])
    write(tmp_path, "edges.parquet", [
        {"a": "007", "b": "8", "r": "also_buy"}, {"a": "007", "b": "9", "r": "has_brand"},
        {"a": "007", "b": "77", "r": "also_buy"},
    ])  # fmt: skip
    write(tmp_path, "queries.parquet", [
        {"query_id": 1, "query": "a tent", "split": "test", "answer_ids": "[8, 8, 57]", "kind": True},
        {"query_id": 2, "query": "nothing", "split": "val", "answer_ids": "[]", "kind": None},
    ])  # fmt: skip
    return {
        "folder": str(tmp_path),
        "nodes": [
            {"files": "prod*.parquet", "id": "asin", "type_value": "product",
             "fields": {"title": "title", "feature": "tags"}, "separators": {"feature": " | "}},
            {"files": "brands.parquet", "id": "id", "type_value": "brand", "fields": {"name": "name"}},
        ],
        "edges": [{"files": "edges.parquet", "head": "a", "tail": "b", "relation": "r"}],
        "queries": [{"files": "queries.parquet", "template": "kind", "template_names": {"True": "short"}}],
    }  # fmt: skip


def source(args: dict[str, Any]) -> TablesSource:
    return TablesSource(TablesArgs.model_validate(args))


def test_tables_become_an_skb_with_its_questions(tmp_path: Path, shop: dict[str, Any]) -> None:
    report = ingest(toy_spec(), source(shop), tmp_path / "s.duckdb")
    assert report.nodes_by_type == {"product": 2, "brand": 1}
    assert report.edges_by_relation["has_brand"] == 1
    assert report.edges["quarantined"] == 1
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        stored = dict(con.execute("SELECT external_id, fields::VARCHAR FROM nodes").fetchall())
        assert json.loads(stored["007"]) == {"title": "NA", "feature": ["a", "b"]}
        frame, queries = queries_from_source(con, source(shop).queries() or [], ["product"])
        tent = con.execute("SELECT node_id FROM nodes WHERE external_id = '8'").fetchone()[0]  # type: ignore[index]
    assert frame["answer_ids"].tolist() == [[tent, -1], []]
    assert frame["template"].tolist() == ["short", None]
    assert queries.metadata() == {
        "splits": {"test": 1, "val": 1},
        "repeated_answers": 1,
        "absent_answers": {"test": 1},
        "absent_examples": ["57"],
        "without_answers": 1,
    }


@pytest.mark.parametrize(
    "answers", ["__import__('os').system('touch x')", "[1, 2", "8", '{"a": 1}', "[[1]]", "[true]", "[1.5]"]
)
def test_answers_are_read_as_json_and_nothing_else(tmp_path: Path, shop: dict[str, Any], answers: str) -> None:
    write(tmp_path, "queries.parquet", [{"query_id": 1, "query": "q", "split": "test", "answer_ids": answers}])
    shop["queries"] = [{"files": "queries.parquet"}]
    with pytest.raises(ValueError, match=r"queries\.parquet:1: answer_ids: "):
        list(source(shop).queries() or [])
    assert not (tmp_path / "x").exists()


def test_faults_are_named(tmp_path: Path, shop: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches 'nope\*'"):
        source({**shop, "edges": [{**shop["edges"][0], "files": "nope*"}]}).files()
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    with pytest.raises(FileNotFoundError, match="environment variable not set"):
        source({**shop, "folder": "$NOT_SET_HERE/x"}).files()
    with pytest.raises(ValueError, match=r"edges\.parquet: columns \['zz'\] are missing"):
        list(source({**shop, "edges": [{**shop["edges"][0], "head": "zz"}]}).edges())
    with pytest.raises(ValueError, match="either type"):
        source({**shop, "nodes": [{**shop["nodes"][0], "type": "asin"}]})
    write(tmp_path, "brands.parquet", [{"id": 9.0, "name": "Acme"}])
    with pytest.raises(ValueError, match=r"brands\.parquet: id: ids must be text or integers, this column is double"):
        list(source(shop).nodes())
    write(tmp_path, "brands.parquet", [{"id": 8, "name": "Acme"}])
    with pytest.raises(ValueError, match=r"id '8' is used by 'brand' and by 'product'"):
        list(source(shop).edges())
    write(tmp_path, "queries.parquet", [{"query_id": 1, "query": "q", "split": "dev", "answer_ids": "[]"}])
    with pytest.raises(ValueError, match=r"queries\.parquet:1: split: 'dev' is not one of"):
        list(source({**shop, "queries": [{"files": "queries.parquet"}]}).queries() or [])


@pytest.mark.shared_data
def test_a_real_graph_with_real_questions(tmp_path: Path) -> None:
    path = build_shared_skb("primekg_partial", tmp_path)
    spec = shared_spec("primekg_partial")
    with connect(path, read_only=True) as con:
        counts = con.execute("SELECT (SELECT count(*) FROM nodes), (SELECT count(*) FROM edges)").fetchone()
        from skb_pipeline.datasets.sources import open_source

        frame, report = queries_from_source(con, open_source(spec).queries() or [], spec.candidate_types)
    assert counts == (18688, 66771)
    assert report.splits == {"val": 558, "train": 1504, "test": 685}
    assert report.absent_answers == {}
    assert isinstance(frame, pd.DataFrame)
    assert (frame["template"] == "one_hop").sum() == 199
