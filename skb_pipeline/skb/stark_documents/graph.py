"""Nodes and neighbours as sorted arrays. All numbers are canonical positions."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from skb_pipeline.skb.stark_documents.columns import Lists
from skb_pipeline.skb.store import canonical_positions


@dataclass(frozen=True)
class Neighbours:
    """Pairs of a node and a neighbour, each once, sorted by both.

    Attributes:
        nodes, others: int64 [pairs].
    """

    nodes: np.ndarray
    others: np.ndarray

    def of(self, nodes: np.ndarray) -> Lists:
        """Positions of the neighbours of each of the sorted ``nodes``."""
        begin, end = (np.searchsorted(self.nodes, nodes, side=side) for side in ("left", "right"))
        lengths = end - begin
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        picked = np.repeat(begin - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Lists(pa.array(self.others[picked]), offsets)


@dataclass(frozen=True)
class NodeNames:
    """What every node of the SKB is called.

    Attributes:
        names: Arrow strings [nodes].
        types: codes of the types, int64 [nodes].
    """

    names: pa.Array
    types: np.ndarray


def load_names(con: duckdb.DuckDBPyConnection, codes: dict[str, int]) -> NodeNames:
    """Names and types of all nodes; ``codes`` gives the number of each type."""
    rows = con.sql("SELECT name, node_type FROM nodes ORDER BY canonical").to_arrow_table().combine_chunks()
    types = rows["node_type"].combine_chunks().dictionary_encode()
    numbers = np.array([codes[name] for name in types.dictionary.to_pylist()], dtype=np.int64)
    return NodeNames(rows["name"].combine_chunks(), numbers[np.asarray(types.indices)])


def load_neighbours(con: duckdb.DuckDBPyConnection, relations: list[str]) -> dict[str, Neighbours]:
    """Neighbours by relation, over edges of both directions."""
    positions = canonical_positions(con)
    loaded = {}
    for relation in relations:
        rows = con.execute("SELECT src, dst FROM adjacency WHERE relation = ?", [relation]).fetchnumpy()
        # One number per pair, so that one sort sorts by both; quick, as the table is nearly sorted already.
        pairs = np.sort(positions[rows["src"]] * len(positions) + positions[rows["dst"]], kind="stable")
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        loaded[relation] = Neighbours(*np.divmod(pairs, max(len(positions), 1)))
    return loaded
