"""Which of the two ends of an edge a node is, and which edges a hop may use because of it."""

from __future__ import annotations

from typing import NamedTuple

HEAD, TAIL, EITHER = 1, 2, 3
"""Which end of its edge the node of a row is, as a bit set; of a self-loop it is both."""


class Way(NamedTuple):
    """Which entries of a row a hop may use: those where the row's node is ``end`` (``HEAD``, ``TAIL``, ``EITHER``),
    and all between two nodes with positions from ``low`` to ``high`` (exclusive)."""

    end: int = EITHER
    low: int = 0
    high: int = 0

    def turned(self) -> Way:
        """The same edges, looked at from the rows of their other ends."""
        return self._replace(end={HEAD: TAIL, TAIL: HEAD}.get(self.end, self.end))


EVERY_WAY = Way()
"""All entries."""
