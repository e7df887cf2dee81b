"""Stage ``catalog``: what the source files hold right now."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skb_pipeline.datasets.records import Fetching
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration.steps import Opened, Step, pipeline_asset
from skb_pipeline.storage.artifacts import Draft, stable_hash


@contextmanager
def _files(step: Step) -> Iterator[Opened]:
    """Digests of the files; ``opened`` is name -> path."""
    source = open_source(step.spec)
    if isinstance(source, Fetching):
        source.fetch()
    names = names_of(source.files())
    digests = {name: file_digest(path) for path, name in names.items()}
    yield Opened(config={"files": digests}, value={name: path for path, name in names.items()})


@pipeline_asset(
    "catalog/snapshot",
    sections=["source"],
    # Adapters may ask what a spec declares; what they read out of the files is a matter of skb/store.
    partly=["node_types", "relations", "candidates", "documents"],
    opens=_files,
    kinds={"file"},
    automatic=None,
)
def snapshot(step: Step, draft: Draft) -> None:
    """Fingerprint of a dataset's source files. Everything else is recomputed only when it changes.

    Files are hashed byte by byte, so touching a file without changing it changes nothing.
    """
    digests = step.recipe.config["files"]
    sizes = {name: path.stat().st_size for name, path in step.opened.items()}
    draft.finish(
        stable_hash([step.spec.section("source"), digests]),
        {
            "files": len(sizes),
            "bytes": sum(sizes.values()),
            "file_digests": digests,
            "file_sizes": sizes,
            "about": step.spec.description,
            "version": step.spec.version or "not stated",
            "citation": step.spec.citation or "not stated",
            "licence": step.spec.licence or "not stated",
        },
    )


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
