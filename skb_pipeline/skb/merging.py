"""Rows of nodes that have one key (type and external id) and different content become one node.

The rule does not look at the order of rows or files:

* The rows of a key are ordered: those with most fields first, rows of equally many by their cleaned content as JSON
  text.
* A field has the value of the first row that has one. What is parsed out of a field comes from the same row.
* A field declared ``texts`` that is not parsed has the items of all rows in that order: nothing of it is lost, and an
  item that is there already is not added again.
* The names of the other rows become aliases.

A field with different values in the rows is a *conflict*; conflicts are counted by field, with examples.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import duckdb
import pyarrow as pa

from skb_pipeline.datasets.spec import DatasetSpec, NodeTypeSpec
from skb_pipeline.text.settings import Shape

_BATCH = 5_000
_EXAMPLES = 3
_LISTED_IDS = 5
_SHOWN = 80
_MERGED_SCHEMA = pa.schema(
    [
        ("node_type", pa.string()),
        ("external_id", pa.string()),
        ("first_copy", pa.int64()),
        ("name", pa.string()),
        ("fields", pa.string()),
        ("content_hash", pa.string()),
        ("other_names", pa.list_(pa.string())),
    ]
)


@dataclass
class MergeReport:
    """What became of keys whose rows differ. All values are plain JSON.

    Attributes:
        nodes: nodes made of rows that differ.
        rows: rows that went into another row of their key; copies of a row are no part of it.
        examples: a few of these keys, as ``type id``.
        conflicts: ``type.field`` -> nodes whose rows have different values there; all but one value are left out.
        conflict_examples: ``type.field`` -> a few texts that say which value is kept and which is not.
        lists_joined: ``type.field`` -> nodes whose list has the items of several rows.
    """

    nodes: int = 0
    rows: int = 0
    examples: list[str] = field(default_factory=list)
    conflicts: dict[str, int] = field(default_factory=dict)
    conflict_examples: dict[str, list[str]] = field(default_factory=dict)
    lists_joined: dict[str, int] = field(default_factory=dict)


def merge_rows(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> MergeReport:
    """Fill ``staging.merged_nodes`` with one row for each key of ``staging.node_keys`` that has several variants.

    DuckDB finds and orders the rows; only those that differ come to Python, in batches, as values must be written
    letter by letter as the cleaning step writes them.
    """
    report = MergeReport()
    conflicts: Counter[str] = Counter()
    joined: Counter[str] = Counter()
    examples: defaultdict[str, list[str]] = defaultdict(list)
    con.register("merged_batch", _MERGED_SCHEMA.empty_table())
    con.execute("CREATE TABLE staging.merged_nodes AS SELECT * FROM merged_batch")
    batch: list[dict[str, Any]] = []
    with con.cursor() as reading:
        for key, rows in groupby(_differing_rows(reading), key=lambda row: row[:3]):
            node_type, external_id, first_copy = key
            merged = _Merged(spec.node_types[node_type])
            for row in rows:
                merged.add(json.loads(row[3]))
            report.nodes += 1
            report.rows += merged.rows - 1
            if len(report.examples) < _LISTED_IDS:
                report.examples.append(f"{node_type} {external_id}")
            for name in merged.others:
                where = f"{node_type}.{name}"
                conflicts[where] += 1
                if len(examples[where]) < _EXAMPLES:
                    examples[where].append(f"{external_id}: {merged.conflict(name)}")
            joined.update(f"{node_type}.{name}" for name in merged.joined)
            text = merged.text
            batch.append(
                {"node_type": node_type, "external_id": external_id, "first_copy": first_copy, "name": merged.name,
                 "fields": text, "content_hash": hashlib.sha256(text.encode()).hexdigest(),
                 "other_names": merged.other_names}
            )  # fmt: skip
            if len(batch) == _BATCH:
                _insert(con, batch)
        _insert(con, batch)
    con.unregister("merged_batch")
    report.conflicts = dict(sorted(conflicts.items()))
    report.conflict_examples = {name: examples[name] for name in report.conflicts}
    report.lists_joined = dict(sorted(joined.items()))
    return report


def _differing_rows(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, int, str]]:
    """(type, id, first copy of the key, fields) of each different row, those of a key together and in order."""
    found = con.execute("""
        SELECT r.node_type, r.external_id, d.first_copy, r.fields
        FROM staging.raw_nodes r JOIN (
            SELECT min(c.rowid) AS at, k.first_copy
            FROM staging.raw_nodes c JOIN staging.node_keys k USING (node_type, external_id)
            WHERE c.reason IS NULL AND k.variants > 1
            GROUP BY k.node_type, k.external_id, k.first_copy, c.content_hash
        ) d ON d.at = r.rowid
        ORDER BY r.node_type, r.external_id, len(json_keys(r.fields)) DESC, r.fields
    """)
    while rows := found.fetchmany(_BATCH):
        yield from rows


def _insert(con: duckdb.DuckDBPyConnection, batch: list[dict[str, Any]]) -> None:
    if batch:
        con.register("merged_batch", pa.Table.from_pylist(batch, schema=_MERGED_SCHEMA))
        con.execute("INSERT INTO staging.merged_nodes SELECT * FROM merged_batch")
        batch.clear()


class _Merged:
    """One node in the making, out of rows that come in canonical order.

    Attributes:
        values: field -> value; parsed values under their own names.
        others: field -> different values that are left out, as JSON text, in order.
        joined: fields whose list got items of a further row.
        rows: rows added.
    """

    def __init__(self, node_type: NodeTypeSpec) -> None:
        self._type = node_type
        self._items: dict[str, set[str]] = {}
        self.values: dict[str, Any] = {}
        self.others: dict[str, dict[str, None]] = {}
        self.joined: set[str] = set()
        self.rows = 0

    def add(self, row: dict[str, Any]) -> None:
        """Take the fields of one row (as stored: without empty ones); the row is given away."""
        self.rows += 1
        for name, declared in self._type.fields.items():
            names = (name, *declared.parsed_names(name))
            found = {key: row[key] for key in names if key in row}
            if not found:
                continue
            kept = {key: self.values[key] for key in names if key in self.values}
            if not kept:
                self.values |= found
            elif found == kept:
                continue
            elif declared.shape is Shape.TEXTS and declared.parse is None:
                self._join(name, row[name])
            else:
                self.others.setdefault(name, {})[_text(found.get(name, found))] = None

    def _join(self, name: str, items: list[str]) -> None:
        kept = self.values[name]
        if name not in self._items:
            self._items[name] = set(kept)
        known = self._items[name]
        new = [item for item in dict.fromkeys(items) if item not in known]
        if new:
            kept += new
            known.update(new)
            self.joined.add(name)

    @property
    def name(self) -> str:
        """The node's name; "" when no row has one."""
        return str(self.values.get(self._type.name_field, ""))

    @property
    def other_names(self) -> list[str]:
        """Names of rows that are not the node's."""
        return [json.loads(text) for text in self.others.get(self._type.name_field, {})]

    @property
    def text(self) -> str:
        """All fields as stored."""
        return _text({name: self.values[name] for name in sorted(self.values)})

    def conflict(self, name: str) -> str:
        """What is kept of a field in conflict and what is not, shortened."""
        left_out = " or ".join(text[:_SHOWN] for text in islice(self.others[name], _EXAMPLES))
        return f"{_text(self.values.get(name))[:_SHOWN]}, not {left_out}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
