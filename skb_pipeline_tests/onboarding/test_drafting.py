import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.datasets.loading import load_spec
from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.onboarding.drafting import Draft, draft_spec, name_for
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.paths import UnsafeNameError
from skb_pipeline_tests.shared_data import require_shared

PEOPLE = ["Ada Byron", "Grace Murray", "Alan Mathison", "Edsger Wybe", "Barbara Jane", "Donald Ervin", "Tony Hoare"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Products in two numbered CSV files, brands in JSONL, edges, and questions."""
    folder = tmp_path / "My Shop"
    folder.mkdir()
    for part, numbers in enumerate(([1, 2, 3], [4, 5, 6])):
        rows = [
            {
                "asin": f"00{i}",
                "title": f"Tent number {i}",
                "price": f"${i}.50" if i < 3 else f"${i} - ${i + 1}",
                "tags": f"light{i} | warm{i}",
                "about": f"<p>Made &amp; tested {i}</p>",
                "brand_id": f"b{i % 3}",
                "empty": "",
            }
            for i in numbers
        ]
        pd.DataFrame(rows).to_csv(folder / f"products-{part}.csv", index=False)
    brands = [
        {"id": f"b{i}", "name": person, "staff": i * 10, "site": {"url": "x"}} for i, person in enumerate(PEOPLE[:3])
    ]
    (folder / "brands.jsonl").write_text("\n".join(map(json.dumps, brands)))
    edges = [("001", "002"), ("002", "001"), ("003", "004"), ("004", "003"), ("001", "77")]
    pd.DataFrame(edges, columns=["src", "dst"]).to_csv(folder / "similar_to.csv", index=False)
    queries = [{"query_id": "q1", "query": "a tent?", "answer_ids": "[1]", "split": "val"},
               {"query_id": "q2", "query": "another?", "answer_ids": "[]", "split": "test"}]  # fmt: skip
    pd.DataFrame(queries).to_parquet(folder / "queries.parquet")
    (folder / "readme.txt").write_text("not a table")
    return folder


def load(draft: Draft, folder: Path) -> tuple[DatasetSpec, LoadReport]:
    """The draft as a spec, by way of a file, and the report of its load."""
    (folder / "draft.yaml").write_text(draft.text)
    spec = load_spec(folder / "draft.yaml")
    (folder / "s.duckdb").unlink(missing_ok=True)
    lifted = spec.model_copy(update={"source": spec.source.model_copy(update={"max_bad_edge_rate": 1.0})})
    return spec, ingest(lifted, open_source(spec), folder / "s.duckdb")


def test_a_folder_of_tables_becomes_a_spec_that_loads(shop: Path, tmp_path: Path) -> None:
    draft = draft_spec(shop, "my_shop")
    spec, report = load(draft, tmp_path)
    args = spec.source.args
    assert args["nodes"] == [
        {
            "files": "brands.jsonl",
            "id": "id",
            "type_value": "brand",
            "fields": {"name": "name", "staff": "staff", "site": "site"},
        },
        {
            "files": "products-*.csv",
            "id": "asin",
            "type_value": "product",
            "fields": {"title": "title", "price": "price", "tags": "tags", "about": "about"},
            "separators": {"tags": " | "},
        },
    ]
    assert args["queries"] == [
        {"files": "queries.parquet", "id": "query_id", "query": "query", "answers": "answer_ids", "split": "split"}
    ]
    product = spec.node_types["product"]
    assert product.model_dump(mode="json", exclude_defaults=True) == {
        "fields": {"title": {"shape": "text"}, "price": {"shape": "text", "parse": "price"},
                   "tags": {"shape": "texts"}, "about": {"shape": "text", "html": True}},
        "name_field": "title", "document": ["title", "price", "tags", "about"],
    }  # fmt: skip
    assert {name: f.shape.value for name, f in spec.node_types["brand"].fields.items()} == {
        "name": "text", "staff": "integer", "site": "json",
    }  # fmt: skip
    assert [(r.name, r.head, r.tail, r.symmetric) for r in spec.relations] == [
        ("brand", "product", "brand", False), ("similar_to", "product", "product", True),
    ]  # fmt: skip
    assert "# 6 edges" in draft.text
    assert (report.nodes["stored"], report.edges["stored"]) == (9, 8)
    assert report.quarantine_reasons == {"tail does not exist": 1}
    doubts = "\n".join(draft.doubts)
    for said in (
        "similar_to.csv: no column names the relation",
        "1 edges have an end that is no node",
        "empty is empty",
        "taken for symmetric: 100%",
        "price looks like a price",
        "about holds HTML",
        "' | ' is taken",
    ):
        assert said in doubts


def test_one_table_of_nodes_of_many_types_and_one_of_edges(tmp_path: Path) -> None:
    nodes = [{"key": i, "kind": "person" if i < 7 else "town", "label": [*PEOPLE, "Rome", "Bern", "Oslo"][i],
              "born": 1900 + i if i < 7 else None, "code": f"{i:03}"} for i in range(10)]  # fmt: skip
    pd.DataFrame(nodes).astype({"born": "Int64"}).to_parquet(tmp_path / "nodes.parquet")
    edges = [{"edge_id": f"e{i}", "from": i % 7, "to": 7 + i % 3, "predicate": "lives in"} for i in range(7)]
    edges += [{"edge_id": "e8", "from": 1, "to": 2, "predicate": "knows"}]
    pd.DataFrame(edges).to_csv(tmp_path / "edges.tsv.gz", index=False, sep="\t")
    spec, report = load(draft_spec(tmp_path, "people"), tmp_path)
    assert spec.source.args["nodes"][0]["type"] == "kind"
    assert spec.source.args["edges"] == [
        {"files": "edges.tsv.gz", "head": "from", "tail": "to", "relation": "predicate"}
    ]
    assert list(spec.node_types["town"].fields) == ["label", "code"]
    assert spec.node_types["person"].name_field == "label"
    assert spec.node_types["person"].fields["born"].shape == "integer"
    assert spec.node_types["person"].fields["code"].shape == "text"
    assert report.edges_by_relation == {"knows": 1, "lives in": 7}
    assert report.quarantine_reasons == {}


def test_lists_inside_nodes_become_edges_even_where_ids_are_of_several_types(tmp_path: Path) -> None:
    papers = [
        {"id": str(i), "title": f"On {person}", "author_ids": [str(i), str((i + 1) % 7)]}
        for i, person in enumerate(PEOPLE)
    ]
    (tmp_path / "papers.jsonl").write_text("\n".join(map(json.dumps, papers)))
    authors = [{"id": str(i), "name": person} for i, person in enumerate(PEOPLE)]
    (tmp_path / "authors.jsonl").write_text("\n".join(map(json.dumps, authors)))
    spec, report = load(draft_spec(tmp_path, "papers"), tmp_path)
    assert spec.triples == [("paper", "author", "author")]
    assert (report.nodes["stored"], report.edges["stored"], report.edges["quarantined"]) == (14, 14, 0)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no Parquet, CSV or JSONL files"),
        ({"a.csv": "x,y\n1,1\n1,2\n1,1\n"}, "no table of nodes"),
        ({"a.csv": "id,name\n1,a\n2,b\n"}, "nothing joins the nodes of a.csv .ids in id."),
        ({"a.csv": "id,id\n1,a\n"}, "columns .'id'. occur twice"),
    ],
)
def test_what_cannot_be_drafted_is_said(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SourceError, match=message):
        draft_spec(tmp_path, "x")


def test_hostile_names_of_files_columns_and_types_stay_data(tmp_path: Path) -> None:
    evil = "a: [b]} # \u2028'\" !!python/object"
    rows = [{"id": f"i{i}", "type": evil, "name": person, evil: person} for i, person in enumerate(PEOPLE)]
    pd.DataFrame(rows).to_csv(tmp_path / "nodes.csv", index=False)
    pd.DataFrame([{"src": "i0", "dst": "i1", "relation": evil}]).to_csv(tmp_path / "edges.csv", index=False)
    draft = draft_spec(tmp_path, "x")
    assert yaml.safe_load(draft.text)["relations"] == [{"name": evil, "head": evil, "tail": evil}]


def test_names_of_datasets_come_from_folders(tmp_path: Path) -> None:
    assert name_for(tmp_path / "My Shop (2024)!") == "my_shop_2024"
    with pytest.raises(UnsafeNameError, match="give --name"):
        name_for(tmp_path / "日本")


def test_the_command_never_overwrites_without_force(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKB_CATALOGUE", str(tmp_path / "catalogue"))

    def run(*args: str) -> Any:
        return CliRunner().invoke(cli, ["dataset", "init", str(shop), *args])

    spec_file = tmp_path / "catalogue" / "my_shop.yaml"
    first = run()
    assert first.exit_code == 0
    assert "Please look at:" in first.output
    spec_file.write_text("edited")
    refused = run()
    assert (refused.exit_code, spec_file.read_text()) == (1, "edited")
    assert "--force replaces it" in refused.output
    assert run("--force").exit_code == 0
    assert load_spec(spec_file).name == "my_shop"
    assert run("--name", "../x").exit_code == 1
    assert run("--name", "other", "--output", str(tmp_path / "o.yaml")).exit_code == 0
    assert load_spec(tmp_path / "o.yaml").name == "other"


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["amazon_giftcards_magazines", "edam"])
def test_drafts_of_real_data_load_without_an_edit(tmp_path: Path, name: str) -> None:
    spec, report = load(draft_spec(require_shared(name), name), tmp_path)
    assert report.edges["quarantined"] == report.nodes["quarantined"] == 0
    assert report.edges["stored"] == {"amazon_giftcards_magazines": 34527, "edam": 4602}[name]
    assert [f for f, rate in report.fill_rate.items() if not rate] == []
    assert spec.node_types
