"""The command ``lineage``: where a number comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from skb_pipeline.cli.options import dataset_option, json_option
from skb_pipeline.cli.printing import readable_errors
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


_NUMBER = ["dataset", "system", "split", "slice", "metric", "value", "ci_low", "ci_high", "n_queries"]


def _rows(table: Artifact) -> pd.DataFrame:
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.workspace import METRICS_FILE

    with connect(table.file(METRICS_FILE), read_only=True) as con:
        return con.execute(f"SELECT {', '.join(_NUMBER)} FROM metrics").df()
