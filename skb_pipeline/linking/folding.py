"""How names and questions are made comparable: words with their places, folded forms, and the function words.

Three forms of a word, each coarser than the one before:

* *folded*: as search terms are folded (:mod:`skb_pipeline.text.folding`), with Greek letters spelt out (``α`` is
  ``alpha``);
* *singular*: the folded form without a plain English plural ending;
* *stem*: the folded form without ``-ing``, ``-ed``, ``-s`` and the like; used for verbs of relations only.

Punctuation and spaces separate words and are otherwise ignored, but ``+`` and ``#`` behind a word belong to it
(``C++``, ``CD4+``). A possessive ``'s`` is dropped. Combining marks never separate, and those of scripts other than
Latin, Greek and Cyrillic never go.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import NamedTuple

from skb_pipeline.text.folding import fold_run, plain_signs, run_pattern, word_characters

_GREEK = {
    letter: unicodedata.name(letter).split()[-1].lower()
    for letter in map(chr, range(0x3B1, 0x3CA))
    if "FINAL" not in unicodedata.name(letter)
} | {"λ": "lambda"}
_SUFFIXES = ("ing", "ed", "es", "s", "e")

_FUNCTION = (
    "a about above across after again against all along also although always am among an and another any are "
    "around as at be because been before being below between both but by came can cannot come could did do does "
    "doing done down during each either else ever every everything few find for found from further gave get give "
    "given gives go got had has have having he her here hers him his how however i identify if in include "
    "included includes including into is it its itself just kind kindly know known least less let like list look "
    "looking made make many may me might more most much must my name need neither no none nor not of off on once "
    "one only or other others our out over own particular per please possible provide question rather "
    "respectively same search see seek several shall she should show since so some something sort specific "
    "specifically specified still such suggest tell than that the their them themselves then there therefore "
    "these they this those though through thus to together too toward towards two under until up upon us used "
    "using very via want was way we well were what whatever when where whether which while who whom whose why "
    "will with within without would yes yet you your "
)

FUNCTION_WORDS = frozenset(_FUNCTION.split())
"""Words that carry no content of a question: never a name unless written as a symbol, never part of what is left."""


class Word(NamedTuple):
    """A word of a text: ``text[start:end]`` and its folded form (which may hold blanks, as for ``½``)."""

    start: int
    end: int
    folded: str


def words(text: str) -> list[Word]:
    """Words of a text in order; possessive endings are left out."""
    word, possessive, _ = _patterns()
    if not text.isascii():
        text = text.translate(_signs())
    endings = {match.start() + 1 for match in possessive.finditer(text)}
    return [Word(m.start(), m.end(), fold_word(m.group())) for m in word.finditer(text) if m.start() not in endings]


def fold(text: str) -> str:
    """Folded words joined by one blank; empty for a text without letters and digits."""
    return " ".join(word.folded for word in words(text))


@functools.lru_cache(maxsize=200_000)
def fold_word(word: str) -> str:
    """The folded form of one word."""
    if word.isascii():
        return word.lower()
    spelt = "".join(_GREEK.get(letter, letter) for letter in fold_run(word.translate(plain_signs())))
    return _patterns()[2].sub(" ", spelt).strip()


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word, of a possessive ending, and of what separates within the folded form of one character."""
    run, inside = run_pattern(), word_characters()
    return (
        re.compile(rf"{run}[+#]*+"),
        re.compile(rf"'s(?![^\W_]|[{inside}])"),
        re.compile(rf"[^\w+#{inside}]+|_"),
    )


@functools.cache
def _signs() -> dict[int, str]:
    """Typographic signs made plain, character by character, so that places stay."""
    return {code: plain for code, plain in plain_signs().items() if len(plain) == 1}


@functools.lru_cache(maxsize=200_000)
def singular(folded: str) -> str:
    """``folded`` without a plain plural ending; applied to both sides, so it need not be right, only the same."""
    if len(folded) < 4 or not folded.endswith("s") or folded.endswith(("ss", "us", "is")):
        return folded
    if folded.endswith("ies") and len(folded) > 4:
        return folded[:-3] + "y"
    if folded.endswith(("sses", "xes", "ches", "shes", "zes")):
        return folded[:-2]
    return folded[:-1]


@functools.lru_cache(maxsize=200_000)
def stem(folded: str) -> str:
    """``folded`` without one ending of a verb; at least three letters stay."""
    for suffix in _SUFFIXES:
        if folded.endswith(suffix) and len(folded) - len(suffix) >= 3 and not folded.endswith("ss"):
            return folded[: -len(suffix)]
    return folded
