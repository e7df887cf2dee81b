"""Names that are words like any other do not filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from skb_pipeline.planning.rules.planner import PlanOutcome, RulesPlanner
from skb_pipeline.plans.plan import PlanStatus, RiskLevel
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.planning.rules.test_planner import spec_with
from skb_pipeline_tests.toy import Edge, ListSource

# Eighty drugs "for the heart"; the gene HEART and the tissue heart have to do with one of them, asthma with all of its.
NODES = [("drug", str(n), {"name": f"Drugcin{n}", "other": [f"pill {n} for heart and system care"]}) for n in range(80)]
NODES += [("drug", str(n), {"name": f"Lungol{n}", "other": [f"asthma spray {n}"]}) for n in range(80, 110)]
NODES += [
    ("gene", "1", {"name": "HEART"}),
    ("disease", "1", {"name": "heart"}),
    ("disease", "2", {"name": "asthma"}),
    ("disease", "3", {"name": "System Care"}),
    ("disease", "4", {"name": "Rareosis"}),
]
EDGES: list[Edge] = [
    ("drug", "1", "target", "gene", "1"),
    ("drug", "1", "indication", "disease", "1"),
    ("drug", "2", "indication", "disease", "3"),
    ("drug", "3", "indication", "disease", "4"),
    *[("drug", str(n), "indication", "disease", "2") for n in range(80, 110)],
]


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("skb") / "worth.duckdb"
    ingest(spec_with(), ListSource(NODES, EDGES), path)
    with connect(path, read_only=True) as connection:
        yield RulesPlanner(connection, spec_with())


@pytest.mark.parametrize(
    ("question", "anchors"),
    [
        ("What is good for my heart and my mood?", []),
        ("Heart trouble: what helps?", []),
        ("Which drugs treat heart?", ["heart"]),
        ('Which drugs have to do with "heart"?', ["heart"]),
        ("Which drugs are good for the disease heart?", ["heart"]),
        ("Which drugs go with HEART?", ["HEART"]),
        ("What is good for asthma?", ["asthma"]),
        ("What is good for asthma and the heart?", ["asthma"]),
        ("What is good for rareosis?", ["rareosis"]),
        ("the system care of people", []),
        ("What helps people who have System Care often?", ["System Care"]),
        ("Modern System Care: Methods And Tools", []),
        ("System Care of people", []),
    ],
)
def test_a_common_word_is_a_condition_only_where_the_question_says_so(planner, question, anchors) -> None:
    plan = planner.plan(question).validated.plan
    assert ([a.text for a in plan.anchors] if plan else []) == anchors


def test_a_question_that_names_nothing_says_so(planner) -> None:
    planned = planner.plan("What is good for my heart and my mood?")
    assert planned.outcome is PlanOutcome.NO_MENTION
    assert planned.validated.status is PlanStatus.FALLBACK
    assert planned.risk_level is RiskLevel.NO_TRADE
    reason = planned.validated.dropped[0].reason
    assert reason == "the question names nothing that the SKB has (but for common words: 'heart')"


def test_a_common_word_ranks(planner) -> None:
    planned = planner.plan("What is good for asthma and the heart?")
    assert planned.validated.plan.target.relevance_text == "good heart"
    note = "for ranking only: 'heart' is a common word: of 82 texts with it, 2 have to do with what is called so"
    assert note in planned.explanation


def test_names_given_from_outside_are_meant(planner) -> None:
    planned = planner.plan("What is good for my heart?", ["heart"])
    assert [a.text for a in planned.validated.plan.anchors] == ["heart"]


def test_without_a_look_into_the_texts_every_name_counts(planner, tmp_path) -> None:
    path = tmp_path / "words.duckdb"
    ingest(spec_with(), ListSource(NODES, EDGES), path)
    with connect(path, read_only=True) as connection:
        words_alone = RulesPlanner(connection, spec_with(), check_answers=False)
        plan = words_alone.plan("What is good for my heart and my mood?").validated.plan
    assert [a.text for a in plan.anchors] == ["heart"]


KEYWORDS = ["modern", "system", "care", "model", "data", "query"]


@pytest.mark.parametrize(
    ("question", "anchors"),
    [
        ("how does a modern system handle a query by a model of data", []),
        ("Modern care", []),
        ("genes with the keyword Model", []),
        ("Which genes have the tissue model?", ["model"]),
        ('genes with "query" and data', ["query"]),
        ("genes expressed in model", ["model"]),
    ],
)
def test_names_of_a_type_whose_names_are_the_words_of_all_texts_are_words(tmp_path, question, anchors) -> None:
    """Each keyword stands in few texts, and every text with it has to do with it; still they are but words."""
    pairs = [(a, b) for a in KEYWORDS for b in KEYWORDS if a < b]
    nodes = [("gene", f"{a} {b}", {"name": f"GEN{n}", "other": [f"{a} of {b}"]}) for n, (a, b) in enumerate(pairs)]
    nodes += [("tissue", word, {"name": word}) for word in KEYWORDS]
    edges: list[Edge] = [("gene", f"{a} {b}", "expressed in", "tissue", word) for a, b in pairs for word in (a, b)]
    path = tmp_path / "keywords.duckdb"
    ingest(spec_with(), ListSource(nodes, edges), path)
    with connect(path, read_only=True) as connection:
        plan = RulesPlanner(connection, spec_with()).plan(question).validated.plan
    assert ([a.text for a in plan.anchors] if plan else []) == anchors
