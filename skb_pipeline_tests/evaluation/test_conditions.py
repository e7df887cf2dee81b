"""Conditions on traces: what finds rows, and what is refused before it is run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from skb_pipeline.errors import UnknownNameError
from skb_pipeline.evaluation.conditions import MOST_CHARACTERS, ConditionError, rows_where

FRAME = pd.DataFrame(
    {
        "query_id": ["a", "b", "c", "d"],
        "query": ["It's one; DROP TABLE x", "two", None, "-- three"],
        "graph_rank": pd.array([1, 30, None, 1], dtype="Int64"),
        "final_rank": pd.array([11, 2, None, 10], dtype="Int64"),
    }
)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("graph_rank = 1 and final_rank > 10", "a"),
        ("GRAPH_RANK <= 1", "ad"),
        ("graph_rank is null or final_rank between 2 and 3", "bc"),
        ("query like 'It''s one; DROP%'", "a"),
        ("query_id in ('d', 'a') -- and false", "ad"),
        ("case when graph_rank > 20 then true else final_rank::varchar like '%1' end", "ab"),
        ("regexp_matches(query, 't[wh]')", "bd"),
        ("coalesce(graph_rank, 99) > final_rank", "b"),
        ("true", "abcd"),
        ("null", ""),
    ],
)
def test_rows_are_found_in_their_order(condition: str, found: str) -> None:
    assert "".join(rows_where(FRAME, condition)["query_id"]) == found


def test_a_limit_keeps_the_first() -> None:
    assert rows_where(FRAME, "graph_rank >= 1", limit=2)["query_id"].tolist() == ["a", "b"]
    assert rows_where(FRAME.head(0), "graph_rank = 1").empty


def test_an_unknown_column_is_told_with_what_is_near() -> None:
    with pytest.raises(UnknownNameError) as caught:
        rows_where(FRAME, "graph_rnk = 1")
    assert str(caught.value) == (
        "unknown column 'graph_rnk' (texts stand in single quotes); "
        "there are: query_id, query, graph_rank, final_rank; near to it: graph_rank, final_rank"
    )


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("read_csv('{file}')", "table function"),
        ("read_text('{file}') is not null", "table function"),
        ("query in (select content from read_text('{file}'))", "looks beyond one row (subquery)"),
        ("exists (from '{file}')", "looks beyond one row (subquery)"),
        ("exists (select 1 from information_schema.tables)", "looks beyond one row (subquery)"),
        ("graph_rank = (select max(graph_rank) from rows_given)", "looks beyond one row (subquery)"),
        ("row_number() over () = 1", "looks beyond one row (window)"),
        ("graph_rank = $1", "looks beyond one row (parameter)"),
        ("COLUMNS(*) = 1", "looks beyond one row (star)"),
        ("len(list_filter([1], x -> x > 0)) = 1", "looks beyond one row (lambda)"),
        ("max(graph_rank) = 1", "aggregates"),
        ("ATTACH '{file}' AS x", "the condition"),
        ("true; ATTACH '{file}' AS x", "no expression"),
        ("true); COPY rows_given TO '{file}.copy'; SELECT (true", "no expression"),
        ("true) union all select (true", "more than one expression"),
        ("true) from rows_given where (true", "more than one expression"),
        ("true) order by (1", "more than one expression"),
        ("true; ", "no expression"),
        ("SET enable_external_access = true", "no expression"),
        ("INSTALL httpfs", "no expression"),
        ("graph_rank", "gives BIGINT, not true or false"),
        ("'a', true", "not true or false"),
        ("", "not true or false"),
        ("(" * 3000 + "true" + ")" * 3000, "the condition"),
        ("true" + " and true" * MOST_CHARACTERS, "longer than"),
        ("query::integer = 1", "Could not convert"),
        ("rows_given.query = ''", "unknown column"),
        ('"row at" = 1', "unknown column"),
        ("rowid = 1", "unknown column"),
    ],
)
def test_anything_else_is_refused_in_one_line(condition: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("content\nsecret\n")
    with pytest.raises((ConditionError, UnknownNameError)) as caught:
        rows_where(FRAME, condition.replace("{file}", str(file)))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
