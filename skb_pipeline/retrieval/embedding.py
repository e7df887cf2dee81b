"""Vectors of many texts through a cache: only texts that were never encoded with this model are encoded.

Beside the vectors lie the numbers of tokens of those texts that may be longer than the model reads, so that what was
cut is known wherever a vector is used, whichever asset had the text encoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from skb_pipeline.retrieval.encoder import Encoder, EncoderError, Role, batch_positions, may_exceed
from skb_pipeline.storage.rows.arrays import ArrayRows

_TOKENS = "tokens"
"""Folder, inside that of the vectors, of the numbers of tokens."""
_TOKENISED_AT_ONCE = 4096


@dataclass(frozen=True)
class EmbeddingStats:
    """What :func:`embed_texts` did; texts encoded and reused are distinct ones.

    Attributes:
        reused: texts whose vector was in the cache.
        encoded: texts put through the model.
        cut: positions of texts that are longer than the model reads, so that their vectors know nothing of their end;
            also of those whose vector was there already. None where it cannot be told: the model's tokeniser is not on
            this machine.
        blank: positions of blank texts, which have no vector.
    """

    reused: int
    encoded: int
    cut: list[int] | None
    blank: list[int] = field(default_factory=list)

    @property
    def truncated(self) -> int | str:
        """Number of texts that were cut, repetitions counted; in words where it cannot be told."""
        return "unknown: the model's tokeniser is not on this machine" if self.cut is None else len(self.cut)


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

    New vectors reach the disk every ``flush_every`` times ``batch_size`` texts. A vector does not depend on what is
    encoded beside it, so neither a kill nor what the cache knew before changes a bit of the result. The model is
    loaded only when something is new, its tokeniser only for texts that may be too long and were never counted.

    Args:
        cache: opened with ``encoder.model_fingerprint``.
        encoder: nothing of it is loaded when every text is known.
        texts: text [n]; repetitions are encoded once.
        role: decides the prefix.
        keys: names of the texts in error messages, such as node ids; default is their position.
        flush_every: batches of the encoder's ``batch_size`` per part of the cache.
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
    if known:  # an empty cache has rows of no length
        result[known] = cache.get([hashes[i] for i in known])
    for i in filled:
        if hashes[i] in fresh:
            result[i] = fresh[hashes[i]]
    long = _too_long(cache, encoder, {key: texts[i] for key, i in first.items()}, role, keep=keep)
    stats = EmbeddingStats(
        reused=len(first) - len(todo),
        encoded=len(todo),
        cut=None if long is None else [i for i in filled if hashes[i] in long],
        blank=blank,
    )
    return result, stats


def _too_long(
    cache: ArrayRows, encoder: Encoder, texts: Mapping[str, str], role: Role, *, keep: bool
) -> set[str] | None:
    """Keys of the texts with more tokens than the model reads; None where that cannot be told.

    Args:
        texts: distinct texts by key.
    """
    prefix, most = encoder.prefix(role), encoder.spec.max_length
    doubtful = [key for key, text in texts.items() if may_exceed(prefix + text, most)]
    if not doubtful:
        return set()
    counts = ArrayRows(cache.folder / _TOKENS, encoder.model_fingerprint, must_keep=cache.must_keep)
    uncounted = counts.missing(doubtful)
    found: dict[str, int] = {}
    for part in _parts(uncounted):
        try:
            numbers = encoder.token_counts([texts[key] for key in part], role)
        except (EncoderError, OSError):  # transformers raises the latter where a model's files are missing
            return None
        found.update(zip(part, numbers.tolist(), strict=True))
        if keep:
            counts.put(part, numbers[:, None].astype(np.float32))  # exact up to 16 million tokens
    kept = [key for key in doubtful if key not in found]
    found.update(zip(kept, counts.get(kept)[:, 0].astype(int).tolist() if kept else [], strict=True))
    return {key for key, number in found.items() if number > most}


def _parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), _TOKENISED_AT_ONCE):
        yield keys[start : start + _TOKENISED_AT_ONCE]
