"""How far a fusion trusts a list that comes from plans, question by question (GRASP, Stage 2: dynamic RRF).

The list's weight is multiplied by a factor that depends on the risk level of the plan as it was executed and on how
many candidates it left. A question without an executed plan has none: hits of its text-only search take no part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

import pandas as pd

from skb_pipeline.fusion.rrf import as_fraction
from skb_pipeline.plans.plan import RiskLevel
from skb_pipeline.plans.results import BUCKETS

VERSION = "1"
Trust = Mapping[RiskLevel, float | Mapping[str, float]]
"""Factor per risk level: a number, or one per bucket of n_cand (``plans.results.BUCKETS``). Where none is given it is
1, and for ``no_trade`` 0."""


def check_trust(trust: Trust) -> Iterator[str]:
    """What is wrong with a table, one sentence each."""
    for level, given in trust.items():
        for bucket, factor in given.items() if isinstance(given, Mapping) else [(None, given)]:
            where = level.value if bucket is None else f"{level.value}.{bucket}"
            if bucket is not None and bucket not in BUCKETS:
                yield f"{where}: buckets are {', '.join(BUCKETS)}"
            elif not 0 <= factor < float("inf"):
                yield f"{where}: a factor must be a number, not negative"


def factor_of(trust: Trust, risk_level: str | None, bucket: str | None) -> Fraction:
    """The factor of a cell as the decimal number it is written as; 0 without a level or a bucket, since such a plan
    gave no candidates."""
    if risk_level is None or bucket is None:
        return Fraction(0)
    level = RiskLevel(risk_level)
    usual = 0 if level is RiskLevel.NO_TRADE else 1
    given = trust.get(level, usual)
    return as_fraction(given.get(bucket, usual) if isinstance(given, Mapping) else given)


def factors(trust: Trust, outcomes: pd.DataFrame) -> dict[str, Fraction]:
    """Factor per question.

    Args:
        trust: the table.
        outcomes: ``query_id, risk_level, bucket`` of ``graph.branch.OUTCOMES``.
    """
    return {query: factor_of(trust, level, bucket) for query, level, bucket in _cells(outcomes)}


def cell_counts(outcomes: pd.DataFrame) -> dict[str, int]:
    """Questions per cell, ``weak, 11-50`` -> n; without those whose plan gave no candidates."""
    return dict(Counter(f"{level}, {bucket}" for _, level, bucket in _cells(outcomes) if level and bucket))


def _cells(outcomes: pd.DataFrame) -> Iterator[tuple[str, str | None, str | None]]:
    told = outcomes[["query_id", "risk_level", "bucket"]].astype(object)
    yield from told.where(told.notna(), None).itertuples(index=False, name=None)
