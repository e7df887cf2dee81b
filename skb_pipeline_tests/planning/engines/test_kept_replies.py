"""Kept replies: what survives a killed process, and what is asked again."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
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
from skb_pipeline.planning.engines.kept_replies import CachedChat, CompletionCache, CompletionCacheError, completion_key
from skb_pipeline.planning.engines.openai_http import OpenAIChat
from skb_pipeline.planning.settings import LanguageModelSpec
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

WRITER = """
import sys
from pathlib import Path
from skb_pipeline.planning.engines.completions import Completion
from skb_pipeline.planning.engines.kept_replies import CompletionCache
folder, first, end, stay = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "stay"
cache = CompletionCache(folder)
for i in range(first, end):
    cache.put(f"key-{i}", Completion("text " * 50, None, "stop", "m", i, 1, 1.0))
    print(i, flush=True)
if stay:
    sys.stdin.read()
"""


def reply(text: str | None = "{}", **fields: Any) -> Completion:
    values: dict[str, Any] = {
        "reasoning": None, "finish_reason": "stop", "model": "m",
        "prompt_tokens": 3, "completion_tokens": 1, "milliseconds": 12.5,
    }  # fmt: skip
    return Completion(text=text, **{**values, **fields})


def ask(text: str, **fields: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **fields)


def writer(folder: Path, first: int, end: int, stay: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(first), str(end), "stay" if stay else "go"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


# The file


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
        with CompletionCache(Path(folder)) as cache:
            cache.put("k", given_reply)
        with CompletionCache(Path(folder)) as cache:
            assert cache.get_many(["k", "other"]) == {"k": reply_as_cached(given_reply)}


def reply_as_cached(completion: Completion) -> Completion:

    return replace(completion, cached=True)


def test_the_first_reply_stays(tmp_path: Path) -> None:
    with CompletionCache(tmp_path / "new") as cache:
        cache.put("k", reply("first"))
        cache.put("k", reply("second"))
        assert cache.get_many(["k"])["k"].text == "first"
        assert len(cache) == 1


def test_many_keys_at_once(tmp_path: Path) -> None:
    with CompletionCache(tmp_path) as cache:
        cache.put("key-7", reply())
        assert list(cache.get_many(f"key-{i}" for i in range(40_000))) == ["key-7"]
        assert cache.get_many([]) == {}


def test_killed_process_keeps_what_it_put(tmp_path: Path) -> None:
    process = writer(tmp_path, 0, 20, stay=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(20)][-1] == "19\n"
    kill(process)
    with CompletionCache(tmp_path) as cache:
        assert len(cache) == 20
        assert cache.get_many(["key-19"])["key-19"].prompt_tokens == 19


def test_process_killed_at_any_moment_keeps_all_it_told_of(tmp_path: Path) -> None:
    for round_number in range(3):
        process = writer(tmp_path, round_number * 10_000, round_number * 10_000 + 9_999, stay=False)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 * (round_number + 1))
        os.kill(process.pid, signal.SIGKILL)
        told = [f"key-{line}" for line in process.communicate()[0].split()]
        with CompletionCache(tmp_path) as cache:
            assert cache.get_many(told).keys() == set(told)


def test_torn_writes_cost_only_themselves(tmp_path: Path) -> None:
    process = writer(tmp_path, 0, 20, stay=True)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    kill(process)
    (log,) = tmp_path.glob("*-wal")
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) - 100])
    with CompletionCache(tmp_path) as cache:
        kept = len(cache)
        assert 18 <= kept < 20
        cache.put("key-19", reply())
        assert len(cache) == kept + 1


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    processes = [writer(tmp_path, first, first + 60, stay=False) for first in (0, 40, 80)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    with CompletionCache(tmp_path) as cache:
        assert len(cache) == 140


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "completions.sqlite3").write_bytes(b"no database at all, but long enough to be read as one" * 20)
    with pytest.raises(CompletionCacheError, match=r"completions\.sqlite3"):
        CompletionCache(tmp_path)


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


def chat_of(server: ScriptedServer, cache: CompletionCache, **fields: Any) -> CachedChat:
    spec = LanguageModelSpec(name="scripted", base_url=server.base_url, **{"retries": 0, **fields})
    return CachedChat(OpenAIChat(spec, {}), cache)


def echo(request: SeenRequest) -> Reply:
    return chat_reply(request.body["messages"][0]["content"])


def test_a_second_run_asks_only_for_the_rest(tmp_path: Path) -> None:
    with scripted_server(echo) as server:
        with CompletionCache(tmp_path) as cache:
            first = chat_of(server, cache)
            before = dict(first.complete([ask(str(i)) for i in range(5)], SCHEMA))
            assert (first.asked, first.reused) == (5, 0)
        with CompletionCache(tmp_path) as cache:
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
    with scripted_server(echo) as server, scripted_server(echo) as other, CompletionCache(tmp_path) as cache:
        list(chat_of(server, cache).complete([ask("a")], SCHEMA))
        list(chat_of(other, cache, concurrency=2, deadline_s=3).complete([ask("a")], SCHEMA))
        assert (len(server.chats), len(other.chats)) == (1, 0)
        list(chat_of(server, cache, max_tokens=99).complete([ask("a")], SCHEMA))
        list(chat_of(server, cache).complete([ask("a")], {"type": "array"}))
        list(chat_of(server, cache).complete([ask("a", sample=1)], SCHEMA))
    assert len(server.chats) == 4


def test_failures_are_asked_again(tmp_path: Path) -> None:
    with scripted_server(in_order(error_reply(500), chat_reply("late"))) as server, CompletionCache(tmp_path) as cache:
        chat = chat_of(server, cache)
        ((_, answer),) = chat.complete([ask("a")], SCHEMA)
        assert isinstance(answer, Failed)
        assert answer.cause is PlanCause.SERVER_ERROR
        assert len(cache) == 0
        ((_, answer),) = chat.complete([ask("a")], SCHEMA)
        assert isinstance(answer, Completion)
        assert (answer.text, answer.cached) == ("late", False)
        assert (chat.asked, chat.reused) == (2, 0)


def test_equal_requests_are_asked_once(tmp_path: Path) -> None:
    with scripted_server(echo) as server, CompletionCache(tmp_path) as cache:
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
        with CompletionCache(tmp_path) as cache:
            replies = chat_of(server, cache, concurrency=1).complete([ask(str(i)) for i in range(9)], SCHEMA)
            assert [next(replies)[0] for _ in range(3)] == [0, 1, 2]
            replies.close()  # type: ignore[attr-defined]
        with CompletionCache(tmp_path) as cache:
            assert len(cache) == 3
        end = time.monotonic() + 20
        while len(server.chats) == 4 and not server.chats[3].abandoned:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_kept_rows_are_plain_json(tmp_path: Path) -> None:

    with CompletionCache(tmp_path) as cache:
        cache.put("k", reply("{}", cached=True))
    (row,) = sqlite3.connect(tmp_path / "completions.sqlite3").execute("SELECT completion FROM completions")
    assert json.loads(row[0]) == {
        "text": "{}", "reasoning": None, "finish_reason": "stop", "model": "m",
        "prompt_tokens": 3, "completion_tokens": 1, "milliseconds": 12.5,
    }  # fmt: skip
