import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.storage.duck import EMPTY, connect, content_hash, content_hashes, frame_hash


def test_hash_ignores_row_order_but_not_values() -> None:
    frame = pd.DataFrame({"id": ["a", "b", "c"], "n": [1, 2, 2]})
    assert frame_hash(frame) == frame_hash(frame.sample(frac=1, random_state=3))
    swapped = frame.assign(n=[2, 1, 2])
    assert frame_hash(frame) != frame_hash(swapped)


def test_hash_counts_repeated_rows_and_tells_null_from_empty() -> None:
    once = pd.DataFrame({"a": ["x", "y"]})
    assert frame_hash(once) != frame_hash(pd.concat([once, once.head(1)]))
    # Two copies cancel each other under xor alone.
    assert frame_hash(pd.DataFrame({"a": ["x", "x"]})) != frame_hash(pd.DataFrame({"a": ["y", "y"]}))
    assert frame_hash(pd.DataFrame({"a": ["x", None]})) != frame_hash(pd.DataFrame({"a": ["x", ""]}))


def test_empty_result_has_a_hash() -> None:
    with connect() as con:
        assert len(content_hash(con, "SELECT 1 AS a WHERE false")) == 64


def test_python_names_are_no_tables() -> None:
    local_frame = pd.DataFrame({"a": [1]})
    assert len(local_frame) == 1
    with connect() as con, pytest.raises(duckdb.CatalogException):
        con.execute("SELECT * FROM local_frame")


@given(
    rows=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=20),
    part_of=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y"])),
)
def test_hashes_of_parts_and_of_the_whole_equal_those_taken_one_by_one(
    rows: list[tuple[str, int]], part_of: dict[str, str]
) -> None:
    frame = pd.DataFrame(rows, columns=["k", "v"]).astype({"k": "string", "v": "int64"})
    parts = pd.DataFrame({"k": list(part_of), "part": list(part_of.values())}, dtype="string")
    with connect() as con:
        con.register("rows", frame)
        con.register("parts", parts)
        whole, by_part = content_hashes(con, "SELECT k, v FROM rows", parts="SELECT k, part FROM parts", key="k")
        assert whole == content_hash(con, "SELECT k, v FROM rows")
        for part in ("x", "y"):
            query = "SELECT k, v FROM rows WHERE k IN (SELECT k FROM parts WHERE part = ?)"
            assert by_part.get(part, EMPTY) == content_hash(con, query, [part])
