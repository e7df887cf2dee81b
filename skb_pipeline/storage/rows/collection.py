"""Which caches of arrays are still of use to a dataset, and removal of the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import MANIFEST, ArtifactStore, sweep
from skb_pipeline.storage.paths import check_dataset_name, inside
from skb_pipeline.storage.rows.arrays import FINGERPRINT


def fingerprints_in_use(store: ArtifactStore, dataset: str) -> list[dict[str, Any]]:
    """Encoders that kept versions of a dataset's artefacts were made with: ``config.encoder`` of their manifests."""
    folder = inside(store.root, check_dataset_name(dataset))
    manifests = [json.loads(path.read_text()) for path in sorted(folder.glob(f"*/*/*/{MANIFEST}"))]
    return [manifest["config"]["encoder"] for manifest in manifests if "encoder" in manifest.get("config", {})]


def remove_unused(caches: Path, in_use: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Remove whole caches of arrays that belong to no fingerprint in use; must run alone.

    Args:
        caches: folder whose subfolders are caches; what is no cache of arrays stays.
        in_use: fingerprints; one that says more than a cache's own, such as prefixes of texts, uses it too.

    Returns:
        The folders removed.
    """
    if not caches.is_dir():
        return []
    sweep(caches)
    used = list(in_use)
    removed = []
    for path in sorted(caches.glob(f"*/{FINGERPRINT}")):
        own = json.loads(path.read_text())
        if not any(own.items() <= fingerprint.items() for fingerprint in used):
            scratch = caches / atomic.scratch_name()
            path.parent.rename(scratch)  # at once: half a cache would look like a damaged one
            shutil.rmtree(scratch)
            removed.append(path.parent)
    return removed
