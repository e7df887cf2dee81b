"""Rows and metadata of plans, from a file and from a server."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from skb_pipeline.orchestration.assets.planning import engine_metadata, plan_rows
from skb_pipeline.planning.engines.base import PlanCause, PlanRecord, fallback_rate
from skb_pipeline.planning.engines.from_file import FileEngine
from skb_pipeline.planning.engines.kept_replies import CachedChat, open_replies
from skb_pipeline.planning.engines.language_model import LanguageModelPlanner
from skb_pipeline.planning.engines.openai_http import OpenAIChat
from skb_pipeline.planning.engines.opening import ModelReport
from skb_pipeline.planning.prompts.guidance import Guidance
from skb_pipeline.planning.prompts.prompt_set import PromptSet
from skb_pipeline.planning.settings import LanguageModelSpec
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline_tests.toy import toy_spec

SPEC = toy_spec(candidates=["product"], plans={"model": {"name": "m", "base_url": "http://127.0.0.1:9/v1"}})
QUERIES = pd.DataFrame({"query_id": ["1", "2", "3"], "query": ["one", "same", "same"]})


def test_rows_of_a_file_for_other_questions_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "plans.jsonl"
    path.write_text("\n".join(json.dumps({"query_id": name, "plan": "{}"}) for name in ("2", "stray", "q-9")))
    engine = FileEngine(path, GraphSchema.from_spec(SPEC))
    records = plan_rows(engine, QUERIES, np.ones(3, dtype=bool), must=True)
    assert [r.cause for r in records] == [PlanCause.NOT_IN_FILE, PlanCause.INVALID, PlanCause.NOT_IN_FILE]
    assert engine_metadata(engine, records, None, first=True)["rows for other questions"] == 2
    assert engine_metadata(engine, records, None, first=False)["file rows for other questions"] == 2


def test_silence_on_what_names_nothing_is_no_failure() -> None:
    causes = [PlanCause.NO_MENTION, PlanCause.NO_RELATION, PlanCause.SKIPPED, PlanCause.NOT_ASKED, PlanCause.NO_MENTION]
    unplanned = PlanRecord.not_asked("q", "rules")
    assert fallback_rate(replace(unplanned, cause=cause) for cause in causes) == 1 / 4


def test_of_a_long_list_of_models_some_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    assert isinstance(SPEC.plans.model, LanguageModelSpec)
    schema, prompts = GraphSchema.from_spec(SPEC), PromptSet(SPEC, Guidance("none"))
    with open_replies(tmp_path) as cache:
        chat = CachedChat(OpenAIChat(SPEC.plans.model, {}), cache)
        engine = LanguageModelPlanner("openai", chat, prompts, schema, SPEC.plans)
        records = plan_rows(engine, QUERIES, np.zeros(3, dtype=bool), must=True)
        report = ModelReport(prompts, chat, {"models": [f"m{i}" for i in range(300)], "version": None}, "read as JSON")
        told = engine_metadata(engine, records, report, first=True)
    assert told["causes"] == {"not_asked": 3}
    assert told["fallback rate"] == 0.0
    assert len(told["server"]["models"]) + told["server"]["models not shown"] == 300
    assert len(told["server"]["models"]) <= 50
