"""The tables in a folder and what their columns look like; the ground on which ``drafting`` guesses."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables.reading import SUFFIXES, column_names, read_rows

_INTEGER = r"\A(0|-?[1-9][0-9]{0,17})\z"
_NUMBER = r"\A[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\z"


@dataclass
class Column:
    """One column.

    Attributes:
        name: as in the file.
        texts: its values as text, None where empty or not a single value.
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
            self.kinds[_KINDS.get(type(value), "text")] += 1
            text = _text(value)
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
        return pa.array([t if t is None else t.encode("utf-8", "replace").decode() for t in self.texts], pa.string())

    @cached_property
    def distinct(self) -> set[str]:
        """Its different single values."""
        return {text for text in self.texts if text is not None}

    @property
    def is_key(self) -> bool:
        """Every row has a value of its own that can be an id."""
        return (
            len(self.distinct) == len(self.texts) > 0
            and not self.kinds["number"]
            and max(map(len, self.distinct)) <= 200
        )

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
    return str(value).lower() if isinstance(value, bool) else str(value)


def _all_match(array: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py())


@dataclass
class Table:
    """Files with the same columns.

    Attributes:
        pattern: glob below the folder.
        columns: by name.
        rows: number of rows.
        unreadable: rows that could not be read.
    """

    pattern: str
    columns: dict[str, Column]
    rows: int = 0
    unreadable: int = 0

    @property
    def stem(self) -> str:
        """Name of the files without folder, suffix and running numbers."""
        name = self.pattern.rsplit("/", 1)[-1].removesuffix(".gz")
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        return re.sub(r"[-_. ]*\*.*", "", name) or self.pattern.split("/", maxsplit=1)[0]

    @property
    def keys(self) -> list[Column]:
        """Columns that can be ids, in the order of the file."""
        return [column for column in self.columns.values() if column.is_key]


def read_tables(folder: Path) -> list[Table]:
    """All tables below a folder, read whole.

    Raises:
        SourceError: a file cannot be read.
    """
    tables = []
    for pattern, paths in _groups(folder):
        names = list(dict.fromkeys(name for path in paths for name in column_names(path)))
        table = Table(pattern, {name: Column(name) for name in names})
        for path in paths:
            _read(table, path)
        tables.append(table)
    return tables


def _read(table: Table, path: Path) -> None:
    present = column_names(path)
    for row in read_rows(path, present, []):
        if row.fault:
            table.unreadable += 1
            continue
        table.rows += 1
        for name, column in table.columns.items():
            column.add(row.values.get(name))


def _groups(folder: Path) -> list[tuple[str, list[Path]]]:
    """(glob, files): files whose names differ by a running number only, with the same columns, are one table."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Path]] = defaultdict(list)
    for path in _files(folder):
        shown = path.relative_to(folder)
        pattern = (shown.parent / re.sub(r"[0-9]+", "*", shown.name)).as_posix()
        grouped[pattern, tuple(column_names(path))].append(path)
    found = []
    for (pattern, _), paths in grouped.items():
        if len(paths) > 1 and sorted(folder.glob(pattern)) == sorted(paths):
            found.append((pattern, paths))
        else:
            found += [(path.relative_to(folder).as_posix(), [path]) for path in paths]
    return sorted(found)


def _files(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.rglob("*")):
        name = path.name.lower().removesuffix(".gz")
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and name.endswith(SUFFIXES) and not hidden:
            try:
                column_names(path)
            except SourceError as error:
                raise SourceError(f"{folder}: {error}") from error
            yield path
