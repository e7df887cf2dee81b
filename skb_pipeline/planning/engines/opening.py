"""Opening a planner engine for a dataset: settings from the spec or the environment, prompts, kept replies, a look into
the graph where an option needs it, and a first question to the server that shows whether it answers with plans."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UserError
from skb_pipeline.planning.engines.base import PlanCause, PlannerEngine
from skb_pipeline.planning.engines.completions import ChatRequest, Failed
from skb_pipeline.planning.settings import LANGUAGE_MODELS, Engine, LanguageModelSpec, PlansSpec
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.text.hashing import key_hash

if TYPE_CHECKING:
    from skb_pipeline.planning.engines.completions import ChatModel
    from skb_pipeline.planning.engines.kept_replies import CachedChat
    from skb_pipeline.planning.engines.probing import PlanProbe
    from skb_pipeline.planning.prompts.guidance import Guidance
    from skb_pipeline.planning.prompts.prompt_set import PromptSet

VERSION = "7"
"""Of what becomes of a question, a reply or a row of a file; the rules have a version of their own."""
MODEL_ENV = "OPENAI_MODEL"
_KNOWN_QUESTION = "Which of the things in this knowledge base are joined to the first one?"
"""Asked first where guidance has no example."""


class EngineSettingsError(UserError, ValueError):
    """An engine cannot be used with the spec and the environment as they are; the message says what is missing."""


def with_engine(spec: DatasetSpec, engine: Engine | None, environ: Mapping[str, str] = os.environ) -> DatasetSpec:
    """``spec`` with another engine in front, and with the model of the environment where it names none.

    Args:
        engine: None keeps the spec's own. The one in front before is compared with it, unless that costs calls.
        environ: ``$OPENAI_MODEL`` makes up for a missing ``plans.model``.

    Raises:
        EngineSettingsError: the engine needs a model or a file, and there is none.
    """
    plans = spec.plans.model_dump()
    plans["engine"] = engine or spec.plans.engine
    free = [spec.plans.engine] if spec.plans.engine not in LANGUAGE_MODELS else []
    plans["compare"] = [e for e in dict.fromkeys([*free, *spec.plans.compare]) if e != plans["engine"]]
    if plans["engine"] in LANGUAGE_MODELS and plans["model"] is None:
        if not environ.get(MODEL_ENV):
            raise EngineSettingsError(
                f"the engine {plans['engine']!r} needs a model: plans.model.name in the spec of {spec.name!r}, or "
                f"${MODEL_ENV} (and the address of its server in plans.model.base_url or $OPENAI_BASE_URL)"
            )
        plans["model"] = LanguageModelSpec(name=environ[MODEL_ENV])
    if plans["engine"] == "file" and plans["file"] is None:
        raise EngineSettingsError(f"the engine 'file' needs plans.file in the spec of {spec.name!r}")
    return spec.model_copy(update={"plans": PlansSpec.model_validate(plans)})


def asked_questions(queries: pd.DataFrame, splits: Sequence[str], most: int) -> np.ndarray:
    """Which questions a language model is to plan: bool [n].

    Args:
        queries: ``query_id``, ``split``.
        splits: empty means all.
        most: 0 means all; else the questions with the lowest hashes of their ids, so that a larger number keeps those
            of a smaller one.
    """
    wanted = queries["split"].isin(splits).to_numpy() if splits else np.ones(len(queries), dtype=bool)
    if most and wanted.sum() > most:
        hashes = np.array([key_hash("planned", query_id) for query_id in queries["query_id"]], dtype=np.uint64)
        last = np.sort(hashes[wanted])[most - 1]
        wanted &= hashes <= last
    return wanted


@dataclass
class ModelReport:
    """What is known of a language model after its plans were made.

    Attributes:
        prompts: those it is asked with.
        chat: the model with its kept replies; counts which were asked for and which were there already.
        server: what it says about itself; empty where nothing had to be asked.
        self_test: what came of the first question.
    """

    prompts: PromptSet
    chat: CachedChat
    server: dict[str, Any] = field(default_factory=dict)
    self_test: str = ""


@contextmanager
def open_engine(
    spec: DatasetSpec,
    engine: Engine,
    con: duckdb.DuckDBPyConnection,
    *,
    guidance: Guidance | None,
    replies: Path,
    probe: Callable[[], PlanProbe],
    report: Callable[[str], None] | None = None,
    typed: bool = False,
) -> Iterator[tuple[PlannerEngine, ModelReport | None]]:
    """An engine that is ready to plan; what it holds open is closed after the block.

    Args:
        spec: of the dataset; its ``plans`` configure the engine.
        engine: which.
        con: the SKB file; must stay open.
        guidance: for the prompts of a language model.
        replies: folder of the replies that are kept.
        probe: opens what executes plans; called only if an option needs it.
        report: takes lines on the progress.
        typed: questions are single ones that a person types: no known question goes before them, and their replies are
            not kept.

    Yields:
        The engine, and for a language model the report that it fills while it plans.

    Raises:
        EngineSettingsError: the engine needs guidance that was not given.
    """
    schema = GraphSchema.from_spec(spec)
    if engine == "rules":
        from skb_pipeline.planning.engines.by_rules import RulesEngine

        yield RulesEngine(con, spec), None
        return
    if engine == "file":
        from skb_pipeline.planning.engines.from_file import FileEngine

        yield FileEngine(str(spec.plans.file), schema), None
        return
    if spec.plans.model is None or guidance is None:
        raise EngineSettingsError(f"the engine {engine!r} needs a model and guidance")
    from skb_pipeline.planning.engines.kept_replies import CachedChat, open_replies
    from skb_pipeline.planning.engines.language_model import LanguageModelPlanner
    from skb_pipeline.planning.prompts.prompt_set import PromptSet

    prompts = PromptSet(spec, guidance)
    settings = spec.plans.model
    model = _open_model(engine, settings)
    looks = spec.plans.samples > 1 or spec.plans.empty_result_repair
    with open_replies(replies, must_keep=not typed) as cache:

        def before_asking() -> None:
            told.server = model.describe()
            if report is not None and "note" in told.server:
                report(f"{engine}: {told.server['note']}")
            if not typed:
                told.self_test = self_test(model, prompts, guidance, settings)
                if report is not None:
                    report(f"{engine}: first question to the model: {told.self_test}")

        told = ModelReport(prompts, CachedChat(model, cache, before_asking=before_asking, keep=not typed))
        looker = probe() if looks else None
        yield LanguageModelPlanner(engine, told.chat, prompts, schema, spec.plans, looker, report), told


def self_test(model: ChatModel, prompts: PromptSet, guidance: Guidance, settings: LanguageModelSpec) -> str:
    """Ask one known question and say what came of it: a server that answers with something else than plans shows here
    at once, and not after thousands of questions.

    Raises:
        ModelServerError: the server refuses the question, or answers with no chat completion, as it would all others.
    """
    from skb_pipeline.planning.engines.openai_http import ModelServerError
    from skb_pipeline.planning.engines.replies import read_reply

    question = guidance.examples[0].question if guidance.examples else _KNOWN_QUESTION
    request = ChatRequest(prompts.messages(question), seconds=settings.deadline_s)
    for _, reply in model.complete([request], prompts.json_schema()):
        if isinstance(reply, Failed) and reply.cause in (PlanCause.REFUSED, PlanCause.MALFORMED):
            raise ModelServerError(
                f"the first question to {settings.name!r} failed ({reply.cause.value}): {reply.message}"
            )
        if isinstance(reply, Failed):
            return f"no reply ({reply.cause.value}): {reply.message}"
        read = read_reply(reply)
        if read.content is not None or read.cause is None:
            return "read as JSON"
        return f"not read: {read.cause.value}: {read.reason}"
    return "no reply"


def _open_model(engine: Engine, settings: LanguageModelSpec) -> Any:
    if engine == "openai":
        from skb_pipeline.planning.engines.openai_http import OpenAIChat

        return OpenAIChat(settings)
    from skb_pipeline.planning.engines.vllm_offline import VLLMChat

    return VLLMChat(settings)
