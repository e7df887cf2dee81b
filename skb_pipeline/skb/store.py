"""Tables of an SKB file and the queries every reader needs.

The file is written once by ``skb.ingest`` and read-only afterwards.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd

TABLES = """
CREATE TABLE nodes (
    node_id BIGINT PRIMARY KEY,
    external_id VARCHAR NOT NULL,
    node_type VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    fields JSON NOT NULL,
    content_hash VARCHAR NOT NULL,
    canonical BIGINT NOT NULL            -- position in canonical order, 0-based
);
CREATE TABLE aliases (node_id BIGINT NOT NULL, alias VARCHAR NOT NULL);
CREATE TABLE edges (edge_id BIGINT NOT NULL, head BIGINT NOT NULL, relation VARCHAR NOT NULL, tail BIGINT NOT NULL);
CREATE TABLE quarantine (source VARCHAR, "row" BIGINT, reason VARCHAR NOT NULL, raw JSON);
CREATE TABLE node_ids (node_type VARCHAR NOT NULL, external_id VARCHAR NOT NULL, node_id BIGINT NOT NULL);
CREATE TABLE manifest ("key" VARCHAR PRIMARY KEY, "value" JSON NOT NULL);
"""
"""``node_ids`` also holds keys that were deleted, so that an id is never given again."""

ADJACENCY = """
CREATE TABLE adjacency AS
SELECT x.relation, n.node_type AS dst_type, x.src, x.dst, x.edge_id
FROM (
    SELECT relation, head AS src, tail AS dst, edge_id FROM edges
    UNION ALL
    SELECT relation, tail, head, edge_id FROM edges WHERE head <> tail
) x JOIN nodes n ON n.node_id = x.dst
ORDER BY x.relation, x.src, x.dst, x.edge_id
"""
"""Every edge from both of its ends (a self-loop once), sorted so that zone maps skip what a hop does not need."""


def build_adjacency(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table ``adjacency(relation, dst_type, src, dst, edge_id)`` from ``edges`` and ``nodes``."""
    con.execute(ADJACENCY)


def canonical_positions(con: duckdb.DuckDBPyConnection) -> np.ndarray:
    """Canonical position of every node, by node id.

    Returns:
        int64 array of length ``max(node_id) + 1``; -1 where no node has that id. Empty for an empty SKB.
    """
    rows = con.execute("SELECT node_id, canonical FROM nodes").fetchnumpy()
    ids = np.asarray(rows["node_id"], dtype=np.int64)
    positions = np.full(int(ids.max()) + 1 if len(ids) else 0, -1, dtype=np.int64)
    positions[ids] = rows["canonical"]
    return positions


def node_table(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """How people know each node: index ``node_id``, columns ``external_id, node_type, name``."""
    return con.execute("SELECT node_id, external_id, node_type, name FROM nodes").df().set_index("node_id")
