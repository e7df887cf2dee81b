"""Telling people: which tables are overdue, as a check on the asset's page, and which runs failed, to a service."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping

import dagster as dg

from skb_pipeline.datasets.catalogue import get_spec, spec_files
from skb_pipeline.orchestration.alerts import URL_ENV, Alert, FailedStep, send
from skb_pipeline.orchestration.checks import made_in_time
from skb_pipeline.orchestration.following import policy_of
from skb_pipeline.orchestration.jobs import materialise
from skb_pipeline.orchestration.overdue import allowed_seconds, overdue
from skb_pipeline.orchestration.runs import PARTITION
from skb_pipeline.orchestration.sensors import STARTED_AGAIN, watched_files
from skb_pipeline.orchestration.starters import TRIGGER
from skb_pipeline.orchestration.steps import plain
from skb_pipeline.text.sinks import terminal_text

_METRICS = made_in_time.check_key.asset_key
_LOOKED_AT = 50
"""Successful runs, among which the newest is looked for that made the table."""


@dg.sensor(
    minimum_interval_seconds=600,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Warns on the page of the metric table when a dataset whose spec says `refresh:` was not refreshed in "
    "time.",
)
def overdue_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Evaluate the check of each dataset; an event is written when its outcome changed, and now and then while it
    fails, as a run that makes the table of old rankings passes the check."""
    now, allowed = time.time(), allowed_seconds()
    before, kept, told, events = _cursor(context.cursor), {}, [], []
    for name in spec_files():
        try:
            late = _overdue(context.instance, name, now, allowed)
        except Exception as error:  # whatever a spec or a folder holds: `catalogue_changes` tells it too
            late = terminal_text(f"cannot be looked at: {error}")
        last, at = before.get(name, ("", 0.0))
        if late != last or (late and now - at > allowed):
            at = now
            if late is not None:
                events.append(_evaluation(name, late))
        if late is not None:
            kept[name] = (late, at)
        told += [f"{name}: {late}"] if late else []
    return dg.SensorResult(
        asset_events=events,
        skip_reason=terminal_text("; ".join(told) or "no table is overdue"),
        cursor=json.dumps(kept, sort_keys=True),
    )


def _cursor(text: str | None) -> Mapping[str, tuple[str, float]]:
    try:
        value = json.loads(text or "{}")
        return {str(name): (str(late), float(at)) for name, (late, at) in value.items()}
    except (ValueError, TypeError, AttributeError):  # somebody edited it in the UI
        return {}


def _overdue(instance: dg.DagsterInstance, name: str, now: float, allowed: float) -> str | None:
    """Why the table is overdue; empty if it is not, None where the spec asks for no refresh."""
    spec = get_spec(name)
    policy = policy_of(spec.refresh, built=False)
    if policy is None:
        return None
    files = [spec_files()[name], *watched_files(spec)]
    changed = max(path.stat().st_mtime for path in files)
    return overdue(policy, _succeeded(instance, name), changed, now, allowed)


def _succeeded(instance: dg.DagsterInstance, name: str) -> float | None:
    """When the newest successful run began that made the table with all it is made of."""
    wanted = dg.RunsFilter(
        job_name=materialise.name, statuses=[dg.DagsterRunStatus.SUCCESS], tags={PARTITION: name}
    )  # fmt: skip
    for record in instance.get_run_records(wanted, limit=_LOOKED_AT):
        selected = record.dagster_run.asset_selection
        if selected is None or _METRICS in selected:
            return record.start_time
    return None


def _evaluation(name: str, late: str) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=_METRICS,
        check_name=made_in_time.check_key.name,
        passed=not late,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=plain({"why": late or "in time"}),
        partition=name,
    )


@dg.run_failure_sensor(
    name="alerts",
    monitor_all_code_locations=False,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=f"Posts a small JSON to `${URL_ENV}` for each failed run; does nothing while that is not set.",
)
def alerts(context: dg.RunFailureSensorContext) -> dg.SkipReason:
    """Tell it once: a run that Dagster starts again by itself is told of when it fails for good."""
    if not os.environ.get(URL_ENV, "").strip():
        return dg.SkipReason(f"{URL_ENV} is not set")
    run = context.instance.get_run_by_id(context.dagster_run.run_id) or context.dagster_run
    if run.tags.get(STARTED_AGAIN) == "true":
        return dg.SkipReason("its process was killed; it is started again")
    failed = [FailedStep(_asset(e.step_key), _error_class(e)) for e in context.get_step_failure_events()]
    tags = run.tags
    told = send(Alert(tags.get(PARTITION, ""), run.job_name, run.run_id, tags.get(TRIGGER, ""), failed))
    return dg.SkipReason(f"run {run.run_id}: {told}")


def _asset(step_key: str | None) -> str:
    return str(step_key).replace("__", "/", 1)


def _error_class(event: dg.DagsterEvent) -> str:
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return (error.cls_name if error is not None else None) or "Error"


ALL = [overdue_tables, alerts]
