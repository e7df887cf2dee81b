"""Completions by vLLM inside the process: offline batches under a grammar made from the schema.

Belongs here: how a request is put to ``vllm.LLM.chat`` (vLLM 0.11 or newer), and nothing that another server needs
too. vLLM wants a GPU and pins its own torch, so it lives in an environment of its own (extra ``vllm``) and is not part
of this package's test run: tested here is what is handed to it, not vLLM itself.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from skb_pipeline.errors import UserError
from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.planning.engines.completions import ChatRequest, Completion, Failed, temperature_and_seed
from skb_pipeline.planning.settings import LanguageModelSpec

BATCH = 1024
"""Requests handed over at a time: enough to keep a GPU busy, and what a killed run loses at most."""

SAME_REPLIES = frozenset(
    {
        "cpu_offload_gb", "data_parallel_size", "disable_log_stats", "download_dir", "enable_prefix_caching",
        "gpu_memory_utilization", "hf_token", "max_num_batched_tokens", "max_num_seqs", "pipeline_parallel_size",
        "swap_space", "tensor_parallel_size",
    }
)  # fmt: skip
"""Arguments of ``vllm.LLM`` that say where and how fast it runs, or are secret: replies are kept whatever they are. All
others, such as ``quantization``, ``dtype`` or ``max_model_len``, may change a reply."""


class VLLMMissingError(UserError, ImportError):
    """The package vLLM is not installed."""


def engine_arguments(spec: LanguageModelSpec) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``.

    Blanks between tokens of JSON are forbidden, as some models write them until the token limit. vLLM takes that from
    the engine alone (the same field of a request has no effect, vLLM issue 48765) and only with a grammar backend that
    is named. ``spec.vllm`` adds to these arguments and overrides them.
    """
    arguments: dict[str, Any] = {"model": spec.name, **({} if spec.seed is None else {"seed": spec.seed})}
    if spec.revision is not None:
        arguments |= {"revision": spec.revision, "tokenizer_revision": spec.revision}
    if spec.structured != "none":
        arguments["structured_outputs_config"] = {"backend": "xgrammar", "disable_any_whitespace": True}
    return {**arguments, **spec.vllm}


def sampling_arguments(spec: LanguageModelSpec, request: ChatRequest) -> dict[str, Any]:
    """Arguments of ``vllm.SamplingParams`` without the grammar; what a setting leaves out keeps vLLM's default."""
    temperature, seed = temperature_and_seed(spec, request.sample)
    drawn = {"temperature": temperature, "seed": seed}
    told = {name: value for name, value in drawn.items() if value is not None}
    return {**told, "max_tokens": request.max_tokens or spec.max_tokens}


def grammar_arguments(spec: LanguageModelSpec, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments of ``vllm.sampling_params.StructuredOutputsParams``; None for free text."""
    if spec.structured == "none":
        return None
    what = {"json": dict(schema)} if spec.structured == "json_schema" else {"json_object": True}
    return {**what, "disable_any_whitespace": True}


class VLLMChat:
    """A model that this process runs with vLLM, loaded when the first completion is asked for.

    Three things differ from a server. A batch runs to its end: ``ChatRequest.seconds`` cannot cut a request, only
    ``max_tokens`` does. Time per request is not known: ``milliseconds`` is its share of the batch. And a grammar holds
    from the first token on, so a model does not think first where ``structured`` is not ``none``, whatever
    ``thinking`` says; with ``none`` its thinking stands in the text.
    """

    def __init__(self, spec: LanguageModelSpec) -> None:
        self.spec = spec

    def settings(self) -> dict[str, Any]:
        """What a reply depends on besides request and schema; of ``spec.vllm`` all but ``SAME_REPLIES``."""
        included = {
            "name", "revision", "temperature", "sample_temperature", "seed", "max_tokens", "structured", "thinking",
        }  # fmt: skip
        arguments = {name: value for name, value in self.spec.vllm.items() if name not in SAME_REPLIES}
        return {"engine": "vllm", **self.spec.model_dump(mode="json", include=included), "vllm": arguments}

    def describe(self) -> dict[str, Any]:
        """``models`` (the one it will load) and ``version`` of vLLM.

        Raises:
            VLLMMissingError: vLLM is not installed.
        """
        try:
            version = importlib.metadata.version("vllm")
        except importlib.metadata.PackageNotFoundError:
            raise _missing() from None
        return {"models": [self.spec.name], "version": version}

    def complete(
        self, requests: Sequence[ChatRequest], schema: Mapping[str, Any]
    ) -> Iterator[tuple[int, Completion | Failed]]:
        """Replies with the place of their request, batch by batch; exactly one per request.

        A request that vLLM does not take (a prompt longer than the model's context) is ``REFUSED``.

        Raises:
            VLLMMissingError: vLLM is not installed.
        """
        for start in range(0, len(requests), BATCH):
            batch = requests[start : start + BATCH]
            yield from enumerate(self._answers(batch, schema), start=start)

    def _answers(self, batch: Sequence[ChatRequest], schema: Mapping[str, Any]) -> list[Completion | Failed]:
        """Answers of one batch. vLLM refuses a batch as a whole: then each request is asked on its own."""
        start = time.monotonic()
        try:
            outputs = self._chat(batch, schema)
        except ValueError as error:
            if len(batch) > 1:
                return [answer for request in batch for answer in self._answers([request], schema)]
            return [Failed(PlanCause.REFUSED, str(error)[:300], (time.monotonic() - start) * 1000)]
        if len(outputs) != len(batch):
            raise RuntimeError(f"vLLM gave {len(outputs)} outputs for {len(batch)} requests")
        milliseconds = (time.monotonic() - start) * 1000 / len(batch)
        return [self._answer(request, output, milliseconds) for request, output in zip(batch, outputs, strict=True)]

    def _chat(self, batch: Sequence[ChatRequest], schema: Mapping[str, Any]) -> list[Any]:
        llm = self._llm
        vllm = importlib.import_module("vllm.sampling_params")
        grammar = grammar_arguments(self.spec, schema)
        conversations = [[{"role": m.role, "content": m.content} for m in request.messages] for request in batch]
        sampling = [
            vllm.SamplingParams(
                **sampling_arguments(self.spec, request),
                structured_outputs=None if grammar is None else vllm.StructuredOutputsParams(**grammar),
            )
            for request in batch
        ]
        thinking = None if self.spec.thinking is None else {"enable_thinking": self.spec.thinking}
        return list(llm.chat(conversations, sampling, use_tqdm=False, chat_template_kwargs=thinking))

    def _answer(self, request: ChatRequest, output: Any, milliseconds: float) -> Completion | Failed:
        if not output.outputs:
            return Failed(PlanCause.MALFORMED, "vLLM gave an output without a reply", milliseconds)
        reply = output.outputs[0]
        return Completion(
            text=reply.text,
            reasoning=None,
            finish_reason=reply.finish_reason,
            model=self.spec.name,
            prompt_tokens=len(output.prompt_token_ids),
            completion_tokens=len(reply.token_ids),
            milliseconds=milliseconds,
            limit=request.max_tokens or self.spec.max_tokens,
        )

    @cached_property
    def _llm(self) -> Any:
        try:
            vllm = importlib.import_module("vllm")
        except ModuleNotFoundError as error:
            if error.name != "vllm":
                raise
            raise _missing() from error
        return vllm.LLM(**engine_arguments(self.spec))


def _missing() -> VLLMMissingError:
    return VLLMMissingError(
        "the engine vllm needs the package vLLM, which is not installed: install skb-pipeline[vllm] in an environment "
        "of its own, or start a vLLM server and use the engine openai"
    )
