"""Removing a dataset with all it left, and what belongs to no spec any more."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.graph.neo4j.versions import GraphCounts, begin_version, list_versions, version_properties
from skb_pipeline.orchestration.running import open_instance
from skb_pipeline.orchestration.starters import this_host
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.storage.artifacts import Recipe
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.bolt_server import BoltServer
from skb_pipeline_tests.conftest import enter_home, write_mini_spec
from skb_pipeline_tests.orchestration.test_killed_runs import new_run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One home for all tests of this file: its Dagster files take seconds to make."""
    folder = tmp_path_factory.mktemp("removal") / "home"
    with pytest.MonkeyPatch.context() as patch:
        enter_home(folder, patch)
        write_mini_spec(folder / "catalogue", "mini2")
        yield folder


def leave(name: str, size: int = 2_000_000) -> None:
    """Artefacts, caches and a partition of a dataset."""
    workspace = Workspace()
    with workspace.store.write(Recipe(name, "skb/store", "1")) as draft:
        (draft.path / "big").write_bytes(b"x" * size)
        draft.finish("v", {})
    workspace.cache(name, "replies").mkdir(parents=True)
    (workspace.cache(name, "replies") / "part").write_bytes(b"y" * 500_000)
    with open_instance([name]):
        pass


def run_cli(*args: str, typed: str = "") -> Result:
    return CliRunner().invoke(cli, args, input=typed)


def there_is(home: Path, name: str) -> dict[str, bool]:
    with open_instance() as instance:
        partition = name in instance.get_dynamic_partitions("dataset")
    found = {
        "store": home / "store" / name,
        "cache": home / "cache" / name,
        "spec": home / "catalogue" / f"{name}.yaml",
    }
    return {what: path.exists() for what, path in found.items()} | {"partition": partition}


def test_a_dataset_goes_with_all_it_left_after_a_yes(prepared: Path) -> None:
    leave("mini")
    leave("mini2")
    everything = dict.fromkeys(("store", "cache", "spec", "partition"), True)
    for answer in ("n\n", ""):
        refused = run_cli("dataset", "remove", "mini", typed=answer)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "2.0 MB of artefacts, 0.5 MB of caches, its partition" in refused.stderr
        assert "NEO4J_URI is not set" in refused.stderr
        assert "mini.yaml stays" in refused.stderr
        assert there_is(prepared, "mini") == everything
    removed = run_cli("dataset", "remove", "mini", typed="y\n")
    assert removed.exit_code == 0, removed.stderr
    assert there_is(prepared, "mini") == dict.fromkeys(("store", "cache", "partition"), False) | {"spec": True}
    assert there_is(prepared, "mini2") == everything
    assert [p.name for p in (prepared / "store").iterdir()] == ["mini2"]
    assert run_cli("dataset", "remove", "mini2", "--yes", "--spec").exit_code == 0
    assert not any(there_is(prepared, "mini2").values())
    again = run_cli("dataset", "remove", "mini2", "--yes")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "unknown dataset 'mini2'; there are: amazon, demo, hpo, mag, mini, prime; near to it: mini" in again.stderr
    assert run_cli("dataset", "remove", "../mini", "--yes").exit_code == 1
    built_in = run_cli("dataset", "remove", "demo", "--yes", "--spec")
    assert "demo.yaml stays (it is built in)" in built_in.stderr
    assert "demo" in json.dumps(json.loads(run_cli("dataset", "list", "--format", "json").stdout))


def test_it_is_refused_while_a_run_goes_on(prepared: Path) -> None:
    leave("mini")
    with open_instance() as instance:
        run = new_run(instance, "NOT_STARTED", host=this_host(), pid=str(os.getpid()))
        for command in (["dataset", "remove", "mini", "--yes"], ["gc", "--dataset", "mini"]):
            refused = run_cli(*command)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert f"a run of dataset 'mini' is going on ({run.run_id})" in refused.stderr
        assert (prepared / "store" / "mini").is_dir()
        instance.report_run_failed(run)
    # One that was killed does not stand in the way.
    with open_instance() as instance:
        dead = new_run(instance, "NOT_STARTED", host=this_host(), pid=str(2**22 + 1))
    assert run_cli("dataset", "remove", "mini", "--yes").exit_code == 0
    with open_instance() as instance:
        assert instance.get_run_by_id(dead.run_id).status is dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]


def test_what_belongs_to_no_spec_is_listed_and_removed_on_request(prepared: Path) -> None:
    leave("mini")
    leave("gone", 3_000_000)
    with open_instance(["only-a-partition"]):
        pass
    (prepared / "cache" / "model_hashes.json").write_text("{}")
    listed = run_cli("gc", "--all", "--format", "json")
    assert json.loads(listed.stdout) == [
        {"dataset": "gone", "artefacts": pytest.approx(3e6, rel=0.01), "caches": 500_000, "partition": "yes",
         "neo4j": "not asked"},
        {"dataset": "only-a-partition", "artefacts": 0, "caches": 0, "partition": "yes", "neo4j": "not asked"},
    ]  # fmt: skip
    assert "3.0 MB" in run_cli("gc", "--all").stdout
    assert (prepared / "store" / "gone").is_dir()
    told = run_cli("gc", "--dataset", "gone")
    assert (told.exit_code, "gone has no spec any more: `skb-pipeline dataset remove gone`" in told.stderr) == (1, True)
    assert run_cli("gc", "--all", "--yes").exit_code == 0
    assert not any(there_is(prepared, "gone").values())
    assert not there_is(prepared, "only-a-partition")["partition"]
    assert there_is(prepared, "mini")["store"]
    assert (prepared / "cache" / "model_hashes.json").is_file()
    assert json.loads(run_cli("gc", "--all", "--format", "json").stdout) == []
    for wrong in (["gc"], ["gc", "--all", "--dataset", "mini"], ["gc", "--dataset", "mini", "--yes"]):
        assert run_cli(*wrong).exit_code == 2
    assert run_cli("dataset", "remove", "mini", "--yes").exit_code == 0


def test_gc_takes_half_done_work_and_what_failures_of_gone_systems_left(prepared: Path) -> None:
    leave("mini")
    store = Workspace().store
    for asset in ("ranking/gone", "ranking/bm25"):
        store.record_failure("mini", asset, "no room")
        (store.work_folder(Recipe("mini", asset, "1")) / "half").write_text("x")
    assert run_cli("gc", "--dataset", "mini").exit_code == 0
    left = sorted(p.relative_to(store.root / "mini").as_posix() for p in (store.root / "mini").glob("*/*"))
    assert left == ["ranking/bm25", "skb/store"]
    assert store.failure("mini", "ranking/bm25") == "no room"
    assert store.current("mini", "skb/store") is not None
    assert run_cli("dataset", "remove", "mini", "--yes").exit_code == 0


def test_versions_on_neo4j_go_too(prepared: Path, bolt_server: BoltServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in bolt_server.environment.items():
        monkeypatch.setenv(key, value)
    with bolt_server.driver.session(database=bolt_server.database) as session:
        for name in ("gone", "mini"):
            label = f"{name}_0123456789ab"
            data = {"data_version": "v", "identity": "i"}
            properties = version_properties(name, data, GraphNames({}, {}, ()).within(label), GraphCounts({}, {}, {}))
            begin_version(session, properties)
        listed = json.loads(run_cli("gc", "--all", "--format", "json").stdout)
        assert listed == [{"dataset": "gone", "artefacts": 0, "caches": 0, "partition": "no", "neo4j": 1}]
        removed = run_cli("dataset", "remove", "gone", "--yes")
        assert (removed.exit_code, "On the Neo4j server: gone_0123456789ab" in removed.stderr) == (0, True)
        assert [version.dataset for version in list_versions(session)] == ["mini"]
        wrong = run_cli("neo4j", "remove", "--dataset", "minni")
        assert (wrong.exit_code, "there are: mini; near to it: mini" in wrong.stderr) == (1, True)
        assert run_cli("neo4j", "remove", "--dataset", "mini").exit_code == 0
        # Nothing else is removed where the server cannot be asked.
        leave("mini")
        monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:9")
        assert run_cli("dataset", "remove", "mini", "--yes").exit_code == 1
        assert there_is(prepared, "mini")["store"]
