"""How Dagster's webserver and daemon are started: what they load, and where from."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from skb_pipeline.storage.paths import project_root

_NOWHERE = os.devnull
"""Stands on an import path for a folder in which there is nothing."""


def workspace_file() -> Path:
    """The file that gives the code location one name for ever, so that switched-on sensors stay on."""
    return (project_root() or Path(__file__).parents[1]) / "workspace.yaml"


def ui_command(host: str, port: int, log_level: str) -> list[str]:
    """What starts webserver, daemon and code server together.

    Args:
        log_level: of what they print (``debug``, ``info``, ``warning``, ``error``); runs keep all their events.
    """
    place = ["-w", str(workspace_file()), "-h", host, "-p", str(port)]
    levels = ["--log-level", log_level, "--code-server-log-level", log_level]
    return [sys.executable, "-m", "dagster", "dev", *place, *levels]


def ui_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for it: none of its processes imports from the folder in which it is started.

    That folder stays what relative paths in specs begin at. What ``PYTHONPATH`` names stays on the import path.
    """
    path = environment.get("PYTHONPATH")
    # Dagster takes the first entry away while it loads the code location (dagster 1.13.27): it takes this one.
    first = {"PYTHONPATH": os.pathsep.join([_NOWHERE, path])} if path else {}
    return {**environment, **first, "PYTHONSAFEPATH": "1"}
