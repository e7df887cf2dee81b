"""The assets that need Neo4j, and the commands: skipped without a server, reused while the server has the data."""

import gc
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.definitions import build_defs
from skb_pipeline.graph.branch import OUTCOMES
from skb_pipeline.graph.neo4j import versions
from skb_pipeline.orchestration.partitions import register_datasets
from skb_pipeline.orchestration.running import RunFailedError, StageOutcome, materialise
from skb_pipeline.orchestration.starters import starter_tags
from skb_pipeline.retrieval import ranking as contract
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.bolt_loader import clear
from skb_pipeline_tests.bolt_server import BoltServer

SECRET = "sk-TEST-123"
KEY = dg.AssetKey(["graph", "neo4j"])
RANKING = dg.AssetKey(["ranking", "graph_neo4j"])


@pytest.fixture
def server(bolt_server: BoltServer, finished_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoltServer]:
    """A home where all else is made, and the server with an empty database, told by the environment."""
    for key in [key for key in os.environ if key.startswith("NEO4J_")]:
        monkeypatch.delenv(key)
    for key, value in bolt_server.environment.items():
        monkeypatch.setenv(key, value)
    clear(bolt_server.driver, bolt_server.database)
    yield bolt_server
    clear(bolt_server.driver, bolt_server.database)


def load(**options: Any) -> StageOutcome:
    return {o.asset: o for o in materialise("mini", to="graph/neo4j", **options)}["graph/neo4j"]


def run_cli(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def texts_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


def test_without_an_address_it_is_skipped_with_a_reason(finished_home: Path) -> None:
    """By the run that made all else."""
    assert Workspace().store.current("mini", "graph/neo4j") is None
    with dg.DagsterInstance.get() as instance:
        (run,) = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.SUCCESS
        observed = instance.fetch_observations(KEY, limit=5).records
        assert len(observed) == 1
        observation = observed[0].asset_observation
        assert observation is not None
        assert observation.partition == "mini"
        assert observation.metadata["skipped"].value == "NEO4J_URI is not set"
        assert not instance.fetch_materializations(KEY, limit=5).records


def run_alone(*keys: dg.AssetKey, raise_on_error: bool = True, force: bool = False) -> dg.ExecuteInProcessResult:
    """Run just these assets of the dataset, with their checks, as the command line does: no failure is tried again."""
    config = {"ops": {"__".join(key.path): {"config": {"force": True}} for key in keys}} if force else {}
    with dg.DagsterInstance.get() as instance:
        return (
            build_defs()
            .resolve_job_def("materialise")
            .execute_in_process(
                instance=instance,
                partition_key="mini",
                asset_selection=list(keys),
                run_config=config,
                tags=starter_tags(),
                raise_on_error=raise_on_error,
            )
        )


def test_without_an_address_the_ranking_below_is_skipped_with_the_same_reason(home: Path) -> None:
    register()
    for selected in ((KEY, RANKING), (RANKING,)):
        result = run_alone(*selected)
        assert result.success
        assert not result.get_asset_materialization_events()
    with dg.DagsterInstance.get() as instance:
        # Once when the asset above it ended without a result, once when it ran by itself.
        observed = instance.fetch_observations(RANKING, limit=5).records
        told = [o.asset_observation for o in observed if o.asset_observation is not None]
        assert [(o.metadata["skipped"].value, o.partition) for o in told] == [("NEO4J_URI is not set", "mini")] * 2
        assert not instance.fetch_materializations(RANKING, limit=5).records


def register() -> None:
    with dg.DagsterInstance.get() as instance:
        register_datasets(instance, ["mini"])


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """What the one failed step of a run says."""
    assert not result.success
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message if error else ""


def check_of(result: dg.ExecuteInProcessResult) -> tuple[bool, dict[str, Any]]:
    """The equality check's verdict and its metadata."""
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "equals_the_ranking_in_memory"]
    return check.passed, {name: value.value for name, value in check.metadata.items()}


def test_the_ranking_over_bolt_equals_the_one_in_memory(server: BoltServer, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {o.asset: o for o in materialise("mini", to="ranking/graph_neo4j")}
    made = outcomes["ranking/graph_neo4j"].metadata
    store = Workspace().store
    over_bolt, in_memory = (store.require("mini", f"ranking/{name}") for name in ("graph_neo4j", "graph"))
    # The content hash has no times and no routes in it, so the two are one version.
    assert over_bolt.data_version == in_memory.data_version
    assert (made["outcomes"], made["depth"]) == (in_memory.metadata["outcomes"], in_memory.metadata["depth"])
    assert made["outcomes"]["ok"] > 20
    assert {*made["routes"]} <= {"cypher", "documents", "text"}
    rankings = [contract.RANKING.read(artifact) for artifact in (over_bolt, in_memory)]
    pd.testing.assert_frame_equal(*rankings)
    accounts = [
        OUTCOMES.read(artifact).drop(columns=["route", "milliseconds", "touched_edges"])
        for artifact in (over_bolt, in_memory)
    ]
    pd.testing.assert_frame_equal(*accounts)

    with monkeypatch.context() as patch:
        patch.setenv("NEO4J_URI", "bolt://127.0.0.1:1")
        # Nothing changed: no server is asked.
        alone = run_alone(RANKING)
        (event,) = alone.get_asset_materialization_events()
        assert event.materialization.metadata["reused"].value is True
        assert check_of(alone) == (
            True,
            {
                "queries compared": len(accounts[0]),
                "stopped by a limit": 0,
                "queries in one only": 0,
                "differing queries": 0,
            },
        )
        failed = run_alone(RANKING, raise_on_error=False, force=True)
        assert "Neo4j at bolt://127.0.0.1:1, database 'kb' cannot be reached" in failure_of(failed)

    # A ranking of the server that is not that of memory is found out.
    ranking = rankings[0].copy()
    ranking.loc[ranking["query_id"] == ranking["query_id"].iloc[0], "score"] += 1e-4
    ranking.to_parquet(over_bolt.file(contract.RANKING.file))
    passed, counts = check_of(run_alone(RANKING))
    assert not passed
    assert counts["differing queries"] == 1

    # A graph that was loaded from other data is refused before any plan runs.
    with server.driver.session(database=server.database) as session:
        versions.remove_dataset(session, "mini")
    refused = run_alone(RANKING, raise_on_error=False, force=True)
    assert "Neo4j holds no version of 'mini'" in failure_of(refused)


def test_the_check_has_nothing_to_compare_before_the_server_was_used(home: Path) -> None:
    register()
    key = dg.AssetCheckKey(RANKING, "equals_the_ranking_in_memory")
    with dg.DagsterInstance.get() as instance:
        defs = build_defs()
        # Dagster takes a partition key only where an asset is selected too.
        selection = dg.AssetSelection.checks(key) | dg.AssetSelection.assets(["catalog", "snapshot"])
        job = dg.define_asset_job("checks", selection=selection)
        result = (
            dg.Definitions.merge(defs, dg.Definitions(jobs=[job]))
            .resolve_job_def("checks")
            .execute_in_process(instance=instance, partition_key="mini")
        )
    assert check_of(result) == (True, {"not compared": "ranking/graph_neo4j was not made"})


def test_without_an_address_the_commands_say_so(home: Path) -> None:
    for command in (["load", "--dataset", "mini"], ["status"], ["remove", "--dataset", "mini"]):
        done = run_cli("neo4j", *command)
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: NEO4J_URI is not set: give the server's address")
        assert done.stdout == ""


def test_it_is_reused_until_the_server_lost_something(server: BoltServer) -> None:
    first = load()
    store = Workspace().store
    artifact = store.require("mini", "graph/neo4j")
    counts = json.loads(json.dumps(artifact.manifest["counts"]))
    assert not first.reused
    assert first.metadata["nodes"] == 142 == sum(counts["nodes"].values())
    assert first.metadata["relationships"] == sum(counts["relationships"].values()) > 142
    assert first.metadata["address"] == server.environment["NEO4J_URI"]
    assert artifact.manifest["names"]["labels"]["gene"] == "Gene"
    label = first.metadata["label"]
    assert label.startswith("mini_")

    assert load().reused
    with server.driver.session(database=server.database) as session:
        versions.write(session, f"MATCH (n:`{label}`:`Gene`) WITH n LIMIT 1 DETACH DELETE n")
        assert not versions.is_current_and_complete(session, "mini", label)
    mended = load()
    assert not mended.reused
    assert mended.metadata["label"] == label
    assert store.require("mini", "graph/neo4j").data_version == artifact.data_version
    clear(server.driver, server.database)
    assert not load().reused
    with server.driver.session(database=server.database) as session:
        assert versions.is_current_and_complete(session, "mini", label)
        assert versions.count_version(session, label).totals[0] == 142
    assert load().reused
    forced = load(force=True)
    assert not forced.reused
    assert forced.metadata["was there already"]


def test_a_server_that_is_away_fails_this_asset_and_no_other(
    finished_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:1")
    monkeypatch.setenv("NEO4J_PASSWORD", SECRET)
    with pytest.raises(
        RunFailedError, match=r"graph/neo4j: .*Neo4j at bolt://127\.0\.0\.1:1 cannot be reached"
    ) as raised:
        materialise("mini", to="graph/neo4j")
    assert {o.asset for o in raised.value.outcomes} == {"catalog/snapshot", "skb/store"}
    assert Workspace().store.current("mini", "graph/neo4j") is None


def test_the_commands(server: BoltServer, tmp_path: Path) -> None:
    loaded = run_cli("neo4j", "load", "--dataset", "mini", "--format", "json")
    assert loaded.exit_code == 0, loaded.stderr
    (row,) = json.loads(loaded.stdout)
    assert (row["nodes"], row["reused"]) == (142, False)
    again = run_cli("neo4j", "load", "--dataset", "mini", "--format", "csv")
    assert again.stdout.splitlines()[1].endswith(",True")

    status = run_cli("neo4j", "status", "--format", "json")
    (version,) = json.loads(status.stdout)
    assert version.items() >= {"dataset": "mini", "label": row["label"], "state": "current", "nodes": 142}.items()
    assert version["relationships"] == row["relationships"]

    exported = run_cli("neo4j", "export", "--dataset", "mini", "--output", str(tmp_path / "out"), "--gzip")
    assert exported.exit_code == 0, exported.stderr
    assert exported.stdout.startswith("neo4j-admin database import full neo4j --id-type=integer ")
    assert f"142 nodes and {row['relationships']} relationships of {row['label']}" in exported.stderr
    assert (tmp_path / "out" / "import.sh").is_file()
    twice = run_cli("neo4j", "export", "--dataset", "mini", "--output", str(tmp_path / "out"))
    assert twice.exit_code == 1
    assert "is there already" in twice.stderr
    assert "Traceback" not in twice.stderr
    never = run_cli("neo4j", "export", "--dataset", "demo", "--output", str(tmp_path / "other"))
    assert "run `skb-pipeline run --dataset demo --to skb/store`" in never.stderr

    removed = run_cli("neo4j", "remove", "--dataset", "mini")
    assert removed.stderr == "1 versions removed\n"
    assert json.loads(run_cli("neo4j", "status", "--format", "json").stdout) == []
    assert server.count_nodes() == 0

    secret = server.environment["NEO4J_PASSWORD"]
    for done in (loaded, again, status, exported, twice, never, removed):
        assert secret not in done.stdout + done.stderr


def test_the_password_is_nowhere_to_be_found(
    server: BoltServer,
    finished_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = [SECRET, server.environment["NEO4J_PASSWORD"]]
    assert not load().reused

    # The server quotes what it does not understand, and it was given the password.
    statement = f"Secret{secrets[1]} (n)"
    # The driver's own debug log has every statement; that of a person who turns it on is not ours to clean.
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "neo4j"):
        patch.setattr(versions, "node_constraint", lambda label: statement)
        patch.setattr(versions, "is_current_and_complete", lambda *args: False)
        with server.driver.session(database=server.database) as session:
            versions.remove_dataset(session, "mini")
        with pytest.raises(RunFailedError, match=r"\*\*\*"):
            load(force=True)
    for changed in (
        {"NEO4J_PASSWORD": SECRET},
        {"NEO4J_URI": f"neo4j://me:{SECRET}@127.0.0.1:1"},
        {"NEO4J_URI": "bolt://127.0.0.1:1", "NEO4J_PASSWORD": SECRET},
        {"NEO4J_DATABASE": "nowhere"},
    ):
        with monkeypatch.context() as patch:
            for key, value in changed.items():
                patch.setenv(key, value)
            with pytest.raises(RunFailedError, match="graph/neo4j") as raised:
                load()
            assert not any(secret in str(raised.value) for secret in secrets)

    gc.collect()  # closes what still holds a log open
    found = [
        (path, secret) for path, text in texts_below(finished_home) for secret in secrets if secret.encode() in text
    ]
    assert found == []
    assert len(list(texts_below(finished_home))) > 10
    told = capfd.readouterr()
    assert not any(secret in told.out + told.err + caplog.text for secret in secrets)
