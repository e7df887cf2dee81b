"""Whether the metric table of a dataset that is followed is older than it should be. Looks at nothing itself."""

from __future__ import annotations

import datetime as dt
import math
import os

from skb_pipeline.orchestration.settings import WATCH, next_time

HOURS_ENV = "SKB_OVERDUE_HOURS"
HOURS = 6.0
"""From a change, or a planned time, to when the table should stand, where nobody says how long."""


def allowed_seconds() -> float:
    """How long a refresh may take: ``$SKB_OVERDUE_HOURS``, else six hours; no positive number is the same."""
    try:
        hours = float(os.environ.get(HOURS_ENV, HOURS))
    except ValueError:
        hours = HOURS
    return 3600 * (hours if hours > 0 and math.isfinite(hours) else HOURS)


def overdue(policy: str, succeeded: float | None, changed: float, now: float, allowed: float) -> str:
    """Why the table is overdue; empty if it is not.

    Args:
        policy: ``watch`` or a cron expression.
        succeeded: when the last successful run of the whole job began; None for never. All times in seconds since 1970.
        changed: when a source file or the spec changed last.
        now: the time.
        allowed: seconds that a refresh may take.
    """
    if policy == WATCH:
        wanted, what = changed, "files changed"
    else:
        # The planned time behind the last success; without one, behind the last change.
        wanted, what = next_time(policy, changed if succeeded is None else succeeded), "a refresh was planned"
    if now - wanted <= allowed or (succeeded is not None and succeeded >= wanted):
        return ""
    last = "no run has succeeded" if succeeded is None else f"the last successful run began at {_shown(succeeded)}"
    return f"{what} at {_shown(wanted)}, and {last}"


def _shown(time: float) -> str:
    return dt.datetime.fromtimestamp(time, tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
