"""Compiled loops over the rows of a graph. Imported only where plans are executed, as numba loads slowly.

Positions are int32, cosines and their sums float64 with -inf for "no match". Edge ids are compared only where a plan
could use one edge twice, and ends read only where a direction filters. Loops that can be long stop after a budget of
entries and go on when called again, so that their caller can look at the clock; ``progress`` holds where they are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from skb_pipeline.graph.memory.ways import EITHER, HEAD, TAIL, Way

NOTHING = -np.inf


@njit(cache=True, nogil=True)
def count_entries(heads: np.ndarray, tails: np.ndarray, first_row: int, n_rows: int) -> np.ndarray:
    """Entries per row: every edge at both ends, a self-loop once.

    Args:
        heads, tails: int32 [edges], positions.
        first_row, n_rows: the rows counted.

    Returns:
        int64 [n_rows].
    """
    counts = np.zeros(n_rows, np.int64)
    for i in range(len(heads)):
        counts[heads[i] - first_row] += 1
        if heads[i] != tails[i]:
            counts[tails[i] - first_row] += 1
    return counts


@njit(cache=True, nogil=True)
def fill_rows(
    heads: np.ndarray, tails: np.ndarray, edge_ids: np.ndarray, first_row: int, indptr: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbours (int32, ascending within a row), edge ids and ends (uint8) per entry, in two passes of a counting
    sort.

    The adjacency is symmetric. So after rows are filled in the order of edges, going through them by ascending row
    and appending the row to each of its neighbours' rows gives the same rows sorted.
    """
    n_rows = len(indptr) - 1
    loose, loose_ids = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], edge_ids.dtype)
    loose_ends = np.empty(indptr[-1], np.uint8)  # of the neighbour, whose row the entry goes to
    head = indptr[:-1].copy()
    for i in range(len(heads)):
        a, b = heads[i] - first_row, tails[i] - first_row
        loose[head[a]], loose_ids[head[a]] = b, edge_ids[i]
        loose_ends[head[a]] = EITHER if a == b else TAIL
        head[a] += 1
        if a != b:
            loose[head[b]], loose_ids[head[b]], loose_ends[head[b]] = a, edge_ids[i], HEAD
            head[b] += 1
    neighbours, ids, ends = np.empty_like(loose), np.empty_like(loose_ids), np.empty_like(loose_ends)
    head = indptr[:-1].copy()
    for row in range(n_rows):
        for p in range(indptr[row], indptr[row + 1]):
            to = loose[p]
            neighbours[head[to]], ids[head[to]], ends[head[to]] = row + first_row, loose_ids[p], loose_ends[p]
            head[to] += 1
    return neighbours, ids, ends


@njit(cache=True, nogil=True)
def runs(way: Way, ends: np.ndarray, entry: int, node: int, neighbour: int) -> bool:
    """Whether a hop may use an entry, which leads from ``node`` to ``neighbour``."""
    if way.end == EITHER or ends[entry] & way.end:
        return True
    return way.low <= node < way.high and way.low <= neighbour < way.high


@njit(cache=True, nogil=True)
def find_positions(node_ids: np.ndarray, id_order: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """int64 positions of node ids, -1 for unknown ones. ``numpy.searchsorted`` would convert both arrays every time.

    Args:
        node_ids: id per position.
        id_order: positions by ascending id.
        wanted: int64.
    """
    found = np.full(len(wanted), -1, np.int64)
    for i in range(len(wanted)):
        begin, end = 0, len(id_order)
        while begin < end:
            middle = (begin + end) // 2
            if node_ids[id_order[middle]] < wanted[i]:
                begin = middle + 1
            else:
                end = middle
        if begin < len(id_order) and node_ids[id_order[begin]] == wanted[i]:
            found[i] = id_order[begin]
    return found


@njit(cache=True, nogil=True)
def first_at_least(values: np.ndarray, begin: int, end: int, low: int) -> int:
    """First place in ``values[begin:end]``, which ascend, that holds ``low`` or more; ``end`` if none does."""
    if begin == end or values[begin] >= low:
        return begin
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < low:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, nogil=True)
def fanout(indptr: np.ndarray, first_row: int, nodes: np.ndarray) -> np.int64:
    """Entries in the rows of ``nodes``."""
    total = np.int64(0)
    for i in range(len(nodes)):
        row = nodes[i] - first_row
        if 0 <= row < len(indptr) - 1:
            total += indptr[row + 1] - indptr[row]
    return total


@njit(cache=True, nogil=True)
def has_neighbour(
    indptr: np.ndarray,
    neighbours: np.ndarray,
    ends: np.ndarray,
    first_row: int,
    way: Way,
    nodes: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
) -> np.ndarray:
    """Which nodes have, that way, a neighbour in one of the ranges ``lows[i]`` to ``highs[i]`` (exclusive)."""
    found = np.zeros(len(nodes), np.bool_)
    for i in range(len(nodes)):
        row = nodes[i] - first_row
        if 0 <= row < len(indptr) - 1:
            end = indptr[row + 1]
            for k in range(len(lows)):
                p = first_at_least(neighbours, indptr[row], end, lows[k])
                while p < end and neighbours[p] < highs[k] and not runs(way, ends, p, nodes[i], neighbours[p]):
                    p += 1
                if p < end and neighbours[p] < highs[k]:
                    found[i] = True
                    break
    return found


@njit(cache=True, nogil=True)
def push(
    indptr: np.ndarray,
    neighbours: np.ndarray,
    edge_ids: np.ndarray,
    ends: np.ndarray,
    first_row: int,
    way: Way,
    nodes: np.ndarray,
    values: np.ndarray,
    runners: np.ndarray,
    vias: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    best: np.ndarray,
    runner: np.ndarray,
    via: np.ndarray,
    touched: np.ndarray,
    progress: np.ndarray,
    budget: int,
) -> None:
    """Carry values over one hop: ``best[y] = max(value of x)`` over entries from ``nodes`` to y in the ranges.

    Args:
        values: float64 per node.
        runners, vias: where not empty, an entry with the edge ``vias[i]`` carries ``runners[i]`` in place of
            ``values[i]``: the best that does not use that edge already.
        best: float64 scratch by position; -inf before.
        runner, via: where ``runner`` is not empty, also the second best over another edge, and the edge of the best.
        touched: int32 scratch; receives every y reached, once.
        progress: int64 [3]: next place in ``nodes``, number of touched, entries read.
        budget: stop after the node that reaches so many entries.
    """
    avoiding, two = len(runners) > 0, len(runner) > 0
    i, n_touched, read = progress[0], progress[1], np.int64(0)
    while i < len(nodes) and read < budget:
        row, value = nodes[i] - first_row, values[i]
        if 0 <= row < len(indptr) - 1:
            end = np.int64(indptr[row + 1])
            for k in range(len(lows)):
                p = np.int64(first_at_least(neighbours, np.int64(indptr[row]), end, lows[k]))
                while p < end and neighbours[p] < highs[k]:
                    entry, y, v = p, neighbours[p], value
                    p += 1
                    read += 1
                    if not runs(way, ends, entry, nodes[i], y):
                        continue
                    if avoiding and edge_ids[entry] == vias[i]:
                        v = runners[i]
                    known = best[y]
                    if v > known:
                        if known == NOTHING:
                            touched[n_touched] = y
                            n_touched += 1
                        if two:
                            runner[y] = known
                            via[y] = edge_ids[entry]
                        best[y] = v
                    elif two and v > runner[y]:
                        runner[y] = v
        i += 1
    progress[0], progress[1] = i, n_touched
    progress[2] += read


@njit(cache=True, nogil=True)
def pull(
    indptr: np.ndarray,
    neighbours: np.ndarray,
    edge_ids: np.ndarray,
    ends: np.ndarray,
    first_row: int,
    way: Way,
    nodes: np.ndarray,
    best: np.ndarray,
    runner: np.ndarray,
    via: np.ndarray,
    values: np.ndarray,
    runners: np.ndarray,
    vias: np.ndarray,
    progress: np.ndarray,
    budget: int,
) -> None:
    """The same hop from its other end: ``values[i] = max(best[y])`` over the neighbours y of ``nodes[i]``.

    Args:
        best: float64 by position, -inf where nothing comes from.
        runner, via: by position, where not empty: see ``runners`` and ``vias`` of :func:`push`.
        values: float64 per node, -inf before.
        runners, vias: per node, where not empty: also the second best (-inf before) and the edge of the best.
        progress: int64 [3]: next place in ``nodes``, unused, entries read.
    """
    avoiding, two = len(runner) > 0, len(runners) > 0
    i, read = progress[0], np.int64(0)
    while i < len(nodes) and read < budget:
        row = nodes[i] - first_row
        if 0 <= row < len(indptr) - 1:
            for p in range(indptr[row], indptr[row + 1]):
                y = neighbours[p]
                v = best[y]
                if v == NOTHING or not runs(way, ends, p, nodes[i], y):
                    continue
                if avoiding and edge_ids[p] == via[y]:
                    v = runner[y]
                if v > values[i]:
                    if two:
                        runners[i] = values[i]
                        vias[i] = edge_ids[p]
                    values[i] = v
                elif two and v > runners[i]:
                    runners[i] = v
            read += indptr[row + 1] - indptr[row]
        i += 1
    progress[0] = i
    progress[2] += read
