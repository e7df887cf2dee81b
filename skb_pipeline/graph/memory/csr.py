"""``CsrGraph``: the edges of an SKB as compressed rows in memory, or mapped from files. Derived from the SKB file.

Rows and neighbours are *positions*, private to one graph: nodes are numbered by type (names sorted), and within a type
in canonical order. So the nodes of a type are one range of positions, and ``neighbours`` within a row, which are
sorted, fall into one run per type. Node ids, which may have gaps, are looked up through ``node_ids``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import duckdb
import numpy as np

from skb_pipeline.graph.memory.ways import EVERY_WAY, Way
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import MANIFEST, ManifestMismatchError

VERSION = 2
Find = Callable[[np.ndarray], np.ndarray]
_ARRAYS = ("indptr", "neighbours", "edge_ids", "ends", "node_ids", "id_order", "canonical")


@dataclass(frozen=True, eq=False)
class Relation:
    """Adjacency of one relation. Row i, of position ``first_row + i``, has the entries ``indptr[i]:indptr[i + 1]``.

    Attributes:
        first_row: position of the first row; rows reach over the types that the relation joins. Other nodes have no
            edges of it.
        indptr: int32 or int64 [rows + 1].
        neighbours: int32 [entries], ascending within a row. Every edge has an entry at both of its ends, a self-loop
            one.
        edge_ids: int32 or int64 [entries].
        ends: uint8 [entries], which end the row's node is.
        way: the entries that are used.
    """

    first_row: int
    indptr: np.ndarray
    neighbours: np.ndarray
    edge_ids: np.ndarray
    ends: np.ndarray
    way: Way = EVERY_WAY

    def turned(self) -> Relation:
        """The same edges, to be read from the rows of their other ends."""
        return replace(self, way=self.way.turned())


@dataclass(frozen=True, eq=False)
class CsrGraph:
    """All edges from both of their ends. Arrays must not be written to.

    Attributes:
        node_types: names, sorted.
        type_starts: int64 [types + 1]; type i has the positions ``type_starts[i]`` to ``type_starts[i + 1]``.
        relations: names, sorted; those that have edges.
        first_rows: int64 [relations], see :class:`Relation`.
        indptr_starts, entry_starts: int64 [relations + 1], where each relation begins in ``indptr`` and ``neighbours``.
        indptr: int32 (int64 if a relation has 2**31 entries), one relation after the other, each from 0.
        neighbours: int32 [entries].
        edge_ids: int32 or int64 [entries]; read only where a plan uses a relation more than once.
        ends: uint8 [entries], ``HEAD``, ``TAIL`` or, of a self-loop, ``EITHER``: which end of its edge the node of the
            row is. Read only where the direction of a hop filters.
        node_ids: int32 or int64, per position.
        id_order: int32, positions by ascending node id.
        canonical: int32, place in canonical order per position.
        data: what the caller says the graph was made from (plain JSON values).
    """

    node_types: tuple[str, ...]
    type_starts: np.ndarray
    relations: tuple[str, ...]
    first_rows: np.ndarray
    indptr_starts: np.ndarray
    entry_starts: np.ndarray
    indptr: np.ndarray
    neighbours: np.ndarray
    edge_ids: np.ndarray
    ends: np.ndarray
    node_ids: np.ndarray
    id_order: np.ndarray
    canonical: np.ndarray
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_skb(cls, con: duckdb.DuckDBPyConnection, data: Mapping[str, Any] | None = None) -> Self:
        """Build from the tables ``nodes`` and ``edges``, in time linear in their size.

        Memory beside the result: 4 bytes per node id up to the largest, 55 bytes per edge of the largest relation.

        Args:
            con: connection to an SKB file.
            data: identity of that SKB, such as its data version; kept and saved with the graph.

        Raises:
            ValueError: an edge has an end that is no node, or a node id is negative.
        """
        types = con.execute("SELECT node_type, count(*) FROM nodes GROUP BY 1 ORDER BY 1").fetchall()
        nodes = con.execute("SELECT node_id, canonical FROM nodes ORDER BY node_type, canonical").fetchnumpy()
        ids = np.asarray(nodes["node_id"], dtype=np.int64)
        if len(ids) and ids.min() < 0:
            raise ValueError(f"node id {ids.min()} is negative")
        order = np.argsort(ids, kind="stable")
        find = _finder(ids, order)
        type_starts = _starts([count for _, count in types])
        names = [row[0] for row in con.execute("SELECT DISTINCT relation FROM edges ORDER BY 1").fetchall()]
        parts = [_read_relation(con, name, find, type_starts) for name in names]
        return cls(
            node_types=tuple(name for name, _ in types),
            type_starts=type_starts,
            relations=tuple(names),
            first_rows=np.array([part.first_row for part in parts], dtype=np.int64),
            indptr_starts=_starts([len(part.indptr) for part in parts]),
            entry_starts=_starts([len(part.neighbours) for part in parts]),
            indptr=_joined([part.indptr for part in parts], np.dtype(np.int32)),
            neighbours=_joined([part.neighbours for part in parts], np.dtype(np.int32)),
            edge_ids=_joined([part.edge_ids for part in parts], np.dtype(np.int32)),
            ends=_joined([part.ends for part in parts], np.dtype(np.uint8)),
            node_ids=_narrow(ids),
            id_order=order.astype(np.int32),
            canonical=_narrow(np.asarray(nodes["canonical"], dtype=np.int64)),
            data=dict(data or {}),
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_ids)

    @property
    def n_entries(self) -> int:
        """Number of adjacency entries: two per edge, one per self-loop."""
        return len(self.neighbours)

    def nbytes(self, *, edge_ids: bool = True) -> int:
        """Bytes of all arrays; without ``edge_ids`` those that every plan needs, also one that uses each relation once
        and in either direction."""
        return sum(getattr(self, name).nbytes for name in _ARRAYS if edge_ids or name not in ("edge_ids", "ends"))

    def relation(self, name: str) -> Relation | None:
        """Views of one relation's rows; None where no edge has it."""
        return self._relations.get(name)

    @cached_property
    def _relations(self) -> Mapping[str, Relation]:
        views = {}
        for i, name in enumerate(self.relations):
            rows = slice(self.indptr_starts[i], self.indptr_starts[i + 1])
            entries = slice(self.entry_starts[i], self.entry_starts[i + 1])
            views[name] = Relation(
                int(self.first_rows[i]),
                self.indptr[rows],
                self.neighbours[entries],
                self.edge_ids[entries],
                self.ends[entries],
            )
        return views

    def type_range(self, name: str) -> tuple[int, int]:
        """First position of a type and the one after its last; equal for a type without nodes."""
        if name not in self.node_types:
            return 0, 0
        i = self.node_types.index(name)
        return int(self.type_starts[i]), int(self.type_starts[i + 1])

    def positions(self, node_ids: np.ndarray) -> np.ndarray:
        """int64 positions of node ids; -1 for an id that no node has."""
        from skb_pipeline.graph.memory import kernels

        wanted = np.ascontiguousarray(node_ids, dtype=np.int64)
        return np.asarray(kernels.find_positions(self.node_ids, self.id_order, wanted))

    def save(self, folder: Path) -> None:
        """Write one ``.npy`` file per array, then the manifest.

        Args:
            folder: made when absent. A writer that must not be seen half done passes a scratch folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name), allow_pickle=False)
            atomic.fsync_one(folder / f"{name}.npy")
        atomic.write_json(folder / MANIFEST, self._manifest())

    def _manifest(self) -> dict[str, Any]:
        relations = [
            {"name": name, "first_row": int(first), "rows": int(rows) - 1, "entries": int(entries)}
            for name, first, rows, entries in zip(
                self.relations, self.first_rows, np.diff(self.indptr_starts), np.diff(self.entry_starts), strict=True
            )
        ]
        counts = np.diff(self.type_starts).tolist()
        types = [{"name": name, "nodes": n} for name, n in zip(self.node_types, counts, strict=True)]
        return {
            "format": VERSION,
            "node_types": types,
            "relations": relations,
            "dtypes": {name: str(getattr(self, name).dtype) for name in _ARRAYS},
            "data": dict(self.data),
        }

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = True, data: Mapping[str, Any] | None = None) -> Self:
        """Read what :meth:`save` wrote.

        Args:
            folder: the saved graph.
            mmap: map the files, so that pages are read when first used and shared between processes.
            data: identity the graph must have been saved with; None: any.

        Raises:
            ManifestMismatchError: unknown format, other ``data``, or arrays that do not fit the manifest's counts.
            FileNotFoundError: no manifest (the graph was not finished), or an array is missing.
        """
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest.get("format") != VERSION:
            raise ManifestMismatchError(f"{folder}: graph format {manifest.get('format')!r}, expected {VERSION}")
        if data is not None and manifest["data"] != dict(data):
            raise ManifestMismatchError(f"{folder}: the graph was made from {manifest['data']}, expected {dict(data)}")
        # Copy-on-write rather than read-only: the compiled loops then see one kind of array in every case.
        mode: Literal["c"] | None = "c" if mmap else None
        arrays = {n: np.asarray(np.load(folder / f"{n}.npy", mmap_mode=mode, allow_pickle=False)) for n in _ARRAYS}
        relations = manifest["relations"]
        graph = cls(
            node_types=tuple(t["name"] for t in manifest["node_types"]),
            type_starts=_starts([t["nodes"] for t in manifest["node_types"]]),
            relations=tuple(r["name"] for r in relations),
            first_rows=np.array([r["first_row"] for r in relations], dtype=np.int64),
            indptr_starts=_starts([r["rows"] + 1 for r in relations]),
            entry_starts=_starts([r["entries"] for r in relations]),
            data=manifest["data"],
            **arrays,
        )
        graph._check(folder, manifest["dtypes"])
        return graph

    def _check(self, folder: Path, dtypes: Mapping[str, str]) -> None:
        nodes, entries = int(self.type_starts[-1]), int(self.entry_starts[-1])
        lengths = dict.fromkeys(("node_ids", "id_order", "canonical"), nodes)
        lengths |= dict.fromkeys(("neighbours", "edge_ids", "ends"), entries)
        lengths["indptr"] = int(self.indptr_starts[-1])
        for name, length in lengths.items():
            array = getattr(self, name)
            if (array.shape, str(array.dtype)) != ((length,), dtypes[name]):
                found = f"{array.dtype}{list(array.shape)}"
                raise ManifestMismatchError(f"{folder}: {name} is {found}, expected {dtypes[name]}[{length}]")
        for name, view in self._relations.items():
            if (int(view.indptr[0]), int(view.indptr[-1])) != (0, len(view.neighbours)):
                raise ManifestMismatchError(f"{folder}: rows of relation {name!r} do not cover its entries")


def _read_relation(con: duckdb.DuckDBPyConnection, name: str, find: Find, type_starts: np.ndarray) -> Relation:
    """One relation from ``edges``."""
    from skb_pipeline.graph.memory import kernels

    rows = con.execute("SELECT head, tail, edge_id FROM edges WHERE relation = ?", [name]).fetchnumpy()
    heads, tails = (find(np.asarray(rows[end], dtype=np.int64)) for end in ("head", "tail"))
    for end, found in (("head", heads), ("tail", tails)):
        if found.min() < 0:
            lost = rows[end][found < 0]
            raise ValueError(f"{len(lost)} edges of relation {name!r} have a {end} that is no node, such as {lost[0]}")
    low, high = min(heads.min(), tails.min()), max(heads.max(), tails.max())
    first = int(type_starts[np.searchsorted(type_starts, low, side="right") - 1])
    last = int(type_starts[np.searchsorted(type_starts, high, side="right")])
    counts = kernels.count_entries(heads, tails, first, last - first)
    indptr = _starts(counts)
    entries = kernels.fill_rows(heads, tails, _narrow(np.asarray(rows["edge_id"])), first, indptr)
    return Relation(first, _narrow(indptr), *entries)


def _finder(ids: np.ndarray, order: np.ndarray) -> Find:
    """A function from node ids (int64) to positions (int32; -1 for no node).

    Args:
        ids: int64 node id per position, none negative.
        order: positions by ascending node id.
    """
    size = int(ids[order[-1]]) + 1 if len(ids) else 0
    if size > 16 * len(ids) + 1_000_000:  # ids with huge gaps: no table of all ids

        def search(wanted: np.ndarray) -> np.ndarray:
            place = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
            return np.where(ids[order[place]] == wanted, order[place], -1).astype(np.int32)

        return search
    table = np.full(size + 1, -1, dtype=np.int32)
    table[ids] = np.arange(len(ids), dtype=np.int32)

    def look_up(wanted: np.ndarray) -> np.ndarray:
        known = (wanted >= 0) & (wanted < size)
        return np.asarray(table[wanted if known.all() else np.where(known, wanted, size)])

    return look_up


def _starts(counts: Any) -> np.ndarray:
    """int64 [n + 1], where each of n parts begins."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.asarray(counts, dtype=np.int64))])


def _narrow(values: np.ndarray) -> np.ndarray:
    """Non-negative integers as int32 if they fit, else int64."""
    fits = not len(values) or int(values.max()) < 2**31
    return np.ascontiguousarray(values, dtype=np.int32 if fits else np.int64)


def _joined(parts: list[np.ndarray], empty: np.dtype[Any]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=empty)
