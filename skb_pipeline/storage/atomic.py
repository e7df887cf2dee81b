"""Writes that are either whole or absent, and what several processes must not do at the same time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skb_pipeline.errors import UserError

SCRATCH_PREFIX = ".scratch-"
CANNOT_WRITE = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR}
)
"""Of an ``OSError``: the place takes no file, as it may not be written, is full or is not there."""
_LOCK_POLL_S = 0.05
_CLOCK_SLACK_S = 2.0
"""The time of boot, from which a process's start is counted, is known to the second."""


class LockedError(UserError, TimeoutError):
    """Another process holds a lock for longer than one would wait."""


def fsync_one(path: Path) -> None:
    """Flush one file or one folder entry (not what lies below it) to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(path: Path) -> None:
    """Flush a file, or a folder with everything in it, to the disk."""
    for target in [*sorted(path.rglob("*")), path] if path.is_dir() else [path]:
        fsync_one(target)


def scratch_name() -> str:
    """A fresh name that readers and sweeps recognise as unfinished work."""
    return f"{SCRATCH_PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"


def process_alive(pid: int, at: float | None = None) -> bool:
    """Whether a process of this number runs on this machine.

    Args:
        pid: its number; numbers are given out again, in a restarted container the same ones at once.
        at: a time (seconds since 1970) at which the process meant was running: one that started later is another.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    started = _process_start(pid) if at is not None else None
    return started is None or at is None or started <= at + _CLOCK_SLACK_S


def _process_start(pid: int) -> float | None:
    """When a process started, in seconds since 1970; None where the system does not tell."""
    try:
        # The second field, the program's name, may hold blanks and brackets.
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def is_abandoned(scratch: Path) -> bool:
    """Whether a scratch entry belongs to no living process of this machine."""
    pid = scratch.name.removeprefix(SCRATCH_PREFIX).split("-")[0]
    if not pid.isdigit():
        return True
    try:
        changed = scratch.stat().st_mtime
    except FileNotFoundError:
        return False  # its owner renamed it meanwhile
    return not process_alive(int(pid), at=changed)


@contextmanager
def file_lock(path: Path, *, what: str, timeout_s: float = 120.0, holder: str = "") -> Iterator[None]:
    """Hold a lock that one process at a time can have; the system frees it when its holder ends, however it ends.

    Args:
        path: the lock's file, kept for ever (removing it would give two processes a lock each). Its folder must exist.
        what: what is done under it, for the message: "prepares the home folder".
        timeout_s: how long to wait for it.
        holder: who takes it, in one word; see :func:`lock_holder`.

    Raises:
        LockedError: another process has held it for that long.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        give_up = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    pid = (_lock_text(descriptor).split() or ["unknown"])[0]
                    raise LockedError(
                        f"another process (pid {pid}) {what} for more than {timeout_s:g} seconds and holds {path}: "
                        "wait for it or end it, then try again"
                    ) from None
                time.sleep(_LOCK_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {holder}".rstrip().encode() + b"\n", 0)
        yield
    finally:
        os.close(descriptor)


def lock_holder(path: Path) -> str | None:
    """Who holds a :func:`file_lock` now: the word it gave, or "unknown"; None when nobody does. Writes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return " ".join(_lock_text(descriptor).split()[1:]) or "unknown"
    finally:
        os.close(descriptor)


def _lock_text(descriptor: int) -> str:
    return os.pread(descriptor, 128, 0).decode(errors="replace")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step: scratch file, fsync, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.parent / scratch_name()
    scratch.write_bytes(data)
    fsync_tree(scratch)
    os.replace(scratch, path)
    fsync_one(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as readable JSON with sorted keys; NaN is refused."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())
