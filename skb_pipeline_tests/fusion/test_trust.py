"""How far a plan is trusted: cells, what stands where nothing is given, and what it does to a fused ranking."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest

from skb_pipeline.fusion.trust import Trust, cell_counts
from skb_pipeline.systems.kinds.rrf import RRFSystem

TABLE = Trust(weak={"1-10": 0.1, ">500": 0}, aggressive=2.5, none=0.3)


@pytest.mark.parametrize(
    ("level", "bucket", "factor"),
    [
        ("weak", "1-10", Fraction(1, 10)),
        ("weak", ">500", Fraction(0)),
        ("weak", "11-50", Fraction(1)),  # a bucket that is not given
        ("normal", "1-10", Fraction(1)),  # a level that is not given
        ("no_trade", "1-10", Fraction(0)),  # but for this one
        ("aggressive", "51-100", Fraction(5, 2)),
        ("weak", None, Fraction(3, 10)),
        (None, None, Fraction(3, 10)),
    ],
)
def test_a_factor_is_that_of_risk_level_and_candidates(level: str | None, bucket: str | None, factor: Fraction) -> None:
    assert TABLE.factor(level, bucket) == factor


def test_what_nobody_would_trade_on_says_nothing_against_other_lists() -> None:
    assert Trust(by="graph").factor("no_trade", "1-10") == 1
    assert Trust(by="graph", no_trade=0.5).factor("no_trade", "1-10") == Fraction(1, 2)


def test_a_question_whose_plan_gave_nothing_has_a_cell_of_its_own() -> None:
    for no in (None, float("nan")):
        rows = [("a", "weak", "1-10"), ("b", "weak", no), ("c", no, no), ("d", "weak", "1-10")]
        outcomes = pd.DataFrame(rows, columns=["query_id", "risk_level", "bucket"])
        tenth, none = Fraction(1, 10), Fraction(3, 10)
        assert TABLE.factors(outcomes) == {"a": tenth, "b": none, "c": none, "d": tenth}
        assert cell_counts(outcomes) == {"weak, 1-10": 2, "none": 2}


def test_terms_of_a_trace_are_those_of_the_score() -> None:
    system = RRFSystem.model_validate(
        {
            "kind": "rrf",
            "of": ["graph", "bm25"],
            "weights": [2, 1],
            "k": 9,
            "trust": {"graph": {"weak": 0.25}, "bm25": {"by": "graph", "none": 0.5}},
        }
    )
    ranks = {"graph": 1, "bm25": 1}
    weak = {"graph": {"risk_level": "weak", "bucket": "1-10"}}
    assert system.terms(ranks, weak) == {"graph": 0.05, "bm25": 0.1}
    assert system.terms(ranks, {"graph": {"risk_level": "normal", "bucket": "1-10"}}) == {"graph": 0.2, "bm25": 0.1}
    assert system.terms({"graph": None, "bm25": 1}, {"graph": {}}) == {"graph": 0.0, "bm25": 0.05}
    assert system.planned == ("graph",)
