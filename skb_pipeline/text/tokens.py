"""The one lexical tokeniser, used for documents and queries alike.

Text is expected in NFC: documents and questions pass through the same cleaning before they come here. The rule:

* A *word* is a run of letters, digits and combining marks, together with further such runs joined to it by one
  or two of ``- + . & / ' : _`` (``IL-2``, ``R&D``, ``22q11.2``, ``HP:0001250``, ``5'-UTR``), and with any ``+`` or
  ``#`` that follows (``C++``, ``CD4+``). Everything else separates words. Typographic hyphens, minus signs and
  apostrophes count as the plain ones.
* A word gives its case-folded form and, if it has joiners, also each of its runs: ``IL-2`` gives ``il-2``, ``il``
  and ``2``. A single letter after an apostrophe (``Alzheimer's``) is no term of its own.
* A stop word is dropped only when written small or with a capital first letter: ``was`` and ``Was`` go, the gene
  ``WAS`` stays. The letter ``A`` is an article where it opens a sentence or a line and a name elsewhere
  (``vitamin A``).

Scripts without spaces between words are not segmented: a run of them is one term.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

from skb_pipeline.text.stopwords import STOPWORDS, StopwordList

VERSION = "1"
"""Version of the rule above; an index built under another one is refused."""

_JOINERS = r"[-+.&/':_]"
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2018\u2019\u02bc\u2032\uff07", "'"),
        "\u00ad": None,
    }
)
_OPENING_ARTICLE = re.compile(r"""(?:^|(?<=[.!?:;]\s)|(?<=["(]))A(?=\s)""", re.MULTILINE)


class Tokeniser:
    """Splits text into terms under one stop word list. Remembers the terms of every distinct word it has seen."""

    def __init__(self, stopwords: StopwordList = "none") -> None:
        small = STOPWORDS[stopwords]
        self._stopwords = small | {word.capitalize() for word in small if len(word) > 1}
        self._word, self._run = _patterns()
        self._terms: dict[str, tuple[str, ...]] = {}

    def __call__(self, text: str) -> list[str]:
        """Terms of ``text`` in order of appearance, with repetitions; a whole word comes before its runs."""
        terms: list[str] = []
        for word in self.words(text):
            terms.extend(self.terms(word))
        return terms

    def words(self, text: str) -> list[str]:
        """Words as written (typographic signs made plain), stop words included."""
        if not text.isascii():
            text = text.translate(_PLAIN)
        if self._stopwords:
            text = _OPENING_ARTICLE.sub(" ", text)
        return self._word.findall(text)

    def terms(self, word: str) -> tuple[str, ...]:
        """Terms of one word as :meth:`words` gives it; none for a stop word."""
        known = self._terms.get(word)
        if known is None:
            known = self._terms[word] = self._split(word)
        return known

    def _split(self, word: str) -> tuple[str, ...]:
        if word in self._stopwords:
            return ()
        runs = [
            run.group()
            for run in self._run.finditer(word)
            if not (len(run.group()) == 1 and run.group().isalpha() and word[run.start() - 1 : run.start()] == "'")
        ]
        whole = word.casefold()
        parts = [run.casefold() for run in runs if run not in self._stopwords]
        return (whole,) if parts == [whole] else (whole, *parts)


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word and of a run inside it. ``\\w`` of ``re`` lacks combining marks, which are added here."""
    run = rf"[^\W_]+(?:[{_mark_ranges()}]+[^\W_]*)*"
    return re.compile(rf"{run}(?:{_JOINERS}{{1,2}}{run})*[+#]*"), re.compile(run)


def _mark_ranges() -> str:
    """All characters of the Unicode categories Mn and Mc as the inside of a character class."""
    marks = [c for c in range(0x300, min(sys.maxunicode, 0x1FFFF) + 1) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    ranges: list[tuple[int, int]] = []
    for mark in marks:
        if ranges and ranges[-1][1] == mark - 1:
            ranges[-1] = (ranges[-1][0], mark)
        else:
            ranges.append((mark, mark))
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
