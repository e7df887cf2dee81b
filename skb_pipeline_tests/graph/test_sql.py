from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from skb_pipeline.graph.sql import compile_sql, execute_sql
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import GraphOutcome, check_bindings
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline_tests.conformance.graphs import Graph, bind, loaded, make_plan

SCHEMA = GraphSchema(
    ("paper", "author"), (Triple("author", "writes", "paper"), Triple("paper", "cites", "paper")), ("paper",)
)
PLAN = make_plan({"a": "author"}, ["a -writes- T:paper"])


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    nodes = {10: "author", 11: "author", **dict.fromkeys((3, 2, 1), "paper")}
    with loaded(Graph(nodes, [(10, "writes", 1), (10, "writes", 2), (11, "writes", 3), (1, "cites", 2)])) as con:
        yield con


def test_result_has_order_types_and_the_count_before_the_cap(con: duckdb.DuckDBPyConnection) -> None:
    result = execute_sql(con, PLAN, SCHEMA, bind(a={10: 0.5, 11: 0.5}), limit=2)
    assert result.node_ids.tolist() == [3, 2]  # canonical order among equal scores, not the order of ids
    assert result.n_cand == 3
    assert (result.outcome, result.route, result.touched_edges) == (GraphOutcome.OK, "sql", None)
    assert result.milliseconds > 0


def test_no_match_is_empty_and_not_an_error(con: duckdb.DuckDBPyConnection) -> None:
    result = execute_sql(con, PLAN, SCHEMA, bind(a={}))
    assert (result.outcome, result.n_cand, len(result.node_ids), len(result.scores)) == (GraphOutcome.EMPTY, 0, 0, 0)
    assert (result.node_ids.dtype, result.scores.dtype) == (np.int64, np.float64)


def test_bindings_of_dropped_anchors_are_ignored(con: duckdb.DuckDBPyConnection) -> None:
    assert execute_sql(con, PLAN, SCHEMA, bind(a={10: 0.5}, gone={999: 1.0})).n_cand == 2


@pytest.mark.parametrize(
    ("candidates", "message"),
    [({1: 0.5, 10: 0.1}, r"nodes \[1\] are not of its label 'author'"), ({999: 0.5}, r"nodes \[999\]")],
)
def test_a_bound_node_of_another_type_is_an_error(
    con: duckdb.DuckDBPyConnection, candidates: dict[int, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        execute_sql(con, PLAN, SCHEMA, bind(a=candidates))


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        ({}, "anchor 'a' has no binding"),
        ({"a": ([10], [0.5, 0.6])}, "one length"),
        ({"a": ([[10]], [[0.5]])}, "one length"),
        ({"a": ([10.5], [0.5])}, "integers"),
        ({"a": ([10, 10], [0.5, 0.6])}, "bound twice"),
        ({"a": ([10], [float("nan")])}, "not finite"),
    ],
)
def test_malformed_bindings_are_refused(bindings: dict[str, tuple[list[float], list[float]]], message: str) -> None:
    arrays = {var: (np.array(ids), np.array(cosines)) for var, (ids, cosines) in bindings.items()}
    with pytest.raises(ValueError, match=message):
        check_bindings(PLAN, arrays)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (make_plan({"a": "author", "b": "author"}, ["a -writes- T:paper"]), r"anchors\[1\]"),
        (make_plan({"a": "author"}, ["a -cites- T:paper"]), "does not join"),
        (
            Plan.model_validate(
                {
                    "anchors": [{"var": "q", "text": "x", "label": "paper", "match_mode": "doc"}],
                    "retrieval_mode": "doc_search",
                }
            ),
            "document search",
        ),
    ],
)
def test_plans_that_are_not_executable_are_refused(plan: Plan, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_sql(plan, SCHEMA)


@pytest.mark.parametrize("options", [{"limit": 0}, {"timeout_s": 0.0}, {"timeout_s": float("nan")}])
def test_limits_must_make_sense(con: duckdb.DuckDBPyConnection, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        execute_sql(con, PLAN, SCHEMA, bind(a={10: 0.5}), **options)  # type: ignore[arg-type]


def test_values_are_parameters_and_equal_names_share_one() -> None:
    plan = make_plan({"a": "author"}, ["a -writes- m:paper", "m -writes- b:author", "b -writes- T:paper"])
    compiled = compile_sql(plan, SCHEMA)
    assert sorted(compiled.fixed.values()) == ["author", "paper", "writes"]
    assert set(compiled.parameters(check_bindings(plan, bind(a={10: 0.5})), 7)) == {
        *compiled.fixed,
        "ids_0",
        "cosines_0",
        "limit",
    }
    assert not {"author", "paper", "writes"} & set(compiled.text.replace("(", " ").split())


def test_edges_are_read_where_a_direction_filters_and_nowhere_else() -> None:
    def uses(*hops: str) -> int:
        return compile_sql(make_plan({"a": "author"}, list(hops)), SCHEMA).text.count("edges e")

    assert uses("a -writes- m:paper", "m -cites- T:paper") == 0
    assert uses("a -writes-> m:paper", "m <-writes- b:author", "m -cites-> T:paper", "T <-cites- T:paper") == 1
    assert uses("a -writes-> m:paper", "m <-cites- T:paper", "not T -cites-> z:paper") == 2


def test_a_timeout_gives_no_answers_and_leaves_the_connection_usable() -> None:
    # A complete graph: five hops have about 60^5 matches.
    size = 60
    edges = [(i, "cites", j) for i in range(size) for j in range(size) if i != j]
    hops = ["a -cites- m0:paper", *(f"m{i} -cites- m{i + 1}:paper" for i in range(4)), "m4 -cites- T:paper"]
    plan = make_plan({"a": "paper"}, hops)
    with loaded(Graph(dict.fromkeys(range(size), "paper"), edges)) as con:
        result = execute_sql(con, plan, SCHEMA, bind(a={0: 0.5}), timeout_s=0.2)
        assert (result.outcome, result.n_cand, len(result.node_ids)) == (GraphOutcome.TIMEOUT, 0, 0)
        quick = make_plan({"a": "paper"}, ["a -cites- T:paper"])
        after = execute_sql(con, quick, SCHEMA, bind(a={0: 0.5}), timeout_s=30)
        assert (after.outcome, after.n_cand) == (GraphOutcome.OK, size - 1)


def test_a_timeout_before_the_statement_starts_still_counts() -> None:
    size = 60
    edges = [(i, "cites", j) for i in range(size) for j in range(size) if i != j]
    hops = ["a -cites- m0:paper", *(f"m{i} -cites- m{i + 1}:paper" for i in range(4)), "m4 -cites- T:paper"]
    with loaded(Graph(dict.fromkeys(range(size), "paper"), edges)) as con:
        result = execute_sql(con, make_plan({"a": "paper"}, hops), SCHEMA, bind(a={0: 0.5}), timeout_s=1e-9)
    assert result.outcome is GraphOutcome.TIMEOUT
