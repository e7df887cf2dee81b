"""The frame of plan rows: one per question and engine, whatever became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from skb_pipeline.planning.engines.base import PlanRecord
from skb_pipeline.plans.plan import Dropped, Plan, PlanStatus, ValidatedPlan

PLANS_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("engine", pa.string()),
        ("status", pa.string()),
        ("cause", pa.string()),
        ("plan", pa.string()),
        ("dropped", pa.string()),
        ("search_types", pa.string()),
        ("risk_level", pa.string()),
        ("model", pa.string()),
        ("prompt_hash", pa.string()),
        ("raw_output", pa.string()),
        ("attempts", pa.int64()),
        ("finish_reason", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("mentions", pa.string()),
        ("explanation", pa.string()),
        ("milliseconds", pa.float64()),
        ("reused", pa.bool_()),
    ]
)
"""``plan`` (null for the text-only fallback), ``dropped``, ``search_types``, ``mentions`` and ``explanation`` are JSON
texts; ``cause`` is a ``PlanCause``. What a column means: ``PlanRecord``, ``ValidatedPlan``."""
COSTS = ["milliseconds", "reused", "prompt_tokens", "completion_tokens"]
CONTENT = [name for name in PLANS_SCHEMA.names if name not in COSTS]
"""Columns that make up a plan's content; what it cost does not."""


def plans_frame(records: Sequence[PlanRecord]) -> pd.DataFrame:
    """Rows of ``PLANS_SCHEMA``, in the order of ``records``.

    Broken surrogate pairs, which a reply may hold but no file can, become U+FFFD.
    """
    frame = pd.DataFrame([_row(record) for record in records], columns=PLANS_SCHEMA.names)
    return frame.astype({"prompt_tokens": "Int64", "completion_tokens": "Int64", "attempts": "int64", "reused": "bool"})


def _row(record: PlanRecord) -> dict[str, Any]:
    return {
        "query_id": record.query_id,
        "engine": record.engine,
        "status": record.validated.status.value,
        "cause": record.cause.value,
        "plan": plan_json(record.validated.plan),
        "dropped": dropped_json(record.validated),
        "search_types": json.dumps(record.validated.search_types, ensure_ascii=False),
        "risk_level": record.risk_level.value,
        "model": _storable(record.model),
        "prompt_hash": record.prompt_hash,
        "raw_output": _storable(record.raw_output),
        "attempts": record.attempts,
        "finish_reason": _storable(record.finish_reason),
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "mentions": _storable(json.dumps(record.mentions, ensure_ascii=False)),
        "explanation": _storable(json.dumps(record.explanation, ensure_ascii=False)),
        "milliseconds": record.milliseconds,
        "reused": record.reused,
    }


def _storable(text: str | None) -> str | None:
    if text is None or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def plan_json(plan: Plan | None) -> str | None:
    """A plan in its JSON form, or None."""
    return None if plan is None else json.dumps(plan.model_dump(mode="json", by_alias=True), ensure_ascii=False)


def dropped_json(validated: ValidatedPlan) -> str:
    """What validation dropped, as a JSON list of objects with ``part`` and ``reason``."""
    return json.dumps([d.model_dump() for d in validated.dropped], ensure_ascii=False)


def validated_plans(frame: pd.DataFrame) -> list[ValidatedPlan]:
    """The validated plans of a frame of ``PLANS_SCHEMA``, in its order."""
    return [
        ValidatedPlan(
            status=PlanStatus(status),
            plan=Plan.model_validate_json(plan) if isinstance(plan, str) else None,
            dropped=[Dropped.model_validate(d) for d in json.loads(dropped)],
            search_types=json.loads(types),
        )
        for status, plan, dropped, types in zip(
            frame["status"], frame["plan"], frame["dropped"], frame["search_types"], strict=True
        )
    ]
