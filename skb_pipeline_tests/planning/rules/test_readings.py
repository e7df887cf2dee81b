"""Which of several readings of a question is taken: what the graph and the texts of candidates have to say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.planning.rules.planner import RulesPlanner
from skb_pipeline.plans.plan import Plan, RiskLevel
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.planning.rules.test_planner import expected, spec_with
from skb_pipeline_tests.toy import Edge, ListSource

NODES = [
    ("drug", "1", {"name": "Alphacin"}),
    ("drug", "2", {"name": "Betacin", "other": ["turquoise ointment"]}),
    ("drug", "3", {"name": "Gammacin", "other": ["white pill"]}),
    ("drug", "4", {"name": "Deltacin"}),
    ("gene", "1", {"name": "GEN1"}),
    ("gene", "2", {"name": "GEN2"}),
    ("gene", "3", {"name": "GEN3"}),
    ("disease", "1", {"name": "migraine"}),
    ("disease", "2", {"name": "asthma"}),
]
EDGES: list[Edge] = [
    ("drug", "1", "target", "gene", "1"),
    ("drug", "1", "enzyme", "gene", "2"),
    ("drug", "2", "enzyme", "gene", "1"),
    ("drug", "3", "target", "gene", "1"),
    ("drug", "3", "target", "gene", "2"),
    ("drug", "3", "enzyme", "gene", "2"),
    ("drug", "1", "indication", "disease", "1"),
    ("drug", "3", "indication", "disease", "1"),
    ("drug", "4", "indication", "disease", "2"),
    ("gene", "3", "causes", "disease", "2"),
]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("skb") / "readings.duckdb"
    ingest(spec_with(), ListSource(NODES, EDGES), path)
    with connect(path, read_only=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def planner(con: Any) -> RulesPlanner:
    return RulesPlanner(con, spec_with())


def answers(con: Any, planner: RulesPlanner, plan: Plan) -> set[str]:
    """Names of what a plan gives, its anchors bound by name."""
    names = dict(con.execute("SELECT node_id, name FROM nodes").fetchall())
    bound = {a.var: planner.index.lookup(a.text, [a.label]).nodes[a.label] for a in plan.anchors}
    executor = MemoryExecutor(CsrGraph.from_skb(con), planner.schema)
    result = executor.execute(plan, {var: (ids, ids * 0 + 1.0) for var, ids in bound.items()})
    return {names[node] for node in result.node_ids.tolist()}


def test_text_of_the_candidates_decides_where_no_word_speaks_of_the_relation(con) -> None:
    spec = spec_with(preferred=["target"])
    planner = RulesPlanner(con, spec)
    turquoise = planner.plan("Which turquoise drugs go with GEN1?")
    assert plans_agree(turquoise.validated.plan, expected("drug", ("GEN1", "gene", "enzyme")))
    white = planner.plan("Which white drugs go with GEN1?")
    assert plans_agree(white.validated.plan, expected("drug", ("GEN1", "gene", "target")))
    alone = RulesPlanner(con, spec, check_answers=False).plan("Which turquoise drugs go with GEN1?")
    assert plans_agree(alone.validated.plan, expected("drug", ("GEN1", "gene", "target")))


def test_text_does_not_outweigh_a_word_for_the_relation(planner) -> None:
    planned = planner.plan("Which turquoise drugs bind GEN1?")
    assert plans_agree(planned.validated.plan, expected("drug", ("GEN1", "gene", "target")))


def test_detour_is_taken_only_without_a_direct_answer(planner) -> None:
    detour = planner.plan("Which genes go with Deltacin?")
    assert plans_agree(detour.validated.plan, expected("gene", ("Deltacin", "drug", "indication", "disease", "causes")))
    assert detour.risk_level is RiskLevel.WEAK
    direct = planner.plan("Which genes go with Betacin?")
    assert plans_agree(direct.validated.plan, expected("gene", ("Betacin", "drug", "enzyme")))


def test_words_before_a_list_speak_of_all_its_members(planner) -> None:
    """By another relation they have a gene in common too."""
    planned = planner.plan("Which genes are targets of both Gammacin and Alphacin?")
    assert plans_agree(
        planned.validated.plan, expected("gene", ("Gammacin", "drug", "target"), ("Alphacin", "drug", "target"))
    )


def test_no_plan_needs_an_edge_twice(con, planner) -> None:
    """Alphacin shares migraine with Gammacin, but then that edge of Gammacin cannot serve as treatment too."""
    planned = planner.plan("Which drugs share a disease with Alphacin and treat migraine?")
    assert answers(con, planner, planned.validated.plan)
