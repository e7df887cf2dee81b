"""What a dataset leaves in the home folder and on a Neo4j server, and removing all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from skb_pipeline.datasets.catalogue import catalogue_folder, spec_files
from skb_pipeline.errors import UnknownNameError, unknown_name
from skb_pipeline.orchestration.running import open_instance, prepare_home
from skb_pipeline.orchestration.runs import unfinished_runs
from skb_pipeline.storage.artifacts import remove_folder
from skb_pipeline.storage.paths import check_dataset_name, inside, is_dataset_name
from skb_pipeline.storage.writing import DatasetBusyError
from skb_pipeline.workspace import Workspace

if TYPE_CHECKING:
    from neo4j import Session


@dataclass(frozen=True)
class Remains:
    """What there is of one dataset.

    Attributes:
        spec: its spec's file; None when nothing in the catalogue has the name.
        store_bytes, cache_bytes: size of artefacts and of caches.
        partition: whether Dagster knows it as a partition.
        neo4j: labels of its versions on the server; None when no server is told.
    """

    dataset: str
    spec: Path | None
    store_bytes: int
    cache_bytes: int
    partition: bool
    neo4j: list[str] | None

    @property
    def own_spec(self) -> Path | None:
        """The spec's file, if it lies in the user's catalogue."""
        own = self.spec is not None and self.spec.parent == catalogue_folder()
        return self.spec if own else None


def find_remains(workspace: Workspace, instance: dg.DagsterInstance) -> dict[str, Remains]:
    """What there is of every dataset, by name: of the catalogue, the store, the caches, Dagster and Neo4j.

    Raises:
        Neo4jServerError: a server is told by the environment and cannot be asked.
    """
    from skb_pipeline.graph.neo4j.versions import list_versions

    specs, known = spec_files(), set(instance.get_dynamic_partitions("dataset"))
    labels: dict[str, list[str]] | None = None
    with _neo4j() as session:
        if session is not None:
            labels = {}
            for version in list_versions(session):
                labels.setdefault(version.dataset, []).append(version.label)
    names = {*specs, *workspace.datasets(), *filter(is_dataset_name, known), *filter(is_dataset_name, labels or ())}
    return {
        name: Remains(
            name,
            specs.get(name),
            _size(inside(workspace.store.root, name)),
            _size(workspace.caches(name)),
            name in known,
            None if labels is None else labels.get(name, []),
        )
        for name in sorted(names)
    }


def orphans(found: dict[str, Remains]) -> list[Remains]:
    """What belongs to no spec."""
    return [remains for remains in found.values() if remains.spec is None]


def check_idle(instance: dg.DagsterInstance, dataset: str) -> None:
    """See that no run of a dataset is in progress or waits for its turn.

    Raises:
        DatasetBusyError: one does; the message names it.
    """
    runs = unfinished_runs(instance, dataset)
    if runs:
        raise DatasetBusyError(
            f"a run of dataset {dataset!r} is going on ({runs[0]}): wait for it, or end it in the UI, then try again"
        )


def remains_of(found: dict[str, Remains], dataset: str) -> Remains:
    """What there is of one dataset.

    Raises:
        UnsafeNameError: the name is none that a dataset can have.
        UnknownNameError: there is nothing of this name.
    """
    if check_dataset_name(dataset) not in found:
        raise UnknownNameError(unknown_name(f"unknown dataset {dataset!r}", dataset, found))
    return found[dataset]


def remove_remains(workspace: Workspace, instance: dg.DagsterInstance, remains: Remains, *, spec: bool) -> None:
    """Remove versions on Neo4j, the partition, artefacts and caches of a dataset, and with ``spec`` its own spec file.

    What can fail comes first. The history of its runs stays with Dagster. Interrupted, it can be called again.

    Raises:
        DatasetBusyError: a run of it is going on; nothing is removed.
        Neo4jServerError: the server cannot be reached; nothing else is removed.
    """
    from skb_pipeline.graph.neo4j.versions import remove_dataset

    name = remains.dataset
    check_idle(instance, name)
    with _neo4j() as session:
        if session is not None and remains.neo4j:
            remove_dataset(session, name)
    if spec and remains.own_spec is not None:
        remains.own_spec.unlink(missing_ok=True)
    instance.delete_dynamic_partition("dataset", name)
    remove_folder(inside(workspace.store.root, name))
    remove_folder(workspace.caches(name))


@contextmanager
def opened() -> Iterator[tuple[Workspace, dg.DagsterInstance]]:
    """The home folder and its instance."""
    prepare_home()
    with open_instance() as instance:
        yield Workspace(), instance


@contextmanager
def _neo4j() -> Iterator[Session | None]:
    """A session on the server that the environment tells; None without one."""
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver

    settings = Neo4jSettings.from_environment()
    if settings is None:
        yield None
        return
    with open_driver(settings) as driver, driver.session(database=settings.database) as session:
        yield session


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
