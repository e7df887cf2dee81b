"""Rows that are JSON objects, in one SQLite file with a write-ahead log: for results so costly that each one is to be
on the disk before the next is computed.

A transaction is whole or absent, and processes take turns. The log needs shared memory, so the folder must not lie on
a network file system that several machines write to.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from skb_pipeline.errors import UserError
from skb_pipeline.storage.rows.base import check_keys, distinct, no_rows

WAIT_SECONDS = 60.0
"""For another process that writes; one write takes milliseconds."""

Record = Mapping[str, Any]


class RecordRowsError(UserError, RuntimeError):
    """The file of a cache cannot be read or written; the message names it."""


class RecordRows:
    """A :class:`~skb_pipeline.storage.rows.base.RowCache` of JSON objects. What other processes put is seen at once.

    Threads may share one object, processes the folder; close it after use.
    """

    def __init__(self, folder: Path, what: str, *, must_keep: bool = True) -> None:
        """Open or start a cache.

        Args:
            folder: made when absent.
            what: a word for one record, an identifier. The file is ``{what}s.sqlite3``.
            must_keep: without it the file is only read; where that cannot be, the cache is empty.

        Raises:
            RecordRowsError: there is a file that is no such cache, or it cannot be opened.
        """
        if not what.isidentifier():
            raise ValueError(f"{what!r} is no identifier")
        self.path = folder / f"{what}s.sqlite3"
        self._what = what
        self._lock = threading.Lock()
        with self._errors_name_the_file():
            if must_keep:
                folder.mkdir(parents=True, exist_ok=True)
                self._connection = _connected(str(self.path))
                _turn_on_log(self._connection)
                # Not only a killed process but also a loss of power leaves everything that was put.
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute(self._table)
            else:
                self._connection = self._for_reading()

    @property
    def _table(self) -> str:
        return f"CREATE TABLE IF NOT EXISTS {self._what}s (key TEXT PRIMARY KEY, {self._what} TEXT NOT NULL)"

    def _for_reading(self) -> sqlite3.Connection:
        """On the file, if it can be read: its log needs shared memory beside it, which a place that may not be written
        does not give."""
        with suppress(sqlite3.OperationalError):
            connection = _connected(f"{self.path.absolute().as_uri()}?mode=ro")
            connection.execute(f"SELECT 1 FROM {self._what}s LIMIT 1")
            return connection
        connection = _connected(":memory:")
        connection.execute(self._table)
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._select("SELECT count(*) FROM {what}s")[0][0])

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Keys without a record, each once, in order of appearance.

        Raises:
            RecordRowsError: the file cannot be read.
        """
        asked = distinct(keys)
        found = self._select("SELECT key FROM {what}s WHERE key IN (SELECT value FROM json_each(?))", json.dumps(asked))
        known = {key for (key,) in found}
        return [key for key in asked if key not in known]

    def get(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Records of ``keys`` in their order.

        Raises:
            KeyError: a key has no record.
            RecordRowsError: the file cannot be read.
        """
        asked = distinct(keys)
        query = "SELECT key, {what} FROM {what}s WHERE key IN (SELECT value FROM json_each(?))"
        texts = dict(self._select(query, json.dumps(asked)))
        absent = [key for key in asked if key not in texts]
        if absent:
            raise no_rows(absent)
        return [json.loads(texts[key]) for key in keys]

    def put(self, keys: Sequence[str], values: Sequence[Record]) -> None:
        """Keep records, in one transaction that is on the disk when this returns.

        Args:
            keys: n distinct keys; those that have a record keep it.
            values: n JSON objects, of finite numbers.

        Raises:
            ValueError: a key is malformed or repeated, or a value is no JSON object.
            RecordRowsError: the file cannot be written.
        """
        check_keys(keys, len(values))
        texts = [_text(key, value) for key, value in zip(keys, values, strict=True)]
        with self._lock, self._errors_name_the_file(), self._connection:  # commits, or rolls back
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                f"INSERT INTO {self._what}s VALUES (?, ?) ON CONFLICT DO NOTHING", zip(keys, texts, strict=True)
            )

    def remove(self, keys: Sequence[str]) -> None:
        """Forget records; keys without one change nothing.

        Raises:
            RecordRowsError: the file cannot be written.
        """
        if keys:
            query = f"DELETE FROM {self._what}s WHERE key IN (SELECT value FROM json_each(?))"
            with self._lock, self._errors_name_the_file():
                self._connection.execute(query, (json.dumps(distinct(keys)),))

    def close(self) -> None:
        """Close the file; the object cannot be used any more."""
        with self._lock:
            self._connection.close()

    def _select(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock, self._errors_name_the_file():
            return self._connection.execute(query.format(what=self._what), values).fetchall()

    @contextmanager
    def _errors_name_the_file(self) -> Iterator[None]:
        """Errors of SQLite do not."""
        try:
            yield
        except sqlite3.Error as error:
            raise RecordRowsError(f"{self.path}: {error}") from error


def _turn_on_log(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for its timeout here: of several that turn on the log of a new file at the same time, each
    holds what the others wait for, so all but one are told at once that the file is locked."""
    give_up = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def without_record(folder: Path, what: str, keys: Sequence[str]) -> list[str]:
    """Of some keys those without a record in the cache of a folder, which is neither made nor written to.

    Raises:
        RecordRowsError: there is a file that cannot be read.
    """
    path = folder / f"{what}s.sqlite3"
    if not path.is_file():
        return distinct(keys)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", timeout=WAIT_SECONDS, uri=True)) as con:
            query = f"SELECT key FROM {what}s WHERE key IN (SELECT value FROM json_each(?))"
            known = {key for (key,) in con.execute(query, (json.dumps(list(keys)),))}
    except sqlite3.Error as error:
        raise RecordRowsError(f"{path}: {error}") from error
    return [key for key in distinct(keys) if key not in known]


def _connected(place: str) -> sqlite3.Connection:
    return sqlite3.connect(place, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)


def _text(key: str, value: Record) -> str:
    """A record as ASCII, because a lone surrogate in a text has no UTF-8 form."""
    if not isinstance(value, Mapping):
        raise ValueError(f"record of {key} is no JSON object but {type(value).__name__}")
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"record of {key} is not JSON: {error}") from error
