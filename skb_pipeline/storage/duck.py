"""DuckDB connections with explicit settings, and content hashes computed inside DuckDB."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa


@contextmanager
def connect(path: Path | str = ":memory:", *, read_only: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that is closed in every path.

    Python variables are not visible as tables, so that a local name never shadows a real table.

    Raises:
        duckdb.IOException: the file is held by a writer in another process; the message names the file.
    """
    con = duckdb.connect(str(path), read_only=read_only, config={"python_enable_replacements": False})
    try:
        yield con
    finally:
        con.close()


def content_hash(con: duckdb.DuckDBPyConnection, query: str, parameters: list[object] | None = None) -> str:
    """sha256 over the *set* of rows that ``query`` returns, whatever their order.

    Each row is turned into JSON and digested (128-bit); digests are combined by count, xor and sum, so the
    result needs no sort and little memory. Select external ids, never internal ones.
    """
    row = con.execute(
        f"""
        SELECT count(*), coalesce(bit_xor(h), 0)::VARCHAR, coalesce(sum((h % 1000000000000000003)::HUGEINT), 0)::VARCHAR
        FROM (SELECT md5_number(to_json(r)::VARCHAR) AS h FROM ({query}) AS r)
        """,
        parameters or [],
    ).fetchone()
    return hashlib.sha256(repr(row).encode()).hexdigest()


def frame_hash(frame: pd.DataFrame | pa.Table) -> str:
    """:func:`content_hash` of a frame's rows; column names count, row order and index do not."""
    with connect() as con:
        con.register("frame", frame)
        return content_hash(con, "SELECT * FROM frame")


def write_tables(path: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write frames as the tables of a new DuckDB file; table names are chosen by the caller, never by data."""
    with connect(path) as con:
        for name, frame in tables.items():
            con.register("frame", frame)
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM frame")
            con.unregister("frame")
