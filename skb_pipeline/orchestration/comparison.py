"""Two versions of a metric table: what they were made from, and how their numbers and questions differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from skb_pipeline.errors import UnknownNameError, UserError, unknown_name
from skb_pipeline.evaluation.metrics import METRICS, QUERY_METRICS
from skb_pipeline.orchestration.differences import Difference, differences
from skb_pipeline.orchestration.lineage import Made
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.storage.artifacts import Artifact, ArtifactStore

_OF_ENTRY = ["time", "run_id", "table_version"]
_SHORT = 12
_QUERY_METRICS = "evaluation/query_metrics_"


class ComparisonError(UserError, ValueError):
    """There are no two versions to compare, or a name means several."""


@dataclass(frozen=True)
class Entry:
    """One version of the metric table as the history has it.

    Attributes:
        time, run_id, table_version: as in ``evaluation.history.METRIC_HISTORY``.
        rows: its rows.
        made: the artefacts behind it, by asset.
    """

    time: str
    run_id: str | None
    table_version: str
    rows: pd.DataFrame
    made: Mapping[str, Made]

    def as_json(self) -> dict[str, Any]:
        """Which one it is."""
        return {"table_version": self.table_version, "time": self.time, "run_id": self.run_id}


def two_entries(history: pd.DataFrame, old: str | None, new: str | None) -> tuple[Entry, Entry]:
    """The entries to be compared.

    Args:
        history: with the column ``provenance``.
        old, new: beginnings of versions of the table, of run ids or of times; None for the one before ``new`` and for
            the last one.

    Raises:
        ComparisonError: there is only one version, or a name means several.
        UnknownNameError: no version has such a name.
    """
    keys = [tuple(key) for key in history[_OF_ENTRY].drop_duplicates().itertuples(index=False)]
    last = len(keys) - 1 if new is None else _place(keys, new)
    first = last - 1 if old is None else _place(keys, old)
    if first < 0:
        raise ComparisonError("there is no version of the metric table before that one")
    return _entry(history, keys[first]), _entry(history, keys[last])


def _place(keys: list[tuple[Any, ...]], name: str) -> int:
    """The last entry of that name."""
    fits = [place for place, key in enumerate(keys) if any(str(part or "").startswith(name) for part in key)]
    versions = {keys[place][2]: None for place in fits}
    if not name or not fits:
        known = [str(key[2])[:_SHORT] for key in keys]
        raise UnknownNameError(unknown_name(f"unknown version {name!r} of the metric table", name, known))
    if len(versions) > 1:
        raise ComparisonError(f"{name!r} means several versions: {', '.join(str(v)[:_SHORT] for v in versions)}")
    return fits[-1]


def _entry(history: pd.DataFrame, key: tuple[Any, ...]) -> Entry:
    time, run_id, version = key
    rows = history[(history["time"] == time) & (history["table_version"] == version)].reset_index(drop=True)
    told = rows["provenance"].iloc[0]
    made = [Made(**one) for one in json.loads(told)] if told else []
    return Entry(time, run_id, version, rows, {one.asset: one for one in made})


@dataclass(frozen=True)
class Reason:
    """A difference, and the assets whose recipes have it."""

    difference: Difference
    assets: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.difference} ({', '.join(self.assets)})"


def reasons(old: Entry, new: Entry) -> list[Reason]:
    """Files, settings, code, libraries and seeds that differ; inputs, which follow from these, are left out."""
    found: dict[str, tuple[Difference, list[str]]] = {}
    for asset in (asset for asset in new.made if asset in old.made):
        for one in differences(old.made[asset], new.made[asset]):
            if one.kind != "input":
                found.setdefault(json.dumps(one.as_json(), sort_keys=True), (one, []))[1].append(asset)
    return [Reason(difference, tuple(assets)) for difference, assets in found.values()]


def other_versions(old: Entry, new: Entry) -> dict[str, str]:
    """Assets that are not the same on both sides, with what can be said: which side has them, or that nothing they were
    made from differs."""
    found = {}
    for asset in dict.fromkeys([*old.made, *new.made]):
        before, after = old.made.get(asset), new.made.get(asset)
        if before is None or after is None:
            found[asset] = "only in the old" if after is None else "only in the new"
        elif before.data_version != after.data_version:
            known = "gone" not in (before.state, after.state)
            same = known and not differences(before, after)
            found[asset] = "made from the same, and yet another" if same else ""
    return found


def metric_changes(old: Entry, new: Entry) -> pd.DataFrame:
    """``system, split, metric, old, new, change`` of the slice ``all``, in the order of the table; numbers of one side
    only are NaN on the other."""
    sides = [
        entry.rows.loc[entry.rows["slice"] == "all", ["system", "split", "metric", "value"]] for entry in (new, old)
    ]
    keys = ["system", "split", "metric"]
    both = sides[0].rename(columns={"value": "new"}).merge(
        sides[1].rename(columns={"value": "old"}), on=keys, how="outer", sort=False
    )  # fmt: skip
    order = {metric: place for place, metric in enumerate(METRICS)}
    systems = {name: place for place, name in enumerate(dict.fromkeys([*sides[0]["system"], *sides[1]["system"]]))}
    both = both.assign(change=both["new"] - both["old"]).sort_values(
        keys, key=lambda column: column.map({"metric": order, "system": systems}.get(column.name, lambda text: text))
    )  # fmt: skip
    return both[[*keys, "old", "new", "change"]].reset_index(drop=True)


def moved_questions(store: ArtifactStore, dataset: str, old: Entry, new: Entry) -> tuple[pd.DataFrame, dict[str, str]]:
    """Questions whose first answer has another rank, those whose reciprocal rank changed most first.

    Returns:
        ``system, split, query_id, query, old, new`` (ranks, 1-based; NaN: no answer is listed), and per system that
        cannot be told why.
    """
    parts, untold = [], {}
    texts = _texts(store, dataset, new)
    for asset in (asset for asset in new.made if asset.startswith(_QUERY_METRICS) and asset in old.made):
        system = asset.removeprefix(_QUERY_METRICS)
        before, after = (_there(store, dataset, entry.made[asset]) for entry in (old, new))
        if before is None or after is None:
            which = " and ".join(word for word, side in (("old", before), ("new", after)) if side is None)
            untold[system] = f"the rows per question of the {which} version are gone (`gc` keeps the last two)"
        elif not any("absent" in side.manifest for side in (before, after)):
            parts.append(_moved(before, after).assign(system=system))
    columns = ["system", "split", "query_id", "query", "old", "new"]
    if not parts:
        return pd.DataFrame(columns=columns), untold
    moved = pd.concat(parts, ignore_index=True)
    moved["query"] = moved["query_id"].map(texts).fillna("")
    return moved.sort_values("by", ascending=False, kind="stable")[columns].reset_index(drop=True), untold


def _moved(before: Artifact, after: Artifact) -> pd.DataFrame:
    wanted = ["query_id", "split", "mrr"]
    both = QUERY_METRICS.read(before, wanted).merge(
        QUERY_METRICS.read(after, wanted), on=["query_id", "split"], suffixes=("_old", "_new")
    )
    both = both[both["mrr_old"] != both["mrr_new"]]
    ranks = {side: (1 / both[f"mrr_{side}"].replace(0.0, np.nan)).round() for side in ("old", "new")}
    return both.assign(**ranks, by=(both["mrr_old"] - both["mrr_new"]).abs())


def _there(store: ArtifactStore, dataset: str, made: Made) -> Artifact | None:
    return next((a for a in store.versions(dataset, made.asset) if a.data_version == made.data_version), None)


def _texts(store: ArtifactStore, dataset: str, entry: Entry) -> dict[str, str]:
    made = entry.made.get("questions/queries")
    artifact = None if made is None else _there(store, dataset, made)
    if artifact is None:
        return {}
    frame = QUERIES.read(artifact, ["query_id", "query"])
    return dict(zip(frame["query_id"], frame["query"], strict=True))


def rows_of(entries: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows as plain values; what is not a number is None."""
    yield from entries.astype(object).where(entries.notna(), None).to_dict("records")
