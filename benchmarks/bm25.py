"""CPU time of BM25 queries: this project's index against rank_bm25, on equal scores.

Both sides get the same synthetic documents (Zipf words) and queries and return the best k documents. rank_bm25's
``BM25Okapi`` equals the robertson variant times (k1 + 1) for terms in fewer than half of the documents, so queries are
drawn from those, and equal scores are asserted before a ratio is printed. One thread; times alternate between sides.

    python benchmarks/bm25.py --documents 100000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import rank_bm25

from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.settings import LexicalSpec

WORDS_PER_QUERY = 8


def make_texts(n: int, words: int, vocabulary: int, rng: np.random.Generator) -> list[str]:
    """Documents of about ``words`` words with Zipf frequencies."""
    names = [f"w{i}" for i in range(vocabulary)]
    bounds = np.cumsum(1 / np.arange(1, vocabulary + 1))
    lengths = rng.poisson(words, n) + 1
    draws = (np.searchsorted(bounds, rng.random(length) * bounds[-1]) for length in lengths)
    return [" ".join([names[i] for i in draw.tolist()]) for draw in draws]


def make_queries(documents: list[list[str]], n: int, rng: np.random.Generator) -> list[list[str]]:
    """Words of random documents, without those in half of the documents or more."""
    frequency: dict[str, int] = {}
    for document in documents:
        for word in set(document):
            frequency[word] = frequency.get(word, 0) + 1
    queries = []
    for i in rng.integers(0, len(documents), n):
        words = [word for word in documents[i] if frequency[word] < len(documents) / 2]
        queries.append(list(dict.fromkeys(words))[:WORDS_PER_QUERY])
    return queries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--words", type=int, default=120, help="mean words per document")
    parser.add_argument("--vocabulary", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=200, help="queries per round of this project's side")
    parser.add_argument("--peer-queries", type=int, default=5, help="queries per round of rank_bm25's side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--k", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build-only", action="store_true", help="time and memory of the build; no peer")
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    texts = make_texts(args.documents, args.words, args.vocabulary, rng)
    canonical = np.arange(args.documents)
    spec = LexicalSpec(method="robertson", stopwords="none")
    BM25Index.build([0], ["compile the loops"], spec).search(["loops"], 1, canonical=canonical)

    before = reset_peak_memory()
    start = time.process_time()
    index = BM25Index.build(canonical, texts, spec)
    print(f"{args.documents} documents of {args.words} words")
    print(f"build, text to index: {time.process_time() - start:.1f} CPU s, ", end="")
    print(f"peak memory +{status_gib('VmHWM') - before:.2f} GiB beside the texts")
    if args.build_only:
        return

    documents = [text.split() for text in texts]
    queries = make_queries(documents, max(args.queries, args.peer_queries), rng)
    as_text = [" ".join(query) for query in queries]
    peer = rank_bm25.BM25Okapi(documents, k1=spec.k1, b=spec.b)
    check_equal(index, peer, as_text[: args.peer_queries], queries[: args.peer_queries], spec.k1, canonical)

    for k in args.k:
        ours, theirs = [], []
        for _ in range(args.rounds):
            start = time.process_time()
            index.search(as_text[: args.queries], k, canonical=canonical)
            ours.append((time.process_time() - start) / args.queries)
            start = time.process_time()
            for query in queries[: args.peer_queries]:
                peer.get_top_n(query, canonical, k)
            theirs.append((time.process_time() - start) / args.peer_queries)
        mine, other = float(np.median(ours)), float(np.median(theirs))
        print(f"query, k = {k}: {mine * 1e3:.3f} ms, rank_bm25 {other * 1e3:.1f} ms (CPU), ratio {other / mine:.0f}")


def reset_peak_memory() -> float:
    """Forget the process's peak memory so far (Linux) and return what it holds now, in GiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_gib("VmRSS")


def status_gib(entry: str) -> float:
    """A memory entry of the process status (Linux), in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{entry}:")) / 2**20


def check_equal(
    index: BM25Index,
    peer: rank_bm25.BM25Okapi,
    texts: list[str],
    queries: list[list[str]],
    k1: float,
    canonical: np.ndarray,
) -> None:
    """Stop unless every document with a query term has the same score on both sides, and no other one scores."""
    for text, query in zip(texts, queries, strict=True):
        hits = index.search([text], len(canonical), canonical=canonical)
        ours = np.zeros(len(canonical))
        ours[hits.node_id] = hits.score * (k1 + 1)
        np.testing.assert_allclose(ours, peer.get_scores(query), rtol=1e-5, atol=1e-5)
    print(f"scores equal on {len(queries)} queries × {len(canonical)} documents")


if __name__ == "__main__":
    main()
