"""The workspace: where a dataset's spec, artefacts and row caches are found, and what their files are called."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.storage.artifacts import ArtifactStore, stable_hash
from skb_pipeline.storage.paths import check_dataset_name, inside, skb_home

if TYPE_CHECKING:
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.vectors import VectorCache

SKB_FILE = "skb.duckdb"
DOCUMENTS_FILE = "documents.parquet"
QUERIES_FILE = "queries.parquet"
BM25_FOLDER = "bm25"
DENSE_FOLDER = "dense"
RANKING_FILE = "ranking.parquet"
QUERY_METRICS_FILE = "query_metrics.parquet"
METRICS_FILE = "metrics.duckdb"


@dataclass(frozen=True)
class Workspace:
    """One home folder.

    Attributes:
        root: the folder; default is ``$SKB_HOME``, else ``.skb`` in the project.
    """

    root: Path = field(default_factory=skb_home)

    @property
    def store(self) -> ArtifactStore:
        """Finished artefacts."""
        return ArtifactStore(self.root / "store")

    def cache(self, dataset: str, name: str) -> Path:
        """Folder of a row cache: results kept by the content they depend on."""
        return inside(self.root / "cache", check_dataset_name(dataset), name)

    def spec(self, dataset: str) -> DatasetSpec:
        """The dataset's spec as it stands now."""
        return get_spec(dataset)

    def open_encoder(self, spec: DatasetSpec) -> tuple[Encoder, VectorCache]:
        """The dataset's encoder (no model is loaded yet) and its cache of vectors, one per model and settings."""
        from skb_pipeline.retrieval.encoder import Encoder
        from skb_pipeline.storage.vectors import VectorCache

        encoder = Encoder(spec.encoder, known_hashes=self.root / "cache" / "model_hashes.json")
        folder = self.cache(spec.name, f"vectors-{stable_hash(encoder.model_fingerprint)[:16]}")
        return encoder, VectorCache(folder, encoder.model_fingerprint)
