"""Completions over HTTP: what is sent, and what becomes of answers of every kind, on real servers."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.engines.completions import ChatRequest, Completion, Failed, Message
from skb_pipeline.planning.engines.openai_http import (
    MAX_ANSWER_BYTES,
    ModelAwayError,
    ModelSettingsError,
    OpenAIChat,
)
from skb_pipeline.planning.settings import LanguageModelSpec
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.llm_servers import (
    Reply,
    Script,
    ScriptedServer,
    SeenRequest,
    SmallModel,
    chat_reply,
    error_reply,
    in_order,
    json_reply,
    scripted_server,
)

KEY = "sk-TEST-123456"
SCHEMA = {
    "type": "object",
    "properties": {"brand": {"type": "string", "maxLength": 12}},
    "required": ["brand"],
    "additionalProperties": False,
}


def chat_of(server: ScriptedServer, **fields: Any) -> OpenAIChat:
    return OpenAIChat(LanguageModelSpec(name="scripted", base_url=server.base_url, **fields), {"OPENAI_API_KEY": KEY})


def ask(text: str = "shoes by Nike?", **fields: Any) -> ChatRequest:
    return ChatRequest((Message("system", "Write a plan."), Message("user", text)), **fields)


def all_of(chat: OpenAIChat, requests: Sequence[ChatRequest]) -> list[Completion | Failed]:
    """Answers in the order of their requests; exactly one for each."""
    got = list(chat.complete(requests, SCHEMA))
    assert sorted(place for place, _ in got) == list(range(len(requests)))
    return [answer for _, answer in sorted(got, key=lambda pair: pair[0])]


def one_answer(script: Script, seconds: float = 20.0, **fields: Any) -> tuple[Completion | Failed, ScriptedServer]:
    with scripted_server(script) as server:
        (answer,) = all_of(chat_of(server, **fields), [ask(seconds=seconds)])
    return answer, server


def failure(script: Script, **fields: Any) -> tuple[Failed, ScriptedServer]:
    answer, server = one_answer(script, **fields)
    assert isinstance(answer, Failed)
    assert KEY not in answer.message
    return answer, server


def completion(script: Script, **fields: Any) -> tuple[Completion, ScriptedServer]:
    answer, server = one_answer(script, **fields)
    assert isinstance(answer, Completion), answer
    return answer, server


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# What is sent


def test_body_and_key_as_sent() -> None:
    _, server = completion(in_order(chat_reply("{}")), max_tokens=77, seed=5)
    (seen,) = server.chats
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "Write a plan."},
            {"role": "user", "content": "shoes by Nike?"},
        ],
        "temperature": 0.0,
        "seed": 5,
        "max_tokens": 77,
        "response_format": {"type": "json_schema", "json_schema": {"name": "plan", "schema": SCHEMA, "strict": True}},
    }


def test_newer_hosted_models_call_the_limit_by_another_name() -> None:
    _, server = completion(in_order(chat_reply("{}")), max_tokens=77, max_tokens_field="max_completion_tokens")
    assert server.chats[0].body["max_completion_tokens"] == 77
    assert "max_tokens" not in server.chats[0].body


def test_without_a_key_no_header_is_sent() -> None:
    with scripted_server(in_order(chat_reply("{}"))) as server:
        spec = LanguageModelSpec(name="scripted", api_key_env="OTHER_KEY")
        chat = OpenAIChat(spec, {"OPENAI_BASE_URL": server.base_url + "/", "OPENAI_API_KEY": KEY})
        all_of(chat, [ask()])
    assert "authorization" not in server.chats[0].headers


@pytest.mark.parametrize(
    ("structured", "expected"), [("json_object", {"type": "json_object"}), ("none", None)], ids=["object", "none"]
)
def test_response_format(structured: str, expected: Any) -> None:
    _, server = completion(in_order(chat_reply("{}")), structured=structured)
    assert server.chats[0].body.get("response_format") == expected
    assert "chat_template_kwargs" not in server.chats[0].body


@pytest.mark.parametrize("thinking", [True, False])
def test_thinking_is_told_to_the_template(thinking: bool) -> None:
    _, server = completion(in_order(chat_reply("{}")), thinking=thinking)
    assert server.chats[0].body["chat_template_kwargs"] == {"enable_thinking": thinking}


def test_temperature_and_seed_of_each_sample() -> None:
    with scripted_server(in_order(chat_reply("{}"))) as server:
        chat = chat_of(server, temperature=0.1, sample_temperature=0.9, seed=40, concurrency=1)
        all_of(chat, [ask(sample=sample) for sample in range(3)])
    assert [(seen.body["temperature"], seen.body["seed"]) for seen in server.chats] == [(0.1, 40), (0.9, 41), (0.9, 42)]


def test_half_an_emoji_is_sent_and_comes_back_whole() -> None:
    with scripted_server(in_order(Reply(body=b'{"choices": [{"message": {"content": "a\\ud83d"}}]}'))) as server:
        (answer,) = all_of(chat_of(server), [ask("shoes \ud83d")])
    assert isinstance(answer, Completion)
    assert answer.text == "a\ufffd"
    assert server.chats[0].body["messages"][1]["content"] == "shoes \ud83d"


# Answers


def test_fields_of_a_completion() -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    answer, _ = completion(in_order(chat_reply('{"a": 1}', usage=usage, delay=0.05)))
    assert (answer.text, answer.reasoning, answer.finish_reason, answer.model) == ('{"a": 1}', None, "stop", "scripted")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached) == (11, 3, False)
    assert 50 <= answer.milliseconds < 10_000


def test_truncated_reply_is_a_completion() -> None:
    answer, _ = completion(in_order(chat_reply('{"anchors":[' + " " * 16_000, finish_reason="length")))
    assert answer.finish_reason == "length"
    assert answer.text is not None
    assert len(answer.text) == 16_012


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_null_content_and_reasoning(name: str) -> None:
    answer, server = completion(in_order(chat_reply(None, message={name: '{"anchors":["Nike"]}'})))
    assert answer.text is None
    assert answer.reasoning == '{"anchors":["Nike"]}'
    assert len(server.chats) == 1


def test_missing_usage_model_and_finish_reason() -> None:
    answer, _ = completion(in_order(json_reply({"choices": [{"message": {"content": ""}}], "usage": None})))
    assert (answer.text, answer.finish_reason, answer.model) == ("", None, "scripted")
    assert answer.prompt_tokens is None


@pytest.mark.parametrize(
    "body",
    [
        b"<html>gateway</html>",
        b"",
        b"[]",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{"index": 0}]}',
        b'{"choices": [{"message": "text"}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"error": null, "choices": []}',
        b"\xff\xfe\x00",
        b"[" * 200_000,
    ],
)
def test_malformed_answers_are_not_tried_again(body: bytes) -> None:
    failed, server = failure(in_order(Reply(body=body)))
    assert failed.cause is PlanCause.MALFORMED
    assert len(server.chats) == 1


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "usage", "model", "error"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.property
def test_any_json_gives_one_answer() -> None:
    current: list[Reply] = []
    with scripted_server(lambda _: current[0]) as server:
        chat = chat_of(server)

        @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
        @given(value=JSON_VALUES)
        def check(value: Any) -> None:
            current[:] = [json_reply({"choices": [{"message": value, "finish_reason": value}], "usage": value})]
            (answer,) = all_of(chat, [ask()])
            if isinstance(answer, Failed):
                assert answer.cause is PlanCause.MALFORMED
            else:
                assert isinstance(value, dict)
                content = value.get("content")
                assert answer.text == content if isinstance(content, str) else isinstance(content, list | dict | None)

        check()


def choices(message: Any = None, **choice: Any) -> Reply:
    """An answer with one choice, of any form."""
    return json_reply({"choices": [{"finish_reason": "stop", "message": message, **choice}]})


def parts(*content: Any) -> Reply:
    return choices({"content": list(content)})


@pytest.mark.parametrize(
    ("reply", "text", "reasoning"),
    [
        (parts({"type": "text", "text": '{"a":'}, {"type": "text", "text": " 1}"}), '{"a": 1}', None),
        (
            parts({"type": "thinking", "thinking": "or {x}"}, {"type": "image_url", "image_url": {}}, {"text": "{}"}),
            "{}",
            "or {x}",
        ),
        (parts({"type": "thinking", "thinking": [{"type": "text", "text": "so"}, "!"]}, "{}"), "{}", "so!"),
        (parts({"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "{}"}), "{}", "hm"),
        (parts({"type": "thinking", "thinking": '{"a": 1}'}), None, '{"a": 1}'),
        (parts(), None, None),
        (choices({"content": {"type": "text", "text": "{}"}}), "{}", None),
        (choices({"content": "{}", "reasoning": [{"text": "a"}, {"text": "b"}]}), "{}", "ab"),
    ],
)
def test_content_in_parts(reply: Reply, text: str | None, reasoning: str | None) -> None:
    answer, _ = completion(in_order(reply))
    assert (answer.text, answer.reasoning, answer.cut_by) == (text, reasoning, None)


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "plan", "arguments": arguments}}


@pytest.mark.parametrize(
    ("message", "reason", "text", "cut"),
    [
        ({"content": None, "tool_calls": [call('{"a": 1}')]}, "tool_calls", '{"a": 1}', None),
        ({"content": "", "tool_calls": [call({"a": 1})]}, "tool_calls", '{"a": 1}', None),
        ({"function_call": {"name": "plan", "arguments": "{}"}}, "function_call", "{}", None),
        ({"tool_calls": [call('{"a"')]}, "length", '{"a"', PlanCause.TRUNCATED),
        ({"tool_calls": [call("{}"), call("{}")]}, "tool_calls", None, PlanCause.INCOMPLETE),
        ({"content": "{}", "tool_calls": [call("{}")]}, "tool_calls", "{}", PlanCause.INCOMPLETE),
        ({"content": None, "tool_calls": "{}"}, "tool_calls", None, PlanCause.INCOMPLETE),
        ({"content": None, "refusal": "I cannot."}, "stop", "I cannot.", PlanCause.CONTENT_FILTER),
    ],
)
def test_tool_calls_and_refusals(message: Any, reason: str, text: str | None, cut: PlanCause | None) -> None:
    answer, _ = completion(in_order(choices(message, finish_reason=reason)))
    assert (answer.text, answer.cut_by) == (text, cut)


def test_a_reply_that_used_all_tokens_is_not_whole() -> None:
    usage = {"prompt_tokens": 10**30, "completion_tokens": 77}
    answer, _ = completion(in_order(chat_reply("{}", usage=usage)), max_tokens=77)
    assert (answer.cut_by, answer.prompt_tokens) == (PlanCause.TRUNCATED, None)
    answer, _ = completion(in_order(chat_reply("{}", usage=usage)), max_tokens=78)
    assert answer.cut_by is None
    with scripted_server(in_order(chat_reply("{}", usage=usage))) as server:
        (larger,) = all_of(chat_of(server, max_tokens=50), [ask().with_larger_limit(50)])
    assert server.chats[0].body["max_tokens"] == 100
    assert isinstance(larger, Completion)
    assert larger.cut_by is None


# Failures of the question


@pytest.mark.parametrize(
    ("error", "heals"),
    [
        ({"code": 429, "message": "slow"}, True),
        ({"code": "502", "message": "bad gateway"}, True),
        ({"status": 503}, True),
        ({"code": None, "type": "overloaded_error", "message": "busy"}, True),
        ({"code": "rate_limit_exceeded"}, True),
        ({"code": 400, "message": "no such field"}, False),
        ({"code": 402, "message": "no credits"}, False),
        ({"type": "invalid_request_error", "message": "?"}, False),
        ({"message": "the model is gone"}, False),
        ("gone", False),
    ],
)
@pytest.mark.parametrize("choice", [True, False], ids=["with-choices", "alone"])
def test_an_error_in_an_answer_counts_as_its_status(error: Any, heals: bool, choice: bool) -> None:
    value = {
        "error": error,
        **({"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]} if choice else {}),
    }
    if heals:
        answer, server = completion(in_order(json_reply(value), chat_reply("{}")))
        assert (answer.text, len(server.chats)) == ("{}", 2)
    else:
        failed, server = failure(in_order(json_reply(value)))
        assert (failed.cause, len(server.chats)) == (PlanCause.REFUSED, 1)


def test_an_error_inside_the_choice_is_never_a_reply() -> None:
    broken = choices({"content": "{}"}, finish_reason=None, error={"message": "the upstream died"})
    _, server = completion(in_order(broken, chat_reply("{}")))
    assert len(server.chats) == 2
    failed, server = failure(in_order(choices({"content": "{}"}, error={"code": 403, "message": "moderated"})))
    assert (failed.cause, len(server.chats)) == (PlanCause.REFUSED, 1)
    assert "moderated" in failed.message
    old = json_reply({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400})
    assert failure(in_order(old))[0].cause is PlanCause.REFUSED


def refusing(*names: str, form: str = "openai") -> Script:
    """A server that takes none of these fields."""

    def script(request: SeenRequest) -> Reply:
        refused = [name for name in names if name in request.body]
        if not refused:
            return chat_reply("{}")
        if form == "fastapi":
            detail = [{"loc": ["body", name], "msg": "Extra inputs are not permitted"} for name in refused]
            return json_reply({"detail": detail, "body": request.body}, 422)
        if form == "param":
            return json_reply({"error": {"message": "Unsupported value.", "param": refused[0]}}, 400)
        return error_reply(400, f"Unsupported parameter: {refused[0]!r}")

    return script


@pytest.mark.parametrize("form", ["words", "param", "fastapi"])
@pytest.mark.parametrize(
    ("name", "told", "change"),
    [
        ("seed", "plans.model.seed to null", {"seed": None}),
        ("temperature", "plans.model.temperature and sample_temperature to null", {"temperature": None}),
        ("response_format", "plans.model.structured", {"structured": "none"}),
        ("max_tokens", "max_tokens_field to max_completion_tokens", {"max_tokens_field": "max_completion_tokens"}),
        ("top_k", "plans.model.extra_body", {"extra_body": {}}),
    ],
)
def test_a_refused_field_is_named_with_its_setting_and_can_be_left_out(
    form: str, name: str, told: str, change: dict[str, Any]
) -> None:
    fields = {"extra_body": {"top_k": 3}}
    failed, _ = failure(refusing(name, form=form), **fields)
    assert failed.cause is PlanCause.REFUSED
    assert told in failed.message
    others = {"seed", "temperature", "structured", "max_tokens_field", "extra_body"} - {*re.findall(r"\w+", told)}
    assert not [other for other in others if f"plans.model.{other} " in failed.message]
    _, server = completion(refusing(name, form=form), **{**fields, **change})
    assert name not in server.chats[0].body


def test_samples_without_temperature_and_seed() -> None:
    with scripted_server(in_order(chat_reply("{}"))) as server:
        all_of(chat_of(server, sample_temperature=None, seed=None), [ask(sample=3)])
    assert not server.chats[0].body.keys() & {"temperature", "seed"}


def test_further_fields_and_their_secrets() -> None:
    spec = LanguageModelSpec(
        name="scripted",
        extra_body={"provider": {"order": ["a"]}, "user": "$WHO", "top_k": 5, "chat_template_kwargs": {"x": 1}},
    )
    with scripted_server(in_order(error_reply(400, "hush-hush may not"), chat_reply("{}"))) as server:
        chat = OpenAIChat(spec.model_copy(update={"base_url": server.base_url}), {"WHO": "hush-hush"})
        refused, _ = all_of(chat, [ask()]), None
        all_of(chat, [ask()])
    assert isinstance(refused[0], Failed)
    assert "hush" not in refused[0].message
    assert "*** may not" in refused[0].message
    body = server.chats[1].body
    assert (body["provider"], body["user"], body["top_k"]) == ({"order": ["a"]}, "hush-hush", 5)
    assert body["chat_template_kwargs"] == {"x": 1}
    assert chat.settings()["extra_body"]["user"] == "$WHO"
    assert "hush" not in json.dumps(chat.settings())
    assert "extra_body" not in OpenAIChat(LanguageModelSpec(name="scripted"), {}).settings()
    with pytest.raises(ModelSettingsError, match=r"extra_body: user: the environment variable \$WHO is not set"):
        OpenAIChat(spec.model_copy(update={"base_url": "http://h/v1"}), {}).check()


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"provider": {"api_key": "sk-1"}}, "'api_key' looks like a secret"),
        ({"headers": [{"password": "x"}]}, "'password' looks like a secret"),
        ({"stream": True}, "stream cannot be set here"),
        ({"x": float("nan")}, "not JSON"),
    ],
)
def test_further_fields_that_cannot_be_sent(extra: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told) as caught:
        LanguageModelSpec(name="m", extra_body=extra)
    assert "sk-1" not in caught.value.errors()[0]["msg"]
    LanguageModelSpec(name="m", extra_body={"provider": {"api_key": "$KEY"}})


def test_one_question_whose_answer_nobody_can_read_does_not_stop_the_others() -> None:
    odd = [
        Reply(status=303),
        Reply(status=429, headers={"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}),
        Reply(body=b"this was never compressed", headers={"content-encoding": "gzip"}),
        Reply(body=b'{"choices": [{"message": {"content": "{}"}, "finish_reason": {}}], "usage": 1e999}'),
        Reply(body=b'{"choices": [{"message": {"content": "{}"}}], "usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}"),
    ]

    def script(request: SeenRequest) -> Reply:
        return odd[request.number] if request.number < len(odd) else chat_reply("{}")

    with scripted_server(script) as server:
        answers = all_of(chat_of(server, concurrency=1, retries=0), [ask(str(i)) for i in range(8)])
    assert [isinstance(answer, Completion) for answer in answers[-3:]] == [True] * 3
    assert [a.cause.value if isinstance(a, Failed) else "" for a in answers[:5]] == [
        "refused", "server_error", "malformed", "", "malformed",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_refusals_are_not_tried_again(status: int) -> None:
    failed, server = failure(in_order(error_reply(status, "the model `x` does not exist " + "y" * 1000)))
    assert failed.cause is PlanCause.REFUSED
    assert str(status) in failed.message
    assert "the model `x` does not exist" in failed.message
    assert len(failed.message) < 420
    assert ("/v1" in failed.message) == (status == 404)
    assert len(server.chats) == 1


def test_an_echoed_key_is_masked_also_where_the_message_is_cut() -> None:
    for padding in (0, 290, 295, 299):
        failed, _ = failure(in_order(error_reply(401, "p" * padding + f"bad key {KEY}")))
        assert failed.cause is PlanCause.REFUSED
        assert KEY[:6] not in failed.message
    failed, _ = failure(in_order(Reply(status=403, body=f"no {KEY}".encode())))
    assert failed.message.endswith("no ***")


def test_a_key_that_a_reply_repeats_is_masked_before_anybody_keeps_it() -> None:
    told, _ = completion(in_order(chat_reply(f'{{"brand": "{KEY}"}}')))
    assert told.text == '{"brand": "***"}'


def test_a_key_as_short_as_a_word_is_left_in_replies() -> None:
    """``EMPTY`` is what servers without keys are given."""
    with scripted_server(in_order(chat_reply('{"brand": "EMPTY"}'))) as server:
        spec = LanguageModelSpec(name="scripted", base_url=server.base_url)
        (answer,) = all_of(OpenAIChat(spec, {"OPENAI_API_KEY": "EMPTY"}), [ask()])
    assert isinstance(answer, Completion)
    assert answer.text == '{"brand": "EMPTY"}'


def test_redirects_are_not_followed() -> None:
    with scripted_server(in_order(chat_reply("{}"))) as other:
        headers = {"location": other.base_url + "/chat/completions"}
        failed, server = failure(in_order(Reply(status=307, headers=headers)))
    assert failed.cause is PlanCause.REFUSED
    assert "redirects are not followed" in failed.message
    assert (len(server.chats), len(other.chats)) == (1, 0)


def test_a_key_in_the_query_of_an_address_is_not_told_by_a_redirect() -> None:
    failed, _ = failure(in_order(Reply(status=308, headers={"location": "https://gateway/v1?api-key=hush-hush"})))
    assert "https://gateway/v1;" in failed.message
    assert "hush" not in failed.message


def test_a_password_that_makes_an_address_unreadable_is_not_told() -> None:
    with pytest.raises(ModelSettingsError, match="no address") as caught:
        OpenAIChat(LanguageModelSpec(name="m", base_url="http://user:hush/hush@host/v1"), {}).check()
    assert "hush" not in str(caught.value)


def test_huge_answer_is_cut_off() -> None:
    failed, server = failure(in_order(Reply(body=b" " * (MAX_ANSWER_BYTES + 1))))
    assert failed.cause is PlanCause.TOO_LARGE
    assert len(server.chats) == 1


def test_answer_of_the_largest_size_is_read() -> None:
    frame = len(json.dumps({"choices": [{"message": {"content": ""}}]}))
    text = "x" * (MAX_ANSWER_BYTES - frame)
    answer, _ = completion(in_order(json_reply({"choices": [{"message": {"content": text}}]})))
    assert answer.text == text


# Failures that may heal


def test_retry_after_is_honoured() -> None:
    answer, server = completion(in_order(error_reply(429, "slow down", {"retry-after": "1"}), chat_reply("{}")))
    first, second = server.chats
    assert second.at - first.at >= 1.0
    assert answer.milliseconds >= 1000


def test_retry_after_as_a_date() -> None:
    when = format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=3), usegmt=True)
    _, server = completion(in_order(error_reply(503, headers={"retry-after": when}), chat_reply("{}")))
    assert server.chats[1].at - server.chats[0].at > 1.5


@pytest.mark.parametrize("value", ["soon", "-5", ""])
def test_retry_after_that_says_nothing(value: str) -> None:
    _, server = completion(in_order(error_reply(429, headers={"retry-after": value}), chat_reply("{}")))
    assert len(server.chats) == 2


def test_retry_after_beyond_the_deadline_ends_at_once() -> None:
    start = time.monotonic()
    failed, server = failure(in_order(error_reply(429, "quota", {"retry-after": "3600"})), seconds=30.0)
    assert time.monotonic() - start < 10
    assert failed.cause is PlanCause.SERVER_ERROR
    assert "429" in failed.message
    assert "quota" in failed.message
    assert len(server.chats) == 1


def test_two_server_errors_then_an_answer() -> None:
    _, server = completion(in_order(error_reply(500), error_reply(500), chat_reply("{}")))
    first, second, third = (seen.at for seen in server.chats)
    assert second - first >= 0.25
    assert third - second >= 0.5


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
def test_statuses_that_heal(status: int) -> None:
    _, server = completion(in_order(error_reply(status), chat_reply("{}")))
    assert len(server.chats) == 2


def test_number_of_tries() -> None:
    failed, server = failure(in_order(error_reply(503, "loading")), retries=2)
    assert failed.cause is PlanCause.SERVER_ERROR
    assert "loading" in failed.message
    assert len(server.chats) == 3
    failed, server = failure(in_order(error_reply(503)), retries=0)
    assert len(server.chats) == 1


def test_body_cut_in_the_middle_is_tried_again() -> None:
    whole = chat_reply("{}")
    half = Reply(body=whole.body, headers=whole.headers, cut=20)
    _, server = completion(in_order(half, whole))
    assert len(server.chats) == 2
    failed, _ = failure(in_order(half), retries=1)
    assert failed.cause is PlanCause.CONNECTION


# Deadlines


def within(seconds: float, script: Script, **fields: Any) -> tuple[Failed, ScriptedServer]:
    """A failure that took at least its deadline and not much more."""
    start = time.monotonic()
    failed, server = failure(script, seconds=seconds, **fields)
    assert seconds * 0.9 <= time.monotonic() - start < seconds + 5
    assert failed.milliseconds >= seconds * 1000 * 0.9
    assert failed.cause is PlanCause.DEADLINE
    return failed, server


def test_silence_before_the_head_ends_at_the_deadline() -> None:
    _, server = within(0.6, in_order(Reply(hang="head")))
    assert server.chats[0].abandoned


def test_silence_after_the_head_ends_at_the_deadline() -> None:
    within(0.6, in_order(Reply(hang="body", body=chat_reply("{}").body)))


def test_a_body_that_drips_ends_at_the_deadline() -> None:
    _, server = within(0.8, in_order(chat_reply("{}" + " " * 500, drip=0.05)))
    assert server.chats[0].abandoned


def test_the_deadline_is_one_for_all_tries() -> None:
    script = in_order(error_reply(500, "first"), Reply(hang="head"))
    failed, server = within(1.5, script)
    assert len(server.chats) == 2
    assert "first" in failed.message


def test_the_deadline_starts_with_the_slot() -> None:
    with scripted_server(in_order(chat_reply("{}", delay=0.4))) as server:
        answers = all_of(chat_of(server, concurrency=1), [ask(str(i), seconds=2.0) for i in range(7)])
    assert all(isinstance(answer, Completion) for answer in answers)


# Connections


def test_refused_connection() -> None:
    spec = LanguageModelSpec(name="x", base_url=f"http://127.0.0.1:{free_port()}/v1", retries=1)
    (answer,) = all_of(OpenAIChat(spec, {}), [ask()])
    assert isinstance(answer, Failed)
    assert answer.cause is PlanCause.CONNECTION
    assert "tries: 2" in answer.message


def test_a_dead_server_is_given_up() -> None:
    spec = LanguageModelSpec(name="x", base_url=f"http://127.0.0.1:{free_port()}/v1", retries=1, concurrency=4)
    answers = all_of(OpenAIChat(spec, {}), [ask(str(i)) for i in range(10_000)])
    assert all(isinstance(a, Failed) and a.cause is PlanCause.CONNECTION for a in answers)
    sent = [a for a in answers if isinstance(a, Failed) and not a.message.startswith("not sent: 8 requests in a row")]
    assert 8 <= len(sent) < 16


def test_failures_of_single_questions_do_not_give_up() -> None:
    script = in_order(error_reply(400))
    with scripted_server(script) as server:
        all_of(chat_of(server, concurrency=2), [ask(str(i)) for i in range(30)])
    assert len(server.chats) == 30


def test_an_answer_between_failures_keeps_hope() -> None:
    def script(request: SeenRequest) -> Reply:
        return chat_reply("{}") if request.number % 8 == 7 else error_reply(500)

    with scripted_server(script) as server:
        answers = all_of(chat_of(server, concurrency=1, retries=0), [ask(str(i)) for i in range(40)])
    assert len(server.chats) == 40
    assert sum(isinstance(answer, Completion) for answer in answers) == 5


def test_concurrency_is_reached_and_kept() -> None:
    with scripted_server(in_order(chat_reply("{}", delay=0.15))) as server:
        all_of(chat_of(server, concurrency=3), [ask(str(i)) for i in range(12)])
    assert server.peak == 3
    assert len(server.chats) == 12


def test_replies_come_as_they_arrive_with_their_places() -> None:
    def script(request: SeenRequest) -> Reply:
        text = request.body["messages"][1]["content"]
        return chat_reply(text, delay=1.0 if text == "0" else 0.0)

    with scripted_server(script) as server:
        got = list(chat_of(server, concurrency=2).complete([ask(str(i)) for i in range(4)], SCHEMA))
    assert [place for place, _ in got] == [1, 2, 3, 0]
    assert all(isinstance(answer, Completion) and answer.text == str(place) for place, answer in got)


def test_no_requests() -> None:
    assert list(OpenAIChat(LanguageModelSpec(name="x", base_url="http://127.0.0.1:1/v1"), {}).complete([], {})) == []


def test_works_where_a_loop_runs() -> None:
    with scripted_server(in_order(chat_reply("{}"))) as server:
        chat = chat_of(server)

        async def in_a_loop() -> list[Completion | Failed]:
            return all_of(chat, [ask(), ask("other")])

        answers = asyncio.run(in_a_loop())
    assert [isinstance(answer, Completion) for answer in answers] == [True, True]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name == "chat-completions"}


def test_stopping_early_cancels_and_ends_the_thread() -> None:
    def script(request: SeenRequest) -> Reply:
        return chat_reply("{}") if request.number == 0 else Reply(hang="head")

    with scripted_server(script) as server:
        replies = chat_of(server, concurrency=4).complete([ask(str(i), seconds=60) for i in range(50)], SCHEMA)
        next(replies)
        _until(lambda: len(server.chats) == 5)
        assert threads()
        replies.close()  # type: ignore[attr-defined]
        assert not threads()
        _until(lambda: all(seen.abandoned for seen in server.chats[1:]))
        assert len(server.chats) == 5


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# Settings and the start-up test


def test_settings_hold_no_address_and_no_secret() -> None:
    spec = LanguageModelSpec(name="m", base_url="http://a.example/v1", seed=3, deadline_s=5)
    settings_here = OpenAIChat(spec, {"OPENAI_API_KEY": KEY}).settings()
    assert "a.example" not in json.dumps(settings_here)
    assert KEY not in json.dumps(settings_here)
    elsewhere = spec.model_copy(update={"base_url": "http://b.example/v1", "deadline_s": 9, "retries": 0})
    assert OpenAIChat(elsewhere, {}).settings() == settings_here
    for change in ({"name": "n"}, {"seed": 4}, {"max_tokens": 99}, {"thinking": False}, {"temperature": 0.5}):
        assert OpenAIChat(spec.model_copy(update=change), {}).settings() != settings_here


def test_missing_address_names_both_places() -> None:
    with pytest.raises(ModelSettingsError, match=r"base_url.*\$OPENAI_BASE_URL"):
        OpenAIChat(LanguageModelSpec(name="x"), {}).check()


@pytest.mark.parametrize("address", ["localhost:8000/v1", "ftp://host/v1", "http:///v1", "http://host:port/v1", "/v1"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ModelSettingsError):
        OpenAIChat(LanguageModelSpec(name="x", base_url=address), {}).check()


def test_secrets_that_cannot_be_used_are_not_told() -> None:
    with pytest.raises(ModelSettingsError) as caught:
        OpenAIChat(LanguageModelSpec(name="x", base_url="http://user:hunter2@host/v1"), {}).check()
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ModelSettingsError) as caught:
        OpenAIChat(LanguageModelSpec(name="x", base_url="http://host/v1"), {"OPENAI_API_KEY": "sk-ü\nx"}).check()
    assert "sk-" not in str(caught.value)
    assert "OPENAI_API_KEY" in str(caught.value)


def test_describe() -> None:
    with scripted_server(in_order()) as server:
        server.pages["/v1/models"] = json_reply({"data": [{"id": "other"}, {"id": "scripted"}]})
        assert chat_of(server).describe() == {"models": ["other", "scripted"], "version": None}
        for spelt in ("scripted:latest", "models/scripted", "/weights/scripted"):
            server.pages["/v1/models"] = json_reply({"data": [{"id": spelt}]})
            assert chat_of(server).describe()["models"] == [spelt]
        server.pages["/v1/models"] = json_reply({"data": [{"id": "scripted"}]})
        server.pages["/version"] = json_reply({"version": "0.33.0"})
        assert chat_of(server).describe()["version"] == "0.33.0"


def test_describe_notes_what_is_listed_instead() -> None:
    with scripted_server(in_order()) as server:
        server.pages["/v1/models"] = json_reply({"data": [{"id": "hosted/*"}]})
        told = chat_of(server).describe()
        assert told["models"] == ["hosted/*"]
        assert told["note"].endswith("does not list 'scripted' but hosted/*")
        server.pages["/v1/models"] = json_reply({"data": []})
        assert chat_of(server).describe()["note"].endswith("does not list 'scripted' but nothing")
        server.pages["/v1/models"] = json_reply({"data": [{"id": f"model-{i}"} for i in range(500)]})
        told = chat_of(server).describe()
        assert (len(told["models"]), len(told["note"]) < 500) == (500, True)


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (error_reply(404, "no such page"), "404"),
        (error_reply(401, f"bad {KEY}"), r"\*\*\*"),
        (Reply(body=b"<html>"), "no list of models"),
        (json_reply(["scripted"]), "no list of models"),
        (Reply(body=b"this was never compressed", headers={"content-encoding": "gzip"}), "decompressed"),
        (Reply(status=304), "304"),
        (Reply(hang="head"), "within"),
    ],
    ids=["not-found", "key", "html", "list", "zip", "redirect-to-nowhere", "silent"],
)
def test_a_server_that_lists_no_models_may_answer_all_the_same(page: Reply, told: str) -> None:
    with scripted_server(in_order(chat_reply("{}"))) as server:
        server.pages["/v1/models"] = page
        chat = chat_of(server)
        description = chat.describe(seconds=0.5 if page.hang else 10.0)
        assert description["models"] == []
        assert re.search(told, description["note"])
        assert KEY not in description["note"]
        assert isinstance(all_of(chat, [ask()])[0], Completion)


def test_describe_of_no_server() -> None:
    spec = LanguageModelSpec(name="x", base_url=f"http://127.0.0.1:{free_port()}/v1")
    with pytest.raises(ModelAwayError, match="cannot be reached"):
        OpenAIChat(spec, {}).describe()


# With a model


def test_small_model_answers_under_a_schema(small_model: SmallModel) -> None:
    spec = LanguageModelSpec(name=small_model.name, base_url=small_model.base_url, max_tokens=120)
    chat = OpenAIChat(spec, {})
    assert small_model.name in chat.describe()["models"]
    first, second = all_of(chat, [ask(seconds=100), ask(seconds=100)])
    assert isinstance(first, Completion)
    assert isinstance(second, Completion)
    assert first.text is not None
    value = json.loads(first.text)
    assert list(value) == ["brand"]
    assert len(value["brand"]) <= 12
    assert first.finish_reason == "stop"
    assert first.prompt_tokens == second.prompt_tokens
    assert first.prompt_tokens is not None
    assert first.completion_tokens is not None
    assert 10 < first.prompt_tokens < 100
    assert 0 < first.completion_tokens <= 120
