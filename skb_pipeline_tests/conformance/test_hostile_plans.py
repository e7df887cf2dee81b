"""Ten thousand plans that are wrong, strange or hostile: each is executed or refused with a reason, none does harm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import duckdb
import numpy as np
import pytest

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.graph.neo4j.cypher import compile_candidate_check, compile_cypher
from skb_pipeline.graph.sql import compile_sql, execute_sql
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.plan import NOT_EXECUTED, Plan, PlanStatus, ValidatedPlan
from skb_pipeline.plans.results import Bindings, GraphOutcome, GraphResult
from skb_pipeline.plans.validation import clean_texts, validate
from skb_pipeline_tests.bolt_loader import GraphRows
from skb_pipeline_tests.bolt_server import BoltServer
from skb_pipeline_tests.conformance.graphs import loaded, random_graph
from skb_pipeline_tests.conformance.hostile_plans import SCHEMA, HostileCase, hostile_cases, with_hostile_names
from skb_pipeline_tests.conformance.plans import PlanCase, random_plans

GRAPH = with_hostile_names(random_graph(21, 60, 200))
NAMES = GraphNames.of(SCHEMA)
QUOTED = {
    NAMES.entity_label,
    *map(NAMES.label, SCHEMA.node_types),
    *map(NAMES.relation_type, SCHEMA.relations),
    *(NAMES.property_key(field.name) for field in SCHEMA.fields),
}
CYPHER_WORDS = {
    "UNWIND", "AS", "MATCH", "WHERE", "WITH", "RETURN", "ORDER", "BY", "DESC", "AND", "NOT", "EXISTS", "IN", "UNION",
    "ALL", "COUNT", "max", "size", "collect", "toString", "id", "cosine", "candidate", "candidates", "nodeId",
    "canonical", "score", "answers", "n_cand", "limit", "anchor", "fits", "edges", "n", "OR", "startNode", "DISTINCT",
    "has", "meets", "lacking", "part", "IS", "NULL", "coalesce", "true", "false", "CASE", "WHEN", "THEN", "ELSE", "END",
    "sum", "count",
}  # fmt: skip
NUMBERED = r"(?:t|[avrns]\d+|(?:ids|cosines|candidates|value)_\d+|\d+)"
"""Names that a compiler gives by itself."""
MANY = 10_000


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store that could be written to, so that a statement that writes would be seen."""
    with loaded(GRAPH) as con:
        yield con


@pytest.fixture(scope="module")
def base(con: duckdb.DuckDBPyConnection) -> list[PlanCase]:
    return random_plans(con, SCHEMA, 400, seed=23, max_hops=3)


def contents(con: duckdb.DuckDBPyConnection) -> list[Any]:
    """All tables and, of the graph's, number and content."""
    tables = con.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
    hashes = [
        con.execute(f"SELECT count(*), sum(hash(t)::HUGEINT)::VARCHAR FROM {name} t").fetchone()
        for name in ("nodes", "edges", "adjacency")
    ]
    return [tables, hashes]


@dataclass
class Seen:
    """What became of the cases."""

    status: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    executable: list[tuple[Plan, Bindings]] = field(default_factory=list)


def check_report(checked: ValidatedPlan) -> None:
    """Whatever is not executed is named with a reason, and the report can be stored as JSON."""
    assert bool(checked.dropped) == (checked.status is not PlanStatus.VALID)
    assert bool(checked.faults) == bool(checked.dropped)
    assert (checked.plan is None) == (checked.status is PlanStatus.FALLBACK)
    for dropped in checked.dropped:
        assert dropped.part
        assert dropped.reason
        assert len(dropped.part) < 300
        # Names of the schema that are listed as allowed make a reason long, never what a plan holds.
        assert len(dropped.reason) < 2000
    assert ValidatedPlan.model_validate_json(checked.model_dump_json()) == checked


def check_texts(plan: Plan) -> None:
    """The statements hold names of the store and words of the compiler, and nothing of the plan's own."""
    cypher = compile_cypher(plan, SCHEMA, names=NAMES).text
    for text in (cypher, compile_candidate_check(plan, NAMES)):
        quoted = re.findall(r"`(?:[^`]|``)+`", text)
        assert {*quoted} <= QUOTED, text
        rest = re.sub(r"`(?:[^`]|``)+`", "", text)
        words = {*re.findall(r"[^\W]+", rest)}
        assert all(word in CYPHER_WORDS or re.fullmatch(NUMBERED, word) for word in words), words
        assert not {*rest} & {*"'\"`;\\/%#"}, rest
    sql = compile_sql(plan, SCHEMA)
    letters = "'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz'"
    assert re.fullmatch(r"[A-Za-z0-9_.,()<>= +:$\[\]*/\n]+", sql.text.replace(letters, "")), sql.text
    assert "/*" not in sql.text
    assert not {*map(str, re.findall(r"\w+", sql.text))} & {"DROP", "DELETE", "INSERT", "UPDATE", "ATTACH", "COPY"}


def bound(plan: Plan, bindings: Bindings, rng: np.random.Generator) -> Bindings:
    """The case's candidates where an anchor still has its label, else others."""
    found = {}
    for anchor in plan.anchors:
        of_label = np.array([node for node, kind in GRAPH.nodes.items() if kind == anchor.label])
        ids, cosines = bindings.get(anchor.var, (np.empty(0, dtype=np.int64), np.empty(0)))
        if not np.isin(ids, of_label).all() or not len(ids):
            ids = rng.choice(of_label, 3, replace=False)
            cosines = rng.random(3)
        found[anchor.var] = ids, cosines
    return found


def same(one: GraphResult, other: GraphResult) -> bool:
    answers = np.array_equal(one.node_ids, other.node_ids) and np.array_equal(one.scores, other.scores)
    counts = (one.optional, one.met, one.lacking) == (other.optional, other.met, other.lacking)
    return (one.outcome, one.n_cand) == (other.outcome, other.n_cand) and answers and counts


def execute(
    con: duckdb.DuckDBPyConnection, executor: MemoryExecutor, plan: Plan, bindings: Bindings, seen: Seen
) -> None:
    """In memory and as SQL, with tight limits; equal unless a limit ended one."""
    in_memory = executor.execute(plan, bindings, row_limit=50_000, timeout_s=5)
    in_sql = execute_sql(con, plan, SCHEMA, bindings, timeout_s=5)
    limits = {GraphOutcome.ROW_LIMIT, GraphOutcome.TIMEOUT} & {in_memory.outcome, in_sql.outcome}
    assert limits or same(in_memory, in_sql), plan
    seen.outcomes[" and ".join(sorted(limits)) or in_memory.outcome] += 1
    if not limits:
        seen.executable.append((plan, bindings))


def check_refused(con: duckdb.DuckDBPyConnection, executor: MemoryExecutor, plan: Plan) -> None:
    """A plan of the right form that validation did not let through is refused by every engine."""
    bindings = {anchor.var: (np.array([1]), np.array([1.0])) for anchor in plan.anchors}
    for refuse in (
        lambda: compile_cypher(plan, SCHEMA),
        lambda: execute_sql(con, plan, SCHEMA, bindings),
        lambda: executor.execute(plan, bindings),
    ):
        with pytest.raises(ValueError, match=r"not executable|answered by document search"):
            refuse()


def run(con: duckdb.DuckDBPyConnection, cases: Iterator[HostileCase], seed: int) -> Seen:
    """Validate, compile and execute all cases; the store must stay as it is."""
    rng, seen = np.random.default_rng(seed), Seen()
    executor = MemoryExecutor(CsrGraph.from_skb(con), SCHEMA, FieldValues.of(con, SCHEMA))
    before = contents(con)
    for i, case in enumerate(cases):
        checked = validate(case.written, SCHEMA)
        seen.status[checked.status] += 1
        check_report(checked)
        if checked.plan is not None and checked.plan.hops:
            check_texts(checked.plan)
            execute(con, executor, checked.plan, bound(checked.plan, case.bindings, rng), seen)
        elif checked.plan is not None:
            check_refused(con, executor, checked.plan)
        elif isinstance(case.written, dict) and (plan := plan_of(case.written)) is not None:
            check_refused(con, executor, plan)
        if i % 1000 == 999:
            assert contents(con) == before
    assert contents(con) == before
    return seen


def plan_of(written: dict[str, Any]) -> Plan | None:
    """The plan that validation looks at, if it is one; its texts are cleaned before, so that one may become empty."""
    try:
        return Plan.model_validate(clean_texts(written))
    except (ValueError, RecursionError):
        return None


def test_hundreds_of_hostile_plans(
    con: duckdb.DuckDBPyConnection, base: list[PlanCase], bolt_server: BoltServer
) -> None:
    seen = run(con, hostile_cases(base, 400, seed=4), seed=5)
    assert min(seen.status[status] for status in PlanStatus) > 20, seen.status
    check_over_bolt(con, bolt_server, seen, 20)


@pytest.mark.deep
def test_ten_thousand_hostile_plans(
    con: duckdb.DuckDBPyConnection, base: list[PlanCase], bolt_server: BoltServer
) -> None:
    seen = run(con, hostile_cases(base, MANY, seed=1), seed=2)
    assert sum(seen.status.values()) == MANY
    assert min(seen.status[status] for status in PlanStatus) > MANY / 20, seen.status
    assert seen.outcomes["ok"] > MANY / 20, seen.outcomes
    assert sum(n for name, n in seen.outcomes.items() if "limit" in name or "timeout" in name) < MANY / 100
    check_over_bolt(con, bolt_server, seen, 300)


def check_over_bolt(con: duckdb.DuckDBPyConnection, server: BoltServer, seen: Seen, n: int) -> None:
    """About ``n`` of the plans that were executable, over a server, which must stay as it is."""
    server.hold(GraphRows.of(con), SCHEMA)
    over_bolt = BoltExecutor(server.driver, SCHEMA, server.database)
    in_memory = MemoryExecutor(CsrGraph.from_skb(con), SCHEMA, FieldValues.of(con, SCHEMA))
    counted = count(server)
    assert counted == (len(GRAPH.nodes), len(GRAPH.edges))
    for plan, bindings in islice(seen.executable, 0, None, max(1, len(seen.executable) // n)):
        assert same(over_bolt.execute(plan, bindings, timeout_s=20), in_memory.execute(plan, bindings)), plan
    assert count(server) == counted


def count(server: BoltServer) -> tuple[int, int]:
    """Nodes and relationships of the whole server."""
    text = "MATCH (a)-[r]->(b) RETURN count(r) AS n"
    (record,) = server.driver.execute_query(text, database_=server.database).records
    return server.count_nodes(), int(record["n"])


def test_the_same_seed_gives_the_same_hostile_plans(base: list[PlanCase]) -> None:
    one, two = ([repr(case.written)[:10_000] for case in hostile_cases(base, 50, seed=9)] for _ in range(2))
    assert one == two
    assert any(isinstance(case.written, str) and "NaN" in case.written for case in hostile_cases(base, 500, seed=9))


def test_a_plan_that_is_too_large_is_refused_in_few_words() -> None:
    hop = {"from": "a", "rel": SCHEMA.relations[0], "to_var": "T", "to_label": SCHEMA.node_types[0]}
    anchor = {"var": "a", "text": "x", "label": SCHEMA.node_types[1]}
    checked = validate({"anchors": [anchor], "hops": [hop] * 100_000}, SCHEMA)
    assert [(d.part, d.reason) for d in checked.dropped] == [
        ("hops", "100000 are too many; at most 12 are allowed"),
        ("anchors[0]", NOT_EXECUTED),
    ]


@pytest.mark.parametrize("place", ["text", "label", "var", "relevance_text"])
def test_text_that_cannot_be_stored_is_refused(place: str) -> None:
    """Half a surrogate pair is valid JSON, and would stop the writing of every plan beside it."""
    anchor = {"var": "a", "text": "x", "label": SCHEMA.node_types[1]}
    hop = {"from": "a", "rel": SCHEMA.relations[0], "to_var": "T", "to_label": SCHEMA.node_types[0]}
    target = {"relevance_text": "x"}
    (target if place == "relevance_text" else anchor)[place] = "x\ud800"
    checked = validate({"anchors": [anchor], "hops": [hop], "target": target}, SCHEMA)
    assert checked.status is PlanStatus.FALLBACK
    assert checked.faults[0].part == ("target.relevance_text" if place == "relevance_text" else f"anchors[0].{place}")
    checked.model_dump_json().encode()
