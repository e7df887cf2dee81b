"""What commands print: data to stdout, as a table, JSON or CSV; notes and readable errors to stderr."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

Row = dict[str, Any]
T = TypeVar("T")
_PLACES = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR}
"""Faults of a file's place that a person can mend, such as one that may not be written."""


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
        click.echo(json.dumps([{c: row[c] for c in columns} for row in rows], indent=1, ensure_ascii=False))
    elif output == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(buffer.getvalue(), nl=False)
    else:
        click.echo(aligned(rows, columns))


def aligned(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as a text table; numbers with a fraction get four digits."""
    cells = [list(columns), *[[_cell(row[c]) for c in columns] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def note(text: str) -> None:
    """Tell something that is no data, on stderr."""
    click.echo(text, err=True)


def shown_size(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
