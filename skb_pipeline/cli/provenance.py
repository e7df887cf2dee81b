"""Commands that tell where numbers come from and how they moved: ``lineage`` and ``history``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from skb_pipeline.cli.options import dataset_option, format_option, json_option
from skb_pipeline.cli.printing import print_rows, readable_errors
from skb_pipeline.cli.tables import check_name

if TYPE_CHECKING:
    import pandas as pd

    from skb_pipeline.storage.artifacts import Artifact


@click.command()
@dataset_option
@click.option("--system", help="Whose number; default: fused, or the last row of the table.")
@click.option("--metric", default="mrr", show_default=True, help="Which number.")
@click.option("--split", default="test", show_default=True, help="train, val or test.")
@json_option
@readable_errors
def lineage(name: str, system: str | None, metric: str, split: str, output: str) -> None:
    """Print where a number comes from: files with digests, each artefact once, settings, versions and runs."""
    from skb_pipeline.orchestration.lineage import behind, files_of, lineage_text
    from skb_pipeline.systems.registry import DEFAULT_SYSTEM
    from skb_pipeline.workspace import Workspace

    store = Workspace().store
    table = store.require(name, "evaluation/metrics")
    rows = _rows(table)
    systems = rows["system"].unique().tolist()
    system = system or (DEFAULT_SYSTEM if DEFAULT_SYSTEM in systems else systems[-1])
    for what, wanted in (("system", system), ("metric", metric), ("split", split)):
        check_name(what, wanted, rows[what].unique().tolist())
    chosen = (rows["system"] == system) & (rows["metric"] == metric) & (rows["split"] == split)
    (number,) = rows.loc[chosen & (rows["slice"] == "all"), _NUMBER].to_dict("records")
    made = behind(table, store, system)
    if output == "json":
        told: dict[str, Any] = {"number": number, "files": files_of(made), "artefacts": [one.as_json() for one in made]}
        click.echo(json.dumps(told, indent=1, ensure_ascii=False))
        return
    click.echo(
        f"{metric} of {system} on {split} of {name}: {number['value']:.4f} [{number['ci_low']:.4f}, "
        f"{number['ci_high']:.4f}], {number['n_queries']} questions\n\n{lineage_text(made)}"
    )


@click.command()
@dataset_option
@click.option("--system", help="Rows of this system only.")
@click.option("--metric", help="Rows of this metric only.")
@click.option("--split", help="Rows of this split only.")
@click.option("--slice", "slice_name", default="all", show_default=True, help="A slice, or `every`.")
@format_option
@readable_errors
def history(name: str, system: str | None, metric: str | None, split: str | None, slice_name: str, output: str) -> None:
    """Print the numbers of all versions of the metric table, oldest first, and by how much each changed."""
    rows = read_entries(name)
    chosen = {
        "system": system,
        "metric": metric,
        "split": split,
        "slice": None if slice_name == "every" else slice_name,
    }
    for what, wanted in chosen.items():
        if wanted is not None:
            check_name(what, wanted, rows[what].unique().tolist())
            rows = rows[rows[what] == wanted]
    change = rows.groupby(["system", "split", "slice", "metric"])["value"].diff()
    if output == "table":
        rows = rows.assign(
            table=rows["table_version"].str[:8], run=rows["run_id"].fillna("-").str[:8],
            change=change.map("{:+.4f}".format).where(change.notna(), ""),
        )  # fmt: skip
        columns = ["time", "table", "run", "system", "split", "slice", "metric", "value", "change", "n_queries"]
    else:
        rows = rows.assign(change=change)
        columns = [*rows.columns]
    print_rows(rows.astype(object).where(rows.notna(), None).to_dict("records"), columns, output)


def read_entries(name: str, *, provenance: bool = False) -> pd.DataFrame:
    """The history of a dataset.

    Raises:
        ArtifactMissingError: there is none yet.
    """
    from skb_pipeline.evaluation.history import read_history
    from skb_pipeline.storage.artifacts import ArtifactMissingError
    from skb_pipeline.workspace import Workspace

    rows = read_history(Workspace().history(name), provenance=provenance)
    if rows.empty:
        raise ArtifactMissingError(
            f"dataset {name!r} has no history of metrics yet: run `skb-pipeline run --dataset {name}`"
        )
    return rows


_NUMBER = ["dataset", "system", "split", "slice", "metric", "value", "ci_low", "ci_high", "n_queries"]


def _rows(table: Artifact) -> pd.DataFrame:
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.workspace import METRICS_FILE

    with connect(table.file(METRICS_FILE), read_only=True) as con:
        return con.execute(f"SELECT {', '.join(_NUMBER)} FROM metrics").df()
