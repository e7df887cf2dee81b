"""Registry of plan executors that must agree with the oracle. A new engine is one more entry."""

from __future__ import annotations

from collections.abc import Callable

import duckdb

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.graph.sql import execute_sql
from skb_pipeline.plans.plan import Plan
from skb_pipeline.plans.results import Bindings, GraphResult
from skb_pipeline.plans.schema import GraphSchema

Engine = Callable[[duckdb.DuckDBPyConnection, Plan, GraphSchema, Bindings, int], GraphResult]
"""(connection to the store, plan, schema, bindings, limit) -> result."""


def run_sql(
    con: duckdb.DuckDBPyConnection, plan: Plan, schema: GraphSchema, bindings: Bindings, limit: int
) -> GraphResult:
    """The SQL text in DuckDB."""
    return execute_sql(con, plan, schema, bindings, limit=limit)


_last: list[tuple[duckdb.DuckDBPyConnection, CsrGraph]] = []
"""The connection used last and its graph, which many plans share."""


def run_memory(
    con: duckdb.DuckDBPyConnection, plan: Plan, schema: GraphSchema, bindings: Bindings, limit: int
) -> GraphResult:
    """The in-memory executor over a graph built from the store."""
    if not _last or _last[0][0] is not con:
        _last[:] = [(con, CsrGraph.from_skb(con))]
    fields = FieldValues.of(con, schema)
    return MemoryExecutor(_last[0][1], schema, fields).execute(plan, bindings, limit=limit)


ENGINES: dict[str, Engine] = {"sql": run_sql, "memory": run_memory}
