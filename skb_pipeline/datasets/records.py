"""What a source adapter hands to ingest: batches of raw node and edge rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from skb_pipeline.errors import UserError

RAW_EDGE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("head_type", pa.string()),
        ("head_id", pa.string()),
        ("relation", pa.string()),
        ("tail_type", pa.string()),
        ("tail_id", pa.string()),
    ]
)


class SourceError(UserError, ValueError):
    """Source files that cannot be read as the spec says; the message names file and, where it can, row."""


@dataclass(frozen=True)
class RawNode:
    """One node as the source has it; nothing is cleaned yet.

    Attributes:
        source: file name, for error messages and quarantine rows.
        row: 1-based line or row number in it.
        node_type, external_id: the key; None or empty is quarantined.
        fields: field name -> raw value (any JSON-like value); a missing key equals an empty field.
        fault: why the row could not be read; it is quarantined with this reason and ``fields``.
    """

    source: str
    row: int
    node_type: str | None
    external_id: str | None
    fields: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None


@dataclass(frozen=True)
class RawQuery:
    """One question of a source.

    Attributes:
        source, row: where it stands, for error messages.
        query_id, query: as text.
        split: train, val or test.
        answers: external ids of candidate nodes.
        template: free text used as a slice of the metrics, or None.
        sample: name of a published part of the split that the question belongs to, another slice; or None.
    """

    source: str
    row: int
    query_id: str
    query: str
    split: str
    answers: list[str]
    template: str | None = None
    sample: str | None = None


class SourceAdapter(Protocol):
    """Reads one kind of source. Constructed from ``source.args`` of a spec; constructing reads nothing.

    ``out_of_scope`` counts, by reason, rows that are no part of the graph by the adapter's documented rules. An adapter
    may also have ``own_ids`` (true: external ids are integers, distinct over all types, and become the node ids) and
    ``notes`` (texts about the source that stand in the load report) and ``cleaned`` (changes of text it made itself, by
    the names of ``text.cleaning.CHANGES``).
    """

    out_of_scope: Counter[str]

    def files(self) -> list[Path]:
        """All files the content depends on. Raises FileNotFoundError naming what is absent."""
        ...

    def nodes(self) -> Iterator[RawNode]:
        """Every node row, in any order."""
        ...

    def edges(self) -> Iterator[pa.RecordBatch]:
        """Every edge row in batches of ``RAW_EDGE_SCHEMA``, in any order."""
        ...

    def queries(self) -> Iterator[RawQuery] | None:
        """The questions that come with the source, or None when it has none."""
        ...


@runtime_checkable
class Fetching(Protocol):
    """A source adapter that can get its files from somewhere."""

    def fetch(self) -> None:
        """Get what is not on disk; with all files there nothing is contacted."""
        ...


def edge_batches(
    rows: Iterable[tuple[str, int, str, str, str, str, str]], size: int = 100_000
) -> Iterator[pa.RecordBatch]:
    """Group edge rows (in the column order of ``RAW_EDGE_SCHEMA``) into record batches."""
    rows = iter(rows)
    while chunk := list(islice(rows, size)):
        columns = [
            pa.array(column, type=f.type) for column, f in zip(zip(*chunk, strict=True), RAW_EDGE_SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=RAW_EDGE_SCHEMA)
