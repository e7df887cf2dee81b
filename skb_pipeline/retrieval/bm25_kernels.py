"""Compiled loops of the BM25 index. Imported only where an index is built or searched, as numba loads slowly.

Postings have the layout of bm25s (columns of a sparse matrix): those of term t are
``indices[indptr[t]:indptr[t+1]]`` (rows, ascending) and ``data`` at the same places (their share of the score).
"""

from __future__ import annotations

import numpy as np
from numba import njit

UNTOUCHED = -1.0
"""Score of a row that holds none of a query's terms (shares of scores are never negative)."""


@njit(cache=True)
def document_frequencies(tokens: np.ndarray, offsets: np.ndarray, n_terms: int) -> np.ndarray:
    """Number of rows that contain each term.

    Args:
        tokens: int32, term ids of all rows one after the other.
        offsets: int64 [rows + 1], where each row begins.
        n_terms: size of the vocabulary.

    Returns:
        int64 [n_terms].
    """
    frequency = np.zeros(n_terms, np.int64)
    last_row = np.full(n_terms, -1, np.int64)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            term = tokens[i]
            if last_row[term] != row:
                last_row[term] = row
                frequency[term] += 1
    return frequency


@njit(cache=True)
def count_postings(tokens: np.ndarray, offsets: np.ndarray, indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each term with the term's frequency in them, in the layout that ``indptr`` (int64) prescribes.

    Returns:
        int32 rows and float32 frequencies, both of length ``indptr[-1]``.
    """
    n_terms = len(indptr) - 1
    rows = np.empty(indptr[-1], np.int32)
    frequencies = np.zeros(indptr[-1], np.float32)
    head = indptr[:-1].copy()
    last_row = np.full(n_terms, -1, np.int64)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row], offsets[row + 1]):
            term = tokens[i]
            if last_row[term] != row:
                last_row[term] = row
                rows[head[term]] = row
                head[term] += 1
            frequencies[head[term] - 1] += 1
    return rows, frequencies


@njit(cache=True)
def best_rows(
    terms: np.ndarray,
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    k: int,
    scores: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
) -> int:
    """Rows that may be among the ``k`` best of a query: all that score at least as much as the k-th, and few others.

    Args:
        terms: int64, term ids of the query.
        data, indices, indptr: postings; ``data`` is not negative.
        k: at least 1.
        scores: float64 [rows of the index], all ``UNTOUCHED``; so again on return.
        rows: int32, one longer than ``scores``; on return its beginning holds the rows found.
        values: float64, as long as ``scores``; on return their scores.

    Returns:
        How many rows were found. Rows without any of the terms are never among them.
    """
    touched = 0
    for term in terms:
        for i in range(indptr[term], indptr[term + 1]):
            # Without a branch, which could not be predicted: the row is written down each time, and kept if new.
            row = indices[i]
            before = scores[row]
            rows[touched] = row
            touched += before < 0
            scores[row] = max(before, 0.0) + data[i]
    found, limit, bound = 0, 2 * k, 0.0
    for i in range(touched):
        row = rows[i]
        value = scores[row]
        scores[row] = UNTOUCHED
        if value >= bound:
            rows[found] = row
            values[found] = value
            found += 1
            if found == limit:
                bound = np.partition(values[:found], found - k)[found - k]
                found = _drop_below(bound, rows, values, found)
                limit = max(2 * k, 2 * found)
    return found


@njit(cache=True)
def _drop_below(bound: float, rows: np.ndarray, values: np.ndarray, n: int) -> int:
    """Keep, of the first ``n`` entries, those of at least ``bound``; return how many stay."""
    kept = 0
    for i in range(n):
        if values[i] >= bound:
            rows[kept] = rows[i]
            values[kept] = values[i]
            kept += 1
    return kept
