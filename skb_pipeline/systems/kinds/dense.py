"""The kind ``dense``: the cosine between the question's and the document's embedding."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.retrieval import dense, encoder, ranking
from skb_pipeline.retrieval.dense import FAISS, DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.encoder import ENCODER_LIBRARIES
from skb_pipeline.retrieval.ranking import RANKING, rank_hits
from skb_pipeline.systems import named_first
from skb_pipeline.systems.kind import Sources, System
from skb_pipeline.systems.ranked import Questions, Ranked
from skb_pipeline.workspace import DENSE_FOLDER

VERSION = "2"


class DenseSystem(System):
    """Nodes ranked by an exact search of vectors (see ``retrieval.dense``), what the question names as a whole
    first."""

    reads = ("index/dense", named_first.INPUT)
    sections = ("retrieval", "encoder")
    libraries = (FAISS, *ENCODER_LIBRARIES)
    stores = (RANKING,)

    kind: Literal["dense"]

    def describe(self) -> str:
        """See ``System``."""
        return "Nodes ranked by the cosine between the question's and the document's embedding."

    def code(self) -> tuple[ModuleType, ...]:
        """See ``System``."""
        return (dense, encoder, ranking, named_first)

    def depth_for(self, spec: DatasetSpec) -> int:
        """See ``System``."""
        return spec.retrieval.depth

    def open(self, sources: Sources) -> DenseIndex:
        """See ``System``."""
        fingerprint = sources.encoder()[0].fingerprint()
        return DenseIndex.load(sources.artifact("index/dense").file(DENSE_FOLDER), fingerprint)

    def rank(self, opened: DenseIndex, sources: Sources, questions: Questions) -> Ranked:
        """See ``System``."""
        depth = self.depth_for(sources.spec)
        model, cache = sources.encoder()
        vectors, stats = embed_texts(
            cache, model, questions.texts, "query", keys=questions.ids, keep=questions.keep
        )  # fmt: skip
        hits = opened.search(vectors, depth, canonical=sources.canonical)
        ranked = Ranked(
            rank_hits(hits, canonical=sources.canonical, depth=depth, query_order=questions.ids),
            metadata={
                "texts encoded": stats.encoded,
                "texts reused": stats.reused,
                "questions truncated": stats.truncated,
            },
        )
        return named_first.named_first(ranked, sources, questions, depth)
