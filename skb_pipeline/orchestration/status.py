"""What is out of date and why, and what a run would do: each asset's recipe as it would be now, beside its manifest.

Nothing is computed and nothing is written. The recipe is made by the step itself; what the step would open for writing
lies in a folder that is thrown away.
"""

from __future__ import annotations

import datetime as dt
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import dagster as dg

from skb_pipeline.datasets.records import Fetching
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.datasets.unchanged import file_digest
from skb_pipeline.errors import UserError
from skb_pipeline.orchestration.assets.catalog import named
from skb_pipeline.orchestration.build import build_defs
from skb_pipeline.orchestration.costs import PROMPTS, TEXTS, work_of
from skb_pipeline.orchestration.differences import ABSENT, Difference, recipe_differences, recipe_of
from skb_pipeline.orchestration.steps import Declaration, Opened, Step, declaration_of
from skb_pipeline.storage.artifacts import Artifact
from skb_pipeline.workspace import Workspace

if TYPE_CHECKING:
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows

FRESH, STALE, MISSING, FAILED, SKIPPED = "fresh", "stale", "missing", "failed", "skipped"
_SLACK_S = 1.0
"""File systems give a file the time of the last tick of a coarse clock."""
_DONE = {TEXTS: "texts encoded", PROMPTS: "replies asked"}
"""What the metadata of an asset call work of a kind that was done."""


@dataclass(frozen=True)
class AssetStatus:
    """What a run would find of one asset.

    Attributes:
        asset: its key.
        state: ``fresh``, ``stale``, ``missing`` (never made), ``failed`` (the last try failed) or ``skipped`` (it is
            not made here).
        differences: between the recipe it was made from and the one it would have now.
        told: further reasons, in words.
        follows: those above it that are made anew for reasons of their own. Where there are no other reasons, it is
            reused if what it reads comes out equal.
        work: texts to embed and prompts to ask, where that can be told (see ``costs.work_of``).
        seconds: it would take at the rate of the last time; None if that is not known, or nothing is to be done.
        created, run_id: of the version that is there.
    """

    asset: str
    state: str
    differences: Sequence[Difference] = ()
    told: Sequence[str] = ()
    follows: Sequence[str] = ()
    work: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None
    created: str | None = None
    run_id: str | None = None

    @property
    def settled(self) -> bool:
        """Whether a run leaves it as it is."""
        return self.state in (FRESH, SKIPPED)

    @property
    def by_itself(self) -> bool:
        """Whether it is made anew whatever becomes of those above it."""
        return not self.settled and bool(self.differences or self.told or self.state in (MISSING, FAILED))

    @property
    def reasons(self) -> list[str]:
        """All reasons, in words; values that changed before those that one side does not have."""
        told = sorted(self.differences, key=lambda one: ABSENT in (one.old, one.new))
        found = [*self.told, *map(str, told)]
        if self.follows:
            reused = "" if self.by_itself else " (reused where that comes out equal)"
            found.append(f"follows {', '.join(self.follows)}{reused}")
        return found


def status_of(dataset: str, workspace: Workspace, *, verify: bool = False, counting: bool = True) -> list[AssetStatus]:
    """The status of every asset of a dataset, each after those it is made of.

    Args:
        dataset: of the catalogue.
        workspace: the home.
        verify: hash every source file; else only those whose size or time changed since they were hashed.
        counting: count the work that a run would have, which reads documents and questions.

    Raises:
        UnknownDatasetError, SpecError: there is no such spec, or it cannot be read.
        SystemsError: the user's file of systems is faulty.
    """
    defs = build_defs()
    graph = defs.resolve_asset_graph()
    declared = [declaration_of(graph.assets_def_for_key(key)) for key in graph.toposorted_asset_keys]
    with tempfile.TemporaryDirectory(prefix="skb-status-") as scratch:
        onlooker = _Onlooker(workspace.root, scratch=Path(scratch))
        context = _Context(dataset, defs.resolve_job_def("materialise"))
        found: dict[str, AssetStatus] = {}
        for one in declared:
            step = Step(one, cast(Any, context), onlooker, one.config())
            found[one.key] = _look(one, step, found, verify=verify, home=workspace if counting else None)
    return list(found.values())


class _ToBeFetchedError(UserError):
    """Source files are not here, and a run would get them."""


@dataclass(frozen=True)
class _Context:
    """As much of a run as a step asks for before it computes anything."""

    partition_key: str
    job_def: dg.JobDefinition
    run_id: str = ""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))


@dataclass(frozen=True)
class _Onlooker(Workspace):
    """The same home; caches, which are opened for writing, are empty ones in a folder of their own."""

    scratch: Path = Path()

    def caches(self, dataset: str) -> Path:
        return self.scratch / dataset

    @property
    def model_hashes(self) -> Path:
        copy, kept = self.scratch / "model_hashes.json", super().model_hashes
        if kept.is_file() and not copy.is_file():
            shutil.copyfile(kept, copy)
        return copy

    def open_encoder(self, spec: DatasetSpec) -> tuple[Encoder, ArrayRows]:
        self.caches(spec.name).mkdir(exist_ok=True)
        return super().open_encoder(spec)


def _look(
    declared: Declaration, step: Step, above: Mapping[str, AssetStatus], *, verify: bool, home: Workspace | None
) -> AssetStatus:
    made, failed = step.store.current(step.dataset, step.asset), step.store.failure(step.dataset, step.asset)
    told = [f"failed at the last run: {failed}"] if failed is not None else []
    reads = [entry.asset for entry in declared.inputs if not entry.pinned]
    differences: list[Difference] = []
    work: dict[str, int] = {}
    try:
        with _opening(declared, step, verify) as opened:
            if opened.skip is not None:
                return AssetStatus(step.asset, SKIPPED, told=[opened.skip])
            inputs = step.foresee(opened)
            reads = [asset for asset in reads if asset in inputs]
            absent = {asset for asset, why in inputs.items() if why}
            if made is not None:
                differences = recipe_differences(recipe_of(made.manifest), step.recipe, absent)
                told += _further(step, made, differences, absent)
            changed = made is None or bool(told or differences)
            unsettled = changed or any(not above[asset].settled for asset in reads)
            if home is not None and unsettled and not absent:
                work = work_of(step, home)
    except _ToBeFetchedError as error:
        told.append(str(error))
    except (UserError, OSError) as error:
        if all(above[asset].state not in (MISSING, FAILED) for asset in reads):
            told.append(f"a run would fail: {error}")
    follows = _roots(reads, above)
    state = FAILED if failed is not None else MISSING if made is None else STALE
    if state == STALE and not (differences or told or follows):
        state = FRESH
    manifest = {} if made is None else made.manifest
    return AssetStatus(
        step.asset, state, differences, told, follows, work,
        None if made is None or state == FRESH else _seconds(made, work),
        manifest.get("created"), manifest.get("run_id"),
    )  # fmt: skip


def _opening(declared: Declaration, step: Step, verify: bool) -> AbstractContextManager[Opened]:
    opens = _OTHERWISE.get(declared.key)
    if opens is not None:
        return opens(step, verify=verify)
    return declared.opens(step) if declared.opens is not None else nullcontext(Opened())


@contextmanager
def _files(step: Step, *, verify: bool) -> Iterator[Opened]:
    """Digests of the source files; nothing is fetched, and what cannot have changed is not read again."""
    source = open_source(step.spec)
    try:
        files = named(source.files())
    except FileNotFoundError as error:
        if isinstance(source, Fetching):
            raise _ToBeFetchedError(f"a run would fetch files first: {error}") from error
        raise
    made = step.store.current(step.dataset, step.asset)
    digests = {
        name: (None if verify or made is None else _known_digest(made, path, name)) or file_digest(path)
        for name, path in files.items()
    }
    yield Opened(config={"files": digests})


_OTHERWISE = {"catalog/snapshot": _files}
"""Assets whose ``opens`` does more than a look may do."""


def _known_digest(made: Artifact, path: Path, name: str) -> str | None:
    """The digest that a snapshot has of a file, if this has the same size and was not touched since."""
    started, stat = made.manifest.get("started"), path.stat()
    if started is None or made.metadata.get("file_sizes", {}).get(name) != stat.st_size:
        return None
    latest = max(stat.st_mtime, stat.st_ctime)  # a copy may keep the former
    untouched = latest < dt.datetime.fromisoformat(started).timestamp() - _SLACK_S
    return made.manifest["config"].get("files", {}).get(name) if untouched else None


def _further(step: Step, made: Artifact, differences: Sequence[Difference], absent: set[str]) -> list[str]:
    if differences or absent:
        return []
    if made.manifest["recipe_key"] != step.recipe.key():
        return ["it was made from another recipe"]
    return [] if step.still_holds(made) else ["what was made is not complete, or no longer there"]


def _roots(reads: Sequence[str], above: Mapping[str, AssetStatus]) -> list[str]:
    """Those among the ancestors that are made anew for reasons of their own."""
    found: dict[str, None] = {}
    for asset in reads:
        if above[asset].by_itself:
            found[asset] = None
        elif not above[asset].settled:
            found |= dict.fromkeys(above[asset].follows)
    return list(found)


def _seconds(made: Artifact, work: Mapping[str, int]) -> float | None:
    """What making it took the last time, or that time per text or prompt where there are some; None where the last time
    tells no rate."""
    took = made.manifest.get("seconds")
    for what, number in work.items():
        if number:
            done = made.metadata.get(_DONE[what], 0)
            return round(float(took) * number / done, 3) if took is not None and done else None
    return None if took is None else float(took)
