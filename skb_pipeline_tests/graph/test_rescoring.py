from __future__ import annotations

import numpy as np
import pytest

from skb_pipeline.graph.rescoring import Rescorer
from skb_pipeline.plans.results import GraphOutcome, GraphResult, no_answers
from skb_pipeline_tests.linking.test_anchors import Made, made

__all__ = ["made"]  # the fixture


def result(made: Made, answers: dict[str, float]) -> GraphResult:
    ids = np.array([made.ids["disease", external] for external in answers], dtype=np.int64)
    return GraphResult(ids, np.array(list(answers.values())), 77, GraphOutcome.OK, "sql", 1.5, 9)


def order(made: Made, rescored: GraphResult) -> list[str]:
    external = {node: key[1] for key, node in made.ids.items()}
    return [external[node] for node in rescored.node_ids.tolist()]


def test_cosine_of_the_document_is_added(made) -> None:
    before = result(made, {"1": 1.0, "2": 1.0, "3": 1.0})
    (after,) = Rescorer(made.index).rescore([before], ["a broken bone"])
    assert order(made, after)[0] == "3"
    documents = made.encoder.encode_documents(["disease: fracture of the arm\nabout: A broken bone."])
    cosine = float(documents[0] @ made.encoder.encode_queries(["a broken bone"])[0])
    assert after.scores[0] == pytest.approx(1 + cosine, abs=2e-6)
    assert (after.n_cand, after.outcome, after.route, after.touched_edges) == (77, GraphOutcome.OK, "sql", 9)
    assert before.scores.tolist() == [1.0, 1.0, 1.0]


def test_weight(made) -> None:
    before = result(made, {"2": 1.0, "3": 0.9})
    half, full, none = (
        Rescorer(made.index, weight).rescore([before], ["a broken bone"])[0] for weight in (0.5, 1.0, 0.0)
    )
    assert order(made, none) == ["2", "3"]
    np.testing.assert_array_equal(none.scores, before.scores)
    assert order(made, full) == ["3", "2"]
    assert full.scores[0] - 0.9 == pytest.approx(2 * (half.scores[order(made, half).index("3")] - 0.9))


@pytest.mark.parametrize("text", ["", "  \n"])
def test_blank_text_leaves_the_result_alone(made, text) -> None:
    before = result(made, {"3": 0.7, "1": 0.7})
    assert Rescorer(made.index).rescore([before], [text]) == [before]


def test_ties_are_in_canonical_order(made) -> None:
    """Documents of nodes without one tie, whatever order they come in."""
    gene = made.ids["gene", "1"]
    ids = np.array([10_000, gene, 9_000], dtype=np.int64)
    canonical = np.full(10_001, -1)
    canonical[: len(made.index.canonical)] = made.index.canonical
    canonical[[10_000, 9_000]] = [500, 400]
    index = type(made.index)(
        made.index.spec, made.index.names, made.index.documents, canonical, made.cache, made.encoder
    )
    (after,) = Rescorer(index).rescore(
        [GraphResult(ids, np.ones(3), 3, GraphOutcome.OK, "sql", 0.1)], ["tumor necrosis factor"]
    )
    assert after.node_ids.tolist() == [gene, 9_000, 10_000]
    assert after.scores[1:].tolist() == [1.0, 1.0]


def test_batch_equals_single_calls_and_each_text_is_encoded_once(made) -> None:
    results = [
        result(made, {"1": 1.0, "2": 0.5}),
        no_answers(GraphOutcome.EMPTY, "sql", 0.1),
        result(made, {"3": 1.0, "11": 1.0, "12": 1.0}),
        result(made, {"10": 1.0}),
    ]
    texts = ["pain in the head on one side", "never encoded", "pain in the head on one side", ""]
    before = made.encoder.encode_calls
    together = Rescorer(made.index).rescore(results, texts)
    assert made.encoder.encode_calls - before == 1
    assert together[1] is results[1]
    for one, text, both in zip(results, texts, together, strict=True):
        (alone,) = Rescorer(made.index).rescore([one], [text])
        np.testing.assert_array_equal(alone.node_ids, both.node_ids)
        np.testing.assert_array_equal(alone.scores, both.scores)
    assert order(made, together[2])[0] == "11"


def test_lengths_must_fit(made) -> None:
    with pytest.raises(ValueError, match="1 results need as many"):
        Rescorer(made.index).rescore([result(made, {"1": 1.0})], [])
