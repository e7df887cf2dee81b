"""The one cleaning step for all text that enters: rows of a source, ids, questions, answers, plans.

Every change is counted under a readable name, so that a load report can say what happened to the source.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.text.invisible import INVISIBLE

CHANGES = ("surrogate_replaced", "nul_removed", "invisible_removed", "nfc_normalised")
"""Names under which :func:`clean_text` counts."""

_SURROGATE = re.compile("[\ud800-\udfff]")
JOINERS = "\u200c\u200d"
"""ZWNJ and ZWJ: inside words of Indic and Arabic scripts and inside emoji they decide what is read."""
_UNSEEN = re.compile(f"[{INVISIBLE}]+")
_JOINER_RUN = re.compile(f"[{JOINERS}]+")


def clean_text(text: str, counts: Counter[str] | None = None) -> str:
    """Make ``text`` storable and comparable everywhere. Nothing else is touched than this:

    valid surrogate pairs are joined, lone ones replaced by U+FFFD; NUL and invisible characters are removed
    (:func:`without_invisible`); Unicode is normalised (NFC); blanks at both ends are removed.

    Args:
        text: any text.
        counts: gets the names in :data:`CHANGES`, once each for a text that was so changed.
    """
    counts = Counter() if counts is None else counts
    if text.isascii():  # most texts; the flag is stored, so this spares all scans
        if "\x00" in text:
            text = text.replace("\x00", "")
            counts["nul_removed"] += 1
        return text.strip()
    if _SURROGATE.search(text):
        text = storable(text)
        counts["surrogate_replaced"] += 1
    if "\x00" in text:
        text = text.replace("\x00", "")
        counts["nul_removed"] += 1
    normal = unicodedata.normalize("NFC", text)
    seen = without_invisible(normal)
    # What an invisible character kept apart may compose now.
    cleaned = normal if seen == normal else unicodedata.normalize("NFC", seen)
    if seen != normal:
        counts["invisible_removed"] += 1
    if normal != text or cleaned != seen:
        counts["nfc_normalised"] += 1
    return cleaned.strip()


def storable(text: str) -> str:
    """``text`` with surrogate pairs joined and lone surrogates replaced by U+FFFD, and nothing else changed."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def without_invisible(text: str) -> str:
    """``text`` without characters that show nothing.

    Removed are those of :data:`INVISIBLE` everywhere, and ZWJ and ZWNJ at the ends of words and between two ASCII
    characters, where they join nothing; elsewhere they stay.
    """
    if text.isascii():
        return text
    text = _UNSEEN.sub("", text)
    return _JOINER_RUN.sub(_inside_a_word, text) if "\u200c" in text or "\u200d" in text else text


def _inside_a_word(run: re.Match[str]) -> str:
    """The joiners if they stand inside a word or an emoji, else nothing."""
    before, after = run.string[: run.start()][-1:], run.string[run.end() :][:1]
    if _ends_words(before) or _ends_words(after) or (before + after).isascii():
        return ""
    return run.group()


def _ends_words(char: str) -> bool:
    return not char or unicodedata.category(char)[0] in "ZP" or unicodedata.category(char) in ("Cc", "Cf")


def clean_ids(ids: pa.Array, counts: Counter[str] | None = None) -> pa.Array:
    """:func:`clean_text` of a column of strings; quick, as almost all ids are plain ASCII and stay as they are.

    ``counts`` gets the changes, once for each row.
    """
    plain = pc.fill_null(pc.match_substring_regex(ids, r"\A[!-~]+( +[!-~]+)*\z"), True)
    if pc.all(plain, min_count=0).as_py():
        return ids
    distinct = ids.dictionary_encode()
    cleaned: list[str | None] = []
    for i, text in enumerate(distinct.dictionary.to_pylist()):
        changes: Counter[str] = Counter()
        cleaned.append(None if text is None else clean_text(text, changes))
        if counts is not None and changes:
            rows = int(np.count_nonzero(pc.fill_null(distinct.indices, -1).to_numpy() == i))
            counts.update({kind: rows * n for kind, n in changes.items()})
    return pa.array(cleaned, pa.string()).take(distinct.indices)


def clean_names(names: pa.Array, counts: Counter[str] | None = None) -> pa.Array:
    """The same as :func:`clean_ids`, quicker for a column of few distinct texts, such as types and relations."""
    distinct = names.dictionary_encode()
    changes: Counter[str] = Counter()
    if clean_ids(distinct.dictionary, changes).equals(distinct.dictionary):
        return names
    return clean_ids(names, counts)
