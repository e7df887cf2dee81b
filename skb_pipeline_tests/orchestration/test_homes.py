"""The home folder: made by several processes at once, with unusual names, where it cannot be."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.orchestration.running import open_instance, prepare_home
from skb_pipeline.storage import atomic
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.paths import HomeError

FORK = multiprocessing.get_context("fork")
NOBODY = 65534


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a home that is not there yet."""
    monkeypatch.setenv("SKB_HOME", str(tmp_path / "fresh"))
    monkeypatch.setenv("DAGSTER_HOME", "")
    return tmp_path / "fresh"


def enter(name: str, together: Barrier) -> None:
    together.wait()
    prepare_home()
    with open_instance([name]) as instance:
        assert name in instance.get_dynamic_partitions("dataset")


def test_processes_that_start_together_on_a_fresh_home_all_get_in(fresh: Path) -> None:
    names = ["one", "two", "three", "four"]
    together = FORK.Barrier(len(names))
    processes = [FORK.Process(target=enter, args=(name, together)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    prepare_home()
    with open_instance() as instance:
        assert set(instance.get_dynamic_partitions("dataset")) == set(names)
    assert [p.name for p in (fresh / "dagster").glob(f"{atomic.SCRATCH_PREFIX}*")] == []


@pytest.mark.deep
def test_runs_that_start_together_on_a_fresh_home_end_well_or_are_refused(fresh: Path) -> None:
    command = [sys.executable, "-m", "skb_pipeline.cli", "run", "--to", "catalog/snapshot", "--dataset"]
    names = ["demo", "hpo", "demo"]
    started = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in names]
    told = [process.communicate(timeout=300)[1] for process in started]
    codes = [process.returncode for process in started]
    assert codes[1] == 0, told
    # Of two that want to write one dataset, one may come too early for the other.
    assert 0 in (codes[0], codes[2]), told
    assert all(code == 0 or "of dataset 'demo' is going on" in line for code, line in zip(codes, told, strict=True)), (
        told
    )
    assert subprocess.run([*command, "demo"], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a%20b", "databases do not take '%20' in a path"),
        ("caf%C3%A9", "'%C3'"),
        ("what?", "'\\?'"),
        ("back\\slash", r"'\\'"),
        ("~nobody-of-this-name/home", "SKB_HOME"),
    ],
)
def test_names_that_databases_misread_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKB_HOME", name)
    with pytest.raises(HomeError, match=told):
        prepare_home()
    refused = CliRunner().invoke(cli, ["run", "--dataset", "demo"])
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "SKB_HOME" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_homes_with_other_unusual_names_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "100%zz #1 & b's [x]*{y}$HOME 日本;é|~,=%"
    monkeypatch.setenv("SKB_HOME", str(tmp_path / name))
    monkeypatch.setenv("DAGSTER_HOME", "")
    prepare_home()
    with open_instance(["mine"]):
        pass
    with connect(tmp_path / name / "a.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS x")
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert {p.name for p in (tmp_path / name).iterdir()} == {"dagster", "catalogue", "a.duckdb"}


def test_a_home_that_is_a_file_or_below_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    for home, told in ((tmp_path / "file", "that is a file"), (tmp_path / "file" / "x", "Not a directory")):
        monkeypatch.setenv("SKB_HOME", str(home))
        for command in (["run", "--dataset", "demo"], ["guidance", "--dataset", "demo", "--refresh"]):
            refused = CliRunner().invoke(cli, command)
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert told in refused.stderr
            assert "SKB_HOME" in refused.stderr
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def not_ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that exists and that we may not write."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)


def test_a_home_that_may_not_be_written_is_refused(not_ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in (not_ours, not_ours / "new" / "home"):
        monkeypatch.setenv("SKB_HOME", str(home))
        with pytest.raises(HomeError, match="Permission denied; SKB_HOME names another one"):
            prepare_home()


def test_a_home_that_became_read_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The lock file is what cannot be opened for writing: here it is a folder.
    monkeypatch.setenv("SKB_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")
    (tmp_path / "dagster" / "opening.lock").mkdir(parents=True)
    with pytest.raises(HomeError, match=r"opening\.lock: Is a directory; SKB_HOME names"):
        prepare_home()


def test_a_damaged_history_says_what_to_remove(fresh: Path) -> None:
    prepare_home()
    with open_instance():
        pass
    with sqlite3.connect(fresh / "dagster" / "history" / "runs.db") as con:
        con.execute("INSERT INTO alembic_version VALUES ('fe2c7f2f4b8d')")
    con.close()
    with pytest.raises(HomeError, match=r"more than one head.*remove .*fresh/dagster/history and"), open_instance():
        pass


def test_who_waits_too_long_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    told = rf"pid {os.getpid()}\) counts sheep for more than 0\.1 seconds"
    with (
        atomic.file_lock(lock, what="counts sheep"),
        pytest.raises(atomic.LockedError, match=told),
        atomic.file_lock(lock, what="counts sheep", timeout_s=0.1),
    ):
        raise AssertionError("got a lock that another holds")
    with atomic.file_lock(lock, what="counts sheep", timeout_s=0):
        pass


def hold_and_die(lock: Path) -> None:
    with atomic.file_lock(lock, what="dies"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    process = FORK.Process(target=hold_and_die, args=(tmp_path / "lock",))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with atomic.file_lock(tmp_path / "lock", what="lives", timeout_s=0):
        pass


def test_a_process_that_took_over_a_number_is_another(tmp_path: Path) -> None:
    now = time.time()
    assert atomic.process_alive(os.getpid())
    assert atomic.process_alive(os.getpid(), at=now)
    assert not atomic.process_alive(os.getpid(), at=now - 10 * 365 * 86400)
    assert not atomic.process_alive(2**22 + 1, at=now)
    assert not atomic.process_alive(10**30)
    scratch = tmp_path / atomic.scratch_name()
    scratch.mkdir()
    assert not atomic.is_abandoned(scratch)
    os.utime(scratch, (1e9, 1e9))
    assert atomic.is_abandoned(scratch)
    assert not atomic.is_abandoned(tmp_path / atomic.scratch_name())
