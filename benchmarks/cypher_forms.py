"""Time of two-anchor plans over Bolt: this project's executor against a plain form that unwinds both candidate lists.

The plain form is what a plan reads like: one UNWIND per anchor, one MATCH per hop. It makes |A| x |B| rows before the
first hop. Our time is that of a whole execution, with its check of the candidates. Both run on the same server over the
same synthetic graph (authors, papers and fields with Zipf popularity), in turn; equal answers, scores and counts are
asserted before a ratio is printed. The server is the one packaged for the tests, or that of NEO4J_URI (an empty
database).

    python benchmarks/cypher_forms.py --edges 100000 --candidates 20
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import numpy as np

from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.plans.names import COMMON_LABEL, GraphNames, quote
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline_tests.bolt_loader import GraphRows
from skb_pipeline_tests.bolt_server import BoltServer, external_server, packaged_server

SCHEMA = GraphSchema(
    ("author", "paper", "field"),
    (Triple("author", "writes", "paper"), Triple("paper", "has topic", "field")),
    ("paper",),
)
PLAN = Plan.model_validate(
    {
        "anchors": [
            {"var": "f", "text": "speech recognition", "label": "field"},
            {"var": "w", "text": "Ada Lovelace", "label": "author"},
        ],
        "hops": [
            {"from": "f", "rel": "has topic", "to_var": "T", "to_label": "paper"},
            {"from": "w", "rel": "writes", "to_var": "T", "to_label": "paper"},
        ],
        "target": {"labels": ["paper"]},
    }
)


def make_graph(n_edges: int, rng: np.random.Generator) -> GraphRows:
    """Half of the edges are ``writes``, half ``has topic``; papers are a fifth of the edges in number."""
    sizes = {"author": n_edges // 10, "paper": n_edges // 5, "field": max(n_edges // 500, 20)}
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    nodes = [(first[kind] + i, kind, first[kind] + i) for kind, n in sizes.items() for i in range(n)]
    pairs = []
    for relation, kind in (("writes", "author"), ("has topic", "field")):
        weights = 1 / np.arange(1, sizes[kind] + 1)
        others = first[kind] + rng.choice(sizes[kind], n_edges // 2, p=weights / weights.sum())
        papers = first["paper"] + rng.integers(0, sizes["paper"], n_edges // 2)
        for other, paper in sorted(set(zip(others.tolist(), papers.tolist(), strict=True))):
            pairs.append((other, relation, paper) if relation == "writes" else (paper, relation, other))
    return GraphRows(nodes, [(i, head, relation, tail) for i, (head, relation, tail) in enumerate(pairs)])


def make_bindings(rows: GraphRows, n: int, n_candidates: int, rng: np.random.Generator) -> Iterator[Bindings]:
    """Candidates around a random paper with an author and a topic, so that there is an answer."""
    writers = {tail: head for _, head, relation, tail in rows.edges if relation == "writes"}
    topics = {head: tail for _, head, relation, tail in rows.edges if relation == "has topic"}
    papers = sorted(writers.keys() & topics.keys())
    pools = {kind: [node for node, k, _ in rows.nodes if k == kind] for kind in ("field", "author")}
    for paper in rng.choice(papers, n).tolist():
        bindings = {}
        for var, kind, true in (("f", "field", topics[paper]), ("w", "author", writers[paper])):
            more = rng.choice(pools[kind], n_candidates, replace=False).tolist()
            ids = list(dict.fromkeys([true, *more]))[:n_candidates]
            bindings[var] = (np.array(ids), np.sort(rng.uniform(0.5, 1.0, len(ids)))[::-1])
        yield bindings


def plain_form(names: GraphNames) -> str:
    """Both candidate lists unwound, then one MATCH per hop."""
    common, paper = quote(COMMON_LABEL), names.label("paper")
    return (
        "UNWIND $f AS b0 UNWIND $w AS b1\n"
        f"MATCH (x0:{common} {{nodeId: b0.id}}) WHERE x0:{names.label('field')}\n"
        f"MATCH (x1:{common} {{nodeId: b1.id}}) WHERE x1:{names.label('author')}\n"
        f"MATCH (x0)-[:{names.relation_type('has topic')}]-(t:{paper})\n"
        f"MATCH (x1)-[:{names.relation_type('writes')}]-(t)\n"
        "WITH t.nodeId AS id, t.canonical AS canonical, max(b0.cosine + b1.cosine) AS score\n"
        "ORDER BY score DESC, canonical\n"
        "WITH collect([id, score]) AS answers\n"
        "RETURN size(answers) AS n_cand, answers[..$limit] AS answers"
    )


def compare(server: BoltServer, cases: list[Bindings], limit: int) -> np.ndarray:
    """Milliseconds per case of the plain form and of ours, float64 [n_cases, 2]."""
    executor = BoltExecutor(server.driver, SCHEMA, server.database)
    plain = plain_form(executor.names)
    times = []
    for bindings in cases:
        lists = {
            var: [{"id": i, "cosine": c} for i, c in zip(*(x.tolist() for x in pair), strict=True)]
            for var, pair in bindings.items()
        }
        start = time.perf_counter()
        (record,) = server.driver.execute_query(plain, {**lists, "limit": limit}, database_=server.database).records
        plain_time = (time.perf_counter() - start) * 1000
        result = executor.execute(PLAN, bindings, limit=limit)
        got = [list(pair) for pair in zip(result.node_ids.tolist(), result.scores.tolist(), strict=True)]
        if (result.n_cand, got) != (record["n_cand"], record["answers"]) or not got:
            raise AssertionError(f"the forms differ: {got} and {record}")
        times.append((plain_time, result.milliseconds))
    return np.array(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--plans", type=int, default=30)
    parser.add_argument("--candidates", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    rows = make_graph(args.edges, rng)
    with external_server() if os.environ.get("NEO4J_URI") else packaged_server() as server:
        start = time.perf_counter()
        server.hold(rows, SCHEMA)
        print(f"{len(rows.nodes)} nodes, {len(rows.edges)} edges loaded in {time.perf_counter() - start:.0f} s")
        compare(server, list(make_bindings(rows, 40, min(args.candidates), rng)), args.limit)  # warms the server up
        for n in args.candidates:
            times = compare(server, list(make_bindings(rows, args.plans, n, rng)), args.limit)
            plain, ours = np.median(times, axis=0)
            print(
                f"{n} x {n} candidates, {args.plans} plans: plain {plain:.1f} ms, ours {ours:.1f} ms (medians); "
                f"ratio {plain / ours:.1f}, of sums {times[:, 0].sum() / times[:, 1].sum():.1f}"
            )


if __name__ == "__main__":
    main()
