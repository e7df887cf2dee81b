"""Values of Parquet columns in the form that JSON and CSV give them, by one rule at any depth.

=========================  ======================================================================
text, categories           as it is
integers, booleans, null   as they are; integers of any size keep all digits
floats                     the shortest number that is the same float of its width: float32 19.99 is 19.99
decimals                   text with all their digits, as CSV has it: ``19.90``
dates                      ``2020-01-31``
times                      ``10:00:00``, a fraction without zeros at its end
timestamps                 ``2020-01-31T10:00:00``; with a zone in UTC: ``2020-01-31T08:00:00Z``
durations                  ISO 8601 in days to seconds: ``P1DT2H0.5S``
bytes                      the text they hold in UTF-8; anything else is an error (UUIDs are text)
lists                      lists
structs, maps              objects with sorted keys; a key without a value is left out
=========================  ======================================================================

JSONL rows get their objects by the same rule (:func:`plain_json`), so that the same rows have one data version.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
REPEATED_KEY = "repeated keys in maps, of which the last one stays"


class UnreadableError(ValueError):
    """A value that has no form in JSON; says why."""


def plain_values(array: pa.Array, counts: Counter[str]) -> list[Any]:
    """A column as Python values: text, int, float, bool, None, lists and dicts of them.

    Args:
        array: of any type that Parquet has.
        counts: gets what was lost on the way, by kind.

    Raises:
        UnreadableError: bytes or text that are no UTF-8, or a type without a rule.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return [None if v is None else str(uuid.UUID(bytes=v)) for v in array.storage.to_pylist()]
        return plain_values(array.storage, counts)
    if pa.types.is_dictionary(kind):
        return plain_values(array.dictionary_decode(), counts)
    if pa.types.is_struct(kind):
        return _objects(array, counts)
    if pa.types.is_map(kind):
        return _maps(array, counts)
    if _is_list(kind):
        return _lists(array, counts)
    for belongs, convert in _SCALARS:
        if belongs(kind):
            return convert(array)
    raise UnreadableError(f"values of the type {kind} have no form in JSON")


def plain_json(value: Any) -> Any:
    """A value read from JSON with its objects as those of Parquet: keys sorted, those without a value left out."""
    if isinstance(value, dict):
        return {key: plain_json(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, list):
        return [plain_json(item) for item in value]
    return value


def id_texts(array: pa.Array) -> pa.Array:
    """A column of ids as Arrow strings: text, bytes that are text, integers; or lists of them as lists of strings.

    Raises:
        UnreadableError: bytes or text that are no UTF-8, or values that are no ids.
    """
    if is_list_of_ids(array.type):
        lists = array.cast(pa.list_(array.type.value_type))
        offsets, used = _offsets(lists)
        items = id_texts(lists.values.slice(*used))
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=pc.is_null(lists) if lists.null_count else None)
    if not is_id(array.type):
        raise UnreadableError(f"ids must be text or integers, not {array.type}")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        texts = array.cast(pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnreadableError(_NO_TEXT) from error
    return texts


def is_id(kind: pa.DataType) -> bool:
    """Whether values of a type can be ids."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)


def is_list_of_ids(kind: pa.DataType) -> bool:
    """Whether values of a type are lists of what can be ids."""
    return _is_list(kind) and is_id(kind.value_type)


_NO_TEXT = "bytes that are no text in UTF-8"


def _is_text(kind: pa.DataType) -> bool:
    return any(
        belongs(kind)
        for belongs in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary,
                        pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    )  # fmt: skip


def _is_list(kind: pa.DataType) -> bool:
    return any(
        belongs(kind)
        for belongs in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
                        pa.types.is_large_list_view)
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- nested values


def _objects(array: pa.Array, counts: Counter[str]) -> list[Any]:
    names = [field.name for field in array.type]
    order = sorted(range(len(names)), key=names.__getitem__)
    children = array.flatten()
    columns = [plain_values(children[i], counts) for i in order]
    names = [names[i] for i in order]
    present = array.is_valid().to_pylist()
    rows = zip(*columns, strict=True) if columns else iter([()] * len(array))
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None} if there else None
        for there, row in zip(present, rows, strict=True)
    ]


def _maps(array: pa.Array, counts: Counter[str]) -> list[Any]:
    _, used = _offsets(array)
    keys, items = plain_values(array.keys.slice(*used), counts), plain_values(array.items.slice(*used), counts)
    found: list[Any] = []
    for row in _spans(array):
        if row is None:
            found.append(None)
            continue
        pairs = {_key(keys[i]): items[i] for i in row}
        counts[REPEATED_KEY] += len(row) - len(pairs)
        found.append({key: pairs[key] for key in sorted(pairs) if pairs[key] is not None})
    return found


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(value)


def _lists(array: pa.Array, counts: Counter[str]) -> list[Any]:
    lists = array.cast(pa.large_list(array.type.value_type))
    items = plain_values(lists.values.slice(*_offsets(lists)[1]), counts)
    return [None if row is None else items[row.start : row.stop] for row in _spans(lists)]


def _offsets(array: pa.Array) -> tuple[np.ndarray, tuple[int, int]]:
    """Offsets of lists or maps among the items they use, and which these are of all: (first, how many)."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return offsets - offsets.dtype.type(first), (first, last - first)


def _spans(array: pa.Array) -> list[range | None]:
    """Places of each row's items among the items that are used."""
    offsets = _offsets(array)[0].tolist()
    present = array.is_valid().to_pylist()
    return [range(offsets[i], offsets[i + 1]) if there else None for i, there in enumerate(present)]


# ---------------------------------------------------------------------------------------------------------- scalars


def _as_they_are(array: pa.Array) -> list[Any]:
    return list(array.to_pylist())


def _texts(array: pa.Array) -> list[Any]:
    try:
        values = array.to_pylist()
        return [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError as error:
        raise UnreadableError(_NO_TEXT) from error


def _floats(array: pa.Array) -> list[Any]:
    if pa.types.is_float64(array.type):
        return _as_they_are(array)
    if pa.types.is_float32(array.type):
        return list(array.cast(pa.string()).cast(pa.float64()).to_pylist())
    return [None if value is None else float(str(np.float16(value))) for value in array.to_pylist()]


def _decimals(array: pa.Array) -> list[Any]:
    return [None if value is None else f"{value:f}" for value in array.to_pylist()]


def _dates(array: pa.Array) -> list[Any]:
    return list(array.cast(pa.date32(), safe=False).cast(pa.string()).to_pylist())


def _times(array: pa.Array) -> list[Any]:
    return list(_without_zeros(array.cast(pa.string())).to_pylist())


def _timestamps(array: pa.Array) -> list[Any]:
    zoned = array.type.tz is not None
    # What is stored is UTC in either case; the zone is only how it is shown.
    texts = _without_zeros(array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.string()))
    texts = pc.replace_substring(texts, " ", "T")
    return [text if text is None or not zoned else f"{text}Z" for text in texts.to_pylist()]


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Without zeros at the end of a fraction, and without a fraction of nothing."""
    return pc.replace_substring_regex(texts, r"(?:\.0+|(\.[0-9]*[1-9])0+)$", r"\1")


def _durations(array: pa.Array) -> list[Any]:
    unit = _PER_SECOND[array.type.unit]
    return [None if value is None else _duration(value, unit) for value in array.cast(pa.int64()).to_pylist()]


def _duration(value: int, unit: int) -> str:
    seconds, fraction = divmod(abs(value), unit)
    days, hours, minutes, seconds = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60, seconds % 60
    digits = f".{fraction:0{len(str(unit)) - 1}d}".rstrip("0") if fraction else ""
    second = f"{seconds}{digits}"
    time = "".join(f"{n}{mark}" for n, mark in ((hours, "H"), (minutes, "M"), (second, "S")) if n not in (0, "0"))
    text = (f"{days}D" if days else "") + (f"T{time}" if time else "")
    return ("-" if value < 0 else "") + f"P{text or 'T0S'}"


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    (_is_text, _texts),
    (pa.types.is_integer, _as_they_are),
    (pa.types.is_boolean, _as_they_are),
    (pa.types.is_null, _as_they_are),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_date, _dates),
    (pa.types.is_time, _times),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_duration, _durations),
)
