"""How good plans are before any ranking matters: did they execute, how narrow are they, do they hold an answer.

The measures, over *all* questions of a split and slice that the planner was asked (a question without an executed plan
counts as a miss; one outside the number or the splits to be planned does not count):

* ``good@500``, ``good@50``: share of questions whose plan executed at least one hop, gave at most that many candidates,
  and has an answer among them;
  The stored ranking is searched for answers, so both are lower bounds where ``retrieval.depth`` is below 500;
* ``median n_cand``: over questions whose plan executed, candidates counted before any cap;
* ``target type``: share whose plan asks for exactly the types that the answers have;
* ``gold plan``: share whose plan is the gold plan up to names of variables, over questions that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from skb_pipeline.evaluation.slices import slice_masks
from skb_pipeline.planning.engines.base import PlanCause
from skb_pipeline.plans.plan import Plan
from skb_pipeline.text.sinks import markdown_table

VERSION = "6"


def judge_plans(
    queries: pd.DataFrame,
    outcomes: pd.DataFrame,
    executed_hits: pd.DataFrame,
    node_type: Mapping[int, str],
    agree: Callable[[Plan, Plan], bool],
) -> pd.DataFrame:
    """One row of judgements per query.

    Args:
        queries: ``query_id``, ``split``, ``answer_ids``, ``gold_plan`` (JSON or None).
        outcomes: one row per query: ``query_id``, ``cause`` (of the plan), ``status``, ``risk_level``, ``plan`` (JSON
            or None), ``outcome``, ``n_cand``, ``bucket``.
        executed_hits: ``query_id``, ``node_id`` of hits that come from executed plans (no fallback search).
        node_type: type of every node by id.
        agree: whether two plans mean the same.

    Returns:
        ``query_id``, ``split``, ``asked`` (whether the planner was), ``risk_level``, ``executed`` (at least one hop, or
        a document search that the plan asks for), ``hops`` (whether it has any), ``n_cand``, ``bucket`` (None without
        candidates), ``has_answer``, ``target_type_right`` (bool), ``agrees`` (True, False or None where there is no
        gold plan), ``cause`` (text).

    Raises:
        KeyError: a query has no outcome.
    """
    by_query = outcomes.set_index("query_id")
    found = executed_hits.groupby("query_id")["node_id"].agg(set).to_dict()
    rows = []
    for query in queries.itertuples(index=False):
        row = by_query.loc[query.query_id]
        answers = {int(a) for a in query.answer_ids}
        plan = Plan.model_validate_json(row["plan"]) if isinstance(row["plan"], str) else None
        hops = plan is not None and len(plan.hops) > 0
        searches = plan is not None and plan.retrieval_mode == "doc_search"
        executed = (hops or searches) and row["outcome"] in ("ok", "empty")
        listed = len(found.get(query.query_id, set()))
        has_answer = executed and bool(answers & found.get(query.query_id, set()))
        types = {node_type[a] for a in answers if a in node_type}
        gold = Plan.model_validate_json(query.gold_plan) if isinstance(query.gold_plan, str) else None
        rows.append(
            {
                "query_id": query.query_id,
                "split": query.split,
                "asked": row["cause"] != PlanCause.NOT_ASKED,
                "risk_level": row["risk_level"],
                "executed": executed,
                "hops": hops and executed,
                "n_cand": int(row["n_cand"]),
                "bucket": row["bucket"] if isinstance(row["bucket"], str) else None,
                "has_answer": has_answer,
                "target_type_right": plan is not None and set(plan.target.labels) == types,
                "agrees": None if gold is None else plan is not None and agree(plan, gold),
                "cause": "document search that the plan asks for"
                if searches and executed
                else "not asked"
                if row["cause"] == PlanCause.NOT_ASKED
                else _cause(str(row["status"]), str(row["outcome"]), int(row["n_cand"]), executed, has_answer, listed),
            }
        )
    return pd.DataFrame(rows)


def _cause(status: str, outcome: str, n_cand: int, executed: bool, has_answer: bool, listed: int) -> str:
    if status == "fallback" or (not executed and outcome in ("ok", "empty")):
        return "no plan with a hop: text only"
    if outcome == "row_limit":
        return "stopped by the row limit"
    if outcome == "timeout":
        return "stopped by the time limit"
    if n_cand == 0:
        return "nothing matched"
    if not has_answer:
        return "answers not among the candidates" if listed >= n_cand else "answers not among the listed candidates"
    return "answer found" if n_cand <= 500 else "answer found among more than 500 candidates"


def plan_quality_table(per_engine: Mapping[str, pd.DataFrame], queries: pd.DataFrame, *, dataset: str) -> pd.DataFrame:
    """The measures of the module docstring per engine, split and slice.

    Args:
        per_engine: engine -> frame of :func:`judge_plans`.
        queries: the judged queries, with the columns that make slices.
        dataset: written into every row.

    Returns:
        ``dataset, engine, split, slice, measure, value (float64, None where undefined), n_queries``; no rows for a
        slice of which no question was asked.
    """
    masks = slice_masks(queries)
    rows = []
    for engine, judged in per_engine.items():
        aligned = judged.set_index("query_id").loc[queries["query_id"]].reset_index()
        for split in sorted(queries["split"].unique()):
            for name, mask in masks.items():
                part = aligned[mask & (queries["split"] == split).to_numpy() & aligned["asked"].to_numpy()]
                if len(part):
                    key = {"dataset": dataset, "engine": engine, "split": split, "slice": name}
                    rows += [{**key, "measure": m, "value": v, "n_queries": n} for m, v, n in _measures(part)]
    return pd.DataFrame(rows, columns=["dataset", "engine", "split", "slice", "measure", "value", "n_queries"])


def _measures(part: pd.DataFrame) -> list[tuple[str, float | None, int]]:
    good = part["hops"] & part["has_answer"]
    executed = part.loc[part["hops"], "n_cand"]
    gold = part["agrees"].dropna()
    return [
        ("good@500", float((good & (part["n_cand"] <= 500)).mean()), len(part)),
        ("good@50", float((good & (part["n_cand"] <= 50)).mean()), len(part)),
        ("median n_cand", float(executed.median()) if len(executed) else None, len(executed)),
        ("target type", float(part["target_type_right"].mean()), len(part)),
        ("gold plan", float(gold.astype(bool).mean()) if len(gold) else None, len(gold)),
    ]


def causes_table(per_engine: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """``engine, split, cause, questions``, most frequent first."""
    rows = [judged.assign(engine=engine) for engine, judged in per_engine.items()]
    counted = pd.concat(rows).groupby(["engine", "split", "cause"]).size().rename("questions").reset_index()
    return counted.sort_values(
        ["engine", "split", "questions", "cause"], ascending=[True, True, False, True], ignore_index=True
    )


def plan_quality_markdown(table: pd.DataFrame, *, split: str, slices: Sequence[str] = ("all",)) -> str:
    """A Markdown table with a row per engine and slice and a column per measure."""
    rows = table[(table["split"] == split) & table["slice"].isin(list(slices))]
    measures = list(dict.fromkeys(rows["measure"]))
    lines = []
    for (engine, name), part in rows.groupby(["engine", "slice"], sort=False):
        values = part.set_index("measure")["value"]
        shown = [f"{values[m]:.3f}" if pd.notna(values[m]) else "–" for m in measures]
        lines.append([engine, name, int(part["n_queries"].max()), *shown])
    return markdown_table(["engine", "slice", "n", *measures], lines)
