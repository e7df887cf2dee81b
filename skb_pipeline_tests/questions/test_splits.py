"""The door to queries of some splits."""

from __future__ import annotations

import pandas as pd
import pytest

from skb_pipeline.questions.frame import QUERIES_SCHEMA
from skb_pipeline.questions.splits import queries_for


def _frame() -> pd.DataFrame:
    rows = [
        {"query_id": str(i), "query": f"q{i}", "split": split, "answer_ids": [i], "origin": "given"}
        for i, split in enumerate(["test", "train", "val", "train", "test"])
    ]
    return pd.DataFrame(rows).reindex(columns=QUERIES_SCHEMA.names).astype(object).where(lambda f: f.notna(), None)


def test_only_allowed_rows_come_out() -> None:
    rows, _ = queries_for(_frame(), ["train", "val"])
    assert list(rows["query_id"]) == ["1", "2", "3"]
    assert list(rows.index) == [0, 1, 2]


def test_hash_does_not_see_other_splits() -> None:
    frame = _frame()
    _, before = queries_for(frame, ["train"])
    frame.loc[frame["split"] == "test", "query"] = "something else"
    assert queries_for(frame, ["train"])[1] == before
    assert queries_for(frame[frame["split"] != "test"], {"train"})[1] == before


@pytest.mark.parametrize(("column", "value"), [("query", "new"), ("answer_ids", [9]), ("split", "val")])
def test_hash_sees_every_allowed_row(column: str, value: object) -> None:
    frame = _frame()
    _, before = queries_for(frame, ["train"])
    frame.at[1, column] = value
    assert queries_for(frame, ["train"])[1] != before


def test_allowing_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no split"):
        queries_for(_frame(), [])
    with pytest.raises(ValueError, match="not the string"):
        queries_for(_frame(), "train")
