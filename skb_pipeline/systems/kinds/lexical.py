"""The kind ``lexical``: BM25 over the documents."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.retrieval import lexical, ranking
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.ranking import RANKING, rank_hits
from skb_pipeline.systems import named_first
from skb_pipeline.systems.kind import Sources, System
from skb_pipeline.systems.ranked import Questions, Ranked
from skb_pipeline.text import tokens
from skb_pipeline.workspace import BM25_FOLDER

VERSION = "2"


class LexicalSystem(System):
    """Nodes ranked by shared words (see ``retrieval.lexical``), what the question names as a whole first."""

    reads = ("index/bm25", named_first.INPUT)
    sections = ("retrieval", "lexical")
    libraries = ("bm25s",)
    stores = (RANKING,)

    kind: Literal["lexical"]

    def describe(self) -> str:
        """See ``System``."""
        return "Nodes ranked by BM25: shared words, weighted by rarity."

    def code(self) -> tuple[ModuleType, ...]:
        """See ``System``."""
        return (lexical, tokens, ranking, named_first)

    def depth_for(self, spec: DatasetSpec) -> int:
        """See ``System``."""
        return spec.retrieval.depth

    def open(self, sources: Sources) -> BM25Index:
        """See ``System``."""
        return BM25Index.load(sources.artifact("index/bm25").file(BM25_FOLDER), sources.spec.lexical)

    def rank(self, opened: BM25Index, sources: Sources, questions: Questions) -> Ranked:
        """See ``System``."""
        depth = self.depth_for(sources.spec)
        hits = opened.search(questions.texts, depth, canonical=sources.canonical)
        ranked = Ranked(rank_hits(hits, canonical=sources.canonical, depth=depth, query_order=questions.ids))
        return named_first.named_first(ranked, sources, questions, depth)
