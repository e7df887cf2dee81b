"""Reading spec files: safe YAML, and errors that name file, key and line."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UserError

Location = tuple[str | int, ...]


class SpecError(UserError, ValueError):
    """A spec file that cannot be used; the message has one line per fault: ``file:line: key: reason``."""


class _LineLoader(yaml.SafeLoader):
    """Safe loader that remembers the line of every key and refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not _hashable(key):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain value", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def load_spec(path: Path) -> DatasetSpec:
    """Read and validate one spec file.

    Raises:
        SpecError: the file is absent, not YAML, or not a valid spec.
    """
    return _spec(path, _text(path)).model_copy(deep=True)


@lru_cache(maxsize=64)
def _spec(path: Path, text: str) -> DatasetSpec:
    """Parsed once per text: each step of a run, and each look of a sensor, asks for its spec as it stands then."""
    data, lines = _parsed(path, text)
    if not isinstance(data, dict):
        raise SpecError(f"{path}:1: a spec is a mapping of keys to values")
    with faults_by_line(path, lines):
        return DatasetSpec.model_validate(data)


def read_yaml(path: Path) -> tuple[Any, dict[Location, int]]:
    """A YAML file of plain values, and the line (from 1) of every key and list item by its path.

    Raises:
        SpecError: the file is absent or not YAML, or a key is given twice.
    """
    return _parsed(path, _text(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}") from error


def _parsed(path: Path, text: str) -> tuple[Any, dict[Location, int]]:
    try:
        data = yaml.load(text, Loader=_LineLoader)
        return data, _key_lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except RecursionError:
        raise SpecError(f"{path}: is nested too deep, or contains itself") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise SpecError(f"{path}{where}: {getattr(error, 'problem', None) or error}") from error


@contextmanager
def faults_by_line(path: Path, lines: dict[Location, int], below: Location = ()) -> Iterator[None]:
    """Turn a ``ValidationError`` of what stands in a file into a ``SpecError`` with a line per fault.

    Args:
        path: the file.
        lines: of :func:`read_yaml`.
        below: path of the key that holds what is validated.
    """
    try:
        yield
    except ValidationError as error:
        faults = [_describe(path, lines, fault, below) for fault in error.errors()]
        raise SpecError("\n".join(faults)) from error


def _describe(path: Path, lines: dict[Location, int], fault: Any, below: Location) -> str:
    location: Location = (*below, *fault["loc"])
    known = location
    while known and known not in lines:
        known = known[:-1]
    key = ".".join(str(part) for part in location) or "(whole file)"
    reason = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        reason = "unknown key"
    return f"{path}:{lines.get(known, 1)}: {key}: {reason}"


def _key_lines(node: yaml.Node | None, at: Location = ()) -> dict[Location, int]:
    """Line (1-based) of every key and list item, by its path."""
    lines: dict[Location, int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = (*at, key.value)
            lines[place] = key.start_mark.line + 1
            lines |= _key_lines(value, place)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            place = (*at, i)
            lines[place] = value.start_mark.line + 1
            lines |= _key_lines(value, place)
    return lines
