"""Commands that print what an evaluation found: ``metrics`` and ``trace``."""

from __future__ import annotations

import click

from skb_pipeline.cli.options import dataset_option, format_option
from skb_pipeline.cli.printing import note, out, print_json, print_rows, readable_errors
from skb_pipeline.errors import UnknownNameError, UserError, unknown_name


@click.command()
@dataset_option
@click.option("--split", default="test", show_default=True, help="train, val, test or all (json and csv only).")
@click.option("--slice", "slice_name", default="all", show_default=True, help="A slice, or `every` (json and csv).")
@click.option("--system", help="Whose differences to others stand below the table; default: fused, or the last row.")
@format_option
@readable_errors
def metrics(name: str, split: str, slice_name: str, system: str | None, output: str) -> None:
    """Print the metric table of a dataset."""
    print_metrics(name, split=split, slice_name=slice_name, output=output, system=system)
    _note_age(name)


def _note_age(name: str) -> None:
    """Tell when a run would make the table anew: old numbers are readable, and never shown without a word."""
    from skb_pipeline.datasets.catalogue import spec_files

    if name not in spec_files():
        note(f"{name} has no spec any more: these are the last numbers it had")
        return
    from skb_pipeline.orchestration.status import status_of
    from skb_pipeline.workspace import Workspace

    try:
        found = status_of(name, Workspace(), counting=False)
    except UserError as error:
        note(f"Whether these numbers are out of date cannot be told: {error}")
        return
    (table,) = (one for one in found if one.asset == "evaluation/metrics")
    if not table.settled:
        note(f"Out of date ({'; '.join(table.reasons)}): `skb-pipeline status --dataset {name}` says why")


@click.command()
@dataset_option
@click.argument("query_id")
@readable_errors
def trace(name: str, query_id: str) -> None:
    """Print what became of one evaluated question, as JSON."""
    from skb_pipeline.evaluation.traces import TRACES, read_trace
    from skb_pipeline.workspace import Workspace

    traces = Workspace().store.require(name, "evaluation/traces")
    check_name("query", query_id, TRACES.read(traces, ["query_id"])["query_id"].tolist())
    print_json(read_trace(traces, query_id))


def print_metrics(name: str, *, split: str, slice_name: str, output: str, system: str | None = None) -> None:
    """Print the metrics of a dataset in the format ``output``; as a table also how ``system`` differs from others.

    Raises:
        UnknownNameError: there is no such split, slice or system.
        click.ClickException: there are none of this split and slice together.
    """
    from skb_pipeline.evaluation.tables import difference_text, text_table
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.systems.registry import DEFAULT_SYSTEM
    from skb_pipeline.workspace import METRICS_FILE, Workspace

    path = Workspace().store.require(name, "evaluation/metrics").file(METRICS_FILE)
    with connect(path, read_only=True) as con:
        rows = con.execute("SELECT * FROM metrics").df()
        differences = con.execute("SELECT * FROM differences").df()
        missing = con.execute("SELECT system, reason FROM missing").fetchall()
    for what, wanted, every in (("split", split, "all"), ("slice", slice_name, "every")):
        known = rows[what].unique().tolist()
        if output == "table" and wanted == every and every not in known:
            raise click.ClickException(f"--{what} {every} needs --format json or csv: a table is about one {what}")
        check_name(what, wanted, known if output == "table" else [*known, every])
    systems = rows["system"].unique().tolist()
    if system is not None:
        check_name("system", system, systems)
    for absent, reason in missing:
        note(f"Not in the table: {absent}: {reason}")
    if output == "table":
        try:
            out(text_table(rows, split=split, slice=slice_name))
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        if slice_name == "all":
            shown = system or (DEFAULT_SYSTEM if DEFAULT_SYSTEM in systems else systems[-1])
            out(difference_text(differences, system=shown, split=split))
            out("Paired differences; * marks an interval without 0.")
        return
    if split != "all":
        rows = rows[rows["split"] == split]
    if slice_name != "every":
        rows = rows[rows["slice"] == slice_name]
    if rows.empty:
        raise click.ClickException(f"no rows for split {split!r} and slice {slice_name!r}")
    columns = ["dataset", "system", "split", "slice", "metric", "value", "ci_low", "ci_high", "n_queries"]
    print_rows(rows[columns].to_dict("records"), columns, output)


def check_name(what: str, name: str, known: list[str]) -> None:
    """See that a name is known.

    Raises:
        UnknownNameError: it is not; the message lists those that are.
    """
    if name not in known:
        raise UnknownNameError(unknown_name(f"unknown {what} {name!r}", name, known))
