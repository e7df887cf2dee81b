"""The frame of plan rows: one per question and engine, whatever became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from skb_pipeline.planning.engines.base import PlanRecord
from skb_pipeline.plans.plan import Dropped, Plan, PlanStatus, ValidatedPlan
from skb_pipeline.storage.frames import Column, Frame

PLANS = Frame(
    name="Plans",
    description="A plan per question and engine, whatever became of it.",
    file="plans.parquet",
    key=("query_id", "engine"),
    columns={
        "query_id": Column(pa.string(), filled=True),
        "engine": Column(pa.string(), filled=True),
        "status": Column(pa.string(), filled=True),
        "cause": Column(pa.string(), filled=True),
        "plan": Column(pa.string()),
        "dropped": Column(pa.string(), filled=True),
        "search_types": Column(pa.string(), filled=True),
        "risk_level": Column(pa.string(), filled=True),
        "model": Column(pa.string()),
        "prompt_hash": Column(pa.string()),
        "raw_output": Column(pa.string()),
        "attempts": Column(pa.int64()),
        "finish_reason": Column(pa.string()),
        "prompt_tokens": Column(pa.int64(), cost=True),
        "completion_tokens": Column(pa.int64(), cost=True),
        "mentions": Column(pa.string()),
        "explanation": Column(pa.string()),
        "milliseconds": Column(pa.float64(), cost=True),
        "reused": Column(pa.bool_(), cost=True),
    },
)
"""``plan`` (null for the text-only fallback), ``dropped``, ``search_types``, ``mentions`` and ``explanation`` are JSON
texts; ``cause`` is a ``PlanCause``. What a column means: ``PlanRecord``, ``ValidatedPlan``."""


def plans_frame(records: Sequence[PlanRecord]) -> pd.DataFrame:
    """Rows of ``PLANS``, in the order of ``records``.

    Broken surrogate pairs, which a reply may hold but no file can, become U+FFFD.
    """
    frame = pd.DataFrame([_row(record) for record in records], columns=PLANS.names)
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
    """The validated plans of a frame of ``PLANS``, in its order."""
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
