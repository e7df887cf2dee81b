"""Completions of a language model: what a planner asks and gets, whoever serves the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """

    messages: tuple[Message, ...]
    sample: int = 0
    seconds: float = 120.0


def temperature_and_seed(model: LanguageModelSpec, sample: int) -> tuple[float, int]:
    """How the draw of this number is made (see :class:`ChatRequest`)."""
    return model.temperature if sample == 0 else model.sample_temperature, model.seed + sample


@dataclass(frozen=True)
class Completion:
    """A reply as the server gave it, whatever is in it.

    Attributes:
        text: the content; None where the server sent null.
        reasoning: thinking in a field of its own (``reasoning_content`` or ``reasoning``); None without one.
        finish_reason: ``stop``, ``length``, ``content_filter`` …; None where the server does not say.
        model: as the server names it.
        prompt_tokens, completion_tokens: as the server counts; None where it does not.
        milliseconds: wall time, with retries and waiting between them; of a cached reply that of the original call.
        cached: no call was made for this request: the reply was kept from before, or given to an equal one.
    """

    text: str | None
    reasoning: str | None
    finish_reason: str | None
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    milliseconds: float
    cached: bool = False


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
