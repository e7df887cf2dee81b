"""Node documents: the text of a node, field by field under labels, and its neighbours' names by relation.

A document looks like this (fields in the order of the spec, empty ones left out)::

    phenotype: Bradycardia
    synonyms: Slow heartbeats
    definition: A slower than normal heart rate …
    kind of: Arrhythmia
    seen in: Long QT syndrome 9; Sick sinus syndrome 2 (+31 more)

Neighbours stand in canonical order, so the text does not depend on the order of any row. Every name stands in
it letter by letter; no replacement is ever run over a finished document.

This is the format ``labelled``; documents as the STaRK benchmark has them are made in :mod:`.stark_documents`.
"""

from __future__ import annotations

import hashlib
import json
import logging

import duckdb
import pandas as pd
import pyarrow as pa

from skb_pipeline.datasets.spec import DatasetSpec, NodeTypeSpec
from skb_pipeline.skb.stark_documents import build_stark_documents
from skb_pipeline.storage.duck import frame_hash

CODE_VERSION = "2"
_LOG = logging.getLogger(__name__)
DOCUMENTS_SCHEMA = pa.schema(
    [
        ("node_id", pa.int64()),
        ("external_id", pa.string()),
        ("node_type", pa.string()),
        ("name", pa.string()),
        ("document", pa.string()),
        ("text_hash", pa.string()),
    ]
)


def build_documents(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> pd.DataFrame:
    """Documents of all candidate nodes.

    Args:
        con: an SKB file.
        spec: gives candidate types, format, document fields, labels and the cap on neighbours.

    Returns:
        Frame of ``DOCUMENTS_SCHEMA`` in canonical order; ``text_hash`` is the sha256 of the document. Its
        ``attrs["counts"]`` says, by reason, how often something could not be read or was left out.
    """
    counts: dict[str, int] = {}
    if spec.documents.format == "labelled":
        nodes = _labelled(con, spec)
    else:
        nodes, counts = build_stark_documents(con, spec)
    for reason, n in counts.items():
        _LOG.warning("documents of %s: %s: %d", spec.name, reason, n)
    nodes["text_hash"] = [hashlib.sha256(d.encode()).hexdigest() for d in nodes["document"]]
    nodes = nodes[DOCUMENTS_SCHEMA.names]
    nodes.attrs["counts"] = counts
    return nodes


def _labelled(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> pd.DataFrame:
    nodes = con.execute(
        "SELECT node_id, external_id, node_type, name, fields::VARCHAR AS fields FROM nodes "
        "WHERE list_contains(?, node_type) ORDER BY canonical",
        [spec.candidate_types],
    ).df()
    relations = _relation_lines(con, spec) if spec.documents.relations else {}
    nodes["document"] = [
        "\n".join(
            [
                *field_lines(node_type, spec.node_types[node_type], json.loads(fields)),
                *relations.get(node_id, []),
            ]
        )
        for node_id, node_type, fields in zip(nodes["node_id"], nodes["node_type"], nodes["fields"], strict=True)
    ]
    return nodes


def field_lines(type_name: str, node_type: NodeTypeSpec, fields: dict[str, object]) -> list[str]:
    """``label: value`` for every field that has a value; the name's label is the node's type."""
    lines = []
    for name in node_type.document:
        value = fields.get(name)
        if value is not None:
            label = type_name if name == node_type.name_field else name
            lines.append(f"{label}: {compact_text(value)}")
    return lines


def compact_text(value: object) -> str:
    """A JSON value in one line: ``key: value`` joined by commas, items by semicolons, nulls and empty values left out.

    Objects within others stand in brackets.
    """
    if isinstance(value, dict):
        parts = [
            f"{key}: {f'({text})' if isinstance(item, dict) else text}"
            for key, item in value.items()
            if (text := compact_text(item))
        ]
        return ", ".join(parts)
    if isinstance(value, list):
        return "; ".join(text for text in map(compact_text, value) if text)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def documents_hash(documents: pd.DataFrame) -> str:
    """Content hash of a documents frame under external ids."""
    return frame_hash(documents[["node_type", "external_id", "text_hash"]])


def _relation_lines(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> dict[int, list[str]]:
    """node_id -> one line per heading, in declared order of the relations, seen from the head first.

    Headings with the same text (both ends of one relation, say) are one line; a neighbour reached twice under it
    is named once.
    """
    rank = 0
    headings = []
    for relation in spec.relations:
        for side, label in (("head", relation.head_label), ("tail", relation.tail_label)):
            headings.append(
                {
                    "relation": relation.name,
                    "head_type": relation.head,
                    "tail_type": relation.tail,
                    "side": side,
                    "heading": label or relation.name,
                    "position": rank,
                }
            )
            rank += 1
    con.register("headings", pa.Table.from_pylist(headings))
    rows = con.execute(
        """
        WITH named AS (
            SELECT node_id, heading, min(position) AS position, neighbour, any_value(name) AS name,
                   any_value(canonical) AS canonical
            FROM (
                SELECT e.head AS node_id, g.heading, g.position, t.node_id AS neighbour, t.name, t.canonical
                FROM edges e JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail
                JOIN headings g ON g.side = 'head' AND g.relation = e.relation
                               AND g.head_type = h.node_type AND g.tail_type = t.node_type
                UNION ALL
                SELECT e.tail, g.heading, g.position, h.node_id, h.name, h.canonical
                FROM edges e JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail
                JOIN headings g ON g.side = 'tail' AND g.relation = e.relation
                               AND g.head_type = h.node_type AND g.tail_type = t.node_type
            )
            WHERE name <> '' AND node_id IN (SELECT node_id FROM nodes WHERE list_contains(?, node_type))
            GROUP BY node_id, heading, neighbour
        ),
        counted AS (
            SELECT *, row_number() OVER (PARTITION BY node_id, heading ORDER BY canonical) AS place,
                   count(*) OVER (PARTITION BY node_id, heading) AS total,
                   min(position) OVER (PARTITION BY node_id, heading) AS line
            FROM named
        )
        SELECT node_id, heading, string_agg(name, '; ' ORDER BY place) AS names, any_value(total) AS total
        FROM counted WHERE place <= coalesce(?, total) GROUP BY node_id, heading, line ORDER BY node_id, line
        """,
        [spec.candidate_types, spec.documents.neighbours],
    ).fetchall()
    con.unregister("headings")
    lines: dict[int, list[str]] = {}
    for node_id, heading, names, total in rows:
        rest = total - (spec.documents.neighbours or total)
        lines.setdefault(node_id, []).append(f"{heading}: {names}" + (f" (+{rest} more)" if rest > 0 else ""))
    return lines
