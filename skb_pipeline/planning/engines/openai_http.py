"""Completions from a server that speaks OpenAI's chat protocol: vLLM, llama.cpp, Ollama, hosted services.

Belongs here: what is sent, what is tried again and for how long, and how an answer of any shape becomes a
``Completion`` or a ``Failed``. What the text of a reply means is read elsewhere.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any

import anyio
import httpx2
from anyio.from_thread import start_blocking_portal

from skb_pipeline.errors import PassingError, UserError
from skb_pipeline.planning.engines.base import PASSING_CAUSES, PlanCause
from skb_pipeline.planning.engines.completions import ChatRequest, Completion, Failed, temperature_and_seed
from skb_pipeline.planning.engines.openai_answers import error_object, read_completion, sound
from skb_pipeline.planning.settings import LanguageModelSpec

BASE_URL_ENV = "OPENAI_BASE_URL"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""No plan is near this size; a server that sends more is cut off."""
MESSAGE_CHARACTERS = 300
"""Of a server's error message, as far as it is passed on."""
_SURELY_SECRET = 12
"""Characters from which on a secret is no word of a reply."""
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
    """The server of the language model cannot be reached, or refuses the first question."""


class ModelAwayError(ModelServerError, PassingError):
    """The server of the language model cannot be reached now."""


_SETTINGS = {
    "seed": "to leave it out, set plans.model.seed to null",
    "temperature": "to leave it out, set plans.model.temperature and sample_temperature to null",
    "response_format": "set plans.model.structured to json_object, or to none to leave it out",
    "chat_template_kwargs": "to leave it out, set plans.model.thinking to null",
}
"""What to change where a server refuses a field of the request."""


def request_body(
    spec: LanguageModelSpec, request: ChatRequest, schema: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The JSON of one call, as plain values; ``extra`` is ``spec.extra_body`` as it is sent."""
    temperature, seed = temperature_and_seed(spec, request.sample)
    body: dict[str, Any] = {
        "model": spec.name,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
    }
    drawn = {"temperature": temperature, "seed": seed}
    body |= {name: value for name, value in drawn.items() if value is not None}
    body[spec.max_tokens_field] = request.max_tokens or spec.max_tokens
    if spec.structured == "json_schema":
        plan = {"name": "plan", "schema": dict(schema), "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": plan}
    elif spec.structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    if spec.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": spec.thinking}
    return {**body, **(extra or {})}


class OpenAIChat:
    """A model behind ``<base_url>/chat/completions``.

    At most ``concurrency`` requests are on their way at a time. Each has one deadline (``ChatRequest.seconds``) from
    the moment it gets its slot: all tries, the waits between them and a body that comes byte by byte count. Tried
    again is what can heal: status 408, 409, 425, 429 and 5xx, also of an error inside an answer with status 200, and
    failed connections, after a growing wait or the longer one that ``Retry-After`` asks for. A wait that would end
    after the deadline is not begun. When as many requests in a row as twice the concurrency (at least eight) got no
    answer, the rest of the call is not sent and fails with the cause of the last: a dead server is not asked ten
    thousand times.

    The key is sent as a bearer token. It, and what ``extra_body`` takes from the environment, are replaced by ``***``
    in every message and reply.
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
        """Settle address, key and further fields, as the first request does.

        Raises:
            ModelSettingsError: there is no address, it is not one of HTTP, the key cannot stand in a header, or
                ``extra_body`` names an environment variable that is not set.
        """
        _ = self._base, self._key, self._extra

    @cached_property
    def _key(self) -> str | None:
        return _key(self.spec.api_key_env, self._environ)

    @cached_property
    def _extra(self) -> dict[str, Any]:
        """``extra_body`` with the values of its environment variables."""
        return {name: _expanded(value, self._environ, name) for name, value in self.spec.extra_body.items()}

    @cached_property
    def _secrets(self) -> list[str]:
        """What no message may repeat, the longest first."""
        named = {text[1:] for text in _texts_in(self.spec.extra_body) if _VARIABLE.fullmatch(text)}
        values = {self._key or "", *(self._environ.get(name, "") for name in named)}
        return sorted(filter(None, values), key=lambda value: (-len(value), value))

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
        # With names of variables in place of what they hold, and only where there is one: keys of kept replies stay.
        extra = {"extra_body": self.spec.extra_body} if self.spec.extra_body else {}
        return {"engine": "openai", **self.spec.model_dump(mode="json", include=included), **extra}

    def describe(self, seconds: float = DESCRIBE_SECONDS) -> dict[str, Any]:
        """What the server says about itself: ``models`` (ids), ``version`` (vLLM's; None from other servers) and, where
        its list of models is none or lacks the model, a ``note``. Whether it can be used only a question shows.

        Args:
            seconds: for all of it.

        Raises:
            ModelSettingsError: see :meth:`check`.
            ModelAwayError: the server cannot be reached.
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
        sent = request_body(self.spec, request, schema, self._extra)
        tries: list[_Answer] = []
        with anyio.move_on_after(request.seconds):
            answer = await self._try_again(client, sent, start + request.seconds, self._jitter(place), tries)
            return replace(answer, milliseconds=_milliseconds_since(start))
        before = f"; before that: {tries[-1].message}" if tries and isinstance(tries[-1], Failed) else ""
        message = f"no whole answer within {request.seconds:g} s{before}"
        return Failed(PlanCause.DEADLINE, message, _milliseconds_since(start))

    async def _try_again(
        self,
        client: httpx2.AsyncClient,
        sent: Mapping[str, Any],
        deadline: float,
        jitter: random.Random,
        tries: list[_Answer],
    ) -> _Answer:
        """Try until there is an answer that stays; each try's outcome is appended to ``tries``."""
        while True:
            attempt = await self._try(client, sent)
            tries.append(attempt.answer)
            if not isinstance(attempt.answer, Failed) or attempt.answer.cause not in _HEALING_CAUSES:
                return attempt.answer
            backoff = min(FIRST_BACKOFF_SECONDS * 2 ** (len(tries) - 1), MAX_BACKOFF_SECONDS) * jitter.uniform(0.5, 1)
            pause = max(backoff, attempt.retry_after)
            if len(tries) > self.spec.retries or time.monotonic() + pause >= deadline:
                return replace(attempt.answer, message=f"{attempt.answer.message} (tries: {len(tries)})")
            await anyio.sleep(pause)

    async def _try(self, client: httpx2.AsyncClient, sent: Mapping[str, Any]) -> _Try:
        """Send one request and read its answer, whatever it is."""
        body = json.dumps(sent).encode("ascii")  # because a lone surrogate in a question has no UTF-8 form
        try:
            async with client.stream("POST", self._address("/chat/completions"), content=body) as response:
                content, whole = await _read(response)
        except httpx2.DecodingError as error:
            return _Try(Failed(PlanCause.MALFORMED, self._shown(f"the answer cannot be decompressed: {error}")))
        except httpx2.TransportError as error:
            return _Try(Failed(PlanCause.CONNECTION, self._shown(_told(error))))
        except httpx2.HTTPError as error:  # one answer that nobody can read is no reason to leave the other questions
            return _Try(Failed(PlanCause.MALFORMED, self._shown(_told(error))))
        status = response.status_code
        if not response.is_success:
            told = self._told_status(response, content) + self._hint(status, content, sent)
            return self._failed(status, told, response)
        if not whole:
            return _Try(Failed(PlanCause.TOO_LARGE, f"the answer is larger than {MAX_ANSWER_BYTES} bytes"))
        return self._read(response, content, sent)

    def _read(self, response: httpx2.Response, content: bytes, sent: Mapping[str, Any]) -> _Try:
        """Read the body of an answer with status 200."""
        try:
            value = json.loads(content)
            error = error_object(value)
            if error is None:
                completion = read_completion(value, self.spec.name, int(sent[self.spec.max_tokens_field]))
                return _Try(self._without_secrets(completion))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            told = f"no chat completion ({_told(error)}): {self._server_message(content)}"
            return _Try(Failed(PlanCause.MALFORMED, self._shown(told)))
        told = self._shown(f"200 with an error of status {error.status}: {error.message}")
        return self._failed(error.status, told + self._hint(error.status, content, sent), response)

    def _failed(self, status: int, message: str, response: httpx2.Response) -> _Try:
        """An answer that is an error of this status."""
        if status in _HEALING_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return _Try(Failed(PlanCause.SERVER_ERROR, message), _retry_after(response.headers.get("retry-after")))
        return _Try(Failed(PlanCause.REFUSED, message))

    def _hint(self, status: int, content: bytes, sent: Mapping[str, Any]) -> str:
        """Which setting to change, where a refusal names a field of the request."""
        if status == HTTPStatus.NOT_FOUND:
            return " (base_url has to end with /v1 for most servers)"
        if status not in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            return ""
        hints = [self._setting_of(name) for name in _fields_named(content, sent)]
        return f" ({'; '.join(hints)})" if hints else ""

    def _setting_of(self, name: str) -> str:
        if name in self.spec.extra_body:
            return f"{name} comes from plans.model.extra_body"
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        if name in other:
            return f"see plans.model.max_tokens, or set plans.model.max_tokens_field to {other[name]}"
        return _SETTINGS[name]

    async def _describe(self, seconds: float) -> dict[str, Any]:
        models: list[str] = []
        version, note = None, f"{self.base_url} did not tell its models within {seconds:g} s"
        with anyio.move_on_after(seconds):
            async with self._client() as client:
                models, note = await self._served(client)
                version = await self._version(client)
        return {"models": models, "version": version, **({"note": note} if note else {})}

    async def _served(self, client: httpx2.AsyncClient) -> tuple[list[str], str]:
        """The models that the server lists, and what is odd about that: many servers list none, or others."""
        address = self._address("/models")
        try:
            async with client.stream("GET", address) as response:
                content, _ = await _read(response)
        except httpx2.DecodingError as error:
            return [], self._shown(f"{self.base_url}/models cannot be decompressed: {error}")
        except httpx2.RequestError as error:
            raise ModelAwayError(self._shown(f"{self.base_url} cannot be reached: {_told(error)}")) from None
        if not response.is_success:
            return [], f"{self.base_url}/models answers {self._told_status(response, content)}"
        try:
            models = [sound(str(entry["id"])) for entry in json.loads(content)["data"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return [], self._shown(f"{self.base_url}/models is no list of models ({_told(error)})")
        if any(_same_model(self.spec.name, name) for name in models):
            return models, ""
        shown = self._shown(", ".join(models) or "nothing")
        return models, f"{self.base_url} does not list {self.spec.name!r} but {shown}"

    async def _version(self, client: httpx2.AsyncClient) -> str | None:
        """Of a vLLM server, which tells it beside ``/v1``; None where nothing of the kind is there."""
        root = self._base.path.rstrip("/").removesuffix("/v1")
        try:
            async with client.stream("GET", self._base.copy_with(path=f"{root}/version")) as response:
                content, _ = await _read(response)
            version = json.loads(content)["version"] if response.is_success else None
            return version if isinstance(version, str) else None
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
            where = response.headers.get("location", "nowhere").partition("?")[0]
            return self._shown(f"{told} to {where}; redirects are not followed")
        message = self._server_message(content)
        return f"{told}: {message}" if message else told

    def _server_message(self, content: bytes) -> str:
        """What a server says about an error: the message of OpenAI's form, else the body; without the key."""
        text = content.decode("utf-8", errors="replace")
        try:
            error = json.loads(text)["error"]
            text = error if isinstance(error, str) else str(error["message"])
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return self._shown(text.strip())

    def _shown(self, text: str) -> str:
        """Mask secrets, then shorten: the other way round a part of one could stay at the end."""
        return sound(self._masked(text, self._secrets))[:MESSAGE_CHARACTERS]

    @staticmethod
    def _masked(text: str, secrets: Iterable[str]) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    def _without_secrets(self, completion: Completion) -> Completion:
        """A reply is kept and shown, and a server may put what it was sent into it. A key as short as a word, such as
        ``EMPTY`` for servers that want none, stays: it may be a word of the reply."""
        long = [secret for secret in self._secrets if len(secret) >= _SURELY_SECRET]

        def masked(text: str | None) -> str | None:
            return None if text is None else self._masked(text, long)

        return replace(
            completion,
            text=masked(completion.text),
            reasoning=masked(completion.reasoning),
            finish_reason=masked(completion.finish_reason),
            model=self._masked(completion.model, long),
        )


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


_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")


def _expanded(value: Any, environ: Mapping[str, str], where: str) -> Any:
    """A value of ``extra_body`` with its environment variables."""
    if isinstance(value, dict):
        return {name: _expanded(inner, environ, f"{where}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_expanded(inner, environ, where) for inner in value]
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        if value[1:] not in environ:
            raise ModelSettingsError(f"plans.model.extra_body: {where}: the environment variable {value} is not set")
        return environ[value[1:]]
    return value


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)


def _fields_named(content: bytes, sent: Mapping[str, Any]) -> list[str]:
    """Fields of a request that the answer to it complains about: those it points to, else those in its words."""
    text = content.decode("utf-8", errors="replace")
    fields = [name for name in sent if name not in ("model", "messages")]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    pointed = {str(part) for part in _pointers(value)}
    found = [name for name in fields if name in pointed]
    if found:
        return found
    words = set(re.findall(r"[A-Za-z_]+", text))
    if words & {"json_schema", "json_object", "guided_json", "grammar"}:
        words.add("response_format")
    return [name for name in fields if name in words]


def _pointers(value: Any) -> Iterator[Any]:
    """What an error says it is about: ``param`` of OpenAI's form, ``loc`` of FastAPI's."""
    if not isinstance(value, dict):
        return
    error = value.get("error")
    for holder in (value, error):
        if isinstance(holder, dict) and isinstance(holder.get("param"), str):
            yield from holder["param"].split(".")
    details = value.get("detail")
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, dict) and isinstance(detail.get("loc"), list):
            yield from detail["loc"]


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
    except (ValueError, OverflowError):
        return 0.0
    when = when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - dt.datetime.now(dt.UTC)).total_seconds())


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _milliseconds_since(start: float) -> float:
    return (time.monotonic() - start) * 1000
