"""Rescoring of graph answers by what is left of the question (GRASP, Stage 1).

score(t) becomes score(t) + weight · cos(relevance text, document of t). Only the answers are compared, which is a
gather and one product per question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skb_pipeline.linking.anchors import AnchorIndex, exact_cosines
from skb_pipeline.plans.results import GraphResult


@dataclass(frozen=True)
class Rescorer:
    """Adds cosines of documents to scores.

    Attributes:
        index: gives the vectors of documents and of texts, and the canonical order.
        weight: 1 in the paper.
    """

    index: AnchorIndex
    weight: float = 1.0

    def rescore(self, results: Sequence[GraphResult], relevance_texts: Sequence[str]) -> list[GraphResult]:
        """Add the cosine of relevance text and document to the scores, and sort again.

        Args:
            results: n results of plans.
            relevance_texts: text [n]; where it is blank the result stays as it is. Each distinct one is encoded once.

        Returns:
            Results in the order of ``results``, by score (descending) and canonical order. Cosines are rounded to
            1e-6, so that ties do not depend on the batch a text was encoded in. An answer without a document, or with
            a blank one, gains nothing. All but order and scores is kept.

        Raises:
            ValueError: the two sequences differ in length.
        """
        if len(results) != len(relevance_texts):
            raise ValueError(f"{len(results)} results need as many relevance texts, not {len(relevance_texts)}")
        wanted = [i for i, text in enumerate(relevance_texts) if text.strip() and len(results[i].node_ids)]
        vectors = self.index.embed([relevance_texts[i] for i in wanted])
        rescored = list(results)
        for i, query in zip(wanted, vectors, strict=True):
            rescored[i] = self.add_cosines(results[i], query)
        return rescored

    def add_cosines(self, result: GraphResult, query: np.ndarray) -> GraphResult:
        """:meth:`rescore` for one result and the vector of its relevance text (float32 [dim]; unit, or zero for none).

        With it results can be rescored one after the other, as they may have all nodes each.
        """
        if not len(result.node_ids) or not query.any():
            return result
        scores = result.scores + self.weight * self._cosines(result.node_ids, query)
        order = np.lexsort((self.index.canonical[result.node_ids], -scores))
        return replace(result, node_ids=result.node_ids[order], scores=scores[order])

    def _cosines(self, node_ids: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Cosine of a query with the document of each node, 0 where there is none."""
        row_of = self.index.documents.row_of
        rows = np.where(node_ids < len(row_of), row_of[np.minimum(node_ids, len(row_of) - 1)], -1)
        cosines = np.zeros(len(node_ids))
        cosines[rows >= 0] = exact_cosines(self.index.documents.vectors, query, rows[rows >= 0])
        return cosines
