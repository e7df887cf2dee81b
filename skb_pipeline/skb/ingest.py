"""From raw rows to an SKB file: cleaning, quarantine, identity, edges, manifest.

The result depends on the *set* of rows alone, never on their order. For nodes and for edges alike

    rows in = rows stored + rows quarantined + duplicates dropped + rows merged

holds, and the numbers are in the :class:`LoadReport`. Rows of nodes with one key and different content are merged, see
``skb.merging``; edges have no content, so none of them is.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from skb_pipeline.datasets.records import RAW_EDGE_SCHEMA, RawNode, SourceAdapter
from skb_pipeline.datasets.spec import DatasetSpec, NodeTypeSpec
from skb_pipeline.errors import UserError
from skb_pipeline.skb.merging import MergeReport, merge_rows
from skb_pipeline.skb.store import TABLES, build_adjacency
from skb_pipeline.storage.artifacts import stable_hash
from skb_pipeline.storage.duck import connect, content_hash
from skb_pipeline.text.cleaning import CHANGES, clean_ids, clean_names, clean_text, storable
from skb_pipeline.text.markup import Removed
from skb_pipeline.text.parsers import parse_field
from skb_pipeline.text.shapes import coerce
from skb_pipeline.text.sinks import progress_bar

VERSION = "5"
_NODE_BATCH = 5_000
_MEMORY = 3 << 30
_RAW_NODE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("node_type", pa.string()),
        ("external_id", pa.string()),
        ("name", pa.string()),
        ("fields", pa.string()),
        ("aliases", pa.list_(pa.string())),
        ("raw", pa.string()),
        ("reason", pa.string()),
    ]
)
_CONTENT = {
    "nodes": "SELECT node_type, external_id, name, fields::VARCHAR AS fields FROM nodes",
    "aliases": "SELECT n.node_type, n.external_id, a.alias FROM aliases a JOIN nodes n USING (node_id)",
    "edges": """SELECT h.node_type AS head_type, h.external_id AS head_id, e.relation,
                       t.node_type AS tail_type, t.external_id AS tail_id
                FROM edges e JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail""",
}


class LoadError(UserError, ValueError):
    """A source whose share of bad rows is above the limit in its spec."""


@dataclass
class LoadReport:
    """What a load did. All values are plain JSON.

    Attributes:
        data_version: hash of nodes, aliases and edges under external ids.
        identity: hash of the key -> node_id map.
        nodes, edges: ``rows_in``, ``stored``, ``quarantined``, ``duplicates_dropped``; nodes also ``merged`` (rows
            whose content went into another row of their key); edges also ``reciprocal_folded`` (part of
            duplicates_dropped), ``reciprocal_kept`` (pairs), ``self_loops``.
        nodes_by_type, edges_by_relation: stored rows.
        fill_rate: ``type.field`` -> share of nodes that have a value.
        cleaned: text changes by kind (of ids, types and relations of edges, too); coerced: ``type.field: kind`` ->
            values.
        html_removed: ``type.field`` -> what was taken out of values declared as HTML (see ``text.markup.Removed``).
        quarantine_reasons: reason -> rows; out_of_scope: what the adapter left out by its rules.
        notes: what the adapter has to say about the source.
        nodes_without_name: nodes stored with an empty name.
        merged_nodes: what became of keys whose rows differ (see ``skb.merging.MergeReport``).
    """

    data_version: str = ""
    identity: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    nodes_by_type: dict[str, int] = field(default_factory=dict)
    edges_by_relation: dict[str, int] = field(default_factory=dict)
    fill_rate: dict[str, float] = field(default_factory=dict)
    cleaned: dict[str, int] = field(default_factory=dict)
    coerced: dict[str, int] = field(default_factory=dict)
    html_removed: dict[str, dict[str, Any]] = field(default_factory=dict)
    quarantine_reasons: dict[str, int] = field(default_factory=dict)
    out_of_scope: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    nodes_without_name: int = 0
    merged_nodes: MergeReport = field(default_factory=MergeReport)

    def as_dict(self) -> dict[str, Any]:
        """Plain nested dict, in field order."""
        return asdict(self)


def ingest(spec: DatasetSpec, source: SourceAdapter, path: Path, *, previous: Path | None = None) -> LoadReport:
    """Write the SKB file ``path`` from a source.

    Args:
        spec: declares types, fields and allowed triples.
        source: the rows.
        path: a file that does not exist yet; the caller switches it into place.
        previous: the SKB file this one replaces; its keys keep their node ids and its ids are never given again.

    Raises:
        LoadError: more bad rows than ``source.max_bad_node_rate`` or ``max_bad_edge_rate`` allow, or the source has
            its own node ids and they are no distinct integers from 0 on.
    """
    report = LoadReport()
    with connect(path) as con, _staging(con, path):
        con.execute(TABLES)
        con.execute("SET preserve_insertion_order = true")
        con.execute(f"SET memory_limit = '{_memory_limit() >> 20} MiB'")
        _stage_nodes(con, spec, source.nodes(), report)
        _store_nodes(con, spec, previous, report, own_ids=getattr(source, "own_ids", False))
        _stage_edges(con, source.edges(), report)
        _store_edges(con, spec, report)
        report.out_of_scope = dict(sorted(source.out_of_scope.items()))
        by_adapter: dict[str, int] = getattr(source, "cleaned", {})
        report.cleaned = dict(sorted((Counter(report.cleaned) + Counter(by_adapter)).items()))
        report.notes = list(getattr(source, "notes", []))
        _check_bad_rates(con, spec, report)
        build_adjacency(con)
        _measure(con, spec, report)
        _write_manifest(con, spec, report)
        con.execute("CHECKPOINT")
    return report


@contextmanager
def _staging(con: duckdb.DuckDBPyConnection, path: Path) -> Iterator[None]:
    """Raw rows go to a file of their own: in the SKB file they would leave holes as large as themselves."""
    staged = path.with_name(f"{path.name}.staging")
    staged.unlink(missing_ok=True)
    con.execute(f"ATTACH '{_sql_path(staged)}' AS staging")
    try:
        yield
    finally:
        con.execute("DETACH staging")
        staged.unlink(missing_ok=True)


def _memory_limit() -> int:
    """Bytes DuckDB may hold; it spills to disk beyond."""
    return min(_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def _create_from(
    con: duckdb.DuckDBPyConnection,
    table: str,
    query: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    unit: str,
) -> None:
    """``CREATE TABLE table AS query``, where the query reads ``batches`` as they come."""
    failure: list[BaseException] = []

    def watched() -> Iterator[pa.RecordBatch]:
        try:
            with progress_bar(what=unit, unit=" rows") as progress:
                for batch in batches:
                    progress.update(batch.num_rows)
                    yield batch
        except BaseException as error:
            failure.append(error)
            raise

    con.register("batches", pa.RecordBatchReader.from_batches(schema, watched()))
    try:
        con.execute(f"CREATE TABLE {table} AS {query}")
    except duckdb.Error:
        if failure:  # DuckDB knows only its text
            raise failure[0] from None
        raise
    finally:
        con.unregister("batches")


def _stage_nodes(
    con: duckdb.DuckDBPyConnection, spec: DatasetSpec, nodes: Iterable[RawNode], report: LoadReport
) -> None:
    cleaned: Counter[str] = Counter()
    coerced: dict[str, Counter[str]] = defaultdict(Counter)
    removed: dict[str, Removed] = defaultdict(Removed)
    rows = (_clean_node(spec, node, cleaned, coerced, removed) for node in nodes)
    chunks = iter(lambda: list(islice(rows, _NODE_BATCH)), [])
    batches = (pa.RecordBatch.from_pylist(chunk, schema=_RAW_NODE_SCHEMA) for chunk in chunks)
    query = "SELECT *, sha256(fields) AS content_hash FROM batches"
    _create_from(con, "staging.raw_nodes", query, _RAW_NODE_SCHEMA, batches, "nodes")
    report.cleaned = dict(sorted(cleaned.items()))
    report.coerced = {f"{name}: {kind}": n for name in sorted(coerced) for kind, n in sorted(coerced[name].items())}
    report.html_removed = {name: removed[name].as_dict() for name in sorted(removed) if removed[name].values}


def _clean_node(
    spec: DatasetSpec,
    node: RawNode,
    cleaned: Counter[str],
    coerced: dict[str, Counter[str]],
    removed: dict[str, Removed],
) -> dict[str, Any]:
    row: dict[str, Any] = {"source": node.source, "row": node.row, "reason": None, "aliases": [], "raw": None}
    row["external_id"] = clean_text(str(node.external_id), cleaned) if node.external_id is not None else ""
    row["node_type"] = clean_text(str(node.node_type), cleaned) if node.node_type is not None else None
    type_name = row["node_type"]
    node_type = spec.node_types.get(type_name or "")
    if node.fault is not None:
        row["reason"] = node.fault
    elif node_type is None:
        row["reason"] = f"node type {type_name!r} is not declared"
    elif not row["external_id"]:
        row["reason"] = "external id is missing"
    if node_type is None or row["reason"]:
        row["raw"] = _safe_json({"node_type": node.node_type, "external_id": node.external_id, **node.fields})
        return row
    values: dict[str, Any] = {}
    for name, declared in node_type.fields.items():
        changes: Counter[str] = Counter()
        value = coerce(
            node.fields.get(name), declared, changes, removed[f"{type_name}.{name}"] if declared.html else None
        )
        if declared.parse is not None:
            parsed = parse_field(node.fields.get(name), declared.parse, changes)
            values |= {f"{name}_{k}": clean_text(v) if isinstance(v, str) else v for k, v in parsed.items()}
        _count_changes(changes, f"{type_name}.{name}", cleaned, coerced)
        if value is not None:
            values[name] = value
    for name in node.fields.keys() - node_type.fields.keys():
        coerced[f"{type_name}.{name}"]["undeclared_field_ignored"] += 1
    row["name"] = values.get(node_type.name_field, "")
    row["aliases"] = _aliases(node_type, values)
    # Objects inside a field keep the order of their keys: documents may show it.
    row["fields"] = json.dumps({name: values[name] for name in sorted(values)}, ensure_ascii=False)
    return row


def _count_changes(changes: Counter[str], name: str, cleaned: Counter[str], coerced: dict[str, Counter[str]]) -> None:
    for kind, n in changes.items():
        if kind in CHANGES:
            cleaned[kind] += n
        else:
            coerced[name][kind] += n


def _aliases(node_type: NodeTypeSpec, values: dict[str, Any]) -> list[str]:
    if node_type.alias_field is None:
        return []
    found = values.get(node_type.alias_field, [])
    found = [found] if not isinstance(found, list) else found
    return sorted({str(a) for a in found} - {values.get(node_type.name_field)})


def _safe_json(value: Any) -> str:
    # As it came: cleaning JSON would join the letter of an escape and a combining mark behind it, and break the escape.
    return storable(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))


def _store_nodes(
    con: duckdb.DuckDBPyConnection, spec: DatasetSpec, previous: Path | None, report: LoadReport, *, own_ids: bool
) -> None:
    """Quarantine, deduplicate, merge, give ids."""
    con.execute("""
        CREATE TABLE staging.node_keys AS
        SELECT node_type, external_id, count(DISTINCT content_hash) AS variants, min(rowid) AS first_copy
        FROM staging.raw_nodes WHERE reason IS NULL GROUP BY ALL
    """)
    con.execute("""
        INSERT INTO quarantine
        SELECT source, "row", reason, raw FROM staging.raw_nodes WHERE reason IS NOT NULL
    """)
    report.merged_nodes = merge_rows(con, spec)
    _give_ids(con, previous, own_ids)
    con.execute("""
        CREATE TEMP TABLE kept_rows AS
        SELECT k.first_copy, i.node_id, c.canonical
        FROM staging.node_keys k
        JOIN canonical_keys c USING (node_type, external_id)
        JOIN node_ids i USING (node_type, external_id)
        ORDER BY i.node_id
    """)
    # Texts are sorted only when they do not come in the right order anyway.
    (in_order,) = _numbers(
        con,
        """
        SELECT coalesce(bool_and(ordered), true)::INT
        FROM (SELECT node_id > lag(node_id, 1, -1) OVER (ORDER BY first_copy) AS ordered FROM kept_rows)
    """,
    )
    con.execute(f"""
        INSERT INTO nodes
        SELECT k.node_id, r.external_id, r.node_type, coalesce(m.name, r.name), coalesce(m.fields, r.fields)::JSON,
               coalesce(m.content_hash, r.content_hash), k.canonical
        FROM staging.raw_nodes r JOIN kept_rows k ON k.first_copy = r.rowid
        LEFT JOIN staging.merged_nodes m ON m.first_copy = r.rowid
        {"" if in_order else "ORDER BY k.node_id"}
    """)
    con.execute("""
        INSERT INTO aliases
        SELECT DISTINCT n.node_id, a.alias
        FROM (
            SELECT node_type, external_id, unnest(aliases) AS alias FROM staging.raw_nodes WHERE reason IS NULL
            UNION ALL
            SELECT node_type, external_id, unnest(other_names) FROM staging.merged_nodes
        ) a JOIN nodes n USING (node_type, external_id)
        WHERE a.alias <> n.name
        ORDER BY ALL
    """)
    rows_in, quarantined, stored = _numbers(
        con,
        """
        SELECT (SELECT count(*) FROM staging.raw_nodes), (SELECT count(*) FROM quarantine), (SELECT count(*) FROM nodes)
    """,
    )
    report.nodes = {
        "rows_in": rows_in,
        "stored": stored,
        "quarantined": quarantined,
        "duplicates_dropped": rows_in - quarantined - stored - report.merged_nodes.rows,
        "merged": report.merged_nodes.rows,
    }
    (report.nodes_without_name,) = _numbers(con, "SELECT count(*) FROM nodes WHERE name = ''")


def _give_ids(con: duckdb.DuckDBPyConnection, previous: Path | None, own_ids: bool) -> None:
    """Canonical order of all keys, then ids: known keys keep theirs, new ones follow in canonical order.

    With ``own_ids`` each external id is the node id, whatever an earlier load gave.
    """
    con.execute("""
        CREATE TEMP TABLE canonical_keys AS
        WITH keys AS (SELECT node_type, external_id FROM staging.node_keys),
             kind AS (
                 SELECT coalesce(bool_and(regexp_full_match(external_id, '-?[0-9]{1,37}')), false) AS numeric FROM keys
             )
        SELECT node_type, external_id, row_number() OVER (
            ORDER BY CASE WHEN kind.numeric THEN try_cast(external_id AS HUGEINT) END, external_id, node_type
        ) - 1 AS canonical
        FROM keys, kind
    """)
    if own_ids:
        _take_own_ids(con)
    if previous is not None:
        con.execute(f"ATTACH '{_sql_path(previous)}' AS previous (READ_ONLY)")
        con.execute("""
            INSERT INTO node_ids
            SELECT p.* FROM previous.node_ids p
            ANTI JOIN node_ids k ON k.node_type = p.node_type AND k.external_id = p.external_id
            ANTI JOIN node_ids n ON n.node_id = p.node_id
            ORDER BY p.node_id
        """)
        con.execute("DETACH previous")
    con.execute("""
        INSERT INTO node_ids
        SELECT node_type, external_id,
               (SELECT coalesce(max(node_id) + 1, 0) FROM node_ids) + row_number() OVER (ORDER BY canonical) - 1
        FROM canonical_keys ANTI JOIN node_ids USING (node_type, external_id)
        ORDER BY canonical
    """)


def _take_own_ids(con: duckdb.DuckDBPyConnection) -> None:
    unfit = con.execute("""
        SELECT node_type, external_id FROM canonical_keys
        WHERE NOT regexp_full_match(external_id, '0|[1-9][0-9]{0,17}') ORDER BY canonical LIMIT 3
    """).fetchall()
    if unfit:
        raise LoadError(f"the source's own ids must be integers from 0 on; these are not: {unfit}")
    shared = con.execute("""
        SELECT external_id, list(node_type ORDER BY node_type) FROM canonical_keys
        GROUP BY external_id HAVING count(*) > 1 ORDER BY external_id LIMIT 3
    """).fetchall()
    if shared:
        raise LoadError(f"the source's own ids must belong to one node each; these do not: {shared}")
    con.execute("""
        INSERT INTO node_ids SELECT node_type, external_id, external_id::BIGINT FROM canonical_keys ORDER BY canonical
    """)


def _sql_path(path: Path) -> str:
    return str(path).replace("'", "''")


def _stage_edges(con: duckdb.DuckDBPyConnection, batches: Iterator[pa.RecordBatch], report: LoadReport) -> None:
    changes: Counter[str] = Counter()
    cleaned = (_with_clean_texts(batch, changes) for batch in batches)
    _create_from(con, "staging.raw_edges", "SELECT * FROM batches", RAW_EDGE_SCHEMA, cleaned, "edges")
    report.cleaned = dict(Counter(report.cleaned) + changes)


def _with_clean_texts(edges: pa.RecordBatch, changes: Counter[str]) -> pa.RecordBatch:
    clean = {
        "head_id": clean_ids, "tail_id": clean_ids,
        "head_type": clean_names, "relation": clean_names, "tail_type": clean_names,
    }  # fmt: skip
    columns = [
        clean[name](column, changes) if name in clean else column
        for name, column in zip(edges.schema.names, edges.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_EDGE_SCHEMA)


def _store_edges(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, report: LoadReport) -> None:
    con.register(
        "triples",
        pa.Table.from_pylist(
            [
                {"head_type": r.head, "relation": r.name, "tail_type": r.tail, "both_ways": r.symmetric}
                for r in spec.relations
            ]
        ),
    )
    con.execute("""
        CREATE TEMP TABLE checked_edges AS
        SELECT r.*, t.both_ways, h.node_id AS head, l.node_id AS tail, h.canonical AS head_at, l.canonical AS tail_at,
            CASE
                WHEN h.node_id IS NULL AND l.node_id IS NULL THEN 'head and tail do not exist'
                WHEN h.node_id IS NULL THEN 'head does not exist'
                WHEN l.node_id IS NULL THEN 'tail does not exist'
                WHEN t.relation IS NULL THEN 'relation is not declared between these types'
            END AS reason
        FROM staging.raw_edges r
        LEFT JOIN triples t USING (head_type, relation, tail_type)
        LEFT JOIN nodes h ON h.node_type = r.head_type AND h.external_id = r.head_id
        LEFT JOIN nodes l ON l.node_type = r.tail_type AND l.external_id = r.tail_id
    """)
    con.execute("""
        INSERT INTO quarantine
        SELECT source, "row", reason, json_object('head_type', head_type, 'head_id', head_id, 'relation', relation,
                                                  'tail_type', tail_type, 'tail_id', tail_id)
        FROM checked_edges WHERE reason IS NOT NULL
    """)
    # A symmetric relation has no direction: its edges run from the canonically smaller end, so a reciprocal pair
    # becomes one edge. Other relations keep both.
    con.execute("""
        CREATE TEMP TABLE distinct_edges AS
        SELECT DISTINCT head, relation, tail, both_ways, head_at, tail_at FROM checked_edges WHERE reason IS NULL
    """)
    con.execute("""
        INSERT INTO edges
        SELECT row_number() OVER (ORDER BY relation, head_at, tail_at) - 1, head, relation, tail
        FROM (
            SELECT DISTINCT relation,
                   CASE WHEN both_ways AND head_at > tail_at THEN tail ELSE head END AS head,
                   CASE WHEN both_ways AND head_at > tail_at THEN head ELSE tail END AS tail,
                   CASE WHEN both_ways AND head_at > tail_at THEN tail_at ELSE head_at END AS head_at,
                   CASE WHEN both_ways AND head_at > tail_at THEN head_at ELSE tail_at END AS tail_at
            FROM distinct_edges
        )
        ORDER BY 1
    """)
    rows_in, quarantined, distinct, stored, loops, reciprocal = _numbers(
        con,
        """
        SELECT (SELECT count(*) FROM staging.raw_edges), (SELECT count(*) FROM checked_edges WHERE reason IS NOT NULL),
               (SELECT count(*) FROM distinct_edges), (SELECT count(*) FROM edges),
               (SELECT count(*) FROM edges WHERE head = tail),
               (SELECT count(*) FROM edges a JOIN edges b
                ON a.relation = b.relation AND a.head = b.tail AND a.tail = b.head WHERE a.head < a.tail)
    """,
    )
    report.edges = {
        "rows_in": rows_in,
        "stored": stored,
        "quarantined": quarantined,
        "duplicates_dropped": rows_in - quarantined - stored,
        "reciprocal_folded": distinct - stored,
        "reciprocal_kept": reciprocal,
        "self_loops": loops,
    }


def _check_bad_rates(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, report: LoadReport) -> None:
    report.quarantine_reasons = dict(
        con.execute("SELECT reason, count(*) FROM quarantine GROUP BY 1 ORDER BY 2 DESC, 1").fetchall()
    )
    for what, numbers, limit in [
        ("node", report.nodes, spec.source.max_bad_node_rate),
        ("edge", report.edges, spec.source.max_bad_edge_rate),
    ]:
        if numbers["quarantined"] > limit * numbers["rows_in"]:
            examples = con.execute(
                'SELECT source, "row", reason, raw::VARCHAR FROM quarantine ORDER BY ALL LIMIT 3'
            ).fetchall()
            listed = "; ".join(f"{source}:{row}: {reason}: {raw}" for source, row, reason, raw in examples)
            raise LoadError(
                f"{numbers['quarantined']} of {numbers['rows_in']} {what} rows are bad, more than the share "
                f"{limit} that source.max_bad_{what}_rate of {spec.name!r} allows. Examples: {listed}"
            )


def _measure(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, report: LoadReport) -> None:
    report.nodes_by_type = dict.fromkeys(spec.node_types, 0) | dict(
        con.execute("SELECT node_type, count(*) FROM nodes GROUP BY 1").fetchall()
    )
    report.edges_by_relation = dict.fromkeys(sorted({r.name for r in spec.relations}), 0) | dict(
        con.execute("SELECT relation, count(*) FROM edges GROUP BY 1").fetchall()
    )
    counts = con.execute("""
        SELECT node_type, name, count(*)
        FROM (SELECT node_type, unnest(json_keys(fields)) AS name FROM nodes) GROUP BY ALL
    """).fetchall()
    filled = {(type_name, name): count for type_name, name, count in counts}
    for type_name, node_type in spec.node_types.items():
        total = report.nodes_by_type[type_name]
        for name in (n for f, d in node_type.fields.items() for n in (f, *d.parsed_names(f))):
            report.fill_rate[f"{type_name}.{name}"] = (
                round(filled.get((type_name, name), 0) / total, 4) if total else 0.0
            )
    report.data_version = stable_hash({name: content_hash(con, query) for name, query in _CONTENT.items()})
    report.identity = content_hash(con, "SELECT node_type, external_id, node_id FROM node_ids")


def _write_manifest(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, report: LoadReport) -> None:
    entries = {
        "dataset": spec.name,
        "code_version": VERSION,
        "schema": spec.section("node_types", "relations", "candidates"),
        "report": report.as_dict(),
    }
    con.executemany("INSERT INTO manifest VALUES (?, ?)", [[k, json.dumps(v)] for k, v in entries.items()])


def _numbers(con: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    (row,) = con.execute(query).fetchall()
    return tuple(int(v) for v in row)
