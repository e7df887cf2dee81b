"""HTML in values: known tags are removed and entities resolved; whatever else looks like markup stays as text.

What counts as markup is decided so that text which merely holds ``<``, ``>`` or ``&`` loses nothing:

* a tag has the name of an HTML element (in any case), and attributes are written ``name=value``; without a value only
  those known to need none. So ``x<y and z>2``, ``vector<int>``, ``<bob@x.org>`` and a ``<b`` cut off at the end stay.
* A start tag without attributes that stands directly behind a letter or digit and is never closed (``vector<b>``) is
  text, unless its element needs no end tag (``one<br>two``).
* Comments and the content of ``script`` and ``style`` go where they are closed.
* An entity has its semicolon and, unless numeric, a name that HTML knows: ``AT&T`` and ``&copy=1`` stay. It is resolved
  once: ``&amp;lt;`` becomes ``&lt;``.

Tags of blocks (paragraphs, rows, headings) part words and become a blank, those inside a line (``<sub>``) do not.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass, field
from html.entities import html5
from typing import Any

_BLOCK_NAMES = (
    "address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li "
    "link listing main marquee menu meta nav noframes ol optgroup option p plaintext pre search section select summary "
    "table tbody td textarea tfoot th thead title tr ul xmp"
)
_INLINE_NAMES = (
    "a abbr acronym applet area audio b base basefont bdi bdo big blink button canvas cite code data datalist del dfn "
    "em embed font i img input ins kbd keygen label map mark meter nobr noscript object output param picture "
    "progress q rb rp rt rtc ruby s samp script slot small source span strike strong style sub sup template time "
    "track tt u var video wbr"
)
_BLOCK, _INLINE = frozenset(_BLOCK_NAMES.split()), frozenset(_INLINE_NAMES.split())
_NEEDS_NO_END = frozenset(
    ["br", "dd", "dt", "hr", "img", "li", "option", "p", "tbody", "td", "tfoot", "th", "thead", "tr", "wbr"]
)
_BARE_ATTRIBUTES = (
    "allowfullscreen|async|autofocus|autoplay|checked|compact|controls|declare|default|defer|disabled|download|hidden"
    "|inert|ismap|itemscope|loop|multiple|muted|nohref|noresize|noshade|novalidate|nowrap|open|playsinline|readonly"
    "|required|reversed|selected|data-[-\\w]++"
)
# A quote that is never closed must not take the text up to the next one along, so no value holds a "<".
_VALUE = r"""(?:"[^"<]*+"|'[^'<]*+'|[^\s"'=<>`][^\s"'<>`]*+)"""
_ATTRIBUTES = rf"""(?:\s*+(?:[^\s"'<>/=]++\s*+=\s*+{_VALUE}|(?:{_BARE_ATTRIBUTES})(?=[\s/>])))"""
_MARKUP = re.compile(
    rf"""<(?:(?P<comment>!--)|!doctype\b[^<>]*+>|\?xml\b[^<>]*+>
    |(?P<end>/?)(?P<name>[a-z][a-z0-9]*+)(?P<attributes>\s{_ATTRIBUTES}*+)?\s*+(?P<closed>/?)>)
    |&(?:\#[0-9]{{1,9}}|\#x[0-9a-f]{{1,8}}|(?P<entity>[a-z][a-z0-9]*+));""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_CONTENT_ENDS = {
    "<!-- -->": ("-->", re.compile("-->")),
    "<script>": ("</script", re.compile(r"</script\s*+>", re.IGNORECASE)),
    "<style>": ("</style", re.compile(r"</style\s*+>", re.IGNORECASE)),
}
"""What is dropped with all that stands in it: how its end begins, and its end."""
_SMALL = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}
"""Like ``str.lower`` but of the same length for every text."""
_BLANKS = re.compile(r"[ \t]{2,}")
_EXAMPLES = 3
_SHOWN = 80


@dataclass
class Removed:
    """What was taken out of the values of one field.

    Attributes:
        values: values that were changed.
        characters: how many characters shorter they became.
        pieces: what was removed or resolved, such as ``<br>`` or ``&amp;``, and how often.
        longest: the longest pieces, where text that was no markup would show.
    """

    values: int = 0
    characters: int = 0
    pieces: Counter[str] = field(default_factory=Counter)
    longest: set[str] = field(default_factory=set)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; pieces with the most frequent first."""
        pieces = sorted(self.pieces.items(), key=lambda item: (-item[1], item[0]))
        return {
            "values": self.values,
            "characters": self.characters,
            "pieces": dict(pieces),
            "longest": sorted(self.longest, key=_longest_first),
        }

    def add(self, label: str, piece: str) -> None:
        """One more piece."""
        self.pieces[label] += 1
        if not label.startswith("&"):
            shown = piece if len(piece) <= _SHOWN else f"{piece[:_SHOWN]}…"
            if shown not in self.longest:
                self.longest = set(sorted({*self.longest, shown}, key=_longest_first)[:_EXAMPLES])


def _longest_first(piece: str) -> tuple[int, str]:
    return -len(piece), piece


def strip_html(text: str, removed: Removed | None = None) -> str:
    """Text of an HTML fragment (rules in the module docstring); text without markup comes back unchanged.

    Where tags were removed, runs of blanks and tabs become one and those at the ends go.
    """
    if "<" not in text and "&" not in text:
        return text
    fragment = _Fragment(text)
    told = Removed() if removed is None else removed
    parts: list[str] = []
    kept, place, tags = 0, 0, 0
    while found := _MARKUP.search(text, place):
        start, place = found.span()
        label = _entity(found) if text[start] == "&" else fragment.tag(found)
        if not label:
            continue
        if label[0] == "&":
            plain = html.unescape(found.group())
        else:
            place = fragment.end_of(label, place)
            plain = " " if label.strip("</>") in _BLOCK else ""
            tags += 1
        told.add(label, text[start:place])
        parts += [text[kept:start], plain]
        kept = place
    if not parts:
        return text
    stripped = "".join([*parts, text[kept:]])
    if tags:
        stripped = _BLANKS.sub(" ", stripped).strip()
    told.values += 1
    told.characters += len(text) - len(stripped)
    return stripped


def _entity(found: re.Match[str]) -> str:
    """How an entity is told; empty for one that HTML does not know."""
    if found["entity"] is None:
        return "&#…;"
    return found.group() if f"{found['entity']};" in html5 else ""


class _Fragment:
    """One text, and where in it end tags stand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._small: str | None = None
        self._last: dict[str, int] = {}

    def tag(self, found: re.Match[str]) -> str:
        """How a tag is told, such as ``</b>``; empty for what is no tag."""
        if found["comment"]:
            return "<!-- -->" if self._last_of("-->") >= found.end() else ""
        if not found["name"]:
            return "<?xml>" if found.group()[1] == "?" else "<!doctype>"
        name = found["name"].lower()
        if name not in _BLOCK and name not in _INLINE:
            return ""
        bare = not found["end"] and not found["closed"] and not (found["attributes"] or "").strip()
        behind = self._text[max(found.start() - 1, 0) : found.start()]
        if bare and name not in _NEEDS_NO_END and behind.isalnum() and self._last_of(f"</{name}") < found.end():
            return ""
        return f"<{found['end']}{name}>"

    def end_of(self, label: str, place: int) -> int:
        """Where what begins before ``place`` ends with its content, if that is dropped; else ``place``."""
        if label not in _CONTENT_ENDS:
            return place
        begins, pattern = _CONTENT_ENDS[label]
        if self._last_of(begins) < place:
            return place
        end = pattern.search(self._text, place)
        return end.end() if end else place

    def _last_of(self, piece: str) -> int:
        """Place of the last ``piece``, in any case; -1 for none. Looked for once, so that a text is read in one go."""
        if piece not in self._last:
            if self._small is None:
                self._small = self._text.translate(_SMALL)
            self._last[piece] = self._small.rfind(piece)
        return self._last[piece]
