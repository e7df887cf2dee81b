"""Commands about many questions at once: ``traces`` and ``report``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skb_pipeline.cli.options import dataset_option, format_option
from skb_pipeline.cli.printing import note, out, print_rows, readable_errors
from skb_pipeline.cli.tables import check_name

if TYPE_CHECKING:
    import pandas as pd

    from skb_pipeline.evaluation.report import Compared
    from skb_pipeline.storage.artifacts import Artifact
    from skb_pipeline.workspace import Workspace

_MOST = 50


@click.command()
@dataset_option
@click.option("--where", "condition", default="true", help="SQL expression, e.g. 'graph_rank = 1 and final_rank > 10'.")
@click.option("--columns", help="Columns to print, joined by commas; `all` for all of them.")
@click.option("--limit", type=click.IntRange(min=0), default=_MOST, show_default=True, help="Most rows; 0: all.")
@click.option("--system", help="Whose buckets and final_rank; default: fused, or the last there is.")
@click.option("--buckets", is_flag=True, help="Count the questions of each bucket per system instead.")
@click.option("--split", help="Only this split; of --buckets test is shown where none is named.")
@click.option("--slice", "slice_name", default="all", show_default=True, help="Slice, for --buckets.")
@format_option
@readable_errors
def traces(
    name: str, condition: str, columns: str | None, limit: int, system: str | None, buckets: bool, split: str | None,
    slice_name: str, output: str,
) -> None:  # fmt: skip
    """Print the evaluated questions that a condition holds for.

    The columns, and what the buckets mean, stand in docs/metrics.md.
    """
    from skb_pipeline.systems.newest import on_newest

    made, changed = on_newest(name, lambda newest: newest.workspace.store.require(name, "evaluation/traces"))
    if changed is not None:
        note(changed)
    chosen = chosen_system(made, system)
    if buckets:
        _print_buckets(made, system, split or "test", slice_name, output)
    else:
        _print_questions(made, chosen, condition, split, columns, limit, output)


def chosen_system(made: Artifact, system: str | None) -> str:
    """``system`` if there is one of this name, else the default or the last.

    Raises:
        UnknownNameError: there is none of this name.
        click.ClickException: there is none at all.
    """
    from skb_pipeline.evaluation.trace_view import read_misses
    from skb_pipeline.systems.registry import DEFAULT_SYSTEM

    known = read_misses(made)["system"].unique().tolist()
    if not known:
        raise click.ClickException("no question was evaluated with any system")
    if system is None:
        return DEFAULT_SYSTEM if DEFAULT_SYSTEM in known else str(known[-1])
    check_name("system", system, known)
    return system


def _print_questions(
    made: Artifact, system: str, condition: str, split: str | None, columns: str | None, limit: int, output: str
) -> None:
    from skb_pipeline.evaluation.conditions import rows_where
    from skb_pipeline.evaluation.trace_view import read_view

    view = read_view(made, system)
    wanted = _columns(view, columns)
    if split is not None:
        check_name("split", split, view["split"].unique().tolist())
        view = view[view["split"] == split]
    found = rows_where(view, condition)
    shown = found.head(limit) if limit else found
    rows = _plain_rows(shown[wanted])
    print_rows([{c: "" if v is None else v for c, v in row.items()} for row in rows] if output == "table" else rows,
               wanted, output)  # fmt: skip
    note(f"{len(found)} of {len(view)} questions; final_rank and bucket are those of {system}")
    if len(shown) < len(found):
        note(f"{len(shown)} of them are printed; --limit 0 prints all")


def _columns(view: pd.DataFrame, columns: str | None) -> list[str]:
    from skb_pipeline.evaluation.trace_view import COLUMNS, SHOWN

    known = list(view.columns)
    if columns is None:
        return [*SHOWN, *(c for c in known if c not in COLUMNS)]
    if columns.strip() == "all":
        return known
    named = [column.strip() for column in columns.split(",")]
    for column in named:
        check_name("column", column, known)
    return named


def _plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with plain values; what is null is None."""
    objects = frame.astype(object)
    return [{str(k): v for k, v in row.items()} for row in objects.where(frame.notna(), None).to_dict("records")]


def _print_buckets(made: Artifact, system: str | None, split: str, slice_name: str, output: str) -> None:
    from skb_pipeline.evaluation.buckets import BUCKET_ROWS, WIDE, wide_buckets

    rows = BUCKET_ROWS.read(made)
    check_name("split", split, rows["split"].unique().tolist())
    check_name("slice", slice_name, rows.loc[rows["split"] == split, "slice"].unique().tolist())
    chosen = rows if system is None else rows[rows["system"] == system]
    print_rows(wide_buckets(chosen, split=split, slice=slice_name), WIDE, output)


@click.command()
@dataset_option
@click.argument("system_a")
@click.argument("system_b")
@click.option("--split", default="test", show_default=True, help="train, val, test or all.")
@click.option("--out", "path", type=click.Path(dir_okay=False), help="Default: report-DATASET-A-B-SPLIT.html, here.")
@readable_errors
def report(name: str, system_a: str, system_b: str, split: str, path: str | None) -> None:
    """Write one HTML file about two systems: wins, losses, buckets, every question with its plan."""
    from pathlib import Path

    from skb_pipeline.evaluation.report import report_html
    from skb_pipeline.storage.atomic import write_bytes
    from skb_pipeline.systems.newest import on_newest

    compared, changed = on_newest(name, lambda newest: _compared(newest.workspace, name, system_a, system_b, split))
    if changed is not None:
        note(changed)
    text = report_html(compared)
    target = Path(path or f"report-{name}-{system_a}-{system_b}-{split}.html")
    write_bytes(target, text.encode())
    out(str(target))


def _compared(workspace: Workspace, name: str, system_a: str, system_b: str, split: str) -> Compared:
    from skb_pipeline.evaluation.buckets import BUCKET_ROWS
    from skb_pipeline.evaluation.metrics import QUERY_METRICS
    from skb_pipeline.evaluation.report import Compared, ReportError
    from skb_pipeline.evaluation.tables import difference_table
    from skb_pipeline.evaluation.trace_view import read_misses
    from skb_pipeline.evaluation.traces import TRACES
    from skb_pipeline.questions.frame import QUERIES
    from skb_pipeline.retrieval.ranking import RANKING
    from skb_pipeline.skb.store import node_table
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.workspace import METRICS_FILE, SKB_FILE

    for system in (system_a, system_b):
        chosen_system(workspace.store.require(name, "evaluation/traces"), system)
    if system_a == system_b:
        raise ReportError(f"a report compares two systems, and {system_a} is named twice")
    pair = (system_a, system_b)
    measured = {system: f"evaluation/query_metrics_{system}" for system in pair}
    wanted = ["evaluation/traces", "evaluation/metrics", "questions/queries", "skb/store"]
    made = workspace.store.fitting(name, [*wanted, *measured.values(), *(f"ranking/{system}" for system in pair)])
    traces = made["evaluation/traces"]
    queries = QUERIES.read(made["questions/queries"])
    check_name("split", split, [*sorted(queries["split"].unique()), "all"])
    evaluation = workspace.spec(name).evaluation
    differences = difference_table(
        {system: QUERY_METRICS.read(made[key]) for system, key in measured.items()},
        queries, dataset=name, baseline_pairs=[pair], samples=evaluation.bootstrap_samples, seed=evaluation.seed,
    )  # fmt: skip
    with connect(made["evaluation/metrics"].file(METRICS_FILE), read_only=True) as con:
        metrics = con.execute("SELECT * FROM metrics").df()
    with connect(made["skb/store"].file(SKB_FILE), read_only=True) as con:
        nodes = node_table(con)
    return Compared(
        dataset=name, a=system_a, b=system_b, split=split, version=traces.data_version,
        traces=TRACES.read(traces), misses=read_misses(traces), buckets=BUCKET_ROWS.read(traces),
        first={s: RANKING.read(made[f"ranking/{s}"], ["query_id", "node_id", "rank"]) for s in pair},
        nodes=nodes, metrics=metrics, differences=differences,
    )  # fmt: skip
