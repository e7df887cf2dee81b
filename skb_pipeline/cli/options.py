"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable

import click

from skb_pipeline.cli.printing import readable_errors

ENGINES = click.Choice(["rules", "openai", "vllm", "file"])

Command = Callable[..., None]


def dataset_option(command: Command) -> Command:
    """``--dataset``, which arrives as ``name``: of the catalogue, or of a dataset that left something behind."""
    given = click.option("--dataset", "name", required=True, help="Name of a dataset.", callback=known_dataset)
    return given(command)


@readable_errors
def known_dataset(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """The name, if something has it; without this, a slip of the pen is told as an artefact that was never made."""
    if name is None:
        return None
    from skb_pipeline.datasets.catalogue import UnknownDatasetError, spec_files
    from skb_pipeline.errors import unknown_name
    from skb_pipeline.storage.paths import check_dataset_name
    from skb_pipeline.workspace import Workspace

    known = {*spec_files(), *Workspace().datasets()}
    if check_dataset_name(name) not in known:
        raise UnknownDatasetError(unknown_name(f"unknown dataset {name!r}", name, sorted(known)))
    return name


def json_option(command: Command) -> Command:
    """``--format``, which arrives as ``output``, of what is no plain table."""
    formats = click.Choice(["table", "json"])
    return click.option("--format", "output", type=formats, default="table", show_default=True)(command)


def format_option(command: Command) -> Command:
    """``--format``, which arrives as ``output``; see ``printing.print_rows``."""
    formats = click.Choice(["table", "json", "csv"])
    return click.option("--format", "output", type=formats, default="table", show_default=True)(command)
