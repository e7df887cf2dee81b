import pandas as pd
import pytest

from skb_pipeline.evaluation.plan_quality import causes_table, judge_plans, plan_quality_markdown, plan_quality_table
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import bucket_of

PLAN = (
    '{"anchors": [{"var": "a", "text": "x", "label": "gene"}],'
    ' "hops": [{"from": "a", "rel": "r", "to_var": "T", "to_label": "drug"}], "target": {"labels": ["drug"]}}'
)
BARE = '{"anchors": [{"var": "a", "text": "x", "label": "drug", "match_mode": "doc"}], "target": {"labels": ["drug"]}}'
SEARCH = BARE[:-1] + ', "retrieval_mode": "doc_search", "risk_level": "weak"}'
NODE_TYPE = {1: "drug", 2: "drug", 3: "gene"}
CASES = [
    # query, answers, gold, status, plan, outcome, n_cand, hits -> cause
    ("good", [1], PLAN, "valid", PLAN, "ok", 50, [1], "answer found"),
    ("wide", [1], None, "valid", PLAN, "ok", 501, [1, 2], "answer found among more than 500 candidates"),
    ("miss", [1], None, "degraded", PLAN, "ok", 2, [2, 3], "answers not among the candidates"),
    ("deep", [1], None, "valid", PLAN, "ok", 2000, [2, 3], "answers not among the listed candidates"),
    ("empty", [3], None, "valid", PLAN, "empty", 0, [], "nothing matched"),
    ("limit", [1], None, "valid", PLAN, "row_limit", 0, [], "stopped by the row limit"),
    ("text", [1], PLAN, "fallback", None, "ok", 2000, [], "no plan with a hop: text only"),
    ("bare", [1], None, "valid", BARE, "ok", 2000, [], "no plan with a hop: text only"),
    # A document search is executed, but has no hop that could be good, however few documents there are.
    ("search", [1], None, "valid", SEARCH, "ok", 3, [1], "document search that the plan asks for"),
]
RISK = {"text": "no_trade", "search": "weak", "bare": "weak", "wide": "aggressive"}
BUCKET = {"good": "11-50", "wide": ">500", "miss": "1-10", "deep": ">500", "search": ">500"}


@pytest.fixture
def judged() -> tuple[pd.DataFrame, pd.DataFrame]:
    queries = pd.DataFrame(
        [(q, "val", a, g, None) for q, a, g, *_ in CASES],
        columns=["query_id", "split", "answer_ids", "gold_plan", "template"],
    )
    outcomes = pd.DataFrame(
        [(q, s, RISK.get(q, "normal"), p, o, n, BUCKET.get(q)) for q, _, _, s, p, o, n, *_ in CASES],
        columns=["query_id", "status", "risk_level", "plan", "outcome", "n_cand", "bucket"],
    ).assign(cause="planned")
    # A question that was not to be planned.
    queries.loc[len(queries)] = ["later", "val", [1], None, None]
    outcomes.loc[len(outcomes)] = ["later", "fallback", "no_trade", None, "no_plan", 0, None, "not_asked"]
    hits = pd.DataFrame([(c[0], node) for c in CASES for node in c[7]], columns=["query_id", "node_id"])

    def agree(a: Plan, b: Plan) -> bool:
        return a == b

    return queries, judge_plans(queries, outcomes.sample(frac=1, random_state=2), hits, NODE_TYPE, agree)


def test_causes(judged: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    assert dict(zip(judged[1]["query_id"], judged[1]["cause"], strict=True)) == {
        **{c[0]: c[8] for c in CASES},
        "later": "not asked",
    }
    counted = causes_table({"rules": judged[1]})
    assert counted.iloc[0].to_dict() == {
        "engine": "rules", "split": "val", "cause": "no plan with a hop: text only", "questions": 2,
    }  # fmt: skip


def test_measures_count_every_question_that_was_asked(judged: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    queries, rows = judged
    table = plan_quality_table({"rules": rows}, queries, dataset="d")
    values = table[table["slice"] == "all"].set_index("measure")
    assert values["value"].to_dict() == pytest.approx(
        # "empty" asks for drugs while its answer is a gene; "limit" ended without a count; "text" has no plan.
        {"good@500": 1 / 9, "good@50": 1 / 9, "median n_cand": 50.0, "target type": 7 / 9, "gold plan": 0.5}
    )
    assert values["n_queries"].to_dict() == {
        "good@500": 9, "good@50": 9, "median n_cand": 5, "target type": 9, "gold plan": 2,
    }  # fmt: skip
    assert "| rules | all | 9 | 0.111 |" in plan_quality_markdown(table, split="val")
    assert plan_quality_table({"rules": rows.assign(asked=False)}, queries, dataset="d").empty


@pytest.mark.parametrize(
    ("n", "bucket"),
    [(0, None), (1, "1-10"), (10, "1-10"), (11, "11-50"), (100, "51-100"), (500, "101-500"), (501, ">500")],
)
def test_buckets(n: int, bucket: str | None) -> None:
    assert bucket_of(n) == bucket
