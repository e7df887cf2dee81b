"""From a number back to its sources, read from the manifests of the artefacts themselves."""

from __future__ import annotations

from collections.abc import Iterator

from skb_pipeline.storage.artifacts import ArtifactStore, parse_input


def explain(store: ArtifactStore, dataset: str, asset: str, depth: int = 0) -> Iterator[str]:
    """Lines of an indented tree: asset, data version, code version, time, run; inputs below it.

    An input whose current version is not the one that was used is marked.
    """
    artifact = store.require(dataset, asset)
    manifest = artifact.manifest
    yield (
        f"{'  ' * depth}{asset}  data {artifact.data_version[:12]}  code {manifest['code_version']}  "
        f"{manifest['created']}  run {manifest['run_id'] or '-'}"
    )
    for name, version in manifest["inputs"].items():
        key, splits = parse_input(name)
        current = store.current(dataset, key)
        if current is not None and current.version_of(splits) == version:
            yield from explain(store, dataset, key, depth + 1)
        else:
            yield f"{'  ' * (depth + 1)}{name}  data {version[:12]}  (no longer the current version)"
