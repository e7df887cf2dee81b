"""How far a plan is trusted: cells, what stands where nothing is given, and what it does to a fused ranking."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest

from skb_pipeline.fusion.trust import Trust, cell_counts, check_trust, factor_of, factors
from skb_pipeline.plans.plan import RiskLevel
from skb_pipeline.systems.kinds.rrf import RRFSystem

TABLE: Trust = {RiskLevel.WEAK: {"1-10": 0.1, ">500": 0}, RiskLevel.AGGRESSIVE: 2.5}


@pytest.mark.parametrize(
    ("level", "bucket", "factor"),
    [
        ("weak", "1-10", Fraction(1, 10)),
        ("weak", ">500", Fraction(0)),
        ("weak", "11-50", Fraction(1)),  # a bucket that is not given
        ("normal", "1-10", Fraction(1)),  # a level that is not given
        ("no_trade", "1-10", Fraction(0)),  # but for this one
        ("aggressive", "51-100", Fraction(5, 2)),
        ("weak", None, Fraction(0)),
        (None, None, Fraction(0)),
    ],
)
def test_a_factor_is_that_of_risk_level_and_candidates(level: str | None, bucket: str | None, factor: Fraction) -> None:
    assert factor_of(TABLE, level, bucket) == factor


def test_a_question_whose_plan_gave_nothing_is_in_no_cell() -> None:
    for no in (None, float("nan")):
        rows = [("a", "weak", "1-10"), ("b", "weak", no), ("c", no, no), ("d", "weak", "1-10")]
        outcomes = pd.DataFrame(rows, columns=["query_id", "risk_level", "bucket"])
        assert factors(TABLE, outcomes) == {"a": Fraction(1, 10), "b": 0, "c": 0, "d": Fraction(1, 10)}
        assert cell_counts(outcomes) == {"weak, 1-10": 2}


def test_what_is_wrong_with_a_table_is_told_cell_by_cell() -> None:
    wrong: Trust = {RiskLevel.WEAK: {"10-1": 1, ">500": -1}, RiskLevel.NORMAL: float("nan")}
    assert list(check_trust(wrong)) == [
        "weak.10-1: buckets are 1-10, 11-50, 51-100, 101-500, >500",
        "weak.>500: a factor must be a number, not negative",
        "normal: a factor must be a number, not negative",
    ]
    assert not list(check_trust(TABLE))


def test_terms_of_a_trace_are_those_of_the_score() -> None:
    system = RRFSystem.model_validate(
        {"kind": "rrf", "of": ["graph", "bm25"], "weights": [2, 1], "k": 9, "trust": {"graph": {"weak": 0.25}}}
    )
    ranks = {"graph": 1, "bm25": 1}
    weak = {"graph": {"risk_level": "weak", "bucket": "1-10"}}
    assert system.terms(ranks, weak) == {"graph": 0.05, "bm25": 0.1}
    assert system.terms(ranks, {"graph": {"risk_level": "normal", "bucket": "1-10"}}) == {"graph": 0.2, "bm25": 0.1}
    assert system.terms({"graph": None, "bm25": 1}, {}) == {"graph": 0.0, "bm25": 0.1}
