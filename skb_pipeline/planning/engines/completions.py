"""Completions of a language model: what a planner asks and gets, whoever serves the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.settings import LanguageModelSpec


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """One completion to ask for.

    Attributes:
        messages: the whole conversation.
        sample: number of the draw; 0 is the one without randomness (temperature as set for single plans), higher
            ones are drawn with the sampling temperature and ``seed + sample``.
        seconds: what is left of the question's time, all tries together.
        max_tokens: limit of the reply; None: that of the model's settings.
    """

    messages: tuple[Message, ...]
    sample: int = 0
    seconds: float = 120.0
    max_tokens: int | None = None

    def with_larger_limit(self, limit: int) -> ChatRequest:
        """The same once more, for a reply that was cut at ``limit`` tokens."""
        return replace(self, max_tokens=LARGER * limit)


LARGER = 2
"""How many times the limit is that a cut reply is asked for again with."""


def temperature_and_seed(model: LanguageModelSpec, sample: int) -> tuple[float | None, int | None]:
    """How the draw of this number is made (see :class:`ChatRequest`); None: the server is not told."""
    seed = None if model.seed is None else model.seed + sample
    return model.temperature if sample == 0 else model.sample_temperature, seed


@dataclass(frozen=True)
class Completion:
    """A reply as the server gave it, whatever is in it.

    Attributes:
        text: the content; None where the server sent null.
        reasoning: thinking in a field of its own (``reasoning_content`` or ``reasoning``); None without one.
        finish_reason: ``stop``, ``length``, ``content_filter`` …; None where the server does not say. A reply that was
            read from the arguments of a tool call, and ended with that, has ``stop``.
        model: as the server names it.
        prompt_tokens, completion_tokens: as the server counts; None where it does not.
        milliseconds: wall time, with retries and waiting between them; of a cached reply that of the original call.
        cached: no call was made for this request: the reply was kept from before, or given to an equal one.
        limit: tokens that were allowed; None where nobody says.
    """

    text: str | None
    reasoning: str | None
    finish_reason: str | None
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    milliseconds: float
    cached: bool = False
    limit: int | None = None

    @property
    def cut_by(self) -> PlanCause | None:
        """Why the reply is not whole; None for one that is. Whole is what ended with ``stop``, or without a word from
        servers that never tell, before the limit was used up."""
        reason = (self.finish_reason or "stop").strip().lower()
        if reason != "stop":
            return _CUT_BY.get(reason, PlanCause.INCOMPLETE)
        full = self.limit is not None and self.completion_tokens is not None and self.completion_tokens >= self.limit
        return PlanCause.TRUNCATED if full else None


_CUT_BY = {
    **dict.fromkeys(
        ("length", "max_tokens", "max_output_tokens", "max_length", "model_length", "token_limit"), PlanCause.TRUNCATED
    ),
    **dict.fromkeys(
        ("content_filter", "safety", "refusal", "recitation", "blocklist", "prohibited_content"),
        PlanCause.CONTENT_FILTER,
    ),
}
"""Finish reasons as servers write them, in small letters; any other but ``stop`` is ``INCOMPLETE``."""


@dataclass(frozen=True)
class Failed:
    """No reply: ``cause`` is one of ``DEADLINE``, ``REFUSED``, ``SERVER_ERROR``, ``CONNECTION``, ``TOO_LARGE`` and
    ``MALFORMED``; ``message`` says more and holds no secret."""

    cause: PlanCause
    message: str
    milliseconds: float = 0.0


class ChatModel(Protocol):
    """A model that completes conversations under a JSON schema."""

    def settings(self) -> dict[str, Any]:
        """What a reply depends on besides request and schema (model, revision, temperatures, seed, limits), as plain
        JSON values: part of the key under which replies are kept. No address, no secret."""

    def complete(
        self, requests: Sequence[ChatRequest], schema: Mapping[str, Any]
    ) -> Iterator[tuple[int, Completion | Failed]]:
        """Replies with the place of their request, in the order in which they arrive; exactly one per request."""
