"""Stage ``catalog``: what the source files hold right now."""

import hashlib
import os
from pathlib import Path

import dagster as dg

from skb_pipeline.datasets.records import Fetching
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.storage.artifacts import Draft, stable_hash

CODE_VERSION = "1"


@pipeline_asset("catalog/snapshot", deps=[], code_version=CODE_VERSION, kinds={"file"}, automatic=False)
def snapshot(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Fingerprint of a dataset's source files. Everything else is recomputed only when it changes.

    Files are hashed byte by byte, so touching a file without changing it changes nothing.
    """
    dataset = context.partition_key
    spec = workspace.spec(dataset)
    source = open_source(spec)
    if isinstance(source, Fetching):
        source.fetch()
    paths = source.files()
    names = names_of(paths)
    digests = {names[path]: file_digest(path) for path in paths}
    step = Step(context, workspace, config, code_version=CODE_VERSION, sections=["source"], config={"files": digests})

    def build(draft: Draft) -> None:
        sizes = {names[path]: path.stat().st_size for path in paths}
        draft.finish(
            stable_hash([spec.section("source"), digests]),
            {
                "files": len(paths),
                "bytes": sum(sizes.values()),
                "file_digests": digests,
                "file_sizes": sizes,
                "about": spec.description,
                "version": spec.version or "not stated",
                "citation": spec.citation or "not stated",
                "licence": spec.licence or "not stated",
            },
        )

    return step.run(build)


def names_of(paths: list[Path]) -> dict[Path, str]:
    """A name for each file that no other has: its path below the folder that all share."""
    if not paths:
        return {}
    shared = Path(os.path.commonpath([path.parent for path in paths]))
    return {path: path.relative_to(shared).as_posix() for path in paths}


def file_digest(path: Path) -> str:
    """sha256 (hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
