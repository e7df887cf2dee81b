"""Telling somebody else's service that a run failed: one small JSON to ``$SKB_ALERT_URL``.

The address may hold a secret, and messages of errors may quote anything: neither is logged or sent. What is sent are
names that stand in this program, the dataset's name and the run's id; the rest is in the UI.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from skb_pipeline.text.sinks import terminal_text

URL_ENV = "SKB_ALERT_URL"
SECONDS = 5.0
"""For connecting, and for each wait for the answer."""


@dataclass(frozen=True)
class FailedStep:
    """The asset, or step, that failed, and the class of its error."""

    asset: str
    error: str


@dataclass(frozen=True)
class Alert:
    """What is sent.

    Attributes:
        dataset, job, run_id, trigger: of the run; empty where it has none.
        failed: its failed steps.
    """

    dataset: str
    job: str
    run_id: str
    trigger: str
    failed: Sequence[FailedStep]

    def to_json(self) -> dict[str, object]:
        """With a line ``text``, which chat services show."""
        where = ", ".join(f"{step.asset} ({step.error})" for step in self.failed) or "no step"
        text = f"skb-pipeline: run {self.run_id[:8]} of {self.dataset or 'no dataset'} failed: {where}"
        return {"text": terminal_text(text), "event": "run_failed", **asdict(self)}


def send(alert: Alert) -> str:
    """Post an alert; what came of it, in words without the address. Never raises for what a server or address does."""
    import httpx2

    url = os.environ.get(URL_ENV, "").strip()
    if not url:
        return f"{URL_ENV} is not set"
    if not url.startswith(("http://", "https://")):
        return f"no alert: {URL_ENV} has to start with http:// or https://"
    try:
        with httpx2.stream("POST", url, json=alert.to_json(), timeout=SECONDS, follow_redirects=False) as answer:
            status = answer.status_code  # the body is not read
    except Exception as error:  # whatever an address or a server brings up; its message may quote the address
        return f"no alert: {type(error).__name__}"
    return "alert sent" if 200 <= status < 300 else f"no alert: status {status}"
