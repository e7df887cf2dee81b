"""What must be equal for a name to be meant, however near two texts are: numbers, codes and signs.

``CYP3A5`` and ``CYP3A4`` differ in one letter and are two things, and so are ``HLA-B`` and ``HLA-C``, ``C`` and ``C++``
or ``interferon alpha`` and ``interferon beta``. A *code* is a word

* with a digit (``3A4``, ``12V``, ``p53``), or a Roman numeral standing alone (``type II``);
* of one letter, but for the article ``a`` (``vitamin C``, the ``B`` of ``HLA-B``), an initial (``J. Smith``) or what
  an apostrophe leaves (``l'eau``);
* with a sign of its own: ``C++``, ``CD4+``, ``Rh-``, ``.NET``; or
* that names a Greek letter, spelt out or not.

Equal are, beside what folding makes equal (case, accents, ``α`` and ``alpha``): blanks, hyphens and other punctuation
between the parts of a code or none (``CYP-3A4``, ``CYP3A4``, ``CYP 3A4``; ``HLA B27``, ``HLA-B*27``), but between two
digits (``1-15`` is not ``11-5``); Roman numerals and numbers (``type II``, ``type 2``); a comma before three digits and
none (``1,000``); plural endings. Not equal are words and digits (``two``, ``2``), ``IL1A`` and ``IL-1 alpha``.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from skb_pipeline.linking.folding import singular, words

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MINUS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\u207b\ufe63\uff0d", "-"))
_JOINERS = frozenset("-/.*:_&")
_APOSTROPHES = frozenset("'\u2019\u02bc\u2032")
_HANGING = frozenset("-/.*:_,")
"""Between two words with digits: they are one code, and its order counts."""
_NUMERALS = "i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx"
_ROMAN = {numeral: str(value) for value, numeral in enumerate(_NUMERALS.split(), start=1)}
_LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi "
    "psi omega"
)
_GREEK = frozenset(_LETTERS.split())
_SIGNED_LETTERS = 3
"""Letters of the longest word that a minus behind it makes a code; behind a longer one (``pre-``) it is a hyphen."""
_JOINED = 4
"""Words that may be written as one."""


class _Part(NamedTuple):
    """A word made comparable: ``text``; whether it is a code; and whether it has a digit and hangs together with the
    word before it, which has one too (``11.2``)."""

    text: str
    is_code: bool
    goes_on: bool


def codes_of(text: str) -> list[str]:
    """The codes in a text, made comparable, in order; those that hang together (``12V-15``) as one, with blanks."""
    parts = _parts(text)
    return [" ".join(part.text for part in parts[unit]) for unit in _units(parts)]


def codes_missing(text: str, surfaces: Iterable[str]) -> list[str]:
    """Codes of ``text`` that stand in none of the ``surfaces`` (names and other names of one node), in order."""
    asked = _parts(text)
    missing = list(_units(asked))
    for surface in surfaces:
        if not missing:
            break
        offered = [part.text for part in _parts(surface)]
        written = {_written(run) for run in _runs(offered)}
        written |= {value for word in offered if (value := _ROMAN.get(word))}
        missing = [unit for unit in missing if not _stands_in(asked, unit, offered, written)]
    return [" ".join(part.text for part in asked[unit]) for unit in missing]


def numbers_of(text: str) -> Counter[str]:
    """Runs of digits with how often they occur: what no way of writing a name changes."""
    plain = _THOUSANDS.sub("", text)
    return Counter(run for word in words(plain) for run in re.findall(r"\d+", word.folded))


def _units(parts: Sequence[_Part]) -> Iterator[slice]:
    """Places of the codes; numbers that hang together are one."""
    for i, part in enumerate(parts):
        if part.is_code and not part.goes_on:
            end = i + 1
            while end < len(parts) and parts[end].goes_on:
                end += 1
            yield slice(i, end)


def _stands_in(asked: Sequence[_Part], unit: slice, offered: Sequence[str], written: set[str]) -> bool:
    """Whether a code stands among the words of a surface, as it is or written together with the words around it."""
    code = [part.text for part in asked[unit]]
    if any(offered[i : i + len(code)] == code for i in range(len(offered) - len(code) + 1)):
        return True
    if len(code) == 1 and (code[0] in written or _ROMAN.get(code[0]) in written):
        return True
    return any(
        _written([part.text for part in asked[start:end]]) in written
        for start in range(max(0, unit.stop - _JOINED), unit.start + 1)
        for end in range(unit.stop, min(len(asked), start + _JOINED) + 1)
    )


def _runs(parts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (parts[i : i + n] for i in range(len(parts)) for n in range(1, min(_JOINED, len(parts) - i) + 1))


def _written(run: Sequence[str]) -> str:
    """Words written as one, with a bar between two digits: ``1-15`` is not ``11-5``."""
    text = ""
    for word in run:
        text += "|" + word if text[-1:].isdigit() and word[:1].isdigit() else word
    return text


@functools.lru_cache(maxsize=20_000)
def _parts(text: str) -> tuple[_Part, ...]:
    plain = _THOUSANDS.sub("", text.translate(_MINUS))
    parts: list[_Part] = []
    found = words(plain)
    end = 0
    for number, word in enumerate(found):
        raw = plain[word.start : word.end]
        before, after = plain[max(0, word.start - 2) : word.start], plain[word.end : word.end + 1]
        spelt = singular(word.folded.replace(" ", ""))
        sign = _sign(raw, plain[word.end :])
        dotted = before.endswith(".") and not before[:-1].strip() and raw[:1].isalpha()
        has_digit = any(c.isdigit() for c in spelt)
        coded = (
            has_digit
            or raw.endswith(("+", "#"))
            or bool(sign)
            or dotted
            or spelt in _GREEK
            or (len(spelt) > 1 and spelt in _ROMAN)
            or (len(spelt) == 1 and _is_code_letter(raw, before[-1:], after, number, len(found)))
        )
        hangs = bool(parts) and plain[end : word.start] in _HANGING and any(c.isdigit() for c in parts[-1].text)
        parts.append(_Part(("." if dotted else "") + spelt + sign, coded, has_digit and hangs))
        end = word.end
    return tuple(parts)


def _sign(raw: str, rest: str) -> str:
    """The minus that belongs to a short word with a capital or a digit (``Rh-``), else nothing."""
    if not re.match(r"-(?=$|[\s)\],.;:!?])", rest) or re.match(r"-\s+(?:and|or)\b", rest):
        return ""
    if len(raw) > _SIGNED_LETTERS and not any(c.isdigit() for c in raw):
        return ""
    return "-" if raw != raw.lower() or any(c.isdigit() for c in raw) else ""


def _is_code_letter(raw: str, before: str, after: str, number: int, many: int) -> bool:
    """Whether a word of one letter tells one thing from another."""
    if not (raw.isascii() and raw.isalpha()) or before in _APOSTROPHES or after in _APOSTROPHES:
        return False
    if after == "." and many > 1 and number < many - 1:
        return False  # an initial
    joined = before in _JOINERS or after in _JOINERS
    return joined or raw not in ("a", "A") or (number > 0 and (raw == "A" or number == many - 1))
