"""The frame of plan rows: one per question and engine, whatever became of it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from skb_pipeline.planning.plan import Dropped, Plan, PlanStatus, ValidatedPlan
from skb_pipeline.planning.rules import PlannedQuestion

PLANS_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("engine", pa.string()),
        ("status", pa.string()),
        ("plan", pa.string()),
        ("dropped", pa.string()),
        ("risk_level", pa.string()),
        ("outcome", pa.string()),
        ("mentions", pa.string()),
        ("explanation", pa.string()),
        ("milliseconds", pa.float64()),
    ]
)
"""``plan`` (null for the text-only fallback), ``dropped``, ``mentions`` and ``explanation`` are JSON texts."""
CONTENT = [name for name in PLANS_SCHEMA.names if name != "milliseconds"]
"""Columns that make up a plan's content; times do not."""


def rules_plans_frame(query_ids: Sequence[str], planned: Sequence[PlannedQuestion]) -> pd.DataFrame:
    """Rows of ``PLANS_SCHEMA`` for questions planned by rules."""
    rows = [
        {
            "query_id": query_id,
            "engine": "rules",
            "status": p.validated.status.value,
            "plan": plan_json(p.validated.plan),
            "dropped": dropped_json(p.validated),
            "risk_level": p.risk_level.value,
            "outcome": p.outcome.value,
            "mentions": json.dumps([m.text for m in p.mentions], ensure_ascii=False),
            "explanation": json.dumps(list(p.explanation), ensure_ascii=False),
            "milliseconds": p.milliseconds,
        }
        for query_id, p in zip(query_ids, planned, strict=True)
    ]
    return pd.DataFrame(rows, columns=PLANS_SCHEMA.names)


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
        )
        for status, plan, dropped in zip(frame["status"], frame["plan"], frame["dropped"], strict=True)
    ]
