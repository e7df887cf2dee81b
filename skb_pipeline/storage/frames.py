"""Parquet files: the truth of every frame the pipeline keeps."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


def write_frame(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    """Write ``frame`` with exactly the columns and types of ``schema``.

    Raises:
        pyarrow.ArrowInvalid, KeyError: a column is missing or holds values of another type.
    """
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    pq.write_table(table, path, compression="zstd")


def read_frame(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a Parquet file into pandas (list columns arrive as numpy arrays)."""
    return pq.read_table(path, columns=columns).to_pandas()
