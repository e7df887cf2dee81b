"""Who started a run: tags with machine and process."""

from __future__ import annotations

import os
import re
import socket

import dagster as dg

HOST, PID = "skb/host", "skb/pid"
TRIGGER = "skb/trigger"
"""Tag of a run: what asked for it. Runs that a person starts in the UI have none."""


def this_host() -> str:
    """The machine's name in the letters that a tag may hold."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:63]


def starter_tags() -> dict[str, str]:
    """Tags of a run that this process executes itself, as the one that writes its dataset. Dagster's daemon does not
    start it again when the process is gone."""
    return {HOST: this_host(), PID: str(os.getpid()), "dagster/max_retries": "0", TRIGGER: "command line"}


def started_here(run: dg.DagsterRun) -> bool:
    """Whether this process started the run and holds its dataset's lock. A run that the UI starts anew has the tags of
    the one it repeats, and another process."""
    return starter_tags().items() <= run.tags.items()
