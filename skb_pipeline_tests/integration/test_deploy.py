"""The deployment that `docs/deploy` describes, with Postgres, run as plain processes; and its files."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test

from skb_pipeline_tests.conftest import write_mini_spec
from skb_pipeline_tests.live.deployed import DEPLOY, ROOT, Deployed, Postgres, compose, postgres_program

PASSWORD = "a secret of a test"
WHOLE = 500


def test_the_settings_are_the_shipped_ones_but_for_the_places() -> None:
    deployed, shipped = (yaml.safe_load((f / "dagster.yaml").read_text()) for f in (DEPLOY, ROOT))
    assert {key: value for key, value in deployed.items() if key not in ("storage", "compute_logs")} == shipped
    services = compose({"SKB_POSTGRES_PASSWORD": PASSWORD})["services"]
    database = deployed["storage"]["postgres"]["postgres_db"]
    asked = {value["env"] for key, value in database.items() if key != "scheme"}
    asked |= {deployed["compute_logs"]["config"]["base_dir"]["env"]}
    (location,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    asked |= {location["grpc_server"][key]["env"] for key in ("host", "port")}
    for name in ("code", "webserver", "daemon"):
        assert asked <= services[name]["environment"].keys()
        assert services[name]["environment"]["SKB_POSTGRES_PASSWORD"] == PASSWORD
    assert location["grpc_server"]["location_name"] == "skb_pipeline"
    assert services["code"]["hostname"] == "skb-code"  # how a killed run is known after a restart


def test_the_values_for_kubernetes_keep_secrets_out() -> None:
    values = yaml.safe_load((DEPLOY / "kubernetes-values.yaml").read_text())
    (deployment,) = values["dagster-user-deployments"]["deployments"]
    assert deployment["dagsterApiGrpcArgs"] == ["-m", "skb_pipeline.definitions", "-d", "/dev/null"]
    assert values["runLauncher"]["type"] == "K8sRunLauncher"
    assert "password" not in str(values["postgresql"]).lower()
    assert values["global"]["postgresqlSecretName"]


@pytest.mark.deep
@pytest.mark.timeout(1500)
def test_it_runs_a_dataset_and_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dagster_postgres", reason="the extra `postgres` is not installed")
    if postgres_program("initdb") is None:
        pytest.skip("initdb is not to be found: install the package postgresql")
    home = tmp_path / "home"
    write_mini_spec(home / "catalogue")
    with Postgres("dagster", PASSWORD, "dagster_history") as postgres:
        live = Deployed(home, tmp_path / "log", postgres, PASSWORD)
        live.environment["SKB_POSTGRES_DB"] = "dagster_history"
        for name, value in live.environment.items():
            monkeypatch.setenv(name, value)
        with live:
            first = live.launch("mini")
            live.wait(lambda: finished(live, first), WHOLE, "the run is not finished")
            assert state(live, first) == "SUCCESS"
            table = json.loads(cli("metrics", "--dataset", "mini", "--split", "test", "--format", "json"))
            assert {row["system"] for row in table} == {"bm25", "dense", "text", "graph", "fused"}
            assert not (home / "dagster" / "history").exists()  # history is in Postgres
            # A run whose process is killed is closed and taken up again; one of another machine is left alone.
            with dg.DagsterInstance.from_config(str(home / "dagster")) as instance:
                foreign = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED)
                process = f"{foreign.run_id}:another-machine:1:{2**31}"
                instance.add_run_tags(foreign.run_id, {"skb/process": process})
            second = live.launch("mini")
            live.wait(lambda: "skb/process" in tags(live, second), 120, "the run tells no process")
            os.kill(int(tags(live, second)["skb/process"].split(":")[2]), signal.SIGKILL)
            live.wait(lambda: finished(live, second), 120, "the killed run is not closed")
            assert state(live, second) == "FAILURE"
            live.wait(lambda: len(live.runs("mini")) == 3, 180, "not taken up again")
            third = live.runs("mini")[-1].run_id
            live.wait(lambda: finished(live, third), WHOLE, "the run taken up is not finished")
            assert state(live, third) == "SUCCESS"
            assert all(reused for reused in live.made(live.runs("mini")[-1]).values())
            assert state(live, foreign.run_id) == "STARTED"
            # The command line has the same history.
            told = cli("gc", "--dataset", "mini", "--keep-runs", "1", errors=True)
            assert "1 old runs removed" in told
            assert {run.run_id for run in live.runs("mini")} == {first, third}
        assert not live.processes()


def cli(*arguments: str, errors: bool = False) -> str:
    """What a command prints, in the environment of the deployment."""
    command = [sys.executable, "-m", "skb_pipeline.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr if errors else done.stdout


def run_of(live: Deployed, run_id: str) -> dg.DagsterRun:
    (run,) = (run for run in live.runs() if run.run_id == run_id)
    return run


def state(live: Deployed, run_id: str) -> str:
    return run_of(live, run_id).status.value


def tags(live: Deployed, run_id: str) -> dict[str, str]:
    return dict(run_of(live, run_id).tags)


def finished(live: Deployed, run_id: str) -> bool:
    return run_of(live, run_id).is_finished
