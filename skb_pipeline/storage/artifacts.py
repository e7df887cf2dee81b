"""Artefacts: versioned folders with a manifest, switched atomically and reused when nothing changed.

Layout under the store root::

    <dataset>/<stage>/<name>/current.json            {"version": ..., "previous": ...}
    <dataset>/<stage>/<name>/<version>/manifest.json  written last, so a folder without it is unfinished
    <dataset>/<stage>/<name>/<version>/...            the artefact's own files
    <dataset>/<stage>/<name>/work-<recipe>/           half-done work of a run that failed, for the next one
    <dataset>/<stage>/<name>/failure.json             why the last try failed, until one succeeds
    <dataset>/generation.json                         the versions that readers use, see ``storage/generations.py``
    <dataset>/<file>                                  what belongs to no version and outlives them all

A version is looked up only through one of the two pointers. A folder whose name starts with the scratch prefix is the
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skb_pipeline.errors import UserError
from skb_pipeline.storage import atomic
from skb_pipeline.storage.generations import GENERATION, Generation
from skb_pipeline.storage.paths import check_dataset_name, inside

MANIFEST = "manifest.json"
CURRENT = "current.json"
FAILURE = "failure.json"
WORK_PREFIX = "work-"
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
        code_version: versions of the modules whose behaviour it shows.
        inputs: input -> data version of all that was read. An input is an asset key, or a :func:`projection` of one.
        config: the parts of the dataset spec (and run config) the asset depends on, as plain JSON values.
        libraries: versions of the libraries whose behaviour it shows, as ``major.minor``.
        identity: hash of the SKB's key -> node_id map; artefacts that hold node ids must not outlive it.
        seed: seed of everything random in it, or None.
    """

    dataset: str
    asset: str
    code_version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    identity: str | None = None
    seed: int | None = None

    def key(self) -> str:
        """sha256 over all fields."""
        return stable_hash(asdict(self))

    def content_key(self) -> str:
        """sha256 over what decides the content; the data version of an artefact that has no canonical content of its
        own, such as an index. The numbering of nodes is no part of it."""
        return stable_hash([self.code_version, self.inputs, self.config, self.libraries, self.seed])


def projection(asset: str, splits: Iterable[str]) -> str:
    """The name of an input of which only the rows of some splits are read: ``stage/name@train+val``."""
    return f"{asset}@{'+'.join(sorted(splits))}"


def parse_input(name: str) -> tuple[str, tuple[str, ...] | None]:
    """Asset key and splits of an input's name; None where it is read as a whole."""
    asset, at, splits = name.partition("@")
    return asset, tuple(splits.split("+")) if at else None


@dataclass(frozen=True)
class Artifact:
    """A finished artefact: its folder and its manifest."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def data_version(self) -> str:
        """Hash of the artefact's canonical content."""
        return str(self.manifest["data_version"])

    def version_of(self, splits: Sequence[str] | None) -> str:
        """Data version of the rows of some splits; of all that is in the artefact for None.

        Raises:
            ManifestMismatchError: it does not know its rows by split; the message says what makes it anew.
        """
        if splits is None:
            return self.data_version
        by_split = self.manifest.get("split_versions")
        if by_split is None:
            dataset, asset = self.manifest["dataset"], self.manifest["asset"]
            raise ManifestMismatchError(
                f"{asset} of dataset {dataset!r} has no versions by split: "
                f"run `skb-pipeline run --dataset {dataset} --to {asset}`"
            )
        return stable_hash({split: by_split.get(split) for split in sorted(splits)})

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
    """Reads and writes artefacts below one root folder.

    Args:
        root: the folder.
        pinned: for a store that is read only: of this generation's dataset, its versions count as the current ones.
    """

    def __init__(self, root: Path, pinned: Generation | None = None) -> None:
        self.root = root
        self._pinned = pinned

    def of_dataset(self, dataset: str) -> Path:
        """The folder of one dataset."""
        return inside(self.root, check_dataset_name(dataset))

    def folder(self, dataset: str, asset: str) -> Path:
        """The folder that holds all versions of one artefact."""
        return inside(self.root, check_dataset_name(dataset), *asset.split("/"))

    def current(self, dataset: str, asset: str) -> Artifact | None:
        """The newest version (of a pinned store: the generation's), or None if there is none."""
        folder = self.folder(dataset, asset)
        if self._pinned is not None and self._pinned.dataset == dataset:
            version = self._pinned.versions.get(asset)
        else:
            pointer = folder / CURRENT
            version = json.loads(pointer.read_text())["version"] if pointer.is_file() else None
        manifest = folder / version / MANIFEST if version is not None else None
        if manifest is None or not manifest.is_file():
            return None
        return Artifact(manifest.parent, json.loads(manifest.read_text()))

    def versions(self, dataset: str, asset: str) -> list[Artifact]:
        """All versions there are: the current one, then the others, newest first."""
        current = self.current(dataset, asset)
        found = [
            Artifact(manifest.parent, json.loads(manifest.read_text()))
            for manifest in self.folder(dataset, asset).glob(f"*/{MANIFEST}")
            if not manifest.parent.name.startswith((atomic.SCRATCH_PREFIX, WORK_PREFIX))
            and (current is None or manifest.parent != current.path)
        ]
        others = sorted(found, key=lambda one: (one.path / MANIFEST).stat().st_mtime_ns, reverse=True)
        return [*([] if current is None else [current]), *others]

    def require(self, dataset: str, asset: str) -> Artifact:
        """Like :meth:`current`, but a missing artefact is an error that says how to make it.

        Raises:
            ArtifactMissingError: nothing was made yet.
        """
        found = self.current(dataset, asset)
        if found is None:
            failed = self.failure(dataset, asset)
            raise ArtifactMissingError(
                f"{asset} of dataset {dataset!r} does not exist yet: "
                f"run `skb-pipeline run --dataset {dataset} --to {asset}`"
                + (f"; the last try failed: {failed}" if failed is not None else "")
            )
        return found

    def require_fitting(self, dataset: str, asset: str) -> Artifact:
        """Like :meth:`require`, and everything it was made from, directly or not, is still the current version.

        Raises:
            ArtifactMissingError: nothing was made yet.
            ManifestMismatchError: an input was made anew since; the message names it.
        """
        return self.fitting(dataset, [asset])[asset]

    def fitting(self, dataset: str, assets: Sequence[str]) -> dict[str, Artifact]:
        """:meth:`require_fitting` for several artefacts; each manifest below them is read once."""
        known: dict[str, Artifact] = {}

        def check(asset: str) -> Artifact:
            if asset in known:
                return known[asset]
            artifact = known[asset] = self.require(dataset, asset)
            for name, version in artifact.manifest["inputs"].items():
                key, splits = parse_input(name)
                if check(key).version_of(splits) != version:
                    raise ManifestMismatchError(
                        f"{asset} of dataset {dataset!r} was made from another version of {key} than the current one: "
                        f"run `skb-pipeline run --dataset {dataset} --to {asset}`"
                    )
            return artifact

        return {asset: check(asset) for asset in assets}

    def all_fitting(self, dataset: str) -> dict[str, Artifact]:
        """Every artefact there is that fits what it was made from, by asset."""
        found: dict[str, Artifact] = {}
        for pointer in sorted(self.of_dataset(dataset).glob(f"*/*/{CURRENT}")):
            asset = "/".join(pointer.parent.parts[-2:])
            try:
                found[asset] = self.require_fitting(dataset, asset)
            except (ArtifactMissingError, ManifestMismatchError):
                continue
        return found

    def generation(self, dataset: str) -> Generation | None:
        """The newest generation; None if there is none, or one of its versions is gone."""
        found = Generation.read(self.of_dataset(dataset) / GENERATION, dataset)
        return found if found is not None and self.is_whole(found) else None

    def is_whole(self, generation: Generation) -> bool:
        """Whether all versions of a generation are there."""
        folder = self.of_dataset(generation.dataset)
        return all((folder / asset / version / MANIFEST).is_file() for asset, version in generation.versions.items())

    def work_folder(self, recipe: Recipe) -> Path:
        """A folder for half-done work on exactly this recipe: it outlives failures and kills, and goes when a version
        of the artefact is finished (or with :meth:`collect_garbage`)."""
        path = self.folder(recipe.dataset, recipe.asset) / f"{WORK_PREFIX}{recipe.key()[:16]}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def record_failure(self, dataset: str, asset: str, reason: str) -> None:
        """Remember why an artefact could not be made; the next version that is finished clears it."""
        atomic.write_json(self.folder(dataset, asset) / FAILURE, {"reason": reason, "time": _now()})

    def failure(self, dataset: str, asset: str) -> str | None:
        """Why the last try to make an artefact failed; None when it did not, or there was none."""
        path = self.folder(dataset, asset) / FAILURE
        return str(json.loads(path.read_text())["reason"]) if path.is_file() else None

    def clear_failure(self, dataset: str, asset: str) -> None:
        """What stood in the way does so no more."""
        (self.folder(dataset, asset) / FAILURE).unlink(missing_ok=True)

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
                "created": _now(),
                "installed": library_versions(),
                **draft.extra,
            }
            atomic.write_json(scratch / MANIFEST, manifest)
            atomic.fsync_tree(scratch)
            version = uuid.uuid4().hex[:12]
            os.rename(scratch, folder / version)
            self._switch(folder, version)
            self.clear_failure(recipe.dataset, recipe.asset)
            _remove_work(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def collect_garbage(self, dataset: str, assets: Collection[str] | None = None) -> list[Path]:
        """Remove scratch folders, half-done work, and all but two versions of each artefact; return the versions that
        went. Those that stay are the current one, and the one that readers use (see :meth:`generation`) or, where that
        is the same, the previous one.

        Args:
            assets: keys of all assets there are. Of others (a system that is no longer declared) what the last failure
                left goes too; without this it stays.
        """
        removed: list[Path] = []
        root = self.of_dataset(dataset)
        generation = Generation.read(root / GENERATION, dataset)
        for folder in sorted(path for path in root.glob("*/*") if path.is_dir()):
            sweep(folder)
            _remove_work(folder)
            if assets is not None and "/".join(folder.parts[-2:]) not in assets:
                (folder / FAILURE).unlink(missing_ok=True)
            pointer_file = folder / CURRENT
            if not pointer_file.is_file():
                if not any(folder.iterdir()):
                    folder.rmdir()
                continue
            # Listed before the pointer is read, and none younger than the current version: a run that finishes
            # meanwhile cannot lose what it made.
            versions = [p for p in sorted(folder.iterdir()) if (p / MANIFEST).is_file()]
            pointer = json.loads(pointer_file.read_text())
            newest = (folder / pointer["version"] / MANIFEST).stat().st_mtime_ns
            asset = "/".join(folder.parts[-2:])
            used = None if generation is None else generation.versions.get(asset)
            kept = {pointer["version"], pointer.get("previous") if used in (None, pointer["version"]) else used}
            for version in versions:
                old = (version / MANIFEST).stat().st_mtime_ns < newest
                if version.name not in kept and old:
                    shutil.rmtree(version)
                    removed.append(version)
        return removed

    def _switch(self, folder: Path, version: str) -> None:
        path = folder / CURRENT
        old = json.loads(path.read_text()) if path.is_file() else {}
        if old.get("version") != version:
            atomic.write_json(path, {"version": version, "previous": old.get("version")})


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _remove_work(folder: Path) -> None:
    for work in folder.glob(f"{WORK_PREFIX}*"):
        shutil.rmtree(work)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there: first its name, at once, so that no reader meets half of
    it. What a killed removal left beside it goes as well."""
    sweep(folder.parent)
    scratch = folder.parent / atomic.scratch_name()
    try:
        folder.rename(scratch)
    except FileNotFoundError:
        return
    shutil.rmtree(scratch)


def sweep(folder: Path) -> None:
    """Remove scratch entries left in ``folder`` by killed runs; those of living processes stay."""
    for leftover in filter(atomic.is_abandoned, folder.glob(f"{atomic.SCRATCH_PREFIX}*")):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def library_versions() -> dict[str, str]:
    """Versions of the libraries that shape artefacts, for people; absent ones are left out."""
    versions = {}
    for name in _RECORDED_LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def deciding_versions(names: Iterable[str]) -> dict[str, str]:
    """``major.minor`` of libraries that decide results.

    Args:
        names: distributions; ``faiss-cpu|faiss-gpu-cu12`` takes the first that is installed. One that is absent has
            the version "absent".
    """
    return {name.split("|")[0]: _deciding_version(name.split("|")) for name in sorted(names)}


def _deciding_version(distributions: Sequence[str]) -> str:
    for name in distributions:
        try:
            return ".".join(importlib.metadata.version(name).split(".")[:2])
        except importlib.metadata.PackageNotFoundError:
            continue
    return "absent"
