"""Traces: for each question, how it was understood and where each branch put each answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from skb_pipeline.fusion.settings import FusionSpec

TRACES_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("query", pa.string()),
        ("split", pa.string()),
        ("engine", pa.string()),
        ("cause", pa.string()),
        ("status", pa.string()),
        ("risk_level", pa.string()),
        ("outcome", pa.string()),
        ("n_cand", pa.int64()),
        ("bucket", pa.string()),
        ("plan", pa.string()),
        ("dropped", pa.string()),
        ("links", pa.string()),
        ("answers", pa.string()),
        ("first", pa.string()),
    ]
)
"""``plan``, ``dropped``, ``links``, ``answers`` and ``first`` are JSON texts."""


def build_traces(
    queries: pd.DataFrame,
    outcomes: pd.DataFrame,
    rankings: Mapping[str, pd.DataFrame],
    nodes: pd.DataFrame,
    fusion: FusionSpec,
    *,
    fused_graph: pd.DataFrame,
) -> pd.DataFrame:
    """One row of ``TRACES_SCHEMA`` per query.

    Args:
        queries: ``query_id, query, split, answer_ids``.
        outcomes: per query ``engine, cause, status, risk_level, outcome, n_cand, bucket, plan, dropped, links`` (JSON
            texts where the schema says so).
        rankings: system -> ranking; ``fused`` may be among them.
        nodes: index ``node_id``, columns ``external_id, node_type, name``.
        fusion: weight, constant and text branch of the fused ranking, for each branch's term in its score.
        fused_graph: the graph hits that took part in the fusion (``query_id, node_id, rank``); the fallback of a
            question without a plan does not.

    Returns:
        Frame in the order of ``queries``. Each answer has its ``ranks`` by system (None: not listed) and its
        ``fusion`` terms, which add up to the fused score. ``first`` holds each system's first hit.
    """
    answers = queries[["query_id", "answer_ids"]].explode("answer_ids").dropna()
    answers = answers.rename(columns={"answer_ids": "node_id"}).astype({"node_id": "int64"})
    for system, ranking in rankings.items():
        ranks = ranking[["query_id", "node_id", "rank"]].rename(columns={"rank": system})
        answers = answers.merge(ranks, how="left", on=["query_id", "node_id"])
    terms = fused_graph[["query_id", "node_id", "rank"]].rename(columns={"rank": "graph rank in fusion"})
    answers = answers.merge(terms, how="left", on=["query_id", "node_id"])
    by_query: dict[str, list[dict[str, Any]]] = {}
    for row in answers.to_dict("records"):
        by_query.setdefault(str(row["query_id"]), []).append(_answer(row, list(rankings), nodes, fusion))
    first = {
        system: ranking[ranking["rank"] == 1].set_index("query_id")["node_id"].to_dict()
        for system, ranking in rankings.items()
    }
    by_outcome = outcomes.set_index("query_id")
    rows = []
    for query in queries.itertuples(index=False):
        outcome = by_outcome.loc[query.query_id]
        heads = {s: _node(nodes, heads[query.query_id]) for s, heads in first.items() if query.query_id in heads}
        rows.append(
            {
                "query_id": query.query_id,
                "query": query.query,
                "split": query.split,
                **{name: outcome[name] for name in TRACES_SCHEMA.names[3:13]},
                "answers": json.dumps(by_query.get(query.query_id, []), ensure_ascii=False),
                "first": json.dumps(heads, ensure_ascii=False),
            }
        )
    return pd.DataFrame(rows, columns=TRACES_SCHEMA.names)


def _answer(row: Mapping[str, Any], systems: list[str], nodes: pd.DataFrame, fusion: FusionSpec) -> dict[str, Any]:
    ranks = {system: None if pd.isna(row[system]) else int(row[system]) for system in systems}
    told: dict[str, Any] = {**_node(nodes, row["node_id"]), "ranks": ranks}
    if "fused" in systems:
        weight = Fraction(repr(fusion.weight))
        told["fusion"] = {
            "graph": _term(weight, fusion.k, row["graph rank in fusion"]),
            fusion.text: _term(1 - weight, fusion.k, row[fusion.text]),
        }
    return told


def _term(weight: Fraction, k: int, rank: Any) -> float:
    return 0.0 if pd.isna(rank) else float(weight / (k + int(rank)))


def _node(nodes: pd.DataFrame, node_id: int) -> dict[str, str]:
    if node_id not in nodes.index:
        return {"external_id": "(not in the SKB)", "node_type": "", "name": ""}
    node = nodes.loc[node_id]
    return {"external_id": node["external_id"], "node_type": node["node_type"], "name": node["name"]}


def read_trace(path: Path, query_id: str) -> dict[str, Any]:
    """One query's trace with its JSON texts parsed.

    Raises:
        KeyError: there is no query of this id; the message gives examples.
    """
    rows = pq.read_table(path, filters=[("query_id", "=", query_id)]).to_pylist()
    if not rows:
        examples = pq.read_table(path, columns=["query_id"]).column(0).to_pylist()[:3]
        raise KeyError(f"no query {query_id!r} was evaluated; there are for example {', '.join(examples)}")
    row = rows[0]
    for name in ("plan", "dropped", "links", "answers", "first"):
        row[name] = json.loads(row[name]) if row[name] is not None else None
    return row
