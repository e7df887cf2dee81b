"""Names of persons in all their orders: ``Alan Turing``, ``Turing, Alan``, ``A. M. Turing``, ``Turing A M``.

A name is read as a surname and given names, in each way that its form allows. Two readings agree when the surnames are
equal and the given names are, one by one from the first, equal or one the initial of the other; the shorter list may
lack those at the end. A title, a suffix (``Jr.``) and a surname alone are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skb_pipeline.linking.folding import FUNCTION_WORDS, Word, fold, words

PERSON_WORDS = 5
"""Words of the longest name of a person that is looked for in a question."""
PERSONS_SHARE = 0.8
"""Share of a type's names that must look like those of persons."""
PERSONS_LEAST = 3
_SURNAME_WORDS = 3
_NAME_WORDS = 6
_INITIALS_RUN = 3
_PARTICLES = frozenset(fold("van von der den de del della di da dos du la le el al bin ibn ter ten zu zur af").split())
_SIGNS = re.compile(r"[\s.'’\-–,]*")


class Person(NamedTuple):
    """One reading of a name, folded: the surname's words joined by blanks, and given names or initials in order."""

    surname: str
    given: tuple[str, ...]


def readings(text: str) -> list[Person]:
    """All readings of a name that has the form of a person's; none where it has not."""
    found = words(text)
    if not 2 <= len(found) <= _NAME_WORDS or not _fits(text, found) or not _has_a_surname(text, found):
        return []
    commas = [n for n, word in enumerate(found) if "," in text[word.end : _start_behind(text, found, n)]]
    if commas:
        return [_person(text, found[: commas[0] + 1], found[commas[0] + 1 :])] if len(commas) == 1 else []
    people = []
    initials = len(found)
    while initials and _is_initials(text, found[initials - 1]):
        initials -= 1
    if 0 < initials < len(found) and initials <= _SURNAME_WORDS:
        people.append(_person(text, found[:initials], found[initials:]))
    if initials == len(found):
        first = max(1, len(found) - _SURNAME_WORDS)
        people += [_person(text, found[n:], found[:n]) for n in range(len(found) - 1, first - 1, -1)]
    return people


def agree(one: Person, other: Person) -> bool:
    """Whether two readings may be of one person."""
    pairs = list(zip(one.given, other.given, strict=False))
    return one.surname == other.surname and bool(pairs) and all(_may_be(a, b) for a, b in pairs)


def looks_like_a_person(text: str) -> bool:
    """Whether a text has the form of a person's name."""
    return bool(readings(text))


def spans(text: str, found: Sequence[Word], surnames: frozenset[str]) -> Iterator[tuple[int, int]]:
    """First and last word (both included) of the pieces of a question that have the form of a person's name.

    Initials have a full stop, or stand behind the surname and before no further word; the article ``A`` and the
    pronoun ``I`` are none.

    Args:
        found: the words of the text.
        surnames: words that occur in surnames.
    """
    for first in range(len(found)):
        for last in range(first + 1, min(first + PERSON_WORDS, len(found))):
            piece = found[first : last + 1]
            if not _fits(text, piece):
                break
            if "," in text[piece[0].start : piece[-1].end] and _goes_on_before(text, found, first):
                continue  # "Kidney Disease, Heart …": the comma does not stand behind a surname
            if (
                _has_a_surname(text, piece)
                and any(word.folded in surnames for word in piece)
                and _initials_are_meant(text, piece, found[last + 1 :])
            ):
                yield first, last


def _goes_on_before(text: str, found: Sequence[Word], first: int) -> bool:
    """Whether a word with a capital stands right before, but at the beginning of the text."""
    before = found[first - 1] if first > 1 else None
    return before is not None and text[before.start].isupper() and text[before.end : found[first].start].isspace()


def _initials_are_meant(text: str, piece: Sequence[Word], behind: Sequence[Word]) -> bool:
    bare = [n for n, word in enumerate(piece) if _is_initials(text, word) and text[word.end : word.end + 1] != "."]
    if not bare:
        return True
    if bare[0] == 0 or any(text[piece[n].start : piece[n].end] == "I" for n in bare):
        return False
    return len(bare) > 1 or not behind or not text[piece[-1].end : behind[0].start].isspace()


def _person(text: str, surname: Sequence[Word], given: Sequence[Word]) -> Person:
    parts: list[str] = []
    for word in given:
        parts.extend(word.folded if _is_initials(text, word) else [word.folded])
    return Person(" ".join(word.folded for word in surname), tuple(parts))


def _has_a_surname(text: str, found: Sequence[Word]) -> bool:
    return any(text[word.start].isupper() and len(word.folded) > 1 for word in found)


def _fits(text: str, found: Sequence[Word]) -> bool:
    """Words with capitals (or particles) with nothing but blanks, dots, hyphens, apostrophes and commas between."""
    for n, word in enumerate(found):
        raw = text[word.start : word.end]
        if not raw.replace("'", "").replace("’", "").isalpha():
            return False
        if not raw[0].isupper() and word.folded not in _PARTICLES:
            return False
        if word.folded in FUNCTION_WORDS and not raw.isupper():
            return False
        if n + 1 < len(found) and not _SIGNS.fullmatch(text[word.end : found[n + 1].start]):
            return False
        # A full stop behind a whole word ends a sentence.
        if n + 1 < len(found) and len(raw) > _INITIALS_RUN and "." in text[word.end : found[n + 1].start]:
            return False
    return True


def _is_initials(text: str, word: Word) -> bool:
    raw = text[word.start : word.end]
    return raw.isupper() and len(raw) <= (_INITIALS_RUN if text != text.upper() else 1)


def _start_behind(text: str, found: Sequence[Word], n: int) -> int:
    return found[n + 1].start if n + 1 < len(found) else len(text)


def _may_be(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) == 1 and one[0] == other[0])
