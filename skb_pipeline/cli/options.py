"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable

import click

ENGINES = click.Choice(["rules", "openai", "vllm", "file"])

Command = Callable[..., None]


def dataset_option(command: Command) -> Command:
    """``--dataset``, which arrives as ``name``."""
    return click.option("--dataset", "name", required=True, help="Name of a dataset.")(command)


def format_option(command: Command) -> Command:
    """``--format``, which arrives as ``output``; see ``printing.print_rows``."""
    formats = click.Choice(["table", "json", "csv"])
    return click.option("--format", "output", type=formats, default="table", show_default=True)(command)
