"""Compiled writing of labelled documents, straight from stored JSON to text. Imported only where documents are built.

Everything here is UTF-8 bytes in uint8 arrays. A function that reads and writes takes ``source`` and ``out`` with the
places where it begins, and returns the places behind what it has read and written. JSON must be valid, which the type
of the column in the SKB file makes sure of, and nested no deeper than ingest allows. Numbers are copied as they are
stored, which is how Python writes them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

_QUOTE, _BACKSLASH, _COLON, _COMMA, _SPACE, _NEWLINE = ord('"'), ord("\\"), ord(":"), ord(","), ord(" "), ord("\n")
_SEMICOLON, _OPEN, _CLOSE, _PLUS, _N, _U = ord(";"), ord("("), ord(")"), ord("+"), ord("n"), ord("u")
_BRACE, _BRACE_END, _BRACKET, _BRACKET_END = ord("{"), ord("}"), ord("["), ord("]")
_ONE = np.uint64(1)
_MORE = np.frombuffer(b" more)", dtype=np.uint8)
_ESCAPES = np.zeros(256, dtype=np.uint8)
_ESCAPES[np.frombuffer(b'"\\/bfnrt', dtype=np.uint8)] = np.frombuffer(b'"\\/\b\f\n\r\t', dtype=np.uint8)


class Texts(NamedTuple):
    """Texts one after the other.

    Attributes:
        data: uint8 [bytes].
        offsets: int64 [texts + 1], where each begins; the last is the end.
    """

    data: np.ndarray
    offsets: np.ndarray

    def sizes(self, chosen: np.ndarray) -> np.ndarray:
        """Bytes of the chosen texts, int64."""
        return np.asarray(self.offsets[chosen + 1] - self.offsets[chosen])


class FieldTable(NamedTuple):
    """Fields of documents, type after type, each type's in the order of its documents.

    Attributes:
        bounds: int64 [types + 1], where the fields of each type begin.
        keys: names of the fields.
        labels: what stands before their values, with the colon.
    """

    bounds: np.ndarray
    keys: Texts
    labels: Texts


class Groups(NamedTuple):
    """Lines of neighbours, sorted by the node they belong to and by their place in its document.

    Attributes:
        headings: int64 [groups], which heading each has.
        offsets: int64 [groups + 1], where its neighbours begin.
        hidden: int64 [groups], how many more there are than the line names.
        others: int64 [neighbours named], canonical positions.
    """

    headings: np.ndarray
    offsets: np.ndarray
    hidden: np.ndarray
    others: np.ndarray


@njit(cache=True, nogil=True)
def write_documents(  # type: ignore[no-untyped-def]
    json, node_types, fields, group_bounds, groups, headings, names, out
):
    """Documents of a batch of nodes.

    Args:
        json: :class:`Texts`, the stored fields of each node.
        node_types: int64 [nodes], codes of their types.
        fields: :class:`FieldTable`.
        group_bounds: int64 [nodes + 1], where the groups of each node begin.
        groups: :class:`Groups`.
        headings: :class:`Texts`, each with the colon.
        names: :class:`Texts`, of all nodes in canonical order.
        out: uint8, large enough for the texts.

    Returns:
        int64 [nodes + 1], where each document begins in ``out``.
    """
    n = len(node_types)
    ends = np.zeros(n + 1, np.int64)
    longest = 0
    for i in range(n):
        longest = max(longest, json.offsets[i + 1] - json.offsets[i])
    values = np.empty(2 * longest + 1, np.uint8)
    spans = np.empty((len(fields.labels.offsets), 2), np.int64)
    to = 0
    for i in range(n):
        begin = to
        to = _write_fields(json.data, json.offsets[i], fields, node_types[i], values, spans, out, to)
        for group in range(group_bounds[i], group_bounds[i + 1]):
            if to > begin:
                out[to] = _NEWLINE
                to += 1
            to = _write_group(groups, group, headings, names, out, to)
        ends[i + 1] = to
    return ends


@njit(cache=True, nogil=True)
def _write_fields(source, at, fields, node_type, values, spans, out, to):  # type: ignore[no-untyped-def]
    """``label: value`` lines. Values are written to ``values`` as they come, and from there in order of the labels."""
    first, last = fields.bounds[node_type], fields.bounds[node_type + 1]
    spans[first:last] = -1
    used = np.int64(0)
    at = _next(source, at + 1)
    while source[at] != _BRACE_END:
        at, end = _write_string(source, at + 1, values, used)
        field = _find(fields.keys, first, last, values, used, end)
        at = _next(source, at)
        missing = source[at] == _N
        at, end = _write_value(source, at, values, used)
        if field >= 0 and not missing:
            spans[field, 0], spans[field, 1] = used, end
            used = end
        at = _next(source, at)
    begin = to
    for field in range(first, last):
        if spans[field, 0] >= 0:
            if to > begin:
                out[to] = _NEWLINE
                to += 1
            to = _copy(fields.labels.data, fields.labels.offsets[field], fields.labels.offsets[field + 1], out, to)
            to = _copy(values, spans[field, 0], spans[field, 1], out, to)
    return to


@njit(cache=True, nogil=True)
def _find(keys, first, last, data, begin, end):  # type: ignore[no-untyped-def]
    """Which of the keys from ``first`` to ``last`` stands in ``data``; -1: none."""
    for key in range(first, last):
        start = keys.offsets[key]
        if keys.offsets[key + 1] - start == end - begin:
            same = True
            for i in range(end - begin):
                if keys.data[start + i] != data[begin + i]:
                    same = False
                    break
            if same:
                return key
    return -1


@njit(cache=True, nogil=True)
def _write_value(source, at, out, to):  # type: ignore[no-untyped-def]
    """A value in one line: ``key: value`` joined by commas, items by semicolons, nulls and empty values left out.

    Objects within objects stand in brackets.
    """
    opening = source[at]
    if opening == _QUOTE:
        return _write_string(source, at + 1, out, to)
    if opening == _N:
        return at + 4, to
    if opening != _BRACE and opening != _BRACKET:
        while source[at] != _COMMA and source[at] > _SPACE and source[at] != _BRACE_END and source[at] != _BRACKET_END:
            out[to] = source[at]
            at, to = at + 1, to + 1
        return at, to
    begin = to
    at = _next(source, at + 1)
    while source[at] != _BRACE_END and source[at] != _BRACKET_END:
        before = to
        if to > begin:
            out[to], out[to + 1] = _COMMA if opening == _BRACE else _SEMICOLON, _SPACE
            to += 2
        bracketed = False
        if opening == _BRACE:
            at, to = _write_string(source, at + 1, out, to)
            out[to], out[to + 1] = _COLON, _SPACE
            to += 2
            at = _next(source, at)
            bracketed = source[at] == _BRACE
            if bracketed:
                out[to] = _OPEN
                to += 1
        empty = to
        at, to = _write_value(source, at, out, to)
        if to == empty:
            to = before
        elif bracketed:
            out[to] = _CLOSE
            to += 1
        at = _next(source, at)
    return at + 1, to


@njit(cache=True, nogil=True)
def _write_string(source, at, out, to):  # type: ignore[no-untyped-def]
    """A string; ``at`` is behind its opening quote."""
    # An index without a sign spares the test for a negative one at every byte.
    read, write = np.uint64(at), np.uint64(to)
    while True:
        c = source[read]
        if c == _QUOTE:
            return np.int64(read + _ONE), np.int64(write)
        if c != _BACKSLASH:
            out[write] = c
            read, write = read + _ONE, write + _ONE
        else:
            at, to = _write_escape(source, np.int64(read), out, np.int64(write))
            read, write = np.uint64(at), np.uint64(to)


@njit(cache=True, nogil=True)
def _write_escape(source, at, out, to):  # type: ignore[no-untyped-def]
    """One escaped character; ``at`` is at its backslash."""
    if source[at + 1] != _U:
        out[to] = _ESCAPES[source[at + 1]]
        return at + 2, to + 1
    code, at = _hexadecimal(source, at + 2), at + 6
    if 0xD800 <= code < 0xDC00:  # the first half of a pair
        code, at = 0x10000 + ((code - 0xD800) << 10) + _hexadecimal(source, at + 2) - 0xDC00, at + 6
    return at, _write_character(code, out, to)


@njit(cache=True, nogil=True)
def _hexadecimal(source, at):  # type: ignore[no-untyped-def]
    code = np.int64(0)
    for i in range(4):
        digit = np.int64(source[at + i])
        code = 16 * code + (digit - 48 if digit < 58 else (digit | 32) - 87)
    return code


@njit(cache=True, nogil=True)
def _write_character(code, out, to):  # type: ignore[no-untyped-def]
    """One code point in UTF-8."""
    if code < 0x80:
        out[to] = code
        return to + 1
    n = 1 if code < 0x800 else 2 if code < 0x10000 else 3
    out[to] = (0xC0, 0xE0, 0xF0)[n - 1] | (code >> (6 * n))
    for i in range(n):
        out[to + 1 + i] = 0x80 | ((code >> (6 * (n - 1 - i))) & 0x3F)
    return to + 1 + n


@njit(cache=True, nogil=True)
def _write_group(groups, group, headings, names, out, to):  # type: ignore[no-untyped-def]
    """``heading: name; name (+n more)``."""
    heading = groups.headings[group]
    to = _copy(headings.data, headings.offsets[heading], headings.offsets[heading + 1], out, to)
    begin, end = groups.offsets[group], groups.offsets[group + 1]
    for i in range(begin, end):
        if i > begin:
            out[to], out[to + 1] = _SEMICOLON, _SPACE
            to += 2
        other = groups.others[i]
        to = _copy(names.data, names.offsets[other], names.offsets[other + 1], out, to)
    hidden = groups.hidden[group]
    if hidden > 0:
        out[to], out[to + 1], out[to + 2] = _SPACE, _OPEN, _PLUS
        to = _write_count(hidden, out, to + 3)
        to = _copy(_MORE, 0, len(_MORE), out, to)
    return to


@njit(cache=True, nogil=True)
def _write_count(number, out, to):  # type: ignore[no-untyped-def]
    digits, rest = 1, number // 10
    while rest > 0:
        digits, rest = digits + 1, rest // 10
    for i in range(digits - 1, -1, -1):
        out[to + i] = 48 + number % 10
        number //= 10
    return to + digits


@njit(cache=True, nogil=True)
def _next(source, at):  # type: ignore[no-untyped-def]
    """Past blanks, commas and colons."""
    while source[at] <= _SPACE or source[at] == _COMMA or source[at] == _COLON:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _copy(source, begin, end, out, to):  # type: ignore[no-untyped-def]
    read, write = np.uint64(begin), np.uint64(to)
    for i in range(np.uint64(end - begin)):
        out[write + i] = source[read + i]
    return to + end - begin
