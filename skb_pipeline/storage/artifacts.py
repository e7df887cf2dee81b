"""Artefacts: versioned folders with a manifest, switched atomically and reused when nothing changed.

Layout under the store root::

    <dataset>/<stage>/<name>/current.json            {"version": ..., "previous": ...}
    <dataset>/<stage>/<name>/<version>/manifest.json  written last, so a folder without it is unfinished
    <dataset>/<stage>/<name>/<version>/...            the artefact's own files

A version is looked up only through ``current.json``. A folder whose name starts with the scratch prefix is the
leftover of a killed run; the next write of the same artefact sweeps it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib.metadata
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skb_pipeline.errors import UserError
from skb_pipeline.storage import atomic
from skb_pipeline.storage.paths import check_dataset_name, inside

MANIFEST = "manifest.json"
CURRENT = "current.json"
_RECORDED_LIBRARIES = ("skb-pipeline", "duckdb", "pandas", "numpy", "pyarrow", "faiss-cpu", "bm25s", "torch")


class ArtifactMissingError(UserError, FileNotFoundError):
    """An artefact that a step needs was never made (or was removed)."""


class ManifestMismatchError(UserError, RuntimeError):
    """An artefact on disk was made by something else than its reader expects."""


def stable_hash(value: Any) -> str:
    """sha256 (hex) of ``value`` as canonical JSON; keys are sorted, NaN is refused."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Recipe:
    """All that decides what an artefact contains. Equal recipes give equal artefacts.

    Attributes:
        dataset: dataset name.
        asset: asset key as ``stage/name``.
        code_version: the constant beside the asset's function; bumped when its behaviour changes.
        inputs: asset key -> data version of every input read.
        config: the parts of the dataset spec (and run config) the asset depends on, as plain JSON values.
        identity: hash of the SKB's key -> node_id map; artefacts that hold node ids must not outlive it.
        seed: seed of everything random in it, or None.
    """

    dataset: str
    asset: str
    code_version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    identity: str | None = None
    seed: int | None = None

    def key(self) -> str:
        """sha256 over all fields."""
        return stable_hash(asdict(self))


@dataclass(frozen=True)
class Artifact:
    """A finished artefact: its folder and its manifest."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def data_version(self) -> str:
        """Hash of the artefact's canonical content."""
        return str(self.manifest["data_version"])

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the producing step reported about it (plain JSON values)."""
        return dict(self.manifest["metadata"])

    def file(self, name: str) -> Path:
        """Path of one of its files.

        Raises:
            ArtifactMissingError: the file is not there.
        """
        path = inside(self.path, name)
        if not path.exists():
            raise ArtifactMissingError(f"{path} is missing although its manifest stands beside it")
        return path


class Draft:
    """An artefact being written: put files under ``path``, then call :meth:`finish`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_version: str | None = None
        self.metadata: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}

    def finish(self, data_version: str, metadata: Mapping[str, Any], **extra: Any) -> None:
        """State the content hash, the metadata for people, and further manifest entries (``extra``)."""
        self.data_version = data_version
        self.metadata = dict(metadata)
        self.extra = extra


class ArtifactStore:
    """Reads and writes artefacts below one root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, dataset: str, asset: str) -> Path:
        """The folder that holds all versions of one artefact."""
        return inside(self.root, check_dataset_name(dataset), *asset.split("/"))

    def current(self, dataset: str, asset: str) -> Artifact | None:
        """The version readers should use, or None if there is none."""
        pointer = self.folder(dataset, asset) / CURRENT
        if not pointer.is_file():
            return None
        path = pointer.parent / json.loads(pointer.read_text())["version"]
        manifest = path / MANIFEST
        return Artifact(path, json.loads(manifest.read_text())) if manifest.is_file() else None

    def require(self, dataset: str, asset: str) -> Artifact:
        """Like :meth:`current`, but a missing artefact is an error that says how to make it.

        Raises:
            ArtifactMissingError: nothing was made yet.
        """
        found = self.current(dataset, asset)
        if found is None:
            raise ArtifactMissingError(
                f"{asset} of dataset {dataset!r} does not exist yet: "
                f"run `skb-pipeline run --dataset {dataset} --to {asset}`"
            )
        return found

    def require_fitting(self, dataset: str, asset: str) -> Artifact:
        """Like :meth:`require`, and everything it was made from, directly or not, is still the current version.

        Raises:
            ArtifactMissingError: nothing was made yet.
            ManifestMismatchError: an input was made anew since; the message names it.
        """
        artifact = self.require(dataset, asset)
        for key, version in artifact.manifest["inputs"].items():
            if self.require_fitting(dataset, key).data_version != version:
                raise ManifestMismatchError(
                    f"{asset} of dataset {dataset!r} was made from another version of {key} than the current one: "
                    f"run `skb-pipeline run --dataset {dataset} --to {asset}`"
                )
        return artifact

    def find(self, recipe: Recipe) -> Artifact | None:
        """The current version if it was made from exactly this recipe, else None."""
        found = self.current(recipe.dataset, recipe.asset)
        return found if found is not None and found.manifest["recipe_key"] == recipe.key() else None

    @contextmanager
    def write(self, recipe: Recipe, run_id: str | None = None) -> Iterator[Draft]:
        """Write a new version; it becomes current only when the block ends without an exception.

        The block must call :meth:`Draft.finish`. Scratch folders of killed runs are swept first.
        """
        folder = self.folder(recipe.dataset, recipe.asset)
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        scratch = folder / atomic.scratch_name()
        scratch.mkdir()
        draft = Draft(scratch)
        try:
            yield draft
            if draft.data_version is None:
                raise RuntimeError(f"{recipe.asset}: the writer did not call Draft.finish")
            manifest = {
                **asdict(recipe),
                "recipe_key": recipe.key(),
                "data_version": draft.data_version,
                "metadata": draft.metadata,
                "run_id": run_id,
                "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                "libraries": library_versions(),
                **draft.extra,
            }
            atomic.write_json(scratch / MANIFEST, manifest)
            atomic.fsync_tree(scratch)
            version = uuid.uuid4().hex[:12]
            os.rename(scratch, folder / version)
            self._switch(folder, version)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def collect_garbage(self, dataset: str) -> list[Path]:
        """Remove versions that are neither current nor previous, and scratch folders; return what went."""
        removed: list[Path] = []
        root = inside(self.root, check_dataset_name(dataset))
        for pointer_file in sorted(root.glob(f"*/*/{CURRENT}")):
            folder = pointer_file.parent
            sweep(folder)
            # Listed before the pointer is read, and none younger than the current version: a run that finishes
            # meanwhile cannot lose what it made.
            versions = [p for p in sorted(folder.iterdir()) if (p / MANIFEST).is_file()]
            pointer = json.loads(pointer_file.read_text())
            newest = (folder / pointer["version"] / MANIFEST).stat().st_mtime_ns
            for version in versions:
                old = (version / MANIFEST).stat().st_mtime_ns < newest
                if version.name not in pointer.values() and old:
                    shutil.rmtree(version)
                    removed.append(version)
        return removed

    def _switch(self, folder: Path, version: str) -> None:
        path = folder / CURRENT
        old = json.loads(path.read_text()) if path.is_file() else {}
        if old.get("version") != version:
            atomic.write_json(path, {"version": version, "previous": old.get("version")})


def sweep(folder: Path) -> None:
    """Remove scratch entries left in ``folder`` by killed runs; those of living processes stay."""
    for leftover in filter(atomic.is_abandoned, folder.glob(f"{atomic.SCRATCH_PREFIX}*")):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def library_versions() -> dict[str, str]:
    """Versions of the libraries that shape artefacts; absent ones are left out."""
    versions = {}
    for name in _RECORDED_LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
