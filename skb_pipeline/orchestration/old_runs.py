"""Bounding Dagster's history: which runs of a dataset are still of use, and removing the others with their files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager

from skb_pipeline.orchestration.runs import PARTITION
from skb_pipeline.storage.artifacts import MANIFEST, ArtifactStore
from skb_pipeline.storage.paths import check_dataset_name, inside

KEEP_RUNS = 20
"""Newest runs of a dataset that are kept where nobody says how many."""
_ENDINGS = ("", "-wal", "-shm", "-journal")
"""Of the files of one SQLite database."""


@dataclass(frozen=True)
class RemovedRuns:
    """How many runs went, and the size in bytes of the files that went with them (none on Postgres)."""

    runs: int
    size: int


def remove_old_runs(
    instance: dg.DagsterInstance, store: ArtifactStore, dataset: str, assets: Sequence[str], keep: int = KEEP_RUNS
) -> RemovedRuns:
    """Remove finished runs of a dataset with their events, logs and files.

    Kept are the newest ``keep``, the newest that succeeded, those that made a version of an artefact that is still
    there, and those that tell last of an asset: without them the UI would show it as missing. What a removed run
    told of an asset is gone from the asset's history in the UI.

    Args:
        assets: keys of all assets there are.
        keep: at least 1; a run that is not finished counts and stays.
    """
    newest_first = instance.get_runs(dg.RunsFilter(tags={PARTITION: check_dataset_name(dataset)}))
    old = [run.run_id for run in newest_first[keep:] if run.is_finished]
    if not old:
        return RemovedRuns(0, 0)
    good = [run.run_id for run in newest_first if run.is_success][:1]
    needed = _makers(store, dataset) | _tellers(instance, dataset, assets) | set(good)
    removed = [run_id for run_id in old if run_id not in needed]
    return RemovedRuns(len(removed), sum(_remove(instance, run_id) for run_id in removed))


def _makers(store: ArtifactStore, dataset: str) -> set[str]:
    """Runs that made the versions that are there."""
    manifests = inside(store.root, dataset).glob(f"*/*/*/{MANIFEST}")
    return {json.loads(path.read_text(encoding="utf-8")).get("run_id") for path in manifests}


def _tellers(instance: dg.DagsterInstance, dataset: str, assets: Sequence[str]) -> set[str]:
    """Runs that materialised an asset last."""
    found = set()
    for asset in assets:
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset.split("/")), asset_partitions=[dataset])
        found |= {record.run_id for record in instance.fetch_materializations(wanted, limit=1).records}
    return found


def _remove(instance: dg.DagsterInstance, run_id: str) -> int:
    """Remove one run; return the bytes of its files."""
    files, folder = _files(instance, run_id), _log_folder(instance, run_id)
    logs = [path for path in folder.rglob("*") if path.is_file()] if folder is not None else []
    size = sum(path.stat().st_size for path in [*files, *logs] if path.is_file())
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    _remove_check_results(instance, run_id)
    for path in files:  # Dagster empties the run's own database and leaves it
        path.unlink(missing_ok=True)
    return size


def _files(instance: dg.DagsterInstance, run_id: str) -> list[Path]:
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return []
    path = Path(storage.path_for_shard(run_id))
    return [path.with_name(path.name + ending) for ending in _ENDINGS]


def _log_folder(instance: dg.DagsterInstance, run_id: str) -> Path | None:
    manager = instance.compute_log_manager
    if not isinstance(manager, LocalComputeLogManager):
        return None
    return Path(manager.get_captured_local_path([run_id, "compute_logs", "x"], "out")).parent.parent


def _remove_check_results(instance: dg.DagsterInstance, run_id: str) -> None:
    """Dagster leaves the results of checks of a run that is deleted (dagster 1.13.27): a quarter of what a run adds to
    its index."""
    storage = instance.event_log_storage
    if isinstance(storage, SqlEventLogStorage):
        with storage.index_connection() as connection:
            connection.execute(AssetCheckExecutionsTable.delete().where(AssetCheckExecutionsTable.c.run_id == run_id))
