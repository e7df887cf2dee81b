"""A Bolt server for tests: the packaged one in a process of its own, or the one that ``NEO4J_URI`` names.

Run as a module it *is* that process: ``python -m skb_pipeline_tests.bolt_server FOLDER BOLT_PORT HTTP_PORT HEAP``.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skb_pipeline.graph.neo4j.connection import Neo4jSettings
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline_tests.bolt_loader import GraphRows, clear, load

if TYPE_CHECKING:
    from neo4j import Driver

DATABASE = "kb"
START_SECONDS = 120
"""A Java server on a busy machine takes its time."""


@dataclass(frozen=True)
class BoltServer:
    """A running server.

    Attributes:
        driver: for the whole of the server.
        database: the database that tests fill and empty.
        packaged: whether it is the packaged server.
        environment: the variables by which the library finds it.
    """

    driver: Driver
    database: str | None
    packaged: bool
    environment: Mapping[str, str]

    def hold(self, rows: GraphRows, schema: GraphSchema) -> None:
        """Make the database hold this graph and nothing else."""
        clear(self.driver, self.database)
        load(self.driver, self.database, rows, schema)

    def count_nodes(self) -> int:
        """All nodes, of whatever label."""
        return int(self.driver.execute_query("MATCH (n) RETURN count(n) AS n", database_=self.database)[0][0]["n"])


@contextmanager
def packaged_server(heap: str = "1g", fill: Callable[[Path], None] | None = None) -> Iterator[BoltServer]:
    """Start the packaged server on loopback with an empty database; it ends with the block.

    Args:
        heap: most memory of its Java machine.
        fill: called with the folder of the database before the server starts; it may write a database there.

    Raises:
        RuntimeError: the process ended, or does not answer within two minutes; the message has its last output.
    """
    password = secrets.token_hex(12)
    from neo4j import GraphDatabase

    with tempfile.TemporaryDirectory(prefix="skb-bolt-") as folder:
        if fill is not None:
            fill(Path(folder) / "databases" / DATABASE)
        bolt, http = _free_ports(2)
        log = Path(folder) / "output.txt"
        arguments = [sys.executable, "-m", __name__, folder, str(bolt), str(http), heap]
        with log.open("w") as output:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "SKB_BOLT_PASSWORD": password},
            )
        try:
            uri = f"bolt://127.0.0.1:{bolt}"
            with GraphDatabase.driver(uri, auth=("root", password), notifications_min_severity="OFF") as driver:
                _wait(driver, process, log)
                environment = {
                    "NEO4J_URI": uri, "NEO4J_USER": "root", "NEO4J_PASSWORD": password, "NEO4J_DATABASE": DATABASE,
                }  # fmt: skip
                yield BoltServer(driver, DATABASE, packaged=True, environment=environment)
        finally:
            process.kill()
            process.wait()


@contextmanager
def external_server() -> Iterator[BoltServer]:
    """The server of ``NEO4J_URI`` (``NEO4J_USER``, ``NEO4J_PASSWORD``, ``NEO4J_DATABASE``), emptied afterwards.

    Raises:
        RuntimeError: its database is not empty; tests would delete what it holds.
    """
    from neo4j import GraphDatabase

    settings = Neo4jSettings.require()
    environment = {key: value for key, value in os.environ.items() if key.startswith("NEO4J_")}
    with GraphDatabase.driver(settings.uri, auth=(settings.user, settings.password)) as driver:
        server = BoltServer(driver, settings.database, packaged=False, environment=environment)
        if server.count_nodes():
            raise RuntimeError("the database of NEO4J_URI is not empty; the tests would delete what it holds")
        yield server
        clear(driver, server.database)


@pytest.fixture(scope="session", params=["packaged", *(["external"] if os.environ.get("NEO4J_URI") else [])])
def bolt_server(request: pytest.FixtureRequest) -> Iterator[BoltServer]:
    """A server with a database for the tests. Its content is whatever the last test left."""
    if request.param == "external":
        with external_server() as server:
            yield server
        return
    if find_spec("arcadedb_embedded") is None:
        pytest.skip("the package arcadedb-embedded (a Bolt server) is not installed")
    with packaged_server() as server:
        yield server


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def _wait(driver: Driver, process: subprocess.Popen[bytes], log: Path) -> None:
    from neo4j.exceptions import DriverError, Neo4jError

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with driver.session(database=DATABASE) as session:
                session.run("RETURN 1").consume()
            return
        except (DriverError, Neo4jError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Bolt server did not start: {error}\n{log.read_text()[-3000:]}") from error
            time.sleep(0.2)


def _serve(folder: str, bolt_port: int, http_port: int, heap: str) -> None:
    """Body of the server process: it ends when its standard input does, so it cannot outlive its parent."""
    from arcadedb_embedded.server import ArcadeDBServer

    server = ArcadeDBServer(
        root_path=folder,
        root_password=os.environ["SKB_BOLT_PASSWORD"],
        config={
            "host": "127.0.0.1",
            "http_port": http_port,
            "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
            "bolt_port": bolt_port,
            "bolt_host": "127.0.0.1",
        },
        jvm_kwargs={"heap_size": heap},
    )
    server.start()
    server.create_database(DATABASE)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
