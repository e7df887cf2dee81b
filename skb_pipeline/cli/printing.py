"""What commands print: data to stdout, as a table, JSON or CSV; notes and readable errors to stderr.

All output goes through here, where text of others loses what a terminal or a spreadsheet would obey (``text/sinks``).
"""

from __future__ import annotations

import csv
import errno
import io
import logging
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

from skb_pipeline.text.sinks import (
    TerminalFormatter,
    csv_cell,
    json_text,
    terminal_line,
    terminal_text,
    traceback_text,
    yaml_text,
)

Row = dict[str, Any]
T = TypeVar("T")
_PLACES = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR}
"""Faults of a file's place that a person can mend, such as one that may not be written."""


class Commands(click.Group):
    """The group at the top: what goes wrong in a command is told in plain characters."""

    def invoke(self, ctx: click.Context) -> Any:
        """See ``click.Group``."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = terminal_text(error.message)  # type: ignore[misc]  # its class and context are needed
            raise


def plain_messages() -> None:
    """Tracebacks, and warnings of modules that no logger takes, in plain characters too; for this whole process."""
    sys.excepthook = lambda kind, error, trace: click.echo(traceback_text(kind, error, trace), err=True, nl=False)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TerminalFormatter())


def readable_errors(command: Callable[..., T]) -> Callable[..., T]:
    """Turn errors a user can mend into one message and exit code 1; a bug keeps its traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> T:
        from skb_pipeline.errors import UserError
        from skb_pipeline.storage.paths import home_fault

        try:
            return command(*args, **kwargs)
        except (UserError, FileNotFoundError, FileExistsError) as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            fault = home_fault(error)
            if fault is None and error.errno not in _PLACES:
                raise
            raise click.ClickException(str(fault or error)) from error

    return wrapped


def print_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print some columns of rows to stdout; ``output`` is ``table``, ``json`` or ``csv``."""
    if output == "json":
        print_json([{c: row[c] for c in columns} for row in rows])
    elif output == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([csv_cell(c) for c in columns])
        writer.writerows([csv_cell(row[c]) for c in columns] for row in rows)
        out(buffer.getvalue(), end="")
    else:
        out(aligned(rows, columns))


def print_json(value: Any) -> None:
    """Print a value to stdout as JSON; read back it is equal, whatever its texts hold."""
    out(json_text(value))


def print_yaml(value: Any) -> None:
    """The same as YAML."""
    out(yaml_text(value), end="")


def out(text: str, *, end: str = "\n") -> None:
    """Print data to stdout."""
    click.echo(terminal_text(text) + end, nl=False)


def aligned(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as a text table, one line each; numbers with a fraction get four digits."""
    cells = [[_cell(c) for c in columns], *[[_cell(row[c]) for c in columns] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def note(text: str) -> None:
    """Tell something that is no data, on stderr."""
    click.echo(terminal_text(text), err=True)


def confirm(question: str) -> None:
    """Go on only if the person at the terminal says yes."""
    click.confirm(terminal_line(question), abort=True, err=True)


def shown_size(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else terminal_line(str(value))
