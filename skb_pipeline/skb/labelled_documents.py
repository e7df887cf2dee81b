"""Documents in the format ``labelled`` (what they look like: see :mod:`.documents`), batch by batch.

Relations become sorted arrays first: for every node the lines of its document, for every line the neighbours it names.
Compiled loops then write field values and names one after the other, without a Python object in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.store import canonical_positions

if TYPE_CHECKING:
    from skb_pipeline.skb.labelled_kernels import FieldTable, Groups, Texts

_BATCH = 4_000  # small enough that what is read and written stays in the cache
_EXTRA = 32  # bytes of a line beside heading and names: "(+n more)", blanks and the line's end


def build_labelled_documents(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, *, batch: int = _BATCH) -> pd.DataFrame:
    """Documents of all candidate nodes.

    Args:
        con: an SKB file. Its memory limit is 1 GiB meanwhile, and what it was before afterwards.
        spec: gives candidate types, document fields, ``relations``, labels and the cap on neighbours.
        batch: nodes worked on at once; sets memory use, not the result.

    Returns:
        Frame ``node_id, external_id, node_type, name, document`` in canonical order.

    Raises:
        ValueError: relations of so many nodes, under so many headings, do not fit into sorted 64-bit numbers.
    """
    writer = _Writer(con, spec)
    found = con.execute("SELECT canonical FROM nodes WHERE list_contains(?, node_type)", [spec.candidate_types])
    positions = np.sort(found.fetchnumpy()["canonical"])
    batches = [positions[i : i + batch] for i in range(0, len(positions), batch)]
    spans = [(int(part[0]), int(part[-1])) for part in batches] or [(0, -1)]  # an empty frame has columns, too
    frames = []
    with _small_cache(con):
        for first, last in spans:
            rows = con.sql(
                "SELECT node_id, external_id, node_type, name, canonical, fields::VARCHAR AS fields FROM nodes "
                "WHERE list_contains(?, node_type) AND canonical BETWEEN ? AND ?",
                params=[spec.candidate_types, first, last],
            ).to_arrow_table()
            if (np.diff(np.asarray(rows["canonical"])) < 0).any():
                rows = rows.sort_by("canonical")
            frame = rows.select(["node_id", "external_id", "node_type", "name"]).to_pandas()
            frame["document"] = writer.texts(rows)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


@contextmanager
def _small_cache(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Lower DuckDB's memory limit for a while: up to there it keeps what it has read, and here that is of no use."""
    ((before,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    if not before.endswith(("GiB", "TiB")):  # it is lower already
        yield
        return
    con.execute("SET memory_limit = '1GiB'")
    try:
        yield
    finally:
        con.execute(f"SET memory_limit = '{before}'")


class _Writer:
    """Writes the documents of one SKB; its buffer is used again for every batch."""

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> None:
        self._codes = {name: code for code, name in enumerate(spec.node_types)}
        self._fields = _field_table(spec)
        self._label_bytes = len(self._fields.labels.data) + len(self._fields.labels.offsets)
        self._lines = _load_lines(con, spec, self._codes) if spec.documents.relations else _no_lines()
        self._buffer = np.empty(0, dtype=np.uint8)

    def texts(self, rows: pa.Table) -> np.ndarray:
        """Documents of rows in canonical order, object [rows]."""
        from skb_pipeline.skb.labelled_kernels import write_documents

        if not len(rows):
            return np.empty(0, dtype=object)
        json, lines = _texts(rows["fields"]), self._lines
        positions = np.asarray(rows["canonical"])
        bounds = np.searchsorted(lines.nodes, np.append(positions, positions[-1:] + 1))
        size = 2 * int(json.offsets[-1] - json.offsets[0]) + len(rows) * self._label_bytes
        size += lines.bytes_of(bounds[0], bounds[-1])
        if len(self._buffer) < size:
            self._buffer = np.empty(size * 5 // 4, dtype=np.uint8)
        types = _codes_of(rows["node_type"], self._codes)
        ends = write_documents(
            json, types, self._fields, bounds, lines.groups, lines.headings, lines.names, self._buffer
        )
        documents = pa.LargeStringArray.from_buffers(len(rows), pa.py_buffer(ends), pa.py_buffer(self._buffer))
        return documents.to_numpy(zero_copy_only=False)


class _Lines(NamedTuple):
    """Lines of neighbours of all candidate nodes.

    Attributes:
        nodes: int64 [groups], the canonical position of the node each group belongs to, ascending.
        groups: the lines.
        headings: their headings, each with the colon.
        names: names of all nodes in canonical order.
    """

    nodes: np.ndarray
    groups: Groups
    headings: Texts
    names: Texts

    def bytes_of(self, first: int, last: int) -> int:
        """Upper bound of the bytes of the groups from ``first`` to ``last``."""
        groups = self.groups
        others = groups.others[groups.offsets[first] : groups.offsets[last]]
        names, headings = self.names.sizes(others), self.headings.sizes(groups.headings[first:last])
        return int(names.sum() + 2 * len(others) + headings.sum() + _EXTRA * (last - first))


def _no_lines() -> _Lines:
    from skb_pipeline.skb.labelled_kernels import Groups

    none = np.empty(0, dtype=np.int64)
    return _Lines(none, Groups(none, np.zeros(1, dtype=np.int64), none, none), _texts([]), _texts([]))


def _field_table(spec: DatasetSpec) -> FieldTable:
    """The name's label is the node's type."""
    from skb_pipeline.skb.labelled_kernels import FieldTable

    declared = spec.node_types
    labels = [f"{label}: " for kind in declared for label in _field_labels(spec, kind)]
    return FieldTable(
        bounds=_offsets([len(node_type.document) for node_type in declared.values()]),
        keys=_texts([name for node_type in declared.values() for name in node_type.document]),
        labels=_texts(labels),
    )


def _field_labels(spec: DatasetSpec, kind: str) -> list[str]:
    declared = spec.node_types[kind]
    return [kind if name == declared.name_field else name for name in declared.document]


def without_headings(documents: Sequence[str], node_types: Sequence[str], spec: DatasetSpec) -> list[str]:
    """Documents without labels of fields and headings of neighbours: values and names alone.

    Labels stand at the beginning of lines, in one order and each once; a line of a value is not taken for one unless
    it begins with a label that may still come.

    Args:
        documents: as :func:`build_labelled_documents` made them.
        node_types: of each.
        spec: the one they were made with.
    """
    headings = (
        list(dict.fromkeys(label for pair in spec.headings for label in pair)) if spec.documents.relations else []
    )
    labels = {kind: _field_labels(spec, kind) for kind in spec.node_types}
    return [_without(text, labels[kind], headings) for text, kind in zip(documents, node_types, strict=True)]


def _without(document: str, labels: list[str], headings: list[str]) -> str:
    lines = document.split("\n")
    field = 0
    left = set(headings)
    for i, line in enumerate(lines):
        found = next((n for n in range(field, len(labels)) if line.startswith(f"{labels[n]}: ")), None)
        if found is not None:
            field, label = found + 1, labels[found]
        else:
            label = next((h for h in sorted(left, key=len, reverse=True) if line.startswith(f"{h}: ")), "")
            if not label:
                continue
            field = len(labels)
            left.discard(label)
        lines[i] = line[len(label) + 2 :]
    return "\n".join(lines)


def _load_lines(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, codes: dict[str, int]) -> _Lines:
    """Headings with the same text (both ends of a symmetric relation, say) are one line; it stands where the first
    relation that gives it a neighbour is declared, seen from the head first. A neighbour reached twice under it is
    named once, one without a name never.
    """
    nodes = con.sql("SELECT name, node_type FROM nodes ORDER BY canonical").to_arrow_table()
    types = _codes_of(nodes["node_type"], codes)
    asked = np.isin(types, [codes[name] for name in spec.candidate_types])
    named = np.asarray(pc.not_equal(nodes["name"], "").combine_chunks())
    # A place is a relation seen from one of its ends.
    labels = [label for pair in spec.headings for label in pair]
    headings = list(dict.fromkeys(labels))
    heading_of = np.array([headings.index(label) for label in labels], dtype=np.int64)
    packing = _Packing.of(len(nodes), len(headings), len(labels))
    keys = []
    heads, tails, relations = _load_edges(con, spec, types, codes)
    for side, (owners, others) in enumerate(((heads, tails), (tails, heads))):
        kept = asked[owners] & named[others] & (relations >= 0)
        places = 2 * relations[kept] + side
        keys.append(packing.pack(owners[kept], heading_of[places], others[kept], places))
    found, groups = _grouped(np.sort(np.concatenate(keys)), packing, spec.documents.neighbours)
    return _Lines(found, groups, _texts([f"{heading}: " for heading in headings]), _texts(nodes["name"]))


def _load_edges(
    con: duckdb.DuckDBPyConnection, spec: DatasetSpec, types: np.ndarray, codes: dict[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Canonical positions of heads and of tails, and which of the declared relations each edge is of (-1: none)."""
    names = list(dict.fromkeys(relation.name for relation in spec.relations))
    declared = np.full((len(names) + 1, len(codes), len(codes)), -1, dtype=np.int64)
    for place, relation in enumerate(spec.relations):
        declared[1 + names.index(relation.name), codes[relation.head], codes[relation.tail]] = place
    rows = con.sql(
        "SELECT head, tail, coalesce(list_position(?, relation), 0) AS number FROM edges", params=[names]
    ).to_arrow_table()
    positions = canonical_positions(con)
    heads, tails = positions[np.asarray(rows["head"])], positions[np.asarray(rows["tail"])]
    return heads, tails, declared[np.asarray(rows["number"]), types[heads], types[tails]]


class _Packing(NamedTuple):
    """A node, a heading, a neighbour and a place in one number, so that one plain sort orders by all of them."""

    heading: int
    other: int
    place: int

    @classmethod
    def of(cls, n_nodes: int, n_headings: int, n_places: int) -> _Packing:
        node, heading, place = (max(n - 1, 0).bit_length() for n in (n_nodes, n_headings, n_places))
        if 2 * node + heading + place > 63:
            raise ValueError(
                f"documents with relations: {n_nodes:,} nodes and {n_places} ends of relations are too many for 63 bits"
            )
        return cls(heading, node, place)

    def pack(self, nodes: np.ndarray, headings: np.ndarray, others: np.ndarray, places: np.ndarray) -> np.ndarray:
        keys = (nodes << self.heading) | headings
        keys = (keys << self.other) | others
        return (keys << self.place) | places


def _grouped(keys: np.ndarray, packing: _Packing, cap: int | None) -> tuple[np.ndarray, Groups]:
    """Groups of sorted packed numbers, and the node each belongs to."""
    from skb_pipeline.skb.labelled_kernels import Groups

    pairs = keys >> packing.place
    begins = np.flatnonzero(np.diff(pairs >> packing.other, prepend=-1))
    first_places = np.minimum.reduceat(keys & _mask(packing.place), begins)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    lines = pairs >> packing.other
    offsets = np.append(np.flatnonzero(np.diff(lines, prepend=-1)), len(lines))
    lines, totals = lines[offsets[:-1]], np.diff(offsets)
    nodes = lines >> packing.heading
    order = np.argsort((nodes << packing.place) | first_places, kind="stable")
    sizes = totals if cap is None else np.minimum(totals, cap)
    ends = _offsets(sizes[order])
    picked = np.repeat(offsets[:-1][order] - ends[:-1], sizes[order]) + np.arange(ends[-1])
    return nodes[order], Groups(
        headings=(lines & _mask(packing.heading))[order],
        offsets=ends,
        hidden=(totals - sizes)[order],
        others=pairs[picked] & _mask(packing.other),
    )


def _mask(bits: int) -> int:
    return (1 << bits) - 1


def _codes_of(types: pa.ChunkedArray, codes: dict[str, int]) -> np.ndarray:
    """Codes of types, int64 [rows]."""
    distinct = types.combine_chunks().dictionary_encode()
    numbers = np.array([codes[name] for name in distinct.dictionary.to_pylist()], dtype=np.int64)
    return numbers[np.asarray(distinct.indices)]


def _texts(strings: pa.ChunkedArray | list[str]) -> Texts:
    """Strings as bytes; the arrays are read-only, so that kernels are compiled once."""
    from skb_pipeline.skb.labelled_kernels import Texts

    array = pa.array(strings, pa.large_string()) if isinstance(strings, list) else strings.cast(pa.large_string())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    texts = Texts(np.frombuffer(data or b"", dtype=np.uint8), places)
    for part in texts:
        part.flags.writeable = False
    return texts


def _offsets(lengths: np.ndarray | list[int]) -> np.ndarray:
    """int64 [n + 1] from lengths [n]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
