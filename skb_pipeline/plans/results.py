"""What every plan executor takes (anchor bindings) and gives (``GraphResult``), and buckets of candidate numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from skb_pipeline.plans.plan import Plan

Bindings = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Per anchor variable: node ids (int64, distinct) and cosines (float64, finite), of equal length."""


class GraphOutcome(StrEnum):
    """How an execution ended. After a limit there are no answers, since a part of them would be wrong."""

    OK = "ok"
    EMPTY = "empty"
    ROW_LIMIT = "row_limit"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class ConditionCount:
    """What became of one optional condition (``plans.structure.Parts.optional``).

    Attributes:
        nodes: nodes of the target's types that meet it.
        candidates: candidates that meet it.
        weight: see :func:`rarity`; 0 where no node meets it.
    """

    nodes: int
    candidates: int
    weight: float


@dataclass(frozen=True, eq=False)
class GraphResult:
    """Answers of one plan.

    Attributes:
        node_ids: int64, by score (descending), then canonical order; at most ``limit`` of them.
        scores: float64, one per node id.
        n_cand: number of distinct answers before the cap.
        outcome: see :class:`GraphOutcome`.
        route: how the plan was executed, such as ``sql``.
        milliseconds: wall time.
        touched_edges: adjacency entries read; None where the engine cannot tell.
        optional: one count per optional condition, in the order of ``Parts.optional``; empty after a limit.
        met: number of candidates that meet exactly 0, 1, ... optional conditions; empty where there are none.
        lacking: nodes that meet everything but the conditions on fields of T, and lack a value that one of them asks
            for; they are no candidates. 0 without such conditions.
    """

    node_ids: np.ndarray
    scores: np.ndarray
    n_cand: int
    outcome: GraphOutcome
    route: str
    milliseconds: float
    touched_edges: int | None = None
    optional: tuple[ConditionCount, ...] = ()
    met: tuple[int, ...] = ()
    lacking: int = 0


def no_answers(outcome: GraphOutcome, route: str, milliseconds: float, touched_edges: int | None = None) -> GraphResult:
    """A result without answers."""
    nothing = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    return GraphResult(*nothing, 0, outcome, route, milliseconds, touched_edges)


WEIGHT_DECIMALS = 6
"""Weights are rounded, as the last bits of a logarithm depend on the machine."""


def rarity(n_met: int, n_all: int) -> float:
    """The weight of an optional condition: -log(n_met / n_all), rounded to 1e-6.

    Args:
        n_met: nodes of the target's types that meet it, of ``n_all``; 0 gives 0, as there is nothing to weigh.
    """
    return round(math.log(n_all / n_met), WEIGHT_DECIMALS) if n_met else 0.0


def check_bindings(plan: Plan, bindings: Bindings) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The bindings of the plan's anchors, in plan order, as int64 and float64 arrays.

    Variables that are no anchor of the plan (dropped ones, for example) are ignored. Whether nodes have the
    anchor's label is for the engine to check, since only it knows the nodes.

    Raises:
        ValueError: an anchor has no binding, arrays differ in length or are not one-dimensional, a node occurs
            twice, an id is not an integer, or a cosine is not finite.
    """
    checked = {}
    for anchor in plan.anchors:
        if anchor.var not in bindings:
            raise ValueError(f"anchor {anchor.var!r} has no binding")
        raw_ids, raw_cosines = (np.asarray(values) for values in bindings[anchor.var])
        if raw_ids.ndim != 1 or raw_ids.shape != raw_cosines.shape:
            shapes = f"{raw_ids.shape} and {raw_cosines.shape}"
            raise ValueError(
                f"anchor {anchor.var!r}: node ids and cosines must be two lists of one length; got {shapes}"
            )
        if len(raw_ids) and not np.issubdtype(raw_ids.dtype, np.integer):
            raise ValueError(f"anchor {anchor.var!r}: node ids must be integers, not {raw_ids.dtype}")
        ids, cosines = raw_ids.astype(np.int64), raw_cosines.astype(np.float64)
        if len(np.unique(ids)) != len(ids):
            raise ValueError(f"anchor {anchor.var!r}: a node is bound twice")
        if not np.isfinite(cosines).all():
            raise ValueError(f"anchor {anchor.var!r}: a cosine is not finite")
        checked[anchor.var] = (ids, cosines)
    return checked


BUCKETS = ("1-10", "11-50", "51-100", "101-500", ">500")
"""Buckets of n_cand (GRASP, Stage 2); a plan without candidates has none."""
_BUCKET_ENDS = (10, 50, 100, 500)


def bucket_of(n_cand: int) -> str | None:
    """The bucket of a number of candidates; None for 0."""
    if n_cand <= 0:
        return None
    return BUCKETS[int(np.searchsorted(_BUCKET_ENDS, n_cand))]
