"""What Dagster's processes print on a terminal: messages and tracebacks of steps, sensors and schedules may quote a
source or a server, and Dagster prints them as they are. Here its console logger gets a formatter that does not.

The logger that runs have unless their config names one cannot be declared (dagster 1.13.27), so the function that makes
it is wrapped where Dagster calls it.
"""

from __future__ import annotations

import logging

from dagster import _loggers
from dagster._core.definitions import instigation_logger

from skb_pipeline.text.sinks import TerminalFormatter

_ORIGINAL = _loggers.create_console_logger


def mend_console() -> None:
    """Let Dagster's consoles show text of others in plain characters; a second call changes nothing."""
    _loggers.create_console_logger = plain_console
    instigation_logger.create_console_logger = plain_console


def plain_console(name: str, level: str | int) -> logging.Logger:
    """Dagster's console logger, colours included; see its ``create_console_logger``."""
    logger = _ORIGINAL(name, level)
    for handler in logger.handlers:
        handler.setFormatter(TerminalFormatter(handler.formatter))
    return logger
