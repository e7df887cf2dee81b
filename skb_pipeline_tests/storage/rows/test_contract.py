"""What every row cache promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline.storage.rows.base import RowCache
from skb_pipeline.storage.rows.records import Record, RecordRows
from skb_pipeline_tests.storage.rows.caches import FINGERPRINT, KINDS, Kind, key

WRITER = """
import sys
from pathlib import Path
from threading import Barrier
from skb_pipeline_tests.storage.rows.caches import KINDS, key
kind, folder, first, end, size = KINDS[sys.argv[1]], Path(sys.argv[2]), *map(int, sys.argv[3:])
with kind.opened(folder) as cache:
    for start in range(first, end, size):
        numbers = range(start, start + size)
        cache.put([key(n) for n in numbers], kind.rows(numbers))
        print(start, flush=True)
    sys.stdin.read()
"""
"""Puts the numbers from ``first`` on in batches, tells of each, and waits."""


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def writer(kind: Kind, folder: Path, first: int, end: int, size: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, kind.name, str(folder), str(first), str(end), str(size)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(process: subprocess.Popen[str]) -> str:
    """End a process at once; what it told since it was last read."""
    os.kill(process.pid, signal.SIGKILL)
    told = process.communicate()[0]
    assert process.returncode == -signal.SIGKILL
    return told


def test_the_interface_is_that_of_both(tmp_path: Path) -> None:
    arrays: RowCache[np.ndarray] = ArrayRows(tmp_path / "arrays", FINGERPRINT)
    assert arrays.missing([]) == []
    with RecordRows(tmp_path / "records", "thing") as records:
        plain: RowCache[list[Record]] | RowCache[list[dict[str, object]]] = records
        assert plain.missing([]) == []


def test_rows_come_back_in_the_order_asked_for(kind: Kind, tmp_path: Path) -> None:
    with kind.opened(tmp_path) as cache:
        cache.put([key("a"), key("b")], kind.rows([1, 2]))
        cache.put([key("c")], kind.rows([3]))
        assert kind.numbers(cache.get([key(n) for n in "cabc"])) == [3, 1, 2, 3]
    assert kind.number_of(tmp_path, [key(n) for n in "cabc"]) == [3, 1, 2, 3]


def test_missing_keeps_the_order_and_drops_repeats(kind: Kind, tmp_path: Path) -> None:
    with kind.opened(tmp_path) as cache:
        assert cache.missing([key("b"), key("a"), key("b")]) == [key("b"), key("a")]
        cache.put([key("b")], kind.rows([2]))
        assert cache.missing([key(n) for n in "dbcdb"]) == [key("d"), key("c")]
        assert cache.missing([key("b")]) == cache.missing([]) == []
        many = [key(n) for n in range(20_000)]
        assert cache.missing(many) == many


def test_get_of_an_absent_key_names_it(kind: Kind, tmp_path: Path) -> None:
    with kind.opened(tmp_path) as cache:
        cache.put([key("b")], kind.rows([2]))
        with pytest.raises(KeyError, match=f"2 keys have no row, such as {key('d')}"):
            cache.get([key(n) for n in "bdcd"])
        assert len(cache.get([])) == 0


def test_known_keys_keep_their_row(kind: Kind, tmp_path: Path) -> None:
    with kind.opened(tmp_path) as cache:
        cache.put([key("a")], kind.rows([1]))
        cache.put([key("b"), key("a")], kind.rows([2, 9]))
        cache.put([key("a")], kind.rows([8]))
        assert kind.numbers(cache.get([key("a"), key("b")])) == [1, 2]
    assert kind.number_of(tmp_path, [key("a"), key("b")]) == [1, 2]


@pytest.mark.parametrize(
    ("keys", "numbers", "message"),
    [
        ([key("a"), key("a")], [1, 2], "repeated"),
        ([key("a")], [1, 2], "2 keys need"),
        (["short"], [1], "'short' is not a sha256"),
        ([key("a").upper()], [1], "is not a sha256"),
        ([key("a")], [float("nan")], f"of {key('a')} is not"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_added(
    kind: Kind, tmp_path: Path, keys: list[str], numbers: list[float], message: str
) -> None:
    with kind.opened(tmp_path) as cache:
        cache.put([key("z")], kind.rows([0]))
        with pytest.raises(ValueError, match=message):
            cache.put([*keys, key("fine")], kind.rows([*numbers, 5]))
        assert cache.missing([*keys, key("fine"), key("z")]) == [*dict.fromkeys(keys), key("fine")]
        cache.put([key("fine")], kind.rows([5]))
    assert kind.number_of(tmp_path, [key("z"), key("fine")]) == [0, 5]


def test_processes_put_at_the_same_time(kind: Kind, tmp_path: Path) -> None:
    """With a range that both put."""
    processes = [writer(kind, tmp_path, first, first + 60, 4) for first in (0, 40)]
    for process in processes:
        assert len(process.communicate()[0].split()) == 15
        assert process.returncode == 0
    assert kind.number_of(tmp_path, [key(n) for n in range(100)]) == list(range(100))


def test_several_start_one_cache_at_the_same_moment(kind: Kind, tmp_path: Path) -> None:
    """SQLite answers such at once with "database is locked"; 7 of 100 folders met it, of threads as of processes."""

    def put(folder: Path, number: int) -> None:
        ready.wait()
        with kind.opened(folder) as cache:
            cache.put([key(number)], kind.rows([number]))

    starters = 6
    ready = Barrier(starters)
    with ThreadPoolExecutor(starters) as pool:
        for n in range(60):
            folder = tmp_path / str(n)
            assert list(pool.map(put, [folder] * starters, range(starters))) == [None] * starters
            assert kind.number_of(folder, [key(number) for number in range(starters)]) == list(range(starters))


def test_a_process_killed_at_any_moment_leaves_what_it_told_of_and_whole_puts_only(kind: Kind, tmp_path: Path) -> None:
    size = 500
    process = writer(kind, tmp_path, 0, 10**9, size)
    assert process.stdout is not None
    told = process.stdout.readline()
    time.sleep(0.1)
    told += killed(process)
    done = [n for start in told.split() for n in range(int(start), int(start) + size)]
    assert done
    with kind.opened(tmp_path) as cache:
        assert kind.numbers(cache.get([key(n) for n in done])) == done
        following = [key(n) for n in range(len(done), len(done) + 2 * size)]
        assert len(cache.missing(following)) in (size, 2 * size)
        assert cache.missing(following) == following[-len(cache.missing(following)) :]
        cache.put([key("next")], kind.rows([-1]))
    assert kind.number_of(tmp_path, [key("next")]) == [-1]
