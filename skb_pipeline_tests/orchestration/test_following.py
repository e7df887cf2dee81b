"""Every order of changes and outcomes: each change is asked for until a run has dealt with it, and no oftener."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from skb_pipeline.orchestration.following import LONGEST_WAIT, Decision, Followed, Look, RunState, decide, policy_of
from skb_pipeline.orchestration.settings import Refresh, next_time

HOUR = 3600.0


class Follower:
    """A dataset that is looked at every half minute, and its runs."""

    def __init__(self, policy: str = "watch") -> None:
        self.look = Look(state="A", policy=policy, busy=None, now=1_800_000_000.0)
        self.followed = Followed()
        self.runs: dict[str, RunState] = {}
        self.requests: list[tuple[str, str]] = []

    def tick(self, state: str | None = None, seconds: float = 30.0) -> Decision:
        self.look = replace(self.look, state=state or self.look.state, now=self.look.now + seconds)
        decision = decide(self.followed, self.look, lambda request: self.runs.get(request, RunState.UNKNOWN))
        self.followed = Followed.from_json(decision.followed.to_json())
        if decision.request is not None:
            self.requests.append((decision.request, self.look.state))
            self.start(decision.request)
        return decision

    def start(self, request: str) -> None:
        self.runs[request] = RunState.UNFINISHED
        self.look = replace(self.look, busy=request)

    def end(self, became: RunState) -> None:
        self.runs[self.requests[-1][0]] = became
        self.look = replace(self.look, busy=None)

    def until_asked(self, most: int) -> int:
        """Looks until the next request."""
        before = len(self.requests)
        for n in range(1, most + 1):
            self.tick()
            if len(self.requests) > before:
                return n
        return 0


def done(follower: Follower) -> None:
    assert follower.until_asked(3)
    follower.end(RunState.SUCCESS)
    follower.tick()


def test_one_request_per_change_and_none_while_it_is_dealt_with() -> None:
    one = Follower()
    assert one.tick().request is None, "a file may be half copied"
    assert one.tick().request is not None
    assert one.tick().request is None
    one.end(RunState.SUCCESS)
    assert [one.tick().request for _ in range(5)] == [None] * 5
    assert len(one.requests) == 1
    one.tick("B")
    assert one.tick().request is not None


def test_a_file_that_grows_is_waited_for() -> None:
    one = Follower()
    for size in "BCDEF":
        assert one.tick(size).request is None
    assert one.tick().request is not None
    assert [state for _, state in one.requests] == ["F"]


def test_what_changes_during_a_run_gets_a_run_of_its_own() -> None:
    one = Follower()
    done(one)
    one.tick("B")
    one.tick()
    one.tick("C")
    assert "waits for run" in one.tick().told
    one.end(RunState.SUCCESS)
    one.tick()
    assert [state for _, state in one.requests] == ["A", "B", "C"]


def test_a_state_that_returns_while_another_is_dealt_with_is_asked_for_again() -> None:
    one = Follower()
    done(one)
    one.tick("B")
    one.tick()
    one.tick("A")
    one.tick()
    one.end(RunState.FAILED)
    one.tick()
    assert [state for _, state in one.requests] == ["A", "B", "A"]
    assert len({request for request, _ in one.requests}) == 3, "Dagster drops a run with a key it has seen"


def test_a_failed_run_is_tried_again_later_each_time_and_a_new_state_at_once() -> None:
    one = Follower()
    waited = []
    one.until_asked(3)
    for _ in range(9):
        one.end(RunState.FAILED)
        waited.append(one.until_asked(LONGEST_WAIT + 2))
    assert waited == [3, 5, 9, 17, 33, 65, 121, 121, 121]
    one.end(RunState.FAILED)
    told = one.tick().told
    assert "its last run failed" in told
    assert "try 11" in told
    one.tick("B")
    assert one.tick().request is not None, "what is new has not failed yet"
    one.end(RunState.SUCCESS)
    assert one.until_asked(200) == 0


def test_a_run_that_never_came_to_be_is_asked_for_again() -> None:
    one = Follower()
    one.until_asked(3)
    one.runs.clear()
    one.look = replace(one.look, busy=None)
    assert one.until_asked(5) == 3


def test_a_cancelled_run_is_a_decision() -> None:
    one = Follower()
    one.until_asked(3)
    one.end(RunState.CANCELLED)
    assert one.until_asked(300) == 0
    one.tick("B")
    assert one.tick().request is not None


@pytest.mark.parametrize(
    ("refresh", "built", "policy"),
    [(None, False, None), (None, True, "watch"), ("watch", False, "watch"), ("none", True, None),
     ("0 3 * * *", False, "0 3 * * *")],
)  # fmt: skip
def test_who_is_followed(refresh: str | None, built: bool, policy: str | None) -> None:
    assert policy_of(refresh, built) == policy


def test_a_cron_expression_asks_at_its_times_alone() -> None:
    one = Follower("0 3 * * *")
    assert one.until_asked(5) == 0
    one.tick("B", seconds=HOUR)
    asked = 0
    for _ in range(3 * 24 * 4):
        asked += one.tick(seconds=HOUR / 4).request is not None
        if one.look.busy:
            one.end(RunState.SUCCESS)
    assert asked == 3
    one.tick(seconds=10 * 24 * HOUR)  # switched off for ten days: made up for once
    one.end(RunState.SUCCESS)
    assert len(one.requests) == 4
    assert one.until_asked(10) == 0
    one.tick(seconds=24 * HOUR)
    one.end(RunState.FAILED)
    assert one.until_asked(5) == 3
    one.end(RunState.SUCCESS)
    assert one.until_asked(20) == 0


def test_a_clock_that_is_set_back_neither_repeats_nor_stops_anything() -> None:
    one = Follower("0 * * * *")
    one.tick()
    one.tick(seconds=HOUR)
    one.end(RunState.SUCCESS)
    one.tick(seconds=-100 * HOUR)
    assert one.until_asked(20) == 0
    one.tick(seconds=HOUR)
    assert len(one.requests) == 2
    watching = Follower()
    watching.until_asked(3)
    watching.end(RunState.FAILED)
    watching.tick(seconds=-1000 * HOUR)
    assert 0 < watching.until_asked(5) <= 3


def test_a_time_is_in_utc() -> None:
    assert next_time("30 3 * * *", 1_767_225_600.0) == 1_767_225_600.0 + 3.5 * HOUR  # from 2026-01-01 00:00 UTC


@pytest.mark.parametrize("text", ["daily", "61 * * * *", "* * *", "0 0 30 2 *", "0 3 * * * * *", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="neither 'watch' nor 'none' nor a cron expression"):
        TypeAdapter(Refresh).validate_python(text)


def test_a_cursor_of_another_version_is_forgotten() -> None:
    assert Followed.from_json([["path", 1, 2]]) == Followed()
    assert Followed.from_json({"seen": "x", "other": 1}) == Followed()


@given(st.lists(st.sampled_from(["A", "B", "C", "ok", "fail", "look", "look", "look"]), max_size=60))
def test_in_the_end_the_last_state_was_dealt_with(events: list[str]) -> None:
    one = Follower()
    for event in events:
        if event in "ABC":
            one.tick(event)
        elif event == "look":
            one.tick()
        elif one.look.busy:
            one.end(RunState.SUCCESS if event == "ok" else RunState.FAILED)
    for _ in range(3 * LONGEST_WAIT):
        if one.look.busy:
            one.end(RunState.SUCCESS)
        one.tick()
    assert one.followed.done == one.look.state == one.requests[-1][1]
    asked = len(one.requests)
    assert one.until_asked(20) == 0
    assert len(one.requests) == asked
