"""Recording a generation: at the end of a run, when all that there can be of a dataset is there and fits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.job.asset_layer import AssetLayer

from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UserError
from skb_pipeline.storage.artifacts import Artifact, ArtifactStore
from skb_pipeline.storage.generations import GENERATION, Generation
from skb_pipeline.systems.newest import file_states
from skb_pipeline.workspace import Workspace

SECTIONS = "sections"
"""In a manifest: the sections of the spec that its asset declares."""
_SNAPSHOT = dg.AssetKey(["catalog", "snapshot"])
_METRICS, _TRACES = "evaluation/metrics", "evaluation/traces"


def record_generation(context: dg.AssetExecutionContext, workspace: Workspace) -> None:
    """Make the current versions the generation that readers use, if the asset that was just executed can be the last
    of a run and nothing is missing: see :func:`complete_set`.

    Raises:
        OSError: the store cannot be written.
    """
    dataset, layer, store = context.partition_key, context.job_def.asset_layer, workspace.store
    key = "/".join(context.asset_key.path)
    if key not in (_METRICS, _TRACES) and layer.get(context.asset_key).child_keys:
        return
    if not all(layer.has(_key(end)) for end in (_METRICS, _TRACES)) or store.current(dataset, _METRICS) is None:
        return
    spec = workspace.spec(dataset)
    made = complete_set(store, layer, spec)
    if made is None:
        return
    Generation(
        dataset=dataset,
        versions={asset: artifact.path.name for asset, artifact in made.items()},
        data_versions={asset: artifact.data_version for asset, artifact in made.items()},
        spec=spec.model_dump(mode="json"),
        systems=_systems(store, layer, made),
        files=_files_as_read(context, spec),
        run_id=context.run_id,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    ).write(store.of_dataset(dataset) / GENERATION)


def complete_set(store: ArtifactStore, layer: AssetLayer, spec: DatasetSpec) -> dict[str, Artifact] | None:
    """All artefacts of a dataset that fit what they were made from; None if these are not complete.

    Complete is: the metric table and the traces are there, with all they are made of. What failed is not waited for;
    what was made anew after the table left it out, is. And all were made by the spec as it is.

    Args:
        store: where they are.
        layer: knows what each asset is made of.
        spec: of the dataset.
    """
    made = store.all_fitting(spec.name)
    if _METRICS not in made:
        return None
    for end in (_METRICS, _TRACES):
        lacking = made[end].manifest["config"].get("lacking", {}) if end in made else {}
        parents = {"/".join(key.path) for key in layer.get(_key(end)).parent_keys}
        absent = [asset for asset in (end, *parents) if asset not in made]
        left_out = [asset for asset in lacking if asset in made]
        if any(failure_below(layer, store, spec.name, asset) is None for asset in (*absent, *left_out)):
            return None
    return made if all(_made_by(spec, artifact) for artifact in made.values()) else None


def failure_below(layer: AssetLayer, store: ArtifactStore, dataset: str, asset: str) -> str | None:
    """The first failure on the way to an asset, if the last try to make it or something below it failed."""
    failed = store.failure(dataset, asset)
    if failed is not None:
        return f"{asset} failed: {failed}"
    parents = sorted("/".join(key.path) for key in layer.get(_key(asset)).parent_keys)
    return next((t for parent in parents if (t := failure_below(layer, store, dataset, parent)) is not None), None)


def _made_by(spec: DatasetSpec, artifact: Artifact) -> bool:
    """Whether the sections of the spec that an artefact was made by are those that stand there now. What was made by
    an earlier version of the project does not tell which they are."""
    config, declared = artifact.manifest["config"], artifact.manifest.get(SECTIONS, [])
    return all(config.get(name) == value for name, value in spec.section(*declared).items())


def _systems(store: ArtifactStore, layer: AssetLayer, made: Mapping[str, Artifact]) -> dict[str, Any]:
    """Settings by system. Those of one that failed are not what its ranking of an earlier run was made by."""
    declared = sorted("/".join(key.path) for key in layer.get(_key(_TRACES)).parent_keys)
    return {
        asset.removeprefix("ranking/"): made[asset].manifest["config"]["system"]
        for asset in declared
        if asset.startswith("ranking/") and asset in made and "system" in made[asset].manifest["config"]
        if store.failure(made[asset].manifest["dataset"], asset) is None
    }


def _key(asset: str) -> dg.AssetKey:
    return dg.AssetKey(asset.split("/"))


def _files_as_read(context: dg.AssetExecutionContext, spec: DatasetSpec) -> list[list[Any]] | None:
    """States of the source files as the last step that looked at them found them; of one that was changed since it
    began, the time is None. None if Dagster's history does not know when that was, or a file cannot be found."""
    wanted = dg.AssetRecordsFilter(asset_key=_SNAPSHOT, asset_partitions=[spec.name])
    found = context.instance.fetch_materializations(wanted, limit=1).records
    if not found:
        return None
    (step, *_) = context.instance.get_run_step_stats(found[0].run_id, ["__".join(_SNAPSHOT.path)]) or [None]
    if step is None or step.start_time is None:
        return None
    try:
        states = file_states([Path(path) for path in open_source(spec).files()])
    except (UserError, OSError):
        return None
    return [[path, size, time if time < step.start_time * 1e9 else None] for path, size, time in states]
