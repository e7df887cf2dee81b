"""Generated questions: exact answers, splits, stability, wording."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.graph.sql import execute_sql
from skb_pipeline.plans.plan import Plan, PlanStatus
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline.questions.frame import QUERIES, queries_hash
from skb_pipeline.questions.generate import draw_probability, generate_questions
from skb_pipeline.questions.report import QuestionReport
from skb_pipeline.questions.wording import QUESTIONS
from skb_pipeline_tests.questions.small_skb import (
    Content,
    brute_force,
    build,
    mentions_phrase,
    shop,
    shop_spec,
    words_of,
)

SPEC = shop_spec()


class Made:
    """One generated set with what is needed to check it."""

    def __init__(self, content: Content, spec: DatasetSpec = SPEC) -> None:
        self.content, self.spec = content, spec
        self.con = build(content)
        self.frame, self.report = generate_questions(self.con, spec)
        rows = self.con.execute("SELECT node_id, node_type, external_id FROM nodes").fetchall()
        self.keys = {node_id: (node_type, external_id) for node_id, node_type, external_id in rows}
        self.types = {node_id: key[0] for node_id, key in self.keys.items()}
        self.edges = self.con.execute("SELECT head, relation, tail FROM edges").fetchall()

    def anchors(self, row: pd.Series) -> dict[str, int]:
        return {anchor["var"]: anchor["node_id"] for anchor in row.anchor_ids}

    def graph_answers(self, row: pd.Series) -> set[int]:
        return brute_force(self.types, self.edges, json.loads(row.gold_plan), self.anchors(row))

    def meets(self, node_id: int, phrase: str) -> bool:
        key = self.keys[node_id]
        names = {"product": ["title", "description", "tags"], "brand": ["name"], "category": ["name"]}
        return mentions_phrase(self.content.nodes[key], names[key[0]], phrase)


@pytest.fixture(scope="module")
def made() -> Made:
    return Made(shop())


def test_there_is_something_of_every_kind(made: Made) -> None:
    frame = made.frame
    assert len(frame) > 200
    assert set(frame["split"]) == {"train", "val", "test"}
    assert set(frame["style"]) == {"question", "keyword"}
    assert set(frame["wording"]) == {"known", "held_out", "paraphrased"}
    assert frame["uses_alias"].nunique() == 2
    shapes = frame["template"].str.count("<-").astype(str) + frame["template"].str.contains("&").astype(str)
    assert set(shapes) == {"1False", "2False", "2True"}
    assert frame["template"].str.endswith("+text").nunique() == 2
    targets = frame["gold_plan"].map(lambda text: json.loads(text)["target"]["labels"][0])
    assert set(targets) == {"product", "brand", "category"}


def test_answers_are_exactly_the_brute_force_answers(made: Made) -> None:
    for row in made.frame.itertuples():
        expected = made.graph_answers(row)
        phrase = json.loads(row.gold_plan)["target"]["relevance_text"]
        if phrase:
            narrowed = {node for node in expected if made.meets(node, phrase)}
            assert narrowed < expected, row.query_id
            expected = narrowed
        assert set(row.answer_ids) == expected, row.query
        assert 1 <= len(row.answer_ids) <= made.spec.questions.max_answers
        assert not expected <= set(made.anchors(row).values())


def test_answers_are_in_canonical_order_and_hold_the_gold_node(made: Made) -> None:
    canonical = dict(made.con.execute("SELECT node_id, canonical FROM nodes").fetchall())
    for row in made.frame.itertuples():
        places = [canonical[answer] for answer in row.answer_ids]
        assert places == sorted(set(places))
        assert tuple(json.loads(row.gold_key)) in {made.keys[answer] for answer in row.answer_ids}


def test_gold_plans_are_valid_and_execute_to_the_answers(made: Made) -> None:
    schema = GraphSchema.from_spec(made.spec)
    for row in made.frame.itertuples():
        checked = validate(row.gold_plan, schema)
        assert checked.status is PlanStatus.VALID
        plan = Plan.model_validate_json(row.gold_plan)
        bindings = {var: (np.array([node]), np.array([1.0])) for var, node in made.anchors(row).items()}
        found = execute_sql(made.con, plan, schema, bindings, limit=10_000).node_ids.tolist()
        phrase = plan.target.relevance_text
        assert {n for n in found if not phrase or made.meets(n, phrase)} == set(row.answer_ids)


def test_anchor_mentions_mean_their_node_only(made: Made) -> None:
    content = made.content
    for row in made.frame.itertuples():
        anchors = made.anchors(row)
        by_alias = False
        for anchor in json.loads(row.gold_plan)["anchors"]:
            bearers = {
                key
                for key in content.nodes
                if key[0] == anchor["label"]
                and anchor["text"].casefold() in {t.casefold() for t in [content.name(key), *content.aliases[key]]}
            }
            assert bearers == {made.keys[anchors[anchor["var"]]]}
            if row.wording != "paraphrased":  # in keywords typed in lower case and with a typo
                assert anchor["text"] in row.query
            by_alias |= anchor["text"] != content.name(made.keys[anchors[anchor["var"]]])
        assert row.uses_alias == by_alias
    assert made.report.templates["product <-made_by- brand"].retried["ambiguous anchor name"] > 0


def test_conditions_use_words_that_no_anchor_has(made: Made) -> None:
    for row in made.frame[made.frame["template"].str.endswith("+text")].itertuples():
        plan = json.loads(row.gold_plan)
        phrase = plan["target"]["relevance_text"]
        assert phrase == " ".join(words_of(phrase))
        assert len(phrase.split()) in (1, 2)
        assert phrase in row.query or row.wording == "paraphrased"
        for node in made.anchors(row).values():
            surfaces = [made.content.name(made.keys[node]), *made.content.aliases[made.keys[node]]]
            assert not set(phrase.split()) & {word for surface in surfaces for word in words_of(surface)}
        gold = tuple(json.loads(row.gold_key))
        in_name = set(phrase.split()) <= set(words_of(made.content.name(gold)))
        # A product has other text, so its name is not given away; the other types have nothing but names.
        assert in_name == (gold[0] != "product")


def test_no_training_or_validation_answer_is_a_test_answer(made: Made) -> None:
    answers = {
        split: {answer for ids in rows["answer_ids"] for answer in ids} for split, rows in made.frame.groupby("split")
    }
    assert answers["test"].isdisjoint(answers["train"])
    assert answers["test"].isdisjoint(answers["val"])
    assert made.frame.groupby("gold_key")["split"].nunique().max() == 1
    assert made.report.dropped()["shares an answer with test"] > 0


def test_report_accounts_for_every_draw(made: Made) -> None:
    for name, counts in made.report.templates.items():
        assert counts.drawn == counts.kept + sum(counts.dropped.values()), name
        assert counts.kept == (made.frame["template"] == name).sum()
    assert made.report.splits == {s: int((made.frame["split"] == s).sum()) for s in ("train", "val", "test")}
    for split, counts in made.report.answer_counts.items():
        sizes = made.frame.loc[made.frame["split"] == split, "answer_ids"].map(len)
        assert dict(counts) == sizes.value_counts().to_dict()
    assert json.loads(json.dumps(made.report.metadata())) == made.report.metadata()


def test_no_question_twice(made: Made) -> None:
    frame = made.frame
    assert frame["query_id"].is_unique
    assert list(frame["query_id"]) == sorted(frame["query_id"])
    assert frame["query"].str.casefold().is_unique
    meaning = [
        (row.template, frozenset(made.anchors(row).values()), json.loads(row.gold_plan)["target"]["relevance_text"])
        for row in frame.itertuples()
        if "also bought" not in row.template
    ]
    assert len(meaning) == len(set(meaning))


def test_held_out_forms_are_in_test_questions_only(made: Made) -> None:
    frames = [re.compile(re.sub(r"\\\{\w+\\\}", ".*", re.escape(form)) + ".*") for form in QUESTIONS.held_out]
    relation = "leaves the works of"
    seen = set()
    for row in made.frame.itertuples():
        in_frame = row.style == "question" and any(frame.fullmatch(row.query) for frame in frames)
        if row.wording == "held_out":
            assert row.split == "test"
            assert in_frame or row.style == "keyword"
            seen.add(relation in row.query)
        else:
            assert not in_frame
            assert relation not in row.query
            assert "is tied to" not in row.query
    assert seen == {True, False}


def test_shares_are_kept() -> None:
    content = Content()
    for i in range(600):
        brand = content.add("brand", f"b{i}", [f"B-{i}"], name=f"Brand {i}", aka=[f"B-{i}"])
        item = content.add("product", f"p{i}", title=f"Item {i}", description="plain", tags=[])
        content.edges.append((item, "made_by", brand))
    settings = {
        "per_template": 600,
        "text_condition_share": 0,
        "alias_share": 0.3,
        "keyword_share": 0.25,
        "held_out_share": 0.5,
        "paraphrased_share": 0.2,
    }
    made = Made(content, shop_spec(**settings))
    frame = made.frame[made.frame["template"].str.startswith("product <-made_by- brand")]
    assert len(frame) == 600
    assert abs(frame["uses_alias"].mean() - 0.3) < 0.06
    assert abs((frame["style"] == "keyword").mean() - 0.25) < 0.06
    shares = frame["split"].value_counts(normalize=True)
    assert all(abs(shares[split] - share) < 0.06 for split, share in made.spec.questions.split.items())
    test = frame[frame["split"] == "test"]
    assert abs((test["wording"] == "held_out").mean() - 0.5 * 0.8) < 0.12
    for split, share in {"train": 0.0, "val": 0.2, "test": 0.2}.items():
        assert abs((frame[frame["split"] == split]["wording"] == "paraphrased").mean() - share) < 0.1
    report = made.report
    assert report.alias_possible == made.frame["template"].str.endswith("- brand").sum()
    assert report.uses_alias == made.frame["uses_alias"].sum()
    assert report.held_out == (made.frame["wording"] == "held_out").sum()
    assert report.paraphrased == (made.frame["wording"] == "paraphrased").sum()
    assert report.keyword == (made.frame["style"] == "keyword").sum()


def test_no_aliases_and_no_keywords_when_their_share_is_zero() -> None:
    frame = Made(
        shop(), shop_spec(alias_share=0, keyword_share=0, text_condition_share=0, held_out_share=0, paraphrased_share=0)
    ).frame
    assert set(frame["style"]) == {"question"}
    assert set(frame["wording"]) == {"known"}
    assert not frame["template"].str.endswith("+text").any()
    forced = frame[frame["uses_alias"]]
    assert forced["template"].str.contains("brand").all()  # a brand whose name others bear has only its alias


def _as_keys(made_frame: pd.DataFrame, con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    keys = {i: f"{t}/{e}" for i, t, e in con.execute("SELECT node_id, node_type, external_id FROM nodes").fetchall()}
    frame = made_frame.copy()
    frame["answer_ids"] = [[keys[answer] for answer in ids] for ids in frame["answer_ids"]]
    frame["anchor_ids"] = [[(a["var"], keys[a["node_id"]]) for a in anchors] for anchors in frame["anchor_ids"]]
    return frame


def test_numbering_and_row_order_do_not_matter(made: Made) -> None:
    keys = list(made.content.nodes)
    numbers = np.random.default_rng(3).permutation(len(keys) * 3)[: len(keys)]
    other = build(made.content, shuffle=8, node_ids=dict(zip(keys, numbers.tolist(), strict=True)))
    frame, report = generate_questions(other, SPEC)
    pd.testing.assert_frame_equal(_as_keys(frame, other), _as_keys(made.frame, made.con))
    assert report.metadata() == made.report.metadata()
    assert queries_hash(frame, other) == queries_hash(made.frame, made.con)
    assert queries_hash(frame.sample(frac=1, random_state=1), other) == queries_hash(made.frame, made.con)


def test_hash_sees_answers_anchors_and_words(made: Made) -> None:
    base = queries_hash(made.frame, made.con)
    for column, value in [("answer_ids", [0]), ("query", "?"), ("anchor_ids", []), ("split", "val")]:
        changed = made.frame.copy()
        changed[column] = [value, *changed[column].tolist()[1:]]
        assert queries_hash(changed, made.con) != base, column


def test_an_unrelated_change_leaves_other_questions_alone(made: Made) -> None:
    content = shop()
    brand = content.add("brand", "new-b", name="Novel Maker", aka=[])
    category = content.add("category", "0-new", name="Fresh produce aisle")
    items = [
        content.add("product", f"0-new{i}", title=f"Fresh apple {i}", description="Crisp, juicy fruit", tags=[])
        for i in range(3)
    ]
    for item in items:
        content.edges += [(item, "made_by", brand), (item, "IN_CATEGORY", category)]
    con = build(content)
    frame, _ = generate_questions(con, SPEC)
    old = _as_keys(made.frame, made.con)
    new = _as_keys(frame, con)
    common = new[new["query_id"].isin(old["query_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(common, old)
    assert len(new) > len(old)
    assert all("new" in key for key in new.loc[~new["query_id"].isin(old["query_id"]), "gold_key"])


def test_same_in_every_process(made: Made, tmp_path: Path) -> None:
    code = (
        "from skb_pipeline.questions.generate import generate_questions\n"
        "from skb_pipeline.questions.frame import queries_hash\n"
        "from skb_pipeline_tests.questions.small_skb import build, shop, shop_spec\n"
        "con = build(shop())\n"
        "frame, _ = generate_questions(con, shop_spec())\n"
        "print(queries_hash(frame, con))\n"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == queries_hash(made.frame, made.con)


def test_another_seed_gives_other_questions(made: Made) -> None:
    frame, _ = generate_questions(made.con, shop_spec(seed=14))
    assert not set(frame["query_id"]) & set(made.frame["query_id"])


def test_reads_a_read_only_file(made: Made, tmp_path: Path) -> None:
    path = str(tmp_path / "skb.duckdb")
    build(made.content, path).close()
    con = duckdb.connect(path, read_only=True, config={"python_enable_replacements": False})
    frame, _ = generate_questions(con, SPEC)
    assert queries_hash(frame, con) == queries_hash(made.frame, made.con)
    con.close()


def test_frame_has_the_schema(made: Made) -> None:
    table = QUERIES.table(made.frame)
    assert table.schema.equals(QUERIES.schema)
    assert [name for name in table.column_names if table[name].null_count] == ["seen_answer", "sample"]
    test = made.frame["split"] == "test"
    assert made.frame.loc[test, "seen_answer"].notna().all()
    assert made.frame.loc[~test, "seen_answer"].isna().all()
    assert table["answer_ids"].type == pa.list_(pa.int64())


def _one_relation(edges: list[tuple[int, int]], **questions: object) -> tuple[pd.DataFrame, QuestionReport]:
    content = Content()
    keys = [
        content.add("product", f"p{i}", title=f"Item {chr(97 + i)}", description=f"plain {WORD[i]} one", tags=[])
        for i in range(1 + max(max(edge) for edge in edges))
    ]
    content.edges = [(keys[a], "also bought", keys[b]) for a, b in edges]
    return generate_questions(build(content), shop_spec(text_condition_share=0, **questions))


WORD = ("amber", "basket", "canvas", "dental", "elastic", "fabric")
ONE = "product <-also bought- product"
TWO = "product <-also bought- product <-also bought- product"


def test_two_hops_do_not_walk_back_over_their_edge() -> None:
    frame, report = _one_relation([(0, 1)])
    assert (frame["template"] == TWO).sum() == 0
    assert report.templates[TWO].dropped == {"no anchor can be reached": 2}
    assert (frame["template"] == ONE).sum() + report.templates[ONE].dropped["shares an answer with test"] == 2


def test_a_reciprocal_pair_is_two_edges_but_a_question_answered_by_its_anchor_alone_is_dropped() -> None:
    _, report = _one_relation([(0, 1), (1, 0)])
    assert report.templates[TWO].dropped == {"the only answer is an anchor": 2}


def test_a_self_loop_alone_makes_no_question() -> None:
    _, report = _one_relation([(0, 0)])
    assert report.templates[ONE].dropped == {"the only answer is an anchor": 1}


def test_too_many_answers_are_counted_and_the_next_anchor_is_tried() -> None:
    star = [(0, i) for i in range(1, 6)]
    _, report = _one_relation(star, max_answers=4)
    assert report.templates[ONE].dropped["too many answers"] == 5  # from each leaf only the hub can be reached
    frame, report = _one_relation([*star, (1, 2)], max_answers=4, split={"train": 1, "val": 0, "test": 0})
    assert report.templates[ONE].dropped["too many answers"] == 3
    assert {tuple(json.loads(key)) for key in frame.loc[frame["template"] == ONE, "gold_key"]} <= {
        ("product", f"p{i}") for i in (0, 1, 2)
    }


def test_ambiguous_anchors_are_counted() -> None:
    content = Content()
    twins = [content.add("brand", f"b{i}", name=["Same Name", "same  NAME"][i], aka=[]) for i in range(2)]
    item = content.add("product", "p", title="Item", description="", tags=[])
    content.edges = [(item, "made_by", twin) for twin in twins]
    frame, report = generate_questions(build(content), SPEC)
    assert report.templates["product <-made_by- brand"].dropped == {"ambiguous anchor name": 1}
    assert not frame["template"].str.startswith("product").any()


def test_one_anchor_drawn_by_two_gold_nodes_gives_one_question() -> None:
    frame, report = _one_relation([(0, 1), (0, 2)], split={"train": 1, "val": 0, "test": 0})
    asked = frame.loc[frame["template"] == ONE]
    assert report.templates[ONE].dropped == {"same question drawn twice": 1}
    assert len(asked) == 2
    assert sorted(len(ids) for ids in asked["answer_ids"]) == [1, 2]


def test_questions_in_the_same_words_are_all_dropped() -> None:
    content = Content()
    for i in range(40):
        item = content.add("product", f"p{i}", title=f"Item {i}", description="", tags=[])
        brand = content.add("brand", f"b{i}", name=f"Twin {i}", aka=[])
        category = content.add("category", f"c{i}", name=f"Twin {i}")
        content.edges += [(item, "made_by", brand), (item, "IN_CATEGORY", category)]
    phrasings = [
        {"relation": relation, "target": "product", "anchor": anchor, "forms": ["has {x}"], "keywords": ["{x}"]}
        for relation, anchor in [("made_by", "brand"), ("IN_CATEGORY", "category")]
    ]
    settings = {"keyword_share": 1, "text_condition_share": 0, "held_out_share": 0, "phrasings": phrasings}
    frame, report = generate_questions(build(content), shop_spec(**settings))
    names = ["product <-made_by- brand", "product <-IN_CATEGORY- category"]
    lost = [report.templates[name].dropped["same words as another question"] for name in names]
    assert lost[0] == lost[1]
    assert 5 < lost[0] < 35  # "product Twin 3" or "products Twin 3", each about half the time
    assert frame["query"].is_unique
    retold, retelling = generate_questions(build(content), shop_spec(**settings, paraphrased_share=1))
    assert len(retold) == len(frame)  # other words for each do not make them two questions
    assert retelling.dropped() == report.dropped()


def test_anchors_are_spread_by_the_draw() -> None:
    content = Content()
    brands = [content.add("brand", f"b{i}", name=f"Brand {i}", aka=[]) for i in range(30)]
    for i in range(40):
        item = content.add("product", f"p{i}", title=f"Item {i}", description="", tags=[])
        content.edges += [(item, "made_by", brand) for brand in brands]
    frame, _ = generate_questions(build(content), shop_spec(max_answers=40, text_condition_share=0))
    joins = frame.loc[frame["template"] == "product <-made_by- brand & <-made_by- brand", "anchor_ids"]
    assert len({anchor["node_id"] for anchors in joins for anchor in anchors}) > 12


def test_a_condition_that_excludes_nothing_is_no_condition() -> None:
    content = Content()
    brand = content.add("brand", "b", name="Maker", aka=[])
    for i in range(4):
        item = content.add("product", f"p{i}", title=f"Item {i}", description="velvet lining", tags=[])
        content.edges.append((item, "made_by", brand))
    frame, report = generate_questions(build(content), shop_spec(text_condition_share=1))
    name = "product <-made_by- brand+text"
    assert report.templates[name].dropped == {"no textual condition narrows": 4}
    assert (frame["template"] == name).sum() == 0


def test_an_skb_without_edges_gives_no_questions() -> None:
    content = Content()
    content.add("product", "p", title="Item", description="", tags=[])
    frame, report = generate_questions(build(content), SPEC)
    assert list(frame.columns) == QUERIES.names
    assert frame.empty
    assert report.metadata()["drawn"] == 0
    assert QUERIES.table(frame).num_rows == 0


@given(st.integers(0, 10**7), st.integers(1, 500))
def test_draw_probability_is_the_largest_fitting_power_of_two(nodes: int, per_template: int) -> None:
    p = draw_probability(nodes, per_template)
    assert np.log2(p) == int(np.log2(p))
    assert 0 < p <= 1
    assert nodes * p <= per_template or nodes == 0
    assert p == 1 or nodes * p * 2 > per_template


def test_a_lower_probability_draws_a_subset() -> None:
    con = build(shop())
    many, few = (generate_questions(con, shop_spec(per_template=n))[1].templates for n in (100, 20))
    name = "product <-made_by- brand"
    assert few[name].probability == many[name].probability / 4
    assert 0 < few[name].drawn < many[name].drawn
