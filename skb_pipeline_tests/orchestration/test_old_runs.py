"""What `gc` leaves of Dagster's history after many changed runs."""

from pathlib import Path

import dagster as dg
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.orchestration.old_runs import remove_old_runs
from skb_pipeline.orchestration.running import asset_keys, materialise, open_instance
from skb_pipeline.storage.artifacts import ArtifactStore
from skb_pipeline_tests.orchestration.test_killed_runs import new_run

TAG = "dagster/partition"


def run_ids(instance: dg.DagsterInstance) -> list[str]:
    return [run.run_id for run in instance.get_runs()]


def files_of(home: Path) -> set[str]:
    """Ids of runs that have files in Dagster's home."""
    files = (home / "dagster" / "history" / "runs").iterdir()
    folders = (path.parent for path in (home / "dagster" / "storage").glob("*/compute_logs"))
    return {path.name.split(".")[0] for path in files} - {"index"} | {path.name for path in folders}


def versions(home: Path) -> dict[str, int]:
    """Versions of each artefact."""
    counts: dict[str, int] = {}
    for path in (home / "store" / "mini").glob("*/*/*/manifest.json"):
        key = "/".join(path.parts[-4:-2])
        counts[key] = counts.get(key, 0) + 1
    return counts


def of_check(instance: dg.DagsterInstance, run_id: str) -> int:
    """Results of checks that a run left."""
    with instance.event_log_storage.index_connection() as connection:  # type: ignore[attr-defined]
        told = connection.exec_driver_sql("SELECT count(*) FROM asset_check_executions WHERE run_id = ?", (run_id,))
        return int(told.scalar())


def test_ten_changed_runs_leave_a_bounded_history(finished_home: Path) -> None:
    spec = finished_home / "catalogue" / "mini.yaml"
    text = spec.read_text()
    with open_instance(["mini"]) as instance:
        (whole,) = run_ids(instance)
        for number in range(10):
            spec.write_text(text.replace("name: mini", f"name: mini  # change {number}"))
            materialise("mini", to="catalog/snapshot", force=True, instance=instance)
        changed = [run for run in run_ids(instance) if run != whole]
        foreign = instance.create_run_for_job(_some_job, tags={TAG: "mini2"}).run_id
        assert len(changed) == 10
    assert max(versions(finished_home).values()) == 11
    before = sum(path.stat().st_size for path in (finished_home / "dagster").rglob("*") if path.is_file())
    done = CliRunner().invoke(cli, ["gc", "--dataset", "mini", "--keep-runs", "1"])
    assert done.exit_code == 0, done.stderr
    assert "9 old runs removed from Dagster's history" in done.stderr
    assert max(versions(finished_home).values()) <= 2
    with open_instance(["mini"]) as instance:
        # The newest, the one that made the generation in use, and another dataset's.
        kept = [foreign, changed[0], whole]
        assert run_ids(instance) == kept
        assert files_of(finished_home) - {foreign} == set(kept) - {foreign}
        assert of_check(instance, whole) >= 10
        # What the UI shows of the kept ones is there.
        steps = instance.all_logs(whole, of_type=dg.DagsterEventType.STEP_SUCCESS)
        assert len(steps) > 20
        for key in (["evaluation", "metrics"], ["catalog", "snapshot"]):
            newest = instance.get_latest_materialization_event(dg.AssetKey(key))
            assert newest is not None
            assert newest.run_id == (whole if key[0] == "evaluation" else changed[0])
            assert instance.get_materialized_partitions(dg.AssetKey(key)) == {"mini"}
    after = sum(path.stat().st_size for path in (finished_home / "dagster").rglob("*") if path.is_file())
    assert before - after > 9 * 50_000


@dg.job
def _some_job() -> None:
    """Nothing to do."""


def test_runs_in_progress_and_those_that_told_of_an_asset_last_stay(home: Path) -> None:
    with open_instance(["mini"]) as instance:
        materialise("mini", to="catalog/snapshot", instance=instance)
        materialise("mini", to="catalog/snapshot", instance=instance)  # reused: told here, made there
        made, told = reversed(run_ids(instance))
        started = new_run(instance, "STARTED").run_id
        ended = []
        for _ in range(3):
            run = new_run(instance, "STARTED")
            instance.report_run_failed(run)
            ended.append(run.run_id)
        store = ArtifactStore(home / "store")
        removed = remove_old_runs(instance, store, "mini", asset_keys(), keep=2)
        assert removed.runs == 1
        assert removed.size > 10_000
        assert set(run_ids(instance)) == {made, told, started, *ended[1:]}
        assert remove_old_runs(instance, store, "mini", asset_keys(), keep=20).runs == 0
        assert remove_old_runs(instance, store, "other", asset_keys(), keep=1).runs == 0
