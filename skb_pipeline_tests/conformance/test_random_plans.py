import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline_tests.conformance.compare import check_case, check_plans_over_store
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, loaded, random_graph
from skb_pipeline_tests.conformance.plans import random_plans, small_cases, small_graphs
from skb_pipeline_tests.examples import examples

SOFT = (
    "optional",
    "several optional hops",
    "optional negation",
    "nothing required",
    "optional away from the target",
    "where on the target",
    "where on an anchor",
    "where on a free variable",
    "where on a negated end",
    "where and optional",
)
"""What extends the language of the paper."""


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_engines_agree_with_the_oracle_on_small_graphs(data: st.DataObject) -> None:
    graph = data.draw(small_graphs())
    with loaded(graph) as con:
        for _ in range(3):
            case = data.draw(small_cases(graph, directed=True, soft=True))
            check_case(con, graph.oracle(), RANDOM_SCHEMA, case, limit=data.draw(st.sampled_from([1, 3, 1000])))


def test_engines_agree_with_the_oracle_on_random_plans() -> None:
    with loaded(random_graph(3, 300, 2500)) as con:
        report = check_plans_over_store(con, RANDOM_SCHEMA, 150, seed=11, limit=50, max_steps=10_000)
    assert report.compared == 150
    assert report.empty < 75
    assert report.capped > 0
    # A change of the generator that loses a shape would make agreement mean less.
    for feature in (
        "1 anchors",
        "2 anchors",
        "3 anchors",
        "3 positive hops",
        "4 positive hops",
        "negation",
        "relation twice",
        "relation three times",
        "parallel hops",
        "self-loop hop",
        "shared free variable",
        "cycle",
        "several target labels",
        "no target label",
        "direction",
        "negated direction",
        *SOFT,
    ):
        assert report.features[feature] > 0, (feature, report)


@pytest.mark.deep
def test_engines_agree_with_the_oracle_on_a_thousand_plans() -> None:
    with loaded(random_graph(5, 1500, 30_000)) as con:
        report = check_plans_over_store(con, RANDOM_SCHEMA, 1000, seed=7)
    assert report.compared == 1000


def test_the_same_seed_gives_the_same_plans() -> None:
    with loaded(random_graph(3, 100, 400)) as con:
        one, two, other = (random_plans(con, RANDOM_SCHEMA, 20, seed) for seed in (1, 1, 2))
    assert [c.plan for c in one] == [c.plan for c in two]
    assert [c.plan for c in one] != [c.plan for c in other]
    assert all((a.bindings[v][0] == b.bindings[v][0]).all() for a, b in zip(one, two, strict=True) for v in a.bindings)
