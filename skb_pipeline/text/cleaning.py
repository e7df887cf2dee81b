"""The one cleaning step for all text that enters an SKB, and the coercion of raw values to declared shapes.

Every change is counted under a readable name, so that a load report can say what happened to the source.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.text.settings import FieldSpec, Shape

_SURROGATE = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_BLOCK_TAGS = {
    "br",
    "p",
    "div",
    "li",
    "ul",
    "ol",
    "tr",
    "td",
    "th",
    "table",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
}
_SILENT_TAGS = {"script", "style"}
_MAX_DEPTH = 50

FieldValue = str | list[str] | int | float | list[Any] | dict[str, Any]


def clean_text(text: str, counts: Counter[str] | None = None) -> str:
    """Make ``text`` storable everywhere: valid surrogate pairs joined, lone ones replaced by U+FFFD, NUL removed,
    Unicode NFC, blanks at both ends removed. Nothing else is touched.
    """
    counts = Counter() if counts is None else counts
    if text.isascii():  # most texts; the flag is stored, so this spares three scans
        if "\x00" in text:
            text = text.replace("\x00", "")
            counts["nul_removed"] += 1
        return text.strip()
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        counts["surrogate_replaced"] += 1
    if "\x00" in text:
        text = text.replace("\x00", "")
        counts["nul_removed"] += 1
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
        counts["nfc_normalised"] += 1
    return text.strip()


def clean_ids(ids: pa.Array) -> pa.Array:
    """:func:`clean_text` of a column of strings; quick, as almost all ids are plain ASCII and stay as they are."""
    plain = pc.fill_null(pc.match_substring_regex(ids, r"\A[!-~]+( +[!-~]+)*\z"), True)
    if pc.all(plain, min_count=0).as_py():
        return ids
    distinct = ids.dictionary_encode()
    cleaned = [None if text is None else clean_text(text) for text in distinct.dictionary.to_pylist()]
    return pa.array(cleaned, pa.string()).take(distinct.indices)


def strip_html(text: str) -> str:
    """Text of an HTML fragment: entities resolved, tags removed, block tags become one blank, scripts are dropped.

    A ``<`` that opens no tag (``p < 0.05``) stays.
    """
    parser = _TextOfHtml()
    parser.feed(text)
    parser.close()
    return re.sub(r"[ \t]+", " ", "".join(parser.parts)).strip()


class _TextOfHtml(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in _SILENT_TAGS
        if tag in _BLOCK_TAGS:
            self.parts.append(" ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCK_TAGS:
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT_TAGS and self._silent > 0
        if tag in _BLOCK_TAGS:
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)


def coerce(value: Any, field: FieldSpec, counts: Counter[str]) -> FieldValue | None:
    """Turn a raw value into its declared shape; None means missing.

    Scalars become one-item lists where a list is declared, nested lists are flattened, nulls and empty texts are
    dropped. What does not fit (an object as text, words as a number) becomes None. Each of these is counted.
    For the shape ``json`` see :func:`clean_json`; a value that is empty as a whole is missing.
    """
    if field.shape is Shape.JSON:
        return _whole_json(value, field, counts)
    texts = [t for t in (_as_text(item, field, counts) for item in _flatten(value, counts)) if t]
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


def clean_json(value: Any, field: FieldSpec, counts: Counter[str], depth: int = 0) -> Any:
    """A JSON value with every text in it cleaned, keys too.

    NaN and infinities become null, tuples lists, keys texts. Of keys that become equal the last one stays. What JSON
    has no form for becomes null, and so does what is nested more than 50 deep. Each of these is counted.
    """
    if isinstance(value, str):
        text = value.strip() if value.isascii() and "\x00" not in value else clean_text(value, counts)
        return strip_html(text) if field.html else text
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
        return [clean_json(item, field, counts, depth + 1) for item in value]
    cleaned = {}
    for name, item in value.items():
        # An ASCII identifier has nothing to clean; nearly all keys are.
        plain = isinstance(name, str) and name.isascii() and name.isidentifier()
        cleaned[name if plain else clean_text(str(name), counts)] = clean_json(item, field, counts, depth + 1)
    if len(cleaned) < len(value):
        counts["equal_keys_merged"] += len(value) - len(cleaned)
    return cleaned


def _whole_json(value: Any, field: FieldSpec, counts: Counter[str]) -> FieldValue | None:
    cleaned = clean_json(value, field, counts)
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


def _as_text(item: Any, field: FieldSpec, counts: Counter[str]) -> str | None:
    if isinstance(item, str):
        text = clean_text(item, counts)
        return strip_html(text) if field.html else text
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        return repr(item) if math.isfinite(item) else None
    counts["object_is_no_text"] += 1
    return None


def _as_number(text: str, shape: Shape, counts: Counter[str]) -> int | float | None:
    if shape is Shape.INTEGER and _INTEGER.fullmatch(text):
        return int(text)
    if shape is Shape.NUMBER and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    counts["unparseable_number"] += 1
    return None
