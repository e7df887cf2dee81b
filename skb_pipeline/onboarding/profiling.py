"""The tables in a folder and what their columns look like; the ground on which ``drafting`` guesses."""

from __future__ import annotations

import codecs
import glob
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables.files import is_empty, is_litter, open_binary
from skb_pipeline.datasets.sources.tables.reading import SUFFIXES, Layout, column_names, guess_escape, read_rows
from skb_pipeline.text.cleaning import clean_text

_INTEGER = r"\A(0|-?[1-9][0-9]{0,17})\z"
_NUMBER = r"\A[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\z"


@dataclass
class Column:
    """One column.

    Attributes:
        name: as in the file.
        texts: its values as text, cleaned as in a load; None where empty or not a single value.
        items: every value that is a list, as (row index, list of texts).
        kinds: kinds of values: text, integer, number, boolean, list, object (also lists of objects).
    """

    name: str
    texts: list[str | None] = field(default_factory=list)
    items: list[tuple[int, list[str]]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        """Append one raw value."""
        text = None
        if isinstance(value, list | tuple):
            value = [item for item in value if item is not None]
            nested = any(isinstance(item, dict | list | tuple) for item in value)
            if value:
                self.kinds["object" if nested else "list"] += 1
            if value and not nested:
                self.items.append((len(self.texts), [_text(item) for item in value]))
        elif isinstance(value, dict):
            self.kinds["object"] += 1
        elif value is not None and value != "":
            text = _text(value) or None
            self.kinds[_KINDS.get(type(value), "text")] += text is not None
        self.texts.append(text)

    @property
    def filled(self) -> int:
        """Rows with a value."""
        return self.kinds.total()

    @property
    def is_list(self) -> bool:
        return self.kinds["list"] > 0

    @property
    def is_object(self) -> bool:
        return self.kinds["object"] > 0

    @cached_property
    def array(self) -> pa.Array:
        """``texts`` as an Arrow array."""
        return pa.array(self.texts, pa.string())

    @cached_property
    def distinct(self) -> set[str]:
        """Its different single values."""
        return {text for text in self.texts if text is not None}

    @cached_property
    def can_be_id(self) -> bool:
        """Whether its values are of a kind that a load takes as ids."""
        fit = not (self.kinds["number"] or self.kinds["boolean"] or self.is_list or self.is_object)
        return fit and bool(self.distinct) and max(map(len, self.distinct)) <= 200

    @property
    def is_key(self) -> bool:
        """Every row has a value of its own that can be an id."""
        return self.can_be_id and len(self.distinct) == len(self.texts)

    @property
    def is_nearly_key(self) -> bool:
        """As :attr:`is_key`, but for a few rows (a tenth, or one) without a value or with one that occurred before."""
        rows = len(self.texts)
        few = max(1.0, 0.1 * rows)
        return self.can_be_id and len(self.distinct) >= max(2.0, self.filled - few) and self.filled >= rows - few

    @cached_property
    def is_integer(self) -> bool:
        """All values are integers without leading zeros."""
        return bool(self.distinct) and not self.is_list and _all_match(self.array, _INTEGER)

    @cached_property
    def is_number(self) -> bool:
        """All values are numbers, and none has leading zeros that a number would lose."""
        return bool(self.distinct) and not self.is_list and _all_match(self.array, _NUMBER) and not self._zero_led

    @property
    def _zero_led(self) -> bool:
        return any(re.match(r"0[0-9]", text) for text in self.distinct)

    @cached_property
    def mean_length(self) -> float:
        """Characters per value."""
        return (pc.mean(pc.utf8_length(self.array)).as_py() or 0.0) if self.distinct else 0.0


_KINDS = {bool: "boolean", int: "integer", float: "number"}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else clean_text(str(value))


def _all_match(array: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py())


@dataclass
class Table:
    """Files with the same columns.

    Attributes:
        pattern: glob below the folder.
        name: name of one of the files.
        columns: by name.
        layout: how its CSV files are written.
        rows: number of rows.
        unreadable: rows that could not be read.
        lost: what could not be read of single values, with counts.
    """

    pattern: str
    name: str
    columns: dict[str, Column]
    layout: Layout = field(default_factory=Layout)
    rows: int = 0
    unreadable: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def stem(self) -> str:
        """Name of the files without suffix and running numbers."""
        name = _without_suffix(self.name)
        if "*" in self.pattern.rsplit("/", 1)[-1]:
            name = re.split(r"[-_. ]*[0-9]", name, maxsplit=1)[0]
        return name or self.pattern.split("/", maxsplit=1)[0]

    @property
    def keys(self) -> list[Column]:
        """Columns that can be ids: those with a value of its own in every row, or else in nearly every row; in the
        order of the file."""
        exact = [column for column in self.columns.values() if column.is_key]
        return exact + [c for c in self.columns.values() if not c.is_key and c.is_nearly_key]


def read_tables(folder: Path) -> tuple[list[Table], list[str]]:
    """All tables below a folder, read whole; and what kept files from being read, one line each."""
    faults: list[str] = []
    tables = []
    for pattern, layout, paths in _groups(folder, faults):
        names = list(dict.fromkeys(name for path in paths for name in column_names(path, layout)))
        table = Table(pattern, paths[0].name, {name: Column(name) for name in names}, layout)
        for path in paths:
            try:
                _read(table, path)
            except SourceError as error:
                faults.append(f"a load would stop: {error}")
        tables.append(table)
    return tables, faults


def _read(table: Table, path: Path) -> None:
    present = column_names(path, table.layout)
    for row in read_rows(path, present, [], table.layout, lost=table.lost, tolerant=True):
        if row.fault:
            table.unreadable += 1
            continue
        table.rows += 1
        for name, column in table.columns.items():
            column.add(row.values.get(name))


def _groups(folder: Path, faults: list[str]) -> list[tuple[str, Layout, list[Path]]]:
    """(glob, layout, files): files whose names differ by a running number only, with the same columns, are a table."""
    grouped: dict[tuple[str, Layout, tuple[str, ...]], list[Path]] = defaultdict(list)
    for path in _files(folder):
        try:
            layout = guess_layout(path)
            columns = tuple(column_names(path, layout))
        except SourceError as error:
            faults.append(f"{path.relative_to(folder).as_posix()} is left out: {error}")
            continue
        shown = path.relative_to(folder)
        parent = Path(glob.escape(str(shown.parent)))
        pattern = (parent / re.sub(r"[0-9]+", "*", glob.escape(shown.name))).as_posix()
        grouped[pattern, layout, columns].append(path)
    found = []
    for (pattern, layout, _), paths in grouped.items():
        if len(paths) > 1 and sorted(folder.glob(pattern)) == sorted(paths):
            found.append((pattern, layout, paths))
        else:
            found += [(glob.escape(path.relative_to(folder).as_posix()), layout, [path]) for path in paths]
    return sorted(found, key=lambda group: group[0])


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        tabular = path.name.lower().removesuffix(".gz").endswith(SUFFIXES)
        litter = any(map(is_litter, path.relative_to(folder).parts))
        if tabular and not litter and path.is_file() and not is_empty(path):
            yield path


def guess_layout(path: Path) -> Layout:
    """How a CSV file is written: its encoding by its bytes, its delimiter by the line of names, and whether a backslash
    stands before quotes; the usual for files of other kinds.

    Raises:
        SourceError: a compressed file is damaged.
    """
    suffix = path.name.lower().removesuffix(".gz")
    if not suffix.endswith((".csv", ".tsv")):
        return Layout()
    encoding = _guess_encoding(path)
    with open_binary(path) as file:
        first = file.read(_HEAD).decode(encoding, "replace").lstrip("\ufeff").lstrip().splitlines()[:1]
    usual = "\t" if suffix.endswith(".tsv") else ","
    head = first[0] if first else ""
    others = [mark for mark in (";", "\t", "|", ",") if mark != usual and mark in head]
    layout = Layout(delimiter=others[0] if others and usual not in head else None, encoding=encoding)
    return layout._replace(escape=guess_escape(path, layout))


_HEAD = 1 << 16


def _guess_encoding(path: Path) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_binary(path) as file:
        block = file.read(_HEAD)
        if block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        while block:
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                return "cp1252"
            block = file.read(_HEAD)
    return "utf-8"


def _without_suffix(name: str) -> str:
    name = name[:-3] if name.lower().endswith(".gz") else name
    return next((name[: -len(end)] for end in SUFFIXES if name.lower().endswith(end)), name)
