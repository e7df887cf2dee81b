"""What is handed to vLLM, as plain data, and the error where it is not installed. vLLM itself is not run here."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.engines.completions import ChatRequest, Completion, Message
from skb_pipeline.planning.engines.openai_http import OpenAIChat
from skb_pipeline.planning.engines.vllm_offline import (
    VLLMChat,
    VLLMMissingError,
    engine_arguments,
    grammar_arguments,
    sampling_arguments,
)
from skb_pipeline.planning.settings import LanguageModelSpec


def ask(sample: int, max_tokens: int | None = None) -> ChatRequest:
    return ChatRequest((Message("user", "x"),), sample, max_tokens=max_tokens)


SCHEMA = {"type": "object", "properties": {"brand": {"type": "string"}}}
SPEC = LanguageModelSpec(name="org/model", revision="abc", temperature=0.1, sample_temperature=0.8, seed=7)

without_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")


def test_engine_is_told_revision_and_that_blanks_are_forbidden() -> None:
    assert engine_arguments(SPEC) == {
        "model": "org/model",
        "seed": 7,
        "revision": "abc",
        "tokenizer_revision": "abc",
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    assert engine_arguments(LanguageModelSpec(name="m", structured="none")) == {"model": "m", "seed": 0}
    further = LanguageModelSpec(name="m", structured="none", vllm={"tensor_parallel_size": 2, "seed": 3})
    assert engine_arguments(further) == {"model": "m", "seed": 3, "tensor_parallel_size": 2}


def test_sampling_of_each_draw() -> None:
    assert sampling_arguments(SPEC, ask(0)) == {"temperature": 0.1, "seed": 7, "max_tokens": 1024}
    assert sampling_arguments(SPEC, ask(2)) == {"temperature": 0.8, "seed": 9, "max_tokens": 1024}
    assert sampling_arguments(SPEC, ask(0, 4096))["max_tokens"] == 4096
    silent = SPEC.model_copy(update={"temperature": None, "seed": None})
    assert sampling_arguments(silent, ask(0)) == {"max_tokens": 1024}
    assert "seed" not in engine_arguments(silent)


class Batches:
    """A vLLM that gives prepared outputs: (text, finish_reason, tokens), or none for an output without a reply."""

    def __init__(self, *outputs: tuple[str, str | None, int] | None) -> None:
        self._outputs = outputs

    def chat(self, conversations: list[Any], sampling: list[Any], **_: Any) -> list[Any]:
        return [
            SimpleNamespace(
                prompt_token_ids=[0] * 9,
                outputs=[SimpleNamespace(text=o[0], finish_reason=o[1], token_ids=[0] * o[2])] if o else [],
            )
            for o in self._outputs
        ]


def test_outputs_that_are_not_whole_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = SimpleNamespace(SamplingParams=dict, StructuredOutputsParams=dict)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)
    chat = VLLMChat(SPEC.model_copy(update={"max_tokens": 40}))
    given = [("{}", "stop", 3), ("{", "length", 40), ("{", "abort", 7), ("{}", "stop", 40), ("{}", None, 3), None]
    chat.__dict__["_llm"] = Batches(*given)
    found = dict(chat.complete([ask(0)] * len(given), SCHEMA))
    causes = [reply.cut_by if isinstance(reply, Completion) else reply.cause for reply in found.values()]
    assert causes == [
        None, PlanCause.TRUNCATED, PlanCause.INCOMPLETE, PlanCause.TRUNCATED, None, PlanCause.MALFORMED,
    ]  # fmt: skip
    chat.__dict__["_llm"] = Batches(("{}", "stop", 40))
    ((_, reply),) = chat.complete([ask(0, 80)], SCHEMA)
    assert isinstance(reply, Completion)
    assert reply.cut_by is None


def test_grammar_as_configured() -> None:
    assert grammar_arguments(SPEC, SCHEMA) == {"json": SCHEMA, "disable_any_whitespace": True}
    loose = SPEC.model_copy(update={"structured": "json_object"})
    assert grammar_arguments(loose, SCHEMA) == {"json_object": True, "disable_any_whitespace": True}
    assert grammar_arguments(SPEC.model_copy(update={"structured": "none"}), SCHEMA) is None


def test_settings_tell_revisions_and_engines_apart() -> None:
    settings = VLLMChat(SPEC).settings()
    assert settings["revision"] == "abc"
    assert settings != VLLMChat(SPEC.model_copy(update={"revision": "abd"})).settings()
    assert settings == VLLMChat(SPEC.model_copy(update={"base_url": "http://a/v1", "concurrency": 3})).settings()
    server = OpenAIChat(SPEC.model_copy(update={"base_url": "http://a/v1"}), {})
    assert settings["engine"] != server.settings()["engine"]


def test_settings_hold_the_arguments_of_vllm_that_may_change_a_reply() -> None:
    def settings(**arguments: object) -> dict[str, object]:
        return VLLMChat(SPEC.model_copy(update={"vllm": arguments})).settings()

    assert settings(quantization="fp8") != settings()
    assert settings(model="org/other") != settings()
    assert settings(tensor_parallel_size=4, hf_token="hf_secret") == settings()


@without_vllm
def test_missing_package_names_the_extra_and_the_way_around() -> None:
    chat = VLLMChat(SPEC)
    for act in (chat.describe, lambda: list(chat.complete([ChatRequest((Message("user", "x"),))], SCHEMA))):
        with pytest.raises(VLLMMissingError, match=r"skb-pipeline\[vllm\].*engine openai"):
            act()
    assert list(chat.complete([], SCHEMA)) == []
