"""Files that hold still: what is read of a source is what was hashed, or an error says which file changed meanwhile.

Somebody may edit, replace or copy a file while it is read. A digest taken at another time says nothing about that, and
neither does one afterwards when the first content is back. So the file's state is looked at before and after: size,
inode, and the times of its last change, of which that of the inode cannot be set back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from skb_pipeline.errors import UserError

_TRIES = 3
_SHOWN = 3


class SourceChangedError(UserError, RuntimeError):
    """A source file was changed while it was read, or since its digest was taken; another run starts from what it
    holds then.
    """


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(files: Mapping[str, Path]) -> dict[str, str]:
    """sha256 (hex) of the bytes of each file, by name.

    Raises:
        SourceChangedError: one is being written to, in each of three tries.
    """
    found = {}
    for name, path in files.items():
        for _ in range(_TRIES):
            before = _state(path)
            found[name] = file_digest(path)
            if _state(path) == before:
                break
        else:
            raise SourceChangedError(f"{name} is being written to: run again when it is complete")
    return found


@contextmanager
def held(files: Mapping[str, Path], expected: Mapping[str, str]) -> Iterator[None]:
    """See that files have the content that is expected for as long as the block reads them.

    Args:
        files: name -> path.
        expected: name -> digest, of just these files.

    Raises:
        SourceChangedError: they have another content, or were changed during the block, also where the block failed
            for it.
    """
    before = {name: _state(path) for name, path in files.items()}
    now = digests(files)
    _refuse(sorted(name for name in expected.keys() | now.keys() if expected.get(name) != now.get(name)), "since")
    failed: Exception | None = None
    try:
        yield
    except Exception as error:
        failed = error
    # A change may be the very reason of the failure.
    changed = sorted(name for name, path in files.items() if _state(path) != before[name])
    try:
        _refuse(changed, "while it was read, after")
    except SourceChangedError as error:
        raise error from failed
    if failed is not None:
        raise failed


def _refuse(names: list[str], when: str) -> None:
    if names:
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        raise SourceChangedError(f"{shown} changed {when} catalog/snapshot looked at it: run again")


def _state(path: Path) -> tuple[int, ...] | None:
    """Size, times in ns and inode; None for a file that is gone."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev
