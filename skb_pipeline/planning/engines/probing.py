"""What plans give when they are executed, for planners that choose or mend by it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from skb_pipeline.plans.plan import ValidatedPlan
from skb_pipeline.plans.results import GraphOutcome

if TYPE_CHECKING:
    from skb_pipeline.graph.branch import Answered, GraphBranch

_AT_ONCE = 256
"""Plans executed together; what they find is held in memory meanwhile."""


@dataclass(frozen=True)
class ProbeResult:
    """What a plan gave.

    Attributes:
        outcome: of its execution; None when nothing was executed.
        answers: sha256 (hex) of the node ids, as many as a ranking keeps, in any order: plans with the same answers
            have the same. A hash, as results of all plans are held at once. Empty without answers and after a limit.
        n_cand: number of answers before the cut.
        links: names of the nodes that each anchor variable was linked to, best first.
    """

    outcome: GraphOutcome | None
    answers: str
    n_cand: int
    links: Mapping[str, Sequence[str]]


class PlanProbe(Protocol):
    """Executes plans while they are being made. It reads the SKB, never what is known about a question's answers."""

    def fingerprint(self) -> dict[str, Any]:
        """All that decides its results besides the plans and the SKB, as plain JSON values."""

    def execute(self, plans: Sequence[ValidatedPlan]) -> list[ProbeResult]:
        """One result per plan, in their order; a fallback gives nothing."""


class BranchProbe:
    """Probes with the graph branch that will answer the questions later.

    Args:
        branch: over the SKB.
        nodes: index ``node_id``, column ``name``; for the links.
    """

    def __init__(self, branch: GraphBranch, nodes: pd.DataFrame) -> None:
        self._branch = branch
        self._names = nodes["name"]

    def fingerprint(self) -> dict[str, Any]:
        """Encoder, rules of linking and number of hits kept."""
        anchors = self._branch.anchors
        return {
            "encoder": anchors.fingerprint,
            "linking": anchors.spec.model_dump(mode="json"),
            "depth": self._branch.depth,
        }

    def execute(self, plans: Sequence[ValidatedPlan]) -> list[ProbeResult]:
        """See :class:`PlanProbe`."""
        results: list[ProbeResult] = []
        for first in range(0, len(plans), _AT_ONCE):
            part = plans[first : first + _AT_ONCE]
            # The question would only matter to the text-only fallback, whose hits are not used here.
            results.extend(map(self._result, self._branch.answer([""] * len(part), part)))
        return results

    def _result(self, answered: Answered) -> ProbeResult:
        outcome = answered.result.outcome if answered.result is not None else None
        links = {var: self._names.loc[ids].astype(str).tolist() for var, (ids, _) in answered.bindings.items()}
        if answered.result is None or outcome is not GraphOutcome.OK:
            return ProbeResult(outcome, "", 0, links)
        answers = hashlib.sha256(np.sort(answered.node_ids).tobytes()).hexdigest()
        return ProbeResult(outcome, answers, answered.result.n_cand, links)


def runner(branch: GraphBranch) -> Callable[[Sequence[ValidatedPlan]], list[tuple[int, list[int]]]]:
    """Executes plans for a check of examples: the number of answers and the node ids of the best, best first. A plan
    that a limit stopped has none: what the branch gives instead is no answer of the plan."""

    def run(plans: Sequence[ValidatedPlan]) -> list[tuple[int, list[int]]]:
        answered = branch.answer([""] * len(plans), plans)
        return [
            (a.result.n_cand, a.node_ids.tolist()) if a.result is not None and not a.fallback else (0, [])
            for a in answered
        ]

    return run
