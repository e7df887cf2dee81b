from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from skb_pipeline.planning.engines.base import PlanCause, PlanRecord, Question
from skb_pipeline.planning.engines.by_rules import RulesEngine
from skb_pipeline.planning.frames import PLANS, plans_frame, validated_plans
from skb_pipeline.plans.plan import PlanStatus, RiskLevel, ValidatedPlan
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.frames import read_frame
from skb_pipeline_tests.toy import ListSource, toy_spec

NODES = [
    ("product", "1", {"title": "Trail shoe"}),
    ("product", "2", {"title": "Rain jacket"}),
    ("brand", "1", {"name": "Acme"}),
    ("brand", "2", {"name": "Globex"}),
]
EDGES = [("product", "1", "has_brand", "brand", "1"), ("product", "2", "has_brand", "brand", "2")]
FALLBACK = ValidatedPlan(status=PlanStatus.FALLBACK, plan=None)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RulesEngine]:
    path = tmp_path_factory.mktemp("skb") / "toy.duckdb"
    ingest(toy_spec(), ListSource(NODES, EDGES), path)
    with connect(path, read_only=True) as con:
        yield RulesEngine(con, toy_spec())


def test_one_record_per_question_in_their_order(engine: RulesEngine) -> None:
    questions = [
        Question("7", "Which products have the brand Acme?"),
        Question("2", " "),
        Question("5", "What is new?"),
    ]
    records = engine.plan(questions)
    assert [(r.query_id, r.engine, r.cause) for r in records] == [
        ("7", "rules", PlanCause.PLANNED),
        ("2", "rules", PlanCause.NO_TEXT),
        ("5", "rules", PlanCause.NO_MENTION),
    ]
    planned = records[0]
    assert planned.mentions == ("Acme",)
    assert planned.validated.plan is not None
    assert [a.text for a in planned.validated.plan.anchors] == ["Acme"]
    assert (planned.attempts, planned.model, planned.raw_output) == (0, None, None)
    assert planned.milliseconds > 0
    assert records[1].risk_level is RiskLevel.NO_TRADE
    assert records[2].explanation[-1].startswith("no plan, no_mention: the question names nothing")


def test_the_fingerprint_holds_what_the_rules_read(engine: RulesEngine) -> None:
    held = engine.fingerprint()
    assert held["engine"] == "rules"
    assert set(held) == {"engine", "node_types", "relations", "candidates", "planner", "linking"}
    json.dumps(held)


def test_a_frame_of_records_is_read_back(engine: RulesEngine, tmp_path: Path) -> None:
    records = engine.plan([Question("1", "Which products have the brand Acme?"), Question("2", "")])
    frame = plans_frame(records)
    PLANS.write(tmp_path, frame)
    back = read_frame(tmp_path / "plans.parquet")
    assert validated_plans(back) == [record.validated for record in records]
    assert back["cause"].tolist() == ["planned", "no_text"]
    assert back["risk_level"].tolist() == [records[0].risk_level.value, "no_trade"]
    assert back["prompt_tokens"].isna().all()
    assert back["attempts"].tolist() == [0, 0]
    assert json.loads(back["mentions"][0]) == ["Acme"]


def _record(query_id: str = "1", **changes: Any) -> PlanRecord:
    values: dict[str, Any] = {"engine": "openai", "cause": PlanCause.NOT_JSON, "validated": FALLBACK, **changes}
    return PlanRecord(query_id=query_id, **values)


def test_costs_are_no_content() -> None:
    one = plans_frame([_record(raw_output="x", milliseconds=1.0, prompt_tokens=5)])
    same = plans_frame([_record(raw_output="x", milliseconds=2.0, completion_tokens=7, reused=True)])
    other = plans_frame([_record(raw_output="y", milliseconds=1.0, prompt_tokens=5)])
    assert PLANS.hash(one) == PLANS.hash(same) != PLANS.hash(other)


def test_any_reply_can_be_stored(tmp_path: Path) -> None:
    frame = plans_frame([_record(raw_output="\ud800 \x00 \ud83d\ude00", explanation=("\udfff",), prompt_tokens=3)])
    PLANS.write(tmp_path, frame)
    back = read_frame(tmp_path / "plans.parquet")
    assert back["raw_output"][0] == "\ufffd \x00 \U0001f600"
    assert json.loads(back["explanation"][0]) == ["\ufffd"]
    assert back["prompt_tokens"][0] == 3


def test_a_frame_without_rows_has_all_columns(tmp_path: Path) -> None:
    PLANS.write(tmp_path, plans_frame([]))
    assert read_frame(tmp_path / "plans.parquet").columns.tolist() == PLANS.names


def test_a_rare_reply_among_many_rows_counts_as_content() -> None:
    rows = [_record(str(i)) for i in range(5000)]
    hashes = {PLANS.hash(plans_frame([*rows, _record("last", raw_output=text, model=text)])) for text in ("a", "b")}
    assert len(hashes) == 2


def test_a_missing_plan_is_read_as_a_fallback_from_any_kind_of_null() -> None:
    frame = plans_frame([_record()])
    for null in (None, float("nan"), pd.NA):
        frame["plan"] = pd.Series([null], dtype="object")
        assert validated_plans(frame) == [FALLBACK]
