"""Kept replies: what is kept of them, and what is asked again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.engines.completions import ChatRequest, Completion, Failed, Message
from skb_pipeline.planning.engines.kept_replies import CachedChat, as_record, completion_key, from_record, open_replies
from skb_pipeline.planning.engines.openai_http import OpenAIChat
from skb_pipeline.planning.settings import LanguageModelSpec
from skb_pipeline.storage.rows.records import RecordRows
from skb_pipeline_tests.llm_servers import (
    Reply,
    ScriptedServer,
    SeenRequest,
    chat_reply,
    error_reply,
    in_order,
    scripted_server,
)

SCHEMA = {"type": "object"}
SETTINGS = {"name": "m", "seed": 0}


def reply(text: str | None = "{}", **fields: Any) -> Completion:
    values: dict[str, Any] = {
        "reasoning": None, "finish_reason": "stop", "model": "m",
        "prompt_tokens": 3, "completion_tokens": 1, "milliseconds": 12.5,
    }  # fmt: skip
    return Completion(text=text, **{**values, **fields})


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **fields)


KEY = hashlib.sha256(b"k").hexdigest()

# Records


@settings(max_examples=30, deadline=None)
@given(
    text=st.none() | st.text(st.characters(exclude_categories=[])),
    reasoning=st.none() | st.text(),
    tokens=st.none() | st.integers(0, 10**9),
    milliseconds=st.floats(0, 1e9),
)
def test_a_reply_comes_back_as_it_was(
    text: str | None, reasoning: str | None, tokens: int | None, milliseconds: float
) -> None:
    given_reply = reply(text, reasoning=reasoning, prompt_tokens=tokens, milliseconds=milliseconds)
    with tempfile.TemporaryDirectory() as folder:
        with open_replies(Path(folder)) as cache:
            cache.put([KEY], [as_record(given_reply)])
        with open_replies(Path(folder)) as cache:
            assert [from_record(row) for row in cache.get([KEY])] == [replace(given_reply, cached=True)]


def test_kept_rows_are_plain_json(tmp_path: Path) -> None:
    """Files with such rows are about, so this stays."""
    with open_replies(tmp_path) as cache:
        cache.put([KEY], [as_record(reply("{}", cached=True))])
    (row,) = sqlite3.connect(tmp_path / "completions.sqlite3").execute("SELECT completion FROM completions")
    assert json.loads(row[0]) == {
        "text": "{}", "reasoning": None, "finish_reason": "stop", "model": "m",
        "prompt_tokens": 3, "completion_tokens": 1, "milliseconds": 12.5,
    }  # fmt: skip


def test_a_file_of_the_first_layout_answers(tmp_path: Path) -> None:
    """As the class that kept replies in a file of its own wrote it."""
    spec = LanguageModelSpec(name="scripted", base_url="http://127.0.0.1:9")
    row = (
        '{"text": "kept", "reasoning": null, "finish_reason": "stop", "model": "m", "prompt_tokens": 3,'
        ' "completion_tokens": 1, "milliseconds": 12.5}'
    )
    con = sqlite3.connect(tmp_path / "completions.sqlite3", isolation_level=None)
    con.execute("PRAGMA journal_mode = WAL")
    con.execute("CREATE TABLE IF NOT EXISTS completions (key TEXT PRIMARY KEY, completion TEXT NOT NULL)")
    key = completion_key(OpenAIChat(spec, {}).settings(), ask("a"), SCHEMA)
    con.execute("INSERT INTO completions VALUES (?, ?) ON CONFLICT DO NOTHING", (key, row))
    con.close()
    with open_replies(tmp_path) as cache:
        chat = CachedChat(OpenAIChat(spec, {}), cache)
        assert list(chat.complete([ask("a")], SCHEMA)) == [(0, reply("kept", cached=True))]
        assert (chat.asked, chat.reused) == (0, 1)


# Keys


def test_keys_depend_on_all_but_the_time_left() -> None:
    key = completion_key(SETTINGS, ask("x"), SCHEMA)
    assert completion_key(dict(reversed(SETTINGS.items())), ask("x", seconds=1.0), SCHEMA) == key
    others = [
        completion_key({**SETTINGS, "seed": 1}, ask("x"), SCHEMA),
        completion_key(SETTINGS, ask("y"), SCHEMA),
        completion_key(SETTINGS, ask("x", sample=1), SCHEMA),
        completion_key(SETTINGS, ask("x"), {"type": "array"}),
        completion_key(SETTINGS, ChatRequest((Message("system", "x"),)), SCHEMA),
        completion_key(SETTINGS, ChatRequest((Message("user", "x"), Message("user", ""))), SCHEMA),
        completion_key(SETTINGS, ask("x\ud83d"), SCHEMA),
    ]
    assert len({key, *others}) == 8


# The cached model


def chat_of(server: ScriptedServer, cache: RecordRows, **fields: Any) -> CachedChat:
    spec = LanguageModelSpec(name="scripted", base_url=server.base_url, **{"retries": 0, **fields})
    return CachedChat(OpenAIChat(spec, {}), cache)


def echo(request: SeenRequest) -> Reply:
    return chat_reply(request.body["messages"][0]["content"])


def test_a_second_run_asks_only_for_the_rest(tmp_path: Path) -> None:
    with scripted_server(echo) as server:
        with open_replies(tmp_path) as cache:
            first = chat_of(server, cache)
            before = dict(first.complete([ask(str(i)) for i in range(5)], SCHEMA))
            assert (first.asked, first.reused) == (5, 0)
        with open_replies(tmp_path) as cache:
            second = chat_of(server, cache)
            got = list(second.complete([ask(str(i)) for i in (7, 3, 8, 1)], SCHEMA))
            assert (second.asked, second.reused) == (2, 2)
    assert len(server.chats) == 7
    assert [place for place, _ in got[:2]] == [1, 3]
    assert {place for place, _ in got[2:]} == {0, 2}
    for place, answer in got:
        assert isinstance(answer, Completion)
        assert answer.text == str((7, 3, 8, 1)[place])
        assert answer.cached == (place in (1, 3))
    three = before[3]
    assert isinstance(three, Completion)
    assert dict(got)[1].milliseconds == three.milliseconds


def test_other_settings_miss_and_another_address_does_not(tmp_path: Path) -> None:
    with scripted_server(echo) as server, scripted_server(echo) as other, open_replies(tmp_path) as cache:
        list(chat_of(server, cache).complete([ask("a")], SCHEMA))
        list(chat_of(other, cache, concurrency=2, deadline_s=3).complete([ask("a")], SCHEMA))
        assert (len(server.chats), len(other.chats)) == (1, 0)
        list(chat_of(server, cache, max_tokens=99).complete([ask("a")], SCHEMA))
        list(chat_of(server, cache).complete([ask("a")], {"type": "array"}))
        list(chat_of(server, cache).complete([ask("a", sample=1)], SCHEMA))
    assert len(server.chats) == 4


def test_failures_are_asked_again(tmp_path: Path) -> None:
    with scripted_server(in_order(error_reply(500), chat_reply("late"))) as server, open_replies(tmp_path) as cache:
        chat = chat_of(server, cache)
        ((_, answer),) = chat.complete([ask("a")], SCHEMA)
        assert isinstance(answer, Failed)
        assert answer.cause is PlanCause.SERVER_ERROR
        assert len(cache) == 0
        ((_, answer),) = chat.complete([ask("a")], SCHEMA)
        assert isinstance(answer, Completion)
        assert (answer.text, answer.cached) == ("late", False)
        assert (chat.asked, chat.reused) == (2, 0)


@pytest.mark.parametrize("reason", ["length", "abort", "error", "max_tokens", "model_length", "content_filter"])
def test_what_was_cut_is_not_kept_and_asked_again(tmp_path: Path, reason: str) -> None:
    script = in_order(chat_reply('{"a": 1}', finish_reason=reason), chat_reply('{"a": 2}'))
    with scripted_server(script) as server, open_replies(tmp_path) as cache:
        ((_, first),) = chat_of(server, cache).complete([ask("a")], SCHEMA)
        assert isinstance(first, Completion)
        assert first.cut_by is not None
        assert len(cache) == 0
        ((_, second),) = chat_of(server, cache).complete([ask("a")], SCHEMA)
        ((_, third),) = chat_of(server, cache).complete([ask("a")], SCHEMA)
        assert [second.text, third.text] == ['{"a": 2}'] * 2  # type: ignore[union-attr]
    assert len(server.chats) == 2


def test_a_kept_reply_with_a_larger_limit_answers_the_request_that_was_cut(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 30}
    with scripted_server(in_order(chat_reply("whole", usage=usage))) as server, open_replies(tmp_path) as cache:
        chat = chat_of(server, cache, max_tokens=20)
        ((_, cut),) = chat.complete([ask("a")], SCHEMA)
        assert isinstance(cut, Completion)
        assert cut.cut_by is PlanCause.TRUNCATED
        list(chat.complete([ask("a").with_larger_limit(20)], SCHEMA))
        assert server.chats[1].body["max_tokens"] == 40
        again = chat_of(server, cache, max_tokens=20)
        ((_, found),) = again.complete([ask("a")], SCHEMA)
        assert (found.text, again.asked, again.reused) == ("whole", 0, 1)  # type: ignore[union-attr]
        list(chat_of(server, cache, max_tokens=21).complete([ask("a")], SCHEMA))
    assert len(server.chats) == 3


def test_cut_replies_that_an_earlier_version_kept_are_forgotten(tmp_path: Path) -> None:
    with scripted_server(echo) as server, open_replies(tmp_path) as cache:
        chat = chat_of(server, cache, max_tokens=50)
        keys = [completion_key(chat.settings(), ask(text), SCHEMA) for text in "abc"]
        kept = [reply("old", finish_reason="length"), reply("old", completion_tokens=50), reply("old")]
        cache.put(keys, [as_record(one) for one in kept])
        got = dict(chat.complete([ask(text) for text in "abc"], SCHEMA))
        assert [got[i].text for i in range(3)] == ["a", "b", "old"]  # type: ignore[union-attr]
        assert [row["text"] for row in cache.get(keys)] == ["a", "b", "old"]


def test_equal_requests_are_asked_once(tmp_path: Path) -> None:
    with scripted_server(echo) as server, open_replies(tmp_path) as cache:
        chat = chat_of(server, cache)
        got = dict(chat.complete([ask("a", seconds=0.001), ask("b"), ask("a", seconds=60.0)], SCHEMA))
        assert (chat.asked, chat.reused) == (2, 1)
    assert len(server.chats) == 2
    assert [got[i].text for i in range(3)] == ["a", "b", "a"]  # type: ignore[union-attr]
    assert [got[i].cached for i in range(3)] == [False, False, True]  # type: ignore[union-attr]


def test_what_came_before_a_stop_is_kept(tmp_path: Path) -> None:
    def script(request: SeenRequest) -> Reply:
        return echo(request) if request.number < 3 else Reply(hang="head")

    with scripted_server(script) as server:
        with open_replies(tmp_path) as cache:
            replies = chat_of(server, cache, concurrency=1).complete([ask(str(i)) for i in range(9)], SCHEMA)
            assert [next(replies)[0] for _ in range(3)] == [0, 1, 2]
            replies.close()  # type: ignore[attr-defined]
        with open_replies(tmp_path) as cache:
            assert len(cache) == 3
        end = time.monotonic() + 20
        while len(server.chats) == 4 and not server.chats[3].abandoned:
            assert time.monotonic() < end
            time.sleep(0.01)
