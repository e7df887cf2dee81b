"""The frame every asset shares: one declaration, reuse by manifest, writing, and what people see of it.

From the declaration follow the dependencies in Dagster, the inputs and sections of the recipe and the code version, so
that nothing is said twice. See ``docs/architecture.md`` for how to declare one.
"""

import contextlib
import datetime as dt
import inspect
import math
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import PassingError, UserError
from skb_pipeline.orchestration.generations import SECTIONS, failure_below, record_generation
from skb_pipeline.orchestration.partitions import DATASETS
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.runs import somebody_waits
from skb_pipeline.orchestration.spec_view import declared_spec
from skb_pipeline.storage.artifacts import (
    Artifact,
    ArtifactMissingError,
    Draft,
    ManifestMismatchError,
    Recipe,
    deciding_versions,
    projection,
)
from skb_pipeline.storage.frames import Frame
from skb_pipeline.text.sinks import terminal_text
from skb_pipeline.workspace import Workspace

OWNER = "team:retrieval"
_VERSION_LENGTH = 32
_PACKAGE = "skb_pipeline."
_DECLARED = "skb_declared"
WAITS = (15.0, 60.0, 240.0)
"""Seconds before a step is tried again that failed for a reason which may pass by itself."""


class StepConfig(dg.Config):
    """Run config every asset takes.

    Attributes:
        force: compute although nothing changed.
    """

    force: bool = False


@dataclass(frozen=True)
class Input:
    """One input of an asset.

    Attributes:
        asset: its key.
        splits: the rows that may be read, by split; None for all. The recipe holds the hash of just these rows, so
            what learns or tunes neither sees nor depends on other questions.
        pinned: read, but no part of the recipe: a change of it remakes nothing by itself.
        optional: read where it is there and fits; its absence is part of the recipe.
    """

    asset: str
    splits: tuple[str, ...] | None = None
    pinned: bool = False
    optional: bool = False

    @property
    def name(self) -> str:
        """As it stands in a recipe."""
        return projection(self.asset, self.splits) if self.splits is not None else self.asset


def only(asset: str, *, splits: Sequence[str]) -> Input:
    """The rows of some splits of a frame that has rows per question; see :meth:`Step.rows`."""
    return Input(asset, splits=tuple(sorted(splits)))


def pinned(asset: str, *, splits: Sequence[str] | None = None) -> Input:
    """An input whose changes do not ask for a new version."""
    return Input(asset, splits=None if splits is None else tuple(sorted(splits)), pinned=True)


def optional(asset: str) -> Input:
    """An input that may be missing or out of date, see :meth:`Step.lacking`."""
    return Input(asset, optional=True)


@dataclass
class Opened:
    """What a step looks at before it is clear whether there is anything to compute.

    Attributes:
        config: further values of the recipe.
        reads: of the declared inputs, those that are read this time; None for all.
        holds: whether what a version stands for is still there, where that is not in its own files.
        value: kept as ``step.opened``.
        seed: of everything random.
        skip: why there will be no result, which is no failure.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    reads: Sequence[str] | None = None
    holds: Callable[[Artifact], bool] | None = None
    value: Any = None
    seed: int | None = None
    skip: str | None = None


Opens = Callable[["Step"], contextlib.AbstractContextManager[Opened]]
Build = Callable[["Step", Draft], None]
Then = Callable[["Step", Artifact], None]


@dataclass(frozen=True)
class Declaration:
    """What is declared of an asset, see :func:`pipeline_asset`."""

    key: str
    inputs: tuple[Input, ...]
    sections: tuple[str, ...]
    partly: tuple[str, ...]
    code: tuple[types.ModuleType, ...]
    writes: tuple[Frame, ...]
    libraries: tuple[str, ...]
    revision: str
    opens: Opens | None
    optional: bool
    config: type[StepConfig] = StepConfig
    then: Then | None = None

    @property
    def code_version(self) -> str:
        """Versions of the code modules, of the frames that are written, and of the asset itself."""
        modules = {module.__name__.removeprefix(_PACKAGE): str(module.VERSION) for module in self.code}
        frames = {f"frame {frame.name}": frame.version for frame in self.writes}
        told = {"asset": self.revision, **modules, **frames}
        return ", ".join(f"{name} {version}" for name, version in sorted(told.items()))


def pipeline_asset(
    key: str,
    *,
    inputs: Sequence[str | Input] = (),
    waits_for: Sequence[str] = (),
    sections: Sequence[str] = (),
    partly: Sequence[str] = (),
    code: Sequence[types.ModuleType] = (),
    writes: Sequence[Frame] = (),
    libraries: Sequence[str] = (),
    revision: str = "1",
    opens: Opens | None = None,
    then: Then | None = None,
    config: type[StepConfig] = StepConfig,
    kinds: set[str],
    description: str | None = None,
    optional: bool = False,
    pool: str | None = None,
) -> Callable[[Build], dg.AssetsDefinition]:
    """Declare an asset ``stage/name``: its group is the stage, its partition the dataset.

    The function below it gets the :class:`Step` and the draft: it writes files into ``draft.path`` and calls
    ``draft.finish``. It runs only when no version of this recipe is there.

    Args:
        key: ``stage/name``.
        inputs: what is read: keys, or :func:`only`, :func:`pinned`, :func:`optional`.
        waits_for: keys that must come first and are not read through the step.
        sections: sections of the spec that count; ``step.spec`` shows no others.
        partly: sections that are shown too, where ``opens`` puts what counts of them into the recipe, or an input
            tells it already.
        code: modules whose behaviour the result shows; each has a ``VERSION``.
        writes: frames among its files; a changed schema makes a new version.
        libraries: distributions whose version decides the result.
        revision: changed with the behaviour of the function itself.
        opens: see :class:`Opened`.
        then: called with the current version, made or reused, for what is kept outside of it; a second call with the
            same version must change nothing.
        config: class of its run config.
        kinds: icons in the UI.
        description: default is the function's docstring.
        optional: it may end without a result (``Opened.skip``).
        pool: what steps of all runs share (``gpu``, ``llm``, ``neo4j``), as many at a time as Dagster's settings say.
    """
    stage, _ = key.split("/")
    read = tuple(i if isinstance(i, Input) else Input(i) for i in inputs)
    declared = Declaration(
        key, read, tuple(sections), tuple(partly), tuple(code), tuple(writes), tuple(libraries), revision, opens,
        optional, config, then,
    )  # fmt: skip

    def declare(build: Build) -> dg.AssetsDefinition:
        def compute(
            context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig
        ) -> Iterator[dg.MaterializeResult]:
            yield from _execute(declared, build, context, workspace, config)

        compute.__annotations__["config"] = config  # Dagster reads the class of the run config there
        setattr(compute, _DECLARED, declared)
        return dg.asset(
            key=dg.AssetKey(key.split("/")),
            group_name=stage,
            deps=[dg.AssetKey(k.split("/")) for k in dict.fromkeys([*(i.asset for i in read), *waits_for])],
            partitions_def=DATASETS,
            code_version=declared.code_version,
            kinds=kinds,
            owners=[OWNER],
            description=description or inspect.cleandoc(build.__doc__ or ""),
            output_required=not optional,
            pool=pool,
            metadata={"code": [module.__name__ for module in code], "function": _place(build)},
        )(compute)

    return declare


def declaration_of(asset: dg.AssetsDefinition) -> Declaration:
    """What was declared of an asset that :func:`pipeline_asset` made."""
    decorated: Any = asset.op.compute_fn
    declared = getattr(decorated.decorated_fn, _DECLARED)
    assert isinstance(declared, Declaration)
    return declared


def _place(function: Build) -> str:
    """Where a function stands, for people and for the lock of versions."""
    return f"{function.__module__}:{function.__qualname__}"


def _execute(
    declared: Declaration, build: Build, context: dg.AssetExecutionContext, workspace: Workspace, config: StepConfig
) -> Iterator[dg.MaterializeResult]:
    store = workspace.store
    try:
        step = Step(declared, context, workspace, config)
        with declared.opens(step) if declared.opens else contextlib.nullcontext(Opened()) as opened:
            if opened.skip is not None:
                _tell_skipped(context, opened.skip)
                return
            step.settle(opened)
            result = step.result(build)
        record_generation(context, workspace)
    except Exception as error:
        told = str(error) if isinstance(error, UserError | dg.Failure) else f"{type(error).__name__}: {error}"
        store.record_failure(context.partition_key, declared.key, told)
        if isinstance(error, PassingError) and context.retry_number < len(WAITS) and not somebody_waits(context.run):
            context.log.warning(terminal_text(f"{told}; tried again"))
            raise dg.RetryRequested(len(WAITS), WAITS[context.retry_number]) from error
        with contextlib.suppress(OSError, UserError):  # the first error is the one to tell
            record_generation(context, workspace)
        raise
    yield result


def _tell_skipped(context: dg.AssetExecutionContext, reason: str) -> None:
    """An observation says why an asset ends without a result; those below it that the run has selected are told the
    same, since Dagster does not start them then."""
    layer = context.job_def.asset_layer
    below = sorted(layer.get(context.asset_key).child_keys & layer.selected_asset_keys)
    for key in (context.asset_key, *below):
        context.log.info(terminal_text(f"{'/'.join(key.path)} skipped: {reason}"))
        context.log_event(
            dg.AssetObservation(asset_key=key, partition=context.partition_key, metadata=plain({"skipped": reason}))
        )


class Step:
    """One execution of an asset for one dataset.

    Attributes:
        dataset: name of the dataset.
        asset: key of the asset.
        spec: of the dataset, with the declared sections only; another one raises.
        opened: what ``opens`` put there.
        recipe: known once the step is settled, that is in ``build``.
        config: run config.
    """

    def __init__(
        self, declared: Declaration, context: dg.AssetExecutionContext, workspace: Workspace, config: StepConfig
    ) -> None:
        self.declared, self.context, self.workspace = declared, context, workspace
        self.config: Any = config
        self.store = workspace.store
        self.dataset = context.partition_key
        self.asset = declared.key
        self.spec: DatasetSpec = declared_spec(
            workspace.spec(self.dataset), [*declared.sections, *declared.partly], self.asset
        )
        self.opened: Any = None
        self.recipe: Recipe
        self._inputs: dict[str, Artifact] = {}
        self._lacking: dict[str, str] = {}
        self._read: list[Input] = []
        self._holds: Callable[[Artifact], bool] | None = None
        self._started, self._clock = dt.datetime.now(dt.UTC), time.monotonic()

    def settle(self, opened: Opened) -> None:
        """Look up the inputs and make the recipe.

        Raises:
            ArtifactMissingError, ManifestMismatchError: an input was never made, or no longer fits what it is made of.
        """
        self._choose(opened)
        for entry in self._read:
            if entry.optional:
                self._look_for(entry.asset)
        required = [entry.asset for entry in self._read if not entry.optional]
        self._inputs |= self.store.fitting(self.dataset, required)
        self.recipe = self._recipe(opened)

    def foresee(self, opened: Opened) -> dict[str, str]:
        """Make the recipe from the inputs as they stand, whether or not they fit what they were made of.

        Returns:
            The inputs that a run would read, by asset key: ``""``, or why there is none.
        """
        self._choose(opened)
        told: dict[str, str] = {}
        for entry in self._read:
            layer = self.context.job_def.asset_layer
            failed = failure_below(layer, self.store, self.dataset, entry.asset) if entry.optional else None
            found = self.store.current(self.dataset, entry.asset) if failed is None else None
            if failed is not None:
                self._lacking[entry.asset] = failed
            told[entry.asset] = failed or ("" if found is not None else "it was never made")
            if found is not None:
                self._inputs[entry.asset] = found
        self.recipe = self._recipe(opened)
        return told

    def still_holds(self, made: Artifact) -> bool:
        """Whether what a version stands for is still there, where that is not in its own files."""
        return self._holds is None or self._holds(made)

    def _choose(self, opened: Opened) -> None:
        declared = self.declared
        if opened.reads is not None and (unknown := set(opened.reads) - {i.asset for i in declared.inputs}):
            raise ValueError(f"{self.asset} reads {sorted(unknown)}, which it does not declare")
        self._read = [i for i in declared.inputs if opened.reads is None or i.asset in opened.reads]
        self.opened, self._holds = opened.value, opened.holds

    def _recipe(self, opened: Opened) -> Recipe:
        declared = self.declared
        keyed = [entry for entry in self._read if not entry.pinned and entry.asset in self._inputs]
        return Recipe(
            dataset=self.dataset,
            asset=self.asset,
            code_version=declared.code_version,
            inputs={entry.name: self._inputs[entry.asset].version_of(entry.splits) for entry in keyed},
            config=_joined(self.spec.section(*declared.sections), opened.config, self._lacking),
            libraries=deciding_versions(declared.libraries),
            identity=next(
                (i for entry in keyed if (i := self._inputs[entry.asset].manifest.get("skb_identity"))), None
            ),
            seed=opened.seed,
        )

    def _look_for(self, asset: str) -> None:
        failed = failure_below(self.context.job_def.asset_layer, self.store, self.dataset, asset)
        if failed is not None:
            # What there may be from before the failure is not what was asked for.
            self._lacking[asset] = failed
            return
        try:
            self._inputs[asset] = self.store.require_fitting(self.dataset, asset)
        except ArtifactMissingError:
            self._lacking[asset] = "it was never made"
        except ManifestMismatchError:
            self._lacking[asset] = "what there is was made from something that has changed since"

    def log(self, text: str) -> None:
        """Tell something in the run's log."""
        self.context.log.info(terminal_text(text))

    def input(self, key: str) -> Artifact:
        """A declared input that may be read as a whole."""
        if any(entry.splits is not None for entry in self._read if entry.asset == key):
            raise ValueError(f"{self.asset} declares only some splits of {key}: read it by step.rows")
        return self._inputs[key]

    @property
    def lacking(self) -> Mapping[str, str]:
        """Optional inputs that cannot be read: asset key -> why."""
        return self._lacking

    def rows(self, key: str, frame: Frame, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows of a declared input that may be read, by the splits it was declared with.

        A frame without a column ``split`` is cut by the questions it is about.
        """
        (entry,) = (i for i in self._read if i.asset == key)
        artifact = self._inputs[key]
        if entry.splits is None:
            return frame.read(artifact, columns)
        wanted = list(columns) if columns is not None else frame.names
        if "split" in frame.names:
            table = frame.read(artifact, list(dict.fromkeys([*wanted, "split"])))
            return table.loc[table["split"].isin(entry.splits), wanted].reset_index(drop=True)
        allowed = {q for split in entry.splits for q in artifact.manifest["query_ids_by_split"].get(split, [])}
        table = frame.read(artifact, list(dict.fromkeys([*wanted, "query_id"])))
        return table.loc[table["query_id"].isin(allowed), wanted].reset_index(drop=True)

    def versions_read(self) -> dict[str, str]:
        """Version of each input that is read, pinned ones too; of some splits that of their rows."""
        return {
            entry.name: self._inputs[entry.asset].version_of(entry.splits)
            for entry in self._read
            if entry.asset in self._inputs
        }

    @property
    def identity(self) -> str | None:
        """Identity of the SKB whose node ids the inputs hold."""
        return self.recipe.identity

    @property
    def work_folder(self) -> Path:
        """A folder for half-done work that the next run of the same recipe finds again after a failure or a kill."""
        return self.store.work_folder(self.recipe)

    def result(self, build: Build) -> dg.MaterializeResult:
        """Reuse the current version if it was made from the same recipe, else build and switch to a new one."""
        force = self.config.force
        found = None if force else self.store.find(self.recipe)
        if found is not None and not self.still_holds(found):
            self.log(f"{self.asset} of {self.dataset}: what was made is no longer there")
            found = None
        if found is not None:
            self.log(f"{self.asset} of {self.dataset}: nothing it depends on changed, reused")
            self.store.clear_failure(self.dataset, self.asset)
            return self._finished(found, reused=True)
        with self.store.write(self.recipe, run_id=self.context.run_id) as draft:
            build(self, draft)
            draft.extra.setdefault("skb_identity", self.identity)
            draft.extra |= {
                "lineage": self._lineage(),
                SECTIONS: list(self.declared.sections),
                "started": self._started.isoformat(timespec="milliseconds"),
                "seconds": round(time.monotonic() - self._clock, 3),
            }
        return self._finished(self.store.require(self.dataset, self.asset), reused=False)

    def _finished(self, artifact: Artifact, *, reused: bool) -> dg.MaterializeResult:
        if self.declared.then is not None:
            self.declared.then(self, artifact)
        return self._told(artifact, reused=reused)

    def _lineage(self) -> dict[str, str]:
        """Data version of every artefact this one was made from, directly or not."""
        lineage: dict[str, str] = {}
        for entry in self._read:
            if entry.asset in self._inputs and not entry.pinned:
                artifact = self._inputs[entry.asset]
                lineage |= artifact.manifest.get("lineage", {})
                lineage[entry.asset] = artifact.data_version
        return dict(sorted(lineage.items()))

    def _told(self, artifact: Artifact, *, reused: bool) -> dg.MaterializeResult:
        manifest = artifact.manifest
        metadata: dict[str, Any] = plain(manifest["metadata"])
        for key, text in manifest.get("markdown", {}).items():
            metadata[key] = dg.MetadataValue.md(text)
        metadata["reused"] = reused
        metadata["dagster/uri"] = str(artifact.path)
        metadata["inputs"] = dg.MetadataValue.json(manifest.get("lineage", {}))
        return dg.MaterializeResult(
            data_version=dg.DataVersion(artifact.data_version[:_VERSION_LENGTH]), metadata=metadata
        )


def _joined(sections: Mapping[str, Any], further: Mapping[str, Any], lacking: Mapping[str, str]) -> dict[str, Any]:
    """All of them, where a name given twice would hide a part of the recipe."""
    twice = sections.keys() & further.keys()
    if twice:
        raise ValueError(f"config repeats names of spec sections: {sorted(twice)}")
    return {**sections, **further, **({"lacking": dict(sorted(lacking.items()))} if lacking else {})}


def plain(value: Any) -> Any:
    """``value`` as metadata: in plain Python and plain characters.

    numpy scalars become numbers, numbers that are not finite the text "not finite"; of texts, keys too, nothing is
    hidden (``terminal_text``). Dagster shows such texts as they are; only Markdown is more, see ``Draft.finish``.
    """
    if isinstance(value, str):
        return terminal_text(value)
    if isinstance(value, Mapping):
        return {terminal_text(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    return value
