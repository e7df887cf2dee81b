"""The graph as arrays, and exact answers of the three template shapes.

Nodes are numbered by their place in canonical order (0-based, without gaps): *positions*. Node ids appear again only
when questions are written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np

from skb_pipeline.plans.plan import Direction
from skb_pipeline.questions.templates import Shape, Step, Template
from skb_pipeline.text.hashing import key_hash

_DIRECTED = """
SELECT e.{src} AS src, e.{dst} AS dst, e.edge_id
FROM edges e JOIN nodes n ON n.node_id = e.{src} JOIN nodes o ON o.node_id = e.{dst}
WHERE e.relation = ? AND n.node_type = ? AND o.node_type = ?
"""
_EDGES = {
    Direction.ANY: """
        SELECT a.src, a.dst, a.edge_id FROM adjacency a JOIN nodes n ON n.node_id = a.src
        WHERE a.relation = ? AND n.node_type = ? AND a.dst_type = ?
        """,
    Direction.OUT: _DIRECTED.format(src="head", dst="tail"),
    Direction.IN: _DIRECTED.format(src="tail", dst="head"),
}
"""Edges of a relation from nodes of one type to nodes of another, by direction as seen from the first."""


@dataclass(frozen=True)
class Nodes:
    """All nodes; every array and list has one entry per position.

    Attributes:
        node_ids: int64.
        external_ids, types, names: text.
        hashes: uint64, seeded hash of the key (type, external id).
    """

    node_ids: np.ndarray
    external_ids: list[str]
    types: np.ndarray
    names: list[str]
    hashes: np.ndarray

    @cached_property
    def _by_id(self) -> np.ndarray:
        return np.argsort(self.node_ids)

    def positions(self, node_ids: np.ndarray) -> np.ndarray:
        """int64 positions of the given ids, all of which must be known."""
        return self._by_id[np.searchsorted(self.node_ids, node_ids, sorter=self._by_id)]


def load_nodes(con: duckdb.DuckDBPyConnection, seed: int) -> Nodes:
    """Read the nodes of an SKB in canonical order."""
    rows = con.execute("SELECT node_id, external_id, node_type, name FROM nodes ORDER BY canonical").fetchnumpy()
    external_ids, types, names = ([str(v) for v in rows[c]] for c in ("external_id", "node_type", "name"))
    hashes = [key_hash(seed, *key) for key in zip(types, external_ids, strict=True)]
    return Nodes(
        node_ids=np.asarray(rows["node_id"], dtype=np.int64),
        external_ids=external_ids,
        types=np.array(types, dtype=object),
        names=names,
        hashes=np.array(hashes, dtype=np.uint64),
    )


@dataclass(frozen=True)
class Neighbours:
    """Adjacency of one step, from ``step.target`` to ``step.anchor`` in its direction, in CSR form.

    Attributes:
        indptr: int64, ``len(nodes) + 1``.
        other: int64, position of the node at the other end, ascending per node; repeated for parallel edges.
        edges: int64, edge ids.
    """

    indptr: np.ndarray
    other: np.ndarray
    edges: np.ndarray

    def of(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """``(other, edges)`` of one node."""
        rows = slice(self.indptr[position], self.indptr[position + 1])
        return self.other[rows], self.edges[rows]

    def degrees(self, positions: np.ndarray) -> np.ndarray:
        """int64 number of edges of each node."""
        return self.indptr[positions + 1] - self.indptr[positions]

    def of_many(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``(source, other, edges)`` of several nodes, ``source`` being the index into ``positions``."""
        degrees = self.degrees(positions)
        source = np.repeat(np.arange(len(positions)), degrees)
        starts = self.indptr[positions] - (np.cumsum(degrees) - degrees)
        rows = np.repeat(starts, degrees) + np.arange(len(source))
        return source, self.other[rows], self.edges[rows]


class Topology:
    """Adjacency of every step, read from the SKB when first needed."""

    def __init__(self, con: duckdb.DuckDBPyConnection, nodes: Nodes) -> None:
        self._con = con
        self._nodes = nodes
        self._steps: dict[Step, Neighbours] = {}

    def step(self, step: Step) -> Neighbours:
        """Edges between nodes of ``step.target`` and nodes of ``step.anchor`` that run as the step says."""
        if step not in self._steps:
            self._steps[step] = self._read(step)
        return self._steps[step]

    def back(self, step: Step) -> Neighbours:
        """The same edges from their other end."""
        return self.step(step.back)

    def _read(self, step: Step) -> Neighbours:
        rows = self._con.execute(_EDGES[step.direction], [step.relation, step.target, step.anchor]).fetchnumpy()
        src, dst = (self._nodes.positions(np.asarray(rows[end])) for end in ("src", "dst"))
        order = np.lexsort((rows["edge_id"], dst, src))
        counts = np.bincount(src, minlength=len(self._nodes.node_ids))
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Neighbours(indptr, dst[order], np.asarray(rows["edge_id"])[order])

    def answers(self, template: Template, anchors: tuple[int, ...], max_work: int) -> np.ndarray | None:
        """Every target that the anchors admit: the plan's meaning with each anchor bound to exactly one node.

        A match uses no stored edge twice. With one hop that cannot happen, nor in a join of two different anchors
        (an edge has two ends: one edge from the target to both would make them the same node), so it is checked
        where two consecutive hops go over one relation.

        Args:
            template: the shape.
            anchors: positions, one per anchor of the template; different from each other.
            max_work: largest number of edges to look at.

        Returns:
            Sorted int64 positions, or None where that would take more than ``max_work`` edges.
        """
        if template.shape is Shape.TWO_HOPS:
            return self._two_hops(template, anchors[0], max_work)
        sides = [self.back(step).of(a)[0] for step, a in zip(template.steps, anchors, strict=True)]
        sides.sort(key=len)
        if len(sides[0]) > max_work:
            return None
        answers = np.unique(sides[0])
        for side in sides[1:]:
            answers = answers[_contains(side, answers)]
        return answers

    def _two_hops(self, template: Template, anchor: int, max_work: int) -> np.ndarray | None:
        near, far = template.steps
        middles, first_edges = self.back(far).of(anchor)
        second = self.back(near)
        if len(middles) > max_work or int(second.degrees(middles).sum()) > max_work:
            return None
        source, targets, edges = second.of_many(middles)
        if template.one_relation:
            targets = targets[edges != first_edges[source]]
        return np.unique(targets)


def _contains(ascending: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which of ``wanted`` occur in ``ascending``: binary search, so that a hub is never read as a whole."""
    if not len(ascending):
        return np.zeros(len(wanted), dtype=bool)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return ascending[at] == wanted
