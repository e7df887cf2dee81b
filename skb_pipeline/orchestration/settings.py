"""When a dataset is refreshed by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator

WATCH, NEVER = "watch", "none"


def _check(value: str) -> str:
    text = " ".join(value.split())
    if text in (WATCH, NEVER):
        return text
    try:
        next(CronSim(text, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        reason = f" ({error})" if str(error) else ""
        raise ValueError(
            f"{value!r} is neither 'watch' nor 'none' nor a cron expression of five fields such as '0 3 * * *'{reason}"
        ) from None
    return text


Refresh = Annotated[str, AfterValidator(_check)]
"""``watch``: whenever a source file or the spec changes; ``none``: never; else a cron expression, in UTC."""


def next_time(cron: str, after: float) -> float:
    """The first time that a cron expression names behind another one; both in seconds since 1970."""
    return next(CronSim(cron, datetime.fromtimestamp(after, tz=UTC))).timestamp()
