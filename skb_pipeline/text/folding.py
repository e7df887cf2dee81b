"""What a word is and when two words are the same: the one rule for search terms, names and questions.

A *run* is made of letters, digits and whatever belongs to them: combining marks of all scripts (no mark ever
separates), signs that are a compatibility form of letters or digits (``㎏``), and characters that show nothing (ZWJ,
ZWNJ, soft hyphens, variation selectors). What joins several runs to one word is the business of the caller.

Two runs are the same when their *folded* forms are:

* invisible characters go, compatibility forms are replaced (NFKC: ``ＡＢＣ`` is ``abc``, ``H₂O`` is ``h2o``, ``ﬁ`` is
  ``fi``), case is removed;
* with ``accents``, letters of the Latin, Greek and Cyrillic scripts lose their marks (``é`` is ``e``, ``й`` is ``и``),
  the dotted ``İ`` and the dotless ``ı`` are ``i``, and letters with a stroke or joined letters are written plainly
  (``ø`` is ``o``, ``æ`` is ``ae``).

Marks of other scripts always stay: vowel signs, nuqtas, tone marks, tashkil and niqqud tell words apart.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from skb_pipeline.text.cleaning import JOINERS
from skb_pipeline.text.invisible import INVISIBLE

_SIGNS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d\u207b\u208b", "-"),
    **dict.fromkeys("\u2018\u2019\u02bc\u2032\uff07\u00b4", "'"),
    **dict.fromkeys("\u2044\uff0f", "/"),
}
"""Typographic signs and the plain ones they are read as, beside those that NFKC gives."""
_JOINING = frozenset("-+.&/':_#")
_TRADE_MARKS = frozenset("\u2122\u2120")
"""They are letters by NFKC, but nobody writes ``NikeTM``."""
_ASSIGNED = (*range(0xA0, 0x3400), *range(0xA000, 0xAC00), *range(0xD7B0, 0x17000), *range(0x18D00, 0x20000),
             *range(0xE0000, 0xE0200))  # fmt: skip
"""Where marks and signs stand: all of Unicode but ideographs and Hangul syllables, which are neither."""
_SELECTORS = "\u034f\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Marks that show nothing of their own: the grapheme joiner and selectors of a character's look."""
UNSEEN = re.compile(f"[{INVISIBLE}{JOINERS}{_SELECTORS}]+")
"""What is left out of folded forms."""
_SHARED_MARKS = "\u0300-\u036f\u0483-\u0487\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f"
"""Accents and enclosing signs that letters of several scripts take."""
_LATIN = "A-Za-z\u00aa-\u024f\u0250-\u02af\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uab30-\uab6f"
_GREEK_AND_CYRILLIC = "\u0370-\u03ff\u1f00-\u1fff\u0400-\u052f\u2de0-\u2dff\ua640-\ua69f"
_ACCENTED = re.compile(f"([{_LATIN}{_GREEK_AND_CYRILLIC}])[{_SHARED_MARKS}]+")
_OTHER_LETTER = re.compile(rf"[^\W\d_{_LATIN}{_GREEK_AND_CYRILLIC}]")
_PLAIN_LETTERS = str.maketrans(
    {
        "ı": "i", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "þ": "th", "æ": "ae", "œ": "oe",
        "ƀ": "b", "ɨ": "i", "ʉ": "u",
    }
)  # fmt: skip


@functools.cache
def run_pattern() -> str:
    """Regular expression of a run. It begins with a letter, a digit or a mark of one script alone."""
    marks, signs = _marks_and_signs()
    own = f"[{marks}]"
    return (
        rf"(?:[^\W_]|[{signs}]|(?![{_SHARED_MARKS}{_SELECTORS}]){own})(?:[^\W_]|[{marks}{signs}{INVISIBLE}{JOINERS}])*+"
    )


@functools.cache
def word_characters() -> str:
    """What runs are made of beside ``[^\\W_]``, as the inside of a character class."""
    marks, signs = _marks_and_signs()
    return f"{marks}{signs}{INVISIBLE}{JOINERS}"


@functools.cache
def plain_signs() -> dict[int, str]:
    """Table for ``str.translate``: signs between words are written plainly, and what is more than a run in one
    character (``½``, ``⑴``) in full, apart from a digit before it."""
    table = {ord(sign): plain for sign, plain in _SIGNS.items()}
    for code, written in _compatible().items():
        if len(written) == 1 and written in _JOINING:
            table.setdefault(code, written)
        elif any(c.isalnum() for c in written) and not all(map(in_words, written)):
            table[code] = " " + "".join(_SIGNS.get(c, c) for c in written)
    return table


def fold_run(text: str, *, accents: bool = True) -> str:
    """The folded form of a run, or of a word of several runs: NFC, stable under folding again."""
    if text.isascii():
        return text.lower()
    folded = UNSEEN.sub("", text).replace("İ", "i")
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold())
    if accents:
        bare = _ACCENTED.sub(r"\1", unicodedata.normalize("NFD", folded))
        folded = unicodedata.normalize("NFC", bare.translate(_PLAIN_LETTERS))
    return UNSEEN.sub("", folded)


def in_words(char: str) -> bool:
    """Whether a character is part of words: a letter, a digit or a mark."""
    return char.isalnum() or unicodedata.category(char)[0] == "M"


def of_folded_scripts(folded: str) -> bool:
    """Whether all letters of a folded text are Latin, Greek or Cyrillic, where accents and spelling mistakes are
    forgiven."""
    return folded.isascii() or not _OTHER_LETTER.search(folded)


@functools.cache
def _compatible() -> dict[int, str]:
    """NFKC form of every character that has one and is no letter, trade marks aside."""
    found = {}
    for code in _ASSIGNED:
        char = chr(code)
        if not char.isalpha() and char not in _TRADE_MARKS and unicodedata.decomposition(char).startswith("<"):
            found[code] = unicodedata.normalize("NFKC", char)
    return found


@functools.cache
def _marks_and_signs() -> tuple[str, str]:
    """The inside of two character classes: all combining marks, and signs that stand for letters or digits."""
    marks = [code for code in _ASSIGNED if unicodedata.category(chr(code)) in ("Mn", "Mc", "Me")]
    signs = [
        code
        for code, written in _compatible().items()
        if not chr(code).isalnum() and all(map(in_words, written)) and any(c.isalnum() for c in written)
    ]
    return _ranges(marks), _ranges(signs)


def _ranges(codes: list[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
