"""The systems there are: built-in ones and the user's own, checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from skb_pipeline.datasets.loading import SpecError, faults_by_line, read_yaml
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UnknownNameError, UserError, unknown_name
from skb_pipeline.graph.branch import OUTCOMES
from skb_pipeline.systems.kind import System
from skb_pipeline.systems.kinds import KINDS

USER_FILE = "systems.yaml"
DEFAULT_SYSTEM = "fused"
"""Searched with where none is named, and compared with the others below the table."""
BUILTIN = Path(__file__).with_name("builtin.yaml")
RESERVED = frozenset({"graph_neo4j"})
"""Rankings that are no systems."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_INLINE = "__"


class UnknownSystemError(UnknownNameError):
    """There is no system of this name."""


class SystemsError(UserError, ValueError):
    """Declarations of systems that cannot be used; one line per fault: ``file:line: key: reason``."""


class Registry(Mapping[str, System]):
    """Systems by name, each after those it is made of; names of parts that were declared in place hold ``__``.

    Args:
        systems: in declared order.

    Raises:
        SystemsError: a system is made of, or compared with, one that is not there, or of itself.
    """

    def __init__(self, systems: Mapping[str, System]) -> None:
        self._systems = dict(systems)
        for name, system in self._systems.items():
            for what, others in (("of", system.components), ("baselines", system.baselines or ())):
                for other in others:
                    if other not in self._systems:
                        raise SystemsError(f"{name}: {what}: {self._unknown(other)}")
            for other in system.planned:
                if OUTCOMES not in self._systems[other].stores:
                    raise SystemsError(
                        f"{name}: trust: {other} executes no plans, so nothing says how far to trust it; "
                        f"declare {name} too, of other lists or without trust"
                    )
        self.order = self._in_order_of_making()

    def __getitem__(self, name: str) -> System:
        if name not in self._systems:
            raise UnknownSystemError(self._unknown(name))
        return self._systems[name]

    def __contains__(self, name: object) -> bool:
        return name in self._systems

    def __iter__(self) -> Iterator[str]:
        return iter(self._systems)

    def __len__(self) -> int:
        return len(self._systems)

    @property
    def shown(self) -> list[str]:
        """Systems with a row in the table, in its order: all but parts that were declared in place."""
        return [name for name in self if _INLINE not in name]

    @property
    def parts(self) -> dict[str, list[str]]:
        """Systems of the table that are made of others, with those of these that stand in the table."""
        shown = self.shown
        return {name: [part for part in self[name].components if part in shown]
                for name in shown if self[name].components}  # fmt: skip

    def baselines_of(self, name: str) -> list[str]:
        """Systems that one is compared with: those it declares, else all that stand above it in the table; and its
        parts."""
        declared = self[name].baselines
        others = list(declared) if declared is not None else self.shown[: self.shown.index(name)]
        return [*others, *(part for part in self.parts.get(name, ()) if part not in others)]

    def wanted(self, spec: DatasetSpec) -> list[str]:
        """Systems that are made for a dataset, with those they are made of.

        Raises:
            UnknownSystemError: its spec names one that is not there.
        """
        asked = spec.systems or [name for name in self if not self.needs(name)]
        found: set[str] = set()
        for name in asked:
            found |= self._with_parts(name)
        return [name for name in self if name in found]

    def why_not(self, name: str, spec: DatasetSpec) -> str | None:
        """Why a system is not made for a dataset; None if it is."""
        if name in self.wanted(spec):
            return None
        if spec.systems:
            return f"not among the systems that the spec of {spec.name} asks for"
        return f"needs {', '.join(sorted(self.needs(name)))}: made for a dataset whose spec asks for it"

    def _with_parts(self, name: str) -> set[str]:
        return {name}.union(*(self._with_parts(part) for part in self[name].components))

    def needs(self, name: str) -> frozenset[str]:
        """Of ``download``, ``server`` and ``training``, what making it and its parts takes."""
        return frozenset().union(*(self[part].needs for part in self._with_parts(name)))

    def _in_order_of_making(self) -> list[str]:
        made: list[str] = []
        for name in self._systems:
            self._put(name, made, ())
        return made

    def _put(self, name: str, made: list[str], above: tuple[str, ...]) -> None:
        if name in above:
            raise SystemsError(f"{name}: it is made of itself: {' of '.join([*above[above.index(name) :], name])}")
        if name not in made:
            for part in self._systems[name].components:
                self._put(part, made, (*above, name))
            made.append(name)

    def _unknown(self, name: str) -> str:
        return unknown_name(f"unknown system {name!r}", name, self._systems, shown=self.shown)


def load_registry(home: Path) -> Registry:
    """Built-in systems and those of ``systems.yaml`` in a home folder, which need not be there.

    Raises:
        SystemsError: a file is faulty; the message names file, line and key.
    """
    own = home / USER_FILE
    systems = read_systems(BUILTIN)
    if own.is_file():
        systems |= read_systems(own)
    try:
        return Registry(systems)
    except SystemsError as error:
        path = own if own.is_file() else BUILTIN
        name = str(error).split(":")[0].split(_INLINE)[0]
        raise SystemsError(f"{path}:{read_yaml(path)[1].get((name,), 1)}: {error}") from error


def read_systems(path: Path) -> dict[str, System]:
    """The systems of one file; those declared in place of a name come before the one they are part of.

    Raises:
        SystemsError: see :func:`load_registry`.
    """
    try:
        data, lines = read_yaml(path)
        if data is None:
            return {}
        if not isinstance(data, dict):
            raise SystemsError(f"{path}:1: systems are a mapping of names to declarations")
        found: dict[str, System] = {}
        for name, declared in data.items():
            line = lines.get((name,), 1)
            if not isinstance(name, str) or not _NAME.fullmatch(name) or _INLINE in name or name in RESERVED:
                raise SystemsError(
                    f"{path}:{line}: {name!r} may not name a system: use 1 to 40 of a-z, 0-9 and single '_', "
                    f"starting with a letter, and not {', '.join(sorted(RESERVED))}"
                )
            found |= _declared(path, lines, (name,), name, declared)
        return found
    except SpecError as error:
        raise SystemsError(str(error)) from error


def _declared(
    path: Path, lines: dict[tuple[str | int, ...], int], at: tuple[str | int, ...], name: str, declared: Any
) -> dict[str, System]:
    """A system, after those declared inside it."""
    where = f"{path}:{lines.get(at, 1)}: {'.'.join(map(str, at))}"
    if not isinstance(declared, dict):
        raise SystemsError(f"{where}: a system is a mapping with a kind")
    kind = declared.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SystemsError(unknown_name(f"{where}: kind: unknown kind {kind!r}", str(kind), KINDS))
    found: dict[str, System] = {}
    parts = declared.get("of")
    if isinstance(parts, list):
        names = []
        for i, part in enumerate(parts):
            if isinstance(part, dict):
                own = f"{name}{_INLINE}{i + 1}"
                found |= _declared(path, lines, (*at, "of", i), own, part)
                part = own
            names.append(part)
        declared = {**declared, "of": names}
    with faults_by_line(path, lines, at):
        found[name] = KINDS[kind].model_validate(declared)
    return found
