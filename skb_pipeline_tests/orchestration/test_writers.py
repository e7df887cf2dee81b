"""Runs that write the same dataset: the second waits, and its log says for which."""

from pathlib import Path

import dagster as dg

from skb_pipeline.orchestration.partitions import DATASETS
from skb_pipeline.orchestration.resources import WorkspaceParam, WorkspaceResource
from skb_pipeline.orchestration.starters import HOST, PID, started_here, starter_tags
from skb_pipeline.storage.writing import writer
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.storage.test_generations import held_by


def test_a_run_waits_for_the_one_that_writes_and_holds_the_dataset_itself(home: Path) -> None:
    folder = Workspace().store.of_dataset("mini")
    seen: list[str | None] = []

    @dg.asset(partitions_def=DATASETS)
    def thing(context: dg.AssetExecutionContext, workspace: WorkspaceParam) -> None:
        seen.append(writer(workspace.store.of_dataset("mini")))

    with dg.DagsterInstance.ephemeral() as instance, held_by(folder, "run-of-the-first", seconds=1.5):
        instance.add_dynamic_partitions("dataset", ["mini"])
        resources = {"workspace": WorkspaceResource(home=str(home))}
        done = dg.materialize([thing], instance=instance, partition_key="mini", resources=resources)
        told = [entry.user_message for entry in instance.all_logs(done.run_id)]
    assert seen == [done.run_id]
    assert "waits for run run-of-the-first, which writes dataset 'mini'" in told
    assert writer(folder) is None


def test_a_run_started_anew_in_the_ui_is_not_taken_for_that_of_its_starter() -> None:
    own = dg.DagsterRun("job", tags={**starter_tags(), "more": "tags"})
    assert started_here(own)
    for tag, value in ((PID, "1"), (HOST, "another-machine")):
        assert not started_here(dg.DagsterRun("job", tags={**starter_tags(), tag: value}))
    assert not started_here(dg.DagsterRun("job"))
