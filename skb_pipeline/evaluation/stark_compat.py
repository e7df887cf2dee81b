"""The STaRK benchmark's evaluator, for cross-checks of our numbers only; no table is made from it.

It follows ``Evaluator.evaluate`` in ``stark_qa/evaluator.py`` (Wu et al., "STaRK", 2024): per query one float per
candidate, unscored candidates get the lowest given score minus 1, and all metrics read the order of that vector.
So it differs from :mod:`skb_pipeline.evaluation.metrics` in these ways:

* MRR runs over all candidates: an answer that is not listed still gets a small reciprocal rank.
* A list shorter than k is filled up with unlisted candidates, which can count as hits.
* Answers that are no candidates vanish from the denominator of recall; listed non-candidates are dropped and the
  rest moves up.
* A query without answers counts as 0 instead of being left out; one without any hit cannot be evaluated.

Two things the original leaves to chance are fixed here: its scores are replaced by minus the rank, so that a
list's own order holds, and unlisted candidates, all tied there, follow in ascending order of their ids. Versions
of torchmetrics from 1.8 on, which the original calls, also ignore answers with a score of 0 or less in recall
and MRR; that defect is not copied.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from skb_pipeline.evaluation.metrics import METRICS, IntArray, distinct_answers, ranked_lists, unique_query_ids


def stark_query_metrics(ranking: pd.DataFrame, queries: pd.DataFrame, candidate_ids: npt.ArrayLike) -> pd.DataFrame:
    """STaRK's value of each metric for each query.

    Args:
        ranking, queries: as for :func:`skb_pipeline.evaluation.metrics.evaluate_ranking`. Of a node listed twice
            the better rank is used.
        candidate_ids: int [candidates], ids that can be answers, in any order.

    Returns:
        One row per query, in their order: ``query_id``, ``split``, METRICS (float64).

    Raises:
        ValueError: no candidates, a query with an empty list (the original takes the minimum of nothing), or an
            id above the largest candidate id or below 0 (the original's vector ends there).
    """
    candidates = np.unique(np.asarray(candidate_ids, dtype=np.int64))
    if len(candidates) == 0:
        raise ValueError("there are no candidates")
    query_ids = unique_query_ids(queries)
    lists = ranked_lists(ranking, query_ids)
    answers, n_answers = distinct_answers(queries)
    per_query = np.split(answers, n_answers.cumsum()[:-1])
    rows = [
        _evaluate(str(query_id), lists.nodes[start:stop], own, candidates)
        for query_id, start, stop, own in zip(query_ids, lists.start, lists.stop, per_query, strict=True)
    ]
    values = pd.DataFrame(rows, columns=list(METRICS), dtype=np.float64)
    return pd.concat([queries[["query_id", "split"]].reset_index(drop=True), values], axis=1)


def _evaluate(query_id: str, listed: IntArray, answers: IntArray, candidates: IntArray) -> tuple[float, ...]:
    if len(listed) == 0:
        raise ValueError(f"query {query_id!r} has an empty list, which the STaRK evaluator cannot score")
    for name, ids in (("listed node", listed), ("answer", answers)):
        outside = ids[(ids < 0) | (ids > candidates[-1])]
        if len(outside):
            raise ValueError(f"query {query_id!r}: {name} {outside[0]} is outside 0..{candidates[-1]}")
    given = -np.arange(1.0, len(listed) + 1)
    scores = np.full(candidates[-1] + 1, given.min() - 1)
    scores[listed[::-1]] = given[::-1]
    relevant = np.zeros(candidates[-1] + 1, dtype=bool)
    relevant[answers] = True
    order = candidates[np.argsort(-scores[candidates], kind="stable")]
    at = np.flatnonzero(relevant[order])
    if len(at) == 0:
        return (0.0, 0.0, 0.0, 0.0)
    return (float(at[0] < 1), float(at[0] < 5), np.count_nonzero(at < 20) / len(at), 1.0 / (at[0] + 1))
