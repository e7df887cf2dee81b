"""The deployment of ``docs/deploy`` as plain processes: the commands and settings of its compose file, on loopback."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from skb_pipeline.orchestration.serving import ui_environment
from skb_pipeline_tests.live.dagster_dev import START_SECONDS, LiveDagster

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}")


def compose(environment: Mapping[str, str]) -> dict[str, Any]:
    """The compose file with its variables filled in, as ``docker compose config`` does."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: environment.get(found[1]) or found[2] or "", value)
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        return [filled(one) for one in value] if isinstance(value, list) else value

    plain: dict[str, Any] = filled(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))
    return plain


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def postgres_program(name: str) -> str | None:
    """A program of Postgres; Debian keeps most of them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


class Postgres:
    """A server of its own in a temporary folder; a context manager.

    It refuses to run as root: then it runs as the system user ``postgres``, whom Debian's package makes.
    """

    def __init__(self, user: str, password: str, database: str) -> None:
        self.port = free_port()
        self._user, self._password, self._database = user, password, database
        self._folder = Path(tempfile.mkdtemp(prefix="skb-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
            self._as = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Postgres:
        secret = self._folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o644)  # in a folder that only its owner opens
        data = self._folder / "data"
        self._call("initdb", "-D", str(data), "-U", self._user, "--auth=scram-sha-256", f"--pwfile={secret}", "-N")
        program = postgres_program("postgres")
        assert program is not None
        arguments = ["-D", str(data), "-h", "127.0.0.1", "-p", str(self.port), "-k", str(self._folder), "-F"]
        with (self._folder / "log").open("wb") as log:
            self._server = subprocess.Popen([program, *arguments], stdout=log, stderr=log, cwd="/", **self._as)
        environment = {"PGPASSWORD": self._password}
        for _ in range(120):
            told = self._call(
                "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", self._user, self._database,
                check=False, env={**os.environ, **environment},
            )  # fmt: skip
            if told.returncode == 0:
                return self
            time.sleep(0.5)
        self.__exit__()
        raise TimeoutError(told.stderr.decode())

    def _call(self, name: str, *arguments: str, check: bool = True, **more: Any) -> subprocess.CompletedProcess[bytes]:
        program = postgres_program(name)
        assert program is not None, f"there is no {name}"
        return subprocess.run([program, *arguments], check=check, capture_output=True, cwd="/", **self._as, **more)

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
        shutil.rmtree(self._folder)


class Deployed(LiveDagster):
    """Code location, webserver and daemon, each as the compose file starts it.

    Attributes:
        environment: what they are given, with this machine's addresses in place of the containers'.
    """

    def __init__(self, home: Path, log: Path, postgres: Postgres, password: str) -> None:
        super().__init__(home, log, folder=ROOT)
        self.services = compose({"SKB_POSTGRES_PASSWORD": password})["services"]
        self.code_port = free_port()
        self._others: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **self.services["webserver"]["environment"],
            "SKB_HOME": str(home),
            "DAGSTER_HOME": str(home / "dagster"),
            "SKB_DAGSTER_YAML": str(DEPLOY / "dagster.yaml"),
            "SKB_COMPUTE_LOGS": str(home / "dagster" / "compute_logs"),
            "SKB_POSTGRES_HOST": "127.0.0.1",
            "SKB_POSTGRES_PORT": str(postgres.port),
            "SKB_CODE_HOST": "127.0.0.1",
            "SKB_CODE_PORT": str(self.code_port),
        }

    def start(self) -> None:
        """Mount the settings, start all three, and wait until the code location is loaded."""
        self.port = free_port()
        (self.home / "dagster").mkdir(parents=True, exist_ok=True)
        shutil.copy(DEPLOY / "dagster.yaml", self.home / "dagster")
        for service in ("code", "webserver", "daemon"):
            self.start_service(service)
            if service == "code":
                self.wait(self._listens, START_SECONDS, "the code location does not listen")
        self.wait(self._loaded, START_SECONDS, "the code location is not loaded")

    def start_service(self, service: str) -> None:
        """Start one of them."""
        here = {"0.0.0.0": "127.0.0.1", "3000": str(self.port), "4000": str(self.code_port)}
        name, *arguments = (here.get(word, word) for word in self.services[service]["command"])
        program = Path(sys.executable).with_name(name)
        with self.log.open("ab") as log:
            self._others.append(
                subprocess.Popen(
                    [str(program), *arguments], stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
                    env=ui_environment({**os.environ, **self.environment}),
                )
            )  # fmt: skip

    def kill(self) -> None:
        """Kill everything but Postgres."""
        super().kill()
        for process in self._others:
            process.wait()
        self._others.clear()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.code_port)) == 0

    def launch(self, dataset: str) -> str:
        """Start the whole job for a dataset as the UI does; the run's id."""
        place = {"repositoryName": "__repository__", "repositoryLocationName": "skb_pipeline"}
        self.ask(
            "mutation($r: RepositorySelector!, $k: String!) { addDynamicPartition(repositorySelector: $r, "
            'partitionsDefName: "dataset", partitionKey: $k) { __typename } }',
            r=place, k=dataset,
        )  # fmt: skip
        told = self.ask(
            "mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename ... on LaunchRunSuccess "
            "{ run { runId } } ... on PythonError { message } } }",
            p={
                "selector": {**place, "jobName": "materialise"},
                "executionMetadata": {"tags": [{"key": "dagster/partition", "value": dataset}]},
            },
        )["launchRun"]
        assert told["__typename"] == "LaunchRunSuccess", told
        return str(told["run"]["runId"])
