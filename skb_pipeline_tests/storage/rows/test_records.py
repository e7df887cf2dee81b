"""Records on the disk: the SQLite file. What it promises is in ``test_contract``."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.storage.rows.records import Record, RecordRows, RecordRowsError
from skb_pipeline_tests.storage.rows.caches import KINDS, key
from skb_pipeline_tests.storage.rows.test_contract import killed, writer

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=[]))
VALUES = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=9
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_a_record_comes_back_as_it_was(record: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with RecordRows(Path(folder), "thing") as cache:
            cache.put([key("k")], [record])
        with RecordRows(Path(folder), "thing") as cache:
            assert cache.get([key("k")]) == [record]


@pytest.mark.parametrize("value", [["a list"], {"a": object()}, {"a": float("inf")}])
def test_what_is_no_json_object_is_refused(tmp_path: Path, value: Record) -> None:
    with RecordRows(tmp_path, "thing") as cache:
        with pytest.raises(ValueError, match=f"record of {key('b')} is no"):
            cache.put([key("a"), key("b")], [{}, value])
        assert len(cache) == 0


def test_a_file_of_the_first_layout_is_used_as_it_is(tmp_path: Path) -> None:
    """As it was written when there were caches of replies only."""
    kept = {"text": "{}", "reasoning": None, "finish_reason": "stop", "milliseconds": 12.5}
    path = tmp_path / "completions.sqlite3"
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("PRAGMA journal_mode = WAL")
    con.execute("CREATE TABLE IF NOT EXISTS completions (key TEXT PRIMARY KEY, completion TEXT NOT NULL)")
    con.execute("INSERT INTO completions VALUES (?, ?) ON CONFLICT DO NOTHING", (key("old"), json.dumps(kept)))
    con.close()
    with RecordRows(tmp_path, "completion") as cache:
        assert cache.missing([key("new"), key("old")]) == [key("new")]
        assert cache.get([key("old")]) == [kept]
        cache.put([key("new"), key("old")], [{"text": "new"}, {"text": "other"}])
    # And a new file looks like an old one.
    with RecordRows(tmp_path / "new", "completion") as cache:
        cache.put([key("a")], [{"text": "ä"}])
        schema = "SELECT sql FROM sqlite_master WHERE type = 'table'"
        files = [sqlite3.connect(file) for file in (path, cache.path)]
        assert files[0].execute(schema).fetchall() == files[1].execute(schema.replace(" IF NOT EXISTS", "")).fetchall()
        assert files[0].execute("SELECT completion FROM completions ORDER BY rowid").fetchall() == [
            (json.dumps(kept),), (json.dumps({"text": "new"}),),
        ]  # fmt: skip
        assert files[1].execute("SELECT key, completion FROM completions").fetchall() == [
            (key("a"), '{"text": "\\u00e4"}')
        ]


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "things.sqlite3").write_bytes(b"no database at all, but long enough to be read as one" * 20)
    with pytest.raises(RecordRowsError, match=r"things\.sqlite3"):
        RecordRows(tmp_path, "thing")
    with pytest.raises(ValueError, match="is no identifier"):
        RecordRows(tmp_path, "things; DROP TABLE x")


def test_another_process_is_seen_at_once(tmp_path: Path) -> None:
    with RecordRows(tmp_path, "thing") as one, RecordRows(tmp_path, "thing") as two:
        one.put([key("a")], [{}])
        assert two.missing([key("a")]) == []
        assert len(two) == 1


KILLED_BEFORE_COMMIT = """
import os, signal, sys
from pathlib import Path
from skb_pipeline.storage.rows.records import RecordRows
from skb_pipeline_tests.storage.rows.caches import key
cache = RecordRows(Path(sys.argv[1]), "thing")
cache.put([key("a")], [{}])
def watch(statement):
    if statement == "COMMIT":
        os.kill(os.getpid(), signal.SIGKILL)
cache._connection.set_trace_callback(watch)
cache.put([key(n) for n in range(9)], [{"n": n} for n in range(9)])
"""


def test_a_process_killed_before_the_end_of_a_put_leaves_nothing_of_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_BEFORE_COMMIT, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    with RecordRows(tmp_path, "thing") as cache:
        assert len(cache) == 1
        cache.put([key(n) for n in range(9)], [{"n": n} for n in range(9)])
        assert len(cache) == 10


def test_torn_writes_cost_only_themselves(tmp_path: Path) -> None:
    process = writer(KINDS["records"], tmp_path, 0, 20, 1)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    killed(process)
    (log,) = tmp_path.glob("*-wal")
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) - 100])
    with RecordRows(tmp_path, "thing") as cache:
        kept = len(cache)
        assert 18 <= kept < 20
        cache.put([key(19)], [{}])
        assert len(cache) == kept + 1


def test_a_reader_makes_no_file_and_reads_what_there_is(tmp_path: Path) -> None:
    with RecordRows(tmp_path / "absent", "thing", must_keep=False) as reader:
        assert reader.missing([key("a")]) == [key("a")]
    assert not (tmp_path / "absent").exists()
    with RecordRows(tmp_path / "it's 100% #1", "thing") as cache:
        cache.put([key("a")], [{"n": 1}])
        with RecordRows(tmp_path / "it's 100% #1", "thing", must_keep=False) as reader:
            assert reader.get([key("a")]) == [{"n": 1}]
            with pytest.raises(RecordRowsError, match="readonly"):
                reader.put([key("b")], [{"n": 2}])
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "things.sqlite3").write_bytes(b"no database, but as long as the header of one would be" * 9)
    with pytest.raises(RecordRowsError, match="not a database"):
        RecordRows(tmp_path / "no", "thing", must_keep=False)
