"""``System``: the small protocol that every kind of system implements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.section import Section
from skb_pipeline.storage.artifacts import Artifact
from skb_pipeline.storage.frames import Frame
from skb_pipeline.systems.ranked import Questions, Ranked

if TYPE_CHECKING:
    from skb_pipeline.graph.branch import GraphBranch
    from skb_pipeline.retrieval.encoder import Encoder
    from skb_pipeline.storage.rows.arrays import ArrayRows


class Sources(Protocol):
    """Where a system finds what it reads: the inputs of an asset, or the current artefacts in a search."""

    @property
    def spec(self) -> DatasetSpec:
        """Of the dataset; in an asset it shows the system's ``sections`` and ``partly`` only."""

    @property
    def canonical(self) -> np.ndarray:
        """int64, indexed by node id: positions in canonical order (``skb.store.canonical_positions``)."""

    @property
    def nodes(self) -> pd.DataFrame:
        """Index ``node_id``, columns ``external_id, node_type, name``."""

    def artifact(self, key: str) -> Artifact:
        """One of the artefacts named in ``reads``."""

    def encoder(self) -> tuple[Encoder, ArrayRows]:
        """The dataset's encoder and its cache of vectors."""

    def graph_branch(self) -> GraphBranch:
        """Executes plans."""

    def plans(self, questions: Questions) -> pd.DataFrame:
        """Rows of ``planning.frames.PLANS``, one per question in their order."""

    def component(self, name: str, questions: Questions) -> Ranked:
        """The ranking of one of the systems named in ``components``."""

    def progress(self, text: str) -> None:
        """Takes a line on how far a long step is."""


class System(Section):
    """One system as declared; a subclass is a kind.

    Class attributes say what a kind reads: ``reads`` (keys of artefacts), ``sections`` and ``partly`` of the spec,
    ``libraries`` whose version decides, ``stores`` (frames it writes). ``canonical_ties`` says whether equal scores
    stand in canonical order.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    sections: ClassVar[tuple[str, ...]] = ()
    partly: ClassVar[tuple[str, ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    stores: ClassVar[tuple[Frame, ...]] = ()
    canonical_ties: ClassVar[bool] = True

    kind: str
    about: str = ""
    """One line for people; default: what the kind says of itself."""
    baselines: list[str] | None = None
    """Systems it is compared with; null: all that stand above it in the table."""

    @property
    def components(self) -> tuple[str, ...]:
        """Systems it is made of."""
        return ()

    @property
    def planned(self) -> tuple[str, ...]:
        """Those of ``components`` that must be systems that execute plans."""
        return ()

    @property
    def needs(self) -> frozenset[str]:
        """Of ``download``, ``server`` and ``training``, what making it takes; such a system is made on request only."""
        return frozenset()

    @abstractmethod
    def describe(self) -> str:
        """What it does, in one sentence."""

    @abstractmethod
    def code(self) -> tuple[ModuleType, ...]:
        """Modules whose behaviour the ranking shows, each with a ``VERSION``."""

    @abstractmethod
    def depth_for(self, spec: DatasetSpec) -> int:
        """Rows kept per query."""

    @abstractmethod
    def open(self, sources: Sources) -> Any:
        """Whatever ranking needs and can be opened once for many questions."""

    @abstractmethod
    def rank(self, opened: Any, sources: Sources, questions: Questions) -> Ranked:
        """Rank questions; the same call in the asset and in a search.

        Args:
            opened: what :meth:`open` gave.
            sources: where inputs are found.
            questions: in the order of the result.
        """

    def terms(
        self, ranks: Mapping[str, int | None], outcomes: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, float] | None:
        """What each part contributes to a node's score, for traces; None where a score has no such parts.

        Args:
            ranks: rank of the node in each of ``components``, None where it is not listed or takes no part.
            outcomes: the question's row of ``OUTCOMES`` of each of ``components`` that executes plans.
        """
        return None

    def holds(self, made: Artifact) -> bool:
        """Whether a version that was made may be used again although its recipe is the same."""
        return True

    def settings(self) -> dict[str, Any]:
        """What decides the ranking, as plain JSON values."""
        return self.model_dump(mode="json", exclude={"about", "baselines"})
