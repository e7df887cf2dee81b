"""Vectors of many texts through a cache: only texts that were never encoded with this model are encoded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from skb_pipeline.retrieval.encoder import Encoder, Role, batch_positions
from skb_pipeline.storage.rows.arrays import ArrayRows


@dataclass(frozen=True)
class EmbeddingStats:
    """What :func:`embed_texts` did, counted over distinct texts.

    Attributes:
        reused: texts whose vector was in the cache.
        encoded: texts put through the model.
        truncated: encoded texts that were longer than the model's maximal length.
        blank: positions of blank texts, which have no vector.
    """

    reused: int
    encoded: int
    truncated: int
    blank: list[int] = field(default_factory=list)


def text_key(encoder: Encoder, text: str, role: Role) -> str:
    """Cache key of a text: sha256 of exactly what the model is given, which is prefix and text."""
    return hashlib.sha256((encoder.prefix(role) + text).encode()).hexdigest()


def embed_texts(
    cache: ArrayRows,
    encoder: Encoder,
    texts: Sequence[str],
    role: Role,
    *,
    keys: Sequence[object] | None = None,
    flush_every: int = 32,
    keep: bool = True,
) -> tuple[np.ndarray, EmbeddingStats]:
    """Unit vectors of ``texts``; what is new is encoded and kept.

    New vectors reach the disk every ``flush_every`` batches. Batches are cut from the sorted new texts, so a run that
    was killed leaves a tail of whole batches, and running again gives the same bits as a run that was not. The model is
    loaded only when something is new.

    Args:
        cache: opened with ``encoder.model_fingerprint``.
        encoder: nothing of it is loaded when every text is known.
        texts: text [n]; repetitions are encoded once.
        role: decides the prefix.
        keys: names of the texts in error messages, such as node ids; default is their position.
        flush_every: batches per part of the cache.
        keep: whether new vectors go into the cache; without it only ``missing`` ones are encoded and forgotten.

    Returns:
        float32 [n, dim], where rows of blank texts are zero (they are listed in the statistics), and the statistics.
        dim is 0 when there is no text but blank ones and the cache is empty.

    Raises:
        EncoderError: the model gave NaN, an infinity or a zero vector; the text's key is named.
    """
    names = range(len(texts)) if keys is None else keys
    blank = [i for i, text in enumerate(texts) if not text.strip()]
    filled = [i for i, text in enumerate(texts) if text.strip()]
    hashes = {i: text_key(encoder, texts[i], role) for i in filled}
    first: dict[str, int] = {}
    for i, key in hashes.items():
        first.setdefault(key, i)
    todo = [first[key] for key in cache.missing(list(first))]
    truncated_before = encoder.truncated
    fresh: dict[str, np.ndarray] = {}
    batches = batch_positions([texts[i] for i in todo], encoder.spec.batch_size)
    for start in range(0, len(batches), flush_every):
        chosen = [todo[i] for batch in batches[start : start + flush_every] for i in batch]
        vectors = encoder.encode([texts[i] for i in chosen], role, [names[i] for i in chosen])
        if keep:
            cache.put([hashes[i] for i in chosen], vectors)
        else:
            fresh.update(zip([hashes[i] for i in chosen], vectors, strict=True))
    dimension = next((len(vector) for vector in fresh.values()), cache.dimension or 0)
    result = np.zeros((len(texts), dimension), dtype=np.float32)
    known = [i for i in filled if hashes[i] not in fresh]
    result[known] = cache.get([hashes[i] for i in known])
    for i in filled:
        if hashes[i] in fresh:
            result[i] = fresh[hashes[i]]
    stats = EmbeddingStats(
        reused=len(first) - len(todo),
        encoded=len(todo),
        truncated=encoder.truncated - truncated_before,
        blank=blank,
    )
    return result, stats
