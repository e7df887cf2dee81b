"""Metric rows of all versions of a data set's table, in one file that outlives the versions themselves."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from skb_pipeline.errors import UserError
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import sweep
from skb_pipeline.storage.frames import Column, Frame

_OF_ENTRY = ["time", "run_id", "table_version"]
METRIC_HISTORY = Frame(
    name="MetricHistory",
    description="Metric rows of all versions of a data set's table, oldest first.",
    file="metric_history.parquet",
    key=("time", "table_version", "system", "split", "slice", "metric"),
    columns={
        "time": Column(pa.string(), filled=True),
        "run_id": Column(pa.string()),
        "table_version": Column(pa.string(), filled=True),
        **{name: Column(pa.string(), filled=True) for name in ("dataset", "system", "split", "slice", "metric")},
        "value": Column(pa.float64(), filled=True, least=0, most=1),
        "n_queries": Column(pa.int64(), filled=True, least=1),
        **{name: Column(pa.string()) for name in ("ranking_version", "store_version", "queries_version")},
        "provenance": Column(pa.string(), cost=True),
    },
)
"""``time`` is that of the version in UTC (ISO 8601), ``table_version`` its data version; rows of one version make an
entry. ``provenance`` is a JSON text of what the version was made from, the same in all rows of an entry."""
_CONTENT = [name for name in METRIC_HISTORY.content if name not in _OF_ENTRY] + ["table_version"]
_WAIT_S = 60.0


class HistoryError(UserError, RuntimeError):
    """The file of a history cannot be read."""


def history_rows(
    metric_rows: pd.DataFrame, *, time: str, run_id: str | None, table_version: str, provenance: Any
) -> pd.DataFrame:
    """The entry of one version of the metric table, rows of ``METRIC_HISTORY``.

    Args:
        metric_rows: ``dataset, system, split, slice, metric, value, n_queries``, and ``lineage``, a JSON text of
            asset -> data version.
        time, run_id, table_version: of the version.
        provenance: plain JSON values.
    """
    texts = metric_rows["lineage"].unique()
    lineage: Mapping[str, dict[str, str]] = {text: json.loads(text) for text in texts}
    versions = [
        (told.get(f"ranking/{system}"), told.get("skb/store"), told.get("questions/queries"))
        for system, told in zip(metric_rows["system"], metric_rows["lineage"].map(lineage), strict=True)
    ]
    of_what = pd.DataFrame(versions, columns=["ranking_version", "store_version", "queries_version"], dtype=object)
    rows = pd.concat([metric_rows.reset_index(drop=True), of_what], axis=1)
    told = json.dumps(provenance, ensure_ascii=False, sort_keys=True)
    rows = rows.assign(time=time, run_id=run_id, table_version=table_version, provenance=told)
    return rows[METRIC_HISTORY.names]


def read_history(path: Path, *, provenance: bool = False) -> pd.DataFrame:
    """All rows, oldest first; none where there is no file.

    Args:
        path: of the file.
        provenance: read that column too.

    Raises:
        HistoryError: the file is damaged.
    """
    columns = [name for name in METRIC_HISTORY.names if provenance or name != "provenance"]
    frame: pd.DataFrame = _table(path).select(columns).to_pandas()
    return frame


def _table(path: Path) -> pa.Table:
    """The file's rows; columns that it was written without are empty."""
    empty = METRIC_HISTORY.schema.empty_table()
    if not path.is_file():
        return empty
    try:
        return pa.concat_tables([empty, pq.read_table(path)], promote_options="default").select(METRIC_HISTORY.names)
    except pa.ArrowException as error:
        raise HistoryError(f"{path} cannot be read ({error}): move it away, and a new history begins") from error


def joined(history: pd.DataFrame, entry: pd.DataFrame) -> pd.DataFrame:
    """A history with one more entry; as it was where its last entry tells the same."""
    if not history.empty:
        last = history[(history[_OF_ENTRY] == history[_OF_ENTRY].iloc[-1]).all(axis=1)]
        if _content(last) == _content(entry):
            return history
    return pd.concat([history, entry[list(history.columns)]], ignore_index=True) if len(history) else entry


def _content(entry: pd.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(entry[_CONTENT].itertuples(index=False, name=None), key=repr)


def append_history(path: Path, entry: pd.DataFrame) -> bool:
    """Put an entry at the end of a history, unless its last one tells the same; the file is whole at every moment.

    Returns:
        Whether it was put there.

    Raises:
        HistoryError: the file is damaged.
    """
    history = read_history(path)
    if len(joined(history, entry)) == len(history):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.file_lock(path.with_suffix(".lock"), what="has been writing the history", timeout_s=_WAIT_S):
        history = read_history(path, provenance=True)
        table = joined(history, entry)
        if len(table) == len(history):
            return False
        sweep(path.parent)
        buffer = io.BytesIO()
        pq.write_table(METRIC_HISTORY.table(table), buffer, compression="zstd")
        atomic.write_bytes(path, buffer.getvalue())
    return True


def history_plot(history: pd.DataFrame, *, split: str, metric: str = "mrr") -> bytes:
    """A metric of every system over time on one split, as PNG (a few KB: it is shown inline).

    Args:
        history: rows of ``METRIC_HISTORY``; slice ``all`` is drawn.
    """
    from matplotlib.figure import Figure

    chosen = (history["slice"] == "all") & (history["split"] == split) & (history["metric"] == metric)
    rows = history[chosen].assign(time=lambda frame: pd.to_datetime(frame["time"], utc=True))
    figure = Figure(figsize=(6, 2.6), dpi=72, layout="constrained")
    axes = figure.subplots()
    for system, own in rows.groupby("system", sort=False):
        axes.plot(own["time"].to_numpy(), own["value"].to_numpy(), marker=".", linewidth=1.2, label=str(system))
    axes.set_ylim(0, 1)
    axes.set_ylabel(f"{metric} on {split}")
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)
    figure.autofmt_xdate()
    figure.legend(loc="outside right upper", fontsize="x-small", frameon=False)
    image = io.BytesIO()
    figure.savefig(image, format="png")
    return image.getvalue()
