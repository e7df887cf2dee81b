"""In memory and as SQL over whole stores: the demo data set, and a real one where it is on the machine."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pytest

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.sql import execute_sql
from skb_pipeline.plans.results import GraphOutcome
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.conformance.compare import assert_same, check_plans_over_store
from skb_pipeline_tests.conformance.graphs import describe
from skb_pipeline_tests.conformance.oracle import OracleGraph, TooManyStepsError, evaluate
from skb_pipeline_tests.conformance.plans import plan_stream
from skb_pipeline_tests.shared_data import build_shared_skb, shared_spec

ROUTES = ("message_passing", "message_passing_top2", "enumeration")


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("demo") / "skb.duckdb"
    spec = get_spec("demo")
    ingest(spec, open_source(spec), path)
    with connect(path, read_only=True) as con:
        yield con


@pytest.fixture(scope="session")
def primekg_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path: Path = build_shared_skb("primekg_partial", tmp_path_factory.mktemp("primekg"))
    with connect(path, read_only=True) as con:
        yield con


def compare_engines(
    con: duckdb.DuckDBPyConnection, schema: GraphSchema, n: int, seed: int, *, oracle_steps: int
) -> Counter[str]:
    """Compare on ``n`` generated plans; gives what was covered. The oracle is asked where it needs few steps."""
    oracle = OracleGraph.load(con)
    executor = MemoryExecutor(CsrGraph.from_skb(con), schema, FieldValues.of(con, schema))
    covered: Counter[str] = Counter()
    for case in islice(plan_stream(oracle, schema, seed), n):
        context = describe(case.plan, case.bindings)
        result = executor.execute(case.plan, case.bindings, timeout_s=60)
        # A comparison that a limit ends says nothing.
        assert result.outcome in (GraphOutcome.OK, GraphOutcome.EMPTY), context
        expected = execute_sql(con, case.plan, schema, case.bindings)
        assert (result.outcome, result.n_cand) == (expected.outcome, expected.n_cand), context
        assert result.node_ids.tolist() == expected.node_ids.tolist(), context
        assert result.scores.tolist() == expected.scores.tolist(), context
        covered.update([result.route, result.outcome])
        try:
            answers = evaluate(oracle, case.plan, case.bindings, schema, max_steps=oracle_steps).answers
        except TooManyStepsError:
            continue
        assert_same(result, answers, 1000, context)
        covered["oracle"] += 1
    return covered


@pytest.mark.deep
def test_two_thousand_plans_over_the_demo(demo_store: duckdb.DuckDBPyConnection) -> None:
    schema = GraphSchema.from_spec(get_spec("demo"))
    covered = compare_engines(demo_store, schema, 2000, seed=5, oracle_steps=2000)
    assert covered["oracle"] > 1000, covered
    assert min(covered[route] for route in ROUTES) > 100, covered
    assert covered["ok"] > 1000, covered


def test_two_hundred_plans_over_the_demo(demo_store: duckdb.DuckDBPyConnection) -> None:
    covered = compare_engines(demo_store, GraphSchema.from_spec(get_spec("demo")), 200, seed=6, oracle_steps=2000)
    assert covered["oracle"] > 100, covered
    assert min(covered[route] for route in ROUTES) > 10, covered


@pytest.mark.deep
@pytest.mark.shared_data
def test_two_thousand_plans_over_a_part_of_primekg(primekg_store: duckdb.DuckDBPyConnection) -> None:
    schema = GraphSchema.from_spec(shared_spec("primekg_partial"))
    report = check_plans_over_store(primekg_store, schema, 2000, seed=77)
    assert report.compared == 2000
    assert min(report.routes[f"memory: {route}"] for route in ROUTES) > 100, report
    assert report.routes["sql: sql"] == 2000
