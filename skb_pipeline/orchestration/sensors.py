"""Sensors: follow the files of datasets, close what a killed process left, make the table that a failure took away."""

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from skb_pipeline.datasets.catalogue import get_spec, spec_files
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.orchestration.following import Decision, Followed, Look, RunState, decide, policy_of
from skb_pipeline.orchestration.jobs import materialise, table
from skb_pipeline.orchestration.partitions import DATASETS
from skb_pipeline.orchestration.runs import PARTITION, close_killed_runs, unfinished_runs
from skb_pipeline.orchestration.settings import WATCH
from skb_pipeline.orchestration.starters import TRIGGER
from skb_pipeline.planning.engines.from_file import plan_path
from skb_pipeline.storage.artifacts import stable_hash
from skb_pipeline.text.sinks import terminal_text
from skb_pipeline.workspace import Workspace

TABLE_FOLLOWS = "skb/table_follows"
"""Tag of a run whose starter makes the table of the remaining systems itself."""
REQUEST = "skb/request"
"""Tag of a run that follows a change: the id of the request."""
_BUILT = "evaluation/metrics"
STARTED_AGAIN = "dagster/will_retry"
"""Tag with the value ``true`` of a failed run that Dagster starts again by itself."""


@dg.sensor(
    job=materialise,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Registers new datasets of the catalogue and runs the whole job of those whose files or spec changed, "
    "once they are complete. Followed is what was materialised before, and what its spec says (`refresh:`). A failed "
    "run is asked for again until it succeeds, later each time.",
)
def catalogue_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Compare names, sizes and times of files with the cursor; the run it requests hashes their bytes and reuses what
    did not change. No fault of one dataset reaches another."""
    close_killed_runs(context.instance)
    cursor = _cursor(context.cursor)
    known = set(context.instance.get_dynamic_partitions("dataset"))
    files = spec_files()
    kept: dict[str, Followed] = {}
    requests, new, told = [], [], []
    for name, path in files.items():
        followed = Followed.from_json(cursor.get(name))
        try:
            spec = get_spec(name)
            decision = _decide(context.instance, spec, path, followed)
        except Exception as error:  # whatever a spec or a folder holds
            decision = Decision(followed, told=terminal_text(f"cannot be looked at: {error}"))
        else:
            new += [name] if name not in known else []
        kept[name] = decision.followed
        told += [f"{name}: {decision.told}"] if decision.told else []
        if decision.request is not None:
            requests.append(
                dg.RunRequest(run_key=f"{name}:{decision.request}", partition_key=name,
                              tags={REQUEST: decision.request, TRIGGER: _trigger(spec)})
            )  # fmt: skip
    told += [f"{name}: its spec is gone; what was made of it stays" for name in cursor if name not in files]
    for line in told:
        context.log.info(terminal_text(line))
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(told) or "nothing changed",
        dynamic_partitions_requests=[DATASETS.build_add_request(new)] if new else [],
        cursor=json.dumps({name: followed.to_json() for name, followed in kept.items()}, sort_keys=True),
    )


def _cursor(text: str | None) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:  # somebody edited it in the UI
        value = {}
    return value if isinstance(value, dict) else {}


def _trigger(spec: DatasetSpec) -> str:
    return "change" if spec.refresh in (None, WATCH) else "planned time"


def _decide(instance: dg.DagsterInstance, spec: DatasetSpec, path: Path, followed: Followed) -> Decision:
    name = spec.name
    policy = policy_of(spec.refresh, Workspace().store.current(name, _BUILT) is not None)
    if policy is None:
        return Decision(followed)
    look = Look(
        state=stable_hash([hashlib.sha256(path.read_bytes()).hexdigest(), file_states(watched_files(spec))]),
        policy=policy,
        busy=next(iter(unfinished_runs(instance, name)), None),
        now=time.time(),
    )
    return decide(followed, look, lambda request: _became_of(instance, name, request))


def watched_files(spec: DatasetSpec) -> list[Path]:
    """What a dataset is made of beside its spec: source files, and the plans written by others."""
    plans = [plan_path(spec.plans.file)] if spec.plans.file is not None else []
    return [*open_source(spec).files(), *(path for path in plans if path.exists())]


def _became_of(instance: dg.DagsterInstance, name: str, request: str) -> RunState:
    # A run that Dagster starts again by itself has the same tags; the newest counts.
    run = next(iter(instance.get_runs(dg.RunsFilter(tags={PARTITION: name, REQUEST: request}), limit=1)), None)
    if run is None:
        return RunState.UNKNOWN
    return _STATES.get(run.status, RunState.FAILED) if run.is_finished else RunState.UNFINISHED


_STATES = {dg.DagsterRunStatus.SUCCESS: RunState.SUCCESS, dg.DagsterRunStatus.CANCELED: RunState.CANCELLED}


def file_states(paths: list[Path]) -> list[list[object]]:
    """Path, size in bytes and modification time in ns of each file."""
    return [[str(path), (stat := path.stat()).st_size, stat.st_mtime_ns] for path in paths]


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Closes runs whose process was killed, so that they hold up no others; Dagster's daemon starts them "
    "again.",
)
def killed_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Dagster itself cannot tell whether the process of a run is alive when it started it on this machine."""
    closed = close_killed_runs(context.instance)
    return dg.SkipReason(f"closed: {', '.join(closed)}" if closed else "no run lost its process")


@dg.run_failure_sensor(
    name="table_of_the_others",
    monitor_all_code_locations=False,
    request_job=table,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="After a failed run that was to make the metric table, makes it of the systems there are: one that "
    "fails takes no other's row away.",
)
def table_of_the_others(context: dg.RunFailureSensorContext) -> dg.RunRequest | dg.SkipReason:
    """Dagster does not start what comes after a failed step, and the table comes after all systems."""
    run = context.dagster_run
    if run.job_name == table.name or TABLE_FOLLOWS in run.tags:
        return dg.SkipReason("the table itself failed, or whoever started the run makes it")
    now = context.instance.get_run_by_id(run.run_id)
    if now is not None and now.tags.get(STARTED_AGAIN) == "true":
        return dg.SkipReason("its process was killed; it is started again as a whole")
    wanted = run.asset_selection is None or dg.AssetKey(["evaluation", "metrics"]) in run.asset_selection
    if run.job_name not in (materialise.name, "__ASSET_JOB") or not wanted or "dagster/partition" not in run.tags:
        return dg.SkipReason("no metric table was asked for")
    return dg.RunRequest(
        run_key=run.run_id, partition_key=run.tags["dagster/partition"], tags={TRIGGER: "failed system"}
    )


ALL = [catalogue_changes, killed_runs, table_of_the_others]
