"""How far a fusion should trust plans: the table of factors that comes along, and what it is worth elsewhere.

Of each dataset the finished rankings of ``graph``, ``bm25`` and ``dense`` are read, with training and validation
questions only. For every rank constant, weight of ``dense`` and weight of ``graph`` on a grid the fused metrics of each
question are tabulated. A table of weights of ``graph`` by risk level and number of candidates, and of ``dense`` by risk
level, is then a choice of columns, and the one with the highest mean of the four metrics is found exactly. The weight
of ``graph`` may only fall with the number of candidates and rise with the risk level, that of ``dense`` only fall with
the risk level, since some cells have few questions. Where no plan gave candidates dense counts as much as bm25, as it
does in ``text``: silence of the graph must not cost anything. Datasets count alike, however many questions they have.

*Leave one out*: the table is fitted without a dataset and judged on it, beside its parts.

    python benchmarks/fusion_trust.py HOME:DATASET HOME:DATASET …     # default: demo in the home folder
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pandas as pd

from skb_pipeline.evaluation.metrics import METRICS
from skb_pipeline.plans.plan import RiskLevel
from skb_pipeline.plans.results import BUCKETS
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.skb.store import canonical_positions
from skb_pipeline.storage.artifacts import ArtifactStore
from skb_pipeline.storage.duck import connect
from skb_pipeline.systems.ranked import Ranked
from skb_pipeline.workspace import SKB_FILE, Workspace

LISTS = ("graph", "bm25", "dense")
GRAPH = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
"""Weights of graph beside 1 of bm25."""
DENSE = (0.1, 0.25, 0.5, 0.75, 1.0)
"""The same of dense."""
K = (20, 60)
LEVELS = (RiskLevel.WEAK, RiskLevel.NORMAL, RiskLevel.AGGRESSIVE)
HITS = 200
"""Hits per list that are looked at; deeper ones hardly reach the first twenty."""
_ABSENT = 10**9


@dataclass(frozen=True)
class Choice:
    """A point of the grid.

    Attributes:
        k: rank constant.
        dense: weight of dense without a plan that gave candidates, and for each of ``LEVELS``.
        graph: int64 [15], position in ``GRAPH`` per cell.
    """

    k: int
    dense: tuple[float, ...]
    graph: np.ndarray


@dataclass(frozen=True)
class Tabulated:
    """One dataset.

    Attributes:
        name: of the dataset.
        cell: int64 [queries], level * 5 + bucket; -1 where no plan gave candidates.
        metrics: (weight of dense, k) -> float32 [weights of graph, 4, queries].
        parts: list -> float32 [4, queries], that list alone.
    """

    name: str
    cell: np.ndarray
    metrics: dict[tuple[float, int], np.ndarray]
    parts: dict[str, np.ndarray]

    def of(self, choice: Choice) -> np.ndarray:
        """Metrics per query, float32 [4, queries]."""
        column = np.where(self.cell < 0, 0, choice.graph[np.maximum(self.cell, 0)])
        level = np.where(self.cell < 0, 0, self.cell // len(BUCKETS) + 1)
        values = np.stack(
            [self.metrics[dense, choice.k][column, :, np.arange(len(self.cell))] for dense in choice.dense]
        )
        return values[level, np.arange(len(self.cell))].T


def tabulated(home: Path, dataset: str) -> Tabulated:
    """Metrics of each training and validation question for every point of the grid."""
    store = ArtifactStore(home / "store")
    queries = QUERIES.read(store.require(dataset, "questions/queries"))
    queries = queries[(queries["split"] != "test") & (queries["answer_ids"].map(len) > 0)].reset_index(drop=True)
    ranked = {name: Ranked.read(store.require(dataset, f"ranking/{name}")) for name in LISTS}
    with connect(store.require(dataset, "skb/store").file(SKB_FILE), read_only=True) as con:
        canonical = canonical_positions(con)
    pairs = Pairs.of(queries, {name: own.for_fusion() for name, own in ranked.items()}, canonical)
    metrics = {
        (dense, k): np.stack([pairs.metrics((graph, 1.0, dense), k) for graph in GRAPH])
        for dense, k in product(DENSE, K)
    }
    outcomes = ranked["graph"].outcomes
    assert outcomes is not None
    told = outcomes.set_index("query_id").loc[queries["query_id"]]
    cell = [
        LEVELS.index(RiskLevel(level)) * len(BUCKETS) + BUCKETS.index(bucket)
        if bucket in BUCKETS and level in [*LEVELS]
        else -1
        for level, bucket in zip(told["risk_level"], told["bucket"], strict=True)
    ]
    alone = {name: pairs.metrics(np.eye(3)[i], 60) for i, name in enumerate(LISTS)}
    return Tabulated(dataset, np.array(cell), metrics, alone)


@dataclass(frozen=True)
class Pairs:
    """The distinct (query, node) of the lists: query, canonical position, ranks [lists, pairs], whether an answer."""

    query: np.ndarray
    canonical: np.ndarray
    ranks: np.ndarray
    answer: np.ndarray
    n_answers: np.ndarray

    @classmethod
    def of(cls, queries: pd.DataFrame, lists: dict[str, pd.DataFrame], canonical: np.ndarray) -> Pairs:
        """From frames of the ranking contract."""
        index, nodes = pd.Index(queries["query_id"]), len(canonical)
        codes = []
        for frame in lists.values():
            own = frame[frame["rank"] <= HITS]
            query = index.get_indexer(own["query_id"])
            kept = query >= 0
            codes.append((query[kept] * nodes + own["node_id"].to_numpy()[kept], own["rank"].to_numpy()[kept]))
        distinct = np.unique(np.concatenate([code for code, _ in codes]))
        ranks = np.full((len(codes), len(distinct)), _ABSENT)
        for own_ranks, (code, rank) in zip(ranks, codes, strict=True):
            own_ranks[np.searchsorted(distinct, code)] = rank
        answers = queries["answer_ids"].map(set)
        known = [q * nodes + a for q, own in enumerate(answers) for a in own if a >= 0]
        return cls(
            distinct // nodes, canonical[distinct % nodes], ranks, np.isin(distinct, known), answers.map(len).to_numpy()
        )

    def metrics(self, weights: Sequence[float], k: int) -> np.ndarray:
        """Hit@1, Hit@5, Recall@20 and MRR (of 100) of each query under one weighting."""
        terms = np.where(self.ranks < _ABSENT, np.asarray(weights)[:, None] / (k + self.ranks), 0.0)
        score = terms.sum(axis=0).round(13)
        order = np.lexsort((self.canonical, self.ranks.min(axis=0), -score, self.query))
        order = order[score[order] > 0]
        query = self.query[order]
        place = np.arange(len(query)) - np.searchsorted(query, query) + 1
        found = self.answer[order] & (place <= 100)
        n = len(self.n_answers)
        first = np.full(n, _ABSENT)
        np.minimum.at(first, query[found], place[found])
        recalled = np.bincount(query[found & (place <= 20)], minlength=n)
        listed = first < _ABSENT
        return np.stack([first == 1, first <= 5, recalled / self.n_answers, listed / first]).astype(np.float32)


def fitted(datasets: Sequence[Tabulated]) -> tuple[Choice, float]:
    """The best choice, and its mean of the four metrics over datasets."""
    best: tuple[Choice, float] | None = None
    shape = len(LEVELS), len(BUCKETS), len(GRAPH)
    for k in K:
        gain = {}
        for dense in DENSE:
            values = [
                (own.cell, own.metrics[dense, k].mean(axis=1) / len(own.cell) / len(datasets)) for own in datasets
            ]
            if dense == 1:
                silent = sum(float(value[0, cell < 0].sum()) for cell, value in values)
            cells = range(shape[0] * shape[1])
            gain[dense] = sum(
                np.stack([value[:, cell == c].sum(axis=1) for c in cells]).astype(float) for cell, value in values
            ).reshape(shape)
        for falling in combinations_with_replacement(sorted(DENSE, reverse=True), len(LEVELS)):
            own = np.stack([gain[dense][level] for level, dense in enumerate(falling)])
            table, value = best_table(own)
            value += silent
            if best is None or value > best[1] + 1e-9:
                best = Choice(k, (1.0, *falling), table.ravel()), value
    assert best is not None
    return best


def best_table(gain: np.ndarray) -> tuple[np.ndarray, float]:
    """The table of highest gain among those that never rise along buckets nor fall along levels.

    Args:
        gain: float64 [levels, buckets, weights].

    Returns:
        int64 [levels, buckets], and its gain.
    """
    levels, buckets, weights = gain.shape
    columns = np.array(list(combinations_with_replacement(range(weights), levels)))
    value = np.zeros(len(columns))
    came: list[np.ndarray] = []
    allowed = (columns[:, None, :] <= columns[None, :, :]).all(axis=2)  # [this bucket, the one before]
    for bucket in range(buckets):
        own = gain[np.arange(levels), bucket, columns].sum(axis=1)
        if bucket:
            reach = np.where(allowed, value[None, :], -np.inf)
            before = reach.argmax(axis=1)
            came.append(before)
            value = own + reach[np.arange(len(columns)), before]
        else:
            value = own
    at = int(value.argmax())
    chosen, total = [at], float(value[at])
    for before in reversed(came):
        at = int(before[at])
        chosen.append(at)
    return columns[chosen[::-1]].T, total


def line(values: np.ndarray) -> str:
    """Means of the four metrics."""
    return " ".join(f"{mean:.3f}" for mean in values.mean(axis=1))


def main() -> None:
    """Fit, judge and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("datasets", nargs="*", metavar="HOME:DATASET", default=[f"{Workspace().root}:demo"])
    asked = [text.rsplit(":", 1) for text in parser.parse_args().datasets]
    datasets = [tabulated(Path(home), name) for home, name in asked]
    print(f"training and validation questions; {', '.join(METRICS)}")
    for own in datasets:
        print(f"\n{own.name}: {len(own.cell)} questions, {int((own.cell >= 0).sum())} with a plan that found something")
        for name, values in own.parts.items():
            print(f"  {name:<28}{line(values)}")
        cells = len(LEVELS) * len(BUCKETS)
        alike = (1.0,) * (len(LEVELS) + 1)
        text = Choice(60, alike, np.zeros(cells, dtype=np.int64))
        print(f"  {'bm25, dense alike':<28}{line(own.of(text))}")
        print(f"  {'graph, bm25, dense alike':<28}{line(own.of(Choice(60, alike, np.full(cells, GRAPH.index(1.0)))))}")
        for what, others in (("without it", [d for d in datasets if d is not own]), ("on all", datasets)):
            if others:
                choice, _ = fitted(others)
                print(f"  {'fitted ' + what:<28}{line(own.of(choice))}   k {choice.k}, dense {choice.dense}")
    choice, value = fitted(datasets)
    counts = sum(np.bincount(own.cell[own.cell >= 0], minlength=len(choice.graph)) for own in datasets)
    print(f"\non all: mean {value:.3f}; k {choice.k}; weight of dense without a plan {choice.dense[0]:g}")
    for i, level in enumerate(LEVELS):
        cells = slice(i * len(BUCKETS), (i + 1) * len(BUCKETS))
        own = zip(BUCKETS, choice.graph[cells], counts[cells], strict=True)
        graph = "  ".join(f"{bucket}: {GRAPH[at]:g} ({n} questions)" for bucket, at, n in own)
        print(f"  {level.value:<12}dense {choice.dense[i + 1]:g}   graph {graph}")


if __name__ == "__main__":
    main()
