"""The STaRK recipe against a brute force without arrays, and its known differences from our definitions."""

from __future__ import annotations

import numpy as np
import pytest

from skb_pipeline.evaluation.metrics import METRICS, query_metrics
from skb_pipeline.evaluation.stark_compat import stark_query_metrics
from skb_pipeline_tests.evaluation.cases import queries_of, random_case, ranking_of


def brute_force(nodes: list[int], answers: list[int], candidates: list[int]) -> list[float]:
    """Sort (score, id) pairs; unscored candidates get the minimum minus 1."""
    given = {node: -float(rank) for rank, node in reversed(list(enumerate(nodes, start=1)))}
    fill = min(given.values()) - 1
    ordered = sorted(candidates, key=lambda candidate: (-given.get(candidate, fill), candidate))
    relevant = [candidate in set(answers) for candidate in ordered]
    if not any(relevant):
        return [0.0, 0.0, 0.0, 0.0]
    return [
        float(any(relevant[:1])),
        float(any(relevant[:5])),
        sum(relevant[:20]) / sum(relevant),
        1 / (relevant.index(True) + 1),
    ]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equal_to_brute_force(seed: int) -> None:
    lists, answers = random_case(seed)
    lists = {query: nodes or [0] for query, nodes in lists.items()}
    answers["q0"] = []
    candidates = [*range(0, 200, 2), 199]  # half of the listed nodes and answers are no candidates
    frame = stark_query_metrics(ranking_of(lists), queries_of(answers), candidates[::-1])
    expected = [brute_force(lists[query], answers[query], candidates) for query in lists]
    np.testing.assert_allclose(frame[list(METRICS)].to_numpy(), expected)
    assert frame["query_id"].tolist() == list(lists)


def test_same_as_ours_when_all_candidates_are_listed() -> None:
    lists, answers = random_case(3)
    everything = np.random.default_rng(3)
    full = ranking_of({query: everything.permutation(200).tolist() for query in lists})
    theirs = stark_query_metrics(full, queries_of(answers), np.arange(200))
    ours = query_metrics(full, queries_of(answers))
    np.testing.assert_allclose(theirs[list(METRICS)], ours[list(METRICS)])


def test_an_unlisted_answer_still_has_a_rank() -> None:
    ranking, queries = ranking_of({"q": [3, 4]}), queries_of({"q": [9]})
    frame = stark_query_metrics(ranking, queries, range(10))
    assert frame.loc[0, "mrr"] == 1 / 10  # 3, 4, then 0, 1, 2, 5, 6, 7, 8 and 9
    assert frame.loc[0, "recall@20"] == 1.0  # filler within the first 20 counts
    assert query_metrics(ranking, queries).loc[0, "mrr"] == 0.0


def test_an_answer_that_is_no_candidate_leaves_the_denominator() -> None:
    ranking, queries = ranking_of({"q": [2]}), queries_of({"q": [2, 5]})
    candidates = [*range(5), *range(6, 100)]
    assert stark_query_metrics(ranking, queries, candidates).loc[0, "recall@20"] == 1.0
    assert query_metrics(ranking, queries).loc[0, "recall@20"] == 0.5


@pytest.mark.parametrize(
    ("nodes", "answers", "message"),
    [([], [1], "empty list"), ([10], [1], "listed node 10"), ([1], [57], "answer 57"), ([-1], [1], "node -1")],
)
def test_what_the_original_cannot_score_is_refused(nodes: list[int], answers: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=f"'q'.*{message}"):
        stark_query_metrics(ranking_of({"q": nodes}), queries_of({"q": answers}), range(10))


def test_no_candidates() -> None:
    with pytest.raises(ValueError, match="no candidates"):
        stark_query_metrics(ranking_of({"q": [1]}), queries_of({"q": [1]}), [])
