"""Whether two executors made the same of the same plans: their rankings, side by side."""

from __future__ import annotations

import pandas as pd

from skb_pipeline.plans.results import GraphOutcome

TOLERANCE = 1e-6
"""Cosines are rounded to it, so scores that differ by less say nothing."""
_LIMITS = [GraphOutcome.ROW_LIMIT.value, GraphOutcome.TIMEOUT.value]


def compare_rankings(
    ranking: pd.DataFrame, outcomes: pd.DataFrame, other_ranking: pd.DataFrame, other_outcomes: pd.DataFrame
) -> dict[str, int]:
    """Compare two graph rankings of the same questions.

    Questions whose plan was stopped by a limit on either side are not compared, since executors have different limits.

    Args:
        ranking, other_ranking: ``query_id, node_id, rank, score``.
        outcomes, other_outcomes: one row per question: ``query_id, outcome, n_cand``.

    Returns:
        Counts of questions: ``queries compared``; ``stopped by a limit``; ``queries in one only``; ``differing
        queries``, which are these and those with other nodes, ranks, scores (by more than 1e-6), outcome or number of
        candidates.
    """
    columns = ["outcome", "n_cand"]
    left, right = (frame.set_index("query_id")[columns] for frame in (outcomes, other_outcomes))
    both = left.join(right, how="outer", rsuffix=" 2")
    alone = both[columns].isna().any(axis=1) | both[["outcome 2", "n_cand 2"]].isna().any(axis=1)
    stopped = ~alone & both[["outcome", "outcome 2"]].isin(_LIMITS).any(axis=1)
    other_account = (both["outcome"] != both["outcome 2"]) | (both["n_cand"] != both["n_cand 2"])
    hits = ranking.merge(other_ranking, how="outer", on=["query_id", "rank"], suffixes=("", " 2"))
    equal = (hits["node_id"] == hits["node_id 2"]) & ((hits["score"] - hits["score 2"]).abs() <= TOLERANCE)
    differing = {*both.index[alone | other_account], *hits.loc[~equal, "query_id"]} - {*both.index[stopped]}
    return {
        "queries compared": int((~stopped & ~alone).sum()),
        "stopped by a limit": int(stopped.sum()),
        "queries in one only": int(alone.sum()),
        "differing queries": len(differing),
    }
