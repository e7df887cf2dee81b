from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory import enumeration, message_passing
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor, top_answers
from skb_pipeline.plans.results import GraphOutcome, GraphResult
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline_tests.conformance.compare import assert_same
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, Graph, bind, describe, loaded, make_plan, random_graph
from skb_pipeline_tests.conformance.oracle import TooManyStepsError, evaluate
from skb_pipeline_tests.conformance.plans import plan_stream

SCHEMA = GraphSchema(
    ("paper", "author", "field", "venue"),
    (
        Triple("author", "writes", "paper"),
        Triple("paper", "cites", "paper"),
        Triple("paper", "topic", "field"),
        Triple("paper", "at", "venue"),
        Triple("field", "at", "venue"),
    ),
    ("paper",),
)
NODES = {**dict.fromkeys((1, 2, 3), "paper"), **dict.fromkeys((10, 11, 12), "author"), 20: "field", 30: "venue"}
EDGES = [
    *((a, "writes", p) for a in (10, 11, 12) for p in (1, 2)),
    (12, "writes", 3),
    (1, "cites", 2),
    (2, "cites", 3),
    *((p, "topic", 20) for p in (1, 2, 3)),
    (1, "at", 30),
    (20, "at", 30),
]


def executor_of(graph: Graph, schema: GraphSchema = SCHEMA) -> MemoryExecutor:
    with loaded(graph) as con:
        fields = FieldValues.of(con, schema)
        for field in schema.fields:  # read while the store is open
            fields.column(field.node_type, field.name)
            fields.node_ids(field.node_type)
        return MemoryExecutor(CsrGraph.from_skb(con), schema, fields)


@pytest.fixture(scope="module")
def executor() -> MemoryExecutor:
    return executor_of(Graph(NODES, EDGES))


A, B, C = {10: 0.5, 11: 0.25}, {11: 0.75, 12: 0.125}, {12: 0.5}


@pytest.mark.parametrize(
    ("route", "anchors", "hops"),
    [
        ("message_passing", "a", ["a -writes- T:paper", "T -topic- f:field"]),
        # Candidates 11 serve both anchors, so an edge could be used twice; candidates of a and c have none in common.
        ("message_passing_top2", "ab", ["a -writes- T:paper", "b -writes- T:paper"]),
        ("message_passing", "ac", ["a -writes- T:paper", "c -writes- T:paper"]),
        ("message_passing_top2", "a", ["a -writes- m:paper", "m -writes- u:author", "m -cites- T:paper"]),
        ("message_passing_top2", "a", ["a -writes- m:paper", "m -cites- k:paper", "k -cites- T:paper"]),
        # Directions leave the route as it is, also where they forbid that the hops share any edge but a self-loop.
        ("message_passing_top2", "a", ["a -writes- m:paper", "m -cites-> k:paper", "k -cites-> T:paper"]),
        ("message_passing_top2", "a", ["a -writes- m:paper", "m -cites-> k:paper", "k <-cites- T:paper"]),
        ("enumeration", "a", ["a -writes- m:paper", "m -cites-> T:paper", "T <-writes- u:author"]),
        # Both hops have one relation, but join other types: no edge fits both.
        ("message_passing", "a", ["a -writes- T:paper", "T -at- v:venue", "v -at- f:field"]),
        # Hops over one relation that do not meet, three hops over one, a cycle, parallel hops.
        ("enumeration", "a", ["a -writes- m:paper", "m -cites- T:paper", "T -writes- u:author"]),
        ("enumeration", "a", ["a -writes- m:paper", "m -writes- u:author", "u -writes- T:paper"]),
        ("enumeration", "a", ["a -writes- T:paper", "T -cites- m:paper", "a -writes- m:paper"]),
        ("enumeration", "a", ["a -writes- m:paper", "m -cites- T:paper", "T -cites- m:paper"]),
        ("enumeration", "a", ["a -writes- T:paper", "T -cites- T:paper"]),
    ],
)
def test_route_and_answers(executor: MemoryExecutor, route: str, anchors: str, hops: list[str]) -> None:
    plan = make_plan(dict.fromkeys(anchors, "author"), hops)
    bindings = bind(**{var: {"a": A, "b": B, "c": C}[var] for var in anchors})
    result = executor.execute(plan, bindings)
    assert result.route == route
    assert_same(result, evaluate(Graph(NODES, EDGES).oracle(), plan, bindings, SCHEMA).answers, 1000)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("order", "route"),
    [("axc", "message_passing"), ("xac", "message_passing"), ("acx", "enumeration"), ("cax", "enumeration")],
)
def test_scores_are_equal_to_the_last_bit_in_every_order_of_anchors(order: str, route: str, seed: int) -> None:
    """a and x are both behind m, whose best cannot be chosen before c is added unless c comes last in the sum."""
    rng = np.random.default_rng(seed)
    papers, authors, venues = range(1, 40), range(100, 110), range(200, 210)
    nodes = {**dict.fromkeys(papers, "paper"), **dict.fromkeys(authors, "author"), **dict.fromkeys(venues, "venue")}
    nodes |= dict.fromkeys(range(300, 305), "field")
    edges = {(int(rng.choice(authors)), "writes", int(rng.choice(papers))) for _ in range(150)}
    edges |= {(p, "at", int(rng.choice(venues))) for p in papers for _ in range(3)}
    edges |= {(p, "cites", int(rng.choice(papers))) for p in papers for _ in range(4)}
    edges |= {(p, "topic", int(rng.integers(300, 305))) for p in papers for _ in range(2)}
    graph = Graph(nodes, sorted(edges))
    kinds = {"a": ("author", authors), "x": ("venue", venues), "c": ("field", range(300, 305))}
    plan = make_plan(
        {var: kinds[var][0] for var in order},
        ["a -writes- m:paper", "m -at- x:venue", "m -cites- T:paper", "T -topic- c:field"],
    )
    tenths = [0.1, 0.2, 0.3, 0.4, 0.6, 0.7]  # equal sums of different tenths differ in their last bit
    bindings = bind(**{var: {node: float(rng.choice(tenths)) for node in kinds[var][1]} for var in order})
    result = executor_of(graph).execute(plan, bindings)
    assert result.route == route
    assert_same(result, evaluate(graph.oracle(), plan, bindings, SCHEMA).answers, 1000)


def test_an_anchor_with_one_cosine_does_not_hinder_message_passing() -> None:
    plan = make_plan(
        {"c": "field", "b": "author", "x": "venue"},
        ["b -writes- m:paper", "m -at- x:venue", "m -cites- T:paper", "T -topic- c:field"],
    )
    graph = Graph(NODES, [*EDGES, (2, "at", 30)])
    bindings = bind(c={20: 0.1}, b={11: 0.7, 12: 0.2}, x={30: 0.3})
    result = executor_of(graph).execute(plan, bindings)
    assert result.route == "message_passing"
    # In the order of anchors; 0.7 + 0.3 + 0.1 is another number.
    assert (result.node_ids.tolist(), result.scores.tolist()) == ([1, 2, 3], [0.1 + 0.7 + 0.3] * 3)
    assert 0.1 + 0.7 + 0.3 != 0.7 + 0.3 + 0.1


def test_random_plans_in_chunks_of_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that stop after every node and go on must give what whole loops give."""
    for module in (message_passing, enumeration):
        monkeypatch.setattr(module, "CHUNK", 1)
    graph = random_graph(8, 120, 700)
    oracle, executor = graph.oracle(), executor_of(graph, RANDOM_SCHEMA)
    routes: Counter[str] = Counter()
    for case in islice(plan_stream(oracle, RANDOM_SCHEMA, seed=21), 150):
        try:
            answers = evaluate(oracle, case.plan, case.bindings, RANDOM_SCHEMA, max_steps=5000).answers
        except TooManyStepsError:
            continue
        result = executor.execute(case.plan, case.bindings)
        assert_same(result, answers, 1000, describe(case.plan, case.bindings))
        routes[result.route] += 1
    assert min(routes[r] for r in ("message_passing", "message_passing_top2", "enumeration")) > 10, routes


HUB_PAPERS = 50_000


@pytest.fixture(scope="module")
def hub() -> MemoryExecutor:
    """A field with 50,000 papers, all but a few by an author of their own; paper 1 cites 2 and 3."""
    first = 1_000_000
    nodes = {1: "paper", 2: "paper", 3: "paper", first: "field", first + 1: "author", first + 2: "field"}
    nodes |= dict.fromkeys(range(10, 10 + HUB_PAPERS), "paper")
    edges = [(p, "topic", first) for p, kind in nodes.items() if kind == "paper"]
    edges += [(first + 1, "writes", p) for p in (1, 2, 3)] + [(1, "cites", 2), (1, "cites", 3), (3, "topic", first + 2)]
    return executor_of(Graph(nodes, edges))


def test_two_hops_through_a_hub(hub: MemoryExecutor) -> None:
    plan = make_plan({"p": "paper"}, ["p -topic- f:field", "f -topic- T:paper"])
    result = hub.execute(plan, bind(p={1: 0.5, 2: 0.25}))
    assert (result.outcome, result.route) == (GraphOutcome.OK, "message_passing_top2")
    assert result.n_cand == HUB_PAPERS + 3
    # Paper 1 is reached from 2 alone, since its own edge to the field is used by then.
    assert (result.node_ids[:2].tolist(), len(result.node_ids)) == ([2, 3], 1000)
    assert set(result.scores.tolist()) == {0.5}


def test_the_branch_with_few_edges_is_expanded_and_the_hub_only_looked_up(hub: MemoryExecutor) -> None:
    plan = make_plan({"f": "field", "a": "author"}, ["f -topic- T:paper", "a -writes- T:paper"])
    result = hub.execute(plan, bind(f={1_000_000: 0.5}, a={1_000_001: 0.25}))
    assert (result.node_ids.tolist(), result.scores.tolist()) == ([1, 2, 3], [0.75] * 3)
    assert result.touched_edges is not None
    assert result.touched_edges <= 10


def test_enumeration_through_a_hub_stops_by_its_row_limit_and_says_so(hub: MemoryExecutor) -> None:
    hops = ["p -topic- f:field", "f -topic- m:paper", "m -topic- g:field", "g -topic- T:paper"]
    plan, bindings = make_plan({"p": "paper"}, hops), bind(p={1: 0.5, 3: 0.25})
    stopped = hub.execute(plan, bindings, row_limit=1000)
    assert (stopped.outcome, stopped.route) == (GraphOutcome.ROW_LIMIT, "enumeration")
    assert (stopped.n_cand, len(stopped.node_ids), len(stopped.scores)) == (0, 0, 0)
    whole = hub.execute(plan, bindings, row_limit=1_000_000)
    # Only paper 3 has two fields, and its second one has no other paper.
    assert whole.outcome is GraphOutcome.EMPTY


@pytest.mark.parametrize(
    ("hops", "route"),
    [
        (["p -topic- f:field", "f -topic- T:paper"], "message_passing_top2"),
        (["p -cites- m:paper", "m -topic- f:field", "f -topic- T:paper"], "message_passing_top2"),
        (["p -topic- f:field", "f -topic- m:paper", "m -topic- g:field", "g -topic- T:paper"], "enumeration"),
    ],
)
def test_a_timeout_gives_no_answers_and_leaves_nothing_behind(
    hub: MemoryExecutor, hops: list[str], route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, bindings = make_plan({"p": "paper"}, hops), bind(p={1: 0.5, 2: 0.25})
    before = hub.execute(plan, bindings)
    # A deadline that passes after some chunks of work.
    looks = iter([False] * 2 + [True] * 1000)

    def check(self: message_passing.Meter) -> None:
        if next(looks):
            raise message_passing.TimeUpError

    with monkeypatch.context() as patch:
        for module in (message_passing, enumeration):
            patch.setattr(module, "CHUNK", 1)
        patch.setattr(message_passing.Meter, "check", check)
        stopped = hub.execute(plan, bindings)
    assert (stopped.outcome, stopped.route, stopped.n_cand) == (GraphOutcome.TIMEOUT, route, 0)
    assert (len(stopped.node_ids), len(stopped.scores)) == (0, 0)
    after = hub.execute(plan, bindings)
    assert (after.node_ids.tolist(), after.scores.tolist()) == (before.node_ids.tolist(), before.scores.tolist())
    assert after.n_cand == before.n_cand


def test_the_wall_clock_limit_is_kept(hub: MemoryExecutor) -> None:
    plan = make_plan({"p": "paper"}, ["p -topic- f:field", "f -topic- T:paper"])
    assert hub.execute(plan, bind(p={1: 0.5}), timeout_s=1e-9).outcome is GraphOutcome.TIMEOUT


def test_types_and_relations_that_have_no_nodes_or_edges() -> None:
    executor = executor_of(Graph({1: "paper", 10: "author"}, [(10, "writes", 1)]))
    bindings = bind(a={10: 0.5})
    plan = make_plan({"a": "author"}, ["a -writes- T:paper", "T -topic- f:field"])
    assert executor.execute(plan, bindings).outcome is GraphOutcome.EMPTY
    plan = make_plan({"a": "author"}, ["a -writes- T:paper", "not T -topic- f:field"])
    assert executor.execute(plan, bindings).node_ids.tolist() == [1]


def test_threads_share_an_executor(hub: MemoryExecutor) -> None:
    def run(hops: list[str]) -> GraphResult:
        return hub.execute(make_plan({"p": "paper"}, hops), bind(p={1: 0.5, 2: 0.25}))

    plans = [["p -topic- f:field", "f -topic- T:paper"], ["p -cites- T:paper"]]
    alone = [run(hops) for hops in plans]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, plans * 10))
    for result, expected in zip(together, alone * 10, strict=True):
        assert result.node_ids.tolist() == expected.node_ids.tolist()
        assert result.scores.tolist() == expected.scores.tolist()


@pytest.mark.parametrize("options", [{"limit": 0}, {"row_limit": 0}, {"timeout_s": 0.0}, {"timeout_s": float("nan")}])
def test_limits_must_make_sense(executor: MemoryExecutor, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        executor.execute(make_plan({"a": "author"}, ["a -writes- T:paper"]), bind(a=A), **options)  # type: ignore[arg-type]


def test_errors_of_the_caller(executor: MemoryExecutor) -> None:
    plan = make_plan({"a": "author"}, ["a -writes- T:paper"])
    with pytest.raises(ValueError, match=r"anchor 'a': nodes \[1, 999\] are not of its label 'author'"):
        executor.execute(plan, bind(a={999: 0.5, 10: 0.5, 1: 0.5}))
    with pytest.raises(ValueError, match="bound twice"):
        executor.execute(plan, {"a": (np.array([10, 10]), np.array([0.5, 0.5]))})
    with pytest.raises(ValueError, match="no binding"):
        executor.execute(plan, {})
    with pytest.raises(ValueError, match="not executable"):
        executor.execute(make_plan({"a": "author"}, ["a -cites- T:paper"]), bind(a=A))


@given(st.lists(st.sampled_from([0.5, 0.25, 1.0, -1.0]), min_size=1, max_size=30), st.integers(1, 35))
def test_top_answers_are_the_first_of_the_full_order(scores: list[float], limit: int) -> None:
    canonical = np.random.default_rng(len(scores)).permutation(len(scores)).astype(np.int32)
    values = np.array(scores)
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], canonical[i]))[:limit]
    assert top_answers(values, canonical, limit).tolist() == expected
