"""Versions of the rows of each split."""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest

from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.questions.splits import versions_by_split
from skb_pipeline_tests.questions.small_skb import build, shop


@pytest.fixture(scope="module")
def skb() -> duckdb.DuckDBPyConnection:
    return build(shop())


def _frame() -> pd.DataFrame:
    rows = [
        {"query_id": str(i), "query": f"q{i}", "split": split, "answer_ids": [i], "origin": "given"}
        for i, split in enumerate(["test", "train", "val", "train", "test"])
    ]
    return pd.DataFrame(rows).reindex(columns=QUERIES.names).astype(object).where(lambda f: f.notna(), None)


def test_a_split_does_not_see_the_others(skb: duckdb.DuckDBPyConnection) -> None:
    frame = _frame()
    whole, before = versions_by_split(frame, skb)
    frame.loc[frame["split"] == "test", "query"] = "something else"
    changed, after = versions_by_split(frame, skb)
    assert changed != whole
    assert {split for split in before if before[split] != after[split]} == {"test"}


@pytest.mark.parametrize(("column", "value"), [("query", "new"), ("answer_ids", [9]), ("split", "val")])
def test_a_split_sees_each_of_its_rows(skb: duckdb.DuckDBPyConnection, column: str, value: object) -> None:
    frame = _frame()
    before = versions_by_split(frame, skb)[1]["train"]
    frame.at[1, column] = value
    assert versions_by_split(frame, skb)[1]["train"] != before
