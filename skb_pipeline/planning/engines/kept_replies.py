"""Replies of language models, kept by all they depend on, so that a run asks only for what is new.

A reply costs seconds, and money at some servers, so each one is on the disk before the next is looked at. One SQLite
file with a write-ahead log does that: a transaction is whole or absent, and processes take turns. The log needs
shared memory, so the folder must not lie on a network file system that several machines write to.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from skb_pipeline.errors import UserError
from skb_pipeline.planning.engines.completions import ChatModel, ChatRequest, Completion, Failed
from skb_pipeline.storage.artifacts import stable_hash

FILE = "completions.sqlite3"
WAIT_SECONDS = 60.0
"""For another process that writes; one write takes milliseconds."""


class CompletionCacheError(UserError, RuntimeError):
    """The file of kept replies cannot be read or written; the message names it."""


def completion_key(settings: Mapping[str, Any], request: ChatRequest, schema: Mapping[str, Any]) -> str:
    """sha256 (hex) over all that a reply depends on: settings of the model, messages, schema and draw.

    The time left for a request is not part of it.
    """
    messages = [asdict(message) for message in request.messages]
    parts = {"settings": dict(settings), "messages": messages, "schema": dict(schema), "sample": request.sample}
    # As ASCII, because a lone surrogate in a question has no UTF-8 form.
    return stable_hash(json.dumps(parts, sort_keys=True, allow_nan=False))


class CompletionCache:
    """Replies by key, in one file. Threads may share one object, processes the folder; close it after use."""

    def __init__(self, folder: Path) -> None:
        """Open or start a cache.

        Args:
            folder: made when absent.

        Raises:
            CompletionCacheError: there is a file that is no such cache, or it cannot be opened.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._lock = threading.Lock()
        with _errors_name(self.path):
            self._connection = sqlite3.connect(
                self.path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            # Not only a killed process but also a loss of power leaves everything that was put.
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS completions (key TEXT PRIMARY KEY, completion TEXT NOT NULL)"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM completions")[0][0])

    def get_many(self, keys: Iterable[str]) -> dict[str, Completion]:
        """The kept replies among those asked for, marked as cached.

        Raises:
            CompletionCacheError: the file cannot be read.
        """
        query = "SELECT key, completion FROM completions WHERE key IN (SELECT value FROM json_each(?))"
        rows = self._rows(query, json.dumps(list(keys)))
        return {key: Completion(**json.loads(text), cached=True) for key, text in rows}

    def put(self, key: str, completion: Completion) -> None:
        """Keep a reply; it is on the disk when this returns. A key that has one keeps it: the first reply stays.

        Raises:
            CompletionCacheError: the file cannot be written.
        """
        fields = asdict(completion)
        del fields["cached"]
        self._rows("INSERT INTO completions VALUES (?, ?) ON CONFLICT DO NOTHING", key, json.dumps(fields))

    def close(self) -> None:
        """Close the file; the object cannot be used any more."""
        with self._lock:
            self._connection.close()

    def _rows(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock, _errors_name(self.path):
            return self._connection.execute(statement, values).fetchall()


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Errors of SQLite do not say which file they are about."""
    try:
        yield
    except sqlite3.Error as error:
        raise CompletionCacheError(f"{path}: {error}") from error


class CachedChat:
    """A model whose replies are kept: asked is only what the cache does not have.

    Failures are never kept, and without ``keep`` no new reply is. Equal requests within one call are asked once.
    ``before_asking`` is called once, before the first request that the cache does not have; what it raises stops the
    call.

    Attributes:
        asked: requests that went to the model, over all calls.
        reused: requests answered without one: from the cache, or with the reply to an equal request.
    """

    def __init__(
        self,
        chat: ChatModel,
        cache: CompletionCache,
        *,
        before_asking: Callable[[], None] | None = None,
        keep: bool = True,
    ) -> None:
        self._chat = chat
        self._cache = cache
        self._before_asking = before_asking
        self._keep = keep
        self.asked = 0
        self.reused = 0

    def settings(self) -> dict[str, Any]:
        """Those of the model."""
        return self._chat.settings()

    def complete(
        self, requests: Sequence[ChatRequest], schema: Mapping[str, Any]
    ) -> Iterator[tuple[int, Completion | Failed]]:
        """Kept replies first, in the order of their requests, then the others as they arrive, each kept at once."""
        settings = self.settings()
        keys = [completion_key(settings, request, schema) for request in requests]
        kept = self._cache.get_many(keys)
        places: dict[str, list[int]] = {}
        for place, key in enumerate(keys):
            if key in kept:
                self.reused += 1
                yield place, kept[key]
            else:
                places.setdefault(key, []).append(place)
        missing = list(places)
        if missing and self._before_asking is not None:
            self._before_asking()
            self._before_asking = None
        with ExitStack() as stack:
            replies = self._chat.complete([_longest([requests[i] for i in places[key]]) for key in missing], schema)
            if isinstance(replies, Generator):
                stack.callback(replies.close)  # so that closing this iterator also ends calls on their way
            for number, reply in replies:
                yield from self._taken(missing[number], places[missing[number]], reply)

    def _taken(
        self, key: str, places: Sequence[int], reply: Completion | Failed
    ) -> Iterator[tuple[int, Completion | Failed]]:
        """Keep a reply that has come and give it to its requests."""
        first, *others = places
        self.asked += 1
        again = reply
        if isinstance(reply, Completion):
            if self._keep:
                self._cache.put(key, reply)
            again = replace(reply, cached=True)
        yield first, reply
        for place in others:
            self.reused += 1
            yield place, again


def _longest(requests: Sequence[ChatRequest]) -> ChatRequest:
    """Of equal requests the one with the most time left."""
    return max(requests, key=lambda request: request.seconds)
