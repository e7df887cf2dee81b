"""What options of mentions lead to in the graph: the planner's look whether a combination of them has an answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import duckdb
import numpy as np

from skb_pipeline.planning.options import Option

_CACHED = 4096
_NEIGHBOURS = (
    "SELECT DISTINCT dst FROM adjacency WHERE relation = ? AND dst_type = ? AND src IN (SELECT unnest(?::BIGINT[]))"
)


class Neighbours:
    """Neighbours of nodes in the SKB, remembered."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self._known: OrderedDict[tuple[bytes, str, str], np.ndarray] = OrderedDict()

    def of(self, ids: np.ndarray, relation: str, node_type: str) -> np.ndarray:
        """Distinct neighbours of one type over one relation, ascending."""
        key = (ids.tobytes(), relation, node_type)
        found = self._known.get(key)
        if found is None:
            rows = self._con.execute(_NEIGHBOURS, [relation, node_type, ids.tolist()]).fetchnumpy()["dst"]
            found = self._known[key] = np.sort(np.asarray(rows, dtype=np.int64))
            if len(self._known) > _CACHED:
                self._known.popitem(last=False)
        return found

    def of_option(self, option: Option) -> np.ndarray:
        """Targets that one option leads to."""
        ids = start = option.place.mention.nodes[option.label]
        for relation, node_type in zip(option.relations, _steps(option), strict=True):
            ids = self.of(ids, relation, node_type)
        # There and back over one relation would use a stored edge twice.
        back = len(start) == 1 and option.label == option.target and len(set(option.relations)) < len(option.relations)
        return ids[ids != start[0]] if back else ids

    def has_answer(self, options: Sequence[Option]) -> bool:
        """Whether some target fits all options; options through the same noun share the node between."""
        targets: np.ndarray | None = None
        for group in _groups(options):
            first = group[0]
            if first.via is None or len(group) == 1:
                reached = self.of_option(first)
            else:
                middle = [self.of(o.place.mention.nodes[o.label], o.relations[0], first.via) for o in group]
                shared = middle[0]
                for other in middle[1:]:
                    shared = np.intersect1d(shared, other, assume_unique=True)
                reached = self.of(shared, first.relations[1], first.target)
            if targets is None:
                targets = reached if not first.negated else None
            elif first.negated:
                targets = np.setdiff1d(targets, reached, assume_unique=True)
            else:
                targets = np.intersect1d(targets, reached, assume_unique=True)
        return targets is None or len(targets) > 0


def _steps(option: Option) -> list[str]:
    return [option.target] if option.via is None else [option.via, option.target]


def _groups(options: Sequence[Option]) -> list[list[Option]]:
    """Options that share a node between, and all others alone; negated ones last."""
    groups: dict[object, list[Option]] = {}
    for option in sorted(options, key=lambda o: o.negated):
        shared = option.noun is not None
        key = (option.noun, option.via, option.relations[1]) if shared else option.place.first
        groups.setdefault(key, []).append(option)
    return list(groups.values())
