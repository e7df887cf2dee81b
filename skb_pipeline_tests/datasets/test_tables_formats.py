import csv
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.shared_data import shared_spec
from skb_pipeline_tests.toy import toy_spec

LOOKS_MISSING = ["NA", "None", "NaN", "null", "N/A", "nan", "n/a", "NULL", "-", "0", "007", "TRUE"]
NODES: dict[str, Any] = {
    "files": "nodes.csv", "id": "id", "type_value": "product", "fields": {"title": "title", "feature": "tags"},
}  # fmt: skip
EDGES: dict[str, Any] = {"files": "edges.csv", "head": "a", "tail": "b", "relation_value": "also_buy"}


def source(folder: Path, *, nodes: Any = NODES, edges: Any = (), queries: Any = ()) -> TablesSource:
    nodes = [nodes] if isinstance(nodes, dict) else nodes
    edges = [edges] if isinstance(edges, dict) else list(edges)
    queries = [queries] if isinstance(queries, dict) else list(queries)
    args = {"folder": str(folder), "nodes": nodes, "edges": edges, "queries": queries}
    return TablesSource(TablesArgs.model_validate(args))


def load(folder: Path, name: str, **tables: Any) -> tuple[LoadReport, dict[str, dict[str, Any]]]:
    """The report, and the stored fields by external id."""
    path = folder / f"{name}.duckdb"
    path.unlink(missing_ok=True)
    report = ingest(toy_spec(), source(folder, **tables), path)
    with connect(path, read_only=True) as con:
        rows = con.execute("SELECT external_id, fields::VARCHAR FROM nodes").fetchall()
    return report, {external_id: json.loads(fields) for external_id, fields in rows}


def edge_rows(adapter: TablesSource) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in adapter.edges() for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "tsv.gz"])
def test_words_that_look_missing_and_ids_with_zeros_survive_letter_for_letter(tmp_path: Path, kind: str) -> None:
    rows = [{"id": f"0{word}", "title": word, "tags": ""} for word in LOOKS_MISSING]
    write(tmp_path / f"nodes.{kind}", rows)
    report, stored = load(tmp_path, "s", nodes={**NODES, "files": f"nodes.{kind}"})
    assert stored == {f"0{word}": {"title": word} for word in LOOKS_MISSING}
    assert report.coerced == {}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows as a file of the kind its name says; lists become cells with `` | `` in text files."""
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        if ".jsonl" in path.name:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            return
        writer = csv.writer(file, delimiter="\t" if ".tsv" in path.name else ",")
        writer.writerow(rows[0])
        writer.writerows([" | ".join(v) if isinstance(v, list) else v for v in map(row.get, rows[0])] for row in rows)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00|"), max_size=12).map(str.strip)
ROW = st.fixed_dictionaries(
    {"id": st.integers(0, 10**25).map(str), "title": TEXT, "tags": st.lists(TEXT.filter(bool), max_size=3)}
)


@settings(max_examples=examples(10, quick=4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, min_size=1, max_size=6, unique_by=lambda row: row["id"]), st.randoms())
def test_one_catalogue_in_three_formats_and_any_order_has_one_content_hash(
    tmp_path: Path, rows: list[dict[str, Any]], order: random.Random
) -> None:
    edges = [{"a": order.choice(rows)["id"], "b": order.choice([*rows, {"id": "x"}])["id"]} for _ in range(5)]
    versions = set()
    for kind in ("csv", "jsonl", "parquet"):
        order.shuffle(rows)
        order.shuffle(edges)
        write(tmp_path / f"nodes.{kind}", rows)
        write(tmp_path / f"edges.{kind}", edges)
        nodes = {**NODES, "files": f"nodes.{kind}", "separators": {"feature": " | "}}
        report, stored = load(tmp_path, kind, nodes=nodes, edges={**EDGES, "files": f"edges.{kind}"})
        assert len(stored) == len(rows)
        versions.add((report.data_version, report.identity, json.dumps(report.edges, sort_keys=True)))
    assert len(versions) == 1


def test_csv_with_byte_order_mark_quoted_newlines_other_delimiter_and_encoding(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes(b'\xef\xbb\xbfid,title,tags\r\n007,"two\nlines, ""quoted""",\r\n')
    assert load(tmp_path, "s")[1] == {"007": {"title": 'two\nlines, "quoted"'}}
    (tmp_path / "nodes.csv").write_bytes('id;title;tags\n1;5" Zelt für zwei;x\n'.encode("latin-1"))
    table = {**NODES, "delimiter": ";", "encoding": "latin-1", "quotes": False}
    assert load(tmp_path, "s", nodes=table)[1] == {"1": {"title": '5" Zelt für zwei', "feature": ["x"]}}


def test_csv_without_a_line_of_names_has_numbered_columns(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("1,one\n2,two\n")
    (tmp_path / "edges.tsv").write_text("1\t2\n")
    nodes = {"files": "nodes.csv", "header": False, "id": "1", "type_value": "product", "fields": {"title": "2"}}
    edges = {**EDGES, "files": "edges.tsv", "header": False, "head": "1", "tail": "2"}
    report, stored = load(tmp_path, "s", nodes=nodes, edges=edges)
    assert (set(stored), report.edges["stored"]) == ({"1", "2"}, 1)


def test_unreadable_rows_of_nodes_are_quarantined_under_their_row(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,title,tags\n1,a,\n2,b\n3,c,\n4,d,,\n5,e,\n")
    lines = [
        '{"id": 6, "title": "f"}',
        "{broken",
        "",
        "[1]",
        '{"id": 7.0}',
        '{"id": true}',
        '{"id": "8", "title": "g"}',
    ]
    (tmp_path / "nodes.jsonl").write_text("\n".join(lines))
    report, stored = load(tmp_path, "s", nodes=[NODES, {**NODES, "files": "nodes.jsonl"}])
    assert set(stored) == {"1", "3", "5", "6", "8"}
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        found = con.execute("SELECT source, \"row\", reason, raw->>'text' FROM quarantine ORDER BY 1, 2").fetchall()
    ragged, no_json = "row has another number of cells than the file has columns", "line is not a JSON object"
    no_id = "id is neither text nor an integer"
    assert found == [
        ("nodes.csv", 2, ragged, "2,b"), ("nodes.csv", 4, ragged, "4,d,,"),
        ("nodes.jsonl", 2, no_json, "{broken"), ("nodes.jsonl", 4, no_json, "[1]"),
        ("nodes.jsonl", 5, no_id, '{"id": 7.0}'), ("nodes.jsonl", 6, no_id, '{"id": true}'),
    ]  # fmt: skip
    numbers = [node.row for node in source(tmp_path).nodes() if node.fault is None]
    assert numbers == [1, 3, 5]
    assert report.nodes["rows_in"] == 11


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("edges.csv", b"a,b\n1,2\n3\n", r"edges\.csv:2: row has another number of cells"),
        ("edges.jsonl", b'{"a": 1, "b": 2}\n{oops\n', r"edges\.jsonl:2: line is not a JSON object: '{oops'"),
        ("edges.jsonl", b'{"a": 1, "b": 2}\n{"a": 1.5, "b": 2}\n', r"edges\.jsonl:2: a: id is neither"),
        ("edges.csv", b'a,b\n1,2\n1,"2\n3,4\n', r"edges\.csv: the quote opened in the row at line 3 is never closed"),
        ("edges.csv", b"a,b\n1,\xff\n", r"edges\.csv: cannot be read: .*invalid UTF8"),
        ("edges.csv", b"a,a\n1,2\n", r"edges\.csv: columns \['a'\] occur twice"),
        ("edges.csv", b"a\n", r"edges\.csv: columns \['b'\] are missing; there are \['a'\]"),
        ("edges.parquet", b"no parquet", r"edges\.parquet: is no Parquet file"),
        ("edges.xlsx", b"x", r"edges\.xlsx: no table; known are \.parquet, \.csv"),
    ],
)
def test_faults_in_files_of_edges_name_file_and_row(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / "nodes.csv").write_text("id,title,tags\n1,a,\n")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        edge_rows(source(tmp_path, edges={**EDGES, "files": name}))


def test_broken_surrogates_and_huge_integers_of_jsonl_reach_the_cleaning_step(tmp_path: Path) -> None:
    huge = 12345678901234567890123456789
    lines = [
        f'{{"id": {huge}, "title": "bike \\ud83d"}}',
        '{"id": "Cafe\\u0301 \\udc00", "title": "x", "tags": [["a", 3], null]}',
    ]
    (tmp_path / "nodes.jsonl").write_text("\n".join(lines))
    (tmp_path / "edges.jsonl").write_text(f'{{"a": {huge}, "b": "Caf\\u00e9 \\udc00"}}\n')
    nodes = {**NODES, "files": "nodes.jsonl"}
    report, stored = load(tmp_path, "s", nodes=nodes, edges={**EDGES, "files": "edges.jsonl"})
    assert stored == {str(huge): {"title": "bike �"}, "Café �": {"title": "x", "feature": ["a", "3"]}}
    assert report.cleaned["surrogate_replaced"] == 2
    assert report.edges["stored"] == 1


def test_ids_of_parquet_may_be_categories_and_dates_become_text(tmp_path: Path) -> None:
    import datetime

    ids = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table(
        {"id": ids.take(pa.array([0, 1])), "title": [datetime.date(2020, 1, 31), None], "tags": [["x"], []]}
    )
    pq.write_table(table, tmp_path / "nodes.parquet")
    _, stored = load(tmp_path, "s", nodes={**NODES, "files": "nodes.parquet"})
    assert stored == {"a": {"title": "2020-01-31", "feature": ["x"]}, "b": {}}


def test_edges_from_lists_inside_the_file_of_nodes(tmp_path: Path) -> None:
    rows = [{"id": "1", "title": "a", "tags": ["1", "2"]}, {"id": "2", "title": "b", "tags": ["1", "9"]}]
    expected = [(1, "1", "1"), (1, "1", "2"), (2, "2", "1"), (2, "2", "9")]
    for kind, more in [("csv", {"tail_separator": " | "}), ("jsonl", {}), ("parquet", {})]:
        write(tmp_path / f"nodes.{kind}", rows)
        nodes = {**NODES, "files": f"nodes.{kind}"}
        edges = {**EDGES, "files": f"nodes.{kind}", "head": "id", "tail": "tags", **more}
        found = edge_rows(source(tmp_path, nodes=nodes, edges=edges))
        assert [(row, head, tail) for _, row, _, head, _, _, tail in found] == expected
        assert [types for *_, types, _ in found] == ["product", "product", "product", ""]


def test_nodes_and_edges_from_a_column_that_is_sometimes_empty(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,title,tags,brand\n1,a,,Acme\n2,b,,\n3,c,,Acme\n")
    brand = {
        "files": "nodes.csv",
        "id": "brand",
        "type_value": "brand",
        "fields": {"name": "brand"},
        "skip_empty_ids": True,
    }
    edges = {
        **EDGES,
        "head": "id",
        "tail": "brand",
        "relation_value": "has_brand",
        "files": "nodes.csv",
        "skip_empty_tails": True,
    }
    report, stored = load(tmp_path, "s", nodes=[NODES, brand], edges=edges)
    assert stored["Acme"] == {"name": "Acme"}
    assert (report.nodes["duplicates_dropped"], report.edges["stored"], report.edges["rows_in"]) == (1, 2, 2)
    assert report.out_of_scope == {"nodes.csv: rows without brand": 2}


def test_types_of_the_ends_come_from_columns_values_or_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,title,tags\nCafe\u0301,a,\n2,b,\n", encoding="utf-8")
    (tmp_path / "edges.csv").write_text("a,b,r,t\nCaf\u00e9, 2 ,also_buy,product\n2,zz,,\n", encoding="utf-8")
    table = {**EDGES, "relation_value": None, "relation": "r"}
    assert edge_rows(source(tmp_path, edges=table)) == [
        ("edges.csv", 1, "product", "Caf\u00e9", "also_buy", "product", "2"),
        ("edges.csv", 2, "product", "2", "", "", "zz"),
    ]
    stated = {**table, "head_type": "brand", "tail_type_column": "t"}
    assert [(row[2], row[5]) for row in edge_rows(source(tmp_path, edges=stated))] == [
        ("brand", "product"),
        ("brand", ""),
    ]
    with pytest.raises(ValueError, match="either head_type or head_type_column"):
        source(tmp_path, edges={**stated, "head_type_column": "t"})


def test_values_of_the_column_of_relations_may_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,title,tags\n1,a,\n2,b,\n")
    (tmp_path / "edges.csv").write_text(
        "a,b,r\n1,2, p__buys__p\n2,1,p__buys__p\u200b\n1,1,\n2,2,other\n", encoding="utf-8"
    )
    table = {**EDGES, "relation_value": None, "relation": "r"}
    renamed = {**table, "relation_names": {"p__buys__p": "also_buy", "absent": "x"}}
    assert [row[4] for row in edge_rows(source(tmp_path, edges=renamed))] == ["also_buy", "also_buy", "", "other"]
    assert load(tmp_path, "s", edges=renamed)[0].edges_by_relation["also_buy"] == 2
    with pytest.raises(ValueError, match="relation_names renames values of the column"):
        source(tmp_path, edges={**EDGES, "relation_names": {"a": "b"}})


def test_dangling_ends_are_told_from_undeclared_relations(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,title,tags\n1,a,\n2,b,\n")
    (tmp_path / "edges.csv").write_text("a,b,r\n1,2,also_buy\n1,9,also_buy\n8,9,also_buy\n1,2,nope\n")
    report, _ = load(tmp_path, "s", edges={**EDGES, "relation_value": None, "relation": "r"})
    assert report.quarantine_reasons == {
        "head and tail do not exist": 1, "tail does not exist": 1, "relation is not declared between these types": 1,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------- questions


def asked(folder: Path, **table: Any) -> list[tuple[Any, ...]]:
    adapter = source(folder, queries=table)
    return [(q.row, q.query_id, q.query, q.split, q.answers) for q in adapter.queries() or []]


def test_questions_of_csv_and_jsonl(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text('query_id,query,answer_ids\n01,NA,"[1, ""007""]"\n02,what,[]\n')
    assert asked(tmp_path, files="q.csv") == [(1, "01", "NA", "test", ["1", "007"]), (2, "02", "what", "test", [])]
    (tmp_path / "q.csv").write_text("query_id,query,answer_ids\n01,NA,1; 2\n02,what,\n")
    assert [row[-1] for row in asked(tmp_path, files="q.csv", answers_separator=";")] == [["1", "2"], []]
    (tmp_path / "q.jsonl").write_text('{"query_id": 1, "query": "a", "answer_ids": [7, "x"], "split": "val"}\n')
    assert asked(tmp_path, files="q.jsonl") == [(1, "1", "a", "val", ["7", "x"])]
    assert asked(tmp_path, files="q.jsonl", split_value="train")[0][3] == "train"
    with pytest.raises(SourceError, match=r"q\.csv: columns \['split'\] are missing"):
        asked(tmp_path, files="q.csv", split="split")
    with pytest.raises(ValueError, match="split_value 'dev'"):
        asked(tmp_path, files="q.csv", split_value="dev")


def test_trec_judgements_give_answers_and_their_file_the_split(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(
        '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n{"_id": "q3", "text": "3"}\n'
    )
    (tmp_path / "test.qrels").write_text("q1 0 d1 1\nq1 0 d2 0\nq1 0 d3 2\nq2 0 d1 0\n")
    (tmp_path / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td with blank\t1\n")
    names = {"files": "q.jsonl", "id": "_id", "query": "text"}
    adapter = source(tmp_path, queries={**names, "qrels": "test.qrels"})
    assert [(q.query_id, q.split, q.answers) for q in adapter.queries() or []] == [
        ("q1", "test", ["d1", "d3"]), ("q2", "test", []),
    ]  # fmt: skip
    assert adapter.out_of_scope == {"q.jsonl: questions without a judgement in test.qrels": 1}
    assert asked(tmp_path, **names, qrels="train.tsv", split_value="train") == [
        (3, "q3", "3", "train", ["d with blank"])
    ]
    assert tmp_path / "train.tsv" in source(tmp_path, nodes={**NODES, "files": "q.jsonl"},
                                            queries={**names, "qrels": "train.tsv"}).files()  # fmt: skip
    for line, message in [("q9 0 d1 1", r"1 judged questions are not in q\.jsonl, such as \['q9'\]"),
                          ("q1 d1", r"train\.tsv:3: a judgement is"), ("q1 0 d1 high", r"train\.tsv:3:")]:  # fmt: skip
        (tmp_path / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\nq3\td\t1\n{line}\n")
        with pytest.raises(SourceError, match=message):
            asked(tmp_path, **names, qrels="train.tsv")


# ------------------------------------------------------------------------------------------------- docs and examples

ROOT = Path(__file__).resolve().parents[2]


def test_types_that_are_no_text_are_quarantined(tmp_path: Path) -> None:
    rows = [{"id": 1, "kind": ["product"]}, {"id": 2, "kind": 5}, {"id": 3, "kind": "product", "title": "a"}, {"id": 4}]
    (tmp_path / "nodes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    nodes = {"files": "nodes.jsonl", "id": "id", "type": "kind", "fields": {"title": "title"}}
    report, stored = load(tmp_path, "s", nodes=nodes)
    assert set(stored) == {"3"}
    assert report.nodes["quarantined"] == 3


def test_the_spec_in_the_documentation_is_valid() -> None:
    text = (ROOT / "docs" / "add-a-dataset.md").read_text()
    block = text.split("## A spec from end to end")[1].split("```yaml")[1].split("```")[0]
    spec = DatasetSpec.model_validate(yaml.safe_load(block))
    assert open_source(spec)
    assert spec.node_types["product"].fields["price"].parse == "price"


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "nodes", "edges"),
    [("amazon_giftcards_magazines", 5328, 34527), ("acl_anthology", 17663, 35930), ("edam", 3471, 4602)],
)
def test_example_specs_load_their_data_whole(tmp_path: Path, name: str, nodes: int, edges: int) -> None:
    spec = shared_spec(name)
    report = ingest(spec, open_source(spec), tmp_path / "s.duckdb")
    assert (report.nodes["stored"], report.edges["stored"]) == (nodes, edges)
    assert report.quarantine_reasons == {}
    assert [field for field, rate in report.fill_rate.items() if not rate] == []
    if name == "amazon_giftcards_magazines":
        assert report.fill_rate["product.rank_number"] == report.fill_rate["product.rank"] == 0.5472
        assert report.fill_rate["product.reviews_mean"] == report.fill_rate["product.reviews"]
