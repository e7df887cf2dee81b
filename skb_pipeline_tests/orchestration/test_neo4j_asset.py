"""The asset ``graph/neo4j`` and the commands: skipped without a server, reused while the server still has it."""

import gc
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.graph import neo4j_versions as versions
from skb_pipeline.orchestration.running import RunFailedError, StageOutcome, materialise
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.bolt_loader import clear
from skb_pipeline_tests.bolt_server import BoltServer

SECRET = "sk-TEST-123"
KEY = dg.AssetKey(["graph", "neo4j"])


@pytest.fixture
def server(bolt_server: BoltServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoltServer]:
    """An empty home, and the server with an empty database, told by the environment."""
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


def test_without_an_address_it_is_skipped_with_a_reason(home: Path) -> None:
    outcomes = {o.asset for o in materialise("mini", to="graph/neo4j")}
    assert outcomes == {"catalog/snapshot", "skb/store"}
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


def test_without_an_address_the_commands_say_so(home: Path) -> None:
    for command in (["load", "--dataset", "mini"], ["status"], ["remove", "--dataset", "mini"]):
        done = run_cli("neo4j", *command)
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: NEO4J_URI is not set: give the server's address")
        assert done.stdout == ""


@pytest.mark.slow
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


def test_a_server_that_is_away_fails_this_asset_and_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:1")
    monkeypatch.setenv("NEO4J_PASSWORD", SECRET)
    with pytest.raises(RunFailedError, match=r"graph__neo4j: .*Neo4j at bolt://127\.0\.0\.1:1 cannot be reached"):
        materialise("mini", to="graph/neo4j")
    assert Workspace().store.require("mini", "skb/store")
    assert Workspace().store.current("mini", "graph/neo4j") is None


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_password_is_nowhere_to_be_found(
    server: BoltServer,
    home: Path,
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
            with pytest.raises(RunFailedError, match="graph__neo4j") as raised:
                load()
            assert not any(secret in str(raised.value) for secret in secrets)

    gc.collect()  # closes what still holds a log open
    found = [(path, secret) for path, text in texts_below(home) for secret in secrets if secret.encode() in text]
    assert found == []
    assert len(list(texts_below(home))) > 10
    told = capfd.readouterr()
    assert not any(secret in told.out + told.err + caplog.text for secret in secrets)
