"""Which slices exist and who is in them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skb_pipeline.evaluation.slices import slice_masks
from skb_pipeline_tests.evaluation.cases import queries_of


def members(queries: pd.DataFrame) -> dict[str, list[str]]:
    return {name: queries.loc[mask, "query_id"].tolist() for name, mask in slice_masks(queries).items()}


def test_all_slices_of_made_questions() -> None:
    queries = queries_of(
        {"a": [1], "b": [1, 2], "c": list(range(6)), "d": list(range(21)), "e": []},
        template=["t2", "t1", "t2", None, "t1"],
        wording=["known", "held_out", "known", None, "known"],
        style=["question"] * 5,
        uses_alias=[True, False, None, False, False],
        sample=[None, None, None, "test-0.1", "test-0.1"],
    )
    found = members(queries)
    assert found == {
        "all": ["a", "b", "c", "d", "e"],
        "template=t1": ["b", "e"],
        "template=t2": ["a", "c"],
        "wording=held_out": ["b"],
        "wording=known": ["a", "c", "e"],
        "style=question": ["a", "b", "c", "d", "e"],
        "sample=test-0.1": ["d", "e"],
        "alias=yes": ["a"],
        "alias=no": ["b", "d", "e"],
        "answers=1": ["a"],
        "answers=2-5": ["b"],
        "answers=6-20": ["c"],
        "answers=>20": ["d"],
    }
    assert list(found)[:3] == ["all", "template=t1", "template=t2"]
    assert all(mask.dtype == bool for mask in slice_masks(queries).values())


def test_edges_of_the_answer_ranges_count_distinct_answers() -> None:
    queries = queries_of(
        {"a": [4, 4], "b": [*range(5), 0], "c": list(range(20)), "d": [*range(20), 0, 1, 2]},
    )
    assert members(queries) == {
        "all": ["a", "b", "c", "d"],
        "answers=1": ["a"],
        "answers=2-5": ["b"],
        "answers=6-20": ["c", "d"],
    }


def test_seen_answers_are_a_slice_of_test_questions() -> None:
    found = members(queries_of({"a": [1], "b": [1], "c": [1]}, seen_answer=[True, False, None]))
    assert (found["seen_answer=yes"], found["seen_answer=no"]) == (["a"], ["b"])


@pytest.mark.parametrize("empty", [None, np.nan, pd.NA])
def test_columns_of_nulls_give_no_slice(empty: object) -> None:
    columns = dict.fromkeys(("template", "wording", "style", "uses_alias"), empty)
    assert list(members(queries_of({"a": [1]}, **columns))) == ["all", "answers=1"]


@pytest.mark.parametrize("dtype", ["bool", "boolean", "object"])
def test_alias_column_of_any_boolean_type(dtype: str) -> None:
    queries = queries_of({"a": [1], "b": [1]})
    queries["uses_alias"] = pd.Series([True, False], dtype=dtype)
    assert members(queries)["alias=yes"] == ["a"]
    assert members(queries)["alias=no"] == ["b"]


def test_alias_column_of_text_is_refused() -> None:
    with pytest.raises(TypeError):
        slice_masks(queries_of({"a": [1]}, uses_alias=["no"]))
