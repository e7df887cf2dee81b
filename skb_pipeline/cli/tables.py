"""Commands that print what an evaluation found: ``metrics`` and ``trace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from skb_pipeline.cli.options import dataset_option, format_option
from skb_pipeline.cli.printing import Row, note, out, print_json, print_rows, readable_errors
from skb_pipeline.errors import UnknownNameError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from skb_pipeline.storage.artifacts import Artifact
    from skb_pipeline.systems.newest import Newest


@click.command()
@dataset_option
@click.option("--split", default="test", show_default=True, help="train, val, test or all (json and csv only).")
@click.option("--slice", "slice_name", default="all", show_default=True, help="A slice, or `every` (json and csv).")
@click.option("--system", help="Whose differences to others stand below the table; default: fused, or the last row.")
@format_option
@readable_errors
def metrics(name: str, split: str, slice_name: str, system: str | None, output: str) -> None:
    """Print the metric table of a dataset, and (to stderr) whether its spec or its files have changed since."""
    from skb_pipeline.systems.newest import on_newest

    def read(newest: Newest) -> tuple[MetricTables, dict[str, list[str]]]:
        return MetricTables.read(newest.workspace.store.require(name, "evaluation/metrics")), newest.registry.parts

    (tables, parts), changed = on_newest(name, read, files=True)
    if changed is not None:
        note(changed)
    print_metrics(tables, parts, split=split, slice_name=slice_name, output=output, system=system)


@click.command()
@dataset_option
@click.argument("query_id")
@readable_errors
def trace(name: str, query_id: str) -> None:
    """Print what became of one evaluated question, as JSON."""
    from skb_pipeline.evaluation.traces import TRACES, read_trace
    from skb_pipeline.systems.newest import on_newest

    def read(newest: Newest) -> Row:
        traces = newest.workspace.store.require(name, "evaluation/traces")
        check_name("query", query_id, TRACES.read(traces, ["query_id"])["query_id"].tolist())
        return read_trace(traces, query_id)

    found, changed = on_newest(name, read)
    if changed is not None:
        note(changed)
    print_json(found)


@dataclass(frozen=True)
class MetricTables:
    """What a version of ``evaluation/metrics`` holds: two tables, and system and reason of those that are missing."""

    rows: pd.DataFrame
    differences: pd.DataFrame
    missing: list[tuple[str, str]]

    @classmethod
    def read(cls, made: Artifact) -> MetricTables:
        """Read a version.

        Raises:
            ArtifactMissingError: its file is gone.
        """
        from skb_pipeline.storage.duck import connect
        from skb_pipeline.workspace import METRICS_FILE

        with connect(made.file(METRICS_FILE), read_only=True) as con:
            return cls(
                con.execute("SELECT * FROM metrics").df(),
                con.execute("SELECT * FROM differences").df(),
                con.execute("SELECT system, reason FROM missing").fetchall(),
            )


def print_metrics(
    tables: MetricTables,
    parts: Mapping[str, Sequence[str]],
    *,
    split: str,
    slice_name: str,
    output: str,
    system: str | None = None,
) -> None:
    """Print metrics in the format ``output``; as a table also how ``system`` differs from others.

    Args:
        parts: what each fused system was made of.

    Raises:
        UnknownNameError: there is no such split, slice or system.
        click.ClickException: there are none of this split and slice together.
    """
    from skb_pipeline.evaluation.parts import beside_best_parts
    from skb_pipeline.evaluation.tables import difference_text, text_table
    from skb_pipeline.systems.registry import DEFAULT_SYSTEM

    rows = tables.rows
    for what, wanted, every in (("split", split, "all"), ("slice", slice_name, "every")):
        known = rows[what].unique().tolist()
        if output == "table" and wanted == every and every not in known:
            raise click.ClickException(f"--{what} {every} needs --format json or csv: a table is about one {what}")
        check_name(what, wanted, known if output == "table" else [*known, every])
    systems = rows["system"].unique().tolist()
    if system is not None:
        check_name("system", system, systems)
    for absent, reason in tables.missing:
        note(f"Not in the table: {absent}: {reason}")
    if output == "table":
        try:
            out(text_table(rows, split=split, slice=slice_name))
        except ValueError as error:
            raise click.ClickException(str(error)) from error
        if slice_name == "all":
            shown = system or (DEFAULT_SYSTEM if DEFAULT_SYSTEM in systems else systems[-1])
            out(difference_text(tables.differences, system=shown, split=split))
            out("Paired differences; * marks an interval without 0.")
            for told in beside_best_parts(rows, tables.differences, {shown: parts.get(shown, [])}):
                if told.worse:
                    note(f"A part of {shown} alone does better here: {told}")
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
