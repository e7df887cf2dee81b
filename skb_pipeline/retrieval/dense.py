"""The dense branch: exact inner-product search over unit vectors (FAISS ``IndexFlatIP``).

FAISS chooses candidates; their scores are then computed again in float64 and rounded to 1e-6. The last bits of
a FAISS score depend on how many queries are searched at once: the second computation makes a query's hits independent
of the queries beside it, and rounding makes texts tie that the model cannot tell apart (``Vitamin A`` and
``vitamin a``). Ties are broken in canonical order, also at the cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.retrieval.ranking import Hits, canonical_of, top_k_with_ties
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.storage.frames import read_frame, write_frame

VERSION = "1"
FAISS = "faiss-cpu|faiss-gpu-cu12"
"""The distribution that searches."""


_MANIFEST = "dense.json"
_VECTORS = "index.faiss"
_IDS = "ids.parquet"
_IDS_SCHEMA = pa.schema([("node_id", pa.int64()), ("indexed", pa.bool_())])
_DECIMALS = 6
_MARGIN = 2e-5
"""More than float32 inner products of unit vectors are off in practice, plus the rounding."""
_EXTRA = 50
"""Candidates fetched beyond k at first, so that ties and last bits at the cut rarely need a second search."""


class DenseIndex:
    """Exact index of unit vectors by node. Make one with :meth:`build` or :meth:`load`.

    Attributes:
        fingerprint: encoder and prefixes the vectors were made with (``Encoder.fingerprint()``).
        node_ids: int64 [n], the node of each row, ascending.
        skipped: int64, nodes whose vector was zero (blank text): they are never found.
        dimension: length of a vector; 0 for an index built from no vectors at all.
    """

    def __init__(
        self, fingerprint: Mapping[str, Any], node_ids: np.ndarray, skipped: np.ndarray, index: Any | None
    ) -> None:
        """``index`` is a FAISS index with one row per node id, or None for an empty one."""
        self.fingerprint = dict(fingerprint)
        self.node_ids = node_ids
        self.skipped = skipped
        self._index: Any = index
        self.dimension = int(index.d) if index is not None else 0

    @property
    def empty(self) -> bool:
        """No node has a vector; every search gives nothing."""
        return len(self.node_ids) == 0

    def __len__(self) -> int:
        return len(self.node_ids)

    @classmethod
    def build(
        cls, node_ids: Sequence[int] | np.ndarray, vectors: np.ndarray, fingerprint: Mapping[str, Any]
    ) -> DenseIndex:
        """Index one vector per node; the order of the arguments does not matter.

        Args:
            node_ids: integer [n], unique.
            vectors: float32 [n, dim], unit length; a zero row stands for a blank text and is skipped.
            fingerprint: plain JSON values that queries must agree on.

        Raises:
            ValueError: shapes do not fit, a node id occurs twice, or a vector is not finite or not of unit length
                (the node is named).
        """
        ids = np.asarray(node_ids, dtype=np.int64)
        vectors = np.asarray(vectors)
        if vectors.ndim != 2 or len(vectors) != len(ids):
            raise ValueError(f"{len(ids)} node ids need vectors [{len(ids)}, dim], not {vectors.shape}")
        order = np.argsort(ids, kind="stable")
        ids, vectors = ids[order], np.ascontiguousarray(vectors[order], dtype=np.float32)
        twice = np.flatnonzero(np.diff(ids) == 0)
        if len(twice):
            raise ValueError(f"node {ids[twice[0]]} has more than one vector")
        filled = _check_unit(vectors, ids, "node")
        if not filled.any():
            return cls(fingerprint, ids[filled], ids, None)
        import faiss

        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors[filled])
        return cls(fingerprint, ids[filled], ids[~filled], index)

    def search(self, queries: np.ndarray, k: int, *, canonical: np.ndarray, batch_size: int = 256) -> Hits:
        """The ``k`` nearest nodes per query by cosine.

        Args:
            queries: float32 [q, dim], unit length; a zero row stands for a blank query and gives no hits.
            k: hits per query at most; more than the index holds gives all of it.
            canonical: int64, indexed by node id; decides ties, also at the cut.
            batch_size: queries searched at once.

        Returns:
            Hits per query in falling order, scores rounded to 1e-6.

        Raises:
            ValueError: the vectors' length is not the index's, or a query is not finite or not of unit length.
        """
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        if self._index is None or k < 1 or not len(queries):
            return Hits.concatenate([])
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise ValueError(f"queries have the shape {queries.shape}, the index holds vectors of {self.dimension}")
        place = canonical_of(self.node_ids, canonical)
        pending = np.flatnonzero(_check_unit(queries, np.arange(len(queries)), "query"))
        fetch = min(k + _EXTRA, len(self))
        found: dict[int, Hits] = {}
        while len(pending):
            unsure = []
            for start in range(0, len(pending), batch_size):
                batch = pending[start : start + batch_size]
                near, rows = self._index.search(queries[batch], fetch)
                for query, scores, candidates in zip(batch.tolist(), near, rows, strict=True):
                    hits, sure = self._choose(query, queries[query], k, scores, candidates, place)
                    found[query] = hits
                    if not sure:
                        unsure.append(query)
            pending, fetch = np.asarray(unsure, dtype=np.int64), min(2 * fetch, len(self))
        return Hits.concatenate([found[query] for query in sorted(found)])

    def _choose(
        self, query: int, vector: np.ndarray, k: int, near: np.ndarray, candidates: np.ndarray, place: np.ndarray
    ) -> tuple[Hits, bool]:
        """Best ``k`` of FAISS's candidates, and whether no row it left out can belong among them."""
        # FAISS fills up with -1 when it has fewer rows than asked for; as a position that would be the last node.
        rows = candidates[candidates >= 0]
        scores = _exact_scores(self._index.reconstruct_batch(rows), vector)
        best = top_k_with_ties(scores, k, place[rows])
        hits = Hits(np.full(len(best), query, np.int64), self.node_ids[rows[best]], scores[best])
        complete = len(rows) == len(self) or scores[best[-1]] > float(near[len(rows) - 1]) + _MARGIN
        return hits, bool(complete)

    def save(self, folder: Path) -> None:
        """Write ``index.faiss``, ``ids.parquet`` and, last, the manifest into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        ids = np.concatenate([self.node_ids, self.skipped])
        frame = pd.DataFrame({"node_id": ids, "indexed": np.arange(len(ids)) < len(self)})
        write_frame(folder / _IDS, frame, _IDS_SCHEMA)
        if self._index is not None:
            import faiss

            faiss.write_index(self._index, str(folder / _VECTORS))
        atomic.write_json(
            folder / _MANIFEST,
            {
                "fingerprint": self.fingerprint,
                "dimension": self.dimension,
                "n_indexed": len(self),
                "n_skipped": len(self.skipped),
            },
        )

    @classmethod
    def load(cls, folder: Path, fingerprint: Mapping[str, Any]) -> DenseIndex:
        """Open a saved index for queries made with the encoder of ``fingerprint``.

        Raises:
            FileNotFoundError: there is no finished index in ``folder``.
            ManifestMismatchError: its vectors come from another model, revision, prefix or normalisation, or its files
                do not fit each other.
        """
        manifest = json.loads((folder / _MANIFEST).read_text())
        _check_fingerprint(folder, manifest["fingerprint"], fingerprint)
        frame = read_frame(folder / _IDS)
        ids, indexed = frame["node_id"].to_numpy(), frame["indexed"].to_numpy()
        index = None
        if manifest["n_indexed"]:
            import faiss

            index = faiss.read_index(str(folder / _VECTORS))
            have = (int(index.ntotal), int(index.d), int(indexed.sum()))
            if have != (manifest["n_indexed"], manifest["dimension"], manifest["n_indexed"]):
                raise ManifestMismatchError(f"dense index in {folder}: rows, dimension and ids are {have}, {manifest}")
        return cls(manifest["fingerprint"], ids[indexed], ids[~indexed], index)


def _exact_scores(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Inner products in float64, rounded; summed row by row, so that a row's value does not depend on its place."""
    return np.round(np.einsum("ij,j->i", vectors.astype(np.float64), query.astype(np.float64)), _DECIMALS)


def _check_unit(vectors: np.ndarray, names: np.ndarray, what: str) -> np.ndarray:
    """Which rows are not zero (bool [n]).

    Raises:
        ValueError: a row is not finite, or neither zero nor of length 1 within 1e-3; it is named.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        raise ValueError(f"vector of {what} {names[bad[0]]} is not finite ({len(bad)} such vectors)")
    off = np.flatnonzero((norms != 0) & (np.abs(norms - 1) >= 1e-3))
    if len(off):
        raise ValueError(f"vector of {what} {names[off[0]]} has length {norms[off[0]]:.4g}, not 1 ({len(off)} such)")
    return norms != 0


def _check_fingerprint(folder: Path, have: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = sorted(name for name in have.keys() | expected.keys() if have.get(name) != expected.get(name))
    if names:
        told = ", ".join(f"{name} is {have.get(name)!r}, expected {expected.get(name)!r}" for name in names)
        raise ManifestMismatchError(f"dense index in {folder} was built with another encoder: {told}")
