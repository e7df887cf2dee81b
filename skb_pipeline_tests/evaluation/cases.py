"""Small rankings and query frames for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd


def ranking_of(lists: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """A ranking with ranks 1, 2, 3 ... and falling scores from lists of node ids."""
    rows = [
        (query_id, node, rank, 1.0 / rank)
        for query_id, nodes in lists.items()
        for rank, node in enumerate(nodes, start=1)
    ]
    frame = pd.DataFrame(rows, columns=["query_id", "node_id", "rank", "score"])
    return frame.astype({"node_id": "int64", "rank": "int64", "score": "float64"})


def queries_of(answers: Mapping[str, Sequence[int] | None], split: str = "test", **columns: object) -> pd.DataFrame:
    """A query frame with the given answers."""
    frame = pd.DataFrame({"query_id": list(answers), "split": split})
    frame["answer_ids"] = pd.Series(list(answers.values()), dtype=object)
    return frame.assign(**columns)


def random_case(
    seed: int, n_queries: int = 60, n_nodes: int = 200, depth: int = 50
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Lists of distinct nodes, some empty or short, and 1 to 30 answers per query."""
    generator = np.random.default_rng(seed)
    lists, answers = {}, {}
    for number in range(n_queries):
        length = int(generator.integers(0, depth + 1))
        lists[f"q{number}"] = generator.permutation(n_nodes)[:length].tolist()
        answers[f"q{number}"] = generator.permutation(n_nodes)[: generator.integers(1, 31)].tolist()
    return lists, answers
