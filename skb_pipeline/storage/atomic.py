"""Writes that are either whole or absent."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

SCRATCH_PREFIX = ".scratch-"


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


def process_alive(pid: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_abandoned(scratch: Path) -> bool:
    """Whether a scratch entry belongs to no living process of this machine."""
    pid = scratch.name.removeprefix(SCRATCH_PREFIX).split("-")[0]
    return not (pid.isdigit() and process_alive(int(pid)))


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
