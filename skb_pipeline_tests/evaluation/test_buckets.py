"""Buckets of missed questions: hand-made questions whose bucket is known, one and more for each rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from skb_pipeline.evaluation.buckets import (
    FOUND,
    REACH_ENTRIES,
    WIDE,
    Bucket,
    Listed,
    Reach,
    bucket_table,
    buckets_markdown,
    build_misses,
    reachable,
    wide_buckets,
)
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline_tests.evaluation.cases import queries_of, ranking_of
from skb_pipeline_tests.toy import toy_spec

BRAND, OTHER_BRAND, CHAIN, ISLAND = 0, 1, range(10, 16), 30
"""The brand has products 10 and 40 to 69; 10 to 15 were bought one with the next; 1 and 30 have no edge."""
FILLER = range(100, 200)
OF_BRAND = {
    "anchors": [{"var": "a0", "text": "brand", "label": "brand"}],
    "hops": [{"from": "a0", "rel": "has_brand", "to_var": "T", "to_label": "product"}],
    "target": {"labels": ["product"]},
}
SEARCH = {"anchors": [], "target": {"labels": ["brand"]}, "retrieval_mode": "doc_search"}


@pytest.fixture(scope="module")
def graph() -> CsrGraph:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE nodes (node_id BIGINT, node_type VARCHAR, canonical BIGINT)")
        con.executemany("INSERT INTO nodes VALUES (?, ?, ?)", [(i, t, i) for i, t in NODES["node_type"].items()])
        con.execute("CREATE TABLE edges (edge_id BIGINT, head BIGINT, relation VARCHAR, tail BIGINT)")
        edges = [(i, "has_brand", BRAND) for i in (CHAIN[0], *range(40, 70))]
        edges += [(i, "also_buy", i + 1) for i in CHAIN[:-1]]
        con.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", [(n, *edge) for n, edge in enumerate(edges)])
        return CsrGraph.from_skb(con)


NODES = pd.DataFrame(
    [(i, f"x{i}", "brand" if i < 10 else "product") for i in (0, 1, *CHAIN, ISLAND, *range(40, 70), *FILLER)],
    columns=["node_id", "external_id", "node_type"],
).set_index("node_id")


def outcome(
    *, plan: dict[str, Any] | None = OF_BRAND, linked: Sequence[int] = (BRAND,), n_cand: int = 31, told: str = "ok",
    cause: str = "planned", unlinked: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    links = [
        {"external_id": f"x{i}", "node_type": NODES.loc[i, "node_type"], "name": "", "cosine": 1.0} for i in linked
    ]
    hops = plan is not None and "hops" in plan
    return {
        "plan": None if plan is None else json.dumps(plan), "links": json.dumps({"a0": links} if hops else {}),
        "unlinked": json.dumps({"a0": unlinked} if unlinked else {}), "n_cand": n_cand, "cause": cause,
        "outcome": told if plan is not None else "no_plan",
    }  # fmt: skip


def at(rank: int, node: int) -> list[int]:
    return [*FILLER[: rank - 1], node]


KEPT = [10, *range(40, 70)]
CASES: dict[str, tuple[list[int], set[int] | None, dict[str, Any], list[int], tuple[str, str | None, str]]] = {
    # answers, gold anchors, outcome, list of the plan system, expected (bucket, cause, rule)
    "absent": ([-1, -2], {BRAND}, outcome(linked=[]), KEPT, ("answer not in the SKB", None, None)),
    "one absent": ([-1, 12], None, outcome(), KEPT, ("wrong plan", None, "any anchor")),
    "gold not linked": ([12], {BRAND, OTHER_BRAND}, outcome(), KEPT, ("not linked", None, "gold anchors")),
    "wrong node linked": ([10], {BRAND}, outcome(linked=[1], n_cand=0), [], ("not linked", None, "gold anchors")),
    "not linked, though listed": ([69], {1}, outcome(), at(25, 69), ("not linked", None, "gold anchors")),
    "nothing linked": ([12], None, outcome(linked=[], n_cand=0, unlinked="no such name"), [],
                       ("not linked", "a0: no such name", "any anchor")),
    "no mention": ([12], None, outcome(plan=None, cause="no_mention"), at(30, 12),
                   ("not linked", "no_mention", "any anchor")),
    "no plan": ([12], {BRAND}, outcome(plan=None, cause="not_json"), at(30, 12),
                ("no plan", "not_json", "gold anchors")),
    "wrong plan": ([12], {BRAND}, outcome(), KEPT, ("wrong plan", None, "gold anchors")),
    "too far": ([13], {BRAND}, outcome(), KEPT, ("unreachable", None, "gold anchors")),
    "on an island": ([ISLAND], None, outcome(), KEPT, ("unreachable", None, "any anchor")),
    "stopped": ([12], None, outcome(told="row_limit", n_cand=0), at(30, 12), ("cut", "row_limit", "any anchor")),
    "stopped on an island": ([ISLAND], None, outcome(told="timeout", n_cand=0), [],
                             ("unreachable", None, "any anchor")),
    "not kept": ([69], {BRAND}, outcome(), KEPT[:5], ("cut", None, "gold anchors")),
    "not kept, no candidate": ([12], {BRAND}, outcome(), KEPT[:5], ("wrong plan", None, "gold anchors")),
    "below": ([69], {BRAND}, outcome(), KEPT, ("ranked below", None, "gold anchors")),
    "search of others": ([12], {BRAND}, outcome(plan=SEARCH, n_cand=2), [0, 1],
                         ("wrong plan", None, "document search")),
    "search cut": ([1], {BRAND}, outcome(plan=SEARCH, n_cand=2), [0], ("cut", None, "document search")),
}  # fmt: skip


def judged(
    graph: CsrGraph | None, lists: dict[str, dict[str, list[int]]] | None = None, entries: int = REACH_ENTRIES
) -> pd.DataFrame:
    gold = [None if anchors is None else [{"var": f"a{n}", "node_id": a} for n, a in enumerate(sorted(anchors))]
            for _, anchors, *_ in CASES.values()]  # fmt: skip
    queries = queries_of({name: case[0] for name, case in CASES.items()})
    queries["anchor_ids"] = pd.Series(gold, dtype=object)
    outcomes = pd.DataFrame([{"query_id": name, **case[2]} for name, case in CASES.items()])
    systems = {"graph": Listed(ranking_of({name: case[3] for name, case in CASES.items()}), "graph", outcomes)}
    for name, own in (lists or {}).items():
        systems[name] = Listed(ranking_of(own), None if name == "bm25" else "graph")
    reach = Reach(graph, None if graph is None else GraphSchema.from_spec(toy_spec()), entries=entries)
    return build_misses(queries, systems, list(systems), NODES, reach)


def of(misses: pd.DataFrame, system: str) -> dict[str, tuple[Any, ...]]:
    rows = misses[misses["system"] == system].astype(object).where(misses.notna(), None)
    return {r.query_id: (r.bucket, r.cause, r.rule) for r in rows.itertuples()}


@pytest.fixture(scope="module")
def own(graph: CsrGraph) -> dict[str, tuple[Any, ...]]:
    return of(judged(graph), "graph")


@pytest.mark.parametrize("name", CASES)
def test_the_bucket_of(name: str, own: dict[str, tuple[Any, ...]]) -> None:
    assert own[name] == CASES[name][4]


def test_a_system_of_parts_shares_the_plans_and_has_its_own_list(graph: CsrGraph) -> None:
    lists = {"below": at(20, 69), "not kept": at(21, 69), "wrong plan": at(40, 12), "absent": []}
    fused = of(judged(graph, {"fused": lists, "bm25": lists}), "fused")
    assert fused["below"] == (None, None, None)  # rank 20 is found
    assert fused["not kept"] == ("ranked below", None, "gold anchors")
    assert fused["wrong plan"] == ("wrong plan", None, "gold anchors")  # asked before its own list is
    assert fused["search cut"] == ("cut", None, "document search")


def test_a_system_without_plans_is_asked_for_its_list_alone(graph: CsrGraph) -> None:
    misses = judged(graph, {"bm25": {"below": at(20, 69), "wrong plan": at(40, 12)}})
    text = of(misses, "bm25")
    assert text["below"] == (None, None, None)
    assert text["wrong plan"] == ("ranked below", None, "text")
    assert text["no plan"] == ("cut", None, "text")
    assert text["absent"] == ("answer not in the SKB", None, "text")
    ranks = misses[misses["system"] == "bm25"].set_index("query_id")["rank"]
    assert (ranks["below"], ranks["wrong plan"], pd.isna(ranks["no plan"])) == (20, 40, True)


def test_without_a_graph_nothing_is_called_unreachable() -> None:
    own = of(judged(None), "graph")
    assert own["on an island"] == ("wrong plan", "no graph", "any anchor")
    assert own["not kept, no candidate"][0] == "cut"


@pytest.mark.parametrize(
    ("anchors", "answers", "reached"),
    [([0], [10], True), ([0], [12], True), ([0], [13], False), ([0], [15, 11], True), ([15], [12], True),
     ([15], [11], False), ([ISLAND], [10], False), ([7], [10], False), ([10], [10], True), ([], [10], False)],
)  # fmt: skip
def test_three_edges_are_reachable(graph: CsrGraph, anchors: list[int], answers: list[int], reached: bool) -> None:
    assert reachable(graph, np.array(anchors, np.int64), np.array(answers, np.int64)) is reached


def test_reaching_ends_at_its_limit(graph: CsrGraph) -> None:
    # The answer's side is never larger here: from 13 two entries, then four; from the brand 31.
    far = np.array([0], np.int64), np.array([13], np.int64)
    assert reachable(graph, *far, entries=40) is False
    assert reachable(graph, *far, entries=30) is None


def test_an_answer_behind_many_neighbours_counts_as_reachable(graph: CsrGraph) -> None:
    own = of(judged(graph, entries=1), "graph")
    assert own["too far"] == ("wrong plan", "many neighbours", "gold anchors")


def test_buckets_add_up(graph: CsrGraph) -> None:
    misses = judged(graph)
    queries = queries_of({name: case[0] for name, case in CASES.items()}, template=None)
    queries.loc[queries["query_id"] == "below", "template"] = "one_hop"
    queries.loc[len(queries)] = {"query_id": "unanswered", "split": "test", "answer_ids": [], "template": "one_hop"}
    table = bucket_table(misses, queries)
    for _, part in table.groupby(["split", "slice"]):
        assert part["questions"].sum() == part["of"].iloc[0]
        assert part["bucket"].tolist() == [FOUND, *Bucket]
    (everything,) = wide_buckets(table, split="test")
    assert (everything["system"], everything["n"], everything[FOUND]) == ("graph", len(CASES), 0)
    assert [everything[b] for b in Bucket] == [1, 5, 1, 4, 3, 3, 1]
    assert wide_buckets(table, split="test", slice="template=one_hop") == [
        {"system": "graph", "n": 1, **dict.fromkeys(WIDE[2:], 0), "ranked below": 1}
    ]
    assert wide_buckets(table, split="val") == []
    assert "| graph | 18 | 0 | 1 | 5 | 1 | 4 | 3 | 3 | 1 |" in buckets_markdown(table, split="test")
