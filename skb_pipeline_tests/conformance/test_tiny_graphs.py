import pytest

from skb_pipeline.plans.plan import PlanStatus
from skb_pipeline.plans.validation import validate
from skb_pipeline_tests.conformance.compare import assert_same
from skb_pipeline_tests.conformance.engines import ENGINES
from skb_pipeline_tests.conformance.graphs import TINY_GRAPHS, Case, TinyGraph, loaded
from skb_pipeline_tests.conformance.oracle import enumerate_answers

CASES = [pytest.param(tiny, case, id=f"{tiny.name}-{i}") for tiny in TINY_GRAPHS for i, case in enumerate(tiny.cases)]


@pytest.mark.parametrize(("tiny", "case"), CASES)
def test_oracle_gives_the_answers_worked_out_by_hand(tiny: TinyGraph, case: Case) -> None:
    assert validate(case.plan, tiny.schema).status is PlanStatus.VALID
    got = enumerate_answers(
        tiny.graph.oracle(),
        case.plan,
        case.bindings,
        tiny.schema.candidate_types,
        symmetric=tiny.schema.symmetric,
    )
    assert got == case.answers


@pytest.mark.parametrize("limit", [1000, 2])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("tiny", "case"), CASES)
def test_engine_gives_the_answers_worked_out_by_hand(tiny: TinyGraph, case: Case, engine: str, limit: int) -> None:
    with loaded(tiny.graph) as con:
        result = ENGINES[engine](con, case.plan, tiny.schema, case.bindings, limit)
    assert_same(result, case.answers, limit)
