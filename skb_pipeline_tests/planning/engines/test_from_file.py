from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from skb_pipeline.planning.engines.base import PlanCause, Question
from skb_pipeline.planning.engines.from_file import FileEngine, PlanFileError
from skb_pipeline.planning.frames import PLANS, plans_frame
from skb_pipeline.plans.plan import PlanStatus
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.toy import toy_spec

SCHEMA = GraphSchema.from_spec(toy_spec(candidates=["product"]))
PAPER: dict[str, Any] = {
    "retrieval_mode": "graph_filter_doc",
    "anchors": [{"var": "b", "text": "Acme", "label": "Brand", "match_mode": "name"}],
    "hops": [{"from": "b", "rel": "HAS_BRAND", "to_var": "T", "to_label": "Product"}],
    "target": {"var": "T", "labels": ["Product"], "relevance_text": "for winter"},
    "risk_level": "aggressive",
}
"""A plan as the paper writes it."""
OURS: dict[str, Any] = {
    "anchors": [{"var": "b", "text": "Acme", "label": "brand"}],
    "hops": [{"from": "b", "rel": "has_brand", "to_var": "T", "to_label": "product"}],
    "target": {"labels": ["product"]},
}


def lines(*rows: Any) -> str:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n"


def engine(folder: Path, content: str | bytes, name: str = "plans.jsonl", schema: GraphSchema = SCHEMA) -> FileEngine:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return FileEngine(path, schema)


def cause(folder: Path, **row: Any) -> PlanCause:
    (record,) = engine(folder, lines({"query_id": "1", **row})).plan([Question("1", "x")])
    assert (record.validated.plan is None) == (record.cause is not PlanCause.PLANNED)
    return record.cause


def test_each_question_gets_the_plan_of_its_id(tmp_path: Path) -> None:
    other = {**OURS, "risk_level": "weak"}
    rows = [
        {"query_id": 7, "plan": OURS, "model": "m-1"},
        "",
        {"query_id": "9", "plan": json.dumps(other)},
        {"query_id": "8", "plan": OURS, "engine": "grasp"},
        {"query_id": "stray", "plan": OURS},
    ]
    made = engine(tmp_path, "\ufeff" + lines(*rows))
    records = made.plan([Question("9", "x"), Question("7", ""), Question("8", "y"), Question("none", "z")])
    assert [(r.query_id, r.engine, r.cause) for r in records] == [
        ("9", "file", PlanCause.PLANNED),
        ("7", "file", PlanCause.PLANNED),
        ("8", "file", PlanCause.PLANNED),
        ("none", "file", PlanCause.NOT_IN_FILE),
    ]
    assert [r.validated for r in records[:2]] == [validate(other, SCHEMA), validate(OURS, SCHEMA)]
    assert [r.model for r in records] == [None, "m-1", "grasp", None]
    assert records[3].validated.faults[0].reason == "plans.jsonl has no plan for this question"
    assert made.unused == ("stray",)
    made.plan([])
    assert made.unused == ("7", "9", "8", "stray")


def test_the_papers_plan_reads_as_it_is(tmp_path: Path) -> None:
    (record,) = engine(tmp_path, lines({"query_id": "1", "plan": PAPER})).plan([Question("1", "x")])
    assert (record.cause, record.validated.status) == (PlanCause.PLANNED, PlanStatus.VALID)
    plan = record.validated.plan
    assert plan is not None
    assert (plan.anchors[0].label, plan.hops[0].rel, plan.hops[0].to_label) == ("brand", "has_brand", "product")
    assert (plan.target.labels, plan.retrieval_mode, plan.risk_level) == (["product"], "graph_filter_doc", "aggressive")
    assert record.explanation == (
        "label 'Brand' read as 'brand'",
        "relationship type 'HAS_BRAND' read as 'has_brand'",
        "label 'Product' read as 'product'",
    )


def test_odd_names_are_read_by_the_table_of_the_graph(tmp_path: Path) -> None:
    from skb_pipeline.datasets.catalogue import get_spec

    schema = GraphSchema.from_spec(get_spec("prime"))
    disease = {"var": "d", "text": "asthma", "label": "Disease"}
    protein = {"var": "g", "text": "x", "label": "GeneOrProtein"}
    off_label = {"from": "d", "rel": "OFF_LABEL_USE", "to_var": "T", "to_label": "Drug"}
    target = {"from": "g", "rel": "TARGET", "to_var": "T", "to_label": ""}
    raw = {"anchors": [disease, protein], "hops": [off_label, target], "target": {"labels": ["Drug"]}}
    (record,) = engine(tmp_path, lines({"query_id": "1", "plan": raw}), schema=schema).plan([Question("1", "x")])
    plan = record.validated.plan
    assert plan is not None, record.validated.faults
    assert [a.label for a in plan.anchors] == ["disease", "gene/protein"]
    assert [h.rel for h in plan.hops] == ["off-label use", "target"]


def test_a_name_of_the_schema_is_never_taken_for_another(tmp_path: Path) -> None:
    types = {
        name: {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]} for name in ("brand", "Brand")
    }
    relations = [{"name": "likes", "head": "Brand", "tail": "brand"}]
    schema = GraphSchema.from_spec(toy_spec(node_types=types, relations=relations))
    raw = {
        "anchors": [{"var": "a", "text": "x", "label": "Brand"}],
        "hops": [{"from": "a", "rel": "LIKES", "to_var": "T", "to_label": "brand"}],
        "target": {"labels": ["brand"]},
    }
    (record,) = engine(tmp_path, lines({"query_id": "1", "plan": raw}), schema=schema).plan([Question("1", "x")])
    assert record.validated.plan is not None
    assert record.validated.plan.anchors[0].label == "Brand"
    assert record.explanation == ("relationship type 'LIKES' read as 'likes'",)


def test_what_is_no_plan_is_a_cause(tmp_path: Path) -> None:
    text = json.dumps(OURS)
    assert cause(tmp_path, plan=None, raw_output=f"<think>x</think>```json\n{text}\n```") is PlanCause.PLANNED
    assert cause(tmp_path, raw_output=text, finish_reason="length") is PlanCause.TRUNCATED
    assert cause(tmp_path, raw_output="<think>" + text) is PlanCause.OPEN_THINKING
    assert cause(tmp_path, raw_output="no plan") is PlanCause.NOT_JSON
    assert cause(tmp_path, raw_output=None) is PlanCause.EMPTY_REPLY
    assert cause(tmp_path, raw_output=["x"]) is PlanCause.NOT_JSON
    assert cause(tmp_path, plan=[OURS]) is PlanCause.NOT_JSON
    assert cause(tmp_path, plan=0) is PlanCause.NOT_JSON
    assert cause(tmp_path, plan='{"risk_level":"weak","risk_level":"normal"}') is PlanCause.NOT_JSON
    assert cause(tmp_path, plan={**OURS, "retrieval_mode": "skip"}) is PlanCause.SKIPPED
    assert cause(tmp_path, plan={**OURS, "anchors": ["b"], "hops": 3}) is PlanCause.INVALID
    assert cause(tmp_path, plan={**OURS, "target": {"labels": [["product"]]}}) is PlanCause.INVALID
    assert cause(tmp_path, plan={}) is PlanCause.INVALID
    assert cause(tmp_path, plan=OURS, raw_output="something else") is PlanCause.PLANNED


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"finish_reason": "stop"}, PlanCause.PLANNED),
        ({"finish_reason": None}, PlanCause.PLANNED),
        ({"finish_reason": "model_length"}, PlanCause.TRUNCATED),
        ({"finish_reason": "abort"}, PlanCause.INCOMPLETE),
        ({"finish_reason": "SAFETY"}, PlanCause.CONTENT_FILTER),
        ({"finish_reason": "stop", "completion_tokens": 64, "max_tokens": 64}, PlanCause.TRUNCATED),
        ({"finish_reason": "stop", "completion_tokens": 63.0, "max_tokens": 64.0}, PlanCause.PLANNED),
    ],
)
@pytest.mark.parametrize("form", ["object", "text", "output"])
def test_what_was_cut_is_no_plan_whichever_way_the_row_has_it(
    tmp_path: Path, row: dict[str, Any], expected: PlanCause, form: str
) -> None:
    given: dict[str, dict[str, Any]] = {
        "object": {"plan": OURS},
        "text": {"plan": json.dumps(OURS)},
        "output": {"raw_output": json.dumps(OURS)},
    }
    assert cause(tmp_path, **given[form], **row) is expected


def test_a_finish_reason_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=r"line 1: finish_reason is a text or null, not 7"):
        engine(tmp_path, lines({"query_id": "1", "plan": OURS, "finish_reason": 7}))


def test_the_output_is_kept_as_it_came(tmp_path: Path) -> None:
    output = "<think>x</think>" + json.dumps(OURS)
    made = engine(tmp_path, lines({"query_id": "1", "raw_output": output, "finish_reason": "stop"}))
    (record,) = made.plan([Question("1", "x")])
    assert (record.raw_output, record.finish_reason, record.attempts) == (output, "stop", 0)


@pytest.mark.parametrize(
    "content", [[{"query_id": "1", "plan": OURS}], {"1": OURS}, {"1": json.dumps(OURS)}], ids=["rows", "plans", "texts"]
)
def test_one_json_value_holds_rows_or_plans_by_id(tmp_path: Path, content: Any) -> None:
    (record,) = engine(tmp_path, json.dumps(content, indent=1), "plans.JSON").plan([Question("1", "x")])
    assert record.validated == validate(OURS, SCHEMA)


def test_parquet_holds_plans_as_text_or_structs(tmp_path: Path) -> None:
    with_mode = {**OURS, "anchors": [{**OURS["anchors"][0], "match_mode": "doc"}], "retrieval_mode": "graph_filter_doc"}
    for name, plans in (("text", [json.dumps(OURS), json.dumps(with_mode), None]), ("struct", [OURS, with_mode, None])):
        path = tmp_path / f"{name}.parquet"
        pd.DataFrame({"query_id": [1, 2, 3], "plan": plans}).to_parquet(path)
        records = FileEngine(path, SCHEMA).plan([Question(str(i), "x") for i in (1, 2, 3)])
        assert [r.validated for r in records[:2]] == [validate(OURS, SCHEMA), validate(with_mode, SCHEMA)]
        assert records[2].cause is PlanCause.EMPTY_REPLY


def test_the_pipelines_own_plans_are_a_plan_file(tmp_path: Path) -> None:
    records = engine(tmp_path, lines({"query_id": "1", "plan": PAPER}, {"query_id": "2", "raw_output": "no"})).plan(
        [Question("1", "x"), Question("2", "x")]
    )
    PLANS.write(tmp_path, plans_frame(records))
    again = FileEngine(tmp_path / "plans.parquet", SCHEMA).plan([Question("1", "x"), Question("2", "x")])
    assert [(r.cause, r.validated) for r in again] == [(r.cause, r.validated) for r in records]
    assert [r.cause for r in again] == [PlanCause.PLANNED, PlanCause.NOT_JSON]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", lines({"query_id": "1", "plan": {}}, "", {"plan": {}}), r"p\.jsonl: line 3: no query_id .* None"),
        ("p.jsonl", lines({"query_id": True, "plan": {}}), "line 1: no query_id .* but True"),
        ("p.jsonl", lines({"query_id": 1.0, "plan": {}}), "line 1: no query_id .* but 1.0"),
        ("p.jsonl", lines({"query_id": " ", "plan": {}}), "line 1: no query_id .* but ' '"),
        ("p.jsonl", lines({"query_id": "1", "answer": 1}), "line 1: neither 'plan' nor 'raw_output'.*'answer'"),
        ("p.jsonl", lines({"query_id": 1, "plan": {}}, {"query_id": "1", "plan": {}}),
         "line 2: query_id '1' is there already, line 1"),
        ("p.jsonl", lines({"query_id": "1", "plan": {}}, '{"query_id": '), "line 2: not JSON"),
        ("p.jsonl", '{"query_id":"1","query_id":"2","plan":{}}', "line 1: not JSON: key 'query_id' is repeated"),
        ("p.jsonl", "[]", "line 1: a JSON object is needed, not list"),
        ("p.jsonl", b'{"query_id":"\xff"}', "not UTF-8"),
        ("p.json", "3", "a list of rows is needed"),
        ("p.json", '{"query_id":"1","plan":{}}', "a list of rows is needed"),
        ("p.json", '{"1": 3}', "key '1': a plan is needed, not int"),
        ("p.json", '{"1": {}, "1": {}}', "key '1' is repeated"),
        ("p.json", "[3]", "item 1: a JSON object is needed, not int"),
        ("p.json", "{", "not JSON"),
        ("p.parquet", "no", "no Parquet file that can be read"),
        ("p.csv", "query_id,plan", r"p\.csv: unknown format; known are \.jsonl, \.ndjson, \.json, \.parquet"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named_with_the_place(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(PlanFileError, match=message):
        engine(tmp_path, content, name)


def test_a_parquet_row_is_named_by_its_number(tmp_path: Path) -> None:
    pd.DataFrame({"query_id": ["1", None], "plan": ["{}", "{}"]}).to_parquet(tmp_path / "p.parquet")
    with pytest.raises(PlanFileError, match=r"p\.parquet: row 2: no query_id"):
        FileEngine(tmp_path / "p.parquet", SCHEMA)


def test_a_missing_file_is_an_error_and_variables_in_its_path_are_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANS_OF_OTHERS", str(tmp_path))
    with pytest.raises(PlanFileError, match=r"none\.jsonl: cannot be read: No such file"):
        FileEngine("$PLANS_OF_OTHERS/none.jsonl", SCHEMA)
    engine(tmp_path, lines({"query_id": "1", "plan": OURS}))
    assert FileEngine("$PLANS_OF_OTHERS/plans.jsonl", SCHEMA).path == tmp_path / "plans.jsonl"


def test_the_fingerprint_is_the_content_wherever_it_lies(tmp_path: Path) -> None:
    one = engine(tmp_path, lines({"query_id": "1", "plan": OURS}), "a.jsonl").fingerprint()
    same = engine(tmp_path, lines({"query_id": "1", "plan": OURS}), "b.jsonl").fingerprint()
    other = engine(tmp_path, lines({"query_id": "1", "plan": PAPER}), "c.jsonl").fingerprint()
    assert one == same != other
    assert one["engine"] == "file"


def test_the_fingerprint_holds_the_schema_that_decides_what_is_valid(tmp_path: Path) -> None:
    content = lines({"query_id": "1", "plan": OURS})
    other = engine(tmp_path, content, schema=GraphSchema.from_spec(toy_spec(candidates=["brand"])))
    assert other.plan([Question("1", "x")])[0].cause is PlanCause.INVALID
    assert engine(tmp_path, content).fingerprint() != other.fingerprint()
    json.dumps(other.fingerprint(), allow_nan=False)
