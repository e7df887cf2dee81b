"""One question against a dataset's finished indexes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pandas as pd

from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.ranking import Hits, build_ranking
from skb_pipeline.skb.cleaning import clean_text
from skb_pipeline.skb.store import canonical_positions
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import BM25_FOLDER, DENSE_FOLDER, SKB_FILE, Workspace

SYSTEMS = ("bm25", "dense")


class UnknownSystemError(KeyError):
    """There is no ranking of this name."""

    def __str__(self) -> str:
        return str(self.args[0])


class SearchSession:
    """Searches with the rankings' own indexes and settings; indexes are opened when first needed."""

    def __init__(self, workspace: Workspace, dataset: str, con: duckdb.DuckDBPyConnection) -> None:
        self.workspace = workspace
        self.spec = workspace.spec(dataset)
        self.con = con
        self.canonical = canonical_positions(con)

    @classmethod
    @contextmanager
    def open(cls, dataset: str, workspace: Workspace | None = None) -> Iterator[SearchSession]:
        """A session on the current artefacts of ``dataset``.

        Raises:
            ArtifactMissingError: the dataset was never materialised; the message says how to do it.
        """
        workspace = workspace or Workspace()
        spec = workspace.spec(dataset)
        store = workspace.store.require(spec.name, "skb/store")
        with connect(store.file(SKB_FILE), read_only=True) as con:
            yield cls(workspace, dataset, con)

    def search(self, question: str, *, system: str = "bm25", k: int = 10) -> list[dict[str, Any]]:
        """The ``k`` best nodes: ``rank`` (from 1), ``external_id``, ``node_type``, ``name``, ``score``.

        Raises:
            UnknownSystemError: ``system`` is not one of :data:`SYSTEMS`.
        """
        question = clean_text(question)
        if system == "bm25":
            hits = self._bm25(question, k)
        elif system == "dense":
            hits = self._dense(question, k)
        else:
            raise UnknownSystemError(f"unknown system {system!r}; there are: {', '.join(SYSTEMS)}")
        ranking = build_ranking(
            ["q"] * len(hits.node_id), hits.node_id, hits.score, canonical=self.canonical, depth=k, query_order=["q"]
        )
        return self._described(ranking)

    def _bm25(self, question: str, k: int) -> Hits:
        artifact = self.workspace.store.require(self.spec.name, "index/bm25")
        index = BM25Index.load(artifact.file(BM25_FOLDER), self.spec.lexical)
        return index.search([question], k, canonical=self.canonical)

    def _dense(self, question: str, k: int) -> Hits:
        encoder, cache = self.workspace.open_encoder(self.spec)
        artifact = self.workspace.store.require(self.spec.name, "index/dense")
        index = DenseIndex.load(artifact.file(DENSE_FOLDER), encoder.fingerprint())
        vectors, _ = embed_texts(cache, encoder, [question], "query")
        return index.search(vectors, k, canonical=self.canonical)

    def _described(self, ranking: pd.DataFrame) -> list[dict[str, Any]]:
        self.con.register("hits", ranking)
        rows = self.con.execute(
            """SELECT h.rank, n.external_id, n.node_type, n.name, h.score
               FROM hits h JOIN nodes n USING (node_id) ORDER BY h.rank"""
        ).fetchall()
        self.con.unregister("hits")
        return [
            {"rank": rank, "external_id": external_id, "node_type": node_type, "name": name, "score": score}
            for rank, external_id, node_type, name, score in rows
        ]
