"""Files into rows (nodes, questions) or columns (edges); nothing is guessed.

Ids arrive as text: text keeps its letters, integers give their digits. Anything else is refused, as ``7`` and ``7.0``
would be two nodes. In a CSV file every cell is text and only an empty one is missing. Files are read in batches.

Rows are numbered from 1; a CSV file's line of names is not counted, in a JSONL file the number is that of the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.text.cleaning import clean_text

SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
NOT_JSON = "line is not a JSON object"
RAGGED = "row has another number of cells than the file has columns"
BAD_ID = "id is neither text nor an integer"
_ROW_BATCH = 4_096
_COLUMN_BATCH = 200_000
# A CSV row must fit into a block; a block is all that is in memory.
_CSV_BLOCK = 32 << 20
_SHOWN = 500


class Layout(NamedTuple):
    """How CSV files are written; ``delimiter`` None means by suffix."""

    delimiter: str | None = None
    encoding: str = "utf-8"
    header: bool = True
    quotes: bool = True


PLAIN = Layout()


class Row(NamedTuple):
    """One row. With a ``fault`` (the reason) it could not be read, and ``values`` is ``{"text": the row}``."""

    number: int
    values: dict[str, Any]
    fault: str | None = None


@dataclass
class _Faults:
    """Rows a CSV reader left out, by number."""

    rows: dict[int, str] = field(default_factory=dict)

    def skip(self, row: Any) -> str:
        """Handler for ``pyarrow.csv``; its row numbers count the line of names."""
        self.rows[row.number] = str(row.text)[:_SHOWN]
        return "skip"


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


def read_rows(path: Path, columns: Sequence[str], ids: Sequence[str], layout: Layout = PLAIN) -> Iterator[Row]:
    """Every row with the named columns, those in ``ids`` as text; a missing or empty cell is None.

    Rows that cannot be read come with a fault. Values may be nested; dates are ISO text.

    Raises:
        SourceError: the file as a whole cannot be read, or lacks a column (a JSONL file has no fixed columns: a key
            that is absent is an empty cell).
    """
    if suffix(path) in (".jsonl", ".ndjson"):
        for row in _json_rows(path):
            yield row if row.fault else _with_text_ids(row, columns, ids)
        return
    faults = _Faults()
    for numbers, batch in _batches(path, columns, ids, layout, faults, _ROW_BATCH):
        for number, values in zip(numbers, batch.to_pylist(), strict=True):
            yield Row(int(number), values)
    for number, text in faults.rows.items():
        yield Row(number, {"text": text}, RAGGED)


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
    faults = _Faults()
    for numbers, batch in _batches(path, columns, columns, layout, faults, _COLUMN_BATCH, lists):
        _refuse(path, faults)
        yield pa.array(numbers, pa.int64()), {name: batch.column(name) for name in columns}
    _refuse(path, faults)


def _refuse(path: Path, faults: _Faults) -> None:
    for row, text in faults.rows.items():
        raise SourceError(f"{path.name}:{row}: {RAGGED}: {text[:80]!r}")


# ---------------------------------------------------------------------------------------------- Parquet and CSV


def _batches(
    path: Path, columns: Sequence[str], ids: Sequence[str], layout: Layout, faults: _Faults, size: int,
    lists: Sequence[str] = (),
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:  # fmt: skip
    """(row numbers, columns) in batches; ``ids`` are cast to text."""
    wanted = list(dict.fromkeys(columns))
    missing = sorted(set(wanted) - set(names := column_names(path, layout)))
    if missing:
        raise SourceError(f"{path.name}: columns {missing} are missing; there are {names}")
    if suffix(path) == ".parquet":
        file = _parquet(path)
        casts = {n: _text_type(path, file.schema_arrow.field(n), n in ids, n in lists) for n in wanted}
        row = 0
        for batch in file.iter_batches(batch_size=size, columns=wanted):
            numbers = np.arange(row + 1, row + batch.num_rows + 1)
            row += batch.num_rows
            yield numbers, pa.RecordBatch.from_arrays([_cast(batch.column(n), casts[n]) for n in wanted], names=wanted)
        return
    row = 0
    for batch in _csv_batches(path, wanted, names, layout, faults):
        numbers = _numbers(row, batch.num_rows, faults)
        row = int(numbers[-1]) if len(numbers) else row
        for start in range(0, batch.num_rows, size):
            yield numbers[start : start + size], batch.slice(start, size)


def _numbers(last: int, count: int, faults: _Faults) -> np.ndarray:
    """The ``count`` row numbers that follow ``last``, without those of faulty rows."""
    numbers = np.arange(last + 1, last + 1 + count + len(faults.rows))
    return numbers[~np.isin(numbers, list(faults.rows))][:count] if faults.rows else numbers


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise SourceError(f"{path.name}: is no Parquet file: {error}") from error


def _text_type(path: Path, column: pa.Field, is_id: bool, may_be_list: bool) -> pa.DataType | None:
    """What a Parquet column is cast to; None leaves it as it is."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_id:
        if may_be_list and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            _text_type(path, kind.value_field.with_name(column.name), True, False)
            return pa.list_(pa.string())
        if not (pa.types.is_integer(kind) or _is_text(kind) or pa.types.is_null(kind)):
            raise SourceError(f"{path.name}: {column.name}: ids must be text or integers, this column is {kind}")
        return pa.string()
    if _is_text(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.string()
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _cast(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    return column if kind is None or column.type == kind else column.cast(kind)


def _csv_batches(
    path: Path, columns: list[str], names: list[str], layout: Layout, faults: _Faults
) -> Iterator[pa.RecordBatch]:
    if not names:
        return
    _check_quotes(path, layout)
    first = 1 if layout.header else 0
    shifted = _Faults()
    try:
        reader = pcsv.open_csv(
            path,
            read_options=pcsv.ReadOptions(
                block_size=_CSV_BLOCK, use_threads=False, encoding=layout.encoding,
                column_names=None if layout.header else names,
            ),
            parse_options=pcsv.ParseOptions(
                delimiter=_delimiter(path, layout), quote_char='"' if layout.quotes else False,
                newlines_in_values=layout.quotes, invalid_row_handler=shifted.skip,
            ),
            convert_options=pcsv.ConvertOptions(
                include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), null_values=[""],
                strings_can_be_null=True, quoted_strings_can_be_null=True,
            ),
        )  # fmt: skip
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            finally:
                faults.rows |= {number - first: text for number, text in shifted.rows.items()}
            yield batch
    except pa.ArrowInvalid as error:
        raise SourceError(f"{path.name}: cannot be read: {error}") from error


def _csv_names(path: Path, layout: Layout) -> list[str]:
    # Bytes that are no text are told by the reader of the whole file.
    with text_file(path, layout.encoding, errors="replace") as file:
        try:
            first: list[str] = next((row for row in _csv_reader(path, file, layout) if row), [])
        except csv.Error as error:
            raise SourceError(f"{path.name}:1: cannot be read: {error}") from error
    names = first if layout.header else [str(i) for i in range(1, len(first) + 1)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SourceError(f"{path.name}: columns {twice} occur twice")
    return names


def _check_quotes(path: Path, layout: Layout) -> None:
    """A quote that is never closed would swallow the rest of the file, without an error.

    An even number of quotes cannot end inside one, so that most files are only counted through.
    """
    if not layout.quotes:
        return
    with _binary_file(path) as file:
        odd = sum(block.count(b'"') for block in iter(lambda: file.read(1 << 20), b"")) % 2
    if not odd:
        return
    line, limit = 1, csv.field_size_limit(1 << 31)
    try:
        with text_file(path, layout.encoding) as text:
            reader = _csv_reader(path, text, layout)
            for _ in reader:
                line = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise SourceError(f"{path.name}: the quote opened in the row at line {line} is never closed") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path.name}: cannot be read: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _csv_reader(path: Path, file: IO[str], layout: Layout) -> Any:
    delimiter = _delimiter(path, layout)
    if not layout.quotes:
        return csv.reader(file, delimiter=delimiter, strict=True, quoting=csv.QUOTE_NONE)
    return csv.reader(file, delimiter=delimiter, strict=True)


def _delimiter(path: Path, layout: Layout) -> str:
    return layout.delimiter or ("\t" if suffix(path) == ".tsv" else ",")


def _binary_file(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")  # type: ignore[return-value]


def text_file(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    """A text file, perhaps compressed, with its newlines as they are; a byte order mark is skipped."""
    return io.TextIOWrapper(_binary_file(path), "utf-8-sig" if encoding == "utf-8" else encoding, errors, newline="")


# -------------------------------------------------------------------------------------------------------- JSONL


def _json_rows(path: Path) -> Iterator[Row]:
    """Every line that is not blank. Broken surrogate pairs and huge integers survive as they are."""
    with _binary_file(path) as file:
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
    values = {name: row.values.get(name) for name in columns}
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
    return text if text.isascii() else clean_text(text)


def list_of_texts(column: pa.Array, separator: str | None) -> pa.Array:
    """A column of lists: as it is, or strings split at the separator."""
    if pa.types.is_list(column.type):
        return column
    return pc.split_pattern(column, pattern=separator)
