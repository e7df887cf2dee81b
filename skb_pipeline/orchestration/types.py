"""dagster-pandas types of the frames that are kept; a frame is checked before it is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
from dagster_pandas import PandasColumn as Column
from dagster_pandas import create_dagster_pandas_dataframe_type


def _frame_type(name: str, description: str, columns: Callable[[], list[Any]]) -> Any:
    """A type of dagster-pandas, whose columns are marked beta by their library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return create_dagster_pandas_dataframe_type(name=name, description=description, columns=columns())


def _key(name: str) -> Any:
    return Column.string_column(name, non_nullable=True)


DOCUMENTS = _frame_type(
    "Documents",
    "One document per candidate node.",
    lambda: [
        Column.integer_column("node_id", non_nullable=True, unique=True, min_value=0),
        _key("external_id"),
        _key("node_type"),
        _key("name"),
        _key("document"),
        _key("text_hash"),
    ],
)
QUERIES = _frame_type(
    "Queries",
    "Questions with their answers (node ids), split, origin, template and gold plan.",
    lambda: [
        Column.string_column("query_id", non_nullable=True, unique=True),
        _key("query"),
        Column.categorical_column("split", categories={"train", "val", "test"}),
        Column.exists("answer_ids"),
        _key("origin"),
        Column.exists("template"),
        Column.exists("gold_plan"),
    ],
)
RANKING = _frame_type(
    "Ranking",
    "Hits of every query: rank from 1 without gaps, finite score, no node twice.",
    lambda: [
        _key("query_id"),
        Column.integer_column("node_id", non_nullable=True, min_value=0),
        Column.integer_column("rank", non_nullable=True, min_value=1),
        Column.float_column("score", non_nullable=True),
    ],
)
QUERY_METRICS = _frame_type(
    "QueryMetrics",
    "The four metrics of every query of one system.",
    lambda: [
        Column.string_column("query_id", non_nullable=True, unique=True),
        *[
            Column.float_column(m, non_nullable=True, min_value=0, max_value=1)
            for m in ("hit@1", "hit@5", "recall@20", "mrr")
        ],
    ],
)
METRICS = _frame_type(
    "Metrics",
    "Means with 95 % bootstrap intervals by system, split, slice and metric.",
    lambda: [
        *[_key(name) for name in ("dataset", "system", "split", "slice", "metric")],
        *[Column.float_column(c, non_nullable=True, min_value=0, max_value=1) for c in ("value", "ci_low", "ci_high")],
        Column.integer_column("n_queries", non_nullable=True, min_value=1),
    ],
)


def check_frame(frame_type: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Return ``frame`` if it fits the type.

    Raises:
        dagster.Failure: it does not; the description lists each column at fault. No retry would help.
    """
    result = frame_type.type_check(None, frame)
    if not result.success:
        raise dg.Failure(f"{frame_type.display_name}: {result.description}", allow_retries=False)
    return frame
