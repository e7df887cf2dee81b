"""Loads an SKB file into Neo4j through the driver, beside the version in use, checks the counts, and switches.

How versions lie in the database is told in :mod:`skb_pipeline.graph.neo4j.versions`. Nodes have the properties
``nodeId``, ``externalId``, ``name``, ``canonical`` and, if there are any, ``aliases`` and the values of typed fields;
relationships have ``edge_id``. Everything else stays in the SKB file. Only ``nodeId`` is indexed: an index entry has a
size limit that names need not keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from skb_pipeline.graph.neo4j import versions
from skb_pipeline.graph.neo4j.versions import GraphCounts
from skb_pipeline.plans.names import GraphNames, quote
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.text.sinks import progress_bar

if TYPE_CHECKING:
    from neo4j import Driver, Session

VERSION = "2"


BATCH = 10_000
"""Rows per transaction. A fixed number, since servers cap the memory of one transaction."""


class CountMismatchError(RuntimeError):
    """What the server holds after a load is not what the SKB file holds."""


@dataclass(frozen=True)
class LoadedVersion:
    """What a load left in the database.

    Attributes:
        label: the version label, now current.
        names: what types and relations are called; ``entity`` is the version label.
        counts: of the SKB file and, equally, of the server.
        written: False if the version was there and complete already.
        removed: labels of old versions that were removed.
    """

    label: str
    names: GraphNames
    counts: GraphCounts
    written: bool
    removed: tuple[str, ...]


def load_skb(
    driver: Driver,
    con: duckdb.DuckDBPyConnection,
    schema: GraphSchema,
    *,
    dataset: str,
    data: Mapping[str, str],
    database: str | None = None,
    keep_previous: bool = True,
    batch: int = BATCH,
) -> LoadedVersion:
    """Load an SKB as a version of its own, verify it, make it current, and remove versions no longer needed.

    Only one load per dataset may run at a time. A load that was killed is simply run again: every write is a MERGE.

    Args:
        driver: an open driver; the caller closes it.
        con: connection to the SKB file.
        schema: the dataset's names.
        dataset: name of the dataset.
        data: ``data_version`` and ``identity`` of the SKB.
        database: the server's database; None is the home database.
        keep_previous: keep the version that was current until now, for readers that began with it.
        batch: rows per transaction.

    Raises:
        ValueError: the file has types or relations that the schema lacks.
        CountMismatchError: the server's counts differ after the load; the version in use is untouched.
        neo4j.exceptions.Neo4jError, neo4j.exceptions.DriverError: the server refuses or cannot be reached. Transient
            errors are tried again first.
    """
    label = versions.version_label(dataset, data)
    names = GraphNames.of(schema).within(label)
    expected = count_skb(con, names)
    with driver.session(database=database) as session:
        versions.create_meta_constraints(session)
        found = versions.count_version(session, label)
        if not found.fits_in(expected):
            # Something else wrote into it, which no MERGE mends.
            versions.remove_version(session, label)
        versions.begin_version(session, versions.version_properties(dataset, data, names, expected))
        written = found != expected
        if written:
            _write_graph(session, con, schema, names, batch)
            differences = versions.count_version(session, label).differences(expected)
            if differences:
                raise CountMismatchError(f"version {label} is not what the SKB file holds: {'; '.join(differences)}")
        versions.switch(session, dataset, label, keep_previous=keep_previous)
        removed = versions.remove_stale(session, dataset)
    return LoadedVersion(label, names, expected, written, tuple(removed))


def count_skb(con: duckdb.DuckDBPyConnection, names: GraphNames) -> GraphCounts:
    """What a complete load of an SKB file has.

    Raises:
        ValueError: the file has types or relations that ``names`` lacks.
    """
    types = con.execute("SELECT node_type, count(*) FROM nodes GROUP BY 1").fetchall()
    relations = con.execute(
        "SELECT relation, count(*), count(*) FILTER (WHERE head = tail) FROM edges GROUP BY 1"
    ).fetchall()
    unknown = [name for name, _ in types if name not in names.labels]
    unknown += [name for name, *_ in relations if name not in names.relation_types]
    if unknown:
        raise ValueError(f"the SKB file has types or relations that the schema lacks: {sorted(unknown)}")
    return GraphCounts(
        nodes={names.labels[name]: n for name, n in types},
        relationships={names.relation_types[name]: n for name, n, _ in relations},
        self_loops={names.relation_types[name]: loops for name, _, loops in relations if loops},
    )


def _write_graph(
    session: Session, con: duckdb.DuckDBPyConnection, schema: GraphSchema, names: GraphNames, batch: int
) -> None:
    """The constraint before the nodes, which are looked up by it; all nodes before the first relationship."""
    versions.write(session, versions.node_constraint(names.entity))
    for node_type in names.labels:
        _write_nodes(session, con, schema, names, node_type, batch)
    for relation in names.relation_types:
        _write_edges(session, con, names, relation, batch)


def _write_nodes(
    session: Session,
    con: duckdb.DuckDBPyConnection,
    schema: GraphSchema,
    names: GraphNames,
    node_type: str,
    batch: int,
) -> None:
    fields = typed_columns(schema, names, node_type)
    values = "".join(f", {field.expression}" for field in fields)
    rows = con.cursor().execute(
        f"SELECT node_id, external_id, name, canonical, aliases{values} FROM nodes LEFT JOIN ("
        "    SELECT node_id, list(alias ORDER BY alias) AS aliases FROM aliases GROUP BY 1"
        ") USING (node_id) WHERE node_type = ? ORDER BY node_id",
        [*(field.path for field in fields), node_type],
    )
    # A property that is set to null is not there.
    properties = ["externalId", "name", "canonical", "aliases"]
    keys = [*properties, *(f"field{i}" for i in range(len(fields)))]
    written = [*properties, *(quote(field.key) for field in fields)]
    text = (
        f"UNWIND $rows AS row\nMERGE (n:{names.entity_label}:{names.label(node_type)} {{nodeId: row.nodeId}})\n"
        f"SET {', '.join(f'n.{name} = row.{key}' for name, key in zip(written, keys, strict=True))}"
    )
    _write_batches(session, text, rows, ("nodeId", *keys), batch, node_type)


@dataclass(frozen=True)
class TypedColumn:
    """A typed field of a node type as a property.

    Attributes:
        key: of the property, not quoted.
        kind: how it compares; numbers are stored as float64.
        expression: SQL of its value in the table ``nodes``, with one parameter: ``path``.
    """

    key: str
    kind: FieldKind
    expression: str
    path: str


def typed_columns(schema: GraphSchema, names: GraphNames, node_type: str) -> list[TypedColumn]:
    """The typed fields of a node type, in declared order."""
    found = []
    for field in schema.fields:
        if field.node_type == node_type:
            expression = "json_extract_string(fields, ?)"
            if field.kind is FieldKind.NUMBER:
                expression = f"TRY_CAST({expression} AS DOUBLE)"
            path = "/" + field.name.replace("~", "~0").replace("/", "~1")
            found.append(TypedColumn(names.properties[field.name], field.kind, expression, path))
    return found


def _write_edges(
    session: Session, con: duckdb.DuckDBPyConnection, names: GraphNames, relation: str, batch: int
) -> None:
    ends = con.execute(
        "SELECT count(DISTINCT head), count(DISTINCT tail) FROM edges WHERE relation = ?", [relation]
    ).fetchone()
    assert ends is not None
    from_head = ends[0] >= ends[1]
    # Relationships of a hub stay together, so that a transaction locks few hubs and another writer seldom the same.
    order = "tail, head" if from_head else "head, tail"
    rows = con.cursor().execute(
        f"SELECT edge_id, head, tail FROM edges WHERE relation = ? ORDER BY {order}, edge_id", [relation]
    )
    # The edge's id keeps a reciprocal pair apart from one edge that was written twice. MERGE reads the relationships
    # of the node it starts from, so it starts from the side without hubs.
    edge = f"[:{names.relation_type(relation)} {{edge_id: row.id}}]"
    text = (
        f"UNWIND $rows AS row\nMATCH (head:{names.entity_label} {{nodeId: row.head}})\n"
        f"MATCH (tail:{names.entity_label} {{nodeId: row.tail}})\n"
        f"MERGE {f'(head)-{edge}->(tail)' if from_head else f'(tail)<-{edge}-(head)'}"
    )
    _write_batches(session, text, rows, ("id", "head", "tail"), batch, relation)


def _write_batches(
    session: Session,
    text: str,
    rows: duckdb.DuckDBPyConnection,
    keys: Sequence[str],
    batch: int,
    title: str,
) -> None:
    with progress_bar(what=f"neo4j {title}", unit=" rows") as progress:
        for chunk in _chunks(rows, batch):
            versions.write(session, text, rows=[dict(zip(keys, row, strict=True)) for row in chunk])
            progress.update(len(chunk))


def _chunks(rows: duckdb.DuckDBPyConnection, size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := rows.fetchmany(size):
        yield chunk
