import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

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
        "about: 6 of 6 values hold HTML (<p> 6 times",
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
        ({"a.jsonl": '{"x": 1.5, "y": [1]}'}, "no table of nodes in a.jsonl: no column has text or integers"),
        ({"a.csv": "id,id\n1,a\n"}, "no table can be read: a.csv is left out: a.csv: columns .'id'. occur twice"),
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


# ---------------------------------------------------------------------------- a draft comes out of whatever is there


def write(folder: Path, files: dict[str, str | list[dict[str, Any]]]) -> Path:
    """Files as text, or as rows for CSV, JSONL or Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, str):
            (folder / name).write_text(content)
        elif name.endswith(".jsonl"):
            (folder / name).write_text("\n".join(map(json.dumps, content)))
        elif name.endswith(".parquet"):
            pd.DataFrame(content).to_parquet(folder / name)
        else:
            pd.DataFrame(content).to_csv(folder / name, index=False)
    return folder


def drafted(tmp_path: Path, files: dict[str, str | list[dict[str, Any]]]) -> tuple[DatasetSpec, LoadReport, str]:
    """Spec, report of its load and doubts of a draft; every doubt stands in the text as a comment."""
    draft = draft_spec(write(tmp_path / "data", files), "x")
    assert [line[6:] for line in draft.text.splitlines() if line.startswith("#   - ")] == draft.doubts
    spec, report = load(draft, tmp_path)
    return spec, report, "\n".join(draft.doubts)


ROWS = [{"id": f"p{i}", "name": name, "note": f"note {i} of some length"} for i, name in enumerate(PEOPLE)]


def test_a_repeated_id_is_told_and_its_rows_become_one_node(tmp_path: Path) -> None:
    again = [*ROWS, {"id": "p2", "name": "Alan M. T.", "note": ""}]
    links = [{"src": f"p{i}", "dst": f"p{i + 1}", "rel": "taught"} for i in range(6)]
    spec, report, doubts = drafted(tmp_path, {"people.csv": again, "links.csv": links})
    assert spec.source.args["nodes"][0]["id"] == "id"
    assert (report.nodes["stored"], report.edges["stored"]) == (7, 6)
    assert "1 rows repeat an id in id, such as 'p2'" in doubts


def test_a_name_that_repeats_the_id_is_no_edge(tmp_path: Path) -> None:
    rows = [{"id": f"p{i}", "name": f"p{i}", "friend": f"p{(i + 1) % 7}"} for i in range(7)]
    spec, report, doubts = drafted(tmp_path, {"people.csv": rows})
    assert spec.triples == [("people", "friend", "people")]
    assert report.edges["stored"] == 7
    assert spec.node_types["people"].name_field == "name"
    assert "name repeats the id in id" in doubts


def test_two_tables_of_the_same_ids_are_not_taken_for_edges(tmp_path: Path) -> None:
    more = [{"id": row["id"], "name": row["id"], "text": "x" * 80} for row in ROWS]
    spec, report, _ = drafted(tmp_path, {"a.csv": ROWS, "b.csv": more})
    assert {entry["files"] for entry in spec.source.args["nodes"]} == {"a.csv", "b.csv"}
    assert spec.source.args["edges"] == []
    assert report.nodes["stored"] == 14


@pytest.mark.parametrize(
    ("order", "ends"),
    [
        (["to_id", "from_id"], ("from_id", "to_id")),
        ([":END_ID", ":START_ID"], (":START_ID", ":END_ID")),
        (["targetNode", "sourceNode"], ("sourceNode", "targetNode")),
        (["tail_entity", "head_entity"], ("head_entity", "tail_entity")),
        (["object", "subject"], ("subject", "object")),
        (["cited", "citing"], ("citing", "cited")),
        (["entity2", "entity1"], ("entity1", "entity2")),
    ],
)
def test_names_of_columns_tell_head_and_tail_whatever_their_order(
    tmp_path: Path, order: list[str], ends: tuple[str, str]
) -> None:
    links = [{column: f"p{(i + (column == ends[1])) % 7}" for column in order} for i in range(5)]
    spec, report, doubts = drafted(tmp_path, {"people.csv": ROWS, "links.csv": links})
    (entry,) = spec.source.args["edges"]
    assert (entry["head"], entry["tail"]) == ends
    assert "are taken for head and tail" not in doubts
    assert report.edges["stored"] == 5


def test_ends_without_such_names_are_a_doubt(tmp_path: Path) -> None:
    links = [{"boss": f"p{i}", "worker": f"p{i + 1}"} for i in range(5)]
    _, _, doubts = drafted(tmp_path, {"people.csv": ROWS, "links.csv": links})
    assert "boss and worker are taken for head and tail, in the order of the file" in doubts


def test_ids_are_cleaned_before_they_are_compared(tmp_path: Path) -> None:
    links = [{"src": f" p{i} ", "dst": f"p{i + 1}\u200b", "rel": "taught"} for i in range(5)]
    _, report, doubts = drafted(
        tmp_path, {"people.csv": ROWS, "links.csv": [*links, {"src": "p1", "dst": "p99", "rel": "taught"}]}
    )
    assert "1 edges have an end that is no node" in doubts
    assert (report.edges["stored"], report.edges["quarantined"]) == (5, 1)


def test_the_limit_that_a_load_would_break_stands_in_the_draft(tmp_path: Path) -> None:
    rows = [{**row, "related_ids": [f"p{(i + 1) % 7}", f"gone{i}"]} for i, row in enumerate(ROWS)]
    draft = draft_spec(write(tmp_path / "data", {"people.jsonl": rows}), "x")
    assert "  # max_bad_edge_rate: 0.05  # here 7 of 14 edge rows; a load of these files stops\n" in draft.text
    lifted = draft.text.replace("  # max_bad_edge_rate: 0.05 ", "  max_bad_edge_rate: 0.5 ")
    assert yaml.safe_load(lifted)["source"]["max_bad_edge_rate"] == 0.5


def test_a_table_with_ids_of_nodes_that_are_not_there_gives_a_partial_draft(tmp_path: Path) -> None:
    rows = [{**row, "authors": [f"a{i}", f"a{i + 1}"]} for i, row in enumerate(ROWS)]
    spec, report, doubts = drafted(tmp_path, {"papers.jsonl": rows})
    assert spec.node_types["paper"].fields["authors"].shape == "texts"
    assert (report.nodes["stored"], report.edges["stored"]) == (7, 0)
    assert "nothing joins the nodes of papers.jsonl (ids in id)" in doubts
    assert [r.name for r in spec.relations] == ["related to"]


def test_values_that_nodes_share_become_nodes_where_nothing_else_joins_them(tmp_path: Path) -> None:
    rows = [{**row, "town": ["Rome", "Bern", "Rome", ""][i % 4]} for i, row in enumerate(ROWS)]
    spec, report, doubts = drafted(tmp_path, {"people.csv": rows})
    assert spec.triples == [("people", "has town", "town")]
    assert report.nodes_by_type == {"people": 7, "town": 2}
    assert (report.edges["stored"], report.edges["quarantined"]) == (6, 0)
    assert "the 2 values of town are made nodes" in doubts


def test_edges_without_a_table_of_nodes_are_enough(tmp_path: Path) -> None:
    rows = [
        {"x_id": f"d{i}", "x_type": "drug", "x_name": f"Drug {i}", "relation": "treats",
         "y_id": f"s{i % 2}", "y_type": "disease", "y_name": f"Disease {i % 2}"}
        for i in range(5)
    ]  # fmt: skip
    spec, report, doubts = drafted(tmp_path, {"kg.csv": rows})
    assert spec.triples == [("drug", "treats", "disease")]
    assert (report.nodes_by_type, report.edges["stored"]) == ({"drug": 5, "disease": 2}, 5)
    assert spec.node_types["drug"].name_field == "x_name"
    assert "there is no table of nodes" in doubts


def test_candidates_are_the_types_of_given_answers(tmp_path: Path) -> None:
    nodes = [{"id": i, "type": "paper" if i < 4 else "author", "name": name} for i, name in enumerate(PEOPLE)]
    edges = [{"src": 4, "dst": 0, "rel": "author__writes__paper"}, {"src": 0, "dst": 1, "rel": "paper__cites__paper"},
             {"src": 5, "dst": 6, "rel": "knows"}]  # fmt: skip
    asked = [{"query_id": f"q{i}", "query": "which?", "answer_ids": [i, i + 1], "split": "human"} for i in range(3)]
    files = {"nodes.csv": nodes, "edges.csv": edges, "queries.jsonl": asked}
    spec, _, doubts = drafted(tmp_path, files)  # type: ignore[arg-type]
    assert spec.candidates == ["paper"]
    assert "candidates are the types of the given answers (6 paper)" in doubts
    assert spec.source.args["queries"][0]["split_value"] == "test"
    assert sum(1 for _ in open_source(spec).queries() or ()) == 3
    # Ends go out of names of relations, in documents and in questions.
    assert set(spec.triples) == {
        ("author", "writes", "paper"),
        ("paper", "cites", "paper"),
        ("author", "knows", "author"),
    }
    assert "'author__writes__paper' is 'writes'" in doubts
    spec, _, _ = drafted(tmp_path, {"queries.jsonl": [{**asked[0], "answer_ids": [0, 5]}]})
    assert spec.candidates == ["paper", "author"]


def test_names_of_relations_are_shortened_only_where_nothing_is_mixed_up(tmp_path: Path) -> None:
    nodes = [{"id": i, "type": "paper" if i < 4 else "author", "name": name} for i, name in enumerate(PEOPLE)]
    edges = [
        {"src": 4, "dst": 0, "rel": "author_writes_paper"}, {"src": 4, "dst": 1, "rel": "writes"},
        {"src": 0, "dst": 1, "rel": "paper_cites_paper"}, {"src": 5, "dst": 1, "rel": "paper_cites_paper"},
        {"src": 0, "dst": 5, "rel": "paper_in_focus"}, {"src": 0, "dst": 6, "rel": "paperAuthor"},
    ]  # fmt: skip
    spec, _, _ = drafted(tmp_path, {"nodes.csv": nodes, "edges.csv": edges})
    assert "relation_names" not in spec.source.args["edges"][0]
    assert {r.name for r in spec.relations} == {edge["rel"] for edge in edges}
    labels = {r.name: (r.head_label, r.tail_label) for r in spec.relations}
    assert labels["paper_in_focus"] == ("paper in focus", "paper in focus")
    assert labels["writes"] == (None, None)


def test_stubs_are_a_valid_part_of_the_spec_without_their_marks(shop: Path, tmp_path: Path) -> None:
    links = [{"src": "001", "dst": "002", "relation": "needs"}, {"src": "003", "dst": "001", "relation": "needs"}]
    draft = draft_spec(write(shop, {"needs.csv": links}), "shop")
    assert "relation 'needs' runs either way (product)" not in "\n".join(draft.doubts)  # questions are given
    begun = draft.text.index("# questions:")
    live = draft.text[:begun] + "\n".join(line.removeprefix("# ") for line in draft.text[begun:].splitlines())
    live = live.replace('"... {x}"', '"goes with {x}"')
    spec = DatasetSpec.model_validate(yaml.safe_load(live))
    said = {(p.relation, p.target, p.direction) for p in spec.questions.phrasings}
    assert {("needs", "product", "out"), ("needs", "product", "in"), ("similar_to", "product", None)} <= said
    assert spec.planner.type_words.keys() == {"product", "brand"}
    (shop / "queries.parquet").unlink()
    assert "relation 'needs' runs either way (product)" in "\n".join(draft_spec(shop, "shop").doubts)


def test_files_written_in_other_ways_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {
        "people.csv": "id;name;about\n" + "".join(f"p{i};N{i};a, b\n" for i in range(5)),
        "links.tsv": "src,dst\np1,p2\np2,p3\n",
        "quotes.csv": 'key,title\nq1,"a \\"b\\" c"\nq2,"d"\n',
    })  # fmt: skip
    (folder / "towns.csv").write_bytes("code,name\nt1,Zürich\nt2,Genève\n".encode("cp1252"))
    draft = draft_spec(folder, "x")
    entries = {e["files"]: e for e in yaml.safe_load(draft.text)["source"]["args"]["nodes"]}
    assert entries["people.csv"]["delimiter"] == ";"
    assert entries["quotes.csv"]["escape"] == "\\"
    assert entries["towns.csv"]["encoding"] == "cp1252"
    spec, report = load(draft, tmp_path)
    assert spec.source.args["edges"][0]["delimiter"] == ","
    assert (report.nodes["stored"], report.edges["stored"]) == (9, 2)


def test_files_that_cannot_be_read_are_left_out_and_told(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "data", {"people.csv": ROWS, "twice.csv": "id,id\n1,a\n", "[1].csv": "key,name\nk1,a\nk2,b\n"}
    )
    (folder / "bad.parquet").write_text("no")
    (folder / "empty-1.csv").write_text("")
    (folder / "._people.csv").write_bytes(b"\x00\x05\x16")
    draft = draft_spec(folder, "x")
    told = "\n".join(draft.doubts)
    assert "twice.csv is left out: twice.csv: columns ['id'] occur twice" in told
    assert "bad.parquet is left out" in told
    assert "._people" not in told
    _, report = load(draft, tmp_path)
    assert report.nodes["stored"] == 9


HOSTILE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x00"), min_size=1, max_size=12)


@given(
    st.lists(st.tuples(HOSTILE, HOSTILE, st.sampled_from(["1", "2", "3"])), min_size=1, max_size=6), HOSTILE, HOSTILE
)
def test_a_draft_of_any_rows_is_a_spec_with_its_doubts_as_comments(
    rows: list[tuple[str, str, str]], one: str, other: str
) -> None:
    if len({one, other, "to"}) < 3:
        return
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "t.jsonl").write_text(
            "\n".join(json.dumps({one: a, other: b, "to": c}) for a, b, c in rows), encoding="utf-8"
        )
        draft = draft_spec(Path(name), "x")
    spec = DatasetSpec.model_validate(yaml.safe_load(draft.text))
    assert spec.name == "x"
    assert all(f"#   - {doubt}\n" in draft.text for doubt in draft.doubts)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["amazon_giftcards_magazines", "cisi", "edam"])
def test_drafts_of_real_data_load_without_an_edit(tmp_path: Path, name: str) -> None:
    spec, report = load(draft_spec(require_shared(name), name), tmp_path)
    assert report.edges["quarantined"] == report.nodes["quarantined"] == 0
    assert report.edges["stored"] == {"amazon_giftcards_magazines": 34527, "cisi": 40639, "edam": 4602}[name]
    assert [f for f, rate in report.fill_rate.items() if not rate] == []
    if name == "cisi":
        assert spec.candidates == ["paper"]
        assert set(spec.triples) == {("author", "writes", "paper"), ("paper", "cocited with", "paper")}
