"""Commands that tell where numbers come from and how they moved: ``lineage``, ``history`` and ``compare``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from skb_pipeline.cli.options import dataset_option, format_option, json_option
from skb_pipeline.cli.printing import aligned, note, out, print_json, print_rows, readable_errors
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
        print_json(told)
        return
    out(
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


@click.command()
@dataset_option
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--system", help="Numbers and questions of this system only.")
@click.option("--questions", default=10, show_default=True, type=click.IntRange(min=0), help="Most questions shown.")
@json_option
@readable_errors
def compare(name: str, old: str | None, new: str | None, system: str | None, questions: int, output: str) -> None:
    """Compare two versions of the metric table: what they were made from, their numbers, and which questions moved.

    OLD and NEW are beginnings of a version, a run id or a time that `history` prints; default: the last two.
    """
    from skb_pipeline.orchestration import comparison as of
    from skb_pipeline.orchestration.differences import shown
    from skb_pipeline.workspace import Workspace

    before, after = of.two_entries(read_entries(name, provenance=True), old, new)
    changes = of.metric_changes(before, after)
    moved, untold = of.moved_questions(Workspace().store, name, before, after)
    if system is not None:
        check_name("system", system, changes["system"].unique().tolist())
        changes, moved = (frame[frame["system"] == system] for frame in (changes, moved))
        untold = {one: why for one, why in untold.items() if one == system}
    why, others = of.reasons(before, after), of.other_versions(before, after)
    if output == "json":
        told = {
            "old": before.as_json(),
            "new": after.as_json(),
            "differences": [{**one.difference.as_json(), "assets": list(one.assets)} for one in why],
            "artefacts": others,
            "numbers": list(of.rows_of(changes)),
            "questions": list(of.rows_of(moved)),
            "questions not told": untold,
        }
        print_json(told)
        return
    for word, entry in (("old", before), ("new", after)):
        out(f"{word}  {entry.table_version[:12]}  {entry.time}  run {entry.run_id or '-'}")
    _tell("what differs", [str(one) for one in why])
    _tell("artefacts of another version", [f"{asset}  {told}".rstrip() for asset, told in others.items()])
    numbers = changes[changes["change"] != 0].assign(change=lambda rows: rows["change"].map("{:+.4f}".format))
    _tell("numbers that differ (slice all)", _lines(numbers, ["system", "split", "metric", "old", "new", "change"]))
    unlisted = moved.head(questions).assign(
        **{side: moved[side].map(lambda rank: "-" if rank != rank else f"{rank:.0f}") for side in ("old", "new")},
        query=moved["query"].map(shown),
    )
    first = f"rank of the first answer: {len(moved)} questions moved" + (", most first" if len(moved) else "")
    _tell(first, _lines(unlisted, ["system", "split", "query_id", "old", "new", "query"]))
    for one, reason in untold.items():
        note(f"Questions of {one}: {reason}")


def _tell(title: str, lines: Sequence[str]) -> None:
    out("\n".join(["", title, *(f"  {line}" for line in lines or ["nothing"])]))


def _lines(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    return aligned(frame.to_dict("records"), columns).splitlines() if len(frame) else []


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
