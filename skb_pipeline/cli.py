"""The command line ``skb-pipeline``. Data goes to stdout, everything else to stderr; exit code 0 only on success."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

ENGINES = click.Choice(["rules", "openai", "vllm", "file"])
FORMATS = click.Choice(["table", "json", "csv"])
Row = dict[str, Any]


def main() -> None:
    """Entry point."""
    cli(prog_name="skb-pipeline")


def _format_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--format", "output", type=FORMATS, default="table", show_default=True)(command)


def _readable_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn errors a user can mend into one message and exit code 1; a bug keeps its traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from skb_pipeline.errors import UserError

        try:
            command(*args, **kwargs)
        except (UserError, FileNotFoundError, FileExistsError) as error:
            raise click.ClickException(str(error)) from error

    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="skb-pipeline")
def cli() -> None:
    """Retrieval pipeline for semi-structured knowledge bases."""


@cli.group()
def dataset() -> None:
    """Datasets of the catalogue."""


@dataset.command("list")
@_format_option
@_readable_errors
def dataset_list(output: str) -> None:
    """Names of all datasets, built-in and your own."""
    from skb_pipeline.datasets.catalogue import spec_files

    rows = [{"name": name, "spec": _shown_path(path)} for name, path in spec_files().items()]
    _print_rows(rows, ["name", "spec"], output)


@dataset.command("show")
@click.argument("name")
@_readable_errors
def dataset_show(name: str) -> None:
    """Print a dataset's spec in full, with defaults, as YAML."""
    import yaml

    from skb_pipeline.datasets.catalogue import get_spec

    spec = get_spec(name).model_dump(mode="json", exclude_none=True)
    click.echo(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True, width=100), nl=False)


@dataset.command("init")
@click.argument("folder", metavar="PATH", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", help="Name of the dataset; default: the folder's name.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: NAME.yaml in the catalogue.")
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@_readable_errors
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
    _note(f"Wrote {_shown_path(output)}")
    if draft.doubts:
        _note("Please look at:\n" + "\n".join(f"  - {doubt}" for doubt in draft.doubts))
    _note(f"Next: edit it, then `skb-pipeline dataset check {name}`")


@dataset.command("check")
@click.argument("name")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@_readable_errors
def dataset_check(name: str, output: str) -> None:
    """Check a dataset before it is loaded: its spec (a name of the catalogue, or a YAML file) and its source.

    Exit code 1 when a load would stop.
    """
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.datasets.loading import load_spec
    from skb_pipeline.datasets.sources import open_source
    from skb_pipeline.onboarding.inspection import inspect_source

    spec = load_spec(Path(name)) if name.endswith((".yaml", ".yml")) else get_spec(name)
    found = inspect_source(spec, open_source(spec))
    if output == "json":
        click.echo(json.dumps(found.as_dict(), indent=1, ensure_ascii=False))
    else:
        for title, rows in found.sections():
            click.echo(f"{title}\n{_aligned(rows, list(rows[0]))}\n")
        for warning in found.warnings:
            click.echo(f"Look at: {warning}")
        for stop in found.stops:
            click.echo(f"Would stop: {stop}")
    if found.stops:
        raise SystemExit(1)
    _note(f"{spec.name}: {found.files} source files ({found.megabytes} MB): a load would go through")


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--to", metavar="ASSET", help="Stop at this asset, such as skb/store; default: everything.")
@click.option("--force", is_flag=True, help="Compute although nothing changed.")
@click.option("--engine", type=ENGINES, help="Who makes the plans; default: as the spec says.")
@click.option("--questions", type=click.IntRange(min=1), help="Most questions a language model plans; default: all.")
@_format_option
@_readable_errors
def run(name: str, to: str | None, force: bool, engine: str | None, questions: int | None, output: str) -> None:
    """Materialise a dataset's assets, reusing what did not change, and print the metric table."""
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.orchestration.running import RunFailedError, materialise, prepare_home

    get_spec(name)
    prepare_home()
    _note(f"Materialising {name} …")
    started = time.monotonic()
    try:
        outcomes = materialise(name, to=to, force=force, plans={"engine": engine, "questions": questions})
    except KeyError as error:
        raise click.ClickException(str(error.args[0])) from error
    except RunFailedError as error:
        _note(_stage_table(error.outcomes))
        raise
    _note(_stage_table(outcomes))
    if to is not None and to not in {o.asset for o in outcomes}:
        _note(f"{to} was skipped; its page in the UI says why")
    total = time.monotonic() - started
    encoded = sum(int(o.metadata.get("texts encoded", 0)) for o in outcomes if not o.reused)
    if all(o.reused for o in outcomes):
        _note(f"Nothing changed: all {len(outcomes)} artefacts reused, none rewritten, no encoder call. {total:.0f} s")
    else:
        made = sum(not o.reused for o in outcomes)
        _note(f"{made} artefacts made, {len(outcomes) - made} reused, {encoded} texts encoded. {total:.0f} s")
    if any(o.asset == "evaluation/metrics" for o in outcomes):
        _print_metrics(name, split="test", slice_name="all", output=output)
        _note("\nAll numbers and how they were made: `make ui`, or `skb-pipeline ui`, then open http://127.0.0.1:3000")


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--split", default="test", show_default=True, help="train, val, test or all (json and csv only).")
@click.option("--slice", "slice_name", default="all", show_default=True, help="A slice, or `every` (json and csv).")
@_format_option
@_readable_errors
def metrics(name: str, split: str, slice_name: str, output: str) -> None:
    """Print the metric table of a dataset."""
    _print_metrics(name, split=split, slice_name=slice_name, output=output)


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--system", default="fused", show_default=True, help="Which ranking: bm25, dense, graph or fused.")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1, 1000), help="Number of hits.")
@click.option("--explain", is_flag=True, help="Also print plan, links and each branch's ranks (to stderr).")
@click.argument("question")
@_format_option
@_readable_errors
def search(name: str, system: str, k: int, explain: bool, question: str, output: str) -> None:
    """Rank the nodes of a dataset for one question."""
    from skb_pipeline.search import SearchSession

    with SearchSession.open(name) as session:
        hits = session.search(question, system=system, k=k)
        if explain:
            _note(json.dumps(session.explain(question), indent=1, ensure_ascii=False))
            hits = session.with_branch_ranks(question, hits)
    ranks = [key for key in hits[0] if key.startswith("rank ")] if hits else []
    _print_rows(hits, ["rank", "external_id", "node_type", "name", "score", *ranks], output)


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--engine", type=ENGINES, help="Who makes the plan; default: as the spec says.")
@click.argument("question")
@_readable_errors
def plan(name: str, engine: Any, question: str) -> None:
    """Print a question's plan as JSON: plan, status, dropped, links, cypher, sql, n_cand."""
    from skb_pipeline.search import SearchSession

    with SearchSession.open(name, engine=engine) as session:
        click.echo(json.dumps(session.explain(question), indent=1, ensure_ascii=False))


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.argument("question")
@_readable_errors
def prompt(name: str, question: str) -> None:
    """Print what a language model is asked for a question, and (to stderr) the version of the prompts."""
    from skb_pipeline.planning.prompts.prompt_set import PromptSet
    from skb_pipeline.text.cleaning import clean_text
    from skb_pipeline.workspace import Workspace

    workspace = Workspace()
    prompts = PromptSet(workspace.spec(name), workspace.guidance(name))
    for message in prompts.messages(clean_text(question)):
        click.echo(f"--- {message.role}\n{message.content}")
    _note(f"prompts {prompts.version}")


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--refresh", is_flag=True, help="Make it anew; every prompt changes with it.")
@_readable_errors
def guidance(name: str, refresh: bool) -> None:
    """Print what prompts tell of a dataset (pinned: it changes with the schema or on request only), as JSON."""
    from skb_pipeline.orchestration.running import materialise, prepare_home
    from skb_pipeline.workspace import Workspace

    if refresh:
        prepare_home()
        (made,) = materialise(name, only="planning/guidance", force=True)
        for note in [*made.metadata["notes"], *made.metadata["reasons"]]:
            _note(note)
    click.echo(json.dumps(Workspace().guidance(name).to_json(), indent=1, ensure_ascii=False))


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.argument("query_id")
@_readable_errors
def trace(name: str, query_id: str) -> None:
    """Print what became of one evaluated question, as JSON."""
    from skb_pipeline.evaluation.traces import read_trace
    from skb_pipeline.workspace import TRACES_FILE, Workspace

    path = Workspace().store.require(name, "evaluation/traces").file(TRACES_FILE)
    try:
        click.echo(json.dumps(read_trace(path, query_id), indent=1, ensure_ascii=False))
    except KeyError as error:
        raise click.ClickException(str(error.args[0])) from error


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.argument("asset", default="evaluation/metrics")
@_readable_errors
def lineage(name: str, asset: str) -> None:
    """Print what an artefact was made from, back to the source files."""
    from skb_pipeline.orchestration.lineage import explain
    from skb_pipeline.workspace import Workspace

    for line in explain(Workspace().store, name, asset):
        click.echo(line)


@cli.command()
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@_readable_errors
def gc(name: str) -> None:
    """Remove artefact versions older than the previous one, leftovers of killed runs, and vectors of encoders that no
    kept version was made with. Not while a run of the dataset is going on."""
    from skb_pipeline.storage.vectors import fingerprints_in_use, remove_unused
    from skb_pipeline.workspace import Workspace

    workspace = Workspace()
    removed = workspace.store.collect_garbage(name)
    encoder, cache = workspace.open_encoder(workspace.spec(name))
    in_use = [encoder.model_fingerprint, *fingerprints_in_use(workspace.store, name)]
    unused = remove_unused(workspace.caches(name), in_use)
    merged = cache.merge(at=2)
    _note(f"{len(removed)} old versions and {len(unused)} unused vector caches removed, {merged} cache parts merged")


@cli.group()
def neo4j() -> None:
    """The graph on a Neo4j server (NEO4J_URI, NEO4J_USER, NEO4J_PASSWORD, NEO4J_DATABASE)."""


@neo4j.command("load")
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--force", is_flag=True, help="Load although nothing changed.")
@_format_option
@_readable_errors
def neo4j_load(name: str, force: bool, output: str) -> None:
    """Load a dataset beside its version in use, check all counts, and switch to it."""
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings
    from skb_pipeline.orchestration.running import materialise, prepare_home

    get_spec(name)
    Neo4jSettings.require()
    prepare_home()
    outcomes = materialise(name, to="graph/neo4j", force=force)
    (outcome,) = (o for o in outcomes if o.asset == "graph/neo4j")
    columns = ["label", "address", "database", "nodes", "relationships", "self-loops", "reused"]
    _print_rows([outcome.metadata], columns, output)


@neo4j.command("export")
@click.option("--dataset", "name", required=True, help="Name of a dataset.")
@click.option("--output", "folder", required=True, type=click.Path(path_type=Path), help="A new or empty folder.")
@click.option("--gzip", is_flag=True, help="Compress the data files.")
@_readable_errors
def neo4j_export(name: str, folder: Path, gzip: bool) -> None:
    """Write CSV files for `neo4j-admin database import` and print the command that imports them."""
    import shlex

    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.graph.neo4j.export import export_skb
    from skb_pipeline.plans.schema import GraphSchema
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.workspace import SKB_FILE, Workspace, skb_of

    schema, store = GraphSchema.from_spec(get_spec(name)), Workspace().store.require(name, "skb/store")
    with connect(store.file(SKB_FILE), read_only=True) as con:
        export = export_skb(con, schema, folder, dataset=name, data=skb_of(store), gzip=gzip)
    nodes, relationships, _ = export.counts.totals
    _note(f"{nodes} nodes and {relationships} relationships of {export.label} in {export.folder}")
    if export.aliases_changed:
        _note(f"{export.aliases_changed} aliases had a U+001F inside; it is a blank now")
    _note("In that folder, with the database stopped (or ./import.sh DATABASE):")
    click.echo(shlex.join(export.command))


@neo4j.command("status")
@_format_option
@_readable_errors
def neo4j_status(output: str) -> None:
    """List the versions of all datasets on the server."""
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
    from skb_pipeline.graph.neo4j.versions import list_versions

    settings = Neo4jSettings.require()
    with open_driver(settings) as driver, driver.session(database=settings.database) as session:
        found = list_versions(session)
    _note(f"{settings.address}, {settings.database or 'home database'}: {len(found)} versions")
    columns = ["dataset", "label", "state", "nodes", "relationships", "created"]
    rows = [
        {
            "dataset": v.dataset, "label": v.label, "state": v.state, "nodes": v.counts.totals[0],
            "relationships": v.counts.totals[1], "created": v.created,
        }
        for v in found
    ]  # fmt: skip
    _print_rows(rows, columns, output)


@neo4j.command("remove")
@click.option("--dataset", "name", required=True, help="Name of a dataset; it need not be in the catalogue any more.")
@_readable_errors
def neo4j_remove(name: str) -> None:
    """Remove all versions of a dataset from the server."""
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
    from skb_pipeline.graph.neo4j.versions import remove_dataset

    settings = Neo4jSettings.require()
    with open_driver(settings) as driver, driver.session(database=settings.database) as session:
        removed = remove_dataset(session, name)
    _note(f"{len(removed)} versions removed")


@cli.command()
@click.option("--port", default=3000, show_default=True, type=int)
@click.option("--host", default="127.0.0.1", show_default=True)
@_readable_errors
def ui(port: int, host: str) -> None:
    """Start Dagster's UI and daemon on the same home the command line uses."""
    import dagster as dg

    from skb_pipeline.orchestration.partitions import register_datasets
    from skb_pipeline.orchestration.running import close_killed_runs, prepare_home
    from skb_pipeline.storage.paths import project_root

    prepare_home()
    with dg.DagsterInstance.get() as instance:
        register_datasets(instance)
        close_killed_runs(instance)
    _note(f"Dagster starts on http://{host}:{port} (about half a minute); stop it with Ctrl-C")
    root = project_root()
    # The workspace file gives the code location one name for ever, so that switched-on sensors stay on.
    where = ["-w", str(root / "workspace.yaml")] if root else ["-m", "skb_pipeline.definitions"]
    os.execv(sys.executable, [sys.executable, "-m", "dagster", "dev", *where, "-h", host, "-p", str(port)])


def _print_metrics(name: str, *, split: str, slice_name: str, output: str) -> None:
    from skb_pipeline.evaluation.tables import difference_text, text_table
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.workspace import METRICS_FILE, Workspace

    path = Workspace().store.require(name, "evaluation/metrics").file(METRICS_FILE)
    with connect(path, read_only=True) as con:
        rows = con.execute("SELECT * FROM metrics").df()
        differences = con.execute("SELECT * FROM differences").df()
    if output == "table":
        try:
            click.echo(text_table(rows, split=split, slice=slice_name))
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        if slice_name == "all":
            click.echo(difference_text(differences, system="fused", split=split))
            click.echo("Paired differences; * marks an interval without 0.")
        return
    if split != "all":
        rows = rows[rows["split"] == split]
    if slice_name != "every":
        rows = rows[rows["slice"] == slice_name]
    if rows.empty:
        raise click.ClickException(f"no rows for split {split!r} and slice {slice_name!r}")
    columns = ["dataset", "system", "split", "slice", "metric", "value", "ci_low", "ci_high", "n_queries"]
    _print_rows(rows[columns].to_dict("records"), columns, output)


def _stage_table(outcomes: Sequence[Any]) -> str:
    rows = [{"stage": o.asset, "seconds": f"{o.seconds:.1f}", "": "reused" if o.reused else ""} for o in outcomes]
    rows.append({"stage": "total", "seconds": f"{sum(o.seconds for o in outcomes):.1f}", "": ""})
    return _aligned(rows, ["stage", "seconds", ""])


def _print_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    if output == "json":
        click.echo(json.dumps([{c: row[c] for c in columns} for row in rows], indent=1, ensure_ascii=False))
    elif output == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        click.echo(buffer.getvalue(), nl=False)
    else:
        click.echo(_aligned(rows, columns))


def _aligned(rows: Sequence[Row], columns: Sequence[str]) -> str:
    cells = [list(columns), *[[_cell(row[c]) for c in columns] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _note(text: str) -> None:
    click.echo(text, err=True)


def _shown_path(path: Path) -> str:
    from skb_pipeline.storage.paths import project_root

    root = project_root()
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else str(path)


if __name__ == "__main__":
    main()
