"""Compiled walk over the bytes of a CSV file, by the rules of the reader that follows. Imported only where a file has
quotes.

Parsers take ``"a"b`` for ``ab`` without a word, and a quote that is never closed for the rest of the file. Here rows
and cells are only told apart, so that such rows are known by number, line and place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

_ROW_START, _CELL_START, _UNQUOTED, _QUOTED, _AFTER_QUOTE, _ESCAPED, _ESCAPED_IN_QUOTES = range(7)
_LF, _CR, _QUOTE = 10, 13, 34
_MARK = b"\xef\xbb\xbf"


class Scan(NamedTuple):
    """What is known of a file's rows. Rows are counted from 0 without blank lines, lines from 1.

    Attributes:
        rows: how many there are.
        stray: int64 [n, 4]: (row, its first line, its first byte, the byte behind it) of each row with text behind a
            closing quote.
        unclosed: first line of the row whose quote is never closed; None when all are.
    """

    rows: int
    stray: np.ndarray
    unclosed: int | None


def scan(blocks: Iterable[bytes], delimiter: str, escape: str | None) -> Scan:
    """Walk over a file in UTF-8.

    Args:
        blocks: its bytes.
        delimiter, escape: ASCII characters.
    """
    # state, row, line, byte, 1 behind a carriage return, line and byte at which the row began, 1 if it is faulty
    state = np.array([_ROW_START, 0, 1, 0, 0, 1, 0, 0], dtype=np.int64)
    parts = [np.empty((0, 4), dtype=np.int64)]
    first = True
    for block in blocks:
        if first and block.startswith(_MARK):
            block = block[len(_MARK) :]
            state[3] = len(_MARK)
        first = False
        data = np.frombuffer(block, dtype=np.uint8)
        found = np.empty((len(data) // 2 + 1, 4), dtype=np.int64)
        count = _scan(data, state, ord(delimiter), -1 if escape is None else ord(escape), found)
        parts.append(found[:count].copy())
    if state[0] != _ROW_START:
        parts.append(state[None, [1, 5, 6, 3]][: state[7]])
        state[1] += 1
    unclosed = int(state[5]) if state[0] in (_QUOTED, _ESCAPED_IN_QUOTES) else None
    return Scan(int(state[1]), np.concatenate(parts), unclosed)


@njit(cache=True)
def _scan(data, state, delimiter, escape, found):  # type: ignore[no-untyped-def]
    """Go on from ``state``; faulty rows that end in ``data`` are written to ``found``. How many these are."""
    now, row, line, at, behind_cr, row_line, row_at, faulty = state
    count = 0
    for c in data:
        is_end = c in (_LF, _CR)
        if now == _ROW_START and not is_end:
            row_line, row_at, faulty = line, at, 0
            now = _CELL_START
        if now == _CELL_START:
            now = (
                _QUOTED if c == _QUOTE
                else _ESCAPED if c == escape
                else _CELL_START if c == delimiter
                else _UNQUOTED
            )  # fmt: skip
        elif now == _UNQUOTED:
            if c == escape:
                now = _ESCAPED
            elif c == delimiter:
                now = _CELL_START
        elif now == _QUOTED:
            if c == escape:
                now = _ESCAPED_IN_QUOTES
            elif c == _QUOTE:
                now = _AFTER_QUOTE
            is_end = False
        elif now == _AFTER_QUOTE:
            if c == _QUOTE:
                now = _QUOTED
            elif c == delimiter:
                now = _CELL_START
            elif not is_end:
                faulty = 1
                now = _ESCAPED if c == escape else _UNQUOTED
        elif now == _ESCAPED:
            now = _UNQUOTED
            is_end = False
        elif now == _ESCAPED_IN_QUOTES:
            now = _QUOTED
            is_end = False
        if is_end and now != _ROW_START:
            if faulty:
                found[count, 0], found[count, 1], found[count, 2], found[count, 3] = row, row_line, row_at, at
                count += 1
            row += 1
            now = _ROW_START
        if c == _CR or (c == _LF and not behind_cr):
            line += 1
        behind_cr = 1 if c == _CR else 0
        at += 1
    state[:] = now, row, line, at, behind_cr, row_line, row_at, faulty
    return count
