"""Rows of a frame that a condition holds for: an SQL expression over its columns, evaluated by DuckDB and nothing more.

The condition comes from whoever types it. It is parsed before it is run, and only an expression made of columns,
constants, operators and functions is let through. It is run in memory on a copy of the frame, on a connection without
access to files, other tables or extensions, whose settings cannot be changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from skb_pipeline.errors import UnknownNameError, UserError, unknown_name
from skb_pipeline.storage.duck import connect

MOST_CHARACTERS = 10_000
_CLASSES = {
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR",
    "TYPE",
}  # fmt: skip
"""Kinds of expressions that look at one row and at nothing else."""
_ROW = "row at"
_LOCKED = """
SET autoinstall_known_extensions = false;
SET autoload_known_extensions = false;
SET enable_external_access = false;
SET memory_limit = '2GB';
SET threads = 1;
SET lock_configuration = true;
"""


class ConditionError(UserError, ValueError):
    """A condition that cannot be used; one line says why."""


def rows_where(frame: pd.DataFrame, condition: str, *, limit: int | None = None) -> pd.DataFrame:
    """The rows of ``frame`` that a condition holds for, in their order.

    Args:
        frame: columns of texts, numbers and truth values, with gaps or without.
        condition: an SQL expression that is true, false or null, such as ``graph_rank = 1 and final_rank > 10``. Texts
            stand in single quotes; names of columns in any case.
        limit: most rows.

    Raises:
        ConditionError: it is no such expression, or fails on a row.
        UnknownNameError: it names a column that is not there.
    """
    with connect() as con:
        table = pa.Table.from_pandas(frame, preserve_index=False).append_column(_ROW, pa.array(range(len(frame))))
        con.register("given", table)
        con.execute("CREATE TABLE rows_given AS SELECT * FROM given")
        con.unregister("given")
        con.execute(_LOCKED)
        try:
            _check(con, condition, list(frame.columns))
            # The line end keeps a comment from hiding what follows.
            found = con.execute(
                f'SELECT "{_ROW}" FROM rows_given WHERE ({condition}\n) ORDER BY 1 LIMIT ?', [limit]
            ).fetchnumpy()[_ROW]
        except duckdb.Error as error:
            raise ConditionError(f"the condition fails: {_first_line(error)}") from error
    return frame.iloc[found].reset_index(drop=True)


def _check(con: duckdb.DuckDBPyConnection, condition: str, columns: list[str]) -> None:
    if len(condition) > MOST_CHARACTERS:
        raise ConditionError(f"the condition is longer than {MOST_CHARACTERS} characters")
    known = {name.casefold() for name in columns}
    for node in _nodes(_expression(con, condition)):
        kind = node["class"]
        if kind not in _CLASSES:
            raise ConditionError(
                f"the condition holds what looks beyond one row ({kind.lower().replace('_', ' ')}): "
                "it is an expression over the columns of one question"
            )
        if kind == "COLUMN_REF":
            name = ".".join(node["column_names"])
            if name.casefold() not in known:
                told = f"unknown column {name!r} (texts stand in single quotes)"
                raise UnknownNameError(unknown_name(told, name, columns))
    (described,) = con.execute(f"DESCRIBE SELECT ({condition}\n) FROM rows_given").fetchall()
    if described[1] not in ("BOOLEAN", '"NULL"', "NULL"):
        raise ConditionError(f"the condition gives {described[1]}, not true or false")


def _expression(con: duckdb.DuckDBPyConnection, condition: str) -> dict[str, Any]:
    """The syntax tree of a condition that is one expression."""
    try:
        row = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT ({condition}\n)"]).fetchone()
        assert row is not None
        tree = json.loads(row[0])
    except RecursionError as error:
        raise ConditionError("the condition is nested too deep") from error
    if tree["error"]:
        raise ConditionError(f"the condition is no expression: {_first_line(tree['error_message'])}")
    statements = [statement["node"] for statement in tree["statements"]]
    if len(statements) != 1 or not _is_bare(statements[0]):
        raise ConditionError("the condition is more than one expression: it may hold no other part of a statement")
    expression: dict[str, Any] = statements[0]["select_list"][0]
    return expression


def _is_bare(node: dict[str, Any]) -> bool:
    """Whether a statement is ``SELECT expression`` alone."""
    beside = ("modifiers", "where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")
    return (
        node["type"] == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and node["from_table"]["type"] == "EMPTY"
        and not node["cte_map"]["map"]
        and not any(node.get(part) for part in beside)
    )


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All expressions of a syntax tree."""
    left: list[Any] = [tree]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if "class" in value:
                yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
