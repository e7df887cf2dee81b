from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skb_pipeline.fusion.rrf import FusionReport, Weight, as_fraction, rrf
from skb_pipeline.retrieval.ranking import check_ranking
from skb_pipeline_tests.examples import examples

CANONICAL = np.array([(7 * i) % 100 for i in range(100)])
"""Not the order of the node ids."""
PLAIN = np.arange(100)

Ranks = dict[str, list[tuple[int, int]]]
"""(node, rank) per query; a node may stand there twice and ranks may be left out."""


def ranking(lists: dict[str, list[int]]) -> pd.DataFrame:
    return with_ranks({q: [(node, rank) for rank, node in enumerate(nodes, start=1)] for q, nodes in lists.items()})


def with_ranks(ranks: Ranks) -> pd.DataFrame:
    rows = [(q, node, rank, 1.0 / rank) for q, hits in ranks.items() for node, rank in hits]
    return pd.DataFrame(rows, columns=["query_id", "node_id", "rank", "score"])


def fuse(
    lists: Mapping[str, pd.DataFrame], weights: Mapping[str, Weight], k: int = 60, **others: Any
) -> tuple[pd.DataFrame, FusionReport]:
    return rrf(lists, weights=weights, k=k, **{"canonical": PLAIN, "depth": 100, "query_order": ["q"], **others})


def two(weight: float) -> dict[str, Fraction]:
    """Weights of two lists that sum to 1."""
    return {"first": as_fraction(weight), "second": 1 - as_fraction(weight)}


def fused(first: list[int], second: list[int], *, weight: float = 0.5, k: int = 60, depth: int = 100) -> list[int]:
    lists = {"first": ranking({"q": first}), "second": ranking({"q": second})}
    return fuse(lists, two(weight), k, depth=depth)[0]["node_id"].tolist()


def by_hand(
    lists: Mapping[str, Ranks], weights: Mapping[str, Fraction], k: int, depth: int, query_order: list[str]
) -> list[tuple[str, int, int, float]]:
    """Rows of the fused ranking, from fractions that are summed and sorted one by one."""
    rows = []
    for query in query_order:
        ranks: dict[int, dict[str, int]] = {}
        for name, hits in lists.items():
            for node, rank in hits.get(query, []):
                known = ranks.setdefault(node, {})
                known[name] = min(rank, known.get(name, rank))
        scores = {
            node: sum((weights[name] / (k + rank) for name, rank in own.items()), Fraction(0))
            for node, own in ranks.items()
        }
        order = sorted(ranks, key=lambda n: (-scores[n], min(ranks[n].values()), CANONICAL[n]))
        rows += [(query, node, place, float(scores[node])) for place, node in enumerate(order[:depth], start=1)]
    return rows


# Rules


def test_an_absent_node_gets_no_term() -> None:
    x, y, a, b, c = 5, 4, 1, 2, 3
    assert fused([x, a, y], [b, c, y]) == [y, b, x, a, c]


def test_equal_scores_are_ordered_by_the_better_rank_then_canonically() -> None:
    # Node 9 has ranks 1 and 3, node 8 ranks 3 and 1: equal score and equal best rank.
    assert fused([9, 7, 8], [8, 7, 9])[:2] == [8, 9]
    # 1/(0+2) + 1/(0+2) = 1/1: with k = 0 node 7 (2, 2) ties with node 9 (1, absent); 9 has the better rank.
    assert fused([9, 7], [6, 7], k=0) == [6, 9, 7]


def test_three_lists() -> None:
    lists = {"a": ranking({"q": [1, 2]}), "b": ranking({"q": [2, 1]}), "c": ranking({"q": [3, 2]})}
    frame, _ = fuse(lists, {"a": 2, "b": "0.5", "c": Fraction(1, 3)}, k=0)
    assert frame["node_id"].tolist() == [1, 2, 3]
    assert frame["score"].tolist() == [2.25, 1 + 0.5 + 1 / 6, 1 / 3]
    assert frame["rank"].dtype == np.int32


def test_one_list_stays_as_it_is() -> None:
    frame, report = fuse({"a": ranking({"q": [4, 2, 9]})}, {"a": 1})
    assert frame["node_id"].tolist() == [4, 2, 9]
    assert frame["score"].tolist() == [1 / 61, 1 / 62, 1 / 63]
    assert report.metadata() == {"queries": 1, "shared": 0, "only": {"a": 1}, "repeated": {"a": 0}}


@pytest.mark.parametrize(("weight", "order"), [(1.0, [3, 1, 2]), (0.0, [2, 3, 1])])
def test_a_weight_of_zero_leaves_a_list_behind(weight: float, order: list[int]) -> None:
    assert fused([3, 1], [2, 3], weight=weight) == order


def test_ranks_start_at_one_and_k_zero_is_allowed() -> None:
    lists = {"first": ranking({"a": [1]}), "second": ranking({"b": [1, 2]})}
    frame, report = fuse(lists, two(0.25), k=0, depth=1, query_order=["b", "a", "c"])
    assert frame.to_dict("list") == {"query_id": ["b", "a"], "node_id": [1, 1], "rank": [1, 1], "score": [0.75, 0.25]}
    assert report == FusionReport(queries=2, shared=0, only={"first": 1, "second": 1}, repeated=report.repeated)


def test_a_repeated_node_counts_once_at_its_best_rank() -> None:
    twice = with_ranks({"q": [(1, 3), (2, 2), (1, 1), (1, 7)], "r": [(1, 1)]})
    lists = {"a": twice, "b": ranking({"q": [2], "r": [1]}), "c": ranking({"q": [2]})}
    frame, report = fuse(lists, dict.fromkeys(lists, 1), k=0, query_order=["q", "r"])
    assert frame[frame["query_id"] == "q"][["node_id", "score"]].values.tolist() == [[2, 2.5], [1, 1.0]]
    assert report == FusionReport(queries=2, shared=2, only={"a": 0, "b": 0, "c": 0}, repeated={"a": 2, "b": 0, "c": 0})


def test_weights_are_the_numbers_they_print_as() -> None:
    assert as_fraction(0.1) == as_fraction("0.1") == as_fraction(np.float64(0.1)) == Fraction(1, 10)
    assert as_fraction("1/3") == Fraction(1, 3)
    # 0.1/1 + 0.2/1 = 0.3/1, which does not hold for the floats themselves.
    lists = {"a": ranking({"q": [5]}), "b": ranking({"q": [5]}), "c": ranking({"q": [9]})}
    frame, _ = fuse(lists, {"a": 0.1, "b": 0.2, "c": 0.3}, k=0)
    assert frame["score"].tolist() == [0.3, 0.3]
    assert frame["node_id"].tolist() == [5, 9]


# Refusals


@pytest.mark.parametrize(("weight", "k"), [(-0.1, 1), (1.1, 1), (0.5, -1), (float("nan"), 1)])
def test_bad_parameters_are_refused(weight: float, k: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        fused([1], [2], weight=weight, k=k)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": 1}, "same names"),
        ({"a": 1, "c": 1}, "same names"),
        ({"a": 1, "b": -0.5}, "weight of b must be at least 0, not -0.5"),
        ({"a": 0, "b": "0.0"}, "at least one weight must be above 0"),
        ({"a": 1, "b": float("inf")}, "must be a number"),
        ({"a": 1, "b": "much"}, "must be a number"),
        ({"a": 1, "b": "1/0"}, "must be a number"),
    ],
)
def test_bad_weights_are_refused(weights: dict[str, Weight], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fuse({"a": ranking({}), "b": ranking({})}, weights)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (ranking({"z": [1]}), "query 'z' of b is not"),
        (ranking({"q": [100]}), "b holds a node id outside 0 .. 99"),
        (ranking({"q": [-1]}), "b holds a node id outside"),
        (with_ranks({"q": [(1, -2)]}), "b holds the rank -2"),
    ],
)
def test_bad_rows_are_refused(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fuse({"a": ranking({"q": [1]}), "b": frame}, {"a": 1, "b": 1})


def test_no_list_is_refused_and_empty_lists_are_not() -> None:
    with pytest.raises(ValueError, match="same names"):
        fuse({}, {})
    frame, report = fuse({"a": ranking({}), "b": ranking({})}, {"a": 1, "b": 2})
    assert len(frame) == 0
    assert frame.dtypes.astype(str).to_dict() == {
        "query_id": "object", "node_id": "int64", "rank": "int32", "score": "float64",
    }  # fmt: skip
    assert report == FusionReport(0, 0, {"a": 0, "b": 0}, {"a": 0, "b": 0})


# Against fractions

LISTS = st.lists(st.integers(0, 15), unique=True, max_size=12)
HITS = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 30) | st.integers(1, 10**6)), max_size=12)
SOME_RANKS = st.dictionaries(st.sampled_from("pqr"), HITS, max_size=3)
WEIGHTS = st.sampled_from(["0", "0.05", "0.1", "1/3", "0.5", "1", "2", "60", "1e-9", "0.12345678901234567", "1e18"])


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Ranks], dict[str, str], int, int]:
    names = "abcd"[: draw(st.integers(1, 4))]
    weights = draw(st.fixed_dictionaries(dict.fromkeys(names, WEIGHTS)).filter(lambda w: {*w.values()} != {"0"}))
    lists = draw(st.fixed_dictionaries(dict.fromkeys(names, SOME_RANKS)))
    return lists, weights, draw(st.sampled_from([0, 1, 2, 20, 60, 10**9])), draw(st.sampled_from([3, 100]))


@settings(max_examples=examples(300))
@given(problems())
def test_any_number_of_lists_equals_fractions_sorted_by_hand(
    problem: tuple[dict[str, Ranks], dict[str, str], int, int],
) -> None:
    lists, weights, k, depth = problem
    order = ["r", "p", "q"]
    frames = {name: with_ranks(ranks) for name, ranks in lists.items()}
    frame, report = fuse(frames, weights, k, canonical=CANONICAL, depth=depth, query_order=order)
    exact = {name: Fraction(weight) for name, weight in weights.items()}
    assert list(frame.itertuples(index=False, name=None)) == by_hand(lists, exact, k, depth, order)
    assert report.queries == len({q for ranks in lists.values() for q, hits in ranks.items() if hits})
    for name, ranks in lists.items():
        assert report.repeated[name] == sum(len(hits) - len({n for n, _ in hits}) for hits in ranks.values())
        others = [other for other in lists if other != name]
        assert report.only[name] == sum(
            bool(hits) and not any(lists[o].get(q) for o in others) for q, hits in ranks.items()
        )
    held = [(q, n) for ranks in lists.values() for q, hits in ranks.items() for n in {n for n, _ in hits}]
    assert report.shared == sum(held.count(pair) > 1 for pair in set(held))


@settings(max_examples=examples(100))
@given(problems(), st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("pqr"), WEIGHTS), max_size=2))
def test_factors_make_weights_of_each_query(
    problem: tuple[dict[str, Ranks], dict[str, str], int, int], given_factors: dict[str, dict[str, str]]
) -> None:
    """Each query as if it were fused alone with its own weights."""
    lists, weights, k, depth = problem
    order = ["r", "p", "q"]
    frames = {name: with_ranks(ranks) for name, ranks in lists.items()}
    exact = {name: {q: Fraction(f) for q, f in own.items()} for name, own in given_factors.items()}
    frame, report = fuse(frames, weights, k, canonical=CANONICAL, depth=depth, query_order=order, factors=exact)
    rows = []
    for query in order:
        own = {name: Fraction(w) * exact.get(name, {}).get(query, Fraction(1)) for name, w in weights.items()}
        rows += by_hand(lists, own, k, depth, [query])
    assert list(frame.itertuples(index=False, name=None)) == rows
    assert report == fuse(frames, weights, k, canonical=CANONICAL, depth=depth, query_order=order)[1]


def test_a_negative_factor_is_refused() -> None:
    lists = {"a": ranking({"q": [9]}), "b": ranking({"q": [5]})}
    with pytest.raises(ValueError, match="factors must be at least 0, not -1"):
        fuse(lists, {"a": 1, "b": 1}, factors={"a": {"q": Fraction(-1)}})


@settings(deadline=None)
@given(LISTS, LISTS, st.sampled_from([0.0, 0.05, 0.1, 0.35, 0.5, 0.65, 1.0]), st.sampled_from([0, 1, 2, 20, 60]))
@example([*range(12)], [*reversed(range(12))], 0.5, 60)
def test_two_lists_equal_the_formula_with_one_weight(
    first: list[int], second: list[int], weight: float, k: int
) -> None:
    """w / (k + r1) + (1 - w) / (k + r2), bit by bit."""
    w = Fraction(str(weight))
    a, b = ranking({"q": first}), ranking({"q": second})
    frame, _ = fuse({"first": a, "second": b}, two(weight), k, canonical=CANONICAL)
    ranks = {
        node: [(share, nodes.index(node) + 1) for share, nodes in ((w, first), (1 - w, second)) if node in nodes]
        for node in {*first, *second}
    }
    scores = {node: sum((share / (k + rank) for share, rank in own), Fraction(0)) for node, own in ranks.items()}
    order = sorted(ranks, key=lambda n: (-scores[n], min(rank for _, rank in ranks[n]), CANONICAL[n]))
    assert frame["node_id"].tolist() == order
    assert frame["score"].tolist() == [float(scores[node]) for node in order]


def test_unequal_scores_with_equal_floats_keep_their_order() -> None:
    lists = {"a": ranking({"q": [9]}), "b": ranking({"q": [5]})}
    frame, _ = fuse(lists, {"a": Fraction(10**30 + 1, 10**30), "b": 1})
    assert frame["node_id"].tolist() == [9, 5]
    assert frame["score"].nunique() == 1


@pytest.mark.parametrize("numerator", [2**53 + 1, 2**53 + 3])
def test_a_score_half_way_between_two_floats_is_rounded_as_python_does(numerator: int) -> None:
    weight = Fraction(numerator, 2**53)
    frame, _ = fuse({"a": ranking({"q": [1]})}, {"a": weight}, k=0)
    assert frame["score"].tolist() == [float(weight)]


def test_deep_lists_of_many_queries_equal_fractions() -> None:
    rng = np.random.default_rng(3)
    lists: dict[str, Ranks] = {
        name: {q: list(zip(rng.permutation(100)[:60].tolist(), range(1, 61), strict=True)) for q in "pqrstuvw"}
        for name in "abc"
    }
    frame, _ = fuse(
        {name: with_ranks(ranks) for name, ranks in lists.items()}, dict.fromkeys("abc", "0.1"), 2,
        canonical=CANONICAL, query_order=list("pqrstuvw"),
    )  # fmt: skip
    wanted = by_hand(lists, dict.fromkeys("abc", Fraction(1, 10)), 2, 100, list("pqrstuvw"))
    assert list(frame.itertuples(index=False, name=None)) == wanted


@settings(deadline=None)
@given(LISTS, LISTS)
def test_result_is_a_ranking_and_does_not_depend_on_row_order(first: list[int], second: list[int]) -> None:
    a, b = ranking({"q": first}), ranking({"q": second})
    frame, _ = fuse({"a": a, "b": b}, {"a": 0.5, "b": 0.5}, 20, depth=5)
    shuffled = {"a": a.sample(frac=1, random_state=1), "b": b.sample(frac=1, random_state=2)}
    pd.testing.assert_frame_equal(frame, fuse(shuffled, {"b": 0.5, "a": 0.5}, 20, depth=5)[0])
    assert check_ranking(frame, query_order=["q"], depth=5) == []


@pytest.mark.deep  # ranx compiles its functions on the first call
@pytest.mark.parametrize("n", [2, 3])
def test_scores_equal_ranx(n: int) -> None:
    ranx = pytest.importorskip("ranx")
    rng = np.random.default_rng(5)
    lists = [{f"q{i}": rng.permutation(50)[:20].tolist() for i in range(5)} for _ in range(n)]
    runs = [
        ranx.Run({q: {str(n): 1.0 / r for r, n in enumerate(nodes, 1)} for q, nodes in side.items()}) for side in lists
    ]
    theirs = ranx.fuse(runs, method="rrf", params={"k": 60})
    frames = {str(i): ranking(side) for i, side in enumerate(lists)}
    ours, _ = fuse(frames, dict.fromkeys(frames, 1), query_order=list(lists[0]))
    for row in ours.itertuples():
        assert row.score == pytest.approx(theirs.run[row.query_id][str(row.node_id)], rel=1e-12)
