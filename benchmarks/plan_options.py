"""What the options of a language-model planner bring and cost, on questions of a dataset, beside the rules planner.

    skb-pipeline run --dataset demo --to planning/guidance
    OPENAI_BASE_URL=... OPENAI_MODEL=... python benchmarks/plan_options.py --dataset demo --questions 50

Variants: the plain planner; without the repair round; self-consistency with three plans; another plan for an empty
result; negated hops. Each plans the same questions, replies are kept as in the main job, and every plan is executed in
memory. Shares are over all questions: ``plan`` has a plan, ``good@500`` executes a hop and leaves at most 500
candidates with an answer among them, ``gold`` is the gold plan (where there is one), ``Hit@1`` counts executed plans
only. Without an address of a model there is nothing to measure.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.evaluation.plan_quality import judge_plans
from skb_pipeline.graph.branch import GraphBranch, branch_hits, outcomes_frame
from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.planning.engines.base import PlanRecord, Question
from skb_pipeline.planning.engines.openai_http import BASE_URL_ENV
from skb_pipeline.planning.engines.opening import MODEL_ENV, asked_questions, with_engine
from skb_pipeline.planning.frames import plans_frame, validated_plans
from skb_pipeline.planning.settings import PlansSpec
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.skb.store import node_table
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import SKB_FILE, Workspace

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no repair": {"repair": False},
    "3 samples": {"samples": 3},
    "empty-result repair": {"empty_result_repair": True},
    "negated hops": {"negated_hops": True},
}
_LIMITS = {"deadline_s": "deadline", "concurrency": "concurrency"}


def planned(
    workspace: Workspace, spec: DatasetSpec, con: Any, questions: list[Question]
) -> tuple[list[PlanRecord], Any]:
    """Records of one variant, and the report of its model (None for rules)."""
    with ExitStack() as stack:
        engine, report = stack.enter_context(workspace.open_engine(spec, spec.plans.engine, con, print))
        return engine.plan(questions), report


def measured(
    records: list[PlanRecord], queries: pd.DataFrame, branch: GraphBranch, nodes: pd.DataFrame, schema: GraphSchema
) -> dict[str, float | str]:
    """Shares over all questions."""
    rows = plans_frame(records)
    answers = branch.answer(queries["query"].tolist(), validated_plans(rows))
    query_ids = queries["query_id"].tolist()
    outcomes = outcomes_frame(query_ids, rows, answers, nodes)
    hits = branch_hits(answers)
    executed = ~np.array([a.fallback for a in answers])
    kept = executed[hits.query]
    found = pd.DataFrame({"query_id": np.array(query_ids)[hits.query[kept]], "node_id": hits.node_id[kept]})
    judged = judge_plans(queries, outcomes, found, nodes["node_type"].to_dict(), partial(plans_agree, schema=schema))
    first = [
        e and len(a.node_ids) > 0 and int(a.node_ids[0]) in {int(n) for n in gold}
        for e, a, gold in zip(executed, answers, queries["answer_ids"], strict=True)
    ]
    good = judged["hops"] & judged["has_answer"] & (judged["n_cand"] <= 500)
    agrees = judged["agrees"].dropna()
    return {
        "plan": float(np.mean([r.validated.plan is not None for r in records])),
        "good@500": float(good.mean()),
        "gold": float(agrees.astype(bool).mean()) if len(agrees) else float("nan"),
        "Hit@1": float(np.mean(first)),
        "causes": ", ".join(f"{cause} {n}" for cause, n in Counter(r.cause.value for r in records).most_common()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--split", default="val", choices=["train", "val", "test"])
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for one question")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    args = parser.parse_args()
    if not os.environ.get(BASE_URL_ENV) or not os.environ.get(MODEL_ENV):
        print(f"skipped: ${BASE_URL_ENV} and ${MODEL_ENV} name no language model")
        return
    workspace = Workspace()
    spec = workspace.spec(args.dataset)
    store = workspace.store
    queries = QUERIES.read(store.require_fitting(args.dataset, "questions/queries"))
    queries = queries[asked_questions(queries, [args.split], args.questions)].reset_index(drop=True)
    questions = [Question(q, text) for q, text in zip(queries["query_id"], queries["query"], strict=True)]
    branch = workspace.open_graph_branch(spec)
    rows = {}
    with connect(store.require(args.dataset, "skb/store").file(SKB_FILE), read_only=True) as con:
        nodes = node_table(con)
        asked = with_engine(spec, "openai")
        model = {"model": asked.plans.model_dump()["model"] | {k: getattr(args, n) for k, n in _LIMITS.items()}}
        specs = {"rules": with_engine(spec, "rules")}
        for name in args.variants:
            plans = PlansSpec.model_validate(asked.plans.model_dump() | model | VARIANTS[name])
            specs[name] = asked.model_copy(update={"plans": plans})
        for name, variant in specs.items():
            start = time.perf_counter()
            records, report = planned(workspace, variant, con, questions)
            seconds = time.perf_counter() - start
            rows[name] = measured(records, queries, branch, nodes, GraphSchema.from_spec(spec)) | {
                "calls": sum(r.attempts for r in records),
                "asked": report.chat.asked if report else 0,
                "prompt tokens": sum(r.prompt_tokens or 0 for r in records),
                "completion tokens": sum(r.completion_tokens or 0 for r in records),
                "seconds": round(seconds, 1),
            }
            print(f"{name}: {rows[name]}", flush=True)
    table = pd.DataFrame(rows).T
    causes = table.pop("causes")
    print(f"\n{args.dataset}, {args.split}, {len(queries)} questions\n\n{table.to_string()}\n")
    print("\n".join(f"{name}: {text}" for name, text in causes.items()))


if __name__ == "__main__":
    main()
