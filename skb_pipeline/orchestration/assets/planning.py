"""Stage ``planning``: each question as a plan over the relations, and what prompts tell of the dataset."""

import json
from collections import Counter
from contextlib import ExitStack
from typing import Any, cast

import dagster as dg
import pandas as pd
from pydantic import Field

from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.planning.engines.base import PlannerEngine, PlanRecord, Question, fallback_rate
from skb_pipeline.planning.engines.from_file import FileEngine
from skb_pipeline.planning.engines.openai_http import ModelServerError, ModelSettingsError
from skb_pipeline.planning.engines.opening import ModelReport, asked_questions, with_engine
from skb_pipeline.planning.engines.probing import runner
from skb_pipeline.planning.frames import CONTENT, PLANS_SCHEMA, plans_frame
from skb_pipeline.planning.prompts.checking import check_examples
from skb_pipeline.planning.prompts.generation import generate_guidance
from skb_pipeline.planning.prompts.guidance import builtin_guidance
from skb_pipeline.planning.settings import LANGUAGE_MODELS, Engine
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.splits import queries_for
from skb_pipeline.storage.artifacts import Artifact, Draft, stable_hash
from skb_pipeline.storage.duck import connect, frame_hash
from skb_pipeline.storage.frames import read_frame, write_frame
from skb_pipeline.workspace import GUIDANCE_FILE, PLANS_FILE, QUERIES_FILE, SKB_FILE

GUIDANCE_CODE_VERSION = "2"
PLANS_CODE_VERSION = "3"
"""Also of the rules, the reading of replies and validation: what changes plans there is noticed by this alone."""
_ON_GRAPH = ["graph/anchors", "graph/csr"]
_MODELS_SHOWN = 20


@pipeline_asset(
    "planning/guidance", deps=["questions/queries", "skb/store", *_ON_GRAPH], code_version=GUIDANCE_CODE_VERSION,
    kinds={"json"},
)  # fmt: skip
def guidance(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """What the prompts of language models tell of the dataset beyond its schema: usual paths, rules, worked examples.

    Pinned: a changed source leaves it as it is, so that prompts, and the replies kept for them, stay the same. It is
    made anew when the schema or its settings change, or on request (`force`, or `skb-pipeline guidance --refresh`).
    Examples were executed: of those written for a dataset each finds something, of those made from training questions
    each finds a right answer among its first ten.
    """
    wanted = workspace.spec(context.partition_key).plans.guidance
    # Without inputs in its recipe: a run that changed inputs ask for gives back what is there.
    step = Step(
        context, workspace, config, code_version=GUIDANCE_CODE_VERSION,
        sections=["node_types", "relations", "candidates", "planner"],
        config={"written": stable_hash(builtin_guidance(wanted).to_json()) if wanted != "generated" else None,
                "plans": workspace.spec(context.partition_key).plans.model_dump(
            mode="json", include={"guidance", "examples", "negated_hops", "retrieval_modes"})},
    )  # fmt: skip

    def build(draft: Draft) -> None:
        schema = GraphSchema.from_spec(step.spec)
        run = runner(workspace.open_graph_branch(step.spec))
        # Not an input of the recipe, as guidance is not made anew when questions change.
        queries = step.store.require_fitting(step.dataset, "questions/queries")
        train, train_hash = queries_for(read_frame(queries.file(QUERIES_FILE)), ["train"])
        if wanted == "generated":
            checked = generate_guidance(step.spec, schema, train, run)
        else:
            checked = check_examples(builtin_guidance(wanted), schema, run)
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
            made_from={"training questions": train_hash},
        )

    return step.run(build)


class PlansConfig(StepConfig):
    """Run config of the plans.

    Attributes:
        engine: whose plans are executed, instead of the spec's; empty keeps that.
        questions: number of questions a language model plans, always the same ones; 0 means all.
    """

    engine: str = Field(default="", pattern="^(rules|openai|vllm|file)?$")
    questions: int = Field(default=0, ge=0)


@pipeline_asset(
    "planning/query_plans", deps=["questions/queries", "skb/store", "planning/guidance", *_ON_GRAPH],
    code_version=PLANS_CODE_VERSION, kinds={"parquet"},
)  # fmt: skip
def query_plans(
    context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: PlansConfig
) -> dg.MaterializeResult:
    """A plan per question and engine: by rules, by a language model (a server or in the process), or from a file.

    The first engine (`plans.engine` in the spec, or this run's config) is the one that `ranking/graph` executes; those
    of `plans.compare` are judged beside it. Planners read the question's text only, never its answers, gold plan or
    template. Replies of a language model are kept as they arrive, by prompt, model and settings: a killed run goes on
    where it was, and an unchanged prompt is never asked twice. Each question has a row whatever became of it.
    """
    spec = with_engine(workspace.spec(context.partition_key), cast(Engine, config.engine or None))
    store = workspace.store.require(spec.name, "skb/store")
    with ExitStack() as stack:
        con = stack.enter_context(connect(store.file(SKB_FILE), read_only=True))
        engines = [
            stack.enter_context(workspace.open_engine(spec, name, con, report=context.log.info))
            for name in spec.plans.engines
        ]
        by_model = any(engine.name in LANGUAGE_MODELS for engine, _ in engines)
        looks = by_model and (spec.plans.samples > 1 or spec.plans.empty_result_repair)
        step = Step(
            context, workspace, config, code_version=PLANS_CODE_VERSION,
            inputs=["questions/queries", "skb/store", *(["planning/guidance"] if by_model else []),
                    *(_ON_GRAPH if looks else [])],
            config={"engines": [engine.fingerprint() for engine, _ in engines],
                    "asked": [spec.plans.splits, config.questions] if by_model else None},
        )  # fmt: skip

        def build(draft: Draft) -> None:
            queries = read_frame(step.input("questions/queries").file(QUERIES_FILE), ["query_id", "query", "split"])
            asked = asked_questions(queries, spec.plans.splits, config.questions)
            parts: list[pd.DataFrame] = []
            for engine, report in engines:
                mask = asked if engine.name in LANGUAGE_MODELS else asked | True
                made = plan_rows(engine, queries, mask, must=not parts)
                draft.metadata |= engine_metadata(engine, made, report, first=not parts)
                parts.append(plans_frame(made))
            frame = pd.concat(parts, ignore_index=True)
            write_frame(draft.path / PLANS_FILE, frame, PLANS_SCHEMA)
            draft.finish(
                frame_hash(frame[CONTENT]),
                {"dagster/row_count": len(frame), "engine": engines[0][0].name, **draft.metadata},
                engine=engines[0][0].name,
            )

        return step.run(build, holds=_nothing_to_ask_again)


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
