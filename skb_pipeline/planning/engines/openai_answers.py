"""What the body of an answer with status 200 holds: a completion in any of the shapes that servers use, or an error.

Belongs here: from a JSON value to a ``Completion`` or an ``ErrorObject``. What is sent, and what is tried again, is in
``openai_http``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from skb_pipeline.planning.engines.completions import Completion

_STATUS_FIELDS = ("code", "status", "status_code", "http_status")
_STATUS_WORDS = {
    "rate_limit": HTTPStatus.TOO_MANY_REQUESTS,
    "insufficient_quota": HTTPStatus.TOO_MANY_REQUESTS,
    "overloaded": HTTPStatus.SERVICE_UNAVAILABLE,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "server_error": HTTPStatus.INTERNAL_SERVER_ERROR,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
    "authentication": HTTPStatus.UNAUTHORIZED,
    "permission": HTTPStatus.FORBIDDEN,
    "not_found": HTTPStatus.NOT_FOUND,
    "invalid": HTTPStatus.BAD_REQUEST,
}
"""What an error that has no number calls itself, and the status of this kind."""
_TEXT_PARTS = (None, "text", "output_text")
_THINKING_PARTS = ("thinking", "reasoning", "reasoning_content")
_MOST_TOKENS = 2**53


@dataclass(frozen=True)
class ErrorObject:
    """An error that a server put into an answer with status 200.

    Attributes:
        status: the HTTP status it stands for.
        message: what it says.
    """

    status: int
    message: str


def error_object(value: Any) -> ErrorObject | None:
    """The error in an answer, beside the choices or in the first one; None where there is none.

    Its status is the number it has or, without one, that of the kind it calls itself. An error without either is taken
    for a refusal (400) and, inside a choice, for a server that failed over it (500).
    """
    if not isinstance(value, Mapping):
        return None
    if value.get("error"):
        return _error(value["error"], HTTPStatus.BAD_REQUEST)
    if value.get("object") == "error":
        return _error(value, HTTPStatus.BAD_REQUEST)
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(choice, Mapping) and choice.get("error"):
        return _error(choice["error"], HTTPStatus.INTERNAL_SERVER_ERROR)
    return None


def _error(error: Any, otherwise: int) -> ErrorObject:
    if not isinstance(error, Mapping):
        return ErrorObject(otherwise, str(error))
    message = error.get("message")
    told = message if isinstance(message, str) else json.dumps(error, default=str)
    for name in _STATUS_FIELDS:
        number = error.get(name)
        if isinstance(number, str) and number.isascii() and number.isdecimal():
            number = int(number[:4])
        if isinstance(number, int) and not isinstance(number, bool) and 400 <= number <= 599:
            return ErrorObject(number, told)
    kinds = " ".join(str(error.get(name, "")) for name in ("code", "type", "status")).lower()
    return ErrorObject(next((int(s) for word, s in _STATUS_WORDS.items() if word in kinds), int(otherwise)), told)


def read_completion(value: Any, name: str, limit: int) -> Completion:
    """The completion in an answer; ``milliseconds`` is 0.

    The content is a text, null, or a list of parts: their texts are joined, those of thinking belong to ``reasoning``,
    other parts are ignored. Without a content, the arguments of a tool call count as the text if there is just one.

    Args:
        value: the JSON value.
        name: of the model, where the answer tells none.
        limit: tokens that were allowed.

    Raises:
        ValueError, TypeError, KeyError, IndexError, AttributeError: it is no chat completion.
    """
    choice = value["choices"][0]
    message = choice["message"]
    text, thoughts = _content(message.get("content"))
    reason = _as(str, choice.get("finish_reason"))
    if text is None or not text.strip():
        arguments = _only_arguments(message)
        if arguments is not None:
            text = arguments
            reason = "stop" if reason in ("tool_calls", "function_call", "tool_use") else reason
        elif _as(str, message.get("refusal")):
            text, reason = message["refusal"], "refusal"
    usage = _as(dict, value.get("usage")) or {}
    reasoning = "".join(_texts(message.get("reasoning_content"))) or "".join(_texts(message.get("reasoning")))
    return Completion(
        text=None if text is None else sound(text),
        reasoning=sound(reasoning or thoughts) or None,
        finish_reason=None if reason is None else sound(reason),
        model=sound(_as(str, value.get("model")) or name),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        milliseconds=0.0,
        limit=limit,
    )


def _content(content: Any) -> tuple[str | None, str]:
    """Text and thinking of a content."""
    if content is None or isinstance(content, str):
        return content, ""
    if not isinstance(content, list | dict):
        raise TypeError("content is neither text nor null nor a list of parts")
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type") in _THINKING_PARTS:
            for name in (*_THINKING_PARTS, "text"):
                thoughts.extend(_texts(part.get(name)))
        elif isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "".join(texts) if texts else None, "".join(thoughts)


def _texts(value: Any) -> Iterator[str]:
    """A text, or the texts of a list of parts."""
    for item in value if isinstance(value, list) else [value]:
        text = item.get("text") if isinstance(item, Mapping) else item
        if isinstance(text, str):
            yield text


def _only_arguments(message: Mapping[str, Any]) -> str | None:
    """The arguments of the only tool call, as JSON text."""
    calls = message.get("tool_calls") or [{"function": message.get("function_call")}]
    if not isinstance(calls, list) or len(calls) != 1 or not isinstance(calls[0], Mapping):
        return None
    called = calls[0].get("function")
    arguments = called.get("arguments") if isinstance(called, Mapping) else None
    if isinstance(arguments, Mapping):
        return json.dumps(arguments)
    return arguments if isinstance(arguments, str) and arguments.strip() else None


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else None


def _count(value: Any) -> int | None:
    """A number of tokens, if it can be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else None


def sound(text: str) -> str:
    """Half an emoji (a lone surrogate, which JSON can spell) becomes U+FFFD: it could not be stored."""
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
