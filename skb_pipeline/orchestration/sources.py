"""What a system reads when it is an asset: the step's inputs."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.orchestration.steps import Step
from skb_pipeline.planning.frames import PLANS
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.skb.store import canonical_positions, node_table
from skb_pipeline.storage.artifacts import Artifact
from skb_pipeline.storage.duck import connect
from skb_pipeline.systems.kind import Sources
from skb_pipeline.systems.ranked import Questions, Ranked
from skb_pipeline.workspace import SKB_FILE

if TYPE_CHECKING:
    from skb_pipeline.graph.branch import GraphBranch
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows


class StepSources(Sources):
    """The inputs of a ranking asset.

    Args:
        step: declares ``skb/store``, ``questions/queries``, what the system reads, and the rankings it is made of.
    """

    def __init__(self, step: Step) -> None:
        self._step = step

    def questions(self) -> Questions:
        """All questions of the dataset, in stored order."""
        frame = QUERIES.read(self._step.input("questions/queries"), ["query_id", "query"])
        return Questions(frame["query_id"].tolist(), frame["query"].tolist())

    @property
    def spec(self) -> DatasetSpec:
        """See ``Sources``."""
        return self._step.spec

    @cached_property
    def canonical(self) -> np.ndarray:
        """See ``Sources``."""
        with connect(self.artifact("skb/store").file(SKB_FILE), read_only=True) as con:
            return canonical_positions(con)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """See ``Sources``."""
        with connect(self.artifact("skb/store").file(SKB_FILE), read_only=True) as con:
            return node_table(con)

    def artifact(self, key: str) -> Artifact:
        """See ``Sources``."""
        return self._step.input(key)

    @cached_property
    def _encoder(self) -> tuple[Encoder, ArrayRows]:
        return self._step.workspace.open_encoder(self.spec)

    def encoder(self) -> tuple[Encoder, ArrayRows]:
        """See ``Sources``."""
        return self._encoder

    def graph_branch(self) -> GraphBranch:
        """See ``Sources``."""
        return self._step.workspace.open_graph_branch(self.spec)

    def plans(self, questions: Questions) -> pd.DataFrame:
        """See ``Sources``: those of the engine whose plans are executed."""
        plans = plans_of(self.artifact("planning/query_plans"))
        return plans.set_index("query_id").loc[questions.ids].reset_index()

    def component(self, name: str, questions: Questions) -> Ranked:
        """See ``Sources``: as it was stored."""
        return Ranked.read(self.artifact(f"ranking/{name}"))

    def progress(self, text: str) -> None:
        """See ``Sources``: goes to the run's log."""
        self._step.log(text)


def plans_of(plans: Artifact, engine: str | None = None) -> pd.DataFrame:
    """Rows of ``PLANS`` of one engine, by default of the one whose plans are executed."""
    frame = PLANS.read(plans)
    return frame[frame["engine"] == (engine or plans.manifest["engine"])].reset_index(drop=True)
