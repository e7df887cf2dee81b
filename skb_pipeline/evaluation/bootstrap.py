"""Bootstrap over queries: intervals of means and of paired differences.

Efron and Tibshirani, "An Introduction to the Bootstrap" (1993): percentile interval, section 13.3. Every system
of a slice is resampled with the same queries (Sakai, SIGIR 2006, "Evaluating evaluation metrics based on the
bootstrap", on paired comparisons), and these depend on nothing but the seed and the query ids of the slice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from skb_pipeline.evaluation.metrics import FloatArray

COVERAGE = 0.95
METHOD = (
    "Intervals are 95 % percentile bootstrap intervals over queries; all systems share the same resamples. "
    "Two-sided p values come from the same resamples; p_holm is corrected for the number of comparisons; "
    "where two systems agree on every query there is no difference and p = 1 by definition."
)

# Drawn positions per chunk: 8 MiB as int64, and as much again for the weights.
_CELLS = 2**20
# A resampled mean difference this small is rounding: metrics are fractions of small whole numbers.
_ZERO = 1e-12


@dataclass(frozen=True)
class Estimate:
    """Mean of each metric with its interval; all float64 [metrics]."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Difference(Estimate):
    """Mean difference of each metric with its interval and two-sided p value; all float64 [metrics]."""

    p_value: FloatArray


def mean_intervals(
    query_ids: Sequence[str], systems: Sequence[FloatArray], *, samples: int, seed: int
) -> list[Estimate]:
    """Mean and percentile interval of each system's metrics.

    Args:
        query_ids: n distinct ids, in any order.
        systems: one float64 [n, metrics] per system, rows in the order of ``query_ids``.
        samples: number of resamples.
        seed: not negative.

    Returns:
        One estimate per system. A system's estimate is the same whichever others are passed along. With a single
        query the interval is a point.

    Raises:
        ValueError: no queries, repeated ids, fewer than 1 sample, or shapes that do not fit.
    """
    order = _canonical_order(query_ids, systems)
    ordered = [values[order] for values in systems]
    return [
        Estimate(values.mean(axis=0), *_percentiles(means))
        for values, means in zip(ordered, _resampled_means(query_ids, ordered, samples, seed), strict=True)
    ]


def paired_differences(
    query_ids: Sequence[str],
    pairs: Sequence[tuple[FloatArray, FloatArray]],
    *,
    samples: int,
    seed: int,
) -> list[Difference]:
    """Mean of ``first - second`` for each pair, with interval and p value, over the resamples of the slice.

    p = 2 min(1 + #{d* <= 0}, 1 + #{d* >= 0}) / (1 + samples), at most 1: the level at which the percentile interval
    would just touch 0 (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, chapter 4, for the
    added ones). It therefore never falls below 2 / (1 + samples). Where all differences are 0 no test is run:
    the interval is [0, 0] and p = 1 by definition.

    Args, raises: as for :func:`mean_intervals`.
    """
    deltas = [first - second for first, second in pairs]
    order = _canonical_order(query_ids, deltas)
    ordered = [delta[order] for delta in deltas]
    return [
        _difference(delta, means)
        for delta, means in zip(ordered, _resampled_means(query_ids, ordered, samples, seed), strict=True)
    ]


def paired_difference(
    query_ids: Sequence[str], first: FloatArray, second: FloatArray, *, samples: int, seed: int
) -> Difference:
    """:func:`paired_differences` of one pair."""
    return paired_differences(query_ids, [(first, second)], samples=samples, seed=seed)[0]


def _difference(delta: FloatArray, means: FloatArray) -> Difference:
    means = np.where(np.abs(means) < _ZERO, 0.0, means)
    tail = np.minimum((means <= 0).sum(axis=0), (means >= 0).sum(axis=0))
    p_value = np.minimum(1.0, 2.0 * (1 + tail) / (1 + len(means)))
    same = (delta == 0).all(axis=0)
    return Difference(delta.mean(axis=0), *_percentiles(means), np.where(same, 1.0, p_value))


def _percentiles(means: FloatArray) -> tuple[FloatArray, FloatArray]:
    tail = 100 * (1 - COVERAGE) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return low, high


def _resampled_means(
    query_ids: Sequence[str], ordered: Sequence[FloatArray], samples: int, seed: int
) -> list[FloatArray]:
    """Float64 [samples, metrics] per matrix; each is multiplied alone, so that none changes another's rounding."""
    if samples < 1:
        raise ValueError(f"a bootstrap needs at least 1 sample, got {samples}")
    n = len(query_ids)
    parts: list[list[FloatArray]] = [[] for _ in ordered]
    for weights in _weights(_generator(query_ids, seed), n, samples):
        for part, values in zip(parts, ordered, strict=True):
            part.append(weights @ values / n)
    return [np.concatenate(part) for part in parts]


def _weights(generator: np.random.Generator, n: int, samples: int) -> Iterator[FloatArray]:
    """Multinomial(n, 1/n) counts as float64 [chunk, n]: how often each query stands in each resample."""
    rows = max(1, _CELLS // n)
    for done in range(0, samples, rows):
        chunk = min(rows, samples - done)
        drawn = generator.integers(0, n, size=(chunk, n))
        drawn += np.arange(chunk)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=chunk * n).reshape(chunk, n).astype(np.float64)


def _generator(query_ids: Sequence[str], seed: int) -> np.random.Generator:
    """A generator that depends on the seed and the set of ids only, the same on every machine and in every run."""
    digest = hashlib.sha256(json.dumps(sorted(query_ids)).encode()).digest()
    return np.random.Generator(np.random.PCG64([seed, *np.frombuffer(digest, dtype="<u4").tolist()]))


def _canonical_order(query_ids: Sequence[str], matrices: Sequence[FloatArray]) -> list[int]:
    if len(query_ids) == 0 or len(set(query_ids)) != len(query_ids):
        raise ValueError(f"a bootstrap needs distinct query ids, got {len(query_ids)} with repetitions or none")
    for matrix in matrices:
        if matrix.ndim != 2 or len(matrix) != len(query_ids):
            raise ValueError(f"expected one row per query ({len(query_ids)}), got shape {matrix.shape}")
    return sorted(range(len(query_ids)), key=query_ids.__getitem__)
