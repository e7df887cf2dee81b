"""What options of mentions lead to in the graph: the planner's look at the answers of a combination of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import numpy as np

from skb_pipeline.planning.rules.options import Option
from skb_pipeline.plans.plan import Direction

_CACHED = 4096
_DIRECTED = """
SELECT e.{src} AS src, e.{dst} AS dst FROM edges e JOIN nodes n ON n.node_id = e.{dst}
WHERE e.relation = ? AND n.node_type = ? ORDER BY 1, 2
"""
_EDGES = {
    Direction.ANY: "SELECT src, dst FROM adjacency WHERE relation = ? AND dst_type = ? ORDER BY src, dst",
    Direction.OUT: _DIRECTED.format(src="head", dst="tail"),
    Direction.IN: _DIRECTED.format(src="tail", dst="head"),
}
"""Edges of a relation towards one type, by direction as seen from ``src``."""


class _Edges(NamedTuple):
    """Edges of one relation towards one type: int64 ``src`` (ascending) and ``dst``."""

    src: np.ndarray
    dst: np.ndarray


class Neighbours:
    """Neighbours of nodes in the SKB. A relation is read at its first use and then kept: 16 bytes per edge and end."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._edges: dict[tuple[str, str, Direction], _Edges] = {}
        self._known: OrderedDict[tuple[bytes, str, str, Direction], np.ndarray] = OrderedDict()

    def of(self, ids: np.ndarray, relation: str, node_type: str, direction: Direction = Direction.ANY) -> np.ndarray:
        """Distinct neighbours of one type over one relation, ascending; ``out``: only tails of edges from ``ids``."""
        key = (ids.tobytes(), relation, node_type, direction)
        found = self._known.get(key)
        if found is None:
            src, dst = self._towards(relation, node_type, direction)
            starts, ends = np.searchsorted(src, ids, "left"), np.searchsorted(src, ids, "right")
            parts = [dst[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            found = self._known[key] = np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
            if len(self._known) > _CACHED:
                self._known.popitem(last=False)
        return found

    def of_option(self, option: Option) -> np.ndarray:
        """Targets that one option leads to."""
        return self._through(option, self._middle(option)) if option.via is not None else self._first(option)

    def answers(self, options: Sequence[Option]) -> np.ndarray | None:
        """Targets that fit all options, ascending; None where all of them are negated.

        Options through the same noun share the node between. A path may not end with an edge that another option has
        used from its other end (``shares a disease with X and treats migraine`` through migraine), as no stored edge
        is used twice in one match.
        """
        targets: np.ndarray | None = None
        for group in _groups(options):
            first = group[0]
            if first.via is None:
                reached = self._first(first)
            else:
                shared = self._middle(first)
                for other in group[1:]:
                    shared = np.intersect1d(shared, self._middle(other), assume_unique=True)
                reached = self._through(first, shared[~np.isin(shared, _used_up(first, options))])
            if targets is None:
                targets = reached if not first.negated else None
            elif first.negated:
                targets = np.setdiff1d(targets, reached, assume_unique=True)
            else:
                targets = np.intersect1d(targets, reached, assume_unique=True)
        return targets

    def _first(self, option: Option) -> np.ndarray:
        start = option.place.mention.nodes[option.label]
        return self.of(start, option.relations[0], option.via or option.target, option.directions[0])

    _middle = _first

    def _through(self, option: Option, middle: np.ndarray) -> np.ndarray:
        """Targets behind the nodes between. There and back over one relation would use a stored edge twice, unless
        both hops run the same way."""
        reached = self.of(middle, option.relations[1], option.target, option.directions[1])
        start = option.place.mention.nodes[option.label]
        back = len(start) == 1 and option.label == option.target and len(set(option.relations)) == 1
        back = back and not _contrary(option.directions[0].opposite, option.directions[1])
        return reached[reached != start[0]] if back else reached

    def _towards(self, relation: str, node_type: str, direction: Direction) -> _Edges:
        found = self._edges.get((relation, node_type, direction))
        if found is None:
            columns = self._con.execute(_EDGES[direction], [relation, node_type]).fetchnumpy()
            found = _Edges(*(np.asarray(columns[name], dtype=np.int64) for name in ("src", "dst")))
            self._edges[relation, node_type, direction] = found
        return found


def _used_up(option: Option, options: Sequence[Option]) -> np.ndarray:
    """Nodes between whose edge to any target is that of another option: single nodes named by a mention."""
    taken = [
        other.place.mention.nodes[other.label]
        for other in options
        if other.via is None
        and other.label == option.via
        and other.relations[0] == option.relations[1]
        and not _contrary(option.directions[1], other.directions[0])
    ]
    return np.array([nodes[0] for nodes in taken if len(nodes) == 1], dtype=np.int64)


def _contrary(one: Direction, other: Direction) -> bool:
    """Whether no edge has both directions, as seen from the same end."""
    return Direction.ANY not in (one, other) and one is not other


def _groups(options: Sequence[Option]) -> list[list[Option]]:
    """Options that share a node between, and all others alone; negated ones last."""
    groups: dict[object, list[Option]] = {}
    for option in sorted(options, key=lambda o: o.negated):
        shared = option.noun is not None
        key = (option.noun, option.via, option.relations[1], option.directions[1]) if shared else option.place.first
        groups.setdefault(key, []).append(option)
    return list(groups.values())
