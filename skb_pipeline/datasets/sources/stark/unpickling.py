"""Pickles from strangers: only builtin containers and numpy scalars are made, and large dicts are read in pieces.

A pickle is a program that may call anything it can import. Here it can import a handful of names, each with a
harmless stand-in, so that no foreign code runs; whatever else it asks for is refused by name, and there is no second
attempt with other rules.
"""

from __future__ import annotations

import io
import mmap
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from skb_pipeline.datasets.records import SourceError


class RefusedPickleError(SourceError):
    """A pickle wants a class or function that is not allowed."""


_DTYPE = re.compile(r"[biufSU][0-9]{1,6}")


class _Dtype:
    """Stands for ``numpy.dtype`` while a scalar is rebuilt: keeps type code and byte order, makes no numpy object."""

    __slots__ = ("code", "order")

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or not _DTYPE.fullmatch(code):
            raise pickle.UnpicklingError(f"numpy scalars of dtype {code!r} are not allowed")
        self.code, self.order = code, "<"

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("the state of a numpy dtype is malformed")
        self.order = state[1]


class _Scalar:
    """Stands for ``numpy.core.multiarray.scalar``: the plain Python value of a numpy scalar."""

    __slots__ = ()

    def __new__(cls, dtype: object, data: object = b"") -> Any:
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("a numpy scalar is malformed")
        if dtype.code in ("U0", "S0"):
            return "" if dtype.code == "U0" else b""
        return np.frombuffer(data, dtype=dtype.order + dtype.code, count=1)[0].item()

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a numpy scalar is malformed")


_ALLOWED: dict[tuple[str, str], type] = {
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (set, frozenset)},
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (list, dict, tuple)},
    **{(f"numpy.{core}.multiarray", "scalar"): _Scalar for core in ("core", "_core")},
    ("numpy", "dtype"): _Dtype,
    ("numpy", "str_"): str,
}


class _Restricted(pickle.Unpickler):
    def __init__(self, file: Any, name: str) -> None:
        super().__init__(file)
        self._name = name

    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None:
            raise RefusedPickleError(
                f"{self._name}: refused, as it wants {module}.{name}; only builtin containers and numpy scalars "
                "are read. Where the file comes from, turn such objects into dicts, lists, texts and numbers, and "
                "pickle it anew"
            )
        return found


def _load(unpickler: _Restricted, name: str) -> Any:
    """One object, with every failure of a damaged file under its name."""
    try:
        return unpickler.load()
    except SourceError:
        raise
    except Exception as error:  # the machine below has no closed list of what it raises on damaged input
        raise SourceError(f"{name}: cannot be read as a pickle: {type(error).__name__}: {error}") from error


def foreign_class(path: Path) -> str | None:
    """The first class or function, as ``module.name``, that a file of ``torch.save`` or a pickle wants and a tensor of
    numbers does not; None when there is none, or the file is damaged before. Nothing is unpickled.
    """
    for name in _wanted_names(path):
        module, _, attribute = name.rpartition(".")
        plain = (module, attribute) in _ALLOWED or name == "collections.OrderedDict"
        if not (plain or name in _TENSOR_NAMES or (module == "torch" and attribute.endswith("Storage"))):
            return name
    return None


_TENSOR_NAMES = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor", "torch.Size", "torch.device")


def _wanted_names(path: Path) -> Iterator[str]:
    """Names that the pickles in a file import, as far as they can be read."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                parts = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
        else:
            parts = [path.read_bytes()]
        for part in parts:
            yield from _names_in(io.BytesIO(part))
    except Exception:  # damaged pickles and zip files have no closed list of errors; what was read so far counts
        return


def _names_in(file: io.BytesIO) -> Iterator[str]:
    """Names imported by the pickles that stand one behind the other in ``file`` (torch wrote several at first)."""
    while file.tell() < len(file.getbuffer()):
        texts: list[str] = []
        memo: list[str | None] = []
        fresh: str | None = None  # the text that the opcode before pushed
        for opcode, argument, _ in pickletools.genops(file):
            pushed = None
            if opcode.name == "GLOBAL":
                yield str(argument).replace(" ", ".")
            elif opcode.name == "STACK_GLOBAL":
                yield ".".join(texts[-2:])
            elif "UNICODE" in opcode.name:
                pushed = str(argument)
            elif opcode.name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
                memo.append(fresh)  # picklers number them in order
            elif opcode.name in ("GET", "BINGET", "LONG_BINGET"):
                pushed = memo[int(argument or 0)]
            texts += [] if pushed is None else [pushed]
            fresh = pushed


def load_pickle(path: Path) -> Any:
    """The object in a pickle; numpy scalars come out as plain Python values.

    Raises:
        RefusedPickleError: it wants anything but builtin containers and numpy scalars; nothing of it was called.
        SourceError: it is damaged.
    """
    with path.open("rb") as file:
        return _load(_Restricted(file, path.name), path.name)


def iterate_dict(path: Path) -> Iterator[tuple[Any, Any]]:
    """The items of a pickled dict in stored order, about a thousand at a time in memory.

    The C pickler writes a dict as batches of items. Each batch is cut out of the file and unpickled by itself,
    together with the few objects it shares with earlier ones (see ``pickle_kernels``). A pickle that is written in
    another way is loaded whole.

    Raises:
        RefusedPickleError, SourceError: as for :func:`load_pickle`, or the object is no dict.
    """
    from skb_pipeline.datasets.sources.stark.pickle_kernels import WINDOW, rewrite, scan

    if path.stat().st_size == 0:
        raise SourceError(f"{path.name}: cannot be read as a pickle: it is empty")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, dtype=np.uint8)

    def release(end: int) -> None:
        mapped.madvise(mmap.MADV_DONTNEED, 0, end // mmap.PAGESIZE * mmap.PAGESIZE or mmap.PAGESIZE)

    plan = scan(data, release)
    if plan is None:
        whole = load_pickle(path)
        if not isinstance(whole, dict):
            raise SourceError(f"{path.name}: a dict was expected, not {type(whole).__name__}")
        yield from whole.items()
        return
    feed = _Feed()
    unpickler = _Restricted(feed, path.name)
    for start, end, memo in plan.segments:
        feed.put(rewrite(data, start, end, memo, plan.shared))
        yield from _load(unpickler, path.name).items()
        if end % WINDOW < start % WINDOW:
            release(end)


class _Feed:
    """A file whose content is put in piece by piece; an unpickler keeps its memo over the pieces."""

    def __init__(self) -> None:
        self._piece = io.BytesIO()

    def put(self, content: bytes) -> None:
        self._piece = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self._piece.read(size)

    def readline(self) -> bytes:
        return self._piece.readline()

    def readinto(self, buffer: Any) -> int:
        return self._piece.readinto(buffer)
