"""DuckDB connections with explicit settings, and content hashes computed inside DuckDB."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import xor
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa

_COMBINED = "count(*), coalesce(bit_xor(h), 0)::VARCHAR, coalesce(sum((h % 1000000000000000003)::HUGEINT), 0)::VARCHAR"
"""Of digests h of rows: what does not depend on their order. All three of a whole follow from those of its parts."""


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
        f"SELECT {_COMBINED} FROM (SELECT md5_number(to_json(r)::VARCHAR) AS h FROM ({query}) AS r)", parameters or []
    ).fetchone()
    assert row is not None
    count, mixed, added = row
    return _digest(count, int(mixed), int(added))


def content_hashes(con: duckdb.DuckDBPyConnection, query: str, *, parts: str, key: str) -> tuple[str, dict[str, str]]:
    """:func:`content_hash` of all rows that ``query`` returns, and of those of each part, at the cost of one of them.

    Args:
        con: what both queries are for.
        query: gives rows with a column ``key``.
        parts: gives rows (``key``, ``part``), each key once; a row of another key is in no part.
        key: name of that column, never from data.

    Returns:
        Hash of all rows, and hash by part; a part without rows is left out (its hash is ``EMPTY``).
    """
    rows = con.execute(
        f"""
        SELECT part, {_COMBINED}
        FROM (SELECT p.part, md5_number(to_json(r)::VARCHAR) AS h
              FROM ({query}) AS r LEFT JOIN ({parts}) AS p USING ({key}))
        GROUP BY part
        """
    ).fetchall()
    numbers = [(part, count, int(mixed), int(added)) for part, count, mixed, added in rows]
    count, added = (sum(row[i] for row in numbers) for i in (1, 3))
    mixed = reduce(xor, (row[2] for row in numbers), 0)
    return _digest(count, mixed, added), {part: _digest(*row) for part, *row in numbers if part is not None}


def _digest(count: int, mixed: int, added: int) -> str:
    return hashlib.sha256(repr((count, str(mixed), str(added))).encode()).hexdigest()


EMPTY = _digest(0, 0, 0)
"""Content hash of no rows."""


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
