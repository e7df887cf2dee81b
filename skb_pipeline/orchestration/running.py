"""Running the job from Python: the instance, the registered partition, and what each stage did.

The command line and tests use this; the UI starts the same job on the same instance.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from skb_pipeline.errors import UserError
from skb_pipeline.orchestration.partitions import register_datasets
from skb_pipeline.orchestration.sensors import TABLE_FOLLOWS
from skb_pipeline.storage.atomic import process_alive
from skb_pipeline.storage.paths import project_root, skb_home
from skb_pipeline.workspace import Workspace

_PLANS = dg.AssetKey(["planning", "query_plans"])
_GUIDANCE = dg.AssetKey(["planning", "guidance"])
_METRICS = dg.AssetKey(["evaluation", "metrics"])
_HOST, _PID = "skb/host", "skb/pid"


class RunFailedError(UserError, RuntimeError):
    """A run ended with a failed step or a failed blocking check; ``outcomes`` are the stages that were finished."""

    def __init__(self, message: str, outcomes: list[StageOutcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


@dataclass(frozen=True)
class StageOutcome:
    """One asset of a run: its key, wall time in seconds, whether it was reused, and its metadata."""

    asset: str
    seconds: float
    reused: bool
    metadata: dict[str, Any]


def prepare_home() -> Path:
    """Create the home folder with Dagster's home inside, put ``dagster.yaml`` there, set ``DAGSTER_HOME``.

    Returns:
        Dagster's home.
    """
    home = skb_home()
    dagster_home = home / "dagster"
    dagster_home.mkdir(parents=True, exist_ok=True)
    (home / "catalogue").mkdir(exist_ok=True)
    root = project_root()
    shipped = (root or Path(__file__).parents[1]) / "dagster.yaml"
    target = dagster_home / "dagster.yaml"
    if not target.is_file() or target.read_bytes() != shipped.read_bytes():
        shutil.copyfile(shipped, target)
    os.environ["SKB_HOME"] = str(home)
    os.environ["DAGSTER_HOME"] = str(dagster_home)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    return dagster_home


def materialise(
    dataset: str,
    *,
    to: str | None = None,
    only: str | None = None,
    force: bool = False,
    plans: Mapping[str, Any] | None = None,
    instance: dg.DagsterInstance | None = None,
) -> list[StageOutcome]:
    """Materialise all assets of a dataset, or one with everything it needs.

    Args:
        dataset: name in the catalogue; registered as a partition if it is not yet.
        to: asset key ``stage/name``; None means all.
        only: asset key of the single asset to materialise, from what is there.
        force: compute although nothing changed.
        plans: run config of ``planning/query_plans``; None values are left out.

    Raises:
        KeyError: there is no asset ``to`` or ``only``; the message lists those there are.
        RunFailedError: a step or a blocking check failed; the message names it.
    """
    from skb_pipeline.orchestration.build import build_defs

    defs = build_defs()
    job = defs.resolve_job_def("materialise")
    keys = {"/".join(key.path): key for key in job.asset_layer.executable_asset_keys}
    selection = None
    named = only or to
    if named is not None:
        if named not in keys:
            raise KeyError(f"there is no asset {named!r}; there are: {', '.join(sorted(keys))}")
        assets = dg.AssetSelection.assets(keys[named])
        selection = list((assets if only else assets.upstream()).resolve(defs.resolve_asset_graph()))
    tags = {_HOST: _host(), _PID: str(os.getpid()), TABLE_FOLLOWS: "yes"}
    with dg.DagsterInstance.get() if instance is None else instance as live:
        register_datasets(live, [dataset])
        close_killed_runs(live)
        result = job.execute_in_process(
            instance=live,
            partition_key=dataset,
            asset_selection=selection,
            run_config=_run_config(selection or list(keys.values()), force, plans or {}),
            tags=tags,
            raise_on_error=False,
        )
        outcomes = _outcomes(result)
        if not result.success and _METRICS in (selection or keys.values()):
            outcomes += _table_of_the_others(defs, live, dataset, tags, done={o.asset for o in outcomes})
    if not result.success:
        raise RunFailedError(_failure(result, dataset), outcomes)
    return outcomes


def _table_of_the_others(
    defs: dg.Definitions, instance: dg.DagsterInstance, dataset: str, tags: Mapping[str, str], done: set[str]
) -> list[StageOutcome]:
    """The metric table and the traces of the systems there are, after a run in which one failed.

    Dagster does not start what comes after a failed step, and these come after all systems. Where there is nothing to
    put into them, their failure adds nothing to that of the run.
    """
    job = defs.resolve_job_def("table")
    keys = [k for k in job.asset_layer.executable_asset_keys if "/".join(k.path) not in done]
    if not keys:
        return []
    result = job.execute_in_process(
        instance=instance,
        partition_key=dataset,
        asset_selection=keys,
        run_config=_run_config(keys, False, {}),
        tags=dict(tags),
        raise_on_error=False,
    )
    return _outcomes(result)


def close_killed_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs of this machine as failed whose process is gone, so that they do not count as in progress for ever.

    Returns:
        Ids of the runs that were closed.
    """
    closed = []
    running = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED], tags={_HOST: _host()})
    for run in instance.get_runs(running):
        if not process_alive(int(run.tags[_PID])):
            instance.report_run_failed(run, "The process of this run was killed; the next run takes up its work.")
            closed.append(run.run_id)
    return closed


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:63]


def _run_config(selection: list[dg.AssetKey], force: bool, plans: Mapping[str, Any]) -> dict[str, Any]:
    """Events go to the instance's own log; on the terminal a failure is told by :class:`RunFailedError` alone."""
    config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    # Guidance is pinned: every prompt would change with it. It is made anew only where it alone is asked for.
    forced = [key for key in selection if key != _GUIDANCE or len(selection) == 1] if force else []
    ops: dict[str, dict[str, Any]] = {"__".join(key.path): {"force": True} for key in forced}
    given = {name: value for name, value in plans.items() if value is not None}
    if given and _PLANS in selection:
        ops.setdefault("__".join(_PLANS.path), {}).update(given)
    if ops:
        config["ops"] = {name: {"config": values} for name, values in ops.items()}
    return config


def _outcomes(result: dg.ExecuteInProcessResult) -> list[StageOutcome]:
    seconds = {
        event.step_key: (event.step_success_data.duration_ms / 1000)
        for event in result.all_node_events
        if event.event_type_value == "STEP_SUCCESS"
    }
    found = []
    for event in result.get_asset_materialization_events():
        metadata = {key: value.value for key, value in event.materialization.metadata.items()}
        key = "/".join(event.materialization.asset_key.path)
        found.append(StageOutcome(key, seconds.get(event.step_key, 0.0), bool(metadata.get("reused")), metadata))
    return found


def _failure(result: dg.ExecuteInProcessResult, dataset: str) -> str:
    store = Workspace().store
    reasons = []
    for event in result.all_events:
        if event.event_type_value == "STEP_FAILURE":
            asset = str(event.step_key).replace("__", "/", 1)
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            # An asset remembers why it failed, in its own words; a check does not.
            told = store.failure(dataset, asset) or (error.message.strip() if error else "failed")
            reasons.append(f"{asset}: {told}")
    for check in result.get_asset_check_evaluations():
        if not check.passed and check.severity is dg.AssetCheckSeverity.ERROR:
            counts = ", ".join(f"{name}: {value.value}" for name, value in check.metadata.items())
            reasons.append(f"check {check.check_name} of {'/'.join(check.asset_key.path)} failed ({counts})")
    told = "; ".join(reasons) or "a step failed"
    return f"{told}\nThe whole log is in the UI (`skb-pipeline ui`) under run {result.run_id}"
