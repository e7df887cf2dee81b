"""Scalars at any depth of Parquet files, and the same rows in three formats."""

import csv
import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables import TablesArgs, TablesSource
from skb_pipeline.datasets.sources.tables.reading import read_columns, read_rows
from skb_pipeline.datasets.sources.tables.values import REPEATED_KEY
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import toy_spec

UTC5 = dt.timezone(dt.timedelta(hours=5))
DAY = dt.date(1999, 12, 31)
MOMENT = dt.datetime(2024, 2, 29, 1, 30, 0, 250_000)

SCALARS: list[tuple[Any, pa.DataType, Any]] = [
    (0.1, pa.float32(), 0.1),
    (1234.56, pa.float32(), 1234.56),
    (3.0e38, pa.float32(), 3.0e38),
    (np.float16(0.3), pa.float16(), 0.3),
    (0.1 + 0.2, pa.float64(), 0.1 + 0.2),
    (Decimal("7.50"), pa.decimal128(9, 2), "7.50"),
    (Decimal("0.00000012"), pa.decimal256(40, 8), "0.00000012"),
    (Decimal("-120000"), pa.decimal128(9, 0), "-120000"),
    (DAY, pa.date32(), "1999-12-31"),
    (DAY, pa.date64(), "1999-12-31"),
    (dt.time(23, 5), pa.time32("ms"), "23:05:00"),
    (dt.time(23, 5, 1, 120), pa.time64("us"), "23:05:01.00012"),
    (MOMENT, pa.timestamp("ms"), "2024-02-29T01:30:00.25"),
    (MOMENT.replace(microsecond=0), pa.timestamp("s"), "2024-02-29T01:30:00"),
    (MOMENT.replace(tzinfo=UTC5), pa.timestamp("us", "+05:00"), "2024-02-28T20:30:00.25Z"),
    (1, pa.timestamp("ns", "Asia/Tokyo"), "1970-01-01T00:00:00.000000001Z"),
    (dt.timedelta(days=2, hours=3, milliseconds=1500), pa.duration("ms"), "P2DT3H1.5S"),
    (-dt.timedelta(minutes=90), pa.duration("s"), "-PT1H30M"),
    (dt.timedelta(0), pa.duration("us"), "PT0S"),
    ("Zelt für 2".encode(), pa.binary(), "Zelt für 2"),
    (b"abcd", pa.binary(4), "abcd"),
    (2**63 - 1, pa.int64(), 2**63 - 1),
    (2**64 - 1, pa.uint64(), 2**64 - 1),
    (-(2**53) - 1, pa.int64(), -(2**53) - 1),
    (True, pa.bool_(), True),
    ("ß", pa.large_string(), "ß"),
    ("cat", pa.dictionary(pa.int8(), pa.string()), "cat"),
    (None, pa.null(), None),
]


def read(folder: Path, **columns: pa.Array) -> list[dict[str, Any]]:
    path = folder / "t.parquet"
    pq.write_table(pa.table(columns), path)
    return [row.values for row in read_rows(path, list(columns), [])]


@pytest.mark.parametrize(("value", "kind", "expected"), SCALARS, ids=[str(kind) for _, kind, _ in SCALARS])
def test_a_scalar_has_one_form_at_any_depth(tmp_path: Path, value: Any, kind: pa.DataType, expected: Any) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    scalar = pa.array([value, None], plain)
    scalar = scalar if plain == kind else scalar.cast(kind)
    both = pa.array([0, 1])
    in_list = pa.ListArray.from_arrays([0, 0, 2], scalar)
    in_struct = pa.StructArray.from_arrays([scalar, both], ["v", "at"])
    in_map = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "k"]), scalar)
    deep = pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([in_list], ["inner"]))
    first, second = read(
        tmp_path, plain=scalar, list=in_list, struct=in_struct, map=in_map, deep=deep, at=both
    )  # fmt: skip
    there = {} if expected is None else {"v": expected}
    assert first == {
        "plain": expected, "list": [], "struct": {"at": 0, **there}, "map": {} if expected is None else {"k": expected},
        "deep": [{"inner": []}], "at": 0,
    }  # fmt: skip
    assert second == {
        "plain": None, "list": [expected, None], "struct": {"at": 1}, "map": {}, "deep": [{"inner": [expected, None]}],
        "at": 1,
    }  # fmt: skip
    assert type(first["plain"]) is type(expected)


def test_nulls_uuids_repeated_keys_and_keys_that_are_no_text(tmp_path: Path) -> None:
    pairs = pa.array([[(7, "a"), (8, None)], None, [(7, "b"), (7, "c")]], pa.map_(pa.int32(), pa.string()))
    structs = pa.array([None, {"b": None, "a": [None]}, {"b": {"c": None}, "a": None}])
    fixed = pa.array([[1.5, 2.5], None, [0.7, 0.2]], pa.list_(pa.float32(), 2))
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"pairs": pairs, "structs": structs, "fixed": fixed}), path)
    lost: Counter[str] = Counter()
    rows = [row.values for row in read_rows(path, ["pairs", "structs", "fixed"], [], lost=lost)]
    assert rows == [
        {"pairs": {"7": "a"}, "structs": None, "fixed": [1.5, 2.5]},
        {"pairs": None, "structs": {"a": [None]}, "fixed": None},
        {"pairs": {"7": "c"}, "structs": {"b": {}}, "fixed": [0.7, 0.2]},
    ]
    assert lost == {f"pairs: {REPEATED_KEY}": 1}
    if hasattr(pa, "uuid"):
        storage = pa.array([bytes(range(16))], pa.binary(16))
        ids = pa.ExtensionArray.from_storage(pa.uuid(), storage)
        assert read(tmp_path, u=ids) == [{"u": "00010203-0405-0607-0809-0a0b0c0d0e0f"}]


@pytest.mark.parametrize("nested", [False, True])
def test_bytes_that_are_no_text_stop_the_load_by_column_and_row_or_are_counted(tmp_path: Path, nested: bool) -> None:
    values = [b"ok", b"\xfe\xed", b"caf\xc3\xa9", b"\x80"]
    column = pa.array([[v] for v in values], pa.list_(pa.binary())) if nested else pa.array(values)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ["1", "2", "3", "4"], "photo": column}), path)
    with pytest.raises(SourceError, match=r"^t\.parquet:2: photo: bytes that are no text in UTF-8$"):
        list(read_rows(path, ["id", "photo"], ["id"]))
    lost: Counter[str] = Counter()
    found = [row.values["photo"] for row in read_rows(path, ["photo"], [], lost=lost, tolerant=True)]
    assert found == ([["ok"], None, ["café"], None] if nested else ["ok", None, "café", None])
    assert lost == {"photo: bytes that are no text in UTF-8": 2}
    with pytest.raises(SourceError, match=r"^t\.parquet:2: photo: bytes that are no text"):
        list(read_columns(path, ["photo"], lists=["photo"]))


def test_ids_of_edges_come_from_bytes_categories_and_all_lists(tmp_path: Path) -> None:
    ids = pa.array([b"a", "é".encode()])
    lists: list[pa.Array] = [
        pa.array([[1, 2], None], pa.large_list(pa.int64())),
        pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)),
        pa.array([["1", "2"], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([[b"1", b"2"], []]),
    ]
    for column in lists:
        pq.write_table(pa.table({"h": ids, "t": column}), tmp_path / "e.parquet")
        (found,) = [values for _, values in read_columns(tmp_path / "e.parquet", ["h", "t"], lists=["t"])]
        assert found["h"].to_pylist() == ["a", "é"]
        assert found["t"].to_pylist()[0] == ["1", "2"]
        with pytest.raises(SourceError, match=r"e\.parquet: t: ids must be text or integers, this column is"):
            list(read_columns(tmp_path / "e.parquet", ["h", "t"]))
    pq.write_table(pa.table({"h": [1.0]}), tmp_path / "e.parquet")
    with pytest.raises(SourceError, match=r"h: ids must be text or integers, this column is double"):
        list(read_columns(tmp_path / "e.parquet", ["h"], lists=["h"]))


# --------------------------------------------------------------------------------------------- from files to the SKB

FIELDS = {"title": "text", "price": "number", "size": "text", "seen": "text", "stock": "integer", "tags": "texts",
          "about": "json"}  # fmt: skip
SPEC = {
    "node_types": {"item": {"fields": FIELDS, "name_field": "title", "document": ["title"]}},
    "relations": [{"name": "r", "head": "item", "tail": "item"}],
}


def load(folder: Path, name: str) -> tuple[LoadReport, dict[str, dict[str, Any]]]:
    table = {"files": name, "id": "id", "type_value": "item", "fields": {f: f for f in FIELDS},
             "separators": {"tags": "|"}}  # fmt: skip
    source = TablesSource(TablesArgs.model_validate({"folder": str(folder), "nodes": [table]}))
    path = folder / f"{name}.duckdb"
    path.unlink(missing_ok=True)
    report = ingest(toy_spec(**SPEC), source, path)
    with connect(path, read_only=True) as con:
        rows = con.execute("SELECT external_id, fields::VARCHAR FROM nodes").fetchall()
    return report, {external_id: json.loads(text) for external_id, text in rows}


def test_values_that_are_not_finite_become_null_and_are_counted(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    about = [{"a": nan, "b": [inf, 1]}] * 2
    table = {
        "id": ["1", "2"], "title": [nan, 2.5], "price": pa.array([nan, inf], pa.float32()), "size": [inf, 1.0],
        "seen": [None, None], "stock": [None, 2**62], "tags": [[nan, 0.5], []], "about": about,
    }  # fmt: skip
    pq.write_table(pa.table(table, pa.schema([("about", pa.struct([("a", pa.float32()), ("b", pa.list_(pa.float64()))]))
                                              if n == "about" else (n, getattr(c, "type", None) or pa.array(c).type)
                                              for n, c in table.items()])), tmp_path / "n.parquet")  # fmt: skip
    report, stored = load(tmp_path, "n.parquet")
    assert stored["1"] == {"tags": ["0.5"], "about": {"a": None, "b": [None, 1]}}
    assert stored["2"] == {"title": "2.5", "size": "1.0", "stock": 2**62, "about": {"a": None, "b": [None, 1]}}
    assert {k: n for k, n in report.coerced.items() if "finite" in k} == {
        "item.about: not_finite_to_null": 4, "item.price: not_finite_to_null": 2, "item.size: not_finite_to_null": 1,
        "item.tags: not_finite_to_null": 1, "item.title: not_finite_to_null": 1,
    }  # fmt: skip


def test_repeated_keys_of_maps_stand_in_the_load_report(tmp_path: Path) -> None:
    about = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    empty = {name: pa.nulls(1) for name in FIELDS if name != "about"}
    pq.write_table(pa.table({"id": ["1"], **empty, "about": about}), tmp_path / "n.parquet")
    report, stored = load(tmp_path, "n.parquet")
    assert stored == {"1": {"about": {"k": 2}}}
    assert report.out_of_scope == {f"n.parquet: about: {REPEATED_KEY}": 1}


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00|", exclude_categories=["Cs", "Cc", "Cf"]),
               max_size=5).map(str.strip).filter(bool)  # fmt: skip
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["Size", "color", "Ä", "b", "a"])


@st.composite
def _rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows as a person would write them down, with the objects of all rows of one kind, as Parquet wants it."""
    kinds = {key: draw(st.sampled_from(["text", "float", "date", "list", "object"])) for key in draw(st.sets(KEYS))}
    make = {
        "text": TEXT,
        "float": FLOAT32,
        "date": st.dates(dt.date(1900, 1, 1)),
        "list": st.lists(FLOAT32 | st.none(), max_size=3),
        "object": st.fixed_dictionaries({}, optional={"y": st.integers(-(2**63), 2**63 - 1), "x": TEXT}),
    }
    about = st.fixed_dictionaries({}, optional={key: make[kind] for key, kind in kinds.items()})
    row = st.fixed_dictionaries(
        {"id": st.integers(0, 2**64 - 1)},
        optional={
            "title": TEXT,
            "price": FLOAT32,
            "size": st.decimals(-9999, 9999, places=3),
            "seen": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
            "stock": st.integers(-(2**63), 2**63 - 1),
            "tags": st.lists(TEXT, min_size=1, max_size=3),
            "about": about,
        },
    )
    return draw(st.lists(row, min_size=1, max_size=5, unique_by=lambda r: r["id"]))


def _json(value: Any) -> Any:
    """A value as JSON writes it, by the rule of the documentation, with the keys of objects in another order."""
    if isinstance(value, dict):
        return {key: _json(value[key]) for key in sorted(value, reverse=True)}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, float):
        return float(np.format_float_positional(np.float32(value), unique=True))
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        whole, _, fraction = value.isoformat().partition(".")
        return f"{whole}.{fraction.rstrip('0')}" if fraction.strip("0") else whole
    return value.isoformat() if isinstance(value, dt.date) else value


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    about = sorted({key for row in rows for key in row.get("about", {})})
    kinds: dict[str, pa.DataType] = {}
    for key in about:
        value = next(row["about"][key] for row in rows if key in row.get("about", {}))
        kinds[key] = (
            pa.list_(pa.float32()) if isinstance(value, list)
            else pa.struct([("x", pa.string()), ("y", pa.int64())]) if isinstance(value, dict)
            else {str: pa.string(), float: pa.float32(), dt.date: pa.date32()}[type(value)]
        )  # fmt: skip
    columns = [("id", pa.uint64()), ("title", pa.string()), ("price", pa.float32()), ("size", pa.decimal128(9, 3)),
               ("seen", pa.timestamp("us")), ("stock", pa.int64()), ("tags", pa.list_(pa.string())),
               *([("about", pa.struct(list(kinds.items())))] if kinds else [("about", pa.null())])]  # fmt: skip
    full = [{**row, "about": row.get("about") if kinds else None} for row in rows]
    return pa.Table.from_pylist(full, pa.schema(columns))


@settings(max_examples=examples(60, quick=4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_rows())
def test_the_same_rows_in_three_formats_are_one_data_version(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(_arrow(rows), tmp_path / "n.parquet")
    with (tmp_path / "n.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(_json(row)) + "\n" for row in rows[::-1])
    parquet, stored = load(tmp_path, "n.parquet")
    jsonl, same = load(tmp_path, "n.jsonl")
    assert stored == same
    assert (parquet.data_version, parquet.identity) == (jsonl.data_version, jsonl.identity)
    for row in rows:
        kept = stored[str(row["id"])]
        assert kept.get("stock") == row.get("stock")
        if "price" in row:
            assert np.float32(kept["price"]) == np.float32(row["price"])
    # A CSV file has no objects.
    flat = [{name: value for name, value in row.items() if name != "about"} for row in rows]
    pq.write_table(_arrow(flat), tmp_path / "n.parquet")
    with (tmp_path / "n.csv").open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, ["id", *FIELDS])
        writer.writeheader()
        for row in flat:
            cells = {name: _json(value) for name, value in row.items()}
            writer.writerow({name: "|".join(v) if isinstance(v, list) else v for name, v in cells.items()})
    assert load(tmp_path, "n.csv")[0].data_version == load(tmp_path, "n.parquet")[0].data_version
