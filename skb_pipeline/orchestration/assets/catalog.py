"""Stage ``catalog``: what the source files hold right now."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skb_pipeline.datasets.records import Fetching, SourceAdapter
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.unchanged import digests, held
from skb_pipeline.orchestration.steps import Opened, Step, pipeline_asset
from skb_pipeline.storage.artifacts import Draft, stable_hash

FILE_DIGESTS = "file_digests"
"""Metadata of the snapshot: sha256 by file."""


@contextmanager
def _files(step: Step) -> Iterator[Opened]:
    """Digests of the files; ``opened`` is name -> path."""
    source = open_source(step.spec)
    if isinstance(source, Fetching):
        source.fetch()
    files = named(source.files())
    yield Opened(config={"files": digests(files)}, value=files)


@pipeline_asset(
    "catalog/snapshot",
    sections=["source"],
    # Adapters may ask what a spec declares; what they read out of the files is a matter of skb/store.
    partly=["node_types", "relations", "candidates", "documents"],
    opens=_files,
    kinds={"file"},
)
def snapshot(step: Step, draft: Draft) -> None:
    """Fingerprint of a dataset's source files. Everything else is recomputed only when it changes.

    Files are hashed byte by byte, so touching a file without changing it changes nothing.
    """
    found = step.recipe.config["files"]
    sizes = {name: path.stat().st_size for name, path in step.opened.items()}
    draft.finish(
        stable_hash([step.spec.section("source"), found]),
        {
            "files": len(sizes),
            "bytes": sum(sizes.values()),
            FILE_DIGESTS: found,
            "file_sizes": sizes,
            "about": step.spec.description,
            "version": step.spec.version or "not stated",
            "citation": step.spec.citation or "not stated",
            "licence": step.spec.licence or "not stated",
        },
    )


@contextmanager
def snapshotted(step: Step) -> Iterator[SourceAdapter]:
    """The source of a step that reads ``catalog/snapshot``; its files hold what that looked at for as long as they are
    read.

    Raises:
        SourceChangedError: they do not; the message names the files.
    """
    source = open_source(step.spec)
    with held(named(source.files()), step.input("catalog/snapshot").metadata[FILE_DIGESTS]):
        yield source


def named(paths: list[Path]) -> dict[str, Path]:
    """A name for each file that no other has: its path below the folder that all share."""
    if not paths:
        return {}
    shared = Path(os.path.commonpath([path.parent for path in paths]))
    return {path.relative_to(shared).as_posix(): path for path in paths}
