"""``build_defs``: everything Dagster is given, put together anew at each call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from skb_pipeline.orchestration import checks, jobs, sensors, telling
from skb_pipeline.orchestration.assets import catalog, evaluation, graph, index, neo4j, planning, questions, skb, text
from skb_pipeline.orchestration.assets import ranking as rankings
from skb_pipeline.orchestration.console import mend_console
from skb_pipeline.orchestration.plan_events import mend_plan_events
from skb_pipeline.orchestration.resources import WorkspaceResource
from skb_pipeline.storage.paths import skb_home
from skb_pipeline.systems.registry import Registry, load_registry


def build_defs(resources: Mapping[str, Any] | None = None, registry: Registry | None = None) -> dg.Definitions:
    """All assets, checks, jobs and sensors.

    Args:
        resources: replace the default ones by name.
        registry: systems; default: the built-in ones and those of the home folder.

    Raises:
        SystemsError: the user's file of systems is faulty.
    """
    mend_plan_events()
    mend_console()
    registry = load_registry(skb_home()) if registry is None else registry
    return dg.Definitions(
        assets=[
            *dg.load_assets_from_modules([catalog, skb, text, questions, index, graph, neo4j, planning, rankings]),
            *system_assets(registry),
        ],
        asset_checks=[
            *checks.ALL,
            *(checks.ranking_check(name, registry) for name in registry),
            checks.equals_the_ranking_in_memory,
        ],
        jobs=jobs.ALL,
        sensors=[*sensors.ALL, *telling.ALL],
        resources={"workspace": WorkspaceResource(), **(resources or {})},
        executor=dg.in_process_executor,
    )


def system_assets(registry: Registry) -> list[dg.AssetsDefinition]:
    """What follows from the systems: their rankings and metrics, the table, the traces, the quality of plans."""
    made = [rankings.ranking_asset(name, registry) for name in registry.order]
    made += [evaluation.query_metrics_asset(name, registry) for name in registry.shown]
    made += [evaluation.metrics_asset(registry), evaluation.traces_asset(registry)]
    with_plans = [name for name in registry.shown if registry[name].kind == "plans"]
    return [*made, *(evaluation.plan_quality_asset(name, registry) for name in with_plans[:1])]
