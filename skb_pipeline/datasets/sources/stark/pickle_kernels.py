"""Compiled walk over the opcodes of a pickled dict, to cut it into pieces. Imported only where one is read.

The bytes are only measured here, nothing is executed. What a piece needs from earlier ones is known from the memo:
objects that are fetched later keep their memo entry (under a new, dense number), all other entries are left out, so
that read items can be freed.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit

_FIXED, _LENGTH1, _LENGTH4, _LENGTH8, _TWO_LINES, _UNKNOWN = 0, 1, 2, 3, 4, 5


def _opcode_table() -> np.ndarray:
    """int64 [256, 3]: kind of argument, its bytes when fixed, change of the number of open marks."""
    table = np.full((256, 3), _UNKNOWN, dtype=np.int64)
    fixed = {
        "STOP": 0, "NONE": 0, "NEWTRUE": 0, "NEWFALSE": 0, "BININT": 4, "BININT1": 1, "BININT2": 2,
        "BINFLOAT": 8, "EMPTY_LIST": 0, "APPEND": 0, "APPENDS": 0, "EMPTY_TUPLE": 0, "TUPLE": 0, "TUPLE1": 0,
        "TUPLE2": 0, "TUPLE3": 0, "EMPTY_DICT": 0, "SETITEM": 0, "SETITEMS": 0, "EMPTY_SET": 0,
        "ADDITEMS": 0, "FROZENSET": 0, "MARK": 0, "BINPUT": 1, "LONG_BINPUT": 4, "MEMOIZE": 0,
        "BINGET": 1, "LONG_BINGET": 4, "STACK_GLOBAL": 0, "REDUCE": 0, "BUILD": 0, "NEWOBJ": 0, "NEWOBJ_EX": 0,
        "PROTO": 1, "FRAME": 8,
    }  # fmt: skip
    lengths = {
        "LONG1": _LENGTH1, "SHORT_BINUNICODE": _LENGTH1, "SHORT_BINBYTES": _LENGTH1, "SHORT_BINSTRING": _LENGTH1,
        "LONG4": _LENGTH4, "BINUNICODE": _LENGTH4, "BINBYTES": _LENGTH4, "BINSTRING": _LENGTH4,
        "BINUNICODE8": _LENGTH8, "BINBYTES8": _LENGTH8, "GLOBAL": _TWO_LINES,
    }  # fmt: skip
    closing = {"APPENDS", "TUPLE", "SETITEMS", "ADDITEMS", "FROZENSET"}
    for opcode in pickletools.opcodes:
        code = ord(opcode.code)
        marks = 1 if opcode.name == "MARK" else -1 if opcode.name in closing else 0
        if opcode.name in fixed:
            table[code] = (_FIXED, fixed[opcode.name], marks)
        elif opcode.name in lengths:
            table[code] = (lengths[opcode.name], 0, marks)
    return table


_TABLE = _opcode_table()
_STOP, _EMPTY_DICT, _SETITEMS, _FRAME, _PROTO = ord("."), ord("}"), ord("u"), 0x95, 0x80
_GOING, _DONE, _BROKEN = 0, 1, 2
WINDOW = 1 << 28
"""Bytes looked at between two calls of ``passed``."""
_BINPUT, _LONG_BINPUT, _MEMOIZE, _BINGET, _LONG_BINGET = ord("q"), ord("r"), 0x94, ord("h"), ord("j")


@dataclass(frozen=True)
class Plan:
    """How to cut a pickled dict.

    Attributes:
        segments: (start, end, memo entries made before start) of each piece, in bytes; one batch of items each.
        shared: int64, ascending numbers of the memo entries that are fetched anywhere.
    """

    segments: list[tuple[int, int, int]]
    shared: np.ndarray


def scan(data: np.ndarray, passed: Callable[[int], None]) -> Plan | None:
    """Find the batches of items of the dict that ``data`` pickles.

    Args:
        data: uint8 [bytes], the file.
        passed: called now and then with the number of bytes that are not looked at again.

    Returns:
        The plan, or None when the pickle is no dict, is damaged, or uses opcodes that the C pickler does not write for
        plain data (it is then for the unpickler itself to judge).
    """
    fetched = np.zeros(len(data) // 8 + 1, dtype=np.uint8)  # a bit per memo entry; untouched pages take no memory
    state = np.array([0, 0, 0, -1, 0, 0, _GOING], dtype=np.int64)
    parts = []
    while state[6] == _GOING:
        limit = min(int(state[0]) + WINDOW, len(data))
        parts.append(_scan(data, fetched, _TABLE, state, limit))
        passed(limit)
    if state[6] == _BROKEN:
        return None
    shared = np.flatnonzero(np.unpackbits(fetched, bitorder="little")) if fetched.any() else np.zeros(0)
    segments = np.concatenate(parts).tolist()
    return Plan([(start, end, memo) for start, end, memo in segments], shared.astype(np.int64))


@njit(cache=True)
def _size(data, at, table):  # type: ignore[no-untyped-def]
    """Bytes of the opcode at ``at`` with its argument; -1 when it is unknown or runs over the end."""
    kind = table[data[at], 0]
    if kind == _UNKNOWN:
        return -1
    size = 1 + table[data[at], 1]
    if kind == _TWO_LINES:
        size, lines = 1, 0
        while lines < 2:
            if at + size >= len(data):
                return -1
            lines += data[at + size] == 10
            size += 1
    elif kind != _FIXED:
        width = 1 if kind == _LENGTH1 else 4 if kind == _LENGTH4 else 8
        if at + width >= len(data):
            return -1
        size = np.int64(0)
        for i in range(width):
            size |= np.int64(data[at + 1 + i]) << (8 * i)
        if size < 0 or size > len(data):
            return -1
        size += 1 + width
    if at + size > len(data):
        return -1
    return size


@njit(cache=True)
def _memo_number(data, at):  # type: ignore[no-untyped-def]
    """Argument of a put or get opcode."""
    if data[at] == _BINPUT or data[at] == _BINGET:
        return np.int64(data[at + 1])
    number = np.int64(0)
    for i in range(4):
        number |= np.int64(data[at + 1 + i]) << (8 * i)
    return number


@njit(cache=True)
def _scan(data, fetched, table, state, limit):  # type: ignore[no-untyped-def]
    """Go on from ``state`` until ``limit``; int64 [segments, 3] of the pieces that ended on the way."""
    found = np.zeros((1024, 3), np.int64)
    n_found = 0
    at, marks, memo, start, start_memo, own = state[0], state[1], state[2], state[3], state[4], state[5]
    state[6] = _BROKEN
    while at < limit:
        opcode = data[at]
        size = _size(data, at, table)
        marks += table[opcode, 2]
        if size < 0 or marks < 0 or (start < 0 and opcode not in (_PROTO, _FRAME, _EMPTY_DICT)):
            return found[:n_found]
        if start >= 0 and marks == 0 and opcode not in (_SETITEMS, _STOP, _FRAME):
            return found[:n_found]  # an item outside of a batch: its end cannot be told from that of a dict in it
        if opcode == _MEMOIZE:
            memo += 1
        elif opcode in (_BINPUT, _LONG_BINPUT):
            if _memo_number(data, at) != memo:
                return found[:n_found]
            memo += 1
        elif opcode in (_BINGET, _LONG_BINGET):
            number = _memo_number(data, at)
            if number >= memo or number < own:
                return found[:n_found]
            fetched[number >> 3] |= np.uint8(1 << (number & 7))
        at += size
        if start < 0 and opcode == _EMPTY_DICT:
            # The dict's own memo entry belongs to no piece.
            if at < len(data) and (data[at] == _MEMOIZE or data[at] == _BINPUT):
                memo += 1
                at += 1 + (data[at] == _BINPUT)
            start, start_memo, own = at, memo, memo
        elif start >= 0 and marks == 0 and (opcode in (_SETITEMS, _STOP)):
            if n_found == len(found):
                found = np.concatenate((found, np.zeros_like(found)))
            found[n_found, 0], found[n_found, 1], found[n_found, 2] = start, at - (opcode == _STOP), start_memo
            n_found += 1
            start, start_memo = at, memo
            if opcode == _STOP:
                state[6] = _DONE
                return found[:n_found]
    if at < len(data):
        state[:] = at, marks, memo, start, start_memo, own, _GOING
    return found[:n_found]


def rewrite(data: np.ndarray, start: int, end: int, memo: int, shared: np.ndarray) -> bytes:
    """A pickle of the dict with just the items of one piece.

    To be loaded by an unpickler that has loaded all earlier pieces and keeps its memo.

    Args:
        data, shared: see :func:`scan`.
        start, end, memo: a segment of the plan.
    """
    body = np.empty(3 * (end - start), dtype=np.uint8)
    length = _rewrite(data, start, end, memo, shared, body, _TABLE) if end > start else 0
    size = np.array([length + 2], dtype="<u8").tobytes()
    return b"\x80\x04\x95" + size + b"}" + body[:length].tobytes() + b"."


@njit(cache=True)
def _rewrite(data, start, end, memo, shared, out, table):  # type: ignore[no-untyped-def]
    at, to = start, 0
    while at < end:
        opcode = data[at]
        size = _size(data, at, table)
        is_put = opcode in (_MEMOIZE, _BINPUT, _LONG_BINPUT)
        if is_put or opcode in (_BINGET, _LONG_BINGET):
            number = memo if is_put else _memo_number(data, at)
            new = np.searchsorted(shared, number)
            if not is_put or (new < len(shared) and shared[new] == number):
                out[to] = _LONG_BINPUT if is_put else _LONG_BINGET
                for i in range(4):
                    out[to + 1 + i] = (new >> (8 * i)) & 255
                to += 5
            memo += is_put
        elif opcode != _FRAME:
            for i in range(size):
                out[to + i] = data[at + i]
            to += size
        at += size
    return to
