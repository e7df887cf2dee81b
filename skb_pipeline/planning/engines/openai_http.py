"""Completions from a server that speaks OpenAI's chat protocol: vLLM, llama.cpp, Ollama, hosted services.

Belongs here: what is sent, what is tried again and for how long, and how an answer of any shape becomes a
``Completion`` or a ``Failed``. What the text of a reply means is read elsewhere.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any

import anyio
import httpx2
from anyio.from_thread import start_blocking_portal

from skb_pipeline.errors import UserError
from skb_pipeline.planning.engines.base import PASSING_CAUSES, PlanCause
from skb_pipeline.planning.engines.completions import ChatRequest, Completion, Failed, temperature_and_seed
from skb_pipeline.planning.settings import LanguageModelSpec

BASE_URL_ENV = "OPENAI_BASE_URL"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""No plan is near this size; a server that sends more is cut off."""
MESSAGE_CHARACTERS = 300
"""Of a server's error message, as far as it is passed on."""
CONNECT_SECONDS = 10.0
DESCRIBE_SECONDS = 10.0
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 8.0
_HEALING_STATUSES = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
_HEALING_CAUSES = frozenset({PlanCause.SERVER_ERROR, PlanCause.CONNECTION})

_Answer = Completion | Failed
_Arrived = tuple[int, _Answer]


class ModelSettingsError(UserError, ValueError):
    """The address or the key of the language model is missing or cannot be used."""


class ModelServerError(UserError, RuntimeError):
    """The server of the language model cannot be reached, or does not serve the model that is asked for."""


def request_body(spec: LanguageModelSpec, request: ChatRequest, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of one call, as plain values."""
    temperature, seed = temperature_and_seed(spec, request.sample)
    body: dict[str, Any] = {
        "model": spec.name,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "temperature": temperature,
        "seed": seed,
        spec.max_tokens_field: spec.max_tokens,
    }
    if spec.structured == "json_schema":
        plan = {"name": "plan", "schema": dict(schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": plan}
    elif spec.structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    if spec.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": spec.thinking}
    return body


class OpenAIChat:
    """A model behind ``<base_url>/chat/completions``.

    At most ``concurrency`` requests are on their way at a time. Each has one deadline (``ChatRequest.seconds``) from
    the moment it gets its slot: all tries, the waits between them and a body that comes byte by byte count. Tried
    again is what can heal: status 408, 409, 425, 429 and 5xx, and failed connections, after a growing wait or the
    longer one that ``Retry-After`` asks for. A wait that would end after the deadline is not begun. When as many
    requests in a row as twice the concurrency (at least eight) got no answer, the rest of the call is not sent and
    fails with the cause of the last: a dead server is not asked ten thousand times.

    The key is sent as a bearer token and is replaced by ``***`` in every message.
    """

    def __init__(self, spec: LanguageModelSpec, environ: Mapping[str, str] = os.environ) -> None:
        """Nothing is sent or looked up yet, so that where no reply is needed, no address is needed either.

        Args:
            spec: the model and how it is asked; without ``base_url`` the address is ``$OPENAI_BASE_URL``.
            environ: where address and key are looked up. A variable without a key means none is sent.
        """
        self.spec = spec
        self._environ = environ

    def check(self) -> None:
        """Settle address and key, as the first request does.

        Raises:
            ModelSettingsError: there is no address, it is not one of HTTP, or the key cannot stand in a header.
        """
        _ = self._base, self._key

    @cached_property
    def _key(self) -> str | None:
        return _key(self.spec.api_key_env, self._environ)

    @cached_property
    def _base(self) -> httpx2.URL:
        return _base_url(self.spec.base_url, self._environ)

    @property
    def base_url(self) -> str:
        """Address without its query, for people."""
        return str(self._base.copy_with(query=None))

    def settings(self) -> dict[str, Any]:
        """What a reply depends on besides request and schema; address, deadline and retries are not part of it."""
        included = {"name", "temperature", "sample_temperature", "seed", "max_tokens", "structured", "thinking"}
        return {"engine": "openai", **self.spec.model_dump(mode="json", include=included)}

    def describe(self, seconds: float = DESCRIBE_SECONDS) -> dict[str, Any]:
        """What the server says about itself: ``models`` (ids) and ``version`` (vLLM's; None from other servers).

        Args:
            seconds: for all of it.

        Raises:
            ModelSettingsError: see :meth:`check`.
            ModelServerError: the server cannot be reached, does not list its models, or does not serve this one.
        """
        self.check()
        with start_blocking_portal(name="model-server") as portal:
            return portal.call(self._describe, seconds)

    def complete(self, requests: Sequence[ChatRequest], schema: Mapping[str, Any]) -> Iterator[_Arrived]:
        """Replies with the place of their request, in the order in which they arrive; exactly one per request.

        The calls are made by an event loop in a thread of its own, so it does not matter whether one runs in the
        caller's. Closing the iterator early cancels what is on its way and ends the thread.

        Raises:
            ModelSettingsError: see :meth:`check`.
        """
        self.check()
        arrived: SimpleQueue[_Arrived | None] = SimpleQueue()
        with start_blocking_portal(name="chat-completions") as portal:
            asked = portal.start_task_soon(self._ask_all, requests, schema, arrived.put)
            asked.add_done_callback(lambda _: arrived.put(None))
            try:
                yield from iter(arrived.get, None)
            finally:
                asked.cancel()
            asked.result()

    async def _ask_all(
        self, requests: Sequence[ChatRequest], schema: Mapping[str, Any], put: Callable[[_Arrived], None]
    ) -> None:
        left = iter(enumerate(requests))
        streak = _Streak(max(8, 2 * self.spec.concurrency))

        async def work() -> None:
            for place, request in left:
                answer = streak.verdict()
                if answer is None:
                    answer = await self._ask(client, place, request, schema)
                    streak.note(answer)
                put((place, answer))

        async with self._client() as client, anyio.create_task_group() as workers:
            for _ in range(min(self.spec.concurrency, len(requests))):
                workers.start_soon(work)

    async def _ask(
        self, client: httpx2.AsyncClient, place: int, request: ChatRequest, schema: Mapping[str, Any]
    ) -> _Answer:
        """One request, with its tries, within its deadline."""
        start = time.monotonic()
        # ASCII, because a lone surrogate in a question has no UTF-8 form.
        body = json.dumps(request_body(self.spec, request, schema)).encode("ascii")
        tries: list[_Answer] = []
        with anyio.move_on_after(request.seconds):
            answer = await self._try_again(client, body, start + request.seconds, self._jitter(place), tries)
            return replace(answer, milliseconds=_milliseconds_since(start))
        before = f"; before that: {tries[-1].message}" if tries and isinstance(tries[-1], Failed) else ""
        message = f"no whole answer within {request.seconds:g} s{before}"
        return Failed(PlanCause.DEADLINE, message, _milliseconds_since(start))

    async def _try_again(
        self, client: httpx2.AsyncClient, body: bytes, deadline: float, jitter: random.Random, tries: list[_Answer]
    ) -> _Answer:
        """Try until there is an answer that stays; each try's outcome is appended to ``tries``."""
        while True:
            attempt = await self._try(client, body)
            tries.append(attempt.answer)
            if not isinstance(attempt.answer, Failed) or attempt.answer.cause not in _HEALING_CAUSES:
                return attempt.answer
            backoff = min(FIRST_BACKOFF_SECONDS * 2 ** (len(tries) - 1), MAX_BACKOFF_SECONDS) * jitter.uniform(0.5, 1)
            pause = max(backoff, attempt.retry_after)
            if len(tries) > self.spec.retries or time.monotonic() + pause >= deadline:
                return replace(attempt.answer, message=f"{attempt.answer.message} (tries: {len(tries)})")
            await anyio.sleep(pause)

    async def _try(self, client: httpx2.AsyncClient, body: bytes) -> _Try:
        """Send one request and read its answer, whatever it is."""
        try:
            async with client.stream("POST", self._address("/chat/completions"), content=body) as response:
                content, whole = await _read(response)
        except httpx2.DecodingError as error:
            return _Try(Failed(PlanCause.MALFORMED, self._shown(f"the answer cannot be decompressed: {error}")))
        except httpx2.TransportError as error:
            return _Try(Failed(PlanCause.CONNECTION, self._shown(_told(error))))
        status = response.status_code
        if status in _HEALING_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            failed = Failed(PlanCause.SERVER_ERROR, self._told_status(response, content))
            return _Try(failed, _retry_after(response.headers.get("retry-after")))
        if not response.is_success:
            return _Try(Failed(PlanCause.REFUSED, self._told_status(response, content)))
        if not whole:
            return _Try(Failed(PlanCause.TOO_LARGE, f"the answer is larger than {MAX_ANSWER_BYTES} bytes"))
        return _Try(self._completion(content))

    def _completion(self, content: bytes) -> _Answer:
        """Read the body of an answer with status 200."""
        try:
            value = json.loads(content)
            choice = value["choices"][0]
            message = choice["message"]
            text = message.get("content")
            if text is not None and not isinstance(text, str):
                raise TypeError("content is neither text nor null")
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            told = f"no chat completion ({_told(error)}): {self._server_message(content)}"
            return Failed(PlanCause.MALFORMED, self._shown(told))
        usage = _as(dict, value.get("usage")) or {}
        return Completion(
            text=None if text is None else _sound(text),
            reasoning=_reasoning(message),
            finish_reason=_as(str, choice.get("finish_reason")),
            model=_sound(_as(str, value.get("model")) or self.spec.name),
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
            milliseconds=0.0,
        )

    async def _describe(self, seconds: float) -> dict[str, Any]:
        with anyio.move_on_after(seconds):
            async with self._client() as client:
                models = await self._served(client)
                version = await self._version(client)
            if not any(_same_model(self.spec.name, name) for name in models):
                shown = self._shown(", ".join(models) or "nothing")
                raise ModelServerError(f"{self.base_url} does not serve {self.spec.name!r} but {shown}")
            return {"models": models, "version": version}
        raise ModelServerError(f"{self.base_url} did not answer within {seconds:g} s")

    async def _served(self, client: httpx2.AsyncClient) -> list[str]:
        address = self._address("/models")
        try:
            async with client.stream("GET", address) as response:
                content, _ = await _read(response)
        except httpx2.RequestError as error:
            raise ModelServerError(self._shown(f"{self.base_url} cannot be reached: {_told(error)}")) from None
        if not response.is_success:
            raise ModelServerError(
                f"{self.base_url}/models answers {self._told_status(response, content)}; "
                "base_url has to end with /v1 for most servers"
            )
        try:
            return [str(entry["id"]) for entry in json.loads(content)["data"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ModelServerError(
                self._shown(f"{self.base_url}/models is no list of models ({_told(error)})")
            ) from error

    async def _version(self, client: httpx2.AsyncClient) -> str | None:
        """Of a vLLM server, which tells it beside ``/v1``; None where nothing of the kind is there."""
        root = self._base.path.rstrip("/").removesuffix("/v1")
        try:
            async with client.stream("GET", self._base.copy_with(path=f"{root}/version")) as response:
                content, _ = await _read(response)
            return _as(str, json.loads(content)["version"]) if response.is_success else None
        except (httpx2.RequestError, ValueError, TypeError, KeyError, RecursionError):
            return None

    def _client(self) -> httpx2.AsyncClient:
        slots = self.spec.concurrency
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return httpx2.AsyncClient(
            headers=headers,
            # Only connecting has a limit of its own; the rest is under the deadline of the whole request.
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=slots, max_keepalive_connections=slots),
            follow_redirects=False,
        )

    def _address(self, path: str) -> httpx2.URL:
        return self._base.copy_with(path=self._base.path.rstrip("/") + path)

    def _jitter(self, place: int) -> random.Random:
        return random.Random(f"{self.spec.seed}/{place}")

    def _told_status(self, response: httpx2.Response, content: bytes) -> str:
        told = self._shown(f"{response.status_code} {response.reason_phrase}".strip())
        if response.is_redirect:
            # Without its query: a gateway repeats that of the address asked, and some keys stand there.
            where = response.headers["location"].partition("?")[0]
            return self._shown(f"{told} to {where}; redirects are not followed")
        message = self._server_message(content)
        return f"{told}: {message}" if message else told

    def _server_message(self, content: bytes) -> str:
        """What a server says about an error: the message of OpenAI's form, else the body; without the key."""
        text = content.decode("utf-8", errors="replace")
        try:
            value = json.loads(text)
            text = str(value["error"]["message"])
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return self._shown(text.strip())

    def _shown(self, text: str) -> str:
        """Mask the key, then shorten: the other way round a part of the key could stay at the end."""
        masked = text.replace(self._key, "***") if self._key is not None else text
        return _sound(masked)[:MESSAGE_CHARACTERS]


@dataclass(frozen=True)
class _Try:
    """Outcome of one try and the seconds that the server asks to wait before the next."""

    answer: _Answer
    retry_after: float = 0.0


class _Streak:
    """Counts requests in a row that the server left without an answer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = 0
        self._last: Failed | None = None

    def note(self, answer: _Answer) -> None:
        if isinstance(answer, Failed) and answer.cause in PASSING_CAUSES:
            self._length += 1
            self._last = answer
        else:
            self._length = 0

    def verdict(self) -> _Answer | None:
        """What to give a request instead of sending it; None while there is hope."""
        if self._length < self._limit or self._last is None:
            return None
        return Failed(
            self._last.cause, f"not sent: {self._limit} requests in a row got no answer, the last: {self._last.message}"
        )


def _same_model(asked: str, listed: str) -> bool:
    """Whether a server lists the model under the name asked for, or as servers also spell it: with the tag ``latest``,
    below ``models/``, or as the path of its file."""
    return asked in (listed, listed.removesuffix(":latest"), listed.removeprefix("models/"), listed.rsplit("/", 1)[-1])


def _key(name: str, environ: Mapping[str, str]) -> str | None:
    key = environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelSettingsError(f"the key in ${name} holds characters that a header cannot")
    return key or None


def _base_url(configured: str | None, environ: Mapping[str, str]) -> httpx2.URL:
    text = (configured or environ.get(BASE_URL_ENV, "")).strip()
    if not text:
        raise ModelSettingsError(
            f"no address of a language model: set base_url of the model in the dataset's plans, or ${BASE_URL_ENV}, "
            "to the server's address up to and with /v1"
        )
    where = "base_url" if configured else f"${BASE_URL_ENV}"
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        # A password with a slash in it is read as a port, and the error repeats it.
        told = "it holds a user or password, or characters that no address has" if "@" in text else error
        raise ModelSettingsError(f"{where} is no address: {told}") from None
    if url.userinfo:
        raise ModelSettingsError(f"{where} holds a user or password; a key goes into an environment variable")
    if url.scheme not in ("http", "https") or not url.host:
        raise ModelSettingsError(f"{where} has to start with http:// or https:// and to name a host")
    return url


async def _read(response: httpx2.Response) -> tuple[bytes, bool]:
    """The body, at most ``MAX_ANSWER_BYTES`` of it, and whether that is all."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            return b"".join(parts), False
        parts.append(part)
    return b"".join(parts), True


def _retry_after(header: str | None) -> float:
    """Seconds that a ``Retry-After`` header asks for, as a number or a date (RFC 9110, section 10.2.3); else 0."""
    if header is None:
        return 0.0
    if header.strip().isdecimal():
        return float(header)
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    when = when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - dt.datetime.now(dt.UTC)).total_seconds())


def _reasoning(message: Mapping[str, Any]) -> str | None:
    found = _as(str, message.get("reasoning_content")) or _as(str, message.get("reasoning"))
    return _sound(found) if found else None


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sound(text: str) -> str:
    """Half an emoji (a lone surrogate, which JSON can spell) becomes U+FFFD: it could not be stored."""
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _milliseconds_since(start: float) -> float:
    return (time.monotonic() - start) * 1000
