"""The kind ``plans``: executing each question's plan over the relations."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal

import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.graph import branch as graph_branch
from skb_pipeline.graph.branch import OUTCOMES, GraphBranch, branch_hits, outcomes_frame
from skb_pipeline.graph.memory import executor
from skb_pipeline.linking import anchors
from skb_pipeline.planning.frames import validated_plans
from skb_pipeline.retrieval import ranking
from skb_pipeline.retrieval.encoder import ENCODER_LIBRARIES
from skb_pipeline.retrieval.ranking import RANKING, rank_hits
from skb_pipeline.storage.artifacts import Artifact
from skb_pipeline.systems import named_first
from skb_pipeline.systems.kind import Sources, System
from skb_pipeline.systems.ranked import Questions, Ranked

VERSION = "2"


class PlansSystem(System):
    """Nodes ranked by a plan (see ``graph.branch``).

    A question without a plan is answered by a document search; its hits take no part in a fusion. What became of each
    question (links, number of candidates, time) stands in ``OUTCOMES``.
    """

    reads = ("planning/query_plans", "graph/anchors", "graph/csr", named_first.INPUT)
    sections = ("retrieval", "node_types", "relations", "candidates", "linking")
    partly = ("encoder", "plans")
    libraries = ENCODER_LIBRARIES
    stores = (RANKING, OUTCOMES)

    kind: Literal["plans"]

    def describe(self) -> str:
        """See ``System``."""
        return (
            "Nodes ranked by executing each question's plan over the relations, rescored by the rest of the question; "
            "a question without a plan is answered by a document search, which takes no part in a fusion."
        )

    def code(self) -> tuple[ModuleType, ...]:
        """See ``System``."""
        return (graph_branch, executor, anchors, ranking, named_first)

    def depth_for(self, spec: DatasetSpec) -> int:
        """See ``System``."""
        return spec.retrieval.depth

    def open(self, sources: Sources) -> GraphBranch:
        """See ``System``."""
        return sources.graph_branch()

    def rank(self, opened: GraphBranch, sources: Sources, questions: Questions) -> Ranked:
        """See ``System``."""
        return rank_by_plans(opened, sources.plans(questions), sources, questions)

    def holds(self, made: Artifact) -> bool:
        """A plan that ran out of time on a busy machine is tried again."""
        return no_timeouts(made)


def rank_by_plans(branch: GraphBranch, plans: pd.DataFrame, sources: Sources, questions: Questions) -> Ranked:
    """Answer questions with a branch; what a question names as a whole stands first, whatever its plan says.

    Args:
        branch: in memory or on a server.
        plans: rows of ``PLANS``, one per question in their order.
        sources: give nodes, canonical order and the spec's depth.
        questions: what is asked.
    """
    answers = branch.answer(
        questions.texts,
        validated_plans(plans),
        progress=lambda done, total: sources.progress(f"{done} of {total} plans executed"),
    )
    outcomes = outcomes_frame(questions.ids, plans, answers, sources.nodes)
    executed = outcomes[~outcomes["fallback"]]
    told: dict[str, Any] = {
        "outcomes": outcomes["outcome"].value_counts().to_dict(),
        "routes": outcomes["route"].value_counts().to_dict(),
        "n_cand median": float(executed["n_cand"].median()) if len(executed) else 0.0,
        "link grades": outcomes["link_grade"].value_counts().to_dict(),
        "texts truncated": branch.anchors.truncated.get("texts", 0),
        "plan milliseconds p95": round(float(executed["milliseconds"].quantile(0.95)), 2) if len(executed) else 0.0,
    }
    hits = rank_hits(
        branch_hits(answers),
        canonical=sources.canonical,
        depth=sources.spec.retrieval.depth,
        query_order=questions.ids,
    )
    return named_first.named_first(Ranked(hits, outcomes, told), sources, questions, sources.spec.retrieval.depth)


def no_timeouts(made: Artifact) -> bool:
    """Whether no plan of a stored ranking ran out of time."""
    return "timeout" not in made.metadata.get("outcomes", {})
