"""The graph branch: plans linked, executed and rescored into hits, with an account of every question.

A ``doc_search`` plan is executed too, by a search of all documents of the target types. A question whose plan cannot be
executed (no plan, or stopped by a limit) is answered by the text-only fallback: the same search with the question as
text. Its hits are part of the graph ranking but take no part in a fusion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.graph import document_search
from skb_pipeline.graph.document_search import DocumentQuery, search_documents
from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.rescoring import Rescorer
from skb_pipeline.linking.anchors import AnchorIndex, LinkedAnchor, LinkGrade
from skb_pipeline.plans.plan import Plan, RiskLevel, ValidatedPlan
from skb_pipeline.plans.results import BUCKETS, Bindings, GraphOutcome, GraphResult, bucket_of
from skb_pipeline.retrieval.ranking import Hits
from skb_pipeline.storage.frames import Column, Frame
from skb_pipeline.text.sinks import progress_bar

VERSION = "6"
OUTCOMES = Frame(
    name="Outcomes",
    description="What became of each question: its plan, links, number of candidates, time.",
    file="outcomes.parquet",
    key=("query_id",),
    columns={
        "query_id": Column(pa.string(), filled=True),
        "engine": Column(pa.string(), filled=True),
        "cause": Column(pa.string(), filled=True),
        "status": Column(pa.string(), filled=True),
        "risk_level": Column(pa.string()),
        "plan": Column(pa.string()),
        "dropped": Column(pa.string()),
        "links": Column(pa.string()),
        "link_grade": Column(pa.string()),
        "unlinked": Column(pa.string(), filled=True),
        "outcome": Column(pa.string(), filled=True),
        "route": Column(pa.string(), filled=True, cost=True),
        "n_cand": Column(pa.int64(), filled=True),
        "lacking": Column(pa.int64(), filled=True),
        "optional": Column(pa.string()),
        "bucket": Column(pa.string()),
        "touched_edges": Column(pa.int64(), cost=True),
        "milliseconds": Column(pa.float64(), cost=True),
        "fallback": Column(pa.bool_(), filled=True),
    },
)
"""One row per question. ``plan``, ``dropped``, ``links`` and ``unlinked`` (why an anchor has no node, by variable) are
JSON texts. ``risk_level`` is that of the plan as it was executed: ``weak`` at most where ``link_grade``, the least sure
``linking.anchors.LinkGrade`` of its anchors, is ``near``; what the planner said stands in ``plan``. ``lacking``: nodes
that are no candidates for want of a value that a condition on a field asks for. ``optional`` (JSON, empty without
optional conditions): see :func:`optional_of`. ``bucket`` is that of ``n_cand``, and of a document search always the
last. ``fallback``: the hits come from the text-only search."""

_TIMEOUT_S = 60.0
"""Far above what the row limit allows, so that the load of a machine hardly ever decides an outcome."""


class PlanExecutor(Protocol):
    """Executes plans over one graph: in memory, or on a server."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes, which no plan has more answers than."""

    def execute(self, plan: Plan, bindings: Bindings, *, limit: int, timeout_s: float) -> GraphResult:
        """Answers of a plan: at most ``limit``, within ``timeout_s`` seconds."""


@dataclass(frozen=True)
class Answered:
    """What the branch made of one question.

    Attributes:
        node_ids, scores: hits, best first (int64, float64).
        result: what the plan gave, or the limit that stopped it; None when nothing was executed. Its hits are cut.
        anchors: linked nodes per anchor variable; of a ``doc_search`` there are none.
        fallback: the hits come from the text-only search.
    """

    node_ids: np.ndarray
    scores: np.ndarray
    result: GraphResult | None
    anchors: Mapping[str, LinkedAnchor]
    fallback: bool

    @property
    def bindings(self) -> Bindings:
        """Node ids and cosines by anchor variable."""
        return {var: anchor.binding for var, anchor in self.anchors.items()}

    @property
    def link_grade(self) -> LinkGrade | None:
        """That of the least sure anchor; None without anchors."""
        grades = list(LinkGrade)
        return max((anchor.grade for anchor in self.anchors.values()), key=grades.index, default=None)

    def risk_level(self, planned: RiskLevel) -> RiskLevel:
        """How far to trust the plan as it was executed, given how far its planner did: a name that is only near to
        those of the nodes is a guess, which makes a plan weak."""
        levels = list(RiskLevel)
        guessed = any(anchor.grade is LinkGrade.NEAR for anchor in self.anchors.values())
        return min(planned, RiskLevel.WEAK, key=levels.index) if guessed else planned


class GraphBranch:
    """Answers validated plans over one SKB.

    Args:
        executor: plans over the graph.
        anchors: links anchor texts to nodes and holds the documents' vectors.
        candidate_types: types searched for a question without target types.
        depth: hits kept per question; ``n_cand`` counts all.
        fields: of the same SKB, for document searches with conditions, which are refused without.
    """

    def __init__(
        self,
        executor: PlanExecutor,
        anchors: AnchorIndex,
        *,
        candidate_types: Sequence[str],
        depth: int,
        fields: FieldValues | None = None,
    ) -> None:
        self.executor, self.anchors, self.fields = executor, anchors, fields
        self.candidate_types, self.depth = tuple(candidate_types), depth
        self._rescorer = Rescorer(anchors)

    def answer(
        self,
        questions: Sequence[str],
        plans: Sequence[ValidatedPlan],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Answered]:
        """Answer each question by its plan.

        Texts are encoded for all questions at once. Plans are executed one after the other, and of each no more than
        ``depth`` hits are kept, so memory does not grow with what plans give.

        Args:
            questions: text [n].
            plans: one per question.
            progress: called some ten times with the number of plans with hops that were executed and of all of them.
        """
        usable = {i: v.plan for i, v in enumerate(plans) if v.plan is not None}
        executed = self._execute({i: plan for i, plan in usable.items() if plan.hops}, progress)
        searches = {i: self._plan_query(plan) for i, plan in usable.items() if not plan.hops}
        of_plans = set(searches)
        for i, question in enumerate(questions):
            if i not in searches and (i not in executed or _stopped(executed[i][0])):
                asked = usable[i].target.labels if i in usable else plans[i].search_types
                searches[i] = DocumentQuery(tuple(asked) or self.candidate_types, (question,))
        results = search_documents(self.anchors, list(searches.values()), depth=self.depth, fields=self.fields)
        found = dict(zip(searches, results, strict=True))
        answers = []
        for i in range(len(questions)):
            result, anchors = executed.get(i, (found[i] if i in of_plans else None, {}))
            hits = found[i] if i in found else executed[i][0]
            answers.append(Answered(hits.node_ids, hits.scores, result, anchors, i in found and i not in of_plans))
        return answers

    def _execute(
        self, plans: Mapping[int, Plan], progress: Callable[[int, int], None] | None
    ) -> dict[int, tuple[GraphResult, Mapping[str, LinkedAnchor]]]:
        """Results of plans with hops, rescored and then cut at ``depth``, with their linked anchors.

        Rescoring comes first, since plans with one anchor may give all candidates one score.
        """
        linked = self.anchors.link_anchors([plan.anchors for plan in plans.values()])
        texts = self.anchors.embed([plan.target.relevance_text for plan in plans.values()])
        results: dict[int, tuple[GraphResult, Mapping[str, LinkedAnchor]]] = {}
        numbered = enumerate(zip(plans.items(), linked, texts, strict=True), start=1)
        told = max(1, len(plans) // 10)
        for done, ((i, plan), anchors, text) in progress_bar(numbered, what="plans", unit=" plans", total=len(plans)):
            bound = {var: anchor.binding for var, anchor in anchors.items()}
            limit = max(self.depth, self.executor.n_nodes) if text.any() else self.depth
            result = self.executor.execute(plan, bound, limit=limit, timeout_s=_TIMEOUT_S)
            results[i] = self._cut(self._rescorer.add_cosines(result, text)), anchors
            if progress is not None and (done % told == 0 or done == len(plans)):
                progress(done, len(plans))
        return results

    def _cut(self, result: GraphResult) -> GraphResult:
        """A copy, so that the whole list is not kept alive by its beginning."""
        return replace(result, node_ids=result.node_ids[: self.depth].copy(), scores=result.scores[: self.depth].copy())

    def _plan_query(self, plan: Plan) -> DocumentQuery:
        """What a plan without hops searches for: its anchor's text and, where it has one, its relevance text."""
        texts = [*(anchor.text for anchor in plan.anchors), plan.target.relevance_text]
        types = tuple(plan.target.labels) or self.candidate_types
        return DocumentQuery(types, tuple(text for text in texts if text.strip()), tuple(plan.where))


def _stopped(result: GraphResult) -> bool:
    return result.outcome in (GraphOutcome.ROW_LIMIT, GraphOutcome.TIMEOUT)


def outcomes_frame(
    query_ids: Sequence[str], plans: pd.DataFrame, answers: Sequence[Answered], nodes: pd.DataFrame
) -> pd.DataFrame:
    """Rows of ``OUTCOMES``.

    Args:
        query_ids: one per answer.
        plans: rows of ``planning.frames.PLANS`` in the same order.
        answers: what the branch made of each.
        nodes: index ``node_id``, columns ``external_id, node_type, name``; for the links.
    """
    rows = []
    for query_id, plan, answer in zip(query_ids, plans.to_dict("records"), answers, strict=True):
        result = answer.result
        grade = answer.link_grade
        rows.append(
            {
                "query_id": query_id,
                **{name: plan[name] for name in ("engine", "cause", "status")},
                "risk_level": answer.risk_level(RiskLevel(plan["risk_level"])).value,
                **{name: plan[name] for name in ("plan", "dropped")},
                "links": json.dumps(links_of(answer.anchors, nodes), ensure_ascii=False),
                "link_grade": None if grade is None else grade.value,
                "unlinked": json.dumps(
                    {v: a.reason for v, a in answer.anchors.items() if a.reason}, ensure_ascii=False
                ),
                "outcome": result.outcome.value if result else "no_plan",
                "route": result.route if result else "text",
                "n_cand": result.n_cand if result else 0,
                "lacking": result.lacking if result else 0,
                "optional": json.dumps(optional_of(result)) if result and result.optional else None,
                "bucket": _bucket(result) if result else None,
                "touched_edges": result.touched_edges if result else None,
                "milliseconds": result.milliseconds if result else 0.0,
                "fallback": answer.fallback,
            }
        )
    return pd.DataFrame(rows, columns=OUTCOMES.names).astype({"touched_edges": "Int64"})


def optional_of(result: GraphResult) -> dict[str, Any]:
    """What became of optional conditions, as plain JSON values: ``conditions``, per condition the ``nodes`` of the
    target's types that meet it, the ``candidates`` that do, and its ``weight``; and ``candidates_by_conditions_met``,
    how many candidates meet 0, 1, ... of them."""
    return {
        "conditions": [asdict(count) for count in result.optional],
        "candidates_by_conditions_met": list(result.met),
    }


def _bucket(result: GraphResult) -> str | None:
    """A document search counts as the widest, however many documents there are: it tells candidates from no others."""
    if result.route == document_search.ROUTE and result.n_cand:
        return BUCKETS[-1]
    return bucket_of(result.n_cand)


def links_of(anchors: Mapping[str, LinkedAnchor], nodes: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Linked nodes per anchor variable with their cosines and the grade of the link, for people."""
    return {
        var: [
            {
                **nodes.loc[int(node), ["external_id", "node_type", "name"]].to_dict(),
                "cosine": float(cosine),
                "grade": anchor.grade.value,
            }
            for node, cosine in zip(anchor.node_ids, anchor.cosines, strict=True)
        ]
        for var, anchor in anchors.items()
    }


def branch_hits(answers: Sequence[Answered]) -> Hits:
    """All hits of all questions."""
    return Hits.concatenate(
        [Hits(np.full(len(a.node_ids), i, np.int64), a.node_ids, a.scores) for i, a in enumerate(answers)]
    )
