"""Puts a small graph into a Cypher store, in the form that compiled plans expect, and takes it out again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import duckdb

from skb_pipeline.plans.names import COMMON_LABEL, GraphNames, quote
from skb_pipeline.plans.schema import FieldKind, GraphSchema

if TYPE_CHECKING:
    from neo4j import Driver

BATCH = 5_000
COMMON = quote(COMMON_LABEL)


@dataclass(frozen=True)
class GraphRows:
    """Nodes as (id, type, canonical position), edges as (edge id, head, relation, tail), and fields by node id."""

    nodes: Sequence[tuple[int, str, int]]
    edges: Sequence[tuple[int, int, str, int]]
    fields: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection) -> GraphRows:
        """All rows of an SKB store."""
        return cls(
            con.execute("SELECT node_id, node_type, canonical FROM nodes").fetchall(),
            con.execute("SELECT edge_id, head, relation, tail FROM edges").fetchall(),
            {node: json.loads(text) for node, text in con.execute("SELECT node_id, fields FROM nodes").fetchall()},
        )


def load(driver: Driver, database: str | None, rows: GraphRows, schema: GraphSchema) -> None:
    """Constraint first, then nodes, then edges; one writer. A second run changes nothing."""
    names = GraphNames.of(schema)
    driver.execute_query(
        f"CREATE CONSTRAINT IF NOT EXISTS FOR (n:{COMMON}) REQUIRE n.nodeId IS UNIQUE", database_=database
    )
    nodes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node, kind, canonical in rows.nodes:
        values = {}
        for name, value in rows.fields.get(node, {}).items():
            kind_of = schema.kind_of(kind, name)
            if value is not None and kind_of is not None:
                values[names.properties[name]] = float(value) if kind_of is FieldKind.NUMBER else value
        nodes[kind].append({"id": node, "canonical": canonical, "values": values})
    for kind, items in nodes.items():
        text = (
            f"MERGE (n:{COMMON}:{names.label(kind)} {{nodeId: row.id}}) "
            "SET n.canonical = row.canonical SET n += row.values"
        )
        _write(driver, database, text, items)
    edges: dict[str, list[dict[str, int]]] = defaultdict(list)
    for edge, head, relation, tail in rows.edges:
        edges[relation].append({"id": edge, "head": head, "tail": tail})
    for relation, items in edges.items():
        # The edge's id keeps a reciprocal pair apart from one edge that was written twice.
        edge = f"[:{names.relation_type(relation)} {{edge_id: row.id}}]"
        # MERGE reads the edges of the node it starts from, so it starts from the side without hubs.
        from_head = len({row["head"] for row in items}) >= len({row["tail"] for row in items})
        text = (
            f"MATCH (head:{COMMON} {{nodeId: row.head}}) MATCH (tail:{COMMON} {{nodeId: row.tail}})\n"
            f"MERGE {f'(head)-{edge}->(tail)' if from_head else f'(tail)<-{edge}-(head)'}"
        )
        _write(driver, database, text, items)


def clear(driver: Driver, database: str | None) -> None:
    """Delete all nodes and edges."""
    while True:
        text = f"MATCH (n) WITH n LIMIT {BATCH} DETACH DELETE n RETURN count(*) AS n"
        if not driver.execute_query(text, database_=database).records[0]["n"]:
            return


def _write(driver: Driver, database: str | None, text: str, rows: Iterable[Any]) -> None:
    for batch in _batches(rows):
        driver.execute_query(f"UNWIND $rows AS row\n{text}", rows=batch, database_=database)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(rows)
    while batch := list(islice(left, BATCH)):
        yield batch
