"""Frames as dagster-pandas types: a frame is checked against its declaration before it is written."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
from dagster_pandas import PandasColumn, create_dagster_pandas_dataframe_type

from skb_pipeline.storage.frames import Column, Frame


@cache
def _type_of(name: str, description: str, columns: tuple[tuple[str, Column], ...]) -> Any:
    with warnings.catch_warnings():
        # Columns are marked beta by their library.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return create_dagster_pandas_dataframe_type(
            name=name, description=description, columns=[_column(*item) for item in columns]
        )


def _column(name: str, column: Column) -> Any:
    """What dagster-pandas checks of a column; columns that may have gaps only have to be there."""
    if column.one_of:
        return PandasColumn.categorical_column(name, categories=set(column.one_of), non_nullable=column.filled)
    if not column.filled:
        return PandasColumn.exists(name)
    rules: dict[str, Any] = {"non_nullable": True, "unique": column.unique}
    if pa.types.is_integer(column.type):
        return PandasColumn.integer_column(name, **_bounds(column, int), **rules)
    if pa.types.is_floating(column.type):
        return PandasColumn.float_column(name, **_bounds(column, float), **rules)
    if pa.types.is_boolean(column.type):
        return PandasColumn.boolean_column(name, **rules)
    return PandasColumn.string_column(name, **rules)


def _bounds(column: Column, kind: type[int] | type[float]) -> dict[str, float]:
    bounds = {"min_value": column.least, "max_value": column.most}
    return {name: kind(bound) for name, bound in bounds.items() if bound is not None}


def check_frame(declared: Frame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return ``frame`` if it fits its declaration.

    Raises:
        dagster.Failure: it does not; the description lists each column at fault. No retry would help.
    """
    result = _type_of(declared.name, declared.description, tuple(declared.columns.items())).type_check(None, frame)
    if not result.success:
        raise dg.Failure(f"{declared.name}: {result.description}", allow_retries=False)
    return frame
