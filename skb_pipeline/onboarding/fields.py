"""Guesses on the fields of node tables: name, shapes, separators of lists, values that can be parsed, HTML."""

from __future__ import annotations

import re
from collections import Counter

from skb_pipeline.onboarding.guesses import FieldGuess, Nodes, named
from skb_pipeline.onboarding.profiling import Column
from skb_pipeline.text.markup import Removed, strip_html
from skb_pipeline.text.parsers import parse_field
from skb_pipeline.text.settings import FieldSpec, Shape

ALIAS_NAMES = ("synonyms", "synonym", "aliases", "alias", "alternative_names", "alt_names", "also_known_as")
NAME_NAMES = ("name", "title", "label", "display_name", "preferred_name", "preflabel", "node_name", "full_name")
_SAMPLE = 1_000
_MOSTLY = 0.8
_HTML_SHARE = 0.05
_SEPARATORS = (" | ", "|", "; ", ";")


def choose_fields(nodes: Nodes, pointing: set[int], doubts: list[str]) -> None:
    """Fill ``fields`` and ``name`` of a table of nodes.

    Args:
        pointing: ``id()`` of columns that became edges.
    """
    taken = {id(nodes.key), id(nodes.type_column)} | pointing
    for column in nodes.table.columns.values():
        if id(column) in taken:
            continue
        if not column.filled:
            doubts.append(f"{nodes.table.pattern}: {column.name} is empty and left out")
            continue
        nodes.fields[column.name] = guess_field(column, nodes.table.pattern, doubts)
    plain = {name: f for name, f in nodes.fields.items() if f.column.distinct and not f.column.is_object}
    name = named(nodes.table, NAME_NAMES, [f.column for f in plain.values()]) or next(
        (f.column for n, f in plain.items() if n.lower().endswith(("name", "title"))), None
    )
    if name is None:
        short = [f.column for f in plain.values() if f.column.mean_length <= 100 and not f.column.is_number]
        name = max(short, key=lambda c: len(c.distinct), default=nodes.key)
        doubts.append(f"{nodes.table.pattern}: {name.name} is taken for the name")
    # A name is text, whatever its values look like.
    html = name.name in nodes.fields and nodes.fields[name.name].html
    nodes.fields = {
        name.name: FieldGuess(name, "text", html=html),
        **{k: f for k, f in nodes.fields.items() if k != name.name},
    }
    nodes.name = name.name
    _spare_taken_names(nodes, doubts)


def _spare_taken_names(nodes: Nodes, doubts: list[str]) -> None:
    """Values are not parsed where there is a column of the name under which they would be stored."""
    names = Counter(nodes.fields)
    for name, guess in nodes.fields.items():
        stored = FieldSpec(shape=Shape.TEXT, parse=guess.parse).parsed_names(name)  # type: ignore[arg-type]
        clash = [other for other in stored if names[other]]
        if clash:
            guess.parse = None
            doubts.append(f"{nodes.table.pattern}: {name} is not parsed, as there are columns {clash} already")
        else:
            names.update(stored)


def guess_field(column: Column, where: str, doubts: list[str]) -> FieldGuess:
    """How a column becomes a field; doubts begin with ``where``."""
    where = f"{where}: {column.name}"
    if column.is_object:
        return FieldGuess(column, "json", in_document=False)
    if column.is_list:
        return FieldGuess(column, "texts")
    flag = {v.lower() for v in column.distinct} <= {"true", "false", "yes", "no", "0", "1"}
    if column.is_number:
        numbering = re.search(r"(id|index|code|no|number)$", column.name.lower()) is not None
        return FieldGuess(column, "integer" if column.is_integer else "number", in_document=not (flag or numbering))
    sample = [text for text in column.texts if text is not None][:_SAMPLE]
    parse = _guess_parse(column, sample)
    if parse is not None:
        doubts.append(f"{where} looks like a {parse}: parsed values are stored beside the text")
        return FieldGuess(column, "text", parse=parse)
    if _holds_html(column, where, doubts):
        return FieldGuess(column, "text", html=True)
    separator = separator_of(column)
    if separator is not None:
        doubts.append(f"{where}: {separator!r} is taken for the separator of a list")
        return FieldGuess(column, "texts", separator=separator, in_document=not _are_links(sample))
    code = len(column.distinct) == column.filled and all(re.fullmatch(r"\S*[0-9]\S*", text) for text in sample)
    return FieldGuess(column, "text", in_document=not (flag or code or _are_links(sample)))


def _holds_html(column: Column, where: str, doubts: list[str]) -> bool:
    """Whether enough values hold HTML; what would be taken out of them is told in any case."""
    removed = Removed()
    for text in column.texts:
        if text is not None and ("<" in text or "&" in text):
            strip_html(text, removed)
    if not removed.values:
        return False
    shown = ", ".join(f"{piece} {n} times" for piece, n in removed.pieces.most_common(3))
    told = f"{where}: {removed.values} of {column.filled} values hold HTML ({shown})"
    if removed.values > _HTML_SHARE * column.filled:
        doubts.append(f"{told}; `html: true` removes {removed.characters} characters of it")
        return True
    doubts.append(f"{told}; they stay as they are, `html: true` would clean them")
    return False


def _are_links(sample: list[str]) -> bool:
    return sum(text.startswith(("http://", "https://")) for text in sample) > _MOSTLY * len(sample)


def separator_of(column: Column) -> str | None:
    """A mark between short pieces in at least one of twenty values."""
    sample = [text for text in column.texts if text is not None][:_SAMPLE]
    for mark in _SEPARATORS:
        cells = [text.split(mark) for text in sample if mark in text]
        pieces = [piece for cell in cells for piece in cell]
        longest = 60 if "|" in mark else 40
        if len(cells) >= max(2, len(sample) / 20) and sum(map(len, pieces)) <= longest * len(pieces):
            return mark
    return None


def _guess_parse(column: Column, sample: list[str]) -> str | None:
    signs = sum(bool(re.search(r"[$€£¥₹]|\b(USD|EUR|GBP)\b", text)) for text in sample)
    wanted = {
        "price": signs >= len(sample) / 2,
        "rank": sum(" in " in text for text in sample) >= len(sample) * 0.9,
        "dimensions": sum(" x " in text for text in sample) >= len(sample) / 2,
        "weight": "weight" in column.name.lower(),
        "date": column.mean_length >= 8,
    }
    for parse, possible in wanted.items():
        if possible and sum(bool(parse_field(text, parse, Counter())) for text in sample) >= 0.9 * len(sample):
            return parse
    return None
