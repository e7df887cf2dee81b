"""The one lexical tokeniser, used for documents and queries alike.

Documents and questions pass through the same cleaning before they come here. The rule:

* A *word* is a run of letters, digits and combining marks (see :mod:`.folding`), together with further such runs joined
  to it by one or two of ``- + . & / ' : _`` (``IL-2``, ``R&D``, ``22q11.2``, ``HP:0001250``, ``5'-UTR``), and with any
  ``+`` or ``#`` that follows (``C++``, ``CD4+``). Everything else separates words. Typographic hyphens, minus signs and
  apostrophes count as the plain ones.
* A word gives its folded form and, if it has joiners, also each of its runs: ``IL-2`` gives ``il-2``, ``il`` and ``2``.
  A single letter after an apostrophe (``Alzheimer's``) is no term of its own. Compatibility forms are always replaced;
  accents of Latin, Greek and Cyrillic letters go unless the tokeniser is told to keep them.
* A stop word is dropped only when written small or with a capital first letter: ``was`` and ``Was`` go, the gene
  ``WAS`` stays. The letter ``A`` is an article where it opens a sentence or a line and a name elsewhere
  (``vitamin A``).

Scripts without spaces between words are not segmented: a run of them is one term.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from skb_pipeline.text.folding import fold_run, plain_signs, run_pattern
from skb_pipeline.text.stopwords import STOPWORDS, StopwordList

VERSION = "2"
"""Version of the rule above; an index built under another one is refused."""

_JOINERS = r"[-+.&/':_]"
_ASCII_RUN = "[A-Za-z0-9]++"
_OPENING_ARTICLE = re.compile(r"""(?:^|(?<=[.!?:;]\s)|(?<=["(]))A(?=\s)""", re.MULTILINE)


class Tokeniser:
    """Splits text into terms. Remembers the terms of every distinct word it has seen.

    Args:
        stopwords: the list of words that are no terms.
        fold_accents: whether ``naïve`` and ``naive`` are one term.
    """

    def __init__(self, stopwords: StopwordList = "none", *, fold_accents: bool = True) -> None:
        small = STOPWORDS[stopwords]
        self._stopwords = small | {word.capitalize() for word in small if len(word) > 1}
        self._accents = fold_accents
        self._terms: dict[str, tuple[str, ...]] = {}

    def __call__(self, text: str) -> list[str]:
        """Terms of ``text`` in order of appearance, with repetitions; a whole word comes before its runs."""
        terms: list[str] = []
        for word in self.words(text):
            terms.extend(self.terms(word))
        return terms

    def words(self, text: str) -> list[str]:
        """Words as written (signs made plain), stop words included."""
        plain = text.isascii()
        if not plain:
            text = text.translate(plain_signs())
        if self._stopwords:
            text = _OPENING_ARTICLE.sub(" ", text)
        return _patterns(plain)[0].findall(text)

    def terms(self, word: str) -> tuple[str, ...]:
        """Terms of one word as :meth:`words` gives it; none for a stop word."""
        known = self._terms.get(word)
        if known is None:
            known = self._terms[word] = self._split(word)
        return known

    def _split(self, word: str) -> tuple[str, ...]:
        if not word.isascii():
            word = unicodedata.normalize("NFKC", word)
        if word in self._stopwords:
            return ()
        pattern, run_of = _patterns(word.isascii())
        runs = [
            run.group()
            for run in run_of.finditer(word)
            if not (len(run.group()) == 1 and run.group().isalpha() and word[run.start() - 1 : run.start()] == "'")
        ]
        whole = fold_run(word, accents=self._accents)
        parts = [fold_run(run, accents=self._accents) for run in runs if run not in self._stopwords]
        if parts == [whole] or not pattern.fullmatch(word):  # a few characters are several words by NFKC
            return tuple(part for part in parts if part)
        return tuple(part for part in (whole, *parts) if part)


@functools.cache
def _patterns(plain: bool) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word and of a run inside it; those of ASCII text are quicker and find the same."""
    run = _ASCII_RUN if plain else run_pattern()
    return re.compile(rf"{run}(?:{_JOINERS}{{1,2}}{run})*+[+#]*+"), re.compile(run)
