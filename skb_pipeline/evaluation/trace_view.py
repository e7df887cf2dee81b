"""The view of traces that people search in: one row per question, plain columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from skb_pipeline.evaluation.buckets import MISSES
from skb_pipeline.evaluation.traces import TRACES
from skb_pipeline.storage.artifacts import Artifact

COLUMNS: Mapping[str, str] = {
    "query_id": "id of the question",
    "query": "its text",
    "split": "train, val or test",
    "template": "of a question made from the SKB, like the next two",
    "wording": "known, held_out or paraphrased",
    "style": "how it is phrased",
    "n_answers": "number of right answers",
    "engine": "that made the plan",
    "status": "of the plan: valid, degraded, fallback",
    "cause": "how planning ended",
    "risk_level": "of the plan as executed",
    "plan": "the plan as JSON text",
    "gold_plan": "the gold plan as JSON text",
    "anchors": "texts of the plan's anchors, joined by ;",
    "n_anchors": "their number",
    "linked": "names of the nodes they were linked to, joined by ;",
    "link_grade": "of the least sure link",
    "unlinked": "why an anchor has no node",
    "n_unlinked": "number of anchors without a node",
    "outcome": "how executing the plan ended",
    "n_cand": "number of its candidates",
    "n_cand_bucket": "1-10, 11-50, 51-100, 101-500, >500",
    "bucket": "why the chosen system missed the question; null where it did not",
    "bucket_cause": "what is known beside",
    "bucket_rule": "what decided whether the question was linked",
    "final_rank": "rank of the first right answer in the chosen system (fused where none is chosen)",
}
"""Columns of every view with what they hold; ``SYSTEM_rank`` of each system follow, null where no right answer is
listed."""
SHOWN = ("query_id", "split", "query", "status", "link_grade", "n_cand", "bucket")
"""Columns that are printed where none are asked for, before the ranks."""


def rank_column(system: str) -> str:
    """Name of the column with a system's rank."""
    return f"{system}_rank"


def trace_view(traces: pd.DataFrame, misses: pd.DataFrame, system: str) -> pd.DataFrame:
    """One row per question of ``traces``: the columns of ``COLUMNS``, then a rank per system.

    Args:
        traces: rows of ``TRACES``.
        misses: rows of ``MISSES``.
        system: whose rank is ``final_rank`` and whose buckets are shown; one of ``misses``.
    """
    view = traces.rename(columns={"bucket": "n_cand_bucket"})
    plans = [_plan_facts(*row) for row in zip(traces["plan"], traces["links"], traces["unlinked"], strict=True)]
    view = view.drop(columns="unlinked").join(pd.DataFrame(plans, index=view.index, columns=_FACTS))
    by_system = {name: own.set_index("query_id") for name, own in misses.groupby("system", sort=False)}
    chosen = by_system[system].reindex(view["query_id"])
    for column, told in (("bucket", "bucket"), ("bucket_cause", "cause"), ("bucket_rule", "rule")):
        view[column] = chosen[told].to_numpy()
    view["final_rank"] = chosen["rank"].astype("Int64").to_numpy()
    ranks = {rank_column(name): own["rank"].reindex(view["query_id"]).to_numpy() for name, own in by_system.items()}
    typed = {"n_cand": "Int64", "n_answers": "Int64", "final_rank": "Int64", **dict.fromkeys(ranks, "Int64")}
    return view.assign(**ranks)[list(dict.fromkeys([*COLUMNS, *ranks]))].astype(typed)


_FACTS = ("anchors", "n_anchors", "linked", "unlinked", "n_unlinked")


def _plan_facts(plan: Any, links: Any, unlinked: Any) -> tuple[str | None, int, str | None, str | None, int]:
    anchors = json.loads(plan)["anchors"] if isinstance(plan, str) else []
    linked = json.loads(links) if isinstance(links, str) else {}
    reasons = json.loads(unlinked) if isinstance(unlinked, str) else {}
    names = [node["name"] for nodes in linked.values() for node in nodes]
    empty = sum(not nodes for nodes in linked.values())
    return _joined([a["text"] for a in anchors]), len(anchors), _joined(names), _joined(list(reasons.values())), empty


def _joined(texts: Sequence[str]) -> str | None:
    return "; ".join(texts) or None


def read_misses(traces: Artifact) -> pd.DataFrame:
    """Rows of ``MISSES`` of an artefact.

    Raises:
        ManifestMismatchError: an earlier version wrote it; the message says what makes it anew.
    """
    TRACES.read(traces, ["n_answers"])  # came with the buckets: where it is, they are
    return MISSES.read(traces)


def read_view(traces: Artifact, system: str) -> pd.DataFrame:
    """:func:`trace_view` of an artefact; raises like :func:`read_misses`."""
    return trace_view(TRACES.read(traces), read_misses(traces), system)
