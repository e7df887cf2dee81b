"""Compiled loops of the BM25 index. Imported only where an index is built or searched, as numba loads slowly.

Postings have the layout of bm25s (columns of a sparse matrix): those of term t are
``indices[indptr[t]:indptr[t+1]]`` (rows, ascending) and ``data`` at the same places (their share of the score).
"""

from __future__ import annotations

import numpy as np
from numba import njit


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
def add_up(
    terms: np.ndarray,
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    scores: np.ndarray,
    stamps: np.ndarray,
    stamp: int,
    touched: np.ndarray,
) -> int:
    """Add the postings of a query's terms into ``scores`` (float64 [rows]).

    A row's old score counts as zero unless ``stamps`` (int64 [rows]) holds ``stamp`` for it, so that nothing has to be
    cleared between queries. Rows with at least one of the terms are written into ``touched`` (int32 [rows]).

    Returns:
        How many rows were touched.
    """
    n = 0
    for term in terms:
        for i in range(indptr[term], indptr[term + 1]):
            row = indices[i]
            if stamps[row] != stamp:
                stamps[row] = stamp
                scores[row] = 0.0
                touched[n] = row
                n += 1
            scores[row] += data[i]
    return n
