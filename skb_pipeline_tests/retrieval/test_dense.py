from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.ranking import RankingError, check_ranking, rank_hits
from skb_pipeline.storage.artifacts import ManifestMismatchError

FINGERPRINT = {"model": "a", "revision": "1", "normalised": True, "query_prefix": "", "document_prefix": ""}
CANONICAL = np.arange(100)


def unit(*vectors: list[float]) -> np.ndarray:
    array = np.array(vectors, dtype=np.float64)
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


def random_unit(n: int, dim: int, seed: int) -> np.ndarray:
    return unit(*np.random.default_rng(seed).normal(size=(n, dim)))


def test_asking_for_five_of_three_gives_three_and_no_placeholder() -> None:
    index = DenseIndex.build([0, 1, 2], unit([1, 0], [0, 1], [1, 1]), FINGERPRINT)
    hits = index.search(unit([1, 0.1]), 5, canonical=CANONICAL)
    assert hits.node_id.tolist() == [0, 2, 1]
    assert np.isfinite(hits.score).all()
    assert hits.score.min() > 0


def test_ids_with_gaps_survive_saving(tmp_path) -> None:
    vectors = unit([1, 0, 0], [0, 1, 0], [0, 0, 1])
    DenseIndex.build([35, 10, 20], vectors, FINGERPRINT).save(tmp_path)
    index = DenseIndex.load(tmp_path, FINGERPRINT)
    assert index.search(vectors, 1, canonical=CANONICAL).node_id.tolist() == [35, 10, 20]
    assert index.node_ids.tolist() == [10, 20, 35]


def test_zero_rows_are_skipped_and_listed_also_after_saving(tmp_path) -> None:
    vectors = np.vstack([unit([1, 0]), np.zeros((2, 2), np.float32)])
    DenseIndex.build([4, 9, 6], vectors, FINGERPRINT).save(tmp_path)
    index = DenseIndex.load(tmp_path, FINGERPRINT)
    assert index.node_ids.tolist() == [4]
    assert index.skipped.tolist() == [6, 9]
    assert index.search(unit([-1, 0]), 5, canonical=CANONICAL).node_id.tolist() == [4]


def test_zero_query_has_no_hits_and_the_others_keep_their_place() -> None:
    index = DenseIndex.build([0, 1], unit([1, 0], [0, 1]), FINGERPRINT)
    queries = np.vstack([unit([1, 0]), np.zeros((1, 2), np.float32), unit([0, 1])])
    hits = index.search(queries, 1, canonical=CANONICAL)
    assert list(zip(hits.query.tolist(), hits.node_id.tolist(), strict=True)) == [(0, 0), (2, 1)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([np.nan, 0], r"vector of node 20 is not finite \(1 such"),
        ([np.inf, 0], "vector of node 20 is not finite"),
        ([2, 0], "vector of node 20 has length 2, not 1"),
        ([0.99, 0], "vector of node 20 has length 0.99, not 1"),
    ],
)
def test_bad_vectors_stop_the_build_and_name_the_node(row, message) -> None:
    vectors = np.array([[1, 0], row, [0, 1]], dtype=np.float32)
    with pytest.raises(ValueError, match=message):
        DenseIndex.build([10, 20, 35], vectors, FINGERPRINT)
    index = DenseIndex.build([0], unit([1, 0]), FINGERPRINT)
    with pytest.raises(ValueError, match=message.replace("node 20", "query 1")):
        index.search(vectors, 1, canonical=CANONICAL)


def test_repeated_node_and_wrong_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="node 10 has more than one vector"):
        DenseIndex.build([10, 3, 10], random_unit(3, 4, 0), FINGERPRINT)
    with pytest.raises(ValueError, match="2 node ids need vectors"):
        DenseIndex.build([1, 2], random_unit(3, 4, 0), FINGERPRINT)
    index = DenseIndex.build([1, 2], random_unit(2, 4, 0), FINGERPRINT)
    with pytest.raises(ValueError, match="index holds vectors of 4"):
        index.search(random_unit(1, 8, 0), 1, canonical=CANONICAL)


def test_index_of_another_model_of_the_same_width_is_refused(tmp_path) -> None:
    DenseIndex.build([1, 2], random_unit(2, 8, 0), FINGERPRINT).save(tmp_path)
    with pytest.raises(ManifestMismatchError, match="model is 'a', expected 'b'"):
        DenseIndex.load(tmp_path, {**FINGERPRINT, "model": "b"})
    with pytest.raises(ManifestMismatchError, match="query_prefix is '', expected 'query: '"):
        DenseIndex.load(tmp_path, {**FINGERPRINT, "query_prefix": "query: "})
    (tmp_path / "dense.json").unlink()
    with pytest.raises(FileNotFoundError):
        DenseIndex.load(tmp_path, FINGERPRINT)


def test_files_that_do_not_fit_their_manifest_are_refused(tmp_path) -> None:
    DenseIndex.build([1, 2], random_unit(2, 8, 0), FINGERPRINT).save(tmp_path)
    DenseIndex.build([1, 2, 3], random_unit(3, 8, 0), FINGERPRINT).save(tmp_path / "other")
    (tmp_path / "other" / "index.faiss").replace(tmp_path / "index.faiss")
    with pytest.raises(ManifestMismatchError, match=r"\(3, 8, 2\)"):
        DenseIndex.load(tmp_path, FINGERPRINT)


def test_index_of_other_data_is_noticed_when_searched() -> None:
    index = DenseIndex.build([1, 200], random_unit(2, 4, 0), FINGERPRINT)
    with pytest.raises(RankingError, match=r"not in the SKB, such as \[200\]"):
        index.search(random_unit(1, 4, 1), 1, canonical=CANONICAL)


@pytest.mark.parametrize("vectors", [np.empty((0, 0), np.float32), np.zeros((2, 3), np.float32)])
def test_index_of_nothing_answers_nothing(vectors, tmp_path) -> None:
    DenseIndex.build(np.arange(len(vectors)), vectors, FINGERPRINT).save(tmp_path)
    index = DenseIndex.load(tmp_path, FINGERPRINT)
    assert index.empty
    assert len(index.skipped) == len(vectors)
    assert len(index.search(random_unit(2, 3, 0), 4, canonical=CANONICAL).node_id) == 0


def test_many_equal_vectors_are_cut_in_canonical_order() -> None:
    n = 400
    vectors = np.repeat(unit([1, 2, 3]), n, axis=0)
    canonical = np.random.default_rng(5).permutation(n)
    index = DenseIndex.build(np.arange(n), vectors, FINGERPRINT)
    hits = index.search(unit([1, 2, 3], [1, 0, 0]), 7, canonical=canonical)
    first = np.argsort(canonical)[:7].tolist()
    assert hits.node_id.tolist() == first * 2


def test_last_bits_make_no_difference_between_texts() -> None:
    base = random_unit(1, 32, 1)[0]
    nudged = np.nextafter(base, np.float32(2)).astype(np.float32)
    index = DenseIndex.build([0, 1], np.vstack([base, nudged]), FINGERPRINT)
    for canonical in ([0, 1], [1, 0]):
        hits = index.search(base[None], 2, canonical=np.array(canonical))
        assert hits.score[0] == hits.score[1] == 1.0
        assert hits.node_id[0] == canonical.index(0)


def test_hits_of_a_query_do_not_depend_on_the_queries_beside_it() -> None:
    vectors, queries = random_unit(3000, 48, 2), random_unit(70, 48, 3)
    index, canonical = DenseIndex.build(np.arange(3000), vectors, FINGERPRINT), np.arange(3000)
    together = index.search(queries, 40, canonical=canonical)
    for batch_size, some in [(1, 9), (7, 70)]:
        hits = index.search(queries[:some], 40, canonical=canonical, batch_size=batch_size)
        chosen = together.query < some
        assert hits.node_id.tolist() == together.node_id[chosen].tolist()
        assert hits.score.tolist() == together.score[chosen].tolist()


def test_search_equals_a_full_product() -> None:
    vectors, queries = random_unit(500, 16, 4), random_unit(6, 16, 5)
    hits = DenseIndex.build(np.arange(500), vectors, FINGERPRINT).search(queries, 20, canonical=np.arange(500))
    full = np.round(queries.astype(np.float64) @ vectors.T.astype(np.float64), 6)
    for q in range(6):
        expected = np.lexsort((np.arange(500), -full[q]))[:20]
        assert hits.node_id[hits.query == q].tolist() == expected.tolist()
        assert hits.score[hits.query == q] == pytest.approx(full[q][expected], abs=1e-6)


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.sampled_from([-1, 0, 1])] * 3), max_size=15),
    st.lists(st.tuples(*[st.sampled_from([-1, 0, 1])] * 3), max_size=4),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_ranking_keeps_the_contract_and_ignores_the_order_of_documents(documents, queries, k, random) -> None:
    def rows(values) -> np.ndarray:
        array = np.array(values, dtype=np.float64).reshape(-1, 3)
        norms = np.linalg.norm(array, axis=1, keepdims=True)
        return np.divide(array, norms, out=np.zeros_like(array), where=norms > 0).astype(np.float32)

    nodes, canonical = list(range(len(documents))), list(range(len(documents)))
    random.shuffle(canonical)
    places = np.array(canonical, dtype=np.int64)
    names = [f"q{i}" for i in range(len(queries))]
    frames = []
    for _ in range(2):
        index = DenseIndex.build(nodes, rows([documents[i] for i in nodes]), FINGERPRINT)
        hits = index.search(rows(queries), k, canonical=places)
        frames.append(rank_hits(hits, canonical=places, depth=k, query_order=names))
        random.shuffle(nodes)
    assert frames[0].equals(frames[1])
    assert check_ranking(frames[0], query_order=names, depth=k, canonical=places) == []
    found = sum(any(d) for d in documents)
    for name, query in zip(names, queries, strict=True):
        assert (frames[0]["query_id"] == name).sum() == (min(k, found) if any(query) else 0)


@pytest.mark.parametrize("order", ["import faiss, torch", "import torch, faiss"])
def test_faiss_and_torch_live_together_in_either_order(order: str) -> None:
    program = f"""
{order}
import numpy as np
from skb_pipeline.retrieval.dense import DenseIndex
vectors = np.random.default_rng(0).normal(size=(33000, 16)).astype(np.float32)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
torch.arange(32769).float().sum()
index = DenseIndex.build(np.arange(33000), vectors, {{}})
hits = index.search(vectors[:40], 1, canonical=np.arange(33000))
assert hits.node_id.tolist() == list(range(40)), hits
assert float((torch.from_numpy(vectors[:64]) @ torch.from_numpy(vectors[:64]).T).diagonal().sum()) > 63.9
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
