"""CPU time of the metrics against ranx, in one process and on equal values.

    python benchmarks/metrics.py --queries 10000 --depth 1000

Our time runs from the ranking and query frames to one row per query, checks included. ranx is timed twice: its
evaluation alone, on Qrels and Run objects that are already built and with its functions already compiled, and
together with building the two objects from frames.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pandas as pd

from skb_pipeline.evaluation.metrics import METRICS, query_metrics

RANX_NAMES = {"hit@1": "hit_rate@1", "hit@5": "hit_rate@5", "recall@20": "recall@20", "mrr": "mrr"}

T = TypeVar("T")


def main() -> None:
    """Time both on one random ranking, compare every value, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--depth", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="the best of these is reported")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    import ranx

    ranking, queries = random_case(args.queries, args.depth, args.nodes, args.seed)
    compile_ranx()
    build_time, (qrels, run) = cpu_time(lambda: ranx_objects(ranking, queries), repeats=1)
    ranx_time, _ = cpu_time(lambda: ranx.evaluate(qrels, run, list(RANX_NAMES.values())), args.repeats)
    own_time, scores = cpu_time(lambda: query_metrics(ranking, queries), args.repeats)

    for name, ranx_name in RANX_NAMES.items():
        theirs = scores["query_id"].map(run.scores[ranx_name]).to_numpy(dtype=np.float64)
        np.testing.assert_allclose(scores[name].to_numpy(), theirs, rtol=1e-12, err_msg=name)
    print(f"{args.queries} queries x {args.depth} hits, equal values for {', '.join(METRICS)}; CPU seconds:")
    print(f"skb_pipeline                     {own_time:8.3f}")
    print(f"ranx, objects built before       {ranx_time:8.3f}  ratio {ranx_time / own_time:6.1f}")
    total = build_time + ranx_time
    print(f"ranx, from frames                {total:8.3f}  ratio {total / own_time:6.1f}")


def random_case(n_queries: int, depth: int, n_nodes: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lists of distinct nodes and 1 to 8 answers per query, about half of them listed."""
    generator = np.random.default_rng(seed)
    ids = np.array([f"q{number}" for number in range(n_queries)], dtype=object)
    nodes = np.empty((n_queries, depth), dtype=np.int64)
    answers = []
    for number in range(n_queries):
        nodes[number] = generator.choice(n_nodes, size=depth, replace=False, shuffle=False)
        listed = generator.choice(nodes[number], size=generator.integers(1, 5), replace=False)
        answers.append(np.unique(np.append(listed, generator.integers(0, n_nodes, generator.integers(0, 5)))))
    ranks = np.tile(np.arange(1, depth + 1), n_queries)
    ranking = pd.DataFrame({"query_id": np.repeat(ids, depth), "node_id": nodes.ravel(), "rank": ranks})
    ranking["score"] = depth - ranking["rank"].astype(np.float64)
    return ranking, pd.DataFrame({"query_id": ids, "split": "test", "answer_ids": answers})


def ranx_objects(ranking: pd.DataFrame, queries: pd.DataFrame) -> tuple[object, object]:
    """ranx's Qrels and Run of a case, through its own readers of frames."""
    import ranx

    relevant = queries.explode("answer_ids").assign(relevance=1)
    relevant["answer_ids"] = relevant["answer_ids"].astype(str)
    scored = ranking.assign(node_id=ranking["node_id"].astype(str))
    qrels = ranx.Qrels.from_df(relevant, q_id_col="query_id", doc_id_col="answer_ids", score_col="relevance")
    run = ranx.Run.from_df(scored, q_id_col="query_id", doc_id_col="node_id", score_col="score")
    return qrels, run


def compile_ranx() -> None:
    """Let ranx compile its functions on a tiny case."""
    import ranx

    ranx.evaluate(*ranx_objects(*random_case(3, 10, 100, seed=1)), list(RANX_NAMES.values()))


def cpu_time(function: Callable[[], T], repeats: int) -> tuple[float, T]:
    """Smallest CPU time (s, all threads) of ``repeats`` calls, and the last result."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        best = min(best, time.process_time() - begin)
    return best, result


if __name__ == "__main__":
    main()
