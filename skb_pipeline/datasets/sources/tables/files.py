"""Which files a glob means, and opening them: what is hidden or left behind by other programs is no data, an empty
shard has no rows, and compressed data that ends early is an error.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import IO

from skb_pipeline.datasets.records import SourceError

_LITTER = ("__MACOSX", "_SUCCESS", "_metadata", "_common_metadata", "_committed_*", "_started_*", "_temporary",
           "_delta_log", "*.crc", "Thumbs.db", "desktop.ini")  # fmt: skip
_BLOCK = 1 << 20
_BLANK = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"


def match_files(folder: Path, pattern: str) -> tuple[list[Path], list[Path]]:
    """The files below ``folder`` that a glob means, sorted, and those that it matches and does not mean.

    A file is left out when a part of its path below the folder is hidden or is a name that operating systems and
    engines give to what they write beside data (``__MACOSX``, ``_SUCCESS``, ``*.crc`` …), unless the glob spells that
    very part.

    Raises:
        FileNotFoundError: nothing else matches; names the glob.
        SourceError: the pattern is no glob, or leaves the folder.
    """
    paths: list[Path] = []
    left_out: list[Path] = []
    spelt = set(PurePath(pattern).parts)
    if ".." in spelt:
        raise SourceError(f"source.args: {pattern!r} leaves the folder {folder}")
    try:
        matched = sorted(p for p in folder.glob(pattern) if p.is_file())
    except (NotImplementedError, ValueError) as error:
        raise SourceError(f"source.args: {pattern!r} is no glob below the folder {folder}: {error}") from error
    for path in matched:
        litter = any(is_litter(part) and part not in spelt for part in path.relative_to(folder).parts)
        (left_out if litter else paths).append(path)
    if not paths:
        others = f"; {len(left_out)} hidden files do, such as {left_out[0].name}" if left_out else ""
        raise FileNotFoundError(f"source.args: no file matches {pattern!r} in {folder}{others}")
    return paths, left_out


def is_litter(part: str) -> bool:
    """Whether a file or folder of this name is hidden or written by other programs beside data."""
    return part.startswith(".") or any(fnmatchcase(part, name) for name in _LITTER)


def is_empty(path: Path) -> bool:
    """Whether there is nothing to read: no byte (when unpacked), or only blanks, line ends and a byte order mark."""
    if path.stat().st_size == 0:
        return True
    if path.suffix.lower() == ".parquet":
        return False
    try:
        with open_binary(path) as file:
            block = file.read(_BLOCK).removeprefix(_MARK)
            while block and not block.strip(_BLANK):
                block = file.read(_BLOCK)
    except SourceError:  # whoever reads it tells what is wrong
        return False
    return not block


class _Unpacked(io.RawIOBase):
    """The bytes in a gzip file. Data that is cut off or damaged is a :class:`SourceError` that names the file and how
    many lines came before.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._file = gzip.open(path, "rb")  # noqa: SIM115 - closed with this object
        self._lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            block = self._file.read1(len(buffer))
        except EOFError as error:
            raise SourceError(
                f"{self._name}: the compressed file is cut off behind {self._lines} whole lines; was it copied whole?"
            ) from error
        except (OSError, zlib.error) as error:  # BadGzipFile is an OSError
            raise SourceError(
                f"{self._name}: the compressed data is damaged behind {self._lines} whole lines: {error}"
            ) from error
        self._lines += block.count(b"\n")
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_binary(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked when its name ends with ``.gz``.

    Reading raises :class:`SourceError` where compressed data ends early or is damaged.
    """
    if path.name.lower().endswith(".gz"):
        return io.BufferedReader(_Unpacked(path), _BLOCK)
    return path.open("rb")


def open_text(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    """A text file, perhaps compressed, with its newlines as they are; a byte order mark is skipped."""
    return io.TextIOWrapper(open_binary(path), "utf-8-sig" if encoding == "utf-8" else encoding, errors, newline="")


def utf8_blocks(path: Path, encoding: str) -> Iterator[bytes]:
    """The text of a file as UTF-8, in blocks; bytes that are no text are replaced (readers tell them)."""
    if encoding == "utf-8":
        with open_binary(path) as file:
            while block := file.read(_BLOCK):
                yield block
        return
    with open_text(path, encoding, errors="replace") as file:
        while text := file.read(_BLOCK):
            yield text.encode("utf-8", "replace")
