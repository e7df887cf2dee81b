import duckdb
import pandas as pd
import pytest

from skb_pipeline.storage.duck import connect, content_hash, frame_hash


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
