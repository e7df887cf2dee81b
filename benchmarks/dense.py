"""CPU time of a whole dense evaluation: exact search in batches against HNSW(64, 100, 200), build and search together.

Vectors are synthetic unit vectors around random centres. The exact side is this project's ``DenseIndex`` (recall 1 by
construction, ties in canonical order); HNSW's recall at k is measured against it. Faiss uses one thread.

    python benchmarks/dense.py --documents 200000 --queries 2000
"""

from __future__ import annotations

import argparse
import time

import faiss
import numpy as np

from skb_pipeline.retrieval.dense import DenseIndex

LINKS, BUILD_EFFORT, SEARCH_EFFORT = 64, 100, 200


def make_vectors(n: int, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors, float32 [n, dim], scattered around ``centres``."""
    vectors = centres[rng.integers(0, len(centres), n)] + rng.normal(size=(n, centres.shape[1]))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    faiss.omp_set_num_threads(1)

    rng = np.random.default_rng(args.seed)
    centres = rng.normal(size=(max(1, args.documents // 50), args.dimension))
    vectors = make_vectors(args.documents, centres, rng)
    queries = make_vectors(args.queries, centres, rng)
    canonical = np.arange(args.documents)

    start = time.process_time()
    flat = DenseIndex.build(canonical, vectors, {})
    built = time.process_time()
    hits = flat.search(queries, args.k, canonical=canonical)
    flat_build, flat_search = built - start, time.process_time() - built
    exact = hits.node_id.reshape(args.queries, -1)

    start = time.process_time()
    hnsw = faiss.IndexHNSWFlat(args.dimension, LINKS, faiss.METRIC_INNER_PRODUCT)
    hnsw.hnsw.efConstruction, hnsw.hnsw.efSearch = BUILD_EFFORT, SEARCH_EFFORT
    hnsw.add(vectors)
    built = time.process_time()
    _, found = hnsw.search(queries, args.k)
    hnsw_build, hnsw_search = built - start, time.process_time() - built
    recall = np.mean([len(set(a) & set(b)) / exact.shape[1] for a, b in zip(exact, found, strict=True)])

    print(f"{args.documents} × {args.dimension}, {args.queries} queries, k = {args.k} (CPU s)")
    print(f"flat  build {flat_build:7.2f}  search {flat_search:7.2f}  recall 1")
    print(f"HNSW  build {hnsw_build:7.2f}  search {hnsw_search:7.2f}  recall {recall:.4f}")
    print(f"ratio of totals {(hnsw_build + hnsw_search) / (flat_build + flat_search):.1f}")
    saved = flat_search - hnsw_search
    if saved > 0:
        print(f"HNSW pays back after {(hnsw_build - flat_build) / saved * args.queries:.0f} queries")


if __name__ == "__main__":
    main()
