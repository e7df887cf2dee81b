"""A fault of Dagster's in-process executor, mended: without this, some failed runs never end.

After a step the executor skips what has to be skipped and then abandons what has to be abandoned, once. A step that
follows both a skipped and a failed one can be skipped only when the abandoned ones are known, so it is looked at too
early, and if no other step is left to run, the executor waits for it for ever (seen in dagster 1.13.27: an asset that
is skipped as its server is not set up, a failed asset, and a blocking check of the failed one).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagster._core.execution.plan.active import ActiveExecution

_MENDED = "_skb_mended"


def mend_plan_events() -> None:
    """Let the executor look again until nothing is left to skip or abandon; a second call changes nothing."""
    original = ActiveExecution.plan_events_iterator
    if hasattr(original, _MENDED):
        return

    def until_none_is_left(self: ActiveExecution, job_context: Any) -> Iterator[Any]:
        yield from original(self, job_context)
        self._update()
        while self._pending_skip or self._pending_abandon:
            yield from original(self, job_context)
            self._update()

    setattr(until_none_is_left, _MENDED, True)
    ActiveExecution.plan_events_iterator = until_none_is_left  # type: ignore[method-assign]
