"""The lexical branch: BM25 over node documents.

The index has the file format of bm25s, so that ``bm25s.BM25.load`` opens its folder too. Building is a counting
pass of our own, which needs a fraction of the memory; so is the choice of the best rows, because ties, also at the cut,
are to be broken in canonical order.

Formulas are those of Kamphuis, de Vries, Boytsov and Lin, "Which BM25 Do You Mean?" (ECIR 2020), Table 1, for
``robertson``, ``lucene`` and ``atire``; BM25L and BM25+ are those of Lv and Zhai (SIGIR 2011, CIKM 2011) with their
values of delta, 0.5 and 1. Things to know:

* ``lucene`` and ``robertson`` leave out the constant factor (k1 + 1), which changes no ranking.
* ``robertson`` has an idf below zero for a term in more than half of the documents; it is set to 0 here. rank_bm25's
  ``BM25Okapi`` sets it to a quarter of the mean idf instead, and otherwise equals (k1 + 1) times ``robertson``.
  A document whose only query terms have idf 0 is a hit with score 0.

Documents without terms are not indexed: they count neither in the number of documents nor in the average length.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skb_pipeline.retrieval.ranking import Hits, canonical_of, top_k_with_ties
from skb_pipeline.retrieval.settings import LexicalSpec
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.text import tokens as token_rule
from skb_pipeline.text.tokens import Tokeniser

VERSION = "2"


_MANIFEST = "bm25.json"
_NODE_IDS = "node_ids.npy"
_CHUNK = 4_000_000
"""Postings weighted at once, which bounds the memory of intermediate results."""
_DELTA = {"bm25l": 0.5, "bm25+": 1.0}


class BM25Index:
    """BM25 index over node documents. Make one with :meth:`build` or :meth:`load`.

    Attributes:
        spec: settings it was built with.
        node_ids: int64 [n], the node of each indexed row, ascending.
        n_empty: documents that gave no term and are not indexed.
    """

    def __init__(self, spec: LexicalSpec, node_ids: np.ndarray, n_empty: int, engine: Any | None) -> None:
        """``engine`` is a ``bm25s.BM25`` that holds postings and vocabulary, or None for an empty index."""
        self.spec = spec
        self.node_ids = node_ids
        self.n_empty = n_empty
        self._engine = engine
        self._tokeniser = _tokeniser(spec)

    @property
    def empty(self) -> bool:
        """No document has a term; every search gives nothing."""
        return len(self.node_ids) == 0

    def __len__(self) -> int:
        return len(self.node_ids)

    @classmethod
    def build(cls, node_ids: Sequence[int] | np.ndarray, documents: Sequence[str], spec: LexicalSpec) -> BM25Index:
        """Index one document per node; the order of the arguments does not matter.

        Args:
            node_ids: integer [n], unique.
            documents: text [n]; without headings where ``spec.headings`` says so.
            spec: BM25 variant, its parameters, and what is a term.

        Raises:
            ValueError: lengths differ or a node id occurs twice.
        """
        ids = np.asarray(node_ids, dtype=np.int64)
        if len(ids) != len(documents):
            raise ValueError(f"{len(ids)} node ids for {len(documents)} documents")
        order = np.argsort(ids, kind="stable")
        twice = np.flatnonzero(np.diff(ids[order]) == 0)
        if len(twice):
            raise ValueError(f"node {ids[order][twice[0]]} has more than one document")
        tokens, lengths, vocabulary = _token_ids((documents[i] for i in order), _tokeniser(spec))
        indexed = lengths > 0
        n_empty = int((~indexed).sum())
        if not indexed.any():
            return cls(spec, np.empty(0, np.int64), n_empty, None)
        return cls(spec, ids[order][indexed], n_empty, _engine(tokens, lengths[indexed], vocabulary, spec))

    def search(self, queries: Sequence[str], k: int, *, canonical: np.ndarray) -> Hits:
        """The ``k`` best documents per query among those with at least one of its terms.

        Scores are sums of float32 postings in float64, so the order of words in a query has no influence. A term that
        stands twice in a query counts twice.

        Args:
            queries: text [q], cleaned like the documents.
            k: hits per query at most.
            canonical: int64, indexed by node id; decides ties, also at the cut.

        Returns:
            Hits per query in falling order. A query without known terms has none.
        """
        if self._engine is None or k < 1:
            return Hits.concatenate([])
        from skb_pipeline.retrieval.bm25_kernels import UNTOUCHED, best_rows

        place = canonical_of(self.node_ids, canonical)
        postings = _read_only(self._engine.scores)
        absent = self._engine.nonoccurrence_array
        n = len(self)
        scores, rows, values = np.full(n, UNTOUCHED), np.empty(n + 1, np.int32), np.empty(n)
        found: list[Hits] = []
        for i, query in enumerate(queries):
            terms = np.asarray(self._engine.get_tokens_ids(self._tokeniser(query)), dtype=np.int64)
            m = best_rows(terms, *postings, k, scores, rows, values)
            best = top_k_with_ties(values[:m], k, place[rows[:m]])
            score = values[best] + (float(absent[terms].sum(dtype=np.float64)) if absent is not None else 0.0)
            found.append(Hits(np.full(len(best), i, np.int64), self.node_ids[rows[best]], score))
        return Hits.concatenate(found)

    def save(self, folder: Path) -> None:
        """Write the index into ``folder``; its manifest (settings, sizes, token rule) comes last."""
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / _NODE_IDS, self.node_ids)
        if self._engine is not None:
            self._engine.save(folder, show_progress=False)
        atomic.write_json(
            folder / _MANIFEST,
            {**_settings(self.spec), "n_indexed": len(self), "n_empty": self.n_empty, "empty": self.empty},
        )

    @classmethod
    def load(cls, folder: Path, spec: LexicalSpec, *, mmap: bool = True) -> BM25Index:
        """Open a saved index; with ``mmap`` its postings stay on disk until they are read.

        Raises:
            FileNotFoundError: there is no finished index in ``folder``.
            ManifestMismatchError: it was built with other settings or another token rule.
        """
        manifest = json.loads((folder / _MANIFEST).read_text())
        expected = _settings(spec)
        differing = {key: (manifest.get(key), value) for key, value in expected.items() if manifest.get(key) != value}
        if differing:
            told = ", ".join(f"{key} is {have!r}, expected {want!r}" for key, (have, want) in differing.items())
            raise ManifestMismatchError(f"BM25 index in {folder} does not fit: {told}; build it again")
        engine = None
        if not manifest["empty"]:
            import bm25s

            engine = bm25s.BM25.load(folder, mmap=mmap, show_progress=False)
        return cls(spec, np.load(folder / _NODE_IDS), manifest["n_empty"], engine)


def _tokeniser(spec: LexicalSpec) -> Tokeniser:
    return Tokeniser(spec.stopwords, fold_accents=spec.fold_accents)


def _settings(spec: LexicalSpec) -> dict[str, Any]:
    return {"token_rule": token_rule.VERSION, "lexical": spec.model_dump(mode="json")}


def _token_ids(documents: Iterable[str], tokeniser: Tokeniser) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Term ids of all documents one after the other (int32), terms per document (int64), and the vocabulary."""
    vocabulary: dict[str, int] = {}
    ids_of_word: dict[str, tuple[int, ...]] = {}
    tokens, lengths = array("i"), array("q")
    for document in documents:
        before = len(tokens)
        for word in tokeniser.words(document):
            ids = ids_of_word.get(word)
            if ids is None:
                ids = tuple(vocabulary.setdefault(term, len(vocabulary)) for term in tokeniser.terms(word))
                ids_of_word[word] = ids
            tokens.extend(ids)
        lengths.append(len(tokens) - before)
    return np.frombuffer(tokens, np.int32), np.frombuffer(lengths, np.int64), vocabulary


def _engine(tokens: np.ndarray, lengths: np.ndarray, vocabulary: dict[str, int], spec: LexicalSpec) -> Any:
    """A ``bm25s.BM25`` with postings counted here instead of by its own, far larger, builder."""
    import bm25s

    from skb_pipeline.retrieval.bm25_kernels import count_postings, document_frequencies

    offsets = np.concatenate([[0], np.cumsum(lengths)])
    frequency = document_frequencies(tokens, offsets, len(vocabulary))
    indptr = np.concatenate([[0], np.cumsum(frequency)])
    rows, data = count_postings(tokens, offsets, indptr)
    idf = _idf(spec.method, frequency, len(lengths))
    absent = idf * _absent_weight(spec)
    term_of = np.repeat(np.arange(len(vocabulary), dtype=np.int32), frequency)
    relative = lengths / lengths.mean()
    for start in range(0, len(data), _CHUNK):
        part = slice(start, start + _CHUNK)
        term = term_of[part]
        data[part] = idf[term] * _term_weight(spec, data[part].astype(np.float64), relative[rows[part]]) - absent[term]
    engine = bm25s.BM25(k1=spec.k1, b=spec.b, delta=_DELTA.get(spec.method, 0.0), method=spec.method, backend="numpy")
    engine.vocab_dict = vocabulary
    engine.scores = {"data": data, "indices": rows, "indptr": indptr, "num_docs": len(lengths)}
    engine.nonoccurrence_array = absent.astype(np.float32) if spec.method in _DELTA else None
    return engine


def _idf(method: str, frequency: np.ndarray, n: int) -> np.ndarray:
    """Inverse document frequency (float64) of terms that occur in ``frequency`` of ``n`` documents."""
    if method == "lucene":
        return np.log(1 + (n - frequency + 0.5) / (frequency + 0.5))
    if method == "robertson":
        return np.log(np.maximum(1, (n - frequency + 0.5) / (frequency + 0.5)))
    if method == "atire":
        return np.log(n / frequency)
    if method == "bm25l":
        return np.log((n + 1) / (frequency + 0.5))
    return np.log((n + 1) / frequency)


def _term_weight(spec: LexicalSpec, tf: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Weight of terms by their frequency (at least 1) and their document's length relative to the mean length."""
    norm = 1 - spec.b + spec.b * relative
    if spec.method in ("lucene", "robertson"):
        return tf / (spec.k1 * norm + tf)
    if spec.method == "bm25l":
        shifted = tf / norm + _DELTA["bm25l"]
        return (spec.k1 + 1) * shifted / (spec.k1 + shifted)
    return (spec.k1 + 1) * tf / (spec.k1 * norm + tf) + _DELTA.get(spec.method, 0.0)


def _absent_weight(spec: LexicalSpec) -> float:
    """Weight that BM25L and BM25+ give to a query term a document lacks; kept apart so that postings stay sparse."""
    if spec.method == "bm25l":
        return (spec.k1 + 1) * _DELTA["bm25l"] / (spec.k1 + _DELTA["bm25l"])
    return _DELTA.get(spec.method, 0.0)


def _read_only(scores: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Data, rows and column starts as read-only arrays: one compiled loop serves built and memory-mapped indexes."""
    arrays = tuple(np.asarray(scores[name]).view() for name in ("data", "indices", "indptr"))
    for values in arrays:
        values.setflags(write=False)
    return arrays[0], arrays[1], arrays[2]
