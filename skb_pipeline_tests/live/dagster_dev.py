"""Dagster as ``skb-pipeline ui`` starts it, in processes of its own, asked over its GraphQL and its history."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

START_SECONDS = 120


class LiveDagster:
    """Webserver, daemon and code server on a home folder; a context manager.

    Attributes:
        home: what ``SKB_HOME`` is to them.
        log: their output.
        folder: where they are started; None for where this process is.
    """

    def __init__(self, home: Path, log: Path, folder: Path | None = None) -> None:
        self.home, self.log, self.folder = home, log, folder
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LiveDagster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start, and wait until the code location is loaded."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-P", "-m", "skb_pipeline.cli", "ui", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
                env={**os.environ, "SKB_HOME": str(self.home)},
            )  # fmt: skip
        self.wait(self._loaded, START_SECONDS, "the code location is not loaded")

    def _loaded(self) -> bool:
        with suppress(OSError, ValueError):
            found = self.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
            return bool(found["repositoriesOrError"].get("nodes"))
        return False

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The data of a GraphQL answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            told = json.loads(answer.read())
        if told.get("errors"):
            raise ValueError(told["errors"])
        data: dict[str, Any] = told["data"]
        return data

    def switch_on(self, sensor: str) -> None:
        """As the switch in the UI does."""
        (node,) = self.ask(
            "{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }"
        )["repositoriesOrError"]["nodes"]
        selector = {"repositoryName": node["name"], "repositoryLocationName": node["location"]["name"],
                    "sensorName": sensor}  # fmt: skip
        told = self.ask(
            "mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename ... on Sensor "
            "{ sensorState { status } } } }",
            s=selector,
        )
        assert told["startSensor"]["__typename"] == "Sensor", told

    def runs(self, dataset: str | None = None) -> list[dg.DagsterRun]:
        """Of a dataset, the oldest first."""
        tags = {"dagster/partition": dataset} if dataset is not None else None
        with dg.DagsterInstance.from_config(str(self.home / "dagster")) as instance:
            return list(instance.get_runs(dg.RunsFilter(tags=tags)))[::-1]

    def made(self, run: dg.DagsterRun) -> dict[str, bool]:
        """Asset -> whether it was reused, of what a run materialised; an asset twice is a fault."""
        with dg.DagsterInstance.from_config(str(self.home / "dagster")) as instance:
            events = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        found: dict[str, bool] = {}
        for event in events:
            done = event.dagster_event.event_specific_data.materialization  # type: ignore[union-attr]
            key = "/".join(done.asset_key.path)
            assert key not in found, f"{key} was made twice in run {run.run_id}"
            found[key] = bool(done.metadata["reused"].value) if "reused" in done.metadata else False
        return found

    def wait(self, until: Callable[[], bool], seconds: float, what: str) -> float:
        """Seconds until something holds.

        Raises:
            TimeoutError: it did not in time; with the end of the log.
        """
        start = time.monotonic()
        while not until():
            if time.monotonic() - start > seconds:
                raise TimeoutError(f"{what} after {seconds:g} s\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(2)  # each look at Dagster's history opens it anew
        return time.monotonic() - start

    def processes(self) -> list[psutil.Process]:
        """All processes of it that live, runs too; those of runs outlive their parents, so they are found by home."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("SKB_HOME") == str(self.home) and process.pid != os.getpid():
                    found.append(process)
        return found

    def processes_of(self, word: str) -> list[psutil.Process]:
        """Those whose command line holds a word."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                found += [process] if any(word in argument for argument in process.cmdline()) else []
        return found

    def kill_only(self, word: str) -> None:
        """Kill these; ``dagster dev`` ends when its daemon does."""
        for process in self.processes_of(word):
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def start_again(self) -> None:
        """Wait for the end of what was started, and start it anew, whatever still runs."""
        if self._process is not None:
            self._process.wait(START_SECONDS)
        self.start()

    def kill(self) -> None:
        """Kill everything at once, as a power cut does."""
        while alive := self.processes():
            for process in alive:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGKILL)
            time.sleep(0.2)
        if self._process is not None:
            self._process.wait()
            self._process = None
