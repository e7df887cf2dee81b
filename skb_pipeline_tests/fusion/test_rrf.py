from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.fusion.rrf import static_rrf
from skb_pipeline.retrieval.ranking import check_ranking

CANONICAL = np.arange(100)


def ranking(lists: dict[str, list[int]]) -> pd.DataFrame:
    rows = [(q, node, rank, 1.0 / rank) for q, nodes in lists.items() for rank, node in enumerate(nodes, start=1)]
    return pd.DataFrame(rows, columns=["query_id", "node_id", "rank", "score"])


def fused(first: list[int], second: list[int], *, weight: float = 0.5, k: int = 60, depth: int = 100) -> list[int]:
    frame, _ = static_rrf(
        ranking({"q": first}), ranking({"q": second}),
        weight=weight, k=k, canonical=CANONICAL, depth=depth, query_order=["q"],
    )  # fmt: skip
    return frame["node_id"].tolist()


def test_an_absent_node_gets_no_term() -> None:
    x, y, a, b, c = 5, 4, 1, 2, 3
    assert fused([x, a, y], [b, c, y]) == [y, b, x, a, c]


def test_equal_scores_are_ordered_by_the_better_rank_then_canonically() -> None:
    # Node 9 has ranks 1 and 3, node 8 ranks 3 and 1: equal score and equal best rank.
    assert fused([9, 7, 8], [8, 7, 9])[:2] == [8, 9]
    # 1/(0+2) + 1/(0+2) = 1/1: with k = 0 node 7 (2, 2) ties with node 9 (1, absent); 9 has the better rank.
    assert fused([9, 7], [6, 7], k=0) == [6, 9, 7]


@pytest.mark.parametrize(("weight", "order"), [(1.0, [3, 1, 2]), (0.0, [2, 3, 1])])
def test_a_weight_of_zero_leaves_a_list_behind(weight: float, order: list[int]) -> None:
    assert fused([3, 1], [2, 3], weight=weight) == order


def test_ranks_start_at_one_and_k_zero_is_allowed() -> None:
    frame, report = static_rrf(
        ranking({"a": [1]}), ranking({"b": [1, 2]}),
        weight=0.25, k=0, canonical=CANONICAL, depth=1, query_order=["b", "a", "c"],
    )  # fmt: skip
    assert frame.to_dict("list") == {"query_id": ["b", "a"], "node_id": [1, 1], "rank": [1, 1], "score": [0.75, 0.25]}
    assert report.metadata() == {"queries": 2, "only_first": 1, "only_second": 1, "shared": 0}


@pytest.mark.parametrize(("weight", "k"), [(-0.1, 1), (1.1, 1), (0.5, -1), (float("nan"), 1)])
def test_bad_parameters_are_refused(weight: float, k: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        fused([1], [2], weight=weight, k=k)


def test_a_query_nobody_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="'z' of a ranking"):
        static_rrf(ranking({"z": [1]}), ranking({}), weight=0.5, k=1, canonical=CANONICAL, depth=9, query_order=["q"])


LISTS = st.lists(st.integers(0, 15), unique=True, max_size=12)


@settings(deadline=None)
@given(LISTS, LISTS, st.sampled_from([0.0, 0.05, 0.1, 0.35, 0.5, 0.65, 1.0]), st.sampled_from([0, 1, 2, 20, 60]))
def test_equals_fractions_sorted_by_hand(first: list[int], second: list[int], weight: float, k: int) -> None:
    w = Fraction(str(weight))

    def key(node: int) -> tuple[Fraction, int, int]:
        ranks = [(share, nodes.index(node) + 1) for share, nodes in ((w, first), (1 - w, second)) if node in nodes]
        return -sum((share / (k + rank) for share, rank in ranks), Fraction(0)), min(r for _, r in ranks), node

    assert fused(first, second, weight=weight, k=k) == sorted({*first, *second}, key=key)


@settings(deadline=None)
@given(LISTS, LISTS, st.randoms(use_true_random=False))
def test_result_is_a_ranking_and_does_not_depend_on_row_order(first: list[int], second: list[int], rng: object) -> None:
    a, b = ranking({"q": first}), ranking({"q": second})
    settings_ = {"weight": 0.5, "k": 20, "canonical": CANONICAL, "depth": 5, "query_order": ["q"]}
    frame, _ = static_rrf(a, b, **settings_)  # type: ignore[arg-type]
    shuffled, _ = static_rrf(a.sample(frac=1, random_state=1), b.sample(frac=1, random_state=2), **settings_)  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(frame, shuffled)
    assert check_ranking(frame, query_order=["q"], depth=5) == []


def test_scores_equal_ranx() -> None:
    ranx = pytest.importorskip("ranx")
    rng = np.random.default_rng(5)
    lists = [{f"q{i}": rng.permutation(50)[:20].tolist() for i in range(5)} for _ in range(2)]
    runs = [
        ranx.Run({q: {str(n): 1.0 / r for r, n in enumerate(nodes, 1)} for q, nodes in side.items()}) for side in lists
    ]
    theirs = ranx.fuse(runs, method="rrf", params={"k": 60})
    ours, _ = static_rrf(
        ranking(lists[0]),
        ranking(lists[1]),
        weight=0.5,
        k=60,
        canonical=CANONICAL,
        depth=100,
        query_order=list(lists[0]),
    )
    for row in ours.itertuples():
        assert 2 * row.score == pytest.approx(theirs.run[row.query_id][str(row.node_id)], rel=1e-12)
