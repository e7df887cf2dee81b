"""Runs in Dagster's history: whose process they are, which are in progress, closing those that were killed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dagster as dg
from dagster._core.storage.runs import SqliteRunStorage

from skb_pipeline.orchestration.starters import HOST, PID, this_host
from skb_pipeline.storage.atomic import process_alive

PARTITION = "dagster/partition"
_PROCESS = "skb/process"
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def somebody_waits(run: dg.DagsterRun) -> bool:
    """Whether a run belongs to a command on a terminal, where an error should be told at once."""
    return PID in run.tags


def tell_process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Let a run carry the process it is in, where its log does not tell on which machine that is.

    The tag holds the run's id too, as Dagster copies tags to the run that it starts again.
    """
    if PID not in run.tags and not isinstance(instance.run_storage, SqliteRunStorage):
        process = f"{run.run_id}:{this_host()}:{os.getpid()}:{int(time.time())}"
        instance.add_run_tags(run.run_id, {_PROCESS: process})


def close_killed_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs of this machine as failed whose process is gone, so that they do not count as in progress for ever,
    whether or not they had come to start.

    A run of the command line carries its process's number as a tag. One of the UI tells it in its log once its process
    runs; that counts where Dagster's storage is SQLite, which serves one machine. Elsewhere it carries a tag, with the
    machine's name, once its first step begins (:func:`tell_process`), and runs of other machines are left alone. What
    has no process yet, in the queue or on its way out of it, is left to Dagster's daemon.

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
        # Without a daemon nobody else gives back the places that its steps held in pools.
        if instance.event_log_storage.supports_global_concurrency_limits:
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        closed.append(run.run_id)
    return closed


@contextmanager
def killed_runs_closed(instance: dg.DagsterInstance, every: float = 30.0) -> Iterator[None]:
    """Close killed runs again and again, every so many seconds, in a thread.

    A run of the command line may wait for a place in a pool that another run holds; when that is killed and no daemon
    is there, nobody else would give the place back.
    """
    done = threading.Event()

    def look() -> None:
        while not done.wait(every):
            with suppress(Exception):  # a busy database: the next look may do it, and the run tells what stays broken
                close_killed_runs(instance)

    thread = threading.Thread(target=look, name="killed-runs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _process_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> tuple[int, float] | None:
    """The process of a run on this machine, and a time (seconds since 1970) at which it was running."""
    run = record.dagster_run
    if PID in run.tags:
        mine = run.tags.get(HOST) == this_host() and run.tags[PID].isdigit()
        return (int(run.tags[PID]), record.create_timestamp.timestamp()) if mine else None
    told = run.tags.get(_PROCESS, "").split(":")
    if told[:2] == [run.run_id, this_host()] and all(part.isdigit() for part in told[2:]) and len(told) == 4:
        return int(told[2]), float(told[3])
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
