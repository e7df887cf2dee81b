from __future__ import annotations

import pandas as pd
import pytest

from skb_pipeline.graph.comparison import compare_rankings

RANKING = pd.DataFrame(
    {
        "query_id": ["a", "a", "b", "c"],
        "node_id": [1, 2, 3, 4],
        "rank": [1, 2, 1, 1],
        "score": [0.9, 0.8, 0.7, 0.6],
    }
)
OUTCOMES = pd.DataFrame(
    {"query_id": ["a", "b", "c", "d"], "outcome": ["ok", "ok", "no_plan", "empty"], "n_cand": [2, 1, 0, 0]}
)


def compare(ranking: pd.DataFrame = RANKING, outcomes: pd.DataFrame = OUTCOMES) -> tuple[int, int, int, int]:
    one = compare_rankings(RANKING, OUTCOMES, ranking, outcomes)
    assert one == compare_rankings(ranking, outcomes, RANKING, OUTCOMES)
    return (
        one["queries compared"],
        one["stopped by a limit"],
        one["queries in one only"],
        one["differing queries"],
    )


def changed(frame: pd.DataFrame, row: int, **values: object) -> pd.DataFrame:
    copy = frame.copy()
    for name, value in values.items():
        copy.loc[row, name] = value
    return copy


def test_equal_rankings_whatever_the_order_of_rows() -> None:
    assert compare() == (4, 0, 0, 0)
    assert compare(RANKING.iloc[::-1], OUTCOMES.iloc[::-1]) == (4, 0, 0, 0)
    assert compare(changed(RANKING, 0, score=0.9 + 9e-7)) == (4, 0, 0, 0)


@pytest.mark.parametrize(
    "ranking",
    [
        changed(RANKING, 0, score=0.9 + 2e-6),
        changed(RANKING, 1, node_id=9),
        RANKING.drop(index=1),
        pd.concat([RANKING, pd.DataFrame({"query_id": ["d"], "node_id": [7], "rank": [1], "score": [1.0]})]),
        # Two nodes that changed places are one query, not two.
        changed(changed(RANKING, 0, node_id=2), 1, node_id=1),
    ],
)
def test_each_way_to_differ_counts_its_query_once(ranking: pd.DataFrame) -> None:
    assert compare(ranking) == (4, 0, 0, 1)


def test_outcomes_and_counts_differ_too() -> None:
    assert compare(outcomes=changed(OUTCOMES, 0, n_cand=3)) == (4, 0, 0, 1)
    assert compare(outcomes=changed(OUTCOMES, 3, outcome="no_plan")) == (4, 0, 0, 1)


def test_what_a_limit_stopped_is_told_apart() -> None:
    stopped = changed(OUTCOMES, 1, outcome="timeout", n_cand=0)
    assert compare(changed(RANKING, 2, node_id=8), stopped) == (3, 1, 0, 0)
    assert compare(changed(RANKING, 0, node_id=8), stopped) == (3, 1, 0, 1)


def test_a_question_that_one_side_lacks_differs() -> None:
    assert compare(RANKING[RANKING["query_id"] != "b"], OUTCOMES.drop(index=1)) == (3, 0, 1, 1)
    assert compare(outcomes=OUTCOMES.drop(index=3)) == (3, 0, 1, 1)
