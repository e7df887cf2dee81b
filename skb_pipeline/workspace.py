"""The workspace: where a dataset's spec, artefacts and row caches are found, and what their files are called."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.settings import LANGUAGE_MODELS, Engine
from skb_pipeline.storage.artifacts import Artifact, ArtifactStore, stable_hash
from skb_pipeline.storage.generations import Generation
from skb_pipeline.storage.paths import check_dataset_name, inside, is_dataset_name, skb_home

if TYPE_CHECKING:
    import duckdb

    from skb_pipeline.graph.branch import GraphBranch
    from skb_pipeline.graph.fields import FieldValues
    from skb_pipeline.planning.engines.base import PlannerEngine
    from skb_pipeline.planning.engines.opening import ModelReport
    from skb_pipeline.planning.prompts.guidance import Guidance
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows

SKB_FILE = "skb.duckdb"
BM25_FOLDER = "bm25"
DENSE_FOLDER = "dense"
ANCHORS_FOLDER = "anchors"
CSR_FOLDER = "csr"
GUIDANCE_FILE = "guidance.json"
PLAN_QUALITY_FILE = "plan_quality.duckdb"
METRICS_FILE = "metrics.duckdb"
HISTORY_FILE = "metric_history.parquet"


@dataclass(frozen=True)
class Workspace:
    """One home folder.

    Attributes:
        root: the folder; default is ``$SKB_HOME``, else ``.skb`` in the project.
        generation: for readers: its versions count as the current ones of its dataset, and its spec as that dataset's.
        reading: nothing is made here: no folder, and no row of a cache has to be kept.
    """

    root: Path = field(default_factory=skb_home)
    generation: Generation | None = None
    reading: bool = False

    @property
    def store(self) -> ArtifactStore:
        """Finished artefacts."""
        return ArtifactStore(self.root / "store", self.generation)

    def cache(self, dataset: str, name: str) -> Path:
        """Folder of a row cache: results kept by the content they depend on."""
        return inside(self.caches(dataset), name)

    def caches(self, dataset: str) -> Path:
        """The folder that holds all row caches of a dataset."""
        return inside(self.root / "cache", check_dataset_name(dataset))

    def history(self, dataset: str) -> Path:
        """The file with the metric rows of all versions of a dataset's table; it stays when these are collected."""
        return inside(self.root / "store", check_dataset_name(dataset), HISTORY_FILE)

    def datasets(self) -> list[str]:
        """Datasets that have artefacts or caches here, whether or not they have a spec."""
        folders = [*(self.root / "store").glob("*/"), *(self.root / "cache").glob("*/")]
        return sorted({path.name for path in folders if path.is_dir() and is_dataset_name(path.name)})

    def spec(self, dataset: str) -> DatasetSpec:
        """The dataset's spec as it stands now; that of the generation, for its dataset."""
        if self.generation is not None and self.generation.dataset == dataset:
            return DatasetSpec.model_validate(self.generation.spec)
        return get_spec(dataset)

    def open_encoder(self, spec: DatasetSpec) -> tuple[Encoder, ArrayRows]:
        """The dataset's encoder (no model is loaded yet) and its cache of vectors, one per model and settings."""
        from skb_pipeline.retrieval.encoder import Encoder
        from skb_pipeline.storage.rows.arrays import ArrayRows

        encoder = Encoder(spec.encoder, known_hashes=self.model_hashes)
        rows = ArrayRows(self.vectors(spec.name, encoder), encoder.model_fingerprint, must_keep=not self.reading)
        return encoder, rows

    @property
    def model_hashes(self) -> Path:
        """The file that remembers hashes of weights."""
        return self.root / "cache" / "model_hashes.json"

    def vectors(self, dataset: str, encoder: Encoder) -> Path:
        """Folder of the vectors that a dataset keeps of one model."""
        return self.cache(dataset, f"vectors-{stable_hash(encoder.model_fingerprint)[:16]}")

    def open_graph_branch(self, spec: DatasetSpec) -> GraphBranch:
        """The graph branch on the dataset's current artefacts.

        Raises:
            ArtifactMissingError: one of them was never made.
            ManifestMismatchError: they do not fit each other.
        """
        from skb_pipeline.graph.branch import GraphBranch
        from skb_pipeline.graph.memory.csr import CsrGraph
        from skb_pipeline.graph.memory.executor import MemoryExecutor
        from skb_pipeline.linking.anchors import AnchorIndex

        made = self.store.fitting(spec.name, ["skb/store", "graph/csr", "graph/anchors"])
        graph = CsrGraph.load(made["graph/csr"].file(CSR_FOLDER), data=skb_of(made["skb/store"]))
        encoder, cache = self.open_encoder(spec)
        anchors = AnchorIndex.load(made["graph/anchors"].file(ANCHORS_FOLDER), cache, encoder)
        fields = self.open_fields(spec, made["skb/store"])
        return GraphBranch(
            MemoryExecutor(graph, fields.schema, fields),
            anchors,
            candidate_types=spec.candidate_types,
            depth=spec.retrieval.depth,
            fields=fields,
        )

    def open_fields(self, spec: DatasetSpec, store: Artifact) -> FieldValues:
        """The values of the typed fields of a dataset's SKB; its file is read when a field is first asked for."""
        from skb_pipeline.graph.fields import FieldValues
        from skb_pipeline.plans.schema import GraphSchema

        return FieldValues.at(store.file(SKB_FILE), GraphSchema.from_spec(spec))

    @contextmanager
    def open_engine(
        self,
        spec: DatasetSpec,
        engine: Engine,
        con: duckdb.DuckDBPyConnection,
        report: Callable[[str], None] | None = None,
        *,
        typed: bool = False,
    ) -> Iterator[tuple[PlannerEngine, ModelReport | None]]:
        """A planner engine on the dataset's current artefacts (see ``planning.engines.opening.open_engine``).

        Args:
            con: the SKB file.
            report: takes lines on the progress.
            typed: a person types the questions, see there.

        Raises:
            ArtifactMissingError: a language model has no guidance yet.
            EngineSettingsError: the spec does not say which model.
        """
        from skb_pipeline.planning.engines.opening import open_engine
        from skb_pipeline.planning.engines.probing import BranchProbe
        from skb_pipeline.skb.store import node_table

        by_model = engine in LANGUAGE_MODELS
        with open_engine(
            spec,
            engine,
            con,
            guidance=self.guidance(spec.name) if by_model else None,
            replies=self.cache(spec.name, "replies"),
            probe=lambda: BranchProbe(self.open_graph_branch(spec), node_table(con)),
            report=report,
            typed=typed,
        ) as opened:
            yield opened

    def guidance(self, dataset: str) -> Guidance:
        """The pinned guidance of a dataset's prompts.

        Raises:
            ArtifactMissingError: it was never made.
        """
        from skb_pipeline.planning.prompts.guidance import Guidance

        path = self.store.require(dataset, "planning/guidance").file(GUIDANCE_FILE)
        return Guidance.from_json(json.loads(path.read_text(encoding="utf-8")))


def skb_of(store: Artifact) -> dict[str, str]:
    """What an artefact made from an SKB file must agree on with it: content, and the map of keys to node ids."""
    return {"data_version": store.data_version, "identity": str(store.manifest["skb_identity"])}
