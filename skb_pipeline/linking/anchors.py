"""Anchor linking: which nodes an anchor's text stands for, each with a cosine (GRASP, Stage 1).

For every node type there are two indexes: of names (the vectors of a node's name and other names; a node counts with
the nearest of them) and of whole documents. Per anchor the nearest K nodes of its type are kept whose cosine is at
least tau times the best one, and at least a minimum, so that a text that names nothing is linked to nothing. Two rules
come before the vectors: a text that agrees with names or aliases of its type but for case, accents, punctuation,
blanks or plural endings is linked to exactly those nodes, all with cosine 1; and a text without letters or digits that
is no name is linked to nothing. And two rules stand above the vectors of names: a node whose names lack a code of the
text (``linking.codes``) is not meant by it, however near it is; and in scripts other than Latin, Greek and Cyrillic
another name with the very same vector is not meant, as encoders drop the marks of scripts they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.codes import codes_missing, codes_of
from skb_pipeline.linking.folding import fold
from skb_pipeline.linking.name_index import Match, NameIndex, Surface, node_surfaces
from skb_pipeline.linking.settings import LinkingSpec
from skb_pipeline.plans.plan import Anchor, MatchMode
from skb_pipeline.plans.results import Bindings
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.skb.documents import build_documents
from skb_pipeline.skb.store import canonical_positions
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.frames import read_frame, write_frame
from skb_pipeline.text.folding import of_folded_scripts

if TYPE_CHECKING:
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows

VERSION = "3"

_MANIFEST = "linking.json"
_CANONICAL = "canonical.npy"
_NAMES, _DOCUMENTS = "names", "documents"
_ROWS_SCHEMA = pa.schema(
    [("node_type", pa.string()), ("node_id", pa.int64()), ("text", pa.string()), ("is_alias", pa.bool_())]
)
_DECIMALS = 6
_SAME_VECTOR = 2e-6
"""Distance from cosine 1 within which two texts have one vector."""
COSINE_MARGIN = 2e-5
"""More than float32 inner products of unit vectors are off, plus the rounding."""
BLOCK = 65_536
"""Vectors that are turned into another precision at a time."""

Link = tuple[np.ndarray, np.ndarray]
"""Node ids (int64) and cosines (float64), best first."""


class LinkGrade(StrEnum):
    """How surely an anchor's nodes are those that its text means, the surest first."""

    EXACT = "exact"
    """The text is a name of them, letter by letter."""
    FOLDED = "folded"
    """But for case, accents, punctuation, blanks, plural endings or the order around a comma."""
    DOCUMENT = "document"
    """Mode ``doc``: their documents are the nearest to it."""
    NEAR = "near"
    """No name is so written; theirs are the nearest, or they are persons who may be called so (``Match.INITIALS``)."""
    NONE = "none"
    """It is linked to nothing."""


@dataclass(frozen=True, eq=False)
class LinkedAnchor:
    """The nodes of one anchor.

    Attributes:
        node_ids: int64, by falling cosine, ties in canonical order; empty where nothing fits.
        cosines: float64, rounded to 1e-6.
        grade: see :class:`LinkGrade`.
        reason: why there is no node; empty where there is one.
    """

    node_ids: np.ndarray
    cosines: np.ndarray
    grade: LinkGrade
    reason: str = ""

    @property
    def binding(self) -> Link:
        """What a plan executor takes."""
        return self.node_ids, self.cosines


@dataclass(frozen=True)
class VectorTable:
    """Unit vectors with the node each belongs to, sorted by node type.

    Attributes:
        rows: ``node_type, node_id, text, is_alias``; a document's text is empty here.
        vectors: float32 or float16 [n, dim], may be memory-mapped; a zero row stands for a blank text.
    """

    rows: pd.DataFrame
    vectors: np.ndarray

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Node type -> its rows."""
        types = self.rows["node_type"].to_numpy()
        starts = np.flatnonzero(np.r_[True, types[1:] != types[:-1]]) if len(types) else np.empty(0, dtype=int)
        ends = [*starts[1:].tolist(), len(types)]
        return {types[start]: slice(start, end) for start, end in zip(starts.tolist(), ends, strict=False)}

    @cached_property
    def row_of(self) -> np.ndarray:
        """int64: row of each node by id (the first, where it has several), -1 for none."""
        ids = self.rows["node_id"].to_numpy()
        found = np.full(int(ids.max()) + 1 if len(ids) else 0, -1, dtype=np.int64)
        found[ids[::-1]] = np.arange(len(ids))[::-1]
        return found


class AnchorIndex:
    """Names and documents of all nodes, for linking. Make one with :meth:`build` or :meth:`load`.

    Attributes:
        spec: how many nodes are kept, and from which cosine on.
        fingerprint: encoder and prefixes the vectors were made with.
        names: one row per name or alias of a node.
        documents: one row per node, of all types.
        canonical: int64 by node id; decides ties.
        truncated: after :meth:`build`, how many ``names`` and ``documents`` were longer than the encoder reads, and
            after :meth:`embed` how many ``texts``; in words where it cannot be told.
    """

    def __init__(
        self,
        spec: LinkingSpec,
        names: VectorTable,
        documents: VectorTable,
        canonical: np.ndarray,
        cache: ArrayRows,
        encoder: Encoder,
    ) -> None:
        """``cache`` and ``encoder`` give the vectors of texts; they are those the tables were made with."""
        self.spec = spec
        self.fingerprint = encoder.fingerprint()
        self.names = names
        self.documents = documents
        self.canonical = canonical
        self.truncated: dict[str, int | str] = {}
        self._cache = cache
        self._encoder = encoder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors of texts in the role ``query``, float32 [n, dim]; zero rows for blank ones.

        The encoder is not loaded when every text has a vector in the cache.
        """
        vectors, stats = embed_texts(self._cache, self._encoder, texts, "query")
        before, new = self.truncated.get("texts", 0), stats.truncated
        self.truncated["texts"] = before + new if isinstance(before, int) and isinstance(new, int) else new
        return vectors

    @classmethod
    def build(cls, con: duckdb.DuckDBPyConnection, spec: DatasetSpec, cache: ArrayRows, encoder: Encoder) -> Self:
        """Embed all names, aliases and documents; what the cache knows is not encoded again.

        Args:
            con: the SKB file.
            spec: its dataset's spec.
            cache: opened with ``encoder.model_fingerprint``.
            encoder: gives the vectors; names and documents have the role ``document``.

        Raises:
            EncoderError: the encoder gave no usable vector; the node is named.
        """
        surfaces = pd.DataFrame(node_surfaces(con, spec.linking.name_fields), columns=Surface._fields)
        # Anchors may be of any type, answers or not, so all types get documents here.
        documents = build_documents(con, spec.model_copy(update={"candidates": []}))
        documents = documents.assign(text="", is_alias=False)
        names = surfaces["text"].to_list()
        of_names, cut_names = _table(surfaces, names, cache, encoder, spec.linking)
        of_documents, cut_documents = _table(
            documents, documents["document"].to_list(), cache, encoder, spec.linking
        )  # fmt: skip
        index = cls(spec.linking, of_names, of_documents, canonical_positions(con), cache, encoder)
        index.truncated |= {_NAMES: cut_names, _DOCUMENTS: cut_documents}
        return index

    def link(self, anchors_per_question: Sequence[Sequence[Anchor]]) -> list[Bindings]:
        """What :meth:`link_anchors` gives, as plan executors take it: node ids and cosines by anchor variable."""
        return [
            {var: linked.binding for var, linked in found.items()} for found in self.link_anchors(anchors_per_question)
        ]

    def link_anchors(self, anchors_per_question: Sequence[Sequence[Anchor]]) -> list[dict[str, LinkedAnchor]]:
        """Candidates of every anchor of many questions; each distinct (label, mode, text) is linked once. An anchor
        with several texts has the nodes of all of them.

        Args:
            anchors_per_question: the anchors of each question's plan; may be empty.

        Returns:
            Per question, anchor variable -> its nodes. An anchor that nothing fits has none and says why.
        """
        distinct = dict.fromkeys(
            (a.label, a.match_mode, text) for anchors in anchors_per_question for a in anchors for text in a.texts
        )
        links: dict[tuple[str, MatchMode, str], LinkedAnchor] = {}
        for label, mode, text in distinct:
            exact = self._exact(label, text) if mode is MatchMode.NAME else None
            if exact is not None:
                links[label, mode, text] = exact
        todo = [key for key in distinct if key not in links]
        vectors = self.embed([text for _, _, text in todo])
        for label, mode in dict.fromkeys((label, mode) for label, mode, _ in todo):
            chosen = [i for i, key in enumerate(todo) if key[:2] == (label, mode)]
            texts = [todo[i][2] for i in chosen]
            for i, link in zip(chosen, self._nearest(label, mode, texts, vectors[chosen]), strict=True):
                links[todo[i]] = link
        return [
            {a.var: self._union([links[a.label, a.match_mode, text] for text in a.texts]) for a in anchors}
            for anchors in anchors_per_question
        ]

    def _union(self, links: Sequence[LinkedAnchor]) -> LinkedAnchor:
        """The nodes of several texts, each with its best cosine; as sure as the least sure text that has any."""
        linked = [link for link in links if len(link.node_ids)]
        if len(links) == 1 or not linked:
            return links[0] if len(links) == 1 else _unlinked("; ".join(link.reason for link in links))
        nodes, owner = np.unique(np.concatenate([link.node_ids for link in linked]), return_inverse=True)
        cosines = np.full(len(nodes), -np.inf)
        np.maximum.at(cosines, owner, np.concatenate([link.cosines for link in linked]))
        order = np.lexsort((self.canonical[nodes], -cosines))
        grades = list(LinkGrade)
        return LinkedAnchor(nodes[order], cosines[order], max((link.grade for link in linked), key=grades.index))

    def save(self, folder: Path) -> None:
        """Write vectors, rows and, last, the manifest into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in ((_NAMES, self.names), (_DOCUMENTS, self.documents)):
            np.save(folder / f"{name}.npy", table.vectors)
            write_frame(folder / f"{name}.parquet", table.rows, _ROWS_SCHEMA)
        np.save(folder / _CANONICAL, self.canonical)
        sizes = {_NAMES: len(self.names.rows), _DOCUMENTS: len(self.documents.rows)}
        manifest = {"fingerprint": self.fingerprint, "spec": self.spec.model_dump(mode="json"), "rows": sizes}
        atomic.write_json(folder / _MANIFEST, manifest)

    @classmethod
    def load(cls, folder: Path, cache: ArrayRows, encoder: Encoder) -> Self:
        """Open a saved index; vectors are memory-mapped.

        Args:
            folder: where :meth:`save` wrote it.
            cache: opened with ``encoder.model_fingerprint``; keeps vectors of new texts.
            encoder: the one the index was built with.

        Raises:
            FileNotFoundError: there is no finished index in ``folder``.
            ManifestMismatchError: its vectors come from another encoder, or its files do not fit each other.
        """
        manifest = json.loads((folder / _MANIFEST).read_text())
        if manifest["fingerprint"] != encoder.fingerprint():
            raise ManifestMismatchError(f"anchor index in {folder} was built with another encoder")
        tables = []
        for name in (_NAMES, _DOCUMENTS):
            rows = read_frame(folder / f"{name}.parquet")
            vectors = np.load(folder / f"{name}.npy", mmap_mode="r")
            if not len(rows) == len(vectors) == manifest["rows"][name]:
                raise ManifestMismatchError(f"anchor index in {folder}: rows and vectors of {name} do not fit")
            tables.append(VectorTable(rows, vectors))
        spec = LinkingSpec.model_validate(manifest["spec"])
        return cls(spec, tables[0], tables[1], np.load(folder / _CANONICAL), cache, encoder)

    @cached_property
    def _lookup(self) -> NameIndex:
        return NameIndex(Surface(*row) for row in self.names.rows[["node_id", "node_type", "text", "is_alias"]].values)

    def _exact(self, label: str, text: str) -> LinkedAnchor | None:
        """The nodes of a type that ``text`` names, if it does."""
        hit = self._lookup.lookup(text, [label], fuzzy=False)
        if hit is None or hit.match > Match.INITIALS:
            return None
        ids = hit.nodes[label]
        ids = ids[np.argsort(self.canonical[ids], kind="stable")]
        grades = {Match.EXACT: LinkGrade.EXACT, Match.INITIALS: LinkGrade.NEAR}
        return LinkedAnchor(ids, np.ones(len(ids)), grades.get(hit.match, LinkGrade.FOLDED))

    def _nearest(
        self, label: str, mode: MatchMode, texts: Sequence[str], queries: np.ndarray
    ) -> Iterable[LinkedAnchor]:
        """The rule of the module docstring for texts of one type and mode, with their vectors."""
        table = self.names if mode is MatchMode.NAME else self.documents
        place = table.slices.get(label, slice(0, 0))
        vectors, ids = table.vectors[place], table.rows["node_id"].to_numpy()[place]
        if mode is MatchMode.NAME:
            most, tau, least, grade = self.spec.name_k, self.spec.name_tau, self.spec.min_cosine, LinkGrade.NEAR
        else:
            most, tau, least, grade = self.spec.doc_k, self.spec.doc_tau, self.spec.doc_min_cosine, LinkGrade.DOCUMENT
        filled = np.any(queries != 0, axis=1) if queries.shape[1] else np.zeros(len(queries), dtype=bool)
        best = _best_cosines(vectors, queries)
        for text, query, has_vector, top in zip(texts, queries, filled, best, strict=True):
            if not has_vector or not len(ids) or top < least - COSINE_MARGIN:
                yield _unlinked(f"no {label} is near enough to {text!r}")
                continue
            coded = mode is MatchMode.NAME and bool(codes_of(text))
            # Of a text with codes the best that has them may be far below the best of all.
            near = _rows_from(vectors, query, (least if coded else max(_floor(top, tau), least)) - COSINE_MARGIN)
            cosines = exact_cosines(vectors, query, near)
            nodes, owner = np.unique(ids[near], return_inverse=True)
            value = np.full(len(nodes), -np.inf)
            np.maximum.at(value, owner, cosines)
            nearest = np.lexsort((self.canonical[nodes], -value))
            nodes, value = nodes[nearest], value[nearest]
            if mode is MatchMode.NAME and not of_folded_scripts(fold(text)):
                # An encoder that drops the marks of a script gives different names one vector.
                told_apart = value < 1 - _SAME_VECTOR
                if not told_apart.all():
                    if not told_apart.any():
                        yield _unlinked(
                            f"the encoder cannot tell {text!r} from {self._surfaces_of(int(nodes[0]))[0]!r}"
                        )
                        continue
                    nodes, value = nodes[told_apart], value[told_apart]
            if coded:
                agreeing = list(self._agreeing(text, nodes, value, most, tau))
                if not agreeing and len(nodes) and value[0] >= least:
                    yield _unlinked(self._disagreement(text, int(nodes[0]), float(value[0])))
                    continue
                nodes, value = nodes[agreeing], value[agreeing]
            kept = value >= max(_floor(value.max(initial=-np.inf), tau), least)
            if not kept.any():
                yield _unlinked(f"no {label} is near enough to {text!r}")
                continue
            yield LinkedAnchor(nodes[kept][:most], value[kept][:most], grade)

    def _agreeing(self, text: str, nodes: np.ndarray, cosines: np.ndarray, most: int, tau: float) -> Iterator[int]:
        """Places of the first nodes whose names have all codes of a text, as many as may be kept.

        Args:
            nodes: by falling cosine.
        """
        floor, found = -np.inf, 0
        for place, (node, cosine) in enumerate(zip(nodes.tolist(), cosines.tolist(), strict=True)):
            if cosine < floor or found == most:
                return
            if not codes_missing(text, self._surfaces_of(node)):
                floor, found = max(floor, _floor(cosine, tau)), found + 1
                yield place

    def _surfaces_of(self, node: int) -> list[str]:
        """Names of a node; they stand together in the table."""
        start = end = int(self.names.row_of[node])
        ids = self._name_ids
        while end < len(ids) and ids[end] == node:
            end += 1
        return self._name_texts[start:end].tolist()

    @cached_property
    def _name_ids(self) -> np.ndarray:
        return self.names.rows["node_id"].to_numpy()

    @cached_property
    def _name_texts(self) -> np.ndarray:
        return self.names.rows["text"].to_numpy(dtype=object)

    def _disagreement(self, text: str, node: int, cosine: float) -> str:
        surfaces = self._surfaces_of(node)
        lacking = ", ".join(repr(code) for code in codes_missing(text, surfaces))
        return f"the nearest to {text!r} is {surfaces[0]!r} ({cosine:.2f}), whose names lack {lacking}"


def _unlinked(reason: str) -> LinkedAnchor:
    return LinkedAnchor(np.empty(0, dtype=np.int64), np.empty(0), LinkGrade.NONE, reason)


def _table(
    rows: pd.DataFrame, texts: Sequence[str], cache: ArrayRows, encoder: Encoder, spec: LinkingSpec
) -> tuple[VectorTable, int | str]:
    """The vectors of texts, and how many of these were cut."""
    vectors, stats = embed_texts(cache, encoder, texts, "document", keys=rows["node_id"].to_list())
    order = np.argsort(rows["node_type"].to_numpy(dtype=str), kind="stable")
    columns = _ROWS_SCHEMA.names
    table = VectorTable(rows[columns].iloc[order].reset_index(drop=True), vectors[order].astype(spec.vectors))
    return table, stats.truncated


def _floor(best: float, tau: float) -> float:
    """Cosine from which on a node is kept; the best one itself always is, also below zero."""
    return min(best, tau * best)


def _best_cosines(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Highest cosine per query, float32 [q]; -inf without vectors."""
    best = np.full(len(queries), -np.inf, dtype=np.float32)
    for start in range(0, len(vectors), BLOCK):
        block = vectors[start : start + BLOCK].astype(np.float32, copy=False)
        for first in range(0, len(queries), 256):
            part = slice(first, first + 256)
            best[part] = np.maximum(best[part], (queries[part] @ block.T).max(axis=1))
    return best


def _rows_from(vectors: np.ndarray, query: np.ndarray, least: float) -> np.ndarray:
    """Rows with at least this cosine, ascending."""
    found = [
        start + np.flatnonzero(vectors[start : start + BLOCK].astype(np.float32, copy=False) @ query >= least)
        for start in range(0, len(vectors), BLOCK)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def exact_cosines(vectors: np.ndarray, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Cosines of a query with chosen rows, in float64 and rounded to 1e-6; each is independent of the rows beside it.

    Args:
        vectors: float32 or float16 [n, dim], unit or zero rows (memory-mapped is fine).
        query: float32 [dim], unit.
        rows: integer [m], positions in ``vectors``.

    Returns:
        float64 [m].
    """
    cosines = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        block = vectors[rows[start : start + BLOCK]].astype(np.float64)
        cosines[start : start + BLOCK] = np.einsum("ij,j->i", block, query.astype(np.float64))
    return np.round(cosines, _DECIMALS)
