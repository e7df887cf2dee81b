from collections.abc import Iterator
from contextlib import ExitStack

import duckdb
import pytest

from skb_pipeline.plans.plan import PlanStatus
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.conformance.compare import assert_same
from skb_pipeline_tests.conformance.engines import ENGINES
from skb_pipeline_tests.conformance.graphs import TINY_GRAPHS, Case, TinyGraph, loaded
from skb_pipeline_tests.conformance.oracle import evaluate

CASES = [pytest.param(tiny, case, id=f"{tiny.name}-{i}") for tiny in TINY_GRAPHS for i, case in enumerate(tiny.cases)]


@pytest.mark.parametrize(("tiny", "case"), CASES)
def test_oracle_gives_the_answers_worked_out_by_hand(tiny: TinyGraph, case: Case) -> None:
    assert validate(case.plan, tiny.schema).status is PlanStatus.VALID
    got = evaluate(tiny.graph.oracle(), case.plan, case.bindings, tiny.schema)
    assert got.answers == case.answers
    assert (tuple(got.met), got.lacking) == (case.met, case.lacking)


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, duckdb.DuckDBPyConnection]]:
    """A store of each tiny graph, by its name."""
    with ExitStack() as stack:
        yield {tiny.name: stack.enter_context(loaded(tiny.graph)) for tiny in TINY_GRAPHS}


@pytest.mark.parametrize("limit", [1000, 2])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("tiny", "case"), CASES)
def test_engine_gives_the_answers_worked_out_by_hand(
    tiny: TinyGraph, case: Case, engine: str, limit: int, stores: dict[str, duckdb.DuckDBPyConnection]
) -> None:
    result = ENGINES[engine](stores[tiny.name], case.plan, tiny.schema, case.bindings, limit)
    assert_same(result, case.answers, limit)
    assert (result.met, result.lacking) == (case.met, case.lacking)
