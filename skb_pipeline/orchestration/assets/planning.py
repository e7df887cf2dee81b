"""Stage ``planning``: each question as a plan over the relations, and what prompts tell of the dataset."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import pandas as pd
from pydantic import Field

from skb_pipeline.orchestration.steps import Opened, Step, StepConfig, pinned, pipeline_asset
from skb_pipeline.planning.engines import opening
from skb_pipeline.planning.engines.base import PlannerEngine, PlanRecord, Question, fallback_rate
from skb_pipeline.planning.engines.from_file import FileEngine
from skb_pipeline.planning.engines.openai_http import ModelServerError, ModelSettingsError
from skb_pipeline.planning.engines.opening import ModelReport, asked_questions, with_engine
from skb_pipeline.planning.engines.probing import runner
from skb_pipeline.planning.frames import PLANS, plans_frame
from skb_pipeline.planning.prompts import generation
from skb_pipeline.planning.prompts.checking import check_examples
from skb_pipeline.planning.prompts.generation import generate_guidance
from skb_pipeline.planning.prompts.guidance import builtin_guidance
from skb_pipeline.planning.rules import planner as rules_planner
from skb_pipeline.planning.settings import LANGUAGE_MODELS, Engine
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.storage.artifacts import Artifact, Draft, stable_hash
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import GUIDANCE_FILE, SKB_FILE

_ON_GRAPH = ["graph/anchors", "graph/csr"]
_OF_BRANCH = ["linking", "retrieval", "encoder"]
_MODELS_SHOWN = 20


@contextmanager
def _wanted_guidance(step: Step) -> Iterator[Opened]:
    """What counts of the plans' settings, and the guidance written for the dataset if there is one."""
    plans = step.spec.plans
    written = None if plans.guidance == "generated" else builtin_guidance(plans.guidance)
    counts = {"guidance", "examples", "negated_hops", "retrieval_modes"}
    yield Opened(
        config={
            "written": stable_hash(written.to_json()) if written is not None else None,
            "plans": plans.model_dump(mode="json", include=counts),
        },
        value=written,
    )


@pipeline_asset(
    "planning/guidance",
    # A changed source leaves guidance as it is, so that prompts, and the replies kept for them, stay the same.
    inputs=[
        pinned("questions/queries", splits=["train"]),
        pinned("skb/store"),
        *(pinned(key) for key in _ON_GRAPH),
    ],
    sections=["node_types", "relations", "candidates", "planner"],
    partly=["plans", *_OF_BRANCH],
    opens=_wanted_guidance,
    code=[generation],
    kinds={"json"},
)
def guidance(step: Step, draft: Draft) -> None:
    """What the prompts of language models tell of the dataset beyond its schema: usual paths, rules, worked examples.

    Pinned: a changed source leaves it as it is, so that prompts, and the replies kept for them, stay the same. It is
    made anew when the schema or its settings change, or on request (`force`, or `skb-pipeline guidance --refresh`).
    Examples were executed: of those written for a dataset each finds something, of those made from training questions
    each finds a right answer among its first ten.
    """
    schema = GraphSchema.from_spec(step.spec)
    run = runner(step.workspace.open_graph_branch(step.spec))
    train = step.rows("questions/queries", QUERIES)
    if step.opened is None:
        checked = generate_guidance(step.spec, schema, train, run)
    else:
        checked = check_examples(step.opened, schema, run)
    made = checked.kept.to_json()
    (draft.path / GUIDANCE_FILE).write_text(json.dumps(made, ensure_ascii=False, indent=1), encoding="utf-8")
    draft.finish(
        stable_hash(made),
        {
            "from": checked.kept.name,
            "hints": len(checked.kept.hints),
            "rules": len(checked.kept.rules),
            "examples": len(checked.kept.examples),
            "left out": len(checked.faults),
            "reasons": [f"{what}: {why}" for what, why in checked.faults[:20]],
            "notes": list(checked.notes),
        },
        made_from=step.versions_read(),
    )


class PlansConfig(StepConfig):
    """Run config of the plans.

    Attributes:
        engine: whose plans are executed, instead of the spec's; empty keeps that.
        questions: number of questions a language model plans, always the same ones; 0 means all.
    """

    engine: str = Field(default="", pattern="^(rules|openai|vllm|file)?$")
    questions: int = Field(default=0, ge=0)


@contextmanager
def _engines(step: Step) -> Iterator[Opened]:
    """The engines as ``opened``, each with the report of a language model; what decides their plans is in the recipe,
    and the graph is an input only where a planner looks into it."""
    config = step.config
    assert isinstance(config, PlansConfig)
    spec = with_engine(step.spec, cast(Engine, config.engine or None))
    store = step.store.require(spec.name, "skb/store")
    with ExitStack() as stack:
        con = stack.enter_context(connect(store.file(SKB_FILE), read_only=True))
        engines = [
            stack.enter_context(step.workspace.open_engine(spec, name, con, report=step.log))
            for name in spec.plans.engines
        ]
        by_model = any(engine.name in LANGUAGE_MODELS for engine, _ in engines)
        looks = by_model and (spec.plans.samples > 1 or spec.plans.empty_result_repair)
        yield Opened(
            config={
                "engines": [engine.fingerprint() for engine, _ in engines],
                "asked": [spec.plans.splits, config.questions] if by_model else None,
            },
            reads=["questions/queries", "skb/store", *(["planning/guidance"] if by_model else []),
                   *(_ON_GRAPH if looks else [])],
            holds=_nothing_to_ask_again,
            value=(engines, spec.plans.splits),
        )  # fmt: skip


@pipeline_asset(
    "planning/query_plans",
    inputs=["questions/queries", "skb/store", "planning/guidance", *_ON_GRAPH],
    partly=["plans", "planner", "node_types", "relations", "candidates", *_OF_BRANCH],
    opens=_engines,
    config=PlansConfig,
    code=[opening, rules_planner],
    writes=[PLANS],
    libraries=["rapidfuzz"],
    pool="llm",
    kinds={"parquet"},
)
def query_plans(step: Step, draft: Draft) -> None:
    """A plan per question and engine: by rules, by a language model (a server or in the process), or from a file.

    The first engine (`plans.engine` in the spec, or this run's config) is the one that `ranking/graph` executes; those
    of `plans.compare` are judged beside it. Planners read the question's text only, never its answers, gold plan or
    template. Replies of a language model are kept as they arrive, by prompt, model and settings: a killed run goes on
    where it was, and an unchanged prompt is never asked twice. Each question has a row whatever became of it.
    """
    engines, splits = step.opened
    queries = QUERIES.read(step.input("questions/queries"), ["query_id", "query", "split"])
    asked = asked_questions(queries, splits, step.config.questions)
    parts: list[pd.DataFrame] = []
    for engine, report in engines:
        mask = asked if engine.name in LANGUAGE_MODELS else asked | True
        made = plan_rows(engine, queries, mask, must=not parts)
        draft.metadata |= engine_metadata(engine, made, report, first=not parts)
        parts.append(plans_frame(made))
    frame = pd.concat(parts, ignore_index=True)
    PLANS.write(draft.path, frame)
    first = engines[0][0].name
    draft.finish(
        PLANS.hash(frame),
        {"dagster/row_count": len(frame), "engine": first, **draft.metadata},
        engine=first,
    )


def plan_rows(engine: PlannerEngine, queries: pd.DataFrame, asked: Any, *, must: bool) -> list[PlanRecord]:
    """Records of all questions in their order; those not asked say so.

    Of an engine that is only compared with, a server that cannot be used leaves rows that say so; the next run asks it
    again. Of the one whose plans are executed (``must``), it is an error.
    """
    questions = [Question(str(q), str(text)) for q, text in zip(queries["query_id"], queries["query"], strict=True)]
    wanted = [q for q, wanted in zip(questions, asked, strict=True) if wanted]
    try:
        planned = {r.query_id: r for r in engine.plan(wanted)}
    except (ModelServerError, ModelSettingsError) as error:
        if must:
            raise
        planned = {q.query_id: PlanRecord.unreached(q.query_id, engine.name, str(error)) for q in wanted}
    return [planned.get(q.query_id) or PlanRecord.not_asked(q.query_id, engine.name) for q in questions]


def engine_metadata(
    engine: PlannerEngine, records: list[PlanRecord], report: ModelReport | None, *, first: bool
) -> dict[str, Any]:
    """What people see of one engine's plans: how they ended, at what cost."""
    prefix = "" if first else f"{engine.name} "
    causes = Counter(record.cause.value for record in records)
    told: dict[str, Any] = {
        f"{prefix}causes": dict(causes.most_common()),
        f"{prefix}risk levels": dict(Counter(r.risk_level.value for r in records).most_common()),
        f"{prefix}fallback rate": round(fallback_rate(records), 4),
        f"{prefix}to ask again": sum(record.unanswered for record in records),
    }
    if isinstance(engine, FileEngine):
        told[f"{prefix}rows for other questions"] = len(engine.unused)
    if report is not None:
        told |= {
            f"{prefix}model": next((r.model for r in records if r.model), None) or "none answered",
            f"{prefix}prompts": report.prompts.version[:12],
            f"{prefix}replies asked": report.chat.asked,
            f"{prefix}replies reused": report.chat.reused,
            f"{prefix}prompt tokens": sum(r.prompt_tokens or 0 for r in records),
            f"{prefix}completion tokens": sum(r.completion_tokens or 0 for r in records),
        }
        if report.server:
            models = report.server["models"]  # a large service lists hundreds
            shown = {"models": models[:_MODELS_SHOWN], "models not shown": len(models[_MODELS_SHOWN:])}
            told[f"{prefix}server"] = {**report.server, **shown, "first question": report.self_test}
    return told


def _nothing_to_ask_again(made: Artifact) -> bool:
    """What a server left without a reply (it was down, it refused the key, a deadline) is asked again."""
    return not any(count for name, count in made.metadata.items() if name.endswith("to ask again"))
