"""Other names that a text gives to what it names: an abbreviation in brackets, "also known as".

What stands in brackets is an abbreviation of the words before if its letters stand in them in order, the first at the
beginning of a word (Schwartz and Hearst 2003, "A simple algorithm for identifying abbreviation definitions in
biomedical text", PSB 8:451-462).
"""

from __future__ import annotations

import re

_BRACKET = re.compile(r"(?<=\S) \(([^()]{2,10})\)")
_ALSO = re.compile(
    r"(?<![\s,;(])[\s,;(]+(?:also (?:known as|called|named)|(?:better|formerly) known as|a\.?k\.?a\.?)[\s:]+",
    re.IGNORECASE,
)
_WORDS_PER_LETTER = 2
_FEWEST = 3
"""Characters of a name that is said to be another one."""


def further_names(text: str) -> list[str]:
    """Names that a name holds: ``TNF`` of ``tumor necrosis factor (TNF)``, both parts of ``X, also known as Y``."""
    found = []
    also = _ALSO.search(text)
    if also is not None:
        parts = text[: also.start()].strip(" ,;("), text[also.end() :].strip(" ,;)")
        found = [part for part in parts if len(part) >= _FEWEST]
    for bracket in _BRACKET.finditer(text):
        if is_abbreviation(bracket.group(1), text[: bracket.start()]):
            found.append(bracket.group(1))
    return found


def says_the_same(between: str, behind: str, one: str, other: str) -> bool:
    """Whether a question says that two names next to each other are of one thing.

    Args:
        between: the text between the names.
        behind: the text behind the second.
        one, other: the names, in order.
    """
    if _ALSO.fullmatch(between):
        return True
    in_brackets = between.strip() == "(" and behind.lstrip().startswith(")")
    return in_brackets and (is_abbreviation(other, one) or is_abbreviation(one, other))


def is_abbreviation(short: str, text: str) -> bool:
    """Whether ``short`` abbreviates the last words of a text."""
    letters = [c for c in short.casefold() if c.isalnum()]
    if len(letters) < 2 or not any(c.isupper() for c in short) or not short[0].isalnum():
        return False
    words = text.split()[-min(len(letters) + 5, _WORDS_PER_LETTER * len(letters)) :]
    long = " ".join(words).casefold()
    place = len(long)
    for n, letter in reversed(list(enumerate(letters))):
        place -= 1
        while place >= 0 and (long[place] != letter or (n == 0 and place > 0 and long[place - 1].isalnum())):
            place -= 1
        if place < 0:
            return False
    return len(long) > len(short)
