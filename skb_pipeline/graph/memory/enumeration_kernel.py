"""The compiled search of ``enumeration``. Imported only where it runs, as numba loads slowly.

What runs for every entry is inlined: a call that hands on so many arrays takes as long as the work itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from skb_pipeline.graph.memory.kernels import first_at_least, runs
from skb_pipeline.graph.memory.ways import EITHER, Way

RUNNING, DONE, TOO_MANY_ROWS = 0, 1, 2
FREE, ANCHOR, CLOSING = 0, 1, 2
"""How a step binds its far variable: any node of its types, a candidate, or the node it has already."""


class Rows(NamedTuple):
    """Adjacency of all relations, see ``CsrGraph``."""

    indptr: np.ndarray
    indptr_starts: np.ndarray
    first_rows: np.ndarray
    neighbours: np.ndarray
    entry_starts: np.ndarray
    edge_ids: np.ndarray
    ends: np.ndarray


class Steps(NamedTuple):
    """Hops in the order of the search; int64 arrays [steps].

    ``near`` and ``far`` are variables, of which near is bound. ``way`` [steps, 3] has the fields of ``Way``, for the
    rows of near. bool ``clash[i, j]``: the steps could use one edge; ``clashing[i]``: step i and some other could.
    """

    near: np.ndarray
    far: np.ndarray
    relation: np.ndarray
    kind: np.ndarray
    way: np.ndarray
    clash: np.ndarray
    clashing: np.ndarray


class Variables(NamedTuple):
    """Candidates, type ranges and negations of each variable, as slices of joint arrays.

    Variable v has the candidates ``candidate_starts[v]`` to ``candidate_starts[v + 1]`` (ascending positions), and so
    on. A ban forbids neighbours over ``ban_relation``, that way (``ban_way`` [bans, 3]), in ``ban_low`` to ``ban_high``
    that are, where ``ban_listed``, also among ``banned[banned_starts[i]:banned_starts[i + 1]]``.
    """

    candidate_starts: np.ndarray
    candidates: np.ndarray
    cosines: np.ndarray
    range_starts: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    ban_starts: np.ndarray
    ban_relation: np.ndarray
    ban_way: np.ndarray
    ban_low: np.ndarray
    ban_high: np.ndarray
    ban_listed: np.ndarray
    banned_starts: np.ndarray
    banned: np.ndarray


class State(NamedTuple):
    """Where the search is. Per depth: next entry, end of the segment, next segment, number of segments, edge used.

    Depth 0 goes through the candidates of the first variable, depth d through step d - 1. A segment is a run of
    entries of a row. Per variable: node, and place of its candidate. ``counters``: depth, touched nodes, partial
    matches, entries read.
    """

    entry: np.ndarray
    end: np.ndarray
    segment: np.ndarray
    segments: np.ndarray
    edge: np.ndarray
    node: np.ndarray
    place: np.ndarray
    counters: np.ndarray


def new_state(n_steps: int, n_variables: int) -> State:
    """A search that has not begun; ``entry[0]`` and ``end[0]`` are to be set."""
    entry, end, segment, segments, edge = (np.zeros(n_steps + 1, dtype=np.int64) for _ in range(5))
    node, place = np.zeros(n_variables, dtype=np.int32), np.zeros(n_variables, dtype=np.int64)
    return State(entry, end, segment, segments, edge, node, place, np.zeros(4, dtype=np.int64))


@njit(cache=True, nogil=True)
def row_of(rows: Rows, relation: int, node: int) -> tuple[np.int64, np.int64]:
    """Begin and end, in ``neighbours``, of a node's entries of one relation."""
    at = rows.indptr_starts[relation] + node - rows.first_rows[relation]
    if at < rows.indptr_starts[relation] or at >= rows.indptr_starts[relation + 1] - 1:
        return np.int64(0), np.int64(0)
    begin = rows.entry_starts[relation]
    return begin + rows.indptr[at], begin + rows.indptr[at + 1]


@njit(cache=True, nogil=True)
def leads_to(rows: Rows, way: Way, begin: int, end: int, node: int, low: int, high: int) -> bool:
    """Whether some entry in ``begin`` to ``end``, of a node's row, leads that way to a node of ``low`` to ``high``
    (exclusive)."""
    p = first_at_least(rows.neighbours, begin, end, low)
    while p < end and rows.neighbours[p] < high:
        if runs(way, rows.ends, p, node, rows.neighbours[p]):
            return True
        p += 1
    return False


@njit(cache=True, nogil=True, inline="always")
def is_banned(rows: Rows, variables: Variables, variable: int, node: int) -> bool:
    """Whether a negation forbids the variable this node."""
    for i in range(variables.ban_starts[variable], variables.ban_starts[variable + 1]):
        begin, end = row_of(rows, variables.ban_relation[i], node)
        way = Way(variables.ban_way[i, 0], variables.ban_way[i, 1], variables.ban_way[i, 2])
        if not variables.ban_listed[i]:
            if leads_to(rows, way, begin, end, node, variables.ban_low[i], variables.ban_high[i]):
                return True
            continue
        for j in range(variables.banned_starts[i], variables.banned_starts[i + 1]):
            if leads_to(rows, way, begin, end, node, variables.banned[j], variables.banned[j] + 1):
                return True
    return False


@njit(cache=True, nogil=True)
def enter(rows: Rows, steps: Steps, variables: Variables, state: State, depth: int) -> None:
    """Set the segments of a step whose near variable has just been bound."""
    step = depth - 1
    far = steps.far[step]
    begin, end = row_of(rows, steps.relation[step], state.node[steps.near[step]])
    state.entry[depth], state.end[depth], state.segment[depth] = 0, 0, 0
    if begin == end:
        state.segments[depth] = 0
    elif steps.kind[step] == FREE:
        state.segments[depth] = variables.range_starts[far + 1] - variables.range_starts[far]
    elif steps.kind[step] == CLOSING:
        state.segments[depth] = 1
    else:
        # Candidates are looked up in the row if they are fewer than its entries; else each entry among them.
        count = variables.candidate_starts[far + 1] - variables.candidate_starts[far]
        state.segments[depth] = count
        if end - begin <= count:
            state.segments[depth] = 1
            state.segment[depth] = -1


@njit(cache=True, nogil=True)
def open_segment(rows: Rows, steps: Steps, variables: Variables, state: State, depth: int) -> None:
    """Go to the next segment of a step."""
    step = depth - 1
    far, segment = steps.far[step], state.segment[depth]
    begin, end = row_of(rows, steps.relation[step], state.node[steps.near[step]])
    if steps.kind[step] == FREE:
        low = variables.lows[variables.range_starts[far] + segment]
        high = variables.highs[variables.range_starts[far] + segment]
    elif steps.kind[step] == CLOSING:
        low = state.node[far]
        high = low + 1
    elif segment < 0:
        state.entry[depth], state.end[depth], state.segment[depth] = begin, end, -2
        return
    else:
        low = variables.candidates[variables.candidate_starts[far] + segment]
        high = low + 1
    state.entry[depth] = first_at_least(rows.neighbours, begin, end, low)
    state.end[depth] = first_at_least(rows.neighbours, state.entry[depth], end, high)
    state.segment[depth] = segment + 1


@njit(cache=True, nogil=True, inline="always")
def take(rows: Rows, steps: Steps, variables: Variables, state: State, depth: int, entry: int) -> bool:
    """Bind a step's far variable by one entry; False if the entry does not fit."""
    step = depth - 1
    far, node, kind = steps.far[step], rows.neighbours[entry], steps.kind[step]
    if steps.way[step, 0] != EITHER:
        way = Way(steps.way[step, 0], steps.way[step, 1], steps.way[step, 2])
        if not runs(way, rows.ends, entry, state.node[steps.near[step]], node):
            return False
    for earlier in range(step if steps.clashing[step] else 0):
        if steps.clash[step, earlier] and state.edge[earlier + 1] == rows.edge_ids[entry]:
            return False
    if kind == ANCHOR:
        if state.segment[depth] == -2:
            begin, end = variables.candidate_starts[far], variables.candidate_starts[far + 1]
            place = first_at_least(variables.candidates, begin, end, node)
            if place == end or variables.candidates[place] != node:
                return False
        else:
            place = variables.candidate_starts[far] + state.segment[depth] - 1
        state.place[far] = place
    if kind != CLOSING and is_banned(rows, variables, far, node):
        return False
    state.node[far] = node
    state.edge[depth] = rows.edge_ids[entry] if steps.clashing[step] else -1
    return True


@njit(cache=True, nogil=True)
def search(
    rows: Rows,
    steps: Steps,
    variables: Variables,
    scored: np.ndarray,
    target: int,
    start: int,
    decided: int,
    state: State,
    best: np.ndarray,
    touched: np.ndarray,
    row_limit: int,
    budget: int,
) -> int:
    """Go on with a depth-first search; ``best`` gets the best score per target node.

    Args:
        scored: int64, anchor variables in the order of addition.
        target, start: variables; start is an anchor.
        decided: depth at which the last of target and scored anchors is bound. The first match below it stands for
            all others below it.
        best: float64 scratch by position, -inf before.
        touched: int32 scratch; receives every answer, once.
        row_limit: most partial matches.
        budget: entries to read in this call.

    Returns:
        ``RUNNING`` (budget used up), ``DONE`` or ``TOO_MANY_ROWS``.
    """
    depth, n_touched, matched, read = state.counters[0], state.counters[1], state.counters[2], np.int64(0)
    status = RUNNING
    while read < budget:
        read += 1
        if state.entry[depth] == state.end[depth]:
            if depth == 0:
                status = DONE
                break
            if state.segment[depth] == -2 or state.segment[depth] >= state.segments[depth]:
                depth -= 1
            else:
                open_segment(rows, steps, variables, state, depth)
            continue
        entry = state.entry[depth]
        state.entry[depth] = entry + 1
        if depth == 0:
            if is_banned(rows, variables, start, variables.candidates[entry]):
                continue
            state.node[start], state.place[start] = variables.candidates[entry], entry
        elif not take(rows, steps, variables, state, depth, entry):
            continue
        matched += 1
        if matched > row_limit:
            status = TOO_MANY_ROWS
            break
        if depth < len(steps.near):
            depth += 1
            enter(rows, steps, variables, state, depth)
            continue
        score = variables.cosines[state.place[scored[0]]]
        for i in range(1, len(scored)):
            score += variables.cosines[state.place[scored[i]]]
        answer = state.node[target]
        if best[answer] == -np.inf:
            touched[n_touched] = answer
            n_touched += 1
        if score > best[answer]:
            best[answer] = score
        depth = min(depth, decided)
    state.counters[0], state.counters[1], state.counters[2] = depth, n_touched, matched
    state.counters[3] += read
    return status
