"""What differs between two recipes of one asset, in words: files, settings, inputs, code, libraries, seed."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from skb_pipeline.storage.artifacts import Recipe

ABSENT = "(not there)"
"""Stands for a value that one of the two does not have."""
_DIGEST = re.compile("[0-9a-f]{16,}")
_SHOWN = 60


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        kind: ``file``, ``setting``, ``input``, ``lacking``, ``code``, ``library`` or ``seed``.
        name: which: a file's name, a path in the spec such as ``lexical.k1``, an asset's key, a module, a distribution.
        old, new: plain JSON values; :data:`ABSENT` where there is none.
    """

    kind: str
    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """As a person reads it."""
        if self.kind == "file":
            change = "is new" if self.old == ABSENT else "is gone" if self.new == ABSENT else "changed"
            return f"source file {self.name} {change} ({shown(self.old)} → {shown(self.new)})"
        return f"{self.kind} {self.name}: {shown(self.old)} → {shown(self.new)}"

    def as_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


class Parts(Protocol):
    """What recipes are compared by."""

    @property
    def asset(self) -> str: ...

    @property
    def inputs(self) -> Mapping[str, str]: ...

    @property
    def config(self) -> Mapping[str, Any]: ...

    @property
    def code(self) -> Mapping[str, str]: ...

    @property
    def libraries(self) -> Mapping[str, str]: ...

    @property
    def seed(self) -> int | None: ...


@dataclass(frozen=True)
class _Parts:
    asset: str
    inputs: Mapping[str, str]
    config: Mapping[str, Any]
    code: Mapping[str, str]
    libraries: Mapping[str, str]
    seed: int | None

    @classmethod
    def of(cls, recipe: Recipe) -> _Parts:
        code = code_versions(recipe.code_version)
        return cls(recipe.asset, recipe.inputs, recipe.config, code, recipe.libraries, recipe.seed)


def shown(value: Any) -> str:
    """A value in at most 60 characters; of a digest the first twelve."""
    if isinstance(value, str):
        text = value[:12] if _DIGEST.fullmatch(value) else value
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def recipe_of(manifest: Mapping[str, Any]) -> Recipe:
    """The recipe that a manifest holds."""
    names = Recipe.__dataclass_fields__
    return Recipe(**{name: value for name, value in manifest.items() if name in names})


def recipe_differences(old: Recipe, new: Recipe, without_inputs: Collection[str] = ()) -> list[Difference]:
    """What differs between two recipes of one asset, see :func:`differences`.

    Args:
        old, new: the recipes; the numbering of nodes, which follows from the inputs, is not compared.
        without_inputs: keys of assets whose versions are left out.
    """
    inputs = [
        {name: version for name, version in recipe.inputs.items() if name.partition("@")[0] not in without_inputs}
        for recipe in (old, new)
    ]
    parts = [replace(_Parts.of(recipe), inputs=own) for recipe, own in zip((old, new), inputs, strict=True)]
    return differences(*parts)


def differences(old: Parts, new: Parts) -> list[Difference]:
    """What differs between two recipes of one asset, files and settings first; inputs by their versions."""
    found = [
        *_settings(old.config, new.config),
        *_changed("input", old.inputs, new.inputs),
        *_changed("code", old.code, new.code),
        *_changed("library", old.libraries, new.libraries),
    ]
    seeds = [Difference("seed", new.asset, old.seed, new.seed)] if old.seed != new.seed else []
    return [*found, *seeds]


def code_versions(told: str) -> dict[str, str]:
    """Versions by module from the text that joins them; the version of the asset's own function stands as ``asset``."""
    pairs = (part.rpartition(" ") for part in told.split(", "))
    return {name or "asset": version for name, _, version in pairs}


def _settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for kind, key in (("file", "files"), ("lacking", "lacking")):
        yield from _changed(kind, old.get(key) or {}, new.get(key) or {})
    before, after = (
        dict(leaves({name: value for name, value in config.items() if name not in ("files", "lacking")}))
        for config in (old, new)
    )
    yield from _changed("setting", before, after)


def _changed(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if before != after:
            yield Difference(kind, name, before, after)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The plain values in a setting by path, such as ``weights.bm25``; entries of a list are told by their names, if
    they have any."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        names = _names(value)
        for name, entry in zip(names, value, strict=True):
            yield from leaves(entry, f"{path}[{name}]")
    else:
        yield path, value


def _names(entries: Sequence[Any]) -> list[str]:
    names = [str(entry["name"]) for entry in entries if isinstance(entry, Mapping) and "name" in entry]
    return names if len(set(names)) == len(entries) else [str(i) for i in range(len(entries))]
