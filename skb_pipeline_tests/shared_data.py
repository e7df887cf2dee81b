"""Real data sets that lie beside the checkout on some machines; tests that use them are marked ``shared_data``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skb_pipeline.datasets.loading import load_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.ingest import ingest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


def require_shared(name: str) -> Path:
    """The data set's folder; the calling test is skipped where it is absent."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"the shared data set {name} is not on this machine")
    return folder


def shared_spec(name: str) -> DatasetSpec:
    """The example spec of a shared data set, pointed at its folder."""
    os.environ[name.upper()] = str(require_shared(name))
    return load_spec(ROOT / "docs" / "examples" / f"{name}.yaml")


def build_shared_skb(name: str, folder: Path) -> Path:
    """Ingest a shared data set into ``folder``; returns the SKB file."""
    spec = shared_spec(name)
    path = folder / f"{name}.duckdb"
    ingest(spec, open_source(spec), path)
    return path
