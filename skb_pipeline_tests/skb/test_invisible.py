"""Characters that nobody sees, from the files to answers: what looks equal meets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.engines.base import PlanCause, Question
from skb_pipeline.planning.engines.from_file import FileEngine
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.from_source import queries_from_source
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import ListSource, toy_spec

ZWSP, BOM, SHY, LRM, WJ = "\u200b", "\ufeff", "\u00ad", "\u200e", "\u2060"
FILES = {
    "products.csv": f"id,type,title,weight\n{BOM}1,prod{SHY}uct,Lan{ZWSP}tern,{LRM}1.5 pounds\n2{WJ},product,Stove,\n",
    "brands.csv": f"id,name\nb1{LRM},Nor{SHY}thern\n{ZWSP},nothing\n",
    "edges.csv": f"a,b,r\n1,2{ZWSP},also_{WJ}buy\n{LRM}2,b1,has_brand{ZWSP}\n",
    "queries.csv": f"query_id,query,split,answers\nq1{BOM},lan{SHY}tern,test,1{ZWSP}; 2\nq2,stove,test,{LRM}2; {WJ}2\n",
}
ARGS: dict[str, Any] = {
    "nodes": [
        {"files": "products.csv", "id": "id", "type": "type", "fields": {"title": "title", "weight": "weight"}},
        {"files": "brands.csv", "id": "id", "type_value": "brand", "fields": {"name": "name"}, "skip_empty_ids": True},
    ],
    "edges": [{"files": "edges.csv", "head": "a", "tail": "b", "relation": "r"}],
    "queries": [{"files": "queries.csv", "answers": "answers", "answers_separator": ";"}],
}  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> TablesSource:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return TablesSource(TablesArgs.model_validate({"folder": str(tmp_path), **ARGS}))


def spec() -> DatasetSpec:
    product = {
        "fields": {"title": "text", "weight": {"shape": "text", "parse": "weight"}},
        "name_field": "title",
        "document": ["title", "weight"],
    }
    toy = toy_spec()
    declared = {**toy.model_dump()["node_types"], "product": product}
    return toy_spec(node_types=declared)


def test_ids_names_types_relations_and_answers_meet(source: TablesSource, tmp_path: Path) -> None:
    report = ingest(spec(), source, tmp_path / "s.duckdb")
    assert report.nodes_by_type == {"product": 2, "brand": 1}
    assert report.edges_by_relation == {"also_buy": 1, "also_view": 0, "has_brand": 1, "similar": 0}
    assert (report.nodes["quarantined"], report.edges["quarantined"]) == (0, 0)
    assert report.out_of_scope == {"brands.csv: rows without id": 1}
    # nodes: two ids of products, a type, a title, a weight, an id and a name of brands; edges: two ids, two relations
    assert report.cleaned == {"invisible_removed": 7 + 4}
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        stored = dict(con.execute("SELECT external_id, fields::VARCHAR FROM nodes").fetchall())
        frame, told = queries_from_source(con, source.queries() or [], ["product"])
    assert json.loads(stored["1"])["weight_number"] == 1.5
    assert frame["query_id"].tolist() == ["q1", "q2"]
    assert frame["query"].tolist() == ["lantern", "stove"]
    assert [len(answers) for answers in frame["answer_ids"]] == [2, 1]
    assert (told.absent_answers, told.repeated_answers) == ({}, 1)


def test_judgements_and_their_questions_meet(source: TablesSource, tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text(f"{ZWSP}q1\t0\t1\t1\nq2\t0\t2{BOM}\t1\n", encoding="utf-8")
    queries = [{"files": "queries.csv", "qrels": "qrels.tsv"}]
    judged = TablesSource(TablesArgs.model_validate({"folder": str(tmp_path), **ARGS, "queries": queries}))
    assert [query.answers for query in judged.queries() or []] == [["1"], ["2"]]


def test_a_spec_names_types_and_relations_as_they_are_read(tmp_path: Path) -> None:
    relations = [{"name": f"also{ZWSP}_buy", "head": f"{BOM}product", "tail": "product"}]
    odd = toy_spec(relations=relations, candidates=[f"pro{SHY}duct"])
    assert odd.candidates == ["product"]
    nodes = [("product", i, {"title": i}) for i in "12"]
    report = ingest(odd, ListSource(nodes, [("product", "1", "also_buy", f"product{LRM}", "2")]), tmp_path / "s.duckdb")
    assert report.edges_by_relation == {"also_buy": 1}


def test_plans_of_a_file_are_cleaned(tmp_path: Path) -> None:
    plan = {
        "anchors": [{"var": "b", "text": f"{LRM}Nor{SHY}thern", "label": f"brand{BOM}"}],
        "hops": [{"from": "b", "rel": f"has_{WJ}brand", "to_var": "T", "to_label": "product"}],
        "target": {"labels": [f"product{ZWSP}"]},
    }
    (tmp_path / "plans.json").write_text(json.dumps({f"q1{ZWSP}": plan}), encoding="utf-8")
    engine = FileEngine(tmp_path / "plans.json", GraphSchema.from_spec(toy_spec(candidates=["product"])))
    (record,) = engine.plan([Question("q1", "x")])
    assert record.cause is PlanCause.PLANNED
    assert record.validated.plan is not None
    assert record.validated.plan.anchors[0].text == "Northern"
    assert record.validated.dropped == []


def test_what_was_taken_out_of_html_is_in_the_report(tmp_path: Path) -> None:
    nodes = [
        ("product", "1", {"title": "Tarp", "about": "<p>3 &lt; 4 &amp; 5<br>x</p>"}),
        ("product", "2", {"title": "Peg", "about": "map<int, string> if a<b and c>d"}),
    ]
    report = ingest(toy_spec(), ListSource(nodes), tmp_path / "s.duckdb")
    told = report.html_removed["product.about"]
    assert list(report.html_removed) == ["product.about"]
    assert (told["values"], told["characters"]) == (1, len("<p>3 &lt; 4 &amp; 5<br>x</p>") - len("3 < 4 & 5 x"))
    assert told["pieces"] == {"&amp;": 1, "&lt;": 1, "</p>": 1, "<br>": 1, "<p>": 1}
    assert told["longest"] == ["</p>", "<br>", "<p>"]
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        stored = dict(con.execute("SELECT external_id, fields->>'about' FROM nodes").fetchall())
    assert stored == {"1": "3 < 4 & 5 x", "2": nodes[1][2]["about"]}
