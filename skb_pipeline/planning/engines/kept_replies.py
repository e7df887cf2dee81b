"""Replies of language models, kept by all they depend on, so that a run asks only for what is new.

A reply costs seconds, and money at some servers, so each one is on the disk before the next is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from skb_pipeline.planning.engines.completions import ChatModel, ChatRequest, Completion, Failed
from skb_pipeline.storage.artifacts import stable_hash
from skb_pipeline.storage.rows.records import Record, RecordRows

REPLIES = "completion"
"""What one record of the cache is called."""


def open_replies(folder: Path, *, must_keep: bool = True) -> RecordRows:
    """The replies kept in a folder, which is made when absent; see :func:`as_record`. Close it after use.

    Args:
        folder: theirs.
        must_keep: see ``RecordRows``.

    Raises:
        RecordRowsError: there is a file that is no such cache, or it cannot be opened.
    """
    return RecordRows(folder, REPLIES, must_keep=must_keep)


def completion_key(settings: Mapping[str, Any], request: ChatRequest, schema: Mapping[str, Any]) -> str:
    """sha256 (hex) over all that a reply depends on: settings of the model, messages, schema and draw.

    The time left for a request is not part of it; a limit of its own is, where it has one.
    """
    messages = [asdict(message) for message in request.messages]
    parts = {"settings": dict(settings), "messages": messages, "schema": dict(schema), "sample": request.sample}
    if request.max_tokens is not None:
        parts["max_tokens"] = request.max_tokens
    # As ASCII, because a lone surrogate in a question has no UTF-8 form.
    return stable_hash(json.dumps(parts, sort_keys=True, allow_nan=False))


def as_record(completion: Completion) -> dict[str, Any]:
    """A whole reply as plain values. That it was kept is no part of it, nor is the limit that it stayed below."""
    fields = asdict(completion)
    del fields["cached"], fields["limit"]
    return fields


def from_record(record: Record) -> Completion:
    """The reply, marked as cached."""
    return Completion(**record, cached=True)


class CachedChat:
    """A model whose replies are kept: asked is only what the cache does not have.

    Kept are whole replies only, neither failures nor what was cut (``Completion.cut_by``), and without ``keep`` no new
    reply is. A request whose reply was cut is answered by the kept reply to the same request with a larger limit, if
    there is one. Equal requests within one call are asked once.
    ``before_asking`` is called once, before the first request that the cache does not have; what it raises stops the
    call.

    Attributes:
        asked: requests that went to the model, over all calls.
        reused: requests answered without one: from the cache, or with the reply to an equal request.
    """

    def __init__(
        self,
        chat: ChatModel,
        cache: RecordRows,
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
        found = self._found(settings, dict(zip(keys, requests, strict=True)), schema)
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        places: dict[str, list[int]] = {key: [] for key in missing}
        for place, key in enumerate(keys):
            if key in found:
                self.reused += 1
                yield place, found[key]
            else:
                places[key].append(place)
        if missing and self._before_asking is not None:
            self._before_asking()
            self._before_asking = None
        with ExitStack() as stack:
            replies = self._chat.complete([_longest([requests[i] for i in places[key]]) for key in missing], schema)
            if isinstance(replies, Generator):
                stack.callback(replies.close)  # so that closing this iterator also ends calls on their way
            for number, reply in replies:
                yield from self._taken(missing[number], places[missing[number]], reply)

    def _found(
        self, settings: Mapping[str, Any], requests: Mapping[str, ChatRequest], schema: Mapping[str, Any]
    ) -> dict[str, Completion]:
        """Kept replies by the key of their request. Earlier versions also kept replies that were cut: these go."""
        limit = settings.get("max_tokens")
        larger: dict[str, str] = {}
        if isinstance(limit, int):
            for key, request in requests.items():
                if request.max_tokens is None:
                    larger[key] = completion_key(settings, request.with_larger_limit(limit), schema)
        asked = [*requests, *larger.values()]
        absent = set(self._cache.missing(asked))
        here = [key for key in dict.fromkeys(asked) if key not in absent]
        replies = dict(zip(here, map(from_record, self._cache.get(here)), strict=True))
        cut = [key for key, reply in replies.items() if key in requests and _is_cut(reply, requests[key], limit)]
        if self._keep:
            self._cache.remove(cut)
        whole = {key: reply for key, reply in replies.items() if key not in cut}
        chosen = {key: whole.get(key) or whole.get(larger.get(key, "")) for key in requests}
        return {key: reply for key, reply in chosen.items() if reply is not None}

    def _taken(
        self, key: str, places: Sequence[int], reply: Completion | Failed
    ) -> Iterator[tuple[int, Completion | Failed]]:
        """Keep a reply that has come and give it to its requests."""
        first, *others = places
        self.asked += 1
        again = reply
        if isinstance(reply, Completion):
            if self._keep and reply.cut_by is None:
                self._cache.put([key], [as_record(reply)])
            again = replace(reply, cached=True)
        yield first, reply
        for place in others:
            self.reused += 1
            yield place, again


def _is_cut(kept: Completion, request: ChatRequest, limit: int | None) -> bool:
    """Whether a kept reply, which does not tell its limit, was cut."""
    return replace(kept, limit=request.max_tokens or limit).cut_by is not None


def _longest(requests: Sequence[ChatRequest]) -> ChatRequest:
    """Of equal requests the one with the most time left."""
    return max(requests, key=lambda request: request.seconds)
