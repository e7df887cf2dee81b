from __future__ import annotations

import json
import math
from collections import Counter

import bm25s
import numpy as np
import pytest
import rank_bm25
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.ranking import check_ranking, rank_hits
from skb_pipeline.retrieval.settings import LexicalSpec
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.text import tokens

PLAIN = LexicalSpec(stopwords="none")
METHODS = ["lucene", "robertson", "atire", "bm25l", "bm25+"]
WORDS = [f"w{i}" for i in range(40)]


def corpus(n: int = 60, seed: int = 3) -> list[list[str]]:
    """Documents of 1 to 30 words in which low-numbered words are frequent."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, len(WORDS) + 1)
    return [rng.choice(WORDS, rng.integers(1, 30), p=shares / shares.sum()).tolist() for _ in range(n)]


def scores_of(index: BM25Index, query: str, n: int) -> dict[int, float]:
    hits = index.search([query], n, canonical=np.arange(n))
    return dict(zip(hits.node_id.tolist(), hits.score.tolist(), strict=True))


def formula(method: str, docs: list[list[str]], query: list[str], k1: float, b: float) -> list[float]:
    """BM25 written down term by term."""
    n, mean = len(docs), sum(map(len, docs)) / len(docs)
    total = []
    for doc in docs:
        counts, norm, score = Counter(doc), 1 - b + b * len(doc) / mean, 0.0
        for term in query:
            df, tf = sum(term in d for d in docs), counts[term]
            if df == 0:
                continue
            if method == "lucene":
                score += math.log(1 + (n - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * norm)
            elif method == "robertson":
                score += max(0.0, math.log((n - df + 0.5) / (df + 0.5))) * tf / (tf + k1 * norm)
            else:
                score += math.log(n / df) * tf * (k1 + 1) / (tf + k1 * norm)
        total.append(score)
    return total


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire"])
def test_scores_equal_the_written_formula(method: str) -> None:
    docs, query = corpus(), ["w0", "w3", "w3", "w17", "unknown"]
    spec = LexicalSpec(method=method, k1=1.7, b=0.4, stopwords="none")
    index = BM25Index.build(range(60), [" ".join(d) for d in docs], spec)
    expected = formula(method, docs, query, 1.7, 0.4)
    found = scores_of(index, " ".join(query), 60)
    assert set(found) == {i for i, d in enumerate(docs) if set(d) & set(query)}
    assert found == pytest.approx({i: expected[i] for i in found}, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_scores_equal_those_of_bm25s_and_its_loader_reads_our_folder(method: str, tmp_path) -> None:
    docs, query = corpus(), ["w1", "w5", "w30"]
    delta = 1.0 if method == "bm25+" else 0.5
    peer = bm25s.BM25(k1=1.2, b=0.75, delta=delta, method=method)
    peer.index(docs, show_progress=False)
    index = BM25Index.build(range(60), [" ".join(d) for d in docs], LexicalSpec(method=method, stopwords="none"))
    expected = peer.get_scores(query)
    found = scores_of(index, " ".join(query), 60)
    assert found == pytest.approx({i: float(expected[i]) for i in found}, abs=1e-5)
    index.save(tmp_path)
    np.testing.assert_allclose(bm25s.BM25.load(tmp_path).get_scores(query), expected, atol=1e-5)


def test_robertson_is_rank_bm25_okapi_up_to_a_factor_for_rarer_terms() -> None:
    docs = corpus()
    peer = rank_bm25.BM25Okapi(docs, k1=1.2, b=0.75)
    index = BM25Index.build(range(60), [" ".join(d) for d in docs], LexicalSpec(method="robertson", stopwords="none"))
    rare = [w for w in WORDS if 0 < sum(w in d for d in docs) < 30][:4]
    expected = peer.get_scores(rare)
    found = scores_of(index, " ".join(rare), 60)
    assert {i: 2.2 * s for i, s in found.items()} == pytest.approx({i: expected[i] for i in found}, abs=1e-5)
    # A term in more than half of the documents: rank_bm25 gives it a floor above zero, robertson here gives zero.
    frequent = next(w for w in WORDS if sum(w in d for d in docs) > 30)
    assert max(peer.get_scores([frequent])) > 0
    assert set(scores_of(index, frequent, 60).values()) == {0.0}


def test_bm25plus_is_that_of_rank_bm25() -> None:
    # Its BM25L has no such test: it multiplies by the frequency once more than the paper does.
    docs, query = corpus(), ["w0", "w9", "w33"]
    index = BM25Index.build(range(60), [" ".join(d) for d in docs], LexicalSpec(method="bm25+", stopwords="none"))
    expected = rank_bm25.BM25Plus(docs, k1=1.2, b=0.75).get_scores(query)
    found = scores_of(index, " ".join(query), 60)
    assert found == pytest.approx({i: expected[i] for i in found}, abs=1e-5)


def test_term_in_most_documents_still_scores() -> None:
    index = BM25Index.build([0, 1, 2], ["hello world", "foo bar", "hello foo"], PLAIN)
    found = scores_of(index, "hello", 3)
    assert set(found) == {0, 2}
    assert min(found.values()) > 0


def test_names_with_signs_are_found() -> None:
    names = ["C++", "IL-2", "β-catenin", "3M", "vitamin C", "R&D", "HP:0001250", "22q11.2", "the gene WAS"]
    index = BM25Index.build(range(len(names)), names, LexicalSpec())
    hits = index.search(names, 1, canonical=np.arange(len(names)))
    assert hits.node_id.tolist() == list(range(len(names)))


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("İznik", "iznik"),
        ("Hôtel naïf", "hotel naif"),
        ("ＡＢ１２", "ab12"),
        ("CO₂", "co2"),
        ("fjord Ålesund", "alesund"),
    ],
)
def test_spelling_variants_find_each_other(written: str, asked: str, tmp_path) -> None:
    documents = [written, "something else", asked.replace("a", "x").replace("i", "x")]
    BM25Index.build(range(3), documents, LexicalSpec()).save(tmp_path)
    index = BM25Index.load(tmp_path, LexicalSpec())
    hits = index.search([asked, written, written.upper()], 1, canonical=np.arange(3))
    assert hits.node_id.tolist() == [0, 0, 0]


def test_accents_can_be_told_to_stay() -> None:
    spec = LexicalSpec(fold_accents=False)
    index = BM25Index.build(range(3), ["péché", "pêche", "ＰÊCHE"], spec)
    assert set(scores_of(index, "pêche", 3)) == {1, 2}
    assert set(scores_of(BM25Index.build(range(3), ["péché", "pêche", "ＰÊCHE"], LexicalSpec()), "peche", 3)) == {
        0,
        1,
        2,
    }


def test_words_of_the_longer_stop_list_are_no_terms_by_default() -> None:
    documents = ["which does have them all", "which gene"]
    assert set(scores_of(BM25Index.build(range(2), documents, LexicalSpec()), "which gene does", 2)) == {1}
    assert set(scores_of(BM25Index.build(range(2), documents, LexicalSpec(stopwords="en")), "which does", 2)) == {0, 1}


def test_asking_for_more_than_there_is_gives_all_there_is() -> None:
    index = BM25Index.build(range(4), ["a x", "a y", "a", "b"], PLAIN)
    assert scores_of(index, "a", 4).keys() == {0, 1, 2}
    hits = index.search(["a", "b", "zzz", ""], 10, canonical=np.arange(4))
    assert np.bincount(hits.query, minlength=4).tolist() == [3, 1, 0, 0]


@pytest.mark.parametrize("documents", [[], ["", "", ""], ["  ", "!?", "the of"]])
def test_corpus_without_terms_gives_an_empty_index_that_can_be_kept(documents, tmp_path) -> None:
    index = BM25Index.build(range(len(documents)), documents, LexicalSpec())
    assert index.empty
    assert index.n_empty == len(documents)
    index.save(tmp_path)
    again = BM25Index.load(tmp_path, LexicalSpec())
    assert again.empty
    assert len(again.search(["anything", ""], 5, canonical=np.arange(3)).node_id) == 0


def test_empty_documents_count_neither_as_documents_nor_in_the_mean_length() -> None:
    full = BM25Index.build([0, 1], ["a b c", "a"], PLAIN)
    holed = BM25Index.build([0, 5, 1, 6], ["a b c", "", "a", " "], PLAIN)
    assert holed.n_empty == 2
    assert holed.node_ids.tolist() == [0, 1]
    assert scores_of(holed, "a c", 7) == scores_of(full, "a c", 7)


def test_equal_documents_are_cut_in_canonical_order() -> None:
    index = BM25Index.build(range(6), ["same words"] * 6, PLAIN)
    canonical = np.array([5, 2, 4, 0, 3, 1])
    hits = index.search(["words"], 3, canonical=canonical)
    assert hits.node_id.tolist() == [3, 5, 1]


def test_best_of_many_documents_with_many_ties_equal_a_full_sort() -> None:
    # Enough hits for the candidate list to be cut down several times on the way.
    rng = np.random.default_rng(8)
    docs = [" ".join(rng.choice(WORDS[:6], rng.integers(1, 4))) for _ in range(3000)]
    index, canonical = BM25Index.build(range(3000), docs, PLAIN), rng.permutation(3000)
    everything = index.search(["w0 w1 w2", "w3"], 3000, canonical=canonical)
    for query in (0, 1):
        mine = everything.query == query
        nodes, scores = everything.node_id[mine], everything.score[mine]
        order = np.lexsort((canonical[nodes], -scores))
        for k in (1, 7, 200):
            hits = index.search(["w0 w1 w2", "w3"], k, canonical=canonical)
            assert hits.node_id[hits.query == query].tolist() == nodes[order][:k].tolist()


def test_word_order_of_a_query_changes_no_bit() -> None:
    docs = [" ".join(d) for d in corpus()]
    index = BM25Index.build(range(60), docs, PLAIN)
    forth, back = (index.search([q], 60, canonical=np.arange(60)) for q in ("w0 w1 w2 w7", "w7 w2 w1 w0"))
    assert forth.node_id.tolist() == back.node_id.tolist()
    assert forth.score.tolist() == back.score.tolist()


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_saved_index_answers_the_same(method: str, mmap: bool, tmp_path) -> None:
    spec = LexicalSpec(method=method)
    index = BM25Index.build([10, 20, 35], ["one two", "two three β", "three"], spec)
    index.save(tmp_path)
    canonical = np.full(36, -1)
    canonical[[10, 20, 35]] = [0, 1, 2]
    queries = ["two", "β three", "none"]
    before, after = (
        i.search(queries, 5, canonical=canonical) for i in (index, BM25Index.load(tmp_path, spec, mmap=mmap))
    )
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
    assert set(after.node_id.tolist()) == {10, 20, 35}


def test_index_of_other_settings_or_another_token_rule_is_refused(tmp_path) -> None:
    BM25Index.build([0], ["text"], LexicalSpec()).save(tmp_path)
    with pytest.raises(ManifestMismatchError, match=r"lexical is .*1\.2.*expected .*0\.9"):
        BM25Index.load(tmp_path, LexicalSpec(k1=0.9))
    manifest = json.loads((tmp_path / "bm25.json").read_text())
    (tmp_path / "bm25.json").write_text(json.dumps({**manifest, "token_rule": "older"}))
    with pytest.raises(ManifestMismatchError, match=f"token_rule is 'older', expected '{tokens.VERSION}'"):
        BM25Index.load(tmp_path, LexicalSpec())


def test_unfinished_index_is_no_index(tmp_path) -> None:
    BM25Index.build([0], ["text"], LexicalSpec()).save(tmp_path)
    (tmp_path / "bm25.json").unlink()
    with pytest.raises(FileNotFoundError):
        BM25Index.load(tmp_path, LexicalSpec())


def test_two_documents_of_one_node_are_refused() -> None:
    with pytest.raises(ValueError, match="node 7 has more than one document"):
        BM25Index.build([7, 8, 7], ["a", "b", "c"], PLAIN)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "IL-2", ""]), max_size=4).map(" ".join), max_size=12),
    st.lists(st.lists(st.sampled_from(["a", "b", "c", "il-2", "z"]), max_size=3).map(" ".join), max_size=4),
    st.integers(1, 15),
    st.sampled_from(METHODS),
    st.randoms(use_true_random=False),
)
def test_ranking_keeps_the_contract_and_ignores_the_order_of_documents(docs, queries, k, method, random) -> None:
    spec = LexicalSpec(method=method, stopwords="none")
    nodes, canonical = list(range(len(docs))), list(range(len(docs)))
    random.shuffle(canonical)
    places = np.array(canonical, dtype=np.int64)
    names = [f"q{i}" for i in range(len(queries))]
    frames = []
    for _ in range(2):
        index = BM25Index.build(nodes, [docs[i] for i in nodes], spec)
        hits = index.search(queries, k, canonical=places)
        frames.append(rank_hits(hits, canonical=places, depth=k, query_order=names))
        random.shuffle(nodes)
    assert frames[0].equals(frames[1])
    assert check_ranking(frames[0], query_order=names, depth=k, canonical=places) == []
    for name, query in zip(names, queries, strict=True):
        terms = set(query.split()) | ({"il", "2"} if "il-2" in query else set())
        matching = sum(bool(terms & set(d.lower().replace("il-2", "il-2 il 2").split())) for d in docs)
        assert (frames[0]["query_id"] == name).sum() == min(matching, k)
