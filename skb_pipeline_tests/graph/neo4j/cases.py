"""SKB files and helpers for the tests of the Neo4j load and export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import Edge, ListSource, buy, toy_spec

Node = tuple[str, str, dict[str, Any]]

HOSTILE_NAMES = [
    'comma, and "quotes"',
    "two\nlines",
    "carriage\r\nreturn",
    "back`tick",
    "back\\slash at the end\\",
    "'); MATCH (n) DETACH DELETE n //",
    "semi;colon",
    "TNF/α 🦠",
    "  blanks around  ",
    '"',
    '""',
    "NULL",
    "long " * 4000,
]


def product(external_id: str, title: str | None = None, aliases: Sequence[str] = ()) -> Node:
    return ("product", external_id, {"title": title or f"product {external_id}", "aliases": list(aliases)})


NODES: list[Node] = [
    *(product(str(i)) for i in range(1, 7)),
    product("7", "seven", ["lucky", "VII; 7"]),
    ("brand", "1", {"name": "Acme"}),
    ("brand", "2", {"name": "Nadir"}),
]
EDGES: list[Edge] = [
    buy("1", "2"),
    buy("2", "1"),
    buy("3", "3"),
    buy("1", "2", "also_view"),
    buy("4", "4", "similar"),
    buy("5", "4", "similar"),
    *(("product", str(i), "has_brand", "brand", "1") for i in range(1, 6)),
    # Quarantined: one end or both do not exist.
    buy("1", "99"),
    buy("98", "99"),
    ("product", "1", "has_brand", "brand", "77"),
]
STORED_EDGES = len(EDGES) - 3


def build_toy(
    path: Path, nodes: Sequence[Node] = NODES, edges: Sequence[Edge] = EDGES, spec: DatasetSpec | None = None
) -> dict[str, str]:
    """Ingest into a new SKB file; gives what identifies its data."""
    report = ingest(spec or toy_spec(), ListSource(nodes, edges), path)
    return {"data_version": report.data_version, "identity": report.identity}


@contextmanager
def toy_store(path: Path, **content: Any) -> Iterator[tuple[duckdb.DuckDBPyConnection, dict[str, str]]]:
    """An ingested toy SKB, open for reading, and what identifies its data."""
    data = build_toy(path, **content)
    with connect(path, read_only=True) as con:
        yield con, data


TOY_SCHEMA = GraphSchema.from_spec(toy_spec())
