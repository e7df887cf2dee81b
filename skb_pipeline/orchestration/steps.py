"""The frame every asset shares: its declaration, reuse by manifest, writing, and what people see of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.orchestration.automation import on_content_change
from skb_pipeline.orchestration.partitions import DATASETS
from skb_pipeline.storage.artifacts import Artifact, Draft, Recipe
from skb_pipeline.workspace import Workspace

OWNER = "team:retrieval"
_VERSION_LENGTH = 32


class StepConfig(dg.Config):
    """Run config every asset takes.

    Attributes:
        force: compute although nothing changed.
    """

    force: bool = False


def pipeline_asset(
    key: str,
    *,
    deps: Sequence[str],
    code_version: str,
    kinds: set[str],
    description: str | None = None,
    automatic: bool = True,
    optional: bool = False,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare an asset ``stage/name``: its group is the stage, its partition the dataset.

    An ``optional`` one is a generator that may end without a result, which is no failure.
    """
    stage, _ = key.split("/")
    return dg.asset(
        key=dg.AssetKey(key.split("/")),
        group_name=stage,
        deps=[dg.AssetKey(d.split("/")) for d in deps],
        partitions_def=DATASETS,
        code_version=code_version,
        kinds=kinds,
        owners=[OWNER],
        description=description,
        automation_condition=on_content_change() if automatic else None,
        output_required=not optional,
    )


class Step:
    """One execution of an asset for one dataset.

    Args:
        inputs: asset keys read; their data versions become part of the recipe.
        sections: top-level sections of the spec the step depends on.
        config: further values the result depends on.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        workspace: Workspace,
        step_config: StepConfig,
        *,
        code_version: str,
        inputs: Sequence[str] = (),
        sections: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        self.context = context
        self.workspace = workspace
        self.store = workspace.store
        self.dataset = context.partition_key
        self.spec: DatasetSpec = workspace.spec(self.dataset)
        self.asset = "/".join(context.asset_key.path)
        self.force = step_config.force
        self._inputs = {key: self.store.require_fitting(self.dataset, key) for key in inputs}
        self.recipe = Recipe(
            dataset=self.dataset,
            asset=self.asset,
            code_version=code_version,
            inputs={key: artifact.data_version for key, artifact in self._inputs.items()},
            config=_joined(self.spec.section(*sections), config or {}),
            identity=next((i for a in self._inputs.values() if (i := a.manifest.get("skb_identity"))), None),
            seed=seed,
        )

    def input(self, key: str) -> Artifact:
        """A declared input."""
        return self._inputs[key]

    @property
    def identity(self) -> str | None:
        """Identity of the SKB whose node ids the inputs hold."""
        return self.recipe.identity

    def run(
        self, build: Callable[[Draft], None], *, holds: Callable[[Artifact], bool] | None = None
    ) -> dg.MaterializeResult:
        """Reuse the current version if it was made from the same recipe, else build and switch to a new one.

        ``build`` writes files into ``draft.path`` and calls ``draft.finish``. ``holds`` says whether what the version
        stands for is still there, where that is not in its own files.
        """
        found = None if self.force else self.store.find(self.recipe)
        if found is not None and holds is not None and not holds(found):
            self.context.log.info(f"{self.asset} of {self.dataset}: what was made is no longer there")
            found = None
        if found is not None:
            self.context.log.info(f"{self.asset} of {self.dataset}: nothing it depends on changed, reused")
            return self._result(found, reused=True)
        with self.store.write(self.recipe, run_id=self.context.run_id) as draft:
            build(draft)
            draft.extra.setdefault("skb_identity", self.identity)
            draft.extra["lineage"] = self._lineage()
        return self._result(self.store.require(self.dataset, self.asset), reused=False)

    def _lineage(self) -> dict[str, str]:
        """Data version of every artefact this one was made from, directly or not."""
        lineage: dict[str, str] = {}
        for key, artifact in self._inputs.items():
            lineage |= artifact.manifest.get("lineage", {})
            lineage[key] = artifact.data_version
        return dict(sorted(lineage.items()))

    def _result(self, artifact: Artifact, *, reused: bool) -> dg.MaterializeResult:
        manifest = artifact.manifest
        metadata: dict[str, Any] = {key: plain(value) for key, value in manifest["metadata"].items()}
        for key, text in manifest.get("markdown", {}).items():
            metadata[key] = dg.MetadataValue.md(text)
        metadata["reused"] = reused
        metadata["dagster/uri"] = str(artifact.path)
        metadata["inputs"] = dg.MetadataValue.json(manifest.get("lineage", {}))
        return dg.MaterializeResult(
            data_version=dg.DataVersion(artifact.data_version[:_VERSION_LENGTH]), metadata=metadata
        )


def _joined(sections: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Both, where a name given twice would hide a part of the recipe."""
    twice = sections.keys() & further.keys()
    if twice:
        raise ValueError(f"config repeats names of spec sections: {sorted(twice)}")
    return {**sections, **further}


def plain(value: Any) -> Any:
    """``value`` in plain Python: numpy scalars become numbers, numbers that are not finite the text "not finite"."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    return value
