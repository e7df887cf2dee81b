"""What ranking questions gives, in the asset and in a search alike, and how it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from skb_pipeline.graph.branch import OUTCOMES
from skb_pipeline.retrieval.ranking import RANKING
from skb_pipeline.storage.artifacts import Artifact


@dataclass(frozen=True)
class Questions:
    """Questions to be ranked.

    Attributes:
        ids: text [n], each once.
        texts: text [n], cleaned like the documents.
        keep: whether what is computed for them (vectors, replies) is kept; what people type is not.
    """

    ids: list[str]
    texts: list[str]
    keep: bool = True


@dataclass(frozen=True)
class Ranked:
    """The ranking of some questions.

    Attributes:
        ranking: rows of ``RANKING``.
        outcomes: rows of ``OUTCOMES``, of a system that executes plans.
        metadata: what people see.
    """

    ranking: pd.DataFrame
    outcomes: pd.DataFrame | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def for_fusion(self) -> pd.DataFrame:
        """The hits that take part in a fusion: those of a question that was answered by text only do not."""
        if self.outcomes is None:
            return self.ranking
        silent = self.outcomes.loc[self.outcomes["fallback"], "query_id"]
        return self.ranking[~self.ranking["query_id"].isin(silent)]

    def write(self, folder: Path) -> None:
        """Write the frames into an artefact's folder."""
        RANKING.write(folder, self.ranking)
        if self.outcomes is not None:
            OUTCOMES.write(folder, self.outcomes)

    @classmethod
    def read(cls, artifact: Artifact) -> Ranked:
        """What :meth:`write` wrote, without metadata."""
        has_outcomes = (artifact.path / OUTCOMES.file).is_file()
        return cls(RANKING.read(artifact), OUTCOMES.read(artifact) if has_outcomes else None)
