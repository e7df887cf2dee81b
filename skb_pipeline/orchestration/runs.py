"""Runs in Dagster's history: whose process they are, which are in progress, closing those that were killed."""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.runs import SqliteRunStorage

from skb_pipeline.orchestration.starters import HOST, PID, this_host
from skb_pipeline.storage.atomic import process_alive

PARTITION = "dagster/partition"
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def close_killed_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs of this machine as failed whose process is gone, so that they do not count as in progress for ever,
    whether or not they had come to start.

    A run of the command line carries its process's number as a tag. One of the UI tells it in its log once its process
    runs; that counts where Dagster's storage is SQLite, which serves one machine. What has no process yet, in the
    queue or on its way out of it, is left to Dagster's daemon.

    Returns:
        Ids of the runs that were closed.
    """
    closed = []
    for record in instance.get_run_records(dg.RunsFilter(statuses=_UNFINISHED)):
        process = _process_of(instance, record)
        if process is None or process_alive(process[0], at=process[1]):
            continue
        run, told = record.dagster_run, "The process of this run was killed; the next run takes up its work."
        if run.status is dg.DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, told)
        else:
            instance.report_run_failed(run, told)
        closed.append(run.run_id)
    return closed


def _process_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> tuple[int, float] | None:
    """The process of a run on this machine, and a time (seconds since 1970) at which it was running."""
    run = record.dagster_run
    if PID in run.tags:
        mine = run.tags.get(HOST) == this_host() and run.tags[PID].isdigit()
        return (int(run.tags[PID]), record.create_timestamp.timestamp()) if mine else None
    if not isinstance(instance.run_storage, SqliteRunStorage):
        return None
    for event in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        pid = (event.dagster_event.engine_event_data.metadata if event.dagster_event else {}).get("pid")
        if pid is not None and str(pid.value).isdigit():
            return int(str(pid.value)), event.timestamp
    return None


def unfinished_runs(instance: dg.DagsterInstance, dataset: str) -> list[str]:
    """Ids of the runs of a dataset that are in progress or wait for their turn."""
    wanted = dg.RunsFilter(statuses=_UNFINISHED, tags={PARTITION: dataset})
    return [run.run_id for run in instance.get_runs(wanted)]
