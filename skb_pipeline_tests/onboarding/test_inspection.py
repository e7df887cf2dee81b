import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.onboarding.inspection import Inspection, inspect_source
from skb_pipeline_tests.toy import ListSource, buy, toy_spec

PRODUCTS = [
    {"id": "1", "title": "Tent", "price": "12", "feature": ["a", "b"]},
    {"id": "2", "title": "Tent", "price": "Free"},
    {"id": "3", "title": "Bag", "feature": "one"},
    {"id": "4"},
    {"id": "4", "title": "x"},
    {"id": "4", "title": "y"},
    {"title": "no id"},
]
EDGES = [
    ("1", "2", "also_buy"),
    ("1", "3", "also_view"),
    ("1", "99", "also_buy"),
    ("3", "2", "nope"),
    ("2", "3", "nope"),
]


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    """The spec of a small faulty shop in JSONL files."""
    (tmp_path / "p.jsonl").write_text("\n".join([*map(json.dumps, PRODUCTS), "{broken"]))
    (tmp_path / "e.csv").write_text("a,b,r\n" + "".join(f"{','.join(row)}\n" for row in EDGES))
    queries = [
        {"query_id": "q1", "query": "tent", "answer_ids": ["1", "99"]},
        {"query_id": "q2", "query": "x", "answer_ids": []},
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, queries)))
    fields = ["title", "price", "feature", "about"]
    args = {
        "folder": str(tmp_path),
        "nodes": [{"files": "p.jsonl", "id": "id", "type_value": "product", "fields": {f: f for f in fields}}],
        "edges": [{"files": "e.csv", "head": "a", "tail": "b", "relation": "r"}],
        "queries": [{"files": "q.jsonl"}],
    }
    toy = toy_spec().model_dump(mode="json", exclude_defaults=True)
    return {**toy, "candidates": ["product"], "source": {"adapter": "tables", "args": args}}


def inspect(spec: dict[str, Any], **limits: float) -> Inspection:
    model = DatasetSpec.model_validate({**spec, "source": {**spec["source"], **limits}})
    return inspect_source(model, open_source(model))


def test_everything_a_load_would_do_is_told(spec: dict[str, Any]) -> None:
    found = inspect(spec, max_bad_edge_rate=0.6, max_bad_node_rate=0.6)
    assert found.stops == []
    assert found.nodes == {"rows_in": 8, "stored": 4, "quarantined": 2, "duplicates_dropped": 0, "merged": 2}
    assert found.types[0] == {"type": "product", "nodes": 4, "that share their name": 2}
    fields = {row["field"]: row for row in found.fields}
    assert fields["product.price"] == {
        "field": "product.price",
        "declared": "number",
        "filled": 0.25,
        "found": {"digits": 1, "text": 1},
        "coerced": {"unparseable_number": 1},
    }
    assert fields["product.feature"]["found"] == {"list": 1, "text": 1}
    assert fields["product.feature"]["coerced"] == {"scalar_to_list": 1}
    assert found.undeclared == [{"head": "product", "relation": "nope", "tail": "product", "rows": 2}]
    assert found.dangling_edges == 1
    reasons = {row["reason"]: row for row in found.quarantine}
    assert {reason: row["rows"] for reason, row in reasons.items()} == {
        "external id is missing": 1, "line is not a JSON object": 1,
        "relation is not declared between these types": 2, "tail does not exist": 1,
    }  # fmt: skip
    assert reasons["line is not a JSON object"]["examples"] == [
        'p.jsonl:8: {"external_id": null, "node_type": null, "text": "{broken"}'
    ]
    assert found.duplicate_ids == ["product 4"]
    assert found.conflicts == [
        {"field": "product.title", "nodes": 1, "examples": ['4: "x", not "y"']},
    ]
    assert found.shared_names == [{"type": "product", "name": "Tent", "nodes": 2}]
    assert found.hubs[0] == {"type": "product", "id": "1", "name": "Tent", "edges": 2}
    assert found.questions is not None
    assert found.questions["absent_answers"] == {"test": 1}
    for said in ("field product.about has no value", "node type 'brand' has no nodes", "no edge of 'similar'",
                 "1 edges have an end that is no node", "2 edges are of 1 triples", "such as ['99']",
                 "1 questions have no answer",
                 "1 nodes have rows that differ and are merged, such as product 4; different values: product.title in"
                 " 1"):  # fmt: skip
        assert any(said in warning for warning in found.warnings), said


@pytest.mark.parametrize(
    ("limits", "stop"),
    [
        (
            {"max_bad_edge_rate": 0.59, "max_bad_node_rate": 1},
            "3 of 5 edge rows are bad (60.0%), more than source.max_bad",
        ),
        (
            {"max_bad_edge_rate": 1, "max_bad_node_rate": 0.2},
            "2 of 8 node rows are bad (25.0%), more than source.max_bad",
        ),
    ],
)
def test_a_limit_that_would_stop_the_load_is_told(spec: dict[str, Any], limits: dict[str, float], stop: str) -> None:
    (found,) = inspect(spec, **limits).stops
    assert stop in found


def test_faulty_files_and_questions_would_stop_too(spec: dict[str, Any], tmp_path: Path) -> None:
    limits = {"max_bad_edge_rate": 1.0, "max_bad_node_rate": 1.0}
    (tmp_path / "q.jsonl").write_text('{"query_id": 1, "query": "a", "answer_ids": "__import__"}')
    (stop,) = inspect(spec, **limits).stops
    assert stop.startswith("questions: q.jsonl:1: answer_ids: not a JSON list")
    (tmp_path / "e.csv").write_text("a,b,r\n1,2\n")
    (stop,) = inspect(spec, **limits).stops
    assert stop.startswith("e.csv:1: row has another number of cells")


def test_any_adapter_can_be_inspected() -> None:
    found = inspect_source(toy_spec(), ListSource([("product", "1", {"title": "a"})], [buy("1", "1")]))
    assert (found.nodes["stored"], found.edges["stored"], found.questions) == (1, 1, None)


def test_the_command_prints_and_fails_when_a_load_would_stop(spec: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"

    def run(*args: str, **limits: float) -> Any:
        path.write_text(yaml.safe_dump({**spec, "source": {**spec["source"], **limits}}))
        return CliRunner().invoke(cli, ["dataset", "check", str(path), *args])

    passed = run("--format", "json", max_bad_edge_rate=1.0, max_bad_node_rate=1.0)
    assert passed.exit_code == 0
    assert json.loads(passed.stdout)["undeclared"][0]["rows"] == 2
    stopped = run()
    assert stopped.exit_code == 1
    assert "Would stop: 3 of 5 edge rows are bad" in stopped.stdout
    assert "product.price" in stopped.stdout
    (tmp_path / "p.jsonl").unlink()
    assert "no file matches 'p.jsonl'" in run().output


def test_relations_whose_words_have_no_direction_are_told_where_questions_are_made(spec: dict[str, Any]) -> None:
    assert not any("has a direction" in warning for warning in inspect(spec).warnings)  # it brings its questions
    made = {**spec, "source": {**spec["source"], "args": {**spec["source"]["args"], "queries": []}}}
    assert sum("has a direction, but no phrasing" in warning for warning in inspect(made).warnings) == 2
    phrasing = {"relation": "also_buy", "target": "product", "anchor": "product", "direction": "in", "forms": ["x {x}"]}
    (left,) = [w for w in inspect({**made, "questions": {"phrasings": [phrasing]}}).warnings if "has a direction" in w]
    assert "'also_view' within 'product'" in left
