"""Files into rows (nodes, questions) or columns (edges); nothing is guessed.

Ids arrive as text: text keeps its letters, integers give their digits. Anything else is refused, as ``7`` and ``7.0``
would be two nodes. In a CSV file every cell is text and only an empty one is missing. Values of Parquet and JSONL come
in one form, see ``values``. Files are read in batches.

Rows are numbered from 1; a CSV file's line of names is not counted, in a JSONL file the number is that of the line.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables.files import open_binary, open_text, utf8_blocks
from skb_pipeline.datasets.sources.tables.values import (
    UnreadableError,
    id_texts,
    is_id,
    is_list_of_ids,
    plain_json,
    plain_values,
)
from skb_pipeline.text.cleaning import storable

if TYPE_CHECKING:
    from skb_pipeline.datasets.sources.tables.csv_kernels import Scan

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
NOT_JSON = "line is not a JSON object"
RAGGED = "row has another number of cells than the file has columns"
STRAY = 'row has text behind a closing quote (where a backslash stands before quotes in cells, say escape: "\\\\")'
BAD_ID = "id is neither text nor an integer"
_ROW_BATCH = 4_096
_COLUMN_BATCH = 200_000
# A CSV row must fit into a block; a block is all that is in memory.
_CSV_BLOCK = 32 << 20
_SHOWN = 500


class Layout(NamedTuple):
    """How CSV files are written; ``delimiter`` None means by suffix, ``escape`` None that quotes are doubled only."""

    delimiter: str | None = None
    encoding: str = "utf-8"
    header: bool = True
    quotes: bool = True
    escape: str | None = None


PLAIN = Layout()


class Row(NamedTuple):
    """One row. With a ``fault`` (the reason) it could not be read, and ``values`` is ``{"text": the row}``."""

    number: int
    values: dict[str, Any]
    fault: str | None = None


@dataclass
class _Faults:
    """Rows of a CSV file that are left out.

    Attributes:
        ragged: row number -> text, as the reader of rows tells them.
        stray: int64 [n, 4]: (row number, line, first byte, byte behind) of rows with text behind a closing quote.
    """

    ragged: dict[int, str] = field(default_factory=dict)
    stray: np.ndarray = field(default_factory=lambda: np.empty((0, 4), dtype=np.int64))

    def rows(self, path: Path, layout: Layout) -> Iterator[Row]:
        """All of them, each with its fault."""
        apart = set(self.stray[:, 0].tolist())
        for number, text in self.ragged.items():
            if number not in apart:
                yield Row(number, {"text": text}, RAGGED)
        texts = _texts_between(path, layout, [(start, end) for _, _, start, end in self.stray.tolist()])
        for (number, line, _, _), text in zip(self.stray.tolist(), texts, strict=True):
            yield Row(number, {"text": text, "line": line}, STRAY)


def suffix(path: Path) -> str:
    """Kind of file: one of :data:`SUFFIXES`.

    Raises:
        SourceError: the file is of no known kind.
    """
    name = path.name.lower().removesuffix(".gz")
    found = next((s for s in SUFFIXES if name.endswith(s)), None)
    if found is None or (found == ".parquet" and path.name.lower().endswith(".gz")):
        raise SourceError(f"{path.name}: no table; known are {', '.join(SUFFIXES)}, all but Parquet also with .gz")
    return found


def column_names(path: Path, layout: Layout = PLAIN, *, sample: int = 1_000) -> list[str]:
    """Columns of a file; of a JSONL file the keys of the first ``sample`` rows."""
    kind = suffix(path)
    if kind == ".parquet":
        return list(_parquet(path).schema_arrow.names)
    if kind in (".csv", ".tsv"):
        return _csv_names(path, layout)
    rows = islice(_json_rows(path), sample)
    return list(dict.fromkeys(key for row in rows if row.fault is None for key in row.values))


def read_rows(
    path: Path,
    columns: Sequence[str],
    ids: Sequence[str],
    layout: Layout = PLAIN,
    *,
    lost: Counter[str] | None = None,
    tolerant: bool = False,
) -> Iterator[Row]:
    """Every row with the named columns, those in ``ids`` as text; a missing or empty cell is None.

    Rows that cannot be read come with a fault. Values may be nested; their form is that of ``values``.

    Args:
        lost: gets, as ``column: kind``, how many values lost something on the way.
        tolerant: a Parquet value without a form in JSON is counted in ``lost`` and None; otherwise it is an error.

    Raises:
        SourceError: the file as a whole or a Parquet value cannot be read, or the file lacks a column (a JSONL file has
            no fixed columns: a key that is absent is an empty cell).
    """
    lost = Counter() if lost is None else lost
    if suffix(path) in (".jsonl", ".ndjson"):
        for row in _json_rows(path):
            yield row if row.fault else _with_text_ids(row, columns, ids)
        return
    wanted = _present(path, columns, layout)
    if suffix(path) == ".parquet":
        yield from _parquet_rows(path, wanted, ids, lost, tolerant)
        return
    faults = _Faults()
    for numbers, batch in _csv_batches(path, wanted, layout, faults, _ROW_BATCH):
        for number, values in zip(numbers, batch.to_pylist(), strict=True):
            yield Row(int(number), values)
    yield from faults.rows(path, layout)


def read_columns(
    path: Path, columns: Sequence[str], layout: Layout = PLAIN, *, lists: Sequence[str] = ()
) -> Iterator[tuple[pa.Array, dict[str, pa.Array]]]:
    """Batches of (row numbers: int64, column -> strings); columns in ``lists`` may be lists of strings.

    Raises:
        SourceError: the file, one of its rows or an id cannot be read; names file and row.
    """
    if suffix(path) in (".jsonl", ".ndjson"):
        yield from _json_columns(path, columns, lists)
        return
    wanted = _present(path, columns, layout)
    if suffix(path) == ".parquet":
        for first, batch in _parquet_batches(path, wanted, _COLUMN_BATCH):
            arrays = {name: _ids(path, first, batch, name, may_be_list=name in lists) for name in wanted}
            yield pa.array(np.arange(first, first + batch.num_rows), pa.int64()), arrays
        return
    faults = _Faults()
    for numbers, batch in _csv_batches(path, wanted, layout, faults, _COLUMN_BATCH):
        _refuse(path, layout, faults)
        yield pa.array(numbers, pa.int64()), {name: batch.column(name) for name in wanted}
    _refuse(path, layout, faults)


def _refuse(path: Path, layout: Layout, faults: _Faults) -> None:
    for row in faults.rows(path, layout):
        line = f" (line {row.values['line']})" if "line" in row.values else ""
        raise SourceError(f"{path.name}:{row.number}{line}: {row.fault}: {row.values['text'][:80]!r}")


def _present(path: Path, columns: Sequence[str], layout: Layout) -> list[str]:
    wanted = list(dict.fromkeys(columns))
    missing = sorted(set(wanted) - set(names := column_names(path, layout)))
    if missing:
        raise SourceError(f"{path.name}: columns {missing} are missing; there are {names}")
    return wanted


# ------------------------------------------------------------------------------------------------------ Parquet


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path.name}: is no Parquet file: {error}") from error


def _parquet_batches(path: Path, columns: list[str], size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(number of the first row, columns) in batches."""
    first = 1
    batches = _parquet(path).iter_batches(batch_size=size, columns=columns)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"{path.name}: cannot be read behind row {first - 1}: {error}") from error
        if batch is None:
            return
        yield first, batch
        first += batch.num_rows


def _parquet_rows(
    path: Path, columns: list[str], ids: Sequence[str], lost: Counter[str], tolerant: bool
) -> Iterator[Row]:
    for first, batch in _parquet_batches(path, columns, _ROW_BATCH):
        values = [
            _ids(path, first, batch, name, may_be_list=False).to_pylist()
            if name in ids
            else _values(path, first, batch.column(name), name, lost, tolerant)
            for name in columns
        ]
        for number, row in enumerate(zip(*values, strict=True), start=first):
            yield Row(number, dict(zip(columns, row, strict=True)))


def _values(path: Path, first: int, column: pa.Array, name: str, lost: Counter[str], tolerant: bool) -> list[Any]:
    counts: Counter[str] = Counter()
    try:
        values = plain_values(column, counts)
    except UnreadableError as error:
        if not tolerant:
            row, reason = _unreadable_row(column, first) or (first, error)
            raise SourceError(f"{path.name}:{row}: {name}: {reason}") from error
        values = []
        for i in range(len(column)):
            try:
                values += plain_values(column.slice(i, 1), counts)
            except UnreadableError as unfit:
                values.append(None)
                counts[str(unfit)] += 1
    for kind, n in counts.items():
        if n:
            lost[f"{name}: {kind}"] += n
    return values


def _unreadable_row(column: pa.Array, first: int) -> tuple[int, UnreadableError] | None:
    for i in range(len(column)):
        try:
            plain_values(column.slice(i, 1), Counter())
        except UnreadableError as error:
            return first + i, error
    return None


def _ids(path: Path, first: int, batch: pa.RecordBatch, name: str, *, may_be_list: bool) -> pa.Array:
    column = batch.column(name)
    kind = column.type
    if not (is_id(kind) or (may_be_list and is_list_of_ids(kind))):
        raise SourceError(f"{path.name}: {name}: ids must be text or integers, this column is {kind}")
    try:
        return id_texts(column)
    except UnreadableError as error:
        row = next((first + i for i in range(len(column)) if not _is_readable_id(column.slice(i, 1))), first)
        raise SourceError(f"{path.name}:{row}: {name}: {error}") from error


def _is_readable_id(value: pa.Array) -> bool:
    try:
        id_texts(value)
    except UnreadableError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------- CSV


def guess_escape(path: Path, layout: Layout = PLAIN) -> str | None:
    """A backslash, when a CSV file has text behind closing quotes or an open quote at its end and would have neither
    if a backslash made the next character an ordinary one. None for files of other kinds.
    """
    if suffix(path) not in (".csv", ".tsv") or not layout.quotes:
        return None
    plain = _scan(path, layout)
    if plain is None or (plain.unclosed is None and not len(plain.stray)):
        return None
    escaped = _scan(path, layout._replace(escape="\\"))
    return "\\" if escaped is not None and escaped.unclosed is None and not len(escaped.stray) else None


def _scan(path: Path, layout: Layout) -> Scan | None:
    """Where quotes of a CSV file are faulty; None when there are none. The file is read to its end in either case."""
    if not layout.quotes:
        return None
    if not any(b'"' in block for block in utf8_blocks(path, layout.encoding)):
        return None
    from skb_pipeline.datasets.sources.tables.csv_kernels import scan

    return scan(utf8_blocks(path, layout.encoding), _delimiter(path, layout), layout.escape)


def _csv_batches(
    path: Path, columns: list[str], layout: Layout, faults: _Faults, size: int
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """(row numbers, columns) in batches; ``faults`` has all faulty rows before the last of a batch."""
    names = _csv_names(path, layout)
    if not names:
        return
    header = 1 if layout.header else 0
    scan = _scan(path, layout)
    if scan is not None:
        if scan.unclosed is not None:
            raise SourceError(f"{path.name}: the quote opened in the row at line {scan.unclosed} is never closed")
        faults.stray = scan.stray + np.array([1 - header, 0, 0, 0])
    stray = faults.stray[:, 0]
    row = 0
    for batch in _arrow_batches(path, columns, names, layout, faults, header):
        numbers = _numbers(row, batch.num_rows, faults)
        row = int(numbers[-1]) if len(numbers) else row
        if len(stray):
            kept = ~np.isin(numbers, stray)
            numbers, batch = numbers[kept], batch.filter(pa.array(kept))
        for start in range(0, batch.num_rows, size):
            yield numbers[start : start + size], batch.slice(start, size)
    if scan is not None and max([row, *faults.ragged]) != scan.rows - header:
        raise SourceError(f"{path.name}: its rows cannot be told apart: {scan.rows - header} by quotes, {row} as read")


def _numbers(last: int, count: int, faults: _Faults) -> np.ndarray:
    """The ``count`` row numbers that follow ``last``, without those of ragged rows."""
    numbers = np.arange(last + 1, last + 1 + count + len(faults.ragged))
    return numbers[~np.isin(numbers, list(faults.ragged))][:count] if faults.ragged else numbers


def _arrow_batches(
    path: Path, columns: list[str], names: list[str], layout: Layout, faults: _Faults, header: int
) -> Iterator[pa.RecordBatch]:
    def skip(row: Any) -> str:
        faults.ragged[row.number - header] = str(row.text)[:_SHOWN]
        return "skip"

    try:
        with open_binary(path) as file:
            reader = pcsv.open_csv(
                file,
                read_options=pcsv.ReadOptions(
                    block_size=_CSV_BLOCK, use_threads=False, encoding=layout.encoding,
                    column_names=None if layout.header else names,
                ),
                parse_options=pcsv.ParseOptions(
                    delimiter=_delimiter(path, layout), quote_char='"' if layout.quotes else False,
                    escape_char=layout.escape or False, newlines_in_values=layout.quotes, invalid_row_handler=skip,
                ),
                convert_options=pcsv.ConvertOptions(
                    include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), null_values=[""],
                    strings_can_be_null=True, quoted_strings_can_be_null=True,
                ),
            )  # fmt: skip
            yield from reader
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path.name}: cannot be read: {error}") from error


def _texts_between(path: Path, layout: Layout, places: list[tuple[int, int]]) -> Iterator[str]:
    """What stands between two bytes of a CSV file (first, one behind), shortened; places come in order."""
    left, at = b"", 0
    waiting = iter(places)
    place = next(waiting, None)
    if place is None:
        return
    for block in utf8_blocks(path, layout.encoding):
        left, at = left + block, at - len(left)
        while place is not None and (end := min(place[1], place[0] + _SHOWN)) <= at + len(left):
            yield left[place[0] - at : end - at].decode("utf-8", "replace")
            place = next(waiting, None)
        if place is None:
            return
        left, at = left[max(place[0] - at, 0) :], at + len(left)


def _csv_names(path: Path, layout: Layout) -> list[str]:
    # Bytes that are no text are told by the reader of the whole file.
    with open_text(path, layout.encoding, errors="replace") as file, _large_cells():
        try:
            first: list[str] = next((row for row in _csv_reader(path, file, layout) if row), [])
        except csv.Error as error:
            raise SourceError(f"{path.name}:1: cannot be read: {error}") from error
    names = first if layout.header else [str(i) for i in range(1, len(first) + 1)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(f"{path.name}: columns {twice} occur twice")
    return names


@contextmanager
def _large_cells() -> Iterator[None]:
    limit = csv.field_size_limit(1 << 31)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _csv_reader(path: Path, file: IO[str], layout: Layout) -> Any:
    return csv.reader(
        file,
        delimiter=_delimiter(path, layout),
        strict=True,
        quoting=csv.QUOTE_MINIMAL if layout.quotes else csv.QUOTE_NONE,
        escapechar=layout.escape,
    )


def _delimiter(path: Path, layout: Layout) -> str:
    return layout.delimiter or ("\t" if suffix(path) == ".tsv" else ",")


# -------------------------------------------------------------------------------------------------------- JSONL


def _json_rows(path: Path) -> Iterator[Row]:
    """Every line that is not blank. Broken surrogate pairs and huge integers survive as they are."""
    with open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                # Bytes, because Python then takes a lone surrogate that was encoded and a byte order mark.
                values = json.loads(line)
            except (ValueError, RecursionError):
                values = None
            if isinstance(values, dict):
                yield Row(number, values)
            else:
                yield Row(number, {"text": line[:_SHOWN].decode("utf-8", "replace").strip()}, NOT_JSON)


def _with_text_ids(row: Row, columns: Sequence[str], ids: Sequence[str]) -> Row:
    values = {name: plain_json(row.values.get(name)) for name in columns}
    for name in ids:
        if not _is_id(values[name]):
            return Row(row.number, {"text": json.dumps(row.values)[:_SHOWN]}, BAD_ID)
        values[name] = None if values[name] in (None, "") else str(values[name])
    return Row(row.number, values)


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _json_columns(
    path: Path, columns: Sequence[str], lists: Sequence[str]
) -> Iterator[tuple[pa.Array, dict[str, pa.Array]]]:
    rows = _json_rows(path)
    while chunk := list(islice(rows, _ROW_BATCH * 8)):
        for row in chunk:
            if row.fault:
                raise SourceError(f"{path.name}:{row.number}: {row.fault}: {row.values['text'][:80]!r}")
        arrays = {}
        for name in columns:
            values = [row.values.get(name) for row in chunk]
            if name in lists and any(isinstance(value, list) for value in values):
                values = [value if isinstance(value, list) else [] if value is None else [value] for value in values]
                arrays[name] = _text_array(values, path, chunk, name, nested=True)
            else:
                arrays[name] = _text_array(values, path, chunk, name, nested=False)
        yield pa.array([row.number for row in chunk], pa.int64()), arrays


def _text_array(values: list[Any], path: Path, rows: list[Row], column: str, *, nested: bool) -> pa.Array:
    for row, value in zip(rows, values, strict=True):
        for item in value if nested else (value,):
            if not _is_id(item):
                raise SourceError(f"{path.name}:{row.number}: {column}: {BAD_ID}: {str(item)[:80]!r}")
    if nested:
        texts: list[Any] = [[_storable(item) for item in value if item is not None] for value in values]
        return pa.array(texts, pa.list_(pa.string()))
    return pa.array([_storable(value) for value in values], pa.string())


def _storable(value: str | int | None) -> str | None:
    """Text that Arrow can hold: it refuses broken surrogate pairs."""
    if value is None or value == "":
        return None
    text = str(value)
    return text if text.isascii() else storable(text)


def list_of_texts(column: pa.Array, separator: str | None) -> pa.Array:
    """A column of lists: as it is, or strings split at the separator."""
    if pa.types.is_list(column.type):
        return column
    return pc.split_pattern(column, pattern=separator)
