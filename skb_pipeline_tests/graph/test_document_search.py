from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skb_pipeline.graph.document_search import ROUTE, DocumentQuery, search_documents
from skb_pipeline.linking.anchors import AnchorIndex, VectorTable
from skb_pipeline.plans.results import GraphOutcome
from skb_pipeline_tests.linking.test_anchors import Made, made

__all__ = ["made"]  # the fixture

TEXTS = ("pain in the head on one side", "a broken bone", "pressure of the blood")


@pytest.fixture(scope="module", params=["float32", "float16"])
def crowded(made: Made, request: pytest.FixtureRequest) -> AnchorIndex:
    """The toy's encoder over 2,000 documents of three types: around the texts' own vectors, many equal, some blank."""
    rng = np.random.default_rng(3)
    texts = made.index.embed(TEXTS)
    vectors = texts[rng.integers(0, 3, 2000)] + rng.normal(0, 0.05, (2000, texts.shape[1]))
    vectors[rng.random(2000) < 0.3] = texts[1]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[rng.random(2000) < 0.05] = 0
    types = np.sort(rng.choice(["disease", "gene", "place"], 2000))
    rows = pd.DataFrame({"node_type": types, "node_id": rng.permutation(2000), "text": "", "is_alias": False})
    table = VectorTable(rows, vectors.astype(request.param))
    return AnchorIndex(made.index.spec, made.index.names, table, rng.permutation(2000), made.cache, made.encoder)


def brute_force(index: AnchorIndex, query: DocumentQuery, depth: int) -> tuple[list[int], list[float], int]:
    """All documents, one by one."""
    texts = [vector.astype(np.float64) for vector in index.embed(query.texts)]
    found = []
    for (kind, node), vector in zip(
        index.documents.rows[["node_type", "node_id"]].to_numpy(),
        index.documents.vectors.astype(np.float64),
        strict=True,
    ):
        if kind in query.types:
            found.append((sum(round(float((vector * text).sum()), 6) for text in texts), node))
    found.sort(key=lambda pair: (-pair[0], index.canonical[pair[1]]))
    return [node for _, node in found[:depth]], [score for score, _ in found[:depth]], len(found)


@pytest.mark.parametrize("depth", [1, 7, 300, 5000])
def test_hits_are_those_of_comparing_every_document(crowded: AnchorIndex, depth: int) -> None:
    queries = [
        DocumentQuery(("disease",), TEXTS[:1]),
        DocumentQuery(("gene", "disease"), TEXTS[1:]),
        DocumentQuery(("disease", "gene", "place", "gene", "nothing"), (TEXTS[1], " ")),
        DocumentQuery(("place",), ()),
    ]
    results = search_documents(crowded, queries, depth=depth)
    for query, result in zip(queries, results, strict=True):
        nodes, scores, n_cand = brute_force(crowded, query, depth)
        assert result.node_ids.tolist() == nodes
        np.testing.assert_allclose(result.scores, scores, rtol=0, atol=1e-12)
        assert (result.n_cand, result.outcome, result.route) == (n_cand, GraphOutcome.OK, ROUTE)
        assert (result.node_ids.dtype, result.scores.dtype) == (np.int64, np.float64)


def test_the_questions_beside_it_change_nothing(crowded: AnchorIndex) -> None:
    queries = [DocumentQuery(("disease", "gene"), TEXTS[i % 3 : i % 3 + 1 + i % 2]) for i in range(40)]
    together = search_documents(crowded, queries, depth=50)
    for query, both in zip(queries, together, strict=True):
        (alone,) = search_documents(crowded, [query], depth=50)
        np.testing.assert_array_equal(alone.node_ids, both.node_ids)
        np.testing.assert_array_equal(alone.scores, both.scores)


def test_types_without_documents_and_bad_depth(crowded: AnchorIndex) -> None:
    (nothing,) = search_documents(crowded, [DocumentQuery(("star",), TEXTS)], depth=5)
    assert (nothing.n_cand, nothing.outcome, len(nothing.node_ids)) == (0, GraphOutcome.EMPTY, 0)
    assert search_documents(crowded, [], depth=5) == []
    with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
        search_documents(crowded, [], depth=0)
