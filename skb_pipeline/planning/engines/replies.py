"""From what a model sent to the one JSON object in it, or to the reason why there is none.

Nothing is mended or guessed here: a reply with two objects, a brace too many or a repeated key is refused, and whoever
asked decides what to do about it. Whether the object is a plan is for ``planning.validation``; :func:`judge` puts its
verdict and the reply's into one cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.engines.completions import Completion
from skb_pipeline.plans.plan import Dropped, PlanStatus, ValidatedPlan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import parse_plan_json, validate

MAX_CHARACTERS = 500_000
"""Of a reply with its thinking; a plan of the greatest allowed size has some ten thousand."""

_BLANK = " \t\r\n\ufeff"
_TAG = re.compile(r"<(/?)think(?:ing)?\s{0,8}>", re.IGNORECASE)
_TOKEN = re.compile(r'\\.|["{}]', re.DOTALL)
_FENCE = "```"


@dataclass(frozen=True)
class Reply:
    """What was read: ``content``, or else ``cause`` and ``reason``.

    Attributes:
        content: the JSON object.
        cause: ``TRUNCATED``, ``INCOMPLETE``, ``CONTENT_FILTER``, ``TOO_LARGE``, ``EMPTY_REPLY``, ``OPEN_THINKING`` or
            ``NOT_JSON``.
        reason: the same in words, for people and for a model that is asked again.
    """

    content: dict[str, Any] | None = None
    cause: PlanCause | None = None
    reason: str = ""


def read_reply(completion: Completion) -> Reply:
    """Read the one JSON object of a reply.

    In this order: a reply that is not whole (``Completion.cut_by``) is not looked at. Without content, the field for
    thinking counts as the reply, as servers put the answer there when thinking is switched off under a grammar. Then
    the whole text is tried as strict JSON; then what follows the thinking; then the only fenced block in it; then the
    only balanced pair of braces, quotes and escapes taken into account. Repeated keys, NaN and infinities are refused
    throughout. Takes time linear in the length, and never raises.
    """
    cut = completion.cut_by
    if cut is not None:
        told = f"finish_reason {completion.finish_reason}"
        if cut is PlanCause.TRUNCATED and completion.limit is not None:
            told += f", {completion.completion_tokens} of {completion.limit} tokens"
        return Reply(cause=cut, reason=f"the reply was cut ({told})")
    if not _is_blank(completion.text):
        return _read(completion.text or "")
    if not _is_blank(completion.reasoning):
        inside = _read(completion.reasoning or "")
        if inside.content is not None:
            return inside
    return Reply(cause=PlanCause.EMPTY_REPLY, reason="the reply is empty")


def _is_blank(text: str | None) -> bool:
    return text is None or not text.strip().strip(_BLANK)


def _read(text: str) -> Reply:
    if len(text) > MAX_CHARACTERS:
        return Reply(cause=PlanCause.TOO_LARGE, reason=f"the reply has more than {MAX_CHARACTERS} characters")
    # First as a whole, since tags inside the strings of a JSON object are no thinking.
    whole = _strict(text)
    if not isinstance(whole, ValueError):
        return _only_if_object(whole)
    answer = _after_thinking(text)
    if answer is None:
        return Reply(cause=PlanCause.OPEN_THINKING, reason="the reply ends inside its thinking")
    if _is_blank(answer):
        return Reply(cause=PlanCause.EMPTY_REPLY, reason="there is nothing after the thinking")
    read = _read_answer(answer)
    # Tags in the strings of an object behind a fence are cut out like thinking: what is left is another object.
    uncut = _read_answer(_without_leading_thinking(text) or "")
    untouched = _object_with_tags(text)
    if read.content is not None and any(found not in (None, read.content) for found in (uncut.content, untouched)):
        return _not_json("tags of thinking stand inside it")
    return read


def _object_with_tags(text: str) -> dict[str, Any] | None:
    """The object that a text gives if nothing is cut out, where tags of thinking stand in its strings."""
    for piece in (_only_fenced_block(text), _only_braces(text)):
        if isinstance(piece, str) and _TAG.search(piece) and isinstance(found := _strict(piece), dict):
            return found
    return None


def _read_answer(answer: str) -> Reply:
    """Read text without thinking."""
    whole = _strict(answer)
    if not isinstance(whole, ValueError):
        return _only_if_object(whole)
    fenced = _strict(_only_fenced_block(answer) or "")
    if isinstance(fenced, dict):
        return Reply(content=fenced)
    braced = _only_braces(answer)
    if isinstance(braced, str):
        found = _strict(braced)
        if isinstance(found, dict):
            return Reply(content=found)
        return _not_json(f"what stands in braces is not JSON: {found}")
    return _not_json(str(braced))


def _strict(text: str) -> Any:
    """The JSON value of a whole text, or the ValueError that says why it is none."""
    try:
        return parse_plan_json(text.strip().strip(_BLANK))
    except ValueError as error:
        return error


def _only_if_object(value: Any) -> Reply:
    if isinstance(value, dict):
        return Reply(content=value)
    return _not_json(f"a JSON object is needed, not {type(value).__name__}")


def _not_json(reason: str) -> Reply:
    return Reply(cause=PlanCause.NOT_JSON, reason=f"the reply is not one JSON object: {reason}")


def _after_thinking(text: str) -> str | None:
    """The text without its thinking; None when that has no end.

    Thinking stands at the beginning, also without its opening tag, which some templates put into the prompt. If no
    JSON follows there, all other blocks are cut out too, so that nothing is ever taken from inside one.
    """
    rest = _without_leading_thinking(text)
    if rest is None or isinstance(_strict(rest), dict):
        return rest
    kept: list[str] = []
    opened: int | None = None
    position = 0
    for tag in _TAG.finditer(rest):
        closing = bool(tag[1])
        if opened is None and not closing:
            kept.append(rest[position : tag.start()])
            opened = tag.start()
        elif closing:
            if opened is None:
                kept.clear()  # all before a closing tag without an opening one is thinking
            opened = None
            position = tag.end()
    return None if opened is not None else "".join([*kept, rest[position:]])


def _without_leading_thinking(text: str) -> str | None:
    position, opened = 0, False
    for tag in _TAG.finditer(text):
        if opened:
            opened = not tag[1]
            position = position if opened else tag.end()
        elif not tag[1]:
            if not _is_blank(text[position : tag.start()]):
                break
            opened = True
        elif position == 0:
            position = tag.end()
        else:
            break
    return None if opened else text[position:]


def _only_fenced_block(text: str) -> str | None:
    """What stands between two lines of back-ticks, if there is just one such pair.

    A fence has a line of its own. A JSON string cannot, as it holds no raw line breaks, so back-ticks in a string are
    never taken for one.
    """
    lines = text.split("\n")
    fences = [i for i, line in enumerate(lines) if _is_fence(line)]
    return "\n".join(lines[fences[0] + 1 : fences[1]]) if len(fences) == 2 else None


def _is_fence(line: str) -> bool:
    stripped = line.strip()
    return stripped.startswith(_FENCE) and "`" not in stripped.strip("`") and "{" not in stripped


def _only_braces(text: str) -> str | ValueError:
    """The only top-level pair of braces with what is between, or an error that says why there is not just one."""
    start, end, depth, in_string = 0, 0, 0, False
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign == '"':
            in_string = depth > 0 and not in_string
        elif in_string or sign not in "{}":
            continue
        elif sign == "{":
            if depth == 0 and end:
                return ValueError("there are several pairs of braces")
            start = token.start() if depth == 0 else start
            depth += 1
        elif depth == 0:
            return ValueError("there is a closing brace too many")
        else:
            depth -= 1
            end = token.end() if depth == 0 else end
    if depth:
        return ValueError("a brace or a string is not closed")
    return text[start:end] if end else ValueError("there is no object in it")


def judge(reply: Reply, schema: GraphSchema) -> tuple[PlanCause, ValidatedPlan]:
    """What a reply's plan is worth: ``PLANNED`` with a plan to execute, or ``SKIPPED``, ``INVALID`` or the reply's own
    cause with a fallback whose ``faults`` say why."""
    if reply.content is None:
        return reply.cause or PlanCause.NOT_JSON, no_plan(reply.reason)
    validated = validate(reply.content, schema)
    if validated.plan is not None:
        return PlanCause.PLANNED, validated
    return PlanCause.SKIPPED if _asks_for_text_search(reply.content, validated) else PlanCause.INVALID, validated


def _asks_for_text_search(content: Mapping[str, Any], validated: ValidatedPlan) -> bool:
    """Whether the only thing that keeps a plan from being executed is that it asks for text search, as prompts tell a
    model to do for a question that names nothing: by the mode ``skip``, or by a plan without anchors and hops."""
    faulty = [fault.part for fault in validated.faults]
    if faulty == ["retrieval_mode"]:
        return content.get("retrieval_mode") == "skip"
    # An empty object says nothing, so the two lists must be there.
    bare = content.get("anchors") == [] and content.get("hops") == [] and content.get("retrieval_mode") is None
    return bare and faulty == ["plan"]


def no_plan(reason: str) -> ValidatedPlan:
    """The fallback of a question without a readable plan."""
    storable = reason.encode("utf-8", "replace").decode()
    return ValidatedPlan(status=PlanStatus.FALLBACK, plan=None, dropped=[Dropped(part="reply", reason=storable)])
