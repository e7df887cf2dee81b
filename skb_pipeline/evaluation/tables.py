"""Tables of metrics and of differences: as frames, as Markdown, as plain text and as a DuckDB file."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.evaluation.bootstrap import METHOD, mean_intervals, paired_differences
from skb_pipeline.evaluation.metrics import CONTRACT, METRICS, FloatArray, distinct_answers, unique_query_ids
from skb_pipeline.evaluation.slices import BoolArray, slice_masks
from skb_pipeline.storage import atomic, duck
from skb_pipeline.storage.frames import Column, Frame
from skb_pipeline.text import sinks
from skb_pipeline.text.sinks import markdown_text

VERSION = "6"


METRIC_ROWS = Frame(
    name="Metrics",
    description="Means with 95 % bootstrap intervals by system, split, slice and metric.",
    file="metrics.duckdb",
    key=("dataset", "system", "split", "slice", "metric"),
    columns={
        **{name: Column(pa.string(), filled=True) for name in ("dataset", "system", "split", "slice", "metric")},
        **{name: Column(pa.float64(), filled=True, least=0, most=1) for name in ("value", "ci_low", "ci_high")},
        "n_queries": Column(pa.int64(), filled=True, least=1),
    },
)
"""Kept as a table of a DuckDB file, beside ``differences`` and ``missing``."""
DIFFERENCE_ROWS = Frame(
    name="Differences",
    description="Paired differences between two systems with 95 % intervals.",
    file="metrics.duckdb",
    key=("dataset", "system", "other", "split", "slice", "metric"),
    columns={
        **{
            name: Column(pa.string(), filled=True)
            for name in ("dataset", "system", "other", "split", "slice", "metric")
        },
        **{
            name: Column(pa.float64(), filled=True) for name in ("difference", "ci_low", "ci_high", "p_value", "p_holm")
        },
        "n_queries": Column(pa.int64(), filled=True, least=1),
    },
)
MISSING_ROWS = Frame(
    name="Missing",
    description="Declared systems that have no row in the table, and why.",
    file="metrics.duckdb",
    key=("dataset", "system"),
    columns={name: Column(pa.string(), filled=True) for name in ("dataset", "system", "reason")},
)


class CoverageError(ValueError):
    """Systems to be compared were not evaluated on the same queries."""


@dataclass(frozen=True)
class _Part:
    """One slice of one split: its query ids and each system's float64 [queries, METRICS]."""

    split: str
    slice: str
    query_ids: list[str]
    values: dict[str, FloatArray]


def metric_table(
    per_system: Mapping[str, pd.DataFrame], queries: pd.DataFrame, *, dataset: str, samples: int, seed: int
) -> pd.DataFrame:
    """Mean and 95 % interval of every metric, for every split, slice and system.

    Args:
        per_system: system name -> frame of :func:`skb_pipeline.evaluation.metrics.query_metrics`, all made from
            these same ``queries``.
        queries: see :func:`skb_pipeline.evaluation.slices.slice_masks`, and ``split``. Queries without answers
            are left out.
        dataset: name written into every row.
        samples, seed: of the bootstrap.

    Returns:
        The columns of METRIC_ROWS, one row per split, slice, system and metric. Rows are ordered by split name,
        slice, system and metric, the last three in the order of slice_masks, ``per_system`` and METRICS.

    Raises:
        CoverageError: a system lacks a query, or has one that is not among ``queries``; one such id is named.
        ValueError: there are no systems or no queries with answers.
    """
    rows = []
    for part in _parts(per_system, queries, slices=None):
        estimates = mean_intervals(part.query_ids, list(part.values.values()), samples=samples, seed=seed)
        for system, estimate in zip(part.values, estimates, strict=True):
            numbers = zip(METRICS, estimate.value, estimate.low, estimate.high, strict=True)
            rows += [(dataset, system, part.split, part.slice, *number, len(part.query_ids)) for number in numbers]
    return pd.DataFrame(rows, columns=METRIC_ROWS.names)


def difference_table(
    per_system: Mapping[str, pd.DataFrame],
    queries: pd.DataFrame,
    *,
    dataset: str,
    baseline_pairs: Sequence[tuple[str, str]],
    samples: int,
    seed: int,
    slices: Sequence[str] = ("all",),
) -> pd.DataFrame:
    """Mean of (system - other) per metric with 95 % interval and two-sided p value, on paired queries.

    Args:
        per_system, queries, dataset, samples, seed: as for :func:`metric_table`.
        baseline_pairs: (system, other) names.
        slices: slice names to report; one that is empty in a split has no rows there.

    Returns:
        The columns of DIFFERENCE_ROWS, ordered by split name, slice, pair and metric. ``p_value`` is that of one
        comparison alone, ``p_holm`` is corrected for the number of pairs of the same split, slice and metric.

    Raises:
        CoverageError, ValueError: as for :func:`metric_table`; also a pair that names an unknown system.
    """
    for name in {name for pair in baseline_pairs for name in pair}:
        if name not in per_system:
            raise ValueError(f"no system {name!r} to compare; there are {', '.join(per_system)}")
    rows = []
    for part in _parts(per_system, queries, slices=slices):
        pairs = [(part.values[system], part.values[other]) for system, other in baseline_pairs]
        found = paired_differences(part.query_ids, pairs, samples=samples, seed=seed)
        for (system, other), delta in zip(baseline_pairs, found, strict=True):
            numbers = zip(METRICS, delta.value, delta.low, delta.high, delta.p_value, strict=True)
            rows += [
                (dataset, system, other, part.split, part.slice, *number, len(part.query_ids)) for number in numbers
            ]
    frame = pd.DataFrame(rows, columns=[name for name in DIFFERENCE_ROWS.names if name != "p_holm"])
    corrected = frame.groupby(["split", "slice", "metric"], sort=False)["p_value"].transform(holm)
    frame.insert(frame.columns.get_loc("p_value") + 1, "p_holm", corrected.astype(np.float64))
    return frame


def holm(p_values: pd.Series) -> pd.Series:
    """p values corrected for their number: the i-th smallest of m (from 0) times m - i, at most 1, never less than one
    before it (Holm: "A simple sequentially rejective multiple test procedure", 1979).

    Args:
        p_values: float64 [m]; the result has the same index.
    """
    ordered = p_values.sort_values()
    factors = np.arange(len(ordered), 0, -1)
    corrected: pd.Series = (ordered * factors).clip(upper=1.0).cummax().reindex(p_values.index)
    return corrected


def markdown_table(
    metric_rows: pd.DataFrame, *, split: str, slice: str = "all", metrics: Sequence[str] = METRICS
) -> str:
    """A Markdown table with one row per system (``value [low, high]`` per metric), then the contract.

    Args:
        metric_rows: rows of :func:`metric_table` for one dataset. With a further column ``depth`` (hits in a
            system's longest list) the depth of each system's list is stated below.
        split, slice: what to show.
        metrics: which columns, in this order.

    Raises:
        ValueError: there are no such rows, rows of several datasets, or a metric is missing for a system.
    """
    rows = _chosen(metric_rows, split, slice)
    header, *body = _cells(rows, metrics)
    return f"{sinks.markdown_table(header, body, numbers_from=1)}\n\n{markdown_text(_footer(rows, split, slice))}\n"


def text_table(metric_rows: pd.DataFrame, *, split: str, slice: str = "all", metrics: Sequence[str] = METRICS) -> str:
    """:func:`markdown_table` for a terminal: columns aligned by blanks, no markup."""
    rows = _chosen(metric_rows, split, slice)
    cells = _cells(rows, metrics)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        right = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *right]))
    footer = textwrap.fill(_footer(rows, split, slice), width=110)
    return "\n".join(lines) + "\n\n" + footer + "\n"


def difference_text(differences: pd.DataFrame, *, system: str, split: str, metrics: Sequence[str] = METRICS) -> str:
    """Differences of ``system`` minus each other system on a split, for a terminal; a star marks intervals without 0.

    Args:
        differences: rows of :func:`difference_table`, slice ``all`` is shown.
        system: the first of each pair.
        split, metrics: what to show, in this order.
    """
    chosen = (differences["system"] == system) & (differences["split"] == split) & (differences["slice"] == "all")
    cells = [[f"{system} minus", *metrics]]
    for other, own in differences[chosen].groupby("other", sort=False):
        by_metric = own.set_index("metric")
        line = [str(other)]
        for metric in metrics:
            value, low, high = by_metric.loc[metric, ["difference", "ci_low", "ci_high"]]
            line.append(f"{value:+.3f} [{low:+.3f}, {high:+.3f}]{'*' if low > 0 or high < 0 else ' '}")
        cells.append(line)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([name.ljust(widths[0]), *[c.rjust(w) for c, w in zip(rest, widths[1:], strict=True)]]).rstrip()
        for name, *rest in cells
    )


def markdown_rows(frame: pd.DataFrame, most: int = 50) -> str:
    """The first rows of any frame as a Markdown table, and how many there are more."""
    table = sinks.markdown_table(list(map(str, frame.columns)), frame.head(most).itertuples(index=False))
    return f"{table}\n\n… and {len(frame) - most} rows more in the file" if len(frame) > most else table


def missing_table(dataset: str, missing: Mapping[str, str]) -> pd.DataFrame:
    """Rows of MISSING_ROWS from system -> reason."""
    return pd.DataFrame([(dataset, *item) for item in missing.items()], columns=MISSING_ROWS.names, dtype=object)


def write_duckdb(
    path: Path, metrics_df: pd.DataFrame, differences_df: pd.DataFrame, missing: pd.DataFrame | None = None
) -> None:
    """Write the tables ``metrics``, ``differences`` and ``missing`` into a fresh DuckDB file that replaces ``path`` in
    one step.

    Declared columns get their types, so that an empty table has them too; further columns (provenance) follow with the
    types DuckDB finds for them.

    Raises:
        KeyError: a column is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.parent / atomic.scratch_name()
    tables = (
        ("metrics", metrics_df, METRIC_ROWS),
        ("differences", differences_df, DIFFERENCE_ROWS),
        ("missing", missing_table("", {}) if missing is None else missing, MISSING_ROWS),
    )
    try:
        with duck.connect(scratch) as con:
            for name, frame, declared in tables:
                lacking = [column for column in declared.names if column not in frame.columns]
                if lacking:
                    raise KeyError(f"table {name} has no column {', '.join(lacking)}")
                casts = ", ".join(f'"{f.name}"::{_SQL_TYPES[f.type]} AS "{f.name}"' for f in declared.schema)
                con.register("frame", frame)
                con.execute(f"CREATE TABLE {name} AS SELECT * REPLACE ({casts}) FROM frame")
        atomic.fsync_one(scratch)
        os.replace(scratch, path)
        atomic.fsync_one(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


_SQL_TYPES = {pa.string(): "VARCHAR", pa.float64(): "DOUBLE", pa.int64(): "BIGINT"}


def _parts(
    per_system: Mapping[str, pd.DataFrame], queries: pd.DataFrame, slices: Sequence[str] | None
) -> Iterator[_Part]:
    """Every non-empty slice of every split, in order; ``slices`` restricts the names."""
    _, n_answers = distinct_answers(queries)
    answered = queries[n_answers > 0]
    if not per_system or answered.empty:
        raise ValueError(f"nothing to compare: {len(per_system)} systems, {len(answered)} queries with answers")
    query_ids = unique_query_ids(answered)
    values = {name: _aligned(name, frame, query_ids) for name, frame in per_system.items()}
    masks = slice_masks(answered)
    splits = answered["split"].to_numpy(dtype=object)
    for split in sorted(set(splits)):
        for name, mask in masks.items():
            inside: BoolArray = mask & (splits == split)
            if inside.any() and (slices is None or name in slices):
                own = {system: matrix[inside] for system, matrix in values.items()}
                yield _Part(split, name, query_ids[inside].tolist(), own)


def _aligned(system: str, frame: pd.DataFrame, query_ids: pd.Index) -> FloatArray:
    """The system's float64 [queries, METRICS] in the order of ``query_ids``."""
    own = pd.Index(frame["query_id"].to_numpy(dtype=object))
    if not own.is_unique:
        raise CoverageError(f"system {system!r} has query {own[own.duplicated()][0]!r} more than once")
    for lacking, complaint in (
        (query_ids.difference(own), "was not evaluated on query"),
        (own.difference(query_ids), "was evaluated on a query that is not among those compared:"),
    ):
        if len(lacking):
            raise CoverageError(f"system {system!r} {complaint} {lacking[0]!r} ({len(lacking)} such queries)")
    return frame[list(METRICS)].to_numpy(dtype=np.float64)[own.get_indexer(query_ids)]


def _chosen(metric_rows: pd.DataFrame, split: str, slice: str) -> pd.DataFrame:
    rows = metric_rows[(metric_rows["split"] == split) & (metric_rows["slice"] == slice)]
    if rows.empty:
        there = metric_rows[["split", "slice"]].drop_duplicates().itertuples(index=False, name=None)
        known = ", ".join(f"{a}/{b}" for a, b in there)
        raise ValueError(f"no rows for split {split!r} and slice {slice!r}; there are: {known or 'none'}")
    if rows["dataset"].nunique() > 1:
        raise ValueError(f"one table is about one dataset, got {', '.join(sorted(rows['dataset'].unique()))}")
    return rows


def _cells(rows: pd.DataFrame, metrics: Sequence[str]) -> list[list[str]]:
    """Header and one line per system in order of appearance."""
    cells = [["system", "n", *metrics]]
    for system, own in rows.groupby("system", sort=False):
        by_metric = own.set_index("metric")
        missing = [metric for metric in metrics if metric not in by_metric.index]
        if missing:
            raise ValueError(f"system {system!r} has no rows for {', '.join(missing)}")
        numbers = by_metric.loc[list(metrics), ["value", "ci_low", "ci_high"]].itertuples(index=False, name=None)
        shown = [f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in numbers]
        cells.append([str(system), str(own["n_queries"].iloc[0]), *shown])
    return cells


def _footer(rows: pd.DataFrame, split: str, slice: str) -> str:
    text = f"Dataset {rows['dataset'].iloc[0]}, split {split}, slice {slice}. {CONTRACT} {METHOD}"
    if "depth" in rows.columns:
        depths = rows.groupby("system", sort=False)["depth"].max()
        text += " Depth of the stored lists: " + ", ".join(f"{name} {int(d)}" for name, d in depths.items()) + "."
    return text
