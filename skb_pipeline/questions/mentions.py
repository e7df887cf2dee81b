"""What a question may call an anchor: names and aliases that mean one node of its type and no other."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np

from skb_pipeline.questions.topology import Nodes
from skb_pipeline.text.hashing import choose


@dataclass(frozen=True)
class Mention:
    """How a node is called in one question."""

    text: str
    is_alias: bool


@dataclass(frozen=True)
class _Surfaces:
    name: str | None
    aliases: tuple[str, ...]


def surface_key(text: str) -> str:
    """Names are compared casefolded, runs of white space counting as one blank."""
    return " ".join(text.casefold().split())


class Mentions:
    """Unambiguous names and aliases of all nodes."""

    def __init__(self, con: duckdb.DuckDBPyConnection, nodes: Nodes) -> None:
        rows = con.execute("SELECT node_id, alias FROM aliases").fetchnumpy()
        positions = nodes.positions(np.asarray(rows["node_id"], dtype=np.int64))
        self._types = nodes.types
        self._names = nodes.names
        self._aliases: dict[int, list[str]] = {}
        for position, alias in zip(positions.tolist(), rows["alias"].tolist(), strict=True):
            self._aliases.setdefault(position, []).append(alias)
        self._bearers: dict[tuple[str, str], int] = {}
        for position, name in enumerate(nodes.names):
            for text in (name, *self._aliases.get(position, ())):
                key = (nodes.types[position], surface_key(text))
                if self._bearers.setdefault(key, position) != position:
                    self._bearers[key] = _SEVERAL

    def surfaces(self, position: int) -> list[str]:
        """Name and aliases of a node, ambiguous or not."""
        return [self._names[position], *self._aliases.get(position, ())]

    def choose(self, position: int, want_alias: bool, query_id: str) -> Mention | None:
        """A mention of one node, or None where each of its names is also borne by another node of the type.

        Args:
            position: the node.
            want_alias: prefer an alias; without a usable one the name is taken, and the other way round.
            query_id: key of the choice among several aliases.
        """
        usable = self._usable(position)
        if usable.aliases and (want_alias or usable.name is None):
            return Mention(choose(usable.aliases, query_id, "alias", usable.name or ""), True)
        return Mention(usable.name, False) if usable.name is not None else None

    def _usable(self, position: int) -> _Surfaces:
        name = self._names[position]
        name_key = surface_key(name)
        aliases = {a for a in self._aliases.get(position, ()) if surface_key(a) != name_key}
        unique = sorted(alias for alias in aliases if self._means(position, alias))
        return _Surfaces(name if self._means(position, name) else None, tuple(unique))

    def _means(self, position: int, text: str) -> bool:
        key = surface_key(text)
        return bool(key) and self._bearers[self._types[position], key] == position


_SEVERAL = -1
