"""Commands on the catalogue: ``dataset list``, ``show``, ``init``, ``check`` and ``remove``."""

from __future__ import annotations

from pathlib import Path

import click

from skb_pipeline.cli.options import format_option
from skb_pipeline.cli.printing import (
    aligned,
    confirm,
    note,
    out,
    print_json,
    print_rows,
    print_yaml,
    readable_errors,
    shown_size,
)
from skb_pipeline.text.sinks import terminal_line


@click.group()
def dataset() -> None:
    """Datasets of the catalogue."""


@dataset.command("list")
@format_option
@readable_errors
def dataset_list(output: str) -> None:
    """Names of all datasets, built-in and your own."""
    from skb_pipeline.datasets.catalogue import spec_files

    rows = [{"name": name, "spec": _shown_path(path)} for name, path in spec_files().items()]
    print_rows(rows, ["name", "spec"], output)


@dataset.command("show")
@click.argument("name")
@readable_errors
def dataset_show(name: str) -> None:
    """Print a dataset's spec in full, with defaults, as YAML."""
    from skb_pipeline.datasets.catalogue import get_spec

    print_yaml(get_spec(name).model_dump(mode="json", exclude_none=True))


@dataset.command("init")
@click.argument("folder", metavar="PATH", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", help="Name of the dataset; default: the folder's name.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: NAME.yaml in the catalogue.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@readable_errors
def dataset_init(folder: Path, name: str | None, output: Path | None, force: bool) -> None:
    """Look at the tables in a folder (Parquet, CSV, JSONL) and draft a spec of them."""
    from skb_pipeline.datasets.catalogue import catalogue_folder
    from skb_pipeline.onboarding.drafting import draft_spec, name_for
    from skb_pipeline.storage.paths import check_dataset_name

    name = check_dataset_name(name) if name else name_for(folder)
    output = output or catalogue_folder() / f"{name}.yaml"
    if output.exists() and not force:
        raise click.ClickException(f"{output} is there already; --force replaces it")
    draft = draft_spec(folder, name)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(draft.text, encoding="utf-8")
    note(f"Wrote {_shown_path(output)}")
    if draft.doubts:
        note("Please look at:\n" + "\n".join(f"  - {terminal_line(doubt)}" for doubt in draft.doubts))
    note(f"Next: edit it, then `skb-pipeline dataset check {name}`")


@dataset.command("check")
@click.argument("name")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@readable_errors
def dataset_check(name: str, output: str) -> None:
    """Check a dataset before it is loaded: its spec (a name of the catalogue, or a YAML file) and its source.

    Exit code 1 when a load would stop.
    """
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.datasets.loading import load_spec
    from skb_pipeline.datasets.sources import open_source
    from skb_pipeline.onboarding.inspection import inspect_source
    from skb_pipeline.storage.paths import skb_home
    from skb_pipeline.systems.registry import load_registry

    spec = load_spec(Path(name)) if name.endswith((".yaml", ".yml")) else get_spec(name)
    load_registry(skb_home()).wanted(spec)
    found = inspect_source(spec, open_source(spec))
    if output == "json":
        print_json(found.as_dict())
    else:
        for title, rows in found.sections():
            out(f"{title}\n{aligned(rows, list(rows[0]))}\n")
        for warning in found.warnings:
            out(f"Look at: {terminal_line(warning)}")
        for stop in found.stops:
            out(f"Would stop: {stop}")
    if found.stops:
        raise SystemExit(1)
    note(f"{spec.name}: {found.files} source files ({found.megabytes} MB): a load would go through")


@dataset.command("remove")
@click.argument("name")
@click.option("--spec", is_flag=True, help="Its spec file too, if that lies in your own catalogue.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@readable_errors
def dataset_remove(name: str, spec: bool, yes: bool) -> None:
    """Remove a dataset's artefacts, caches, partition, and versions on Neo4j (if NEO4J_URI is set).

    It need not be in the catalogue any more. Not while a run of it is going on.
    """
    from skb_pipeline.orchestration.removal import check_idle, find_remains, opened, remains_of, remove_remains

    with opened() as (workspace, instance):
        found = remains_of(find_remains(workspace, instance), name)
        check_idle(instance, name)
        note(f"Of {name} there are {shown_size(found.store_bytes)} of artefacts, {shown_size(found.cache_bytes)} of "
             f"caches{', its partition' if found.partition else ''}.")  # fmt: skip
        if found.neo4j is None:
            note("NEO4J_URI is not set: what is on a Neo4j server stays there.")
        elif found.neo4j:
            note(f"On the Neo4j server: {', '.join(found.neo4j)}.")
        kept = found.spec is not None and not (spec and found.own_spec)
        if found.spec is not None:
            built_in = " (it is built in)" if spec and found.own_spec is None else ""
            note(f"Its spec {_shown_path(found.spec)} {'stays' if kept else 'goes too'}{built_in}.")
        if not yes:
            confirm(f"Remove all that for good? Vectors and replies of {name} have to be made again")
        remove_remains(workspace, instance, found, spec=spec)
    note(f"{name} is removed")


def _shown_path(path: Path) -> str:
    from skb_pipeline.storage.paths import project_root

    root = project_root()
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else str(path)
