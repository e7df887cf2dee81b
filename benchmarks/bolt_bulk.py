"""Writes a graph into a database of the packaged Bolt server, in bulk and before the server starts.

The engine runs inside a process of its own here and takes vertices and edges in large batches, without a log for
recovery. On two busy cores that is 13 to 40 seconds per million edges, where MERGE over Bolt took 18 minutes. The
database then has the labels, properties and constraint that :mod:`skb_pipeline_tests.bolt_loader` gives it; record
ids and the layout of pages are the engine's own matter and differ.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.schema import GraphSchema

if TYPE_CHECKING:
    from arcadedb_embedded import Database
    from arcadedb_embedded.graph_batch import GraphBatch

CHUNK = 100_000
"""Rows that cross into the engine at a time, as text."""


def write_database(con: duckdb.DuckDBPyConnection, schema: GraphSchema, folder: Path, heap: str) -> None:
    """Write the nodes and edges of an SKB store into a new database.

    Args:
        con: connection to the store.
        schema: its names.
        folder: the database's folder, which must not exist; the server keeps it as ``databases/NAME``.
        heap: most memory of the Java process while it writes, such as ``6g``.

    Raises:
        RuntimeError: the database does not hold as many nodes or edges as the store.
        arcadedb_embedded.ArcadeDBError: the engine refuses, for instance since the folder holds a database.
    """
    with tempfile.TemporaryDirectory() as rows:
        # The process that writes cannot open the store while this one has it open.
        con.execute(f"COPY (SELECT node_id, node_type, canonical FROM nodes) TO '{rows}/nodes.parquet'")
        con.execute(f"COPY (SELECT edge_id, head, relation, tail FROM edges) TO '{rows}/edges.parquet'")
        # A process of its own gives the memory of its Java machine back when it ends.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            process.submit(_write, Path(rows).resolve(), GraphNames.of(schema), folder.resolve(), heap).result()


def _write(rows: Path, names: GraphNames, folder: Path, heap: str) -> None:
    """Body of the process that writes."""
    from arcadedb_embedded import create_database
    from arcadedb_embedded.jvm import start_jvm

    os.chdir(rows)  # The engine makes a folder for logs wherever it runs.
    start_jvm(heap_size=heap)
    with duckdb.connect() as con, create_database(str(folder)) as db:
        for table in ("nodes", "edges"):
            con.execute(f"CREATE VIEW {table} AS FROM '{rows}/{table}.parquet'")
        types = {node_type: _vertex_type(db, names.entity, label) for node_type, label in names.labels.items()}
        for relation in names.relation_types:
            db.command("sql", f"CREATE EDGE TYPE {names.relation_type(relation)}")
        with db.graph_batch(expected_edge_count=_count(con, "edges")) as batch:
            records = _write_nodes(batch, con, types)
            _write_edges(batch, con, names, records)
        # Later than the nodes: building the index in one go is no slower, and refuses a node id that occurs twice.
        constraint = f"CREATE CONSTRAINT FOR (n:{names.entity_label}) REQUIRE n.nodeId IS UNIQUE"
        db.command("opencypher", constraint)
        _compact_indexes(db)
        for table, in_engine in (("nodes", types), ("edges", names.relation_types)):
            found, wanted = sum(db.count_type(name) for name in in_engine.values()), _count(con, table)
            if found != wanted:
                raise RuntimeError(f"the database holds {found} {table}, not {wanted}")


def _vertex_type(db: Database, *labels: str) -> str:
    """The engine's type of nodes with several labels; made if it is new."""
    import jpype

    schema = db.get_java_database().getSchema()
    engine = jpype.JClass("com.arcadedb.query.opencypher.Labels")
    return str(engine.ensureCompositeType(schema, jpype.JClass("java.util.ArrayList")(labels)))


def _write_nodes(batch: GraphBatch, con: duckdb.DuckDBPyConnection, types: dict[str, str]) -> dict[int, str]:
    """Record ids by node id."""
    records: dict[int, str] = {}
    for node_type, vertex_type in types.items():
        text = "SELECT node_id, canonical FROM nodes WHERE node_type = ? ORDER BY node_id"
        for chunk in _chunks(con, text, node_type):
            rows = [{"nodeId": node, "canonical": canonical} for node, canonical in chunk]
            created = batch.create_vertices(vertex_type, rows)
            records.update(zip((row["nodeId"] for row in rows), created, strict=True))
    return records


def _write_edges(batch: GraphBatch, con: duckdb.DuckDBPyConnection, names: GraphNames, records: dict[int, str]) -> None:
    for relation, edge_type in names.relation_types.items():
        for chunk in _chunks(con, "SELECT edge_id, head, tail FROM edges WHERE relation = ? ORDER BY ALL", relation):
            heads, tails = ([records[row[i]] for row in chunk] for i in (1, 2))
            batch.new_edges(heads, edge_type, tails, [{"edge_id": row[0]} for row in chunk])


def _compact_indexes(db: Database) -> None:
    """Merge the pages of each index, as a server does by itself while it is written to."""
    for index in db.get_java_database().getSchema().getIndexes():
        index.scheduleCompaction()
        index.compact()


def _chunks(con: duckdb.DuckDBPyConnection, text: str, name: str) -> Iterator[list[tuple[Any, ...]]]:
    rows = con.cursor().execute(text, [name])
    while chunk := rows.fetchmany(CHUNK):
        yield chunk


def _count(con: duckdb.DuckDBPyConnection, table: str) -> int:
    row = con.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0
