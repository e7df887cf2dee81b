"""How far a fusion trusts a list, question by question, by what became of the question's plan (GRASP, Stage 2: dynamic
RRF).

The list's weight is multiplied by a factor that depends on the risk level of the plan as it was executed and on how
many candidates it left. Usually that is the list that the plans gave; but how much words count beside vectors also
differs between a question that names what the graph knows and one that names nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Self

import pandas as pd
from pydantic import Field, model_validator

from skb_pipeline.fusion.rrf import as_fraction
from skb_pipeline.plans.plan import RiskLevel
from skb_pipeline.plans.results import BUCKETS
from skb_pipeline.section import Section

VERSION = "1"
Factor = float | dict[str, float]
"""A number, or one per bucket of n_cand (``plans.results.BUCKETS``), 1 where none is given."""


class Trust(Section):
    """Factors of one list by the risk level of the plan.

    Attributes:
        by: the list whose plans count; default: the list itself.
        none: where no plan gave candidates. A list that comes from plans has no hits then.
        no_trade, weak, normal, aggressive: by risk level. Default of ``no_trade``: 0 for a list whose own plans count,
            1 for others.
    """

    by: str | None = None
    none: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    no_trade: Factor | None = None
    weak: Factor = 1.0
    normal: Factor = 1.0
    aggressive: Factor = 1.0

    @model_validator(mode="after")
    def _are_factors(self) -> Self:
        for level in RiskLevel:
            given = self._of(level)
            for bucket, factor in given.items() if isinstance(given, dict) else [(None, given)]:
                where = level.value if bucket is None else f"{level.value}.{bucket}"
                if bucket is not None and bucket not in BUCKETS:
                    raise ValueError(f"{where}: buckets are {', '.join(BUCKETS)}")
                if not 0 <= factor < float("inf"):
                    raise ValueError(f"{where}: a factor must be a number, not negative")
        return self

    def _of(self, level: RiskLevel) -> Factor:
        given: Factor | None = getattr(self, level.value)
        return (0.0 if self.by is None else 1.0) if given is None else given

    def factor(self, risk_level: str | None, bucket: str | None) -> Fraction:
        """The factor of a cell as the decimal number it is written as.

        Args:
            risk_level: of the plan as it was executed; None without one.
            bucket: of the number of its candidates; None without any.
        """
        if risk_level is None or bucket is None:
            return as_fraction(self.none)
        given = self._of(RiskLevel(risk_level))
        return as_fraction(given.get(bucket, 1.0) if isinstance(given, dict) else given)

    def factors(self, outcomes: pd.DataFrame) -> dict[str, Fraction]:
        """Factor per question, from ``query_id, risk_level, bucket`` of ``graph.branch.OUTCOMES``."""
        return {query: self.factor(level, bucket) for query, level, bucket in _cells(outcomes)}


def cell_counts(outcomes: pd.DataFrame) -> dict[str, int]:
    """Questions per cell, ``weak, 11-50`` -> n, ``none`` for those whose plan gave no candidates."""
    return dict(Counter(f"{level}, {bucket}" if level and bucket else "none" for _, level, bucket in _cells(outcomes)))


def planned(trust: Mapping[str, Trust]) -> list[str]:
    """The lists whose plans count in some tables, each once."""
    return list(dict.fromkeys(table.by or name for name, table in trust.items()))


def _cells(outcomes: pd.DataFrame) -> Iterator[tuple[str, str | None, str | None]]:
    told = outcomes[["query_id", "risk_level", "bucket"]].astype(object)
    yield from told.where(told.notna(), None).itertuples(index=False, name=None)
