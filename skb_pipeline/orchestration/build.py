"""``build_defs``: everything Dagster is given, put together anew at each call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from skb_pipeline.orchestration import checks, jobs, schedules, sensors
from skb_pipeline.orchestration.assets import (
    catalog,
    evaluation,
    graph,
    index,
    neo4j,
    planning,
    questions,
    ranking,
    skb,
    text,
)
from skb_pipeline.orchestration.resources import WorkspaceResource


def build_defs(resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """All assets, checks, jobs, sensors and schedules; ``resources`` replaces the default ones by name."""
    return dg.Definitions(
        assets=dg.load_assets_from_modules(
            [catalog, skb, text, questions, index, graph, neo4j, planning, ranking, evaluation]
        ),
        asset_checks=checks.ALL,
        jobs=jobs.ALL,
        sensors=sensors.ALL,
        schedules=schedules.ALL,
        resources={"workspace": WorkspaceResource(), **(resources or {})},
        executor=dg.in_process_executor,
    )
