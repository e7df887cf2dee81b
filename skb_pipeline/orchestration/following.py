"""Following a dataset's files: when a change asks for a run, and what becomes of the run.

A change is asked for once it is complete (two looks in a row see the same files) and stays open until a run that was
asked for it succeeds: a failed one is asked for again, later each time. Nothing here looks at files or at Dagster, so
that every order of events can be tried.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from skb_pipeline.orchestration.settings import NEVER, WATCH, next_time

LONGEST_WAIT = 120
"""Looks between two tries, at most: an hour if there is a look every half minute."""


class RunState(StrEnum):
    """What became of the run that was asked for last."""

    UNFINISHED = "unfinished"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """There is no such run, or not yet."""


@dataclass(frozen=True)
class Followed:
    """What is remembered of a dataset between two looks.

    Attributes:
        seen: state of its files at the last look, as a hash.
        done: the state that a run has dealt with.
        asked: id of the last request; its runs carry it as a tag.
        asked_for: the state at that request.
        tries: requests for that state so far.
        waits: looks to wait before the next one.
        planned: time (seconds since 1970) up to which a cron expression has been followed.
    """

    seen: str = ""
    done: str = ""
    asked: str = ""
    asked_for: str = ""
    tries: int = 0
    waits: int = 0
    planned: float = 0.0

    @classmethod
    def from_json(cls, value: Any) -> Followed:
        """Of a stored cursor; what is no such record (an earlier version's) is forgotten."""
        known = set(cls.__dataclass_fields__)
        return cls(**value) if isinstance(value, dict) and set(value) <= known else cls()

    def to_json(self) -> dict[str, Any]:
        """The opposite; what is as at first is left out."""
        plain = asdict(Followed())
        return {name: value for name, value in asdict(self).items() if value != plain[name]}


def policy_of(refresh: str | None, built: bool) -> str | None:
    """When a dataset is followed: ``watch``, a cron expression, or None for not at all.

    Args:
        refresh: of its spec; None where it does not say.
        built: its metric table was made before. What nobody ever asked for may mean an hour of embedding.
    """
    if refresh is None:
        return WATCH if built else None
    return None if refresh == NEVER else refresh


@dataclass(frozen=True)
class Look:
    """What one look at a dataset shows.

    Attributes:
        state: of its spec and source files, as a hash.
        policy: ``watch`` or a cron expression.
        busy: id of a run of it that is in progress, whoever started it.
        now: seconds since 1970.
    """

    state: str
    policy: str
    busy: str | None
    now: float


@dataclass(frozen=True)
class Decision:
    """What is remembered, the id of the request if a run is wanted, and what to tell people."""

    followed: Followed
    request: str | None = None
    told: str = ""


def decide(followed: Followed, look: Look, became_of: Callable[[str], RunState]) -> Decision:
    """Whether a run is wanted now.

    Args:
        followed: what is remembered.
        look: what there is now.
        became_of: of the run with the tag of a request.
    """
    before, followed = followed, replace(followed, seen=look.state)
    if look.policy == WATCH:
        followed, told = _settled(followed, became_of)
        if followed.done == look.state:
            return Decision(followed, told=told)
        if before.seen != look.state:
            return Decision(followed, told="changed; asked for when the next look sees the same")
        return _wanted(followed, look, told)
    return _on_time(followed, look, look.policy, became_of)


def _settled(followed: Followed, became_of: Callable[[str], RunState]) -> tuple[Followed, str]:
    """After a look at what became of the last request."""
    if not followed.asked or followed.asked_for == followed.done:
        return followed, ""
    became = became_of(followed.asked)
    if became is RunState.SUCCESS:
        return replace(followed, done=followed.asked_for, tries=0, waits=0), ""
    if became is RunState.CANCELLED:
        told = "its run was cancelled: not asked again before it changes"
        return replace(followed, done=followed.asked_for, tries=0, waits=0), told
    return followed, "its last run failed" if became is RunState.FAILED else ""


def _wanted(followed: Followed, look: Look, told: str) -> Decision:
    if look.busy is not None:
        return Decision(followed, told=f"waits for run {look.busy[:8]}")
    again = followed.asked_for == look.state
    if again and followed.waits > 0:
        left = followed.waits - 1
        told = f"{told or 'its run never started'}; try {followed.tries + 1} after {left} more looks"
        return Decision(replace(followed, waits=left), told=told)
    return _request(followed, look, followed.tries + 1 if again else 1)


def _request(followed: Followed, look: Look, tries: int) -> Decision:
    request = uuid.uuid4().hex[:12]
    # What was done is undone: the run remakes what it gets to, and the state before it may come back.
    waits = min(2 ** min(tries, 16), LONGEST_WAIT)
    asked = replace(followed, done="", asked=request, asked_for=look.state, tries=tries, waits=waits)
    return Decision(asked, request, f"try {tries}" if tries > 1 else "")


def _on_time(followed: Followed, look: Look, cron: str, became_of: Callable[[str], RunState]) -> Decision:
    """A time that was missed is made up for once; a failed run is tried again, later each time."""
    if not followed.planned or followed.planned > look.now:  # first look, or the clock was set back
        return Decision(replace(followed, planned=look.now))
    due = next_time(cron, followed.planned) <= look.now
    if look.busy is not None:
        return Decision(followed, told=f"due; waits for run {look.busy[:8]}" if due else "")
    if due:
        return _request(replace(followed, planned=look.now), look, 1)
    settled, told = _settled(followed, became_of) if followed.tries else (followed, "")
    return (
        _wanted(settled, replace(look, state=settled.asked_for), told)
        if settled.tries
        else Decision(settled, told=told)
    )
