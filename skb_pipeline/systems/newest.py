"""What readers use of a dataset: its newest generation, and whether the dataset has changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from skb_pipeline.datasets.catalogue import UnknownDatasetError, get_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UserError
from skb_pipeline.storage.artifacts import ArtifactStore
from skb_pipeline.storage.generations import Generation
from skb_pipeline.storage.writing import writer
from skb_pipeline.systems.kind import System
from skb_pipeline.systems.kinds import KINDS
from skb_pipeline.systems.registry import Registry, SystemsError, load_registry
from skb_pipeline.workspace import Workspace

T = TypeVar("T")


class Newest:
    """The newest generation of a dataset, looked up once; where there is none, what is current.

    Attributes:
        dataset: its name.
        workspace: reads the generation's versions and spec.
    """

    def __init__(self, dataset: str, workspace: Workspace | None = None) -> None:
        home = workspace or Workspace()
        self.dataset = dataset
        found = home.store.generation(dataset)
        if found is not None and not _is_readable(found):
            found = None
        self.workspace = replace(home, generation=found, reading=True)
        self._home = home

    @property
    def generation(self) -> Generation | None:
        """None where no complete set was recorded, as in a home of an earlier version."""
        return self.workspace.generation

    @property
    def is_whole(self) -> bool:
        """Whether all its versions are still there; a clean-up may take them once there is a newer generation."""
        return self.generation is None or self._home.store.is_whole(self.generation)

    @cached_property
    def registry(self) -> Registry:
        """Systems as they were when the generation was made; of those it did not make, as they are declared now.

        Raises:
            SystemsError: the declarations are faulty, and those of the generation do not do without them.
        """
        made = self._made_systems
        try:
            declared: Mapping[str, System] = load_registry(self.workspace.root)
        except SystemsError:
            if not made:
                raise
            return Registry(made)
        return Registry({**declared, **made}) if made else Registry(declared)

    @cached_property
    def _made_systems(self) -> dict[str, System]:
        found = {}
        for name, settings in (self.generation.systems if self.generation is not None else {}).items():
            try:
                found[name] = KINDS[settings["kind"]].model_validate(settings)
            except (KeyError, ValidationError):  # of another version of the project
                continue
        return found

    def with_present_plans(self, spec: DatasetSpec) -> DatasetSpec:
        """``spec`` with how questions are planned as the catalogue says it now; as it is where that cannot be read."""
        try:
            return spec.model_copy(update={"plans": get_spec(self.dataset).plans})
        except UserError:
            return spec

    def note(self, *, files: bool = False) -> str | None:
        """One line on what has changed since the generation was made, and what makes a newer one; None if nothing has.

        Args:
            files: look at the source files too, by name, size and time.
        """
        changed = list(self._changes(files))
        if self.generation is None or not changed:
            return None
        told = f"{self.dataset} has changed since this was made on {self.generation.created} ({', '.join(changed)}): "
        run = writer(self._home.store.of_dataset(self.dataset))
        if run is not None:
            return f"{told}run {run} is making it anew"
        return f"{told}`skb-pipeline run --dataset {self.dataset}` makes it anew"

    def _changes(self, files: bool) -> Iterator[str]:
        generation = self.generation
        if generation is None:
            return
        yield from self._spec_changes()
        yield from self._systems_changes()
        if files and _files_changed(generation, self.workspace.spec(self.dataset)):
            yield "source files"
        made = sum(_is_replaced(self._home.store, generation, asset) for asset in generation.versions)
        if made:
            yield f"{made} artefacts made anew"

    def _spec_changes(self) -> Iterator[str]:
        try:
            if not get_spec(self.dataset).decides_as(self.workspace.spec(self.dataset)):
                yield "its spec"
        except UnknownDatasetError:
            yield "its spec is gone"
        except Exception as error:  # whatever is wrong with the spec now, the generation has its own
            first = (str(error).splitlines() or [type(error).__name__])[0]
            yield f"its spec cannot be read now: {first}"

    def _systems_changes(self) -> Iterator[str]:
        try:
            declared = load_registry(self.workspace.root)
        except SystemsError as error:
            yield f"the systems cannot be read now: {str(error).splitlines()[0]}"
            return
        made = self._made_systems
        changed = [n for n in made if n not in declared or declared[n].settings() != made[n].settings()]
        if changed:
            yield f"the settings of {', '.join(changed)}"


def on_newest(
    dataset: str, use: Callable[[Newest], T], workspace: Workspace | None = None, *, files: bool = False
) -> tuple[T, str | None]:
    """What ``use`` finds in the newest generation, and :meth:`Newest.note` on it.

    ``use`` is called once more, on the generation that is the newest then, if a clean-up took versions away meanwhile.

    Raises:
        What ``use`` raises.
    """
    newest = Newest(dataset, workspace)
    try:
        found = use(newest)
    except Exception:
        if newest.is_whole:
            raise
        newest = Newest(dataset, workspace)
        found = use(newest)
    return found, newest.note(files=files)


def _is_readable(generation: Generation) -> bool:
    """Whether this version of the project can read its spec."""
    try:
        DatasetSpec.model_validate(generation.spec)
    except ValidationError:
        return False
    return True


def _is_replaced(store: ArtifactStore, generation: Generation, asset: str) -> bool:
    """Whether the current version of an artefact is another one, with other content."""
    current = store.current(generation.dataset, asset)
    if current is None or current.path.name == generation.versions[asset]:
        return False
    return current.data_version != generation.data_versions[asset]


def file_states(paths: list[Path]) -> list[list[Any]]:
    """Path, size in bytes and modification time in ns of each file."""
    return [[str(path), (stat := path.stat()).st_size, stat.st_mtime_ns] for path in paths]


def _files_changed(generation: Generation, spec: DatasetSpec) -> bool:
    if generation.files is None:
        return False
    try:
        return file_states(open_source(spec).files()) != [list(entry) for entry in generation.files]
    except (UserError, OSError):
        return True  # one is gone
