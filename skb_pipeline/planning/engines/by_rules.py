"""The rules planner as one engine among others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import duckdb

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.engines.base import PlanCause, PlanRecord, Question
from skb_pipeline.planning.rules.planner import PlannedQuestion, RulesPlanner

RULES_SECTIONS = ("node_types", "relations", "candidates", "planner", "linking")
"""Sections of a spec that the rules read."""


class RulesEngine:
    """Plans by rules over one SKB. Not for use by several threads at once, as it holds a connection.

    Args:
        con: the SKB file; must stay open.
        spec: its dataset's spec.
    """

    name = "rules"

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> None:
        self._con, self._spec = con, spec

    @cached_property
    def _planner(self) -> RulesPlanner:
        """Made when first needed: it reads all names."""
        return RulesPlanner(self._con, self._spec)

    def fingerprint(self) -> dict[str, Any]:
        """The sections of the spec that the rules read."""
        return {"engine": self.name, **self._spec.section(*RULES_SECTIONS)}

    def plan(self, questions: Sequence[Question]) -> list[PlanRecord]:
        """One record per question, in their order; a question is looked at by itself."""
        planned = self._planner.plan_all(question.text for question in questions)
        return [_record(question, made) for question, made in zip(questions, planned, strict=True)]


def _record(question: Question, planned: PlannedQuestion) -> PlanRecord:
    return PlanRecord(
        query_id=question.query_id,
        engine=RulesEngine.name,
        cause=PlanCause(planned.outcome.value),
        validated=planned.validated,
        mentions=tuple(mention.text for mention in planned.mentions),
        explanation=planned.explanation,
        milliseconds=planned.milliseconds,
    )
