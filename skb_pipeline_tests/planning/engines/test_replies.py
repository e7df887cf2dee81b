from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.engines.completions import Completion
from skb_pipeline.planning.engines.replies import MAX_CHARACTERS, Reply, read_reply

TEXTS = st.text(max_size=20) | st.sampled_from(["```", "\n```\n", "<think>", "</think>", "}{", '"', "\\", "{brand}"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def reply(text: str | None, reasoning: str | None = None, finish_reason: str | None = "stop") -> Reply:
    return read_reply(Completion(text, reasoning, finish_reason, "m", None, None, 0.0))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"anchors":["Nike"]}', {"anchors": ["Nike"]}),
        ('\ufeff \n{"a":1}\r\n', {"a": 1}),
        ('<think>use {brand}</think>{"anchors":["Nike"]}', {"anchors": ["Nike"]}),
        ('<think>first {"a":1}</think>\n<think>then</think>\n{"a":2}', {"a": 2}),
        ('the prompt opened {"a":1} the thinking</think>{"a":2}', {"a": 2}),
        ('<think>the tag </think> ends it</think>{"a":1}', {"a": 1}),
        ('Well. <THINK>{"a":1}</THINK> So: {"a":2}', {"a": 2}),
        ('<think>x</think>{"a":"</think>{"}', {"a": "</think>{"}),
        ('{"a":"<think>"}', {"a": "<think>"}),
        ('{"name":"use `print` function"}', {"name": "use `print` function"}),
        ('Here is `the` plan: {"a":1}', {"a": 1}),
        ('```json\n{"a":"x ``` y"}\n```', {"a": "x ``` y"}),
        ('Use {brand}:\n```\n{"a":"\\n```\\n"}\n```\nDone.', {"a": "\n```\n"}),
        ('```json {"a":1}```', {"a": 1}),
        ('```json\n{"a":1}', {"a": 1}),
        ('She said "so {" and: {"a":"}{\\""}'.replace("{", "", 1), {"a": '}{"'}),
    ],
)
def test_the_one_object_is_found(text: str, content: dict[str, Any]) -> None:
    assert reply(text) == Reply(content=content)


@pytest.mark.parametrize(
    ("text", "cause", "reason"),
    [
        (None, PlanCause.EMPTY_REPLY, "empty"),
        ("", PlanCause.EMPTY_REPLY, "empty"),
        (" \n\ufeff ", PlanCause.EMPTY_REPLY, "empty"),
        ('<think>{"a":1}</think>\n', PlanCause.EMPTY_REPLY, "nothing after the thinking"),
        ('{"a":1}</think>', PlanCause.EMPTY_REPLY, "nothing after the thinking"),
        ('<think>The brand might be {"anchors":["X"]}', PlanCause.OPEN_THINKING, "inside its thinking"),
        ('Well. <think>\n{"a":1}', PlanCause.OPEN_THINKING, "inside its thinking"),
        ('<think>a</think><think>{"a":1}', PlanCause.OPEN_THINKING, "inside its thinking"),
        ('{{"anchors":[]}', PlanCause.NOT_JSON, "not closed"),
        ('{"anchors":[]}}', PlanCause.NOT_JSON, "closing brace too many"),
        ('{"a":1} {"a":2}', PlanCause.NOT_JSON, "several"),
        ('first {"a":1}, then {"a":1}', PlanCause.NOT_JSON, "several"),
        ('```\n{"a":1}\n```\n```\n{"a":2}\n```', PlanCause.NOT_JSON, "several"),
        ('use {brand}: {"a":1}', PlanCause.NOT_JSON, "several"),
        ("```\n```", PlanCause.NOT_JSON, "no object"),
        ("no plan", PlanCause.NOT_JSON, "no object"),
        ('{"a":"x}', PlanCause.NOT_JSON, "not closed"),
        ('[{"a":1}]', PlanCause.NOT_JSON, "not list"),
        ('"{}"', PlanCause.NOT_JSON, "not str"),
        ("null", PlanCause.NOT_JSON, "not NoneType"),
        ('{"risk_level":"high","risk_level":"low"}', PlanCause.NOT_JSON, "'risk_level' is repeated"),
        ('```\n{"a":1,"a":2}\n```', PlanCause.NOT_JSON, "'a' is repeated"),
        ('so: {"a":NaN}', PlanCause.NOT_JSON, "NaN"),
        ('{"a":-Infinity}', PlanCause.NOT_JSON, "Infinity"),
        ("{'a': 1}", PlanCause.NOT_JSON, "what stands in braces is not JSON"),
        ('{"a":1,}', PlanCause.NOT_JSON, "what stands in braces is not JSON"),
        ('{"a":"' + "x" * MAX_CHARACTERS + '"}', PlanCause.TOO_LARGE, str(MAX_CHARACTERS)),
    ],
)
def test_what_is_not_one_object_has_a_cause(text: str | None, cause: PlanCause, reason: str) -> None:
    read = reply(text)
    assert (read.content, read.cause) == (None, cause)
    assert reason in read.reason


def test_the_finish_reason_comes_first() -> None:
    assert reply('{"a":1}', finish_reason="length").cause is PlanCause.TRUNCATED
    assert reply('{"anchors":[' + " " * 16_000, finish_reason="length").cause is PlanCause.TRUNCATED
    assert reply(None, finish_reason="content_filter").cause is PlanCause.CONTENT_FILTER
    assert reply('{"a":1}', finish_reason=None).content == {"a": 1}


def test_an_answer_in_the_field_for_thinking_counts_only_without_content() -> None:
    assert reply(None, '{"anchors":["Nike"]}').content == {"anchors": ["Nike"]}
    assert reply(" \n", 'I take {"a":1}').content == {"a": 1}
    assert reply(None, "I do not know").cause is PlanCause.EMPTY_REPLY
    assert reply(None, '{"a":1} or {"a":2}').cause is PlanCause.EMPTY_REPLY
    assert reply(None, '<think>{"a":1}').cause is PlanCause.EMPTY_REPLY
    assert reply("no plan", '{"a":1}').cause is PlanCause.NOT_JSON
    assert reply('{"a":1}', '{"a":2}').content == {"a": 1}


def test_tags_inside_a_fenced_object_are_never_cut_out_of_it() -> None:
    read = reply('```json\n{"": [{"": {"<think>": null}}, {"": {"</THINK>": null}}]}\n```')
    assert (read.content, read.cause) == (None, PlanCause.NOT_JSON)
    read = reply('```json\n{"": {"</THINK>": {"<THINK>": null}}, "</THINK>": null}\n```')
    assert (read.content, read.cause) == (None, PlanCause.NOT_JSON)
    assert reply('Well. <think>{"a":1}</think> {"a":2}').content == {"a": 2}
    assert reply('<think>\n```\n{"a":1}\n```\n</think>\n{"a":2}').content == {"a": 2}


WRAPPERS = ["{}", "```json\n{}\n```", "```\n{}\n```\n", "Here is `it`:\n```json\n{}\n```\nDone."]
THOUGHTS = ["", '<think>use {brand} or {"a":1}</think>', '{"a":1} it is</think>\n', "<thinking>\n```\n</thinking>\n\n"]


@given(OBJECTS, st.sampled_from(WRAPPERS), st.sampled_from(THOUGHTS), st.sampled_from([None, 2]), st.booleans())
def test_an_object_in_wrappings_is_read_back(
    content: dict[str, Any], wrapper: str, thought: str, indent: int | None, ascii_only: bool
) -> None:
    written = json.dumps(content, indent=indent, ensure_ascii=ascii_only)
    # Behind a fence, tags in strings cannot be told from thinking, which is then refused rather than guessed.
    text = thought + wrapper.replace("{}", written, 1)
    if wrapper != "{}" and "think" in written.lower():
        assert reply(text).content in (None, content)
    else:
        assert reply(text) == Reply(content=content)


@given(OBJECTS, st.text(max_size=40).filter(lambda t: not set(t) & set("{}\\`<[") and t.strip()))
def test_prose_around_an_object_does_no_harm(content: dict[str, Any], prose: str) -> None:
    written = json.dumps(content)
    if "think>" not in written and "```" not in written:
        assert reply(f"I think: {prose}. {written} {prose}.").content == content


@given(st.none() | st.text(), st.none() | st.text(), st.sampled_from(["stop", None, "length"]))
def test_any_text_is_read_or_refused(text: str | None, reasoning: str | None, finish_reason: str | None) -> None:
    read = reply(text, reasoning, finish_reason)
    assert (read.content is None) == (read.cause is not None) == bool(read.reason)


PIECES = ["{", "}", '"', "\\", "`", "```\n", "<think>", "</think>", '{"a":', "[", "1", "\n", "<think ", '</think>{"']


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_mixture_of_signs_is_read_or_refused(text: str) -> None:
    read = reply(text)
    assert (read.content is None) == (read.cause is not None)


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_run_of_one_sign_is_read_in_one_pass(piece: str) -> None:
    # A scan that starts anew at every sign would not come back within the limit of a test.
    assert reply(piece * (MAX_CHARACTERS // len(piece))).content is None
