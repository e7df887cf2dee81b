"""Traces: for each question, how it was understood and where each branch put each answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from skb_pipeline.storage.artifacts import Artifact
from skb_pipeline.storage.frames import Column, Frame

VERSION = "7"
TRACES = Frame(
    name="Traces",
    description="For each question, how it was understood and where each system put each answer.",
    file="traces.parquet",
    key=("query_id",),
    columns={
        "query_id": Column(pa.string(), filled=True),
        "query": Column(pa.string(), filled=True),
        "split": Column(pa.string(), filled=True),
        "template": Column(pa.string()),
        "wording": Column(pa.string()),
        "style": Column(pa.string()),
        "gold_plan": Column(pa.string()),
        "n_answers": Column(pa.int64()),
        "engine": Column(pa.string()),
        "cause": Column(pa.string()),
        "status": Column(pa.string()),
        "risk_level": Column(pa.string()),
        "outcome": Column(pa.string()),
        "n_cand": Column(pa.int64()),
        "bucket": Column(pa.string()),
        "plan": Column(pa.string()),
        "dropped": Column(pa.string()),
        "links": Column(pa.string()),
        "link_grade": Column(pa.string()),
        "unlinked": Column(pa.string()),
        "answers": Column(pa.string(), filled=True),
        "first": Column(pa.string(), filled=True),
    },
)
"""``gold_plan``, ``plan``, ``dropped``, ``links``, ``unlinked``, ``answers`` and ``first`` are JSON texts; what is told
of the plan is as in ``graph.branch.OUTCOMES``."""


Terms = Callable[[Mapping[str, int | None], Mapping[str, Mapping[str, Any]]], Mapping[str, float] | None]


@dataclass(frozen=True)
class Traced:
    """One system as a trace tells it.

    Attributes:
        ranking: rows of ``RANKING``.
        in_fusion: those of its hits that take part where it is a part of another system.
        outcomes: rows of ``graph.branch.OUTCOMES``, of a system that executes plans.
        parts: systems whose ranks make its score.
        terms: what each of these contributes to the score of a node, from the node's rank in each (None where it is
            not listed or takes no part) and the question's outcomes of those that execute plans.
    """

    ranking: pd.DataFrame
    in_fusion: pd.DataFrame
    outcomes: pd.DataFrame | None = None
    parts: Sequence[str] = ()
    terms: Terms = lambda ranks, outcomes: None


def build_traces(queries: pd.DataFrame, systems: Mapping[str, Traced], nodes: pd.DataFrame) -> pd.DataFrame:
    """One row of ``TRACES`` per query.

    Args:
        queries: ``query_id, query, split, answer_ids`` and, where there are, ``template, wording, style, gold_plan``.
        systems: by name, in the order they are told; the parts of one are among them.
        nodes: index ``node_id``, columns ``external_id, node_type, name``.

    Returns:
        Frame in the order of ``queries``. What is told of the plan is that of the first system with outcomes, and null
        without one. Each answer has its ``ranks`` by system (None: not listed) and, for systems that are made of
        others, ``terms``, which add up to the score. ``first`` holds each system's first hit.
    """
    answers = queries[["query_id", "answer_ids"]].explode("answer_ids").dropna()
    answers = answers.rename(columns={"answer_ids": "node_id"}).astype({"node_id": "int64"})
    for system, traced in systems.items():
        for column, frame in ((system, traced.ranking), (_in_fusion(system), traced.in_fusion)):
            ranks = frame[["query_id", "node_id", "rank"]].rename(columns={"rank": column})
            answers = answers.merge(ranks, how="left", on=["query_id", "node_id"])
    outcomes = {system: _by_query(traced.outcomes) for system, traced in systems.items() if traced.outcomes is not None}
    by_query: dict[str, list[dict[str, Any]]] = {}
    for row in answers.to_dict("records"):
        query_id = str(row["query_id"])
        of_query = {system: rows.get(query_id, {}) for system, rows in outcomes.items()}
        by_query.setdefault(query_id, []).append(_answer(row, systems, nodes, of_query))
    first = {
        system: traced.ranking[traced.ranking["rank"] == 1].set_index("query_id")["node_id"].to_dict()
        for system, traced in systems.items()
    }
    by_outcome = next(iter(outcomes.values()), {})
    rows = []
    for query in queries.itertuples(index=False):
        outcome = by_outcome.get(query.query_id, {})
        heads = {s: _node(nodes, heads[query.query_id]) for s, heads in first.items() if query.query_id in heads}
        rows.append(
            {
                "query_id": query.query_id,
                "query": query.query,
                "split": query.split,
                **{name: getattr(query, name, None) for name in _OF_QUESTION},
                "n_answers": len(by_query.get(query.query_id, [])),
                **{name: outcome.get(name) for name in _OF_PLAN},
                "answers": json.dumps(by_query.get(query.query_id, []), ensure_ascii=False),
                "first": json.dumps(heads, ensure_ascii=False),
            }
        )
    return pd.DataFrame(rows, columns=TRACES.names).astype({"n_cand": "Int64"})


_OF_QUESTION = ("template", "wording", "style", "gold_plan")
_OF_PLAN = TRACES.names[TRACES.names.index("engine") : TRACES.names.index("answers")]


def _in_fusion(system: str) -> str:
    return f"{system} in fusion"


def _by_query(outcomes: pd.DataFrame) -> dict[str, dict[str, Any]]:
    told = outcomes.astype(object)
    rows = told.where(told.notna(), None).to_dict("records")
    return {row["query_id"]: {str(name): value for name, value in row.items()} for row in rows}


def _answer(
    row: Mapping[str, Any],
    systems: Mapping[str, Traced],
    nodes: pd.DataFrame,
    outcomes: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    told: dict[str, Any] = {
        **_node(nodes, row["node_id"]),
        "ranks": {system: _rank(row[system]) for system in systems},
    }
    terms = {}
    for system, traced in systems.items():
        if traced.parts:
            ranks = {part: _rank(row[_in_fusion(part)]) for part in traced.parts}
            terms[system] = traced.terms(ranks, {part: outcomes[part] for part in traced.parts if part in outcomes})
    if terms:
        told["terms"] = {system: dict(own) for system, own in terms.items() if own is not None}
    return told


def _rank(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _node(nodes: pd.DataFrame, node_id: int) -> dict[str, str]:
    if node_id not in nodes.index:
        return {"external_id": "(not in the SKB)", "node_type": "", "name": ""}
    node = nodes.loc[node_id]
    return {"external_id": node["external_id"], "node_type": node["node_type"], "name": node["name"]}


def read_trace(traces: Artifact, query_id: str) -> dict[str, Any]:
    """One query's trace with its JSON texts parsed.

    Raises:
        KeyError: there is no query of this id; the message gives examples.
    """
    frame = TRACES.read(traces)
    rows = frame[frame["query_id"] == query_id].astype(object)
    if rows.empty:
        raise KeyError(
            f"no query {query_id!r} was evaluated; there are for example {', '.join(frame['query_id'].head(3))}"
        )
    row = rows.where(rows.notna(), None).iloc[0].to_dict()
    for name in ("gold_plan", "plan", "dropped", "links", "unlinked", "answers", "first"):
        row[name] = json.loads(row[name]) if row[name] is not None else None
    return row
