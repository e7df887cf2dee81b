"""The graph branch: plans linked, executed and rescored into hits, with an account of every question.

A question whose plan cannot be executed (no plan, or stopped by a limit) is answered by the text-only fallback: a
document search over the target types. Its hits are part of the graph ranking but take no part in a fusion.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from tqdm import tqdm

from skb_pipeline.evaluation.plan_quality import bucket_of
from skb_pipeline.graph.linking import AnchorIndex
from skb_pipeline.graph.memory import MemoryExecutor
from skb_pipeline.graph.rescoring import Rescorer
from skb_pipeline.graph.results import Bindings, GraphOutcome, GraphResult
from skb_pipeline.planning.plan import Plan, ValidatedPlan
from skb_pipeline.retrieval.ranking import Hits

OUTCOMES_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("status", pa.string()),
        ("risk_level", pa.string()),
        ("plan", pa.string()),
        ("dropped", pa.string()),
        ("links", pa.string()),
        ("outcome", pa.string()),
        ("route", pa.string()),
        ("n_cand", pa.int64()),
        ("bucket", pa.string()),
        ("touched_edges", pa.int64()),
        ("milliseconds", pa.float64()),
        ("fallback", pa.bool_()),
    ]
)
"""One row per question. ``plan``, ``dropped`` and ``links`` are JSON texts; ``fallback``: the hits come from text."""


_TIMEOUT_S = 60.0
"""Far above what the row limit allows, so that the load of a machine hardly ever decides an outcome."""


@dataclass(frozen=True)
class Answered:
    """What the branch made of one question.

    Attributes:
        node_ids, scores: hits, best first (int64, float64).
        result: the executed plan's own result before rescoring; None when nothing was executed.
        bindings: linked nodes per anchor variable.
        fallback: the hits come from the text-only search.
    """

    node_ids: np.ndarray
    scores: np.ndarray
    result: GraphResult | None
    bindings: Bindings
    fallback: bool


class GraphBranch:
    """Answers validated plans over one SKB.

    Args:
        executor: plans over the graph.
        anchors: links anchor texts to nodes and holds the documents' vectors.
        candidate_types: types searched by the text-only fallback of a question without target types.
        depth: hits kept per question; ``n_cand`` counts all.
    """

    def __init__(
        self, executor: MemoryExecutor, anchors: AnchorIndex, *, candidate_types: Sequence[str], depth: int
    ) -> None:
        self.executor, self.anchors = executor, anchors
        self.candidate_types, self.depth = list(candidate_types), depth
        self._rescorer = Rescorer(anchors)

    def answer(self, questions: Sequence[str], plans: Sequence[ValidatedPlan]) -> list[Answered]:
        """Answer each question by its plan; linking and rescoring are done for all questions at once.

        Candidates are rescored before the cut at ``depth``, since plans with one anchor give them all one score.
        """
        executed = [v.plan if v.plan is not None and v.plan.hops else None for v in plans]
        bindings = self.anchors.link([plan.anchors if plan else [] for plan in executed])
        results: dict[int, GraphResult] = {}
        for i, plan in enumerate(tqdm(executed, desc="plans", unit=" plans", disable=None, leave=False)):
            if plan is not None:
                results[i] = self.executor.execute(
                    plan, bindings[i], limit=max(1, self.executor.graph.n_nodes), timeout_s=_TIMEOUT_S
                )
        texts = [plan.target.relevance_text for plan in executed if plan is not None]
        rescored = dict(zip(results, self._rescorer.rescore(list(results.values()), texts), strict=True))
        return [
            self._answered(question, validated.plan, results.get(i), rescored.get(i), bindings[i])
            for i, (question, validated) in enumerate(zip(questions, plans, strict=True))
        ]

    def _answered(
        self, question: str, plan: Plan | None, result: GraphResult | None, best: GraphResult | None, bound: Bindings
    ) -> Answered:
        fallback = best is None or best.outcome in (GraphOutcome.ROW_LIMIT, GraphOutcome.TIMEOUT)
        if best is None or fallback:
            best = self._search(question, plan.target.labels if plan is not None else [])
        return Answered(best.node_ids[: self.depth], best.scores[: self.depth], result, bound, fallback)

    def _search(self, question: str, types: Sequence[str]) -> GraphResult:
        """All documents of the types by their cosine with the question."""
        table = self.anchors.documents
        places = [table.slices[name] for name in (types or self.candidate_types) if name in table.slices]
        ids = table.rows["node_id"].to_numpy()
        found = np.concatenate([np.empty(0, np.int64), *(ids[place] for place in places)])
        everything = GraphResult(found, np.zeros(len(found)), len(found), GraphOutcome.OK, "text", 0.0)
        return self._rescorer.rescore([everything], [question])[0]


def outcomes_frame(
    query_ids: Sequence[str], plans: pd.DataFrame, answers: Sequence[Answered], nodes: pd.DataFrame
) -> pd.DataFrame:
    """Rows of ``OUTCOMES_SCHEMA``.

    Args:
        query_ids: one per answer.
        plans: rows of ``planning.frames.PLANS_SCHEMA`` in the same order.
        answers: what the branch made of each.
        nodes: index ``node_id``, columns ``external_id, node_type, name``; for the links.
    """
    rows = []
    for query_id, plan, answer in zip(query_ids, plans.to_dict("records"), answers, strict=True):
        result = answer.result
        rows.append(
            {
                "query_id": query_id,
                **{name: plan[name] for name in ("status", "risk_level", "plan", "dropped")},
                "links": json.dumps(links_of(answer.bindings, nodes), ensure_ascii=False),
                "outcome": result.outcome.value if result else "no_plan",
                "route": result.route if result else "text",
                "n_cand": result.n_cand if result else 0,
                "bucket": bucket_of(result.n_cand) if result else None,
                "touched_edges": result.touched_edges if result else None,
                "milliseconds": result.milliseconds if result else 0.0,
                "fallback": answer.fallback,
            }
        )
    return pd.DataFrame(rows, columns=OUTCOMES_SCHEMA.names).astype({"touched_edges": "Int64"})


def links_of(bindings: Bindings, nodes: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Linked nodes per anchor variable with their cosines, for people."""
    return {
        var: [
            {**nodes.loc[int(node), ["external_id", "node_type", "name"]].to_dict(), "cosine": float(cosine)}
            for node, cosine in zip(ids, cosines, strict=True)
        ]
        for var, (ids, cosines) in bindings.items()
    }


def branch_hits(answers: Sequence[Answered]) -> Hits:
    """All hits of all questions."""
    return Hits.concatenate(
        [Hits(np.full(len(a.node_ids), i, np.int64), a.node_ids, a.scores) for i, a in enumerate(answers)]
    )
