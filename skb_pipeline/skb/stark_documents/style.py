"""What the three formats share: how documents are to look, and the compact form."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BULLET = re.compile(r"^ *- ")
_BLANKS = re.compile(r"\s{2,}")
_UNSAFE_NAME = re.compile(r"[\r\n]|\s{2,}")
_MASK = "\x00"


@dataclass(frozen=True)
class Style:
    """How documents are to look.

    Attributes:
        types: code of each declared node type.
        relation_names: the declared relations, each once.
        relations: neighbours are named.
        cap: names per group of neighbours; None: all.
        compat: faults of STaRK are repeated, so that documents are equal to its own byte for byte.
        compact: one line.
    """

    types: dict[str, int]
    relation_names: list[str]
    relations: bool
    cap: int | None
    compat: bool
    compact: bool


def compact(text: str, name: str) -> str:
    """One line: every line break becomes ``". "``, or a blank after a colon or a full stop.

    Bullets at the start of lines are removed and runs of white space become one blank. ``name`` is kept letter by
    letter, even where it has such runs.
    """
    unsafe = bool(name) and _UNSAFE_NAME.search(name) is not None
    if unsafe:
        # No text of an SKB holds NUL: ingest removes it.
        text = text.replace(name, _MASK)
    *lines, last = (_BULLET.sub(" ", line) for line in text.replace("\r", "").split("\n"))
    joined = "".join(line + (" " if line.endswith((":", ": ", ".")) else ". ") for line in lines) + last
    joined = _BLANKS.sub(" ", joined)
    if text.startswith("- "):
        joined = joined.removeprefix(" ")
    return joined.replace(_MASK, name) if unsafe else joined


def compact_as_stark(text: str) -> str:
    """One line as STaRK makes it: replacements run over the whole document, names and texts in it too."""
    text = text.replace("\n", ". ").replace("\r", "").replace("- ", "").replace(": .", ":").replace(":.", ":")
    return _BLANKS.sub(" ", text).replace(".. ", ". ")
