"""Whether what a followed home holds of a dataset equals a build from nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import duckdb

from skb_pipeline.storage.artifacts import ArtifactStore
from skb_pipeline.workspace import METRICS_FILE

PINNED = {"planning/guidance"}
"""Stays as it was when the source changes."""
_RUN = "run_id, lineage"


def differences(home: Path, dataset: str, anew: Path) -> list[str]:
    """What differs, in words; empty for nothing. ``anew`` becomes a home of its own."""
    (anew / "catalogue").mkdir(parents=True, exist_ok=True)
    shutil.copy(home / "catalogue" / f"{dataset}.yaml", anew / "catalogue")
    subprocess.run(
        [sys.executable, "-m", "skb_pipeline.cli", "run", "--dataset", dataset],
        env={**os.environ, "SKB_HOME": str(anew)}, check=True, capture_output=True,
    )  # fmt: skip
    followed, fresh = (versions(folder, dataset, without=PINNED) for folder in (home, anew))
    keys = sorted(followed.keys() | fresh.keys())
    found = [f"{key}: another data version" for key in keys if followed.get(key) != fresh.get(key)]
    if metric_rows(home, dataset) != metric_rows(anew, dataset):
        found.append("the metric table")
    return found


def versions(home: Path, dataset: str, without: Collection[str] = ()) -> dict[str, str]:
    """Asset -> data version of what is current."""
    store = ArtifactStore(home / "store")
    folders = (path.parent for path in (home / "store" / dataset).glob("*/*/current.json"))
    keys = {"/".join(folder.parts[-2:]) for folder in folders} - set(without)
    return {key: store.require(dataset, key).data_version for key in keys}


def metric_rows(home: Path, dataset: str) -> list[Any]:
    """The metric table, but for the columns that name runs."""
    file = ArtifactStore(home / "store").require(dataset, "evaluation/metrics").file(METRICS_FILE)
    with duckdb.connect(str(file), read_only=True) as con:
        return con.execute(f"SELECT * EXCLUDE ({_RUN}) FROM metrics ORDER BY ALL").fetchall()
