"""Questions of a relation within one type: packages that depend on packages, and an ontology."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.graph.sql import execute_sql
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline.questions.generate import generate_questions
from skb_pipeline.questions.templates import enumerate_templates, without_direction
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.shared_data import build_shared_skb, shared_spec
from skb_pipeline_tests.toy import Edge, ListSource

OUT = {
    "relation": "depends", "target": "package", "anchor": "package", "direction": "out",
    "forms": ["depends on {x}", "needs {x}"], "held_out": ["builds upon {x}"], "keywords": ["depending on {x}"],
}  # fmt: skip
IN = {**OUT, "direction": "in", "forms": ["is needed by {x}"], "held_out": ["serves {x}"], "keywords": []}


def packages_spec(phrasings: list[dict[str, Any]], **changes: Any) -> DatasetSpec:
    names = {"fields": {"name": "text", "about": "text"}, "name_field": "name", "document": ["name", "about"]}
    questions = {"phrasings": phrasings, "per_template": 200, "max_answers": 40, "text_condition_share": 0.2,
                 "split": {"train": 0, "val": 0, "test": 1}}  # fmt: skip
    return DatasetSpec.model_validate(
        {
            "name": "packages",
            "description": "for tests",
            "source": {"adapter": "none", "max_bad_edge_rate": 1.0},
            "node_types": {"package": names, "author": names},
            "relations": [
                {"name": "depends", "head": "package", "tail": "package"},
                {"name": "replaces", "head": "package", "tail": "package"},
                {"name": "like", "head": "package", "tail": "package", "symmetric": True},
                {"name": "writes", "head": "author", "tail": "package"},
            ],
            "candidates": ["package"],
            "encoder": {"model": "none"},
            "questions": {**questions, **changes},
        }
    )


N = 26


def names() -> list[str]:
    return [f"lib{chr(97 + i)}{chr(97 + i * 7 % 26)}" for i in range(N)]


def edges() -> list[tuple[int, str, int]]:
    """Two chains, a star, a tree, three reciprocal pairs and a self-loop of *depends*; a few of the others."""
    found = {(i, "depends", i + 1) for i in [*range(8), *range(9, 15)]}
    found |= {(i, "depends", 20) for i in range(0, 19, 3)} | {(20, "depends", i) for i in (21, 22, 23)}
    found |= {(i, "depends", (i - 1) // 2) for i in range(1, 12, 2)}
    for a, b in [(2, 3), (16, 17), (24, 25)]:
        found |= {(a, "depends", b), (b, "depends", a)}
    found |= {(19, "depends", 19), (18, "replaces", 2), (2, "replaces", 7), (7, "replaces", 2)}
    found |= {(i, "like", i + 1) for i in range(4, 9)} | {(i, "replaces", i + 1) for i in range(18, 23)}
    return sorted(found)


def build(path: Path, spec: DatasetSpec) -> duckdb.DuckDBPyConnection:
    about = ["fast maths", "slow plots", "web frames", "data tables", "graph walks"]
    nodes = [("package", f"k{i}", {"name": name, "about": about[i % 5]}) for i, name in enumerate(names())]
    nodes += [("author", f"a{i}", {"name": f"Writer {i}", "about": ""}) for i in range(5)]
    rows: list[Edge] = [("package", f"k{a}", relation, "package", f"k{b}") for a, relation, b in edges()]
    rows += [("author", f"a{i % 5}", "writes", "package", f"k{i}") for i in range(N)]
    ingest(spec, ListSource(nodes, rows), path)
    return duckdb.connect(str(path), read_only=True)


def matches(
    stored: list[tuple[int, str, int]], types: dict[int, str], plan: dict[str, Any], bound: dict[str, int]
) -> set[int]:
    """Targets of all matches: every stored edge, each once, is tried for every hop, the ways that the hop allows."""

    def extend(hops: list[dict[str, Any]], known: dict[str, int], used: frozenset[int]) -> set[int]:
        if not hops:
            return {known["T"]}
        hop, found = hops[0], set()
        for number, (head, relation, tail) in enumerate(stored):
            if relation != hop["rel"] or number in used:
                continue
            ways = {"out": [(head, tail)], "in": [(tail, head)], "any": [(head, tail), (tail, head)]}
            for start, end in ways[hop.get("direction", "any")]:
                fits = known[hop["from"]] == start and known.get(hop["to_var"], end) == end
                if fits and types[end] == hop["to_label"]:
                    found |= extend(hops[1:], {**known, hop["to_var"]: end}, used | {number})
        return found

    return extend(plan["hops"], bound, frozenset())


class Asked:
    """Questions about an SKB, with what is needed to check them."""

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> None:
        self.con, self.spec = con, spec
        self.frame, self.report = generate_questions(con, spec)
        self.types = dict(con.execute("SELECT node_id, node_type FROM nodes").fetchall())
        self.texts = dict(con.execute("SELECT node_id, fields::VARCHAR FROM nodes").fetchall())
        self.stored = con.execute("SELECT head, relation, tail FROM edges").fetchall()

    def expected(self, row: Any) -> set[int]:
        """Exact answers by brute force over the stored, directed edges."""
        plan = json.loads(row.gold_plan)
        found = matches(self.stored, self.types, plan, {a["var"]: a["node_id"] for a in row.anchor_ids})
        phrase = plan["target"]["relevance_text"]
        return {node for node in found if phrase in self.texts[node].casefold()}

    def of(self, template: str) -> pd.DataFrame:
        return self.frame[self.frame["template"].str.removesuffix("+text") == template]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    spec = packages_spec([OUT, IN])
    return Asked(build(tmp_path_factory.mktemp("skb") / "p.duckdb", spec), spec)


def test_answers_are_those_of_a_brute_force_over_directed_edges(both: Asked) -> None:
    assert len(both.frame) > 150
    for row in both.frame.itertuples():
        assert set(row.answer_ids) == both.expected(row), row.query


def test_a_directed_question_has_answers_of_its_direction_alone(both: Asked) -> None:
    """Written without the plan: by the words of the question."""
    name = dict(both.con.execute("SELECT name, node_id FROM nodes").fetchall())
    pairs = {(head, tail) for head, relation, tail in both.stored if relation == "depends"}
    wrong_without = 0
    for template, words in [("package <-depends, out- package", ("depend", "needs", "builds upon")),
                            ("package <-depends, in- package", ("needed by", "serves"))]:  # fmt: skip
        rows = both.of(template)
        assert len(rows) > 5
        for row in rows[rows["wording"] != "paraphrased"].itertuples():
            assert any(word in row.query for word in words), row.query
            (anchor,) = [name[text] for text in name if text in row.query and text.startswith("lib")]
            out = {head for head, tail in pairs if tail == anchor}
            into = {tail for head, tail in pairs if head == anchor}
            right, other = (out, into) if "out" in template else (into, out)
            assert set(row.answer_ids) <= right
            wrong_without += bool(other - right)
    assert wrong_without > 5  # as many questions would have had wrong answers


def test_both_directions_of_one_relation_stand_side_by_side(both: Asked) -> None:
    one_hop = {t.name for t in enumerate_templates(both.spec) if len(t.steps) == 1}
    assert {"package <-depends, in- package", "package <-depends, out- package"} < one_hop
    assert "package <-depends- package" not in one_hop
    joined = both.of("package <-depends, in- package & <-depends, out- package")
    assert len(joined)
    chain = both.of("package <-depends, out- package <-depends, out- package")
    assert len(chain)
    # What is needed by the same package: there and back over two edges.
    assert len(both.of("package <-depends, in- package <-depends, out- package"))


def test_gold_plans_carry_the_direction_and_execute_to_the_answers(both: Asked) -> None:
    schema = GraphSchema.from_spec(both.spec)
    seen: Counter[str] = Counter()
    for row in both.frame.itertuples():
        checked = validate(row.gold_plan, schema)
        assert checked.status is PlanStatus.VALID
        plan = Plan.model_validate_json(row.gold_plan)
        seen.update(f"{hop.rel} {hop.direction}" for hop in plan.hops)
        if row.Index % 8:
            continue
        bindings = {a["var"]: (np.array([a["node_id"]]), np.array([1.0])) for a in row.anchor_ids}
        found = execute_sql(both.con, plan, schema, bindings, limit=10_000).node_ids.tolist()
        phrase = plan.target.relevance_text
        assert {n for n in found if phrase in both.texts[n].casefold()} == set(row.answer_ids)
    # Only relations that have a direction carry one, and only where a phrasing says which.
    assert set(seen) == {"depends in", "depends out", "replaces any", "like any", "writes any"}


def test_without_a_directed_phrasing_words_have_no_direction_and_answers_have_both(tmp_path: Path) -> None:
    spec = packages_spec([{key: value for key, value in OUT.items() if key != "direction"}])
    asked = Asked(build(tmp_path / "p.duckdb", spec), spec)
    rows = asked.of("package <-depends- package")
    assert len(rows) > 5
    for row in rows.itertuples():
        assert '"depends"' in row.query
        assert "on lib" not in row.query
        assert "needs" not in row.query
        assert set(row.answer_ids) == asked.expected(row)
    told = asked.report.metadata()["without_direction"]
    assert len(told) == 2
    assert "relation 'depends' within 'package' has a direction" in told[0]
    assert "its phrasings without a direction are not used: 1" in told[0]
    assert "'replaces'" in told[1]
    assert told == without_direction(spec)


def test_a_relation_gives_its_phrasings_a_default(tmp_path: Path) -> None:
    unstated = {key: value for key, value in OUT.items() if key != "direction"}
    for default, told in (({"depends": "out"}, 1), ({"depends": "any", "replaces": "any"}, 1), ({}, 2)):
        spec = packages_spec([unstated, IN], directions=default) if default else packages_spec([unstated])
        assert len(without_direction(spec)) == told
    names_of = {t.name for t in enumerate_templates(packages_spec([unstated], directions={"depends": "out"}))}
    assert "package <-depends, out- package" in names_of
    assert "package <-depends, in- package" not in names_of
    undirected = packages_spec([unstated], directions={"depends": "any"})
    assert "package <-depends- package" in {t.name for t in enumerate_templates(undirected)}
    assert without_direction(undirected) == [m for m in without_direction(packages_spec([OUT])) if "replaces" in m]


@pytest.mark.parametrize(
    ("phrasings", "message"),
    [
        ([OUT, OUT], "given twice"),
        ([{**OUT, "relation": "like"}], "symmetric, so it has no direction"),
        ([{**OUT, "relation": "writes", "anchor": "author"}], "no edge of 'writes' runs that way"),
        ([{**OUT, "direction": "both"}], "direction"),
        ([{**IN, "relation": "writes", "anchor": "author"}, {**IN, "relation": "writes", "anchor": "author",
           "direction": None}], r"phrasings.1: says the same as questions.phrasings.0"),
    ],
)  # fmt: skip
def test_a_direction_that_cannot_be_is_refused(phrasings: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        packages_spec(phrasings)
    with pytest.raises(ValidationError, match="relation 'depend' is not declared"):
        packages_spec([OUT], directions={"depend": "out"})


def test_edges_between_two_types_that_run_either_way_have_directions_too(tmp_path: Path) -> None:
    """A shop gets from a firm what it does not give to it."""
    node_type = {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]}
    phrasing = {"relation": "feeds", "target": "firm", "anchor": "shop", "direction": "out", "forms": ["feeds {x}"]}
    spec = DatasetSpec.model_validate(
        {
            **packages_spec([]).model_dump(mode="json", include={"name", "description", "source", "encoder"}),
            "node_types": {"firm": node_type, "shop": node_type},
            "relations": [
                {"name": "feeds", "head": "firm", "tail": "shop"},
                {"name": "feeds", "head": "shop", "tail": "firm"},
            ],
            "candidates": ["firm"],
            "questions": {"phrasings": [phrasing]},
        }
    )
    nodes = [*(("firm", f"f{i}", {"name": f"Firm {i}"}) for i in range(9)), ("shop", "s", {"name": "Corner"})]
    rows: list[Edge] = [("firm", f"f{i}", "feeds", "shop", "s") for i in range(4)]
    rows += [("shop", "s", "feeds", "firm", f"f{i}") for i in range(3, 9)]
    ingest(spec, ListSource(nodes, rows), tmp_path / "f.duckdb")
    asked = Asked(duckdb.connect(str(tmp_path / "f.duckdb"), read_only=True), spec)
    (row,) = asked.of("firm <-feeds, out- shop").itertuples()
    assert len(row.answer_ids) == 4
    (told,) = without_direction(spec)
    assert "between 'shop' and 'firm', asked for 'shop'" in told


@pytest.mark.shared_data
def test_an_ontology_asked_for_kinds_and_for_what_they_are_kinds_of(tmp_path: Path) -> None:
    spec = shared_spec("edam")
    few = spec.questions.model_copy(update={"per_template": 16})
    spec = spec.model_copy(update={"candidates": ["operation", "topic"], "questions": few})
    with connect(build_shared_skb("edam", tmp_path), read_only=True) as con:
        asked = Asked(con, spec)
        rows = asked.frame[asked.frame["template"].str.contains("subclass of, ")]
        assert {"in", "out"} == {d for t in rows["template"] for d in ("in", "out") if f"subclass of, {d}-" in t}
        by_head: dict[int, set[int]] = {}
        by_tail: dict[int, set[int]] = {}
        for head, relation, tail in asked.stored:
            if relation == "subclass of":
                by_head.setdefault(head, set()).add(tail)
                by_tail.setdefault(tail, set()).add(head)
        checked = 0
        for row in rows.itertuples():
            shape = row.template.removesuffix("+text")
            if shape.count("<-") == 1:
                ends = by_tail if "out-" in shape else by_head
                answers = {n for n in ends[row.anchor_ids[0]["node_id"]] if asked.types[n] == shape.split(" ")[0]}
                assert set(row.answer_ids) <= answers
                assert row.template.endswith("+text") or set(row.answer_ids) == answers
                checked += 1
        assert checked > 20
