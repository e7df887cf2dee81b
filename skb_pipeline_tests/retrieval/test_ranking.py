from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.retrieval.ranking import (
    RANKING,
    Hits,
    RankingError,
    build_ranking,
    check_ranking,
    rank_hits,
    top_k_with_ties,
)
from skb_pipeline.storage.frames import read_frame

CANONICAL = np.array([3, 1, -1, 0, 2])  # node 2 was deleted; canonical order is 3, 1, 4, 0
QUERIES = ["q10", "q9", "empty"]


def ranking(rows, depth=10):
    query, node, score = zip(*rows, strict=True) if rows else ((), (), ())
    return build_ranking(
        query, np.array(node, dtype=np.int64), np.array(score, dtype=float),
        canonical=CANONICAL, depth=depth, query_order=QUERIES,
    )  # fmt: skip


def test_rows_follow_query_order_then_score_then_canonical_order() -> None:
    frame = ranking([("q9", 0, 1.0), ("q10", 0, 2.0), ("q10", 4, 2.0), ("q10", 3, 5.0), ("q10", 1, 2.0)])
    assert frame.to_dict("list") == {
        "query_id": ["q10", "q10", "q10", "q10", "q9"],
        "node_id": [3, 1, 4, 0, 0],
        "rank": [1, 2, 3, 4, 1],
        "score": [5.0, 2.0, 2.0, 2.0, 1.0],
    }
    assert [str(t) for t in frame.dtypes] == ["object", "int64", "int32", "float64"]


def test_cut_among_ties_keeps_the_canonical_first() -> None:
    frame = ranking([("q10", node, 1.0) for node in (0, 4, 1, 3)], depth=2)
    assert frame["node_id"].tolist() == [3, 1]


def test_no_hits_give_an_empty_ranking_of_the_right_types(tmp_path) -> None:
    frame = ranking([])
    assert len(frame) == 0
    assert check_ranking(frame, query_order=QUERIES, depth=1, canonical=CANONICAL) == []
    RANKING.write(tmp_path, frame)
    assert check_ranking(read_frame(tmp_path / "ranking.parquet")) == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("q9", 1, 1.0), ("q9", 1, 2.0)], "node 1 occurs twice for query 'q9'"),
        ([("q9", 1, float("nan"))], "not finite, such as nan of node 1 for query 'q9'"),
        ([("q9", 1, float("inf"))], "not finite"),
        ([("q9", 2, 1.0)], r"not in the SKB, such as \[2\]"),
        ([("q9", -1, 1.0)], r"not in the SKB, such as \[-1\]"),
        ([("q9", 5, 1.0)], r"not in the SKB, such as \[5\]"),
        ([("other", 1, 1.0)], "query 'other' is not in the query order"),
    ],
)
def test_hits_that_cannot_be_ranked_are_refused(rows, message) -> None:
    with pytest.raises(RankingError, match=message):
        ranking(rows)


def test_node_ids_that_became_floats_are_refused() -> None:
    with pytest.raises(RankingError, match="must be integers"):
        build_ranking(
            ["q9"], np.array([1.0]), np.array([1.0]), canonical=CANONICAL, depth=1, query_order=QUERIES
        )  # fmt: skip


def test_query_order_must_not_repeat_and_positions_must_exist() -> None:
    hits = Hits(np.array([3]), np.array([1]), np.array([1.0]))
    with pytest.raises(RankingError, match=r"0\.\.2"):
        rank_hits(hits, canonical=CANONICAL, depth=1, query_order=QUERIES)
    with pytest.raises(RankingError, match="'a' twice"):
        rank_hits(hits, canonical=CANONICAL, depth=1, query_order=["a", "a"])


GOOD = [("q10", 3, 1, 2.0), ("q10", 1, 2, 1.0), ("q10", 4, 3, 1.0), ("q9", 0, 1, 7.0)]


def frame_of(rows) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=RANKING.names)
    return frame.astype({"node_id": np.int64, "rank": np.int32, "score": np.float64})


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (GOOD, None),
        ([("q10", 3, 2, 2.0)], "rank is not 1..n"),
        ([("q10", 3, 1, 2.0), ("q10", 1, 3, 1.0)], "rank is not 1..n"),
        ([("q10", 3, 1, 2.0), ("q10", 3, 2, 1.0)], "node occurs twice"),
        ([("q10", 3, 1, 1.0), ("q10", 1, 2, 2.0)], "score rises"),
        ([("q10", 4, 1, 1.0), ("q10", 1, 2, 1.0)], "tie is not in canonical order"),
        ([("q10", 3, 1, np.inf)], "score is not finite"),
        ([("q9", 3, 1, 1.0), ("q10", 3, 1, 1.0)], "out of the query order"),
        ([("q10", 3, 1, 1.0), ("q9", 3, 1, 1.0), ("q10", 1, 2, 1.0)], "not next to each other"),
        ([("new", 3, 1, 1.0)], "query is not in the query order"),
        ([("q10", 2, 1, 1.0)], "not in the SKB"),
        ([*GOOD[:3], ("q10", 0, 4, 0.5)], "below the depth 3"),
    ],
)
def test_check_names_each_violation(rows, problem) -> None:
    problems = check_ranking(frame_of(rows), query_order=QUERIES, depth=3, canonical=CANONICAL)
    assert any(problem in p for p in problems) if problem else problems == []


def test_check_sees_wrong_types() -> None:
    frame = frame_of(GOOD)
    assert "rank is int64, not int32" in check_ranking(frame.astype({"rank": np.int64}))
    assert check_ranking(frame.assign(query_id=[1, 1, 1, 2])) == ["query_id holds values that are not text"]
    assert check_ranking(frame.drop(columns="score"))[0].startswith("columns are")


@given(
    st.lists(st.integers(0, 4).map(float), max_size=40).flatmap(
        lambda scores: st.tuples(st.just(scores), st.permutations(range(len(scores))), st.integers(0, 45))
    )
)
def test_top_k_equals_a_full_sort(case) -> None:
    scores, canonical, k = case
    full = sorted(range(len(scores)), key=lambda i: (-scores[i], canonical[i]))
    chosen = top_k_with_ties(np.array(scores), k, np.array(canonical, dtype=np.int64))
    assert chosen.tolist() == full[:k]


@given(
    st.dictionaries(st.tuples(st.sampled_from(QUERIES), st.sampled_from([0, 1, 3, 4])), st.integers(-2, 2).map(float)),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_built_rankings_keep_the_contract_whatever_the_order_of_rows(pairs, depth, random) -> None:
    rows = [(q, n, s) for (q, n), s in pairs.items()]
    first = ranking(rows, depth)
    random.shuffle(rows)
    pd.testing.assert_frame_equal(first, ranking(rows, depth))
    assert check_ranking(first, query_order=QUERIES, depth=depth, canonical=CANONICAL) == []
    counts = {q: sum(1 for p in pairs if p[0] == q) for q in QUERIES}
    assert first.groupby("query_id").size().to_dict() == {q: min(n, depth) for q, n in counts.items() if n}
