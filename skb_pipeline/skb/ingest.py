"""From raw rows to an SKB file: cleaning, quarantine, identity, edges, manifest.

The result depends on the *set* of rows alone, never on their order. For nodes and for edges alike

    rows in = rows stored + rows quarantined + duplicates dropped

holds, and the three numbers are in the :class:`LoadReport`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from tqdm import tqdm

from skb_pipeline.datasets.records import RawNode, SourceAdapter
from skb_pipeline.datasets.spec import DatasetSpec, NodeTypeSpec
from skb_pipeline.skb.cleaning import clean_ids, clean_text, coerce
from skb_pipeline.skb.parsers import parse_field
from skb_pipeline.skb.store import TABLES, build_adjacency
from skb_pipeline.storage.artifacts import stable_hash
from skb_pipeline.storage.duck import connect, content_hash

CODE_VERSION = "2"
_NODE_BATCH = 20_000
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


class LoadError(ValueError):
    """A source whose share of bad rows is above the limit in its spec."""


@dataclass
class LoadReport:
    """What a load did. All values are plain JSON.

    Attributes:
        data_version: hash of nodes, aliases and edges under external ids.
        identity: hash of the key -> node_id map.
        nodes, edges: ``rows_in``, ``stored``, ``quarantined``, ``duplicates_dropped``; edges also
            ``reciprocal_folded`` (part of duplicates_dropped), ``reciprocal_kept`` (pairs), ``self_loops``.
        nodes_by_type, edges_by_relation: stored rows.
        fill_rate: ``type.field`` -> share of nodes that have a value.
        cleaned: text changes by kind; coerced: ``type.field: kind`` -> values.
        quarantine_reasons: reason -> rows; out_of_scope: what the adapter left out by its rules.
        notes: what the adapter has to say about the source.
        nodes_without_name: nodes stored with an empty name.
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
    quarantine_reasons: dict[str, int] = field(default_factory=dict)
    out_of_scope: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    nodes_without_name: int = 0

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
    with connect(path) as con:
        con.execute(TABLES)
        con.execute("SET preserve_insertion_order = true")
        _stage_nodes(con, spec, source.nodes(), report)
        _store_nodes(con, previous, report, own_ids=getattr(source, "own_ids", False))
        _stage_edges(con, source.edges())
        _store_edges(con, spec, report)
        report.out_of_scope = dict(sorted(source.out_of_scope.items()))
        report.notes = list(getattr(source, "notes", []))
        _check_bad_rates(con, spec, report)
        build_adjacency(con)
        _measure(con, spec, report)
        _write_manifest(con, spec, report)
        con.execute("DROP TABLE raw_nodes; DROP TABLE raw_edges; CHECKPOINT")
    return report


def _stage_nodes(
    con: duckdb.DuckDBPyConnection, spec: DatasetSpec, nodes: Iterable[RawNode], report: LoadReport
) -> None:
    con.register("schema_only", pa.Table.from_batches([], _RAW_NODE_SCHEMA))
    con.execute("CREATE TABLE raw_nodes AS SELECT * FROM schema_only")
    cleaned: Counter[str] = Counter()
    coerced: dict[str, Counter[str]] = defaultdict(Counter)
    rows = (_clean_node(spec, node, cleaned, coerced) for node in nodes)
    with tqdm(desc="nodes", unit=" rows", disable=None, leave=False) as progress:
        while chunk := list(islice(rows, _NODE_BATCH)):
            con.register("chunk", pa.Table.from_pylist(chunk, schema=_RAW_NODE_SCHEMA))
            con.execute("INSERT INTO raw_nodes SELECT * FROM chunk")
            con.unregister("chunk")
            progress.update(len(chunk))
    report.cleaned = dict(sorted(cleaned.items()))
    report.coerced = {f"{name}: {kind}": n for name in sorted(coerced) for kind, n in sorted(coerced[name].items())}


def _clean_node(
    spec: DatasetSpec, node: RawNode, cleaned: Counter[str], coerced: dict[str, Counter[str]]
) -> dict[str, Any]:
    row: dict[str, Any] = {"source": node.source, "row": node.row, "reason": None, "aliases": [], "raw": None}
    row["external_id"] = clean_text(str(node.external_id), cleaned) if node.external_id is not None else ""
    row["node_type"] = clean_text(str(node.node_type), cleaned) if node.node_type is not None else None
    node_type = spec.node_types.get(node.node_type or "")
    if node.fault is not None:
        row["reason"] = node.fault
    elif node_type is None:
        row["reason"] = f"node type {node.node_type!r} is not declared"
    elif not row["external_id"]:
        row["reason"] = "external id is missing"
    if node_type is None or row["reason"]:
        row["raw"] = _safe_json({"node_type": node.node_type, "external_id": node.external_id, **node.fields})
        return row
    values: dict[str, Any] = {}
    for name, declared in node_type.fields.items():
        changes: Counter[str] = Counter()
        value = coerce(node.fields.get(name), declared, changes)
        if declared.parse is not None:
            parsed = parse_field(node.fields.get(name), declared.parse, changes)
            values |= {f"{name}_{k}": clean_text(v) if isinstance(v, str) else v for k, v in parsed.items()}
        _count_changes(changes, f"{node.node_type}.{name}", cleaned, coerced)
        if value is not None:
            values[name] = value
    for name in node.fields.keys() - node_type.fields.keys():
        coerced[f"{node.node_type}.{name}"]["undeclared_field_ignored"] += 1
    row["name"] = values.get(node_type.name_field, "")
    row["aliases"] = _aliases(node_type, values)
    # Objects inside a field keep the order of their keys: documents may show it.
    row["fields"] = json.dumps({name: values[name] for name in sorted(values)}, ensure_ascii=False)
    return row


def _count_changes(changes: Counter[str], name: str, cleaned: Counter[str], coerced: dict[str, Counter[str]]) -> None:
    for kind, n in changes.items():
        if kind in ("surrogate_replaced", "nul_removed", "nfc_normalised"):
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
    return clean_text(json.dumps(value, ensure_ascii=False, sort_keys=True, default=str))


def _store_nodes(con: duckdb.DuckDBPyConnection, previous: Path | None, report: LoadReport, *, own_ids: bool) -> None:
    """Quarantine, deduplicate, give ids. A key with differing rows is quarantined whole: none is guessed right."""
    con.execute("""
        CREATE TEMP TABLE node_keys AS
        SELECT node_type, external_id, count(*) AS copies, count(DISTINCT fields) AS variants
        FROM raw_nodes WHERE reason IS NULL GROUP BY ALL
    """)
    con.execute("""
        INSERT INTO quarantine
        SELECT source, "row", reason, raw FROM raw_nodes WHERE reason IS NOT NULL
        UNION ALL
        SELECT r.source, r."row", 'rows of one id differ',
               json_object('node_type', r.node_type, 'external_id', r.external_id, 'fields', r.fields::JSON)
        FROM raw_nodes r JOIN node_keys k USING (node_type, external_id)
        WHERE r.reason IS NULL AND k.variants > 1
    """)
    _give_ids(con, previous, own_ids)
    con.execute("""
        INSERT INTO nodes
        SELECT i.node_id, r.external_id, r.node_type, any_value(r.name), any_value(r.fields)::JSON,
               sha256(any_value(r.fields)), any_value(c.canonical)
        FROM raw_nodes r
        JOIN canonical_keys c USING (node_type, external_id)
        JOIN node_ids i USING (node_type, external_id)
        WHERE r.reason IS NULL
        GROUP BY ALL ORDER BY i.node_id
    """)
    con.execute("""
        INSERT INTO aliases
        SELECT DISTINCT n.node_id, unnest(r.aliases) AS alias
        FROM raw_nodes r JOIN nodes n USING (node_type, external_id) WHERE r.reason IS NULL
        ORDER BY ALL
    """)
    rows_in, quarantined, stored = _numbers(
        con,
        """
        SELECT (SELECT count(*) FROM raw_nodes), (SELECT count(*) FROM quarantine), (SELECT count(*) FROM nodes)
    """,
    )
    report.nodes = {
        "rows_in": rows_in,
        "stored": stored,
        "quarantined": quarantined,
        "duplicates_dropped": rows_in - quarantined - stored,
    }
    (report.nodes_without_name,) = _numbers(con, "SELECT count(*) FROM nodes WHERE name = ''")


def _give_ids(con: duckdb.DuckDBPyConnection, previous: Path | None, own_ids: bool) -> None:
    """Canonical order of all keys, then ids: known keys keep theirs, new ones follow in canonical order.

    With ``own_ids`` each external id is the node id, whatever an earlier load gave.
    """
    con.execute("""
        CREATE TEMP TABLE canonical_keys AS
        WITH keys AS (SELECT node_type, external_id FROM node_keys WHERE variants = 1),
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


def _stage_edges(con: duckdb.DuckDBPyConnection, batches: Iterator[pa.RecordBatch]) -> None:
    con.execute("""
        CREATE TABLE raw_edges (source VARCHAR, "row" BIGINT, head_type VARCHAR, head_id VARCHAR, relation VARCHAR,
                                tail_type VARCHAR, tail_id VARCHAR)
    """)
    with tqdm(desc="edges", unit=" rows", disable=None, leave=False) as progress:
        for batch in batches:
            edges = pa.Table.from_batches([batch])
            for name in ("head_id", "tail_id"):
                ids = clean_ids(batch.column(name))
                edges = edges.set_column(edges.schema.get_field_index(name), name, ids)
            con.register("chunk", edges)
            con.execute("INSERT INTO raw_edges SELECT * FROM chunk")
            con.unregister("chunk")
            progress.update(batch.num_rows)


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
        FROM raw_edges r
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
        SELECT (SELECT count(*) FROM raw_edges), (SELECT count(*) FROM checked_edges WHERE reason IS NOT NULL),
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
    for type_name, node_type in spec.node_types.items():
        for name in (n for f, d in node_type.fields.items() for n in (f, *d.parsed_names(f))):
            (rate,) = con.execute(
                "SELECT avg((json_extract(fields, ?) IS NOT NULL)::INT) FROM nodes WHERE node_type = ?",
                [f'$."{name}"', type_name],
            ).fetchone() or (None,)
            report.fill_rate[f"{type_name}.{name}"] = round(rate or 0.0, 4)
    report.data_version = stable_hash({name: content_hash(con, query) for name, query in _CONTENT.items()})
    report.identity = content_hash(con, "SELECT node_type, external_id, node_id FROM node_ids")


def _write_manifest(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, report: LoadReport) -> None:
    entries = {
        "dataset": spec.name,
        "code_version": CODE_VERSION,
        "schema": spec.section("node_types", "relations", "candidates"),
        "report": report.as_dict(),
    }
    con.executemany("INSERT INTO manifest VALUES (?, ?)", [[k, json.dumps(v)] for k, v in entries.items()])


def _numbers(con: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    row = con.execute(query).fetchone()
    assert row is not None
    return tuple(int(v) for v in row)
