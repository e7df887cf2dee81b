"""Commands that make artefacts and look after them: ``run``, ``gc`` and ``ui``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skb_pipeline.cli.options import ENGINES, dataset_option, format_option, known_dataset
from skb_pipeline.cli.printing import aligned, note, print_rows, readable_errors, shown_size
from skb_pipeline.cli.tables import MetricTables, print_metrics

if TYPE_CHECKING:
    from skb_pipeline.orchestration.running import StageOutcome


@click.command()
@dataset_option
@click.option("--to", metavar="ASSET", help="Stop at this asset, such as skb/store; default: everything.")
@click.option("--force", is_flag=True, help="Compute although nothing changed.")
@click.option("--engine", type=ENGINES, help="Who makes the plans; default: as the spec says.")
@click.option("--questions", type=click.IntRange(min=1), help="Most questions a language model plans; default: all.")
@format_option
@readable_errors
def run(name: str, to: str | None, force: bool, engine: str | None, questions: int | None, output: str) -> None:
    """Materialise a dataset's assets, reusing what did not change, and print the metric table."""
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.orchestration.running import RunFailedError, check_asset, materialise, prepare_home

    get_spec(name)
    if to is not None:
        check_asset(to)
    prepare_home()
    note(f"Materialising {name} …")
    started = time.monotonic()
    try:
        outcomes = materialise(name, to=to, force=force, plans={"engine": engine, "questions": questions})
    except RunFailedError as error:
        note(_stage_table(error.outcomes))
        if _has_table(error.outcomes):
            _print_new_table(name, output)
        raise
    note(_stage_table(outcomes))
    for outcome in outcomes:
        for warning in outcome.warnings:
            note(f"Warning about {outcome.asset}: {warning}")
    if to is not None and to not in {o.asset for o in outcomes}:
        note(f"{to} was skipped; its page in the UI says why")
    total = time.monotonic() - started
    encoded = sum(int(o.metadata.get("texts encoded", 0)) for o in outcomes if not o.reused)
    if all(o.reused for o in outcomes):
        note(f"Nothing changed: all {len(outcomes)} artefacts reused, none rewritten, no encoder call. {total:.0f} s")
    else:
        made = sum(not o.reused for o in outcomes)
        note(f"{made} artefacts made, {len(outcomes) - made} reused, {encoded} texts encoded. {total:.0f} s")
    if _has_table(outcomes):
        _print_new_table(name, output)
        note("\nAll numbers and how they were made: `make ui`, or `skb-pipeline ui`, then open http://127.0.0.1:3000")


@click.command()
@click.option("--dataset", "name", help="Clean up behind this dataset.", callback=known_dataset)
@click.option("--all", "everything", is_flag=True, help="List what belongs to no spec.")
@click.option("--yes", is_flag=True, help="With --all: remove what is listed.")
@click.option(
    "--keep-runs",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    envvar="SKB_KEEP_RUNS",
    show_envvar=True,
    help="Newest runs that stay in Dagster's history.",
)
@format_option
@readable_errors
def gc(name: str | None, everything: bool, yes: bool, keep_runs: int, output: str) -> None:
    """Remove what is of no use any more.

    With --dataset: all but two versions of each artefact, leftovers and half-done work of killed and failed
    runs, failures told of systems that are gone, vectors of encoders that no kept version was made with, and old runs
    in Dagster's history, unless they made what is kept. With --all: list the datasets that have no spec any more, with
    the size of what they left; --yes removes it, as `dataset remove` does one by one. Not while a run of the dataset is
    going on.
    """
    if (name is None) == (not everything) or (yes and not everything):
        raise click.UsageError("give either --dataset NAME or --all; --yes goes with --all")
    if name is None:
        _collect_orphans(yes, output)
    else:
        _collect_garbage(name, keep_runs)


def _collect_garbage(name: str, keep_runs: int) -> None:
    from skb_pipeline.datasets.catalogue import spec_files
    from skb_pipeline.orchestration.old_runs import remove_old_runs
    from skb_pipeline.orchestration.removal import check_idle, opened
    from skb_pipeline.orchestration.running import asset_keys
    from skb_pipeline.storage.rows.collection import fingerprints_in_use, remove_unused
    from skb_pipeline.storage.writing import writing

    if name not in spec_files():
        raise click.ClickException(f"{name} has no spec any more: `skb-pipeline dataset remove {name}` takes the rest")
    with opened() as (workspace, instance), writing(workspace.store.of_dataset(name), "gc"):
        encoder, cache = workspace.open_encoder(workspace.spec(name))
        check_idle(instance, name)
        keys = asset_keys()
        removed = workspace.store.collect_garbage(name, keys)
        in_use = [encoder.model_fingerprint, *fingerprints_in_use(workspace.store, name)]
        unused = remove_unused(workspace.caches(name), in_use)
        merged = cache.merge(at=2)
        runs = remove_old_runs(instance, workspace.store, name, keys, keep=keep_runs)
    note(f"{len(removed)} old versions and {len(unused)} unused vector caches removed, {merged} cache parts merged")
    note(f"{runs.runs} old runs removed from Dagster's history, {shown_size(runs.size)} of files")


def _collect_orphans(yes: bool, output: str) -> None:
    from skb_pipeline.orchestration.removal import find_remains, opened, orphans, remove_remains

    with opened() as (workspace, instance):
        found = orphans(find_remains(workspace, instance))
        rows = [
            {
                "dataset": one.dataset,
                "artefacts": one.store_bytes if output != "table" else shown_size(one.store_bytes),
                "caches": one.cache_bytes if output != "table" else shown_size(one.cache_bytes),
                "partition": "yes" if one.partition else "no",
                "neo4j": "not asked" if one.neo4j is None else len(one.neo4j),
            }
            for one in found
        ]
        print_rows(rows, ["dataset", "artefacts", "caches", "partition", "neo4j"], output)
        for one in found if yes else []:
            remove_remains(workspace, instance, one, spec=False)
            note(f"{one.dataset} is removed")
    if found and not yes:
        note("`skb-pipeline dataset remove NAME` removes one of them, `skb-pipeline gc --all --yes` all")


@click.command()
@click.option("--port", default=3000, show_default=True, type=int)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Of what is printed.",
)
@readable_errors
def ui(port: int, host: str, log_level: str) -> None:
    """Start Dagster's UI and daemon on the same home the command line uses."""
    from skb_pipeline.orchestration.running import open_instance, prepare_home
    from skb_pipeline.orchestration.serving import ui_command, ui_environment

    prepare_home()
    with open_instance(None):
        pass
    note(f"Dagster starts on http://{host}:{port} (about half a minute); stop it with Ctrl-C")
    os.execve(sys.executable, ui_command(host, port, log_level), ui_environment(os.environ))


def _has_table(outcomes: Sequence[StageOutcome]) -> bool:
    return any(o.asset == "evaluation/metrics" for o in outcomes)


def _print_new_table(name: str, output: str) -> None:
    from skb_pipeline.systems.registry import load_registry
    from skb_pipeline.workspace import Workspace

    workspace = Workspace()
    made = MetricTables.read(workspace.store.require(name, "evaluation/metrics"))
    print_metrics(made, load_registry(workspace.root).parts, split="test", slice_name="all", output=output)


def _stage_table(outcomes: Sequence[StageOutcome]) -> str:
    rows = [{"stage": o.asset, "seconds": f"{o.seconds:.1f}", "": "reused" if o.reused else ""} for o in outcomes]
    rows.append({"stage": "total", "seconds": f"{sum(o.seconds for o in outcomes):.1f}", "": ""})
    return aligned(rows, ["stage", "seconds", ""])
