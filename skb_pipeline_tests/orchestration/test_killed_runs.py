"""Runs whose process was killed, in whatever state it left them."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.events import EngineEventData

from skb_pipeline.orchestration.running import open_instance, prepare_home
from skb_pipeline.orchestration.runs import close_killed_runs, killed_runs_closed, unfinished_runs
from skb_pipeline.orchestration.starters import this_host

NOBODYS = 2**22 + 1
"""Above the largest number a process can have."""
STATES = {
    "NOT_STARTED": [],
    "STARTING": ["STARTING"],
    "STARTED": ["STARTING", "START"],
    "CANCELING": ["STARTING", "START", "CANCELING"],
}


@dg.job
def some_job() -> None:
    """Nothing to do."""


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """The instance of one home for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKB_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("DAGSTER_HOME", "")
        prepare_home()
        with open_instance() as live:
            yield live


def new_run(instance: dg.DagsterInstance, state: str = "STARTED", **tags: str) -> dg.DagsterRun:
    """A run of the dataset ``mini`` that has come to ``state``."""
    ours = {f"skb/{key}": value for key, value in tags.items()}
    run = instance.create_run_for_job(some_job, tags={"dagster/partition": "mini", **ours})
    for event in STATES[state]:
        kind = dg.DagsterEventType(f"PIPELINE_{event}").value
        happened = dg.DagsterEvent(event_type_value=kind, job_name=run.job_name)
        instance.handle_new_event(
            dg.EventLogEntry(
                error_info=None,
                level="debug",
                user_message="",
                run_id=run.run_id,
                timestamp=0.0,
                dagster_event=happened,
            )
        )
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status.value == state
    return found


def test_runs_of_dead_processes_are_closed_in_every_state_and_no_others(instance: dg.DagsterInstance) -> None:
    here = this_host()
    dead = {state: new_run(instance, state, host=here, pid=str(NOBODYS)).run_id for state in STATES}
    kept = {
        new_run(instance, "NOT_STARTED", host=here, pid=str(os.getpid())).run_id,
        new_run(instance, "NOT_STARTED", host="another-machine", pid=str(NOBODYS)).run_id,
        new_run(instance, "NOT_STARTED", host=here, pid="no number").run_id,
        new_run(instance, "STARTING").run_id,  # of the UI, and no process has said that it runs
    }
    assert set(unfinished_runs(instance, "mini")) == {*dead.values(), *kept}
    assert sorted(close_killed_runs(instance)) == sorted(dead.values())
    assert close_killed_runs(instance) == []
    after = {run.run_id: run.status.value for run in instance.get_runs()}
    assert {state: after[run_id] for state, run_id in dead.items()} == {
        "NOT_STARTED": "FAILURE", "STARTING": "FAILURE", "STARTED": "FAILURE", "CANCELING": "CANCELED",
    }  # fmt: skip
    assert set(unfinished_runs(instance, "mini")) == kept
    assert unfinished_runs(instance, "min") == []


def test_a_run_of_the_ui_is_known_by_the_process_that_speaks_in_its_log(instance: dg.DagsterInstance) -> None:
    dead, alive = (new_run(instance, "STARTED") for _ in range(2))
    for run, pid in ((dead, NOBODYS), (alive, os.getpid())):
        told = f"Started process for run (pid: {pid})."
        instance.report_engine_event(told, run, EngineEventData.in_process(pid))
    assert close_killed_runs(instance) == [dead.run_id]


def test_a_run_that_tells_its_machine_is_closed_on_that_machine_only(instance: dg.DagsterInstance) -> None:
    def told(host: str, pid: int, of: str = "") -> str:
        run = new_run(instance, "STARTED")
        now = int(run_at(instance, run.run_id))
        instance.add_run_tags(run.run_id, {"skb/process": f"{of or run.run_id}:{host}:{pid}:{now}"})
        return run.run_id

    dead = told(this_host(), NOBODYS)
    told("another-machine", NOBODYS)
    told(this_host(), os.getpid())
    told(this_host(), NOBODYS, of=dead)  # a run that was started again has the tags of the one before
    assert close_killed_runs(instance) == [dead]


def run_at(instance: dg.DagsterInstance, run_id: str) -> float:
    (record,) = instance.get_run_records(dg.RunsFilter(run_ids=[run_id]))
    return record.create_timestamp.timestamp()


def test_a_killed_run_gives_its_place_in_a_pool_back(instance: dg.DagsterInstance) -> None:
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("gpu")
    dead = new_run(instance, "STARTED", host=this_host(), pid=str(NOBODYS))
    assert storage.claim_concurrency_slot("gpu", dead.run_id, "index__dense").is_claimed
    other = new_run(instance, "STARTED", host=this_host(), pid=str(os.getpid()))
    assert not storage.claim_concurrency_slot("gpu", other.run_id, "index__dense").is_claimed  # one place by default
    assert close_killed_runs(instance) == [dead.run_id]
    assert storage.claim_concurrency_slot("gpu", other.run_id, "index__dense").is_claimed
    storage.free_concurrency_slots_for_run(other.run_id)
    instance.report_run_failed(other)


def test_what_is_killed_meanwhile_is_closed_without_a_daemon(instance: dg.DagsterInstance) -> None:
    with killed_runs_closed(instance, every=0.05):
        dead = new_run(instance, "STARTED", host=this_host(), pid=str(NOBODYS))
        for _ in range(400):
            found = instance.get_run_by_id(dead.run_id)
            assert found is not None
            if found.status is dg.DagsterRunStatus.FAILURE:
                break
            time.sleep(0.05)
    assert found.status is dg.DagsterRunStatus.FAILURE
    assert not any(thread.name == "killed-runs" for thread in threading.enumerate())


def die_before_starting() -> None:
    """What ``materialise`` does first, and then the end."""
    with open_instance(["mini"]) as instance:
        new_run(instance, "NOT_STARTED", host=this_host(), pid=str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_next_one_closes_a_run_that_was_killed_before_it_started(instance: dg.DagsterInstance) -> None:
    before = {run.run_id for run in instance.get_runs()}
    process = multiprocessing.get_context("fork").Process(target=die_before_starting)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    with open_instance(["mini"]) as following:
        (run,) = (run for run in following.get_runs() if run.run_id not in before)
    assert run.status is dg.DagsterRunStatus.FAILURE
