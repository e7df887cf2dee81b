"""The executor on a real server; that it gives the right answers is for ``conformance/test_bolt.py``."""

from itertools import pairwise

import pytest
from neo4j import Driver, GraphDatabase
from neo4j.exceptions import DriverError, Neo4jError

from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.graph.neo4j.cypher import compile_cypher
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings, GraphOutcome
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline_tests.bolt_loader import GraphRows, load
from skb_pipeline_tests.bolt_server import BoltServer
from skb_pipeline_tests.conformance.graphs import bind, make_plan

SCHEMA = GraphSchema(
    ("author", "paper"), (Triple("author", "writes", "paper"), Triple("paper", "cites", "paper")), ("paper",)
)
ROWS = GraphRows(
    nodes=[(10, "author", 0), (11, "author", 1), *((i, "paper", 10 - i) for i in range(1, 6))],
    edges=[
        (0, 10, "writes", 1),
        (1, 10, "writes", 2),
        (2, 10, "writes", 3),
        (3, 11, "writes", 3),
        (4, 1, "cites", 2),
        (5, 2, "cites", 1),
        (6, 4, "cites", 4),
    ],
)
BY_AUTHOR = make_plan({"a": "author"}, ["a -writes- T:paper"])


@pytest.fixture
def executor(bolt_server: BoltServer) -> BoltExecutor:
    bolt_server.hold(ROWS, SCHEMA)
    return BoltExecutor(bolt_server.driver, SCHEMA, bolt_server.database)


def _edges(server: BoltServer) -> list[tuple[int, str, int, int]]:
    text = "MATCH (a)-[r]->(b) RETURN r.edge_id, type(r), a.nodeId, b.nodeId ORDER BY r.edge_id"
    return [tuple(record.values()) for record in server.driver.execute_query(text, database_=server.database).records]


def test_count_is_taken_before_the_cap_and_ties_are_in_canonical_order(executor: BoltExecutor) -> None:
    result = executor.execute(BY_AUTHOR, bind(a={10: 0.5, 11: 0.25}), limit=2)
    assert (result.node_ids.tolist(), result.scores.tolist()) == ([3, 2], [0.5, 0.5])
    assert (result.n_cand, result.outcome, result.route) == (3, GraphOutcome.OK, "cypher")
    assert result.milliseconds > 0


def test_nodes_are_counted_within_the_graph(executor: BoltExecutor, bolt_server: BoltServer) -> None:
    assert executor.n_nodes == len(ROWS.nodes) == 7
    other = BoltExecutor(bolt_server.driver, SCHEMA, bolt_server.database, names=executor.names.within("elsewhere"))
    assert other.n_nodes == 0


def test_nothing_found_is_empty(executor: BoltExecutor) -> None:
    plan = make_plan({"a": "paper"}, ["a -cites- T:paper"])
    for bindings in (bind(a={5: 1.0}), bind(a={})):
        result = executor.execute(plan, bindings)
        assert (len(result.node_ids), result.n_cand, result.outcome) == (0, 0, GraphOutcome.EMPTY)


@pytest.mark.parametrize(
    ("plan", "bindings", "message"),
    [
        (BY_AUTHOR, bind(a={10: 0.5, 1: 0.5}), r"anchor 'a': nodes \[1\] are not of its label 'author'"),
        (BY_AUTHOR, bind(a={99: 0.5}), r"anchor 'a': nodes \[99\] are not of its label 'author'"),
        (
            make_plan({"a": "author", "n": "paper"}, ["a -writes- T:paper", "not T -cites- n:paper"]),
            bind(a={10: 0.5}, n={1: 0.5, 11: 0.5}),
            r"anchor 'n': nodes \[11\] are not of its label 'paper'",
        ),
        (BY_AUTHOR, {}, "anchor 'a' has no binding"),
    ],
)
def test_bindings_that_do_not_fit_are_refused(
    executor: BoltExecutor, plan: Plan, bindings: Bindings, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        executor.execute(plan, bindings)


@pytest.mark.parametrize(("limit", "timeout_s"), [(0, None), (-1, None), (5, 0), (5, -2.0), (5, float("nan"))])
def test_limits_that_make_no_sense_are_refused(executor: BoltExecutor, limit: int, timeout_s: float | None) -> None:
    with pytest.raises(ValueError, match="must be"):
        executor.execute(BY_AUTHOR, bind(a={10: 0.5}), limit=limit, timeout_s=timeout_s)


def test_a_second_load_changes_nothing_and_reciprocal_edges_stay_apart(
    executor: BoltExecutor, bolt_server: BoltServer
) -> None:
    types = {"writes": "WRITES", "cites": "CITES"}
    expected = [(i, types[relation], head, tail) for i, head, relation, tail in ROWS.edges]
    for _ in range(2):
        assert _edges(bolt_server) == expected
        assert bolt_server.count_nodes() == len(ROWS.nodes)
        load(bolt_server.driver, bolt_server.database, ROWS, SCHEMA)


def test_two_nodes_cannot_have_one_id(executor: BoltExecutor, bolt_server: BoltServer) -> None:
    with pytest.raises(Neo4jError):
        bolt_server.driver.execute_query("CREATE (:`_Entity_`:`Paper` {nodeId: 10})", database_=bolt_server.database)
    assert bolt_server.count_nodes() == len(ROWS.nodes)


def test_a_server_that_is_not_there_is_an_error_not_an_empty_answer() -> None:
    with GraphDatabase.driver("bolt://127.0.0.1:1", max_transaction_retry_time=0) as driver:
        executor = BoltExecutor(driver, SCHEMA)
        with pytest.raises(DriverError):
            executor.execute(BY_AUTHOR, bind(a={10: 0.5}))
        # Faults of the plan are found without the server.
        with pytest.raises(ValueError, match="not executable"):
            executor.execute(make_plan({"a": "author"}, ["a -cites- T:paper"]), bind(a={10: 0.5}))


def test_an_unknown_database_is_an_error(executor: BoltExecutor) -> None:
    elsewhere = BoltExecutor(executor.driver, SCHEMA, "nowhere")
    with pytest.raises(Neo4jError):
        elsewhere.execute(BY_AUTHOR, bind(a={10: 0.5}))


def _differs(
    server: BoltServer, request: pytest.FixtureRequest, reason: str, raises: type[BaseException] = AssertionError
) -> None:
    """Expect the failure that a known difference of the packaged server brings, and no other."""
    if server.packaged:
        reason = f"the packaged server {reason}"
        request.applymarker(pytest.mark.xfail(reason=reason, raises=raises, strict=True))


def test_a_slow_plan_ends_at_its_timeout(bolt_server: BoltServer, request: pytest.FixtureRequest) -> None:
    _differs(bolt_server, request, "ignores transaction timeouts")
    # Each hop of one relation multiplies the rows by about 20. A Neo4j server looks at its clock every two seconds.
    n_nodes, n_hops = 22, 4 if bolt_server.packaged else 7
    pairs = [(i, j) for i in range(n_nodes) for j in range(i)]
    rows = GraphRows([(i, "paper", i) for i in range(n_nodes)], [(k, i, "cites", j) for k, (i, j) in enumerate(pairs)])
    bolt_server.hold(rows, SCHEMA)
    chain = ["a", *(f"m{i}" for i in range(n_hops - 1)), "T"]
    plan = make_plan({"a": "paper"}, [f"{one} -cites- {other}:paper" for one, other in pairwise(chain)])
    executor = BoltExecutor(bolt_server.driver, SCHEMA, bolt_server.database)
    result = executor.execute(plan, bind(a={0: 1.0}), timeout_s=0.05)
    assert (result.outcome, result.n_cand) == (GraphOutcome.TIMEOUT, 0)


def test_plans_run_in_read_only_transactions(
    executor: BoltExecutor, bolt_server: BoltServer, request: pytest.FixtureRequest
) -> None:
    _differs(bolt_server, request, "accepts writes in a read transaction", raises=pytest.fail.Exception)
    with pytest.raises(Neo4jError):
        executor._read("CREATE (:`_Entity_` {nodeId: 77})", {}, None)


def test_the_server_warns_of_nothing(executor: BoltExecutor, bolt_server: BoltServer) -> None:
    if bolt_server.packaged:
        pytest.skip("the packaged server sends no notifications")
    plan = make_plan({"a": "author", "b": "author"}, ["a -writes- T:paper", "b -writes- T:paper", "T -cites- x:paper"])
    compiled = compile_cypher(plan, SCHEMA)
    driver: Driver = bolt_server.driver
    parameters = compiled.parameters(bind(a={10: 0.5}, b={11: 0.5}), 10)
    summary = driver.execute_query(compiled.text, parameters, database_=bolt_server.database).summary
    assert not summary.notifications
