"""The coercion of raw values to the shapes declared for fields.

Every change is counted under a readable name, so that a load report can say what happened to the source.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from skb_pipeline.text.cleaning import clean_text
from skb_pipeline.text.markup import Removed, strip_html
from skb_pipeline.text.settings import FieldSpec, Shape

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64 = range(-(1 << 63), 1 << 63)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_MAX_DEPTH = 50

FieldValue = str | list[str] | int | float | list[Any] | dict[str, Any]


def coerce(value: Any, field: FieldSpec, counts: Counter[str], removed: Removed | None = None) -> FieldValue | None:
    """Turn a raw value into its declared shape; None means missing.

    Scalars become one-item lists where a list is declared, nested lists are flattened, nulls and empty texts are
    dropped. What does not fit (an object as text, words as a number) becomes None. Each of these is counted.
    For the shape ``json`` see :func:`clean_json`; a value that is empty as a whole is missing. ``removed`` gets what
    is taken out of values declared as HTML.
    """
    if field.shape is Shape.JSON:
        return _whole_json(value, field, counts, removed)
    texts = [t for t in (_as_text(item, field, counts, removed) for item in _flatten(value, counts)) if t]
    if field.shape is Shape.TEXTS:
        if texts and not isinstance(value, list | tuple):
            counts["scalar_to_list"] += 1
        return texts or None
    if not texts:
        return None
    if len(texts) > 1:
        if field.shape is not Shape.TEXT:
            counts["list_is_no_number"] += 1
            return None
        counts["list_joined_to_text"] += 1
    if field.shape is Shape.TEXT:
        return "; ".join(texts)
    return _as_number(texts[0], field.shape, counts)


def clean_json(
    value: Any, field: FieldSpec, counts: Counter[str], removed: Removed | None = None, depth: int = 0
) -> Any:
    """A JSON value with every text in it cleaned, keys too.

    NaN and infinities become null, tuples lists, keys texts. Of keys that become equal the last one stays. What JSON
    has no form for becomes null, and so does what is nested more than 50 deep. Each of these is counted.
    """
    if isinstance(value, str):
        text = value.strip() if value.isascii() and "\x00" not in value else clean_text(value, counts)
        return _without_html(text, counts, removed) if field.html else text
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        counts["not_finite_to_null"] += 1
        return None
    if not isinstance(value, dict | list | tuple):
        counts["object_is_no_json"] += 1
        return None
    if depth == _MAX_DEPTH:
        counts["nested_too_deep"] += 1
        return None
    if not isinstance(value, dict):
        return [clean_json(item, field, counts, removed, depth + 1) for item in value]
    cleaned = {}
    for name, item in value.items():
        # An ASCII identifier has nothing to clean; nearly all keys are.
        plain = isinstance(name, str) and name.isascii() and name.isidentifier()
        cleaned[name if plain else clean_text(str(name), counts)] = clean_json(item, field, counts, removed, depth + 1)
    if len(cleaned) < len(value):
        counts["equal_keys_merged"] += len(value) - len(cleaned)
    return cleaned


def _without_html(text: str, counts: Counter[str], removed: Removed | None) -> str:
    stripped = strip_html(text, removed)
    # Entities may stand for what cleaning takes out, such as &shy; and combining accents.
    return text if stripped == text else clean_text(stripped, counts)


def _whole_json(value: Any, field: FieldSpec, counts: Counter[str], removed: Removed | None) -> FieldValue | None:
    cleaned = clean_json(value, field, counts, removed)
    return None if cleaned in ("", [], {}) else cleaned


def _flatten(value: Any, counts: Counter[str]) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, list | tuple):
                counts["nested_list_flattened"] += 1
            if item is None:
                counts["null_in_list_dropped"] += 1
            yield from _flatten(item, counts)
    elif value is not None:
        yield value


def _as_text(item: Any, field: FieldSpec, counts: Counter[str], removed: Removed | None) -> str | None:
    if isinstance(item, str):
        text = clean_text(item, counts)
        return _without_html(text, counts, removed) if field.html else text
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        if math.isfinite(item):
            return repr(item)
        counts["not_finite_to_null"] += 1
        return None
    counts["object_is_no_text"] += 1
    return None


def _as_number(text: str, shape: Shape, counts: Counter[str]) -> int | float | None:
    if _INTEGER.fullmatch(text) and (whole := int(text)) in _INT64:
        # Beyond 2 ** 53 a float would be another number.
        return whole if shape is Shape.INTEGER or whole != int(float(text)) else float(text)
    if shape is Shape.NUMBER and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    counts["unparseable_number"] += 1
    return None
