"""The kind ``rrf``: several rankings joined by weighted reciprocal ranks."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from fractions import Fraction
from types import ModuleType
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.fusion import rrf, trust
from skb_pipeline.fusion.trust import Trust, cell_counts, planned
from skb_pipeline.retrieval.ranking import RANKING
from skb_pipeline.systems.kind import Sources, System
from skb_pipeline.systems.ranked import Questions, Ranked

VERSION = "2"
_LOG = logging.getLogger(__name__)


class RRFSystem(System):
    """Rankings fused by their ranks (see ``fusion.rrf``)."""

    stores = (RANKING,)
    canonical_ties = False  # among equal scores the better single rank comes first

    kind: Literal["rrf"]
    of: list[str] = Field(min_length=1)
    """Systems that are joined."""
    weight: float | None = Field(default=None, ge=0, le=1)
    """Of the first of two lists; the second has the rest."""
    weights: list[float] | dict[str, float] | None = None
    """One per list, in their order or by name; not negative, and they need not sum to 1. Without ``weight`` and
    ``weights`` all lists count alike."""
    trust: dict[str, Trust] = Field(default_factory=dict)
    """By list: what its weight is multiplied with, question by question, as a plan went. A list that is not named keeps
    its weight."""
    k: int = Field(default=60, ge=0)
    """Rank constant."""
    depth: int = Field(default=100, ge=1)
    """Rows kept per query."""

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        if len(set(self.of)) != len(self.of):
            raise ValueError(f"of: a system is named twice: {self.of}")
        if self.weight is not None and (self.weights is not None or len(self.of) != 2):
            raise ValueError("weight is for two lists, and not beside weights")
        if self.weights is not None:
            if isinstance(self.weights, dict) and set(self.weights) != set(self.of):
                raise ValueError(f"weights: they name {sorted(self.weights)}, the lists are {sorted(self.of)}")
            if len(self.weights) != len(self.of):
                raise ValueError(f"weights: {len(self.weights)} for {len(self.of)} lists")
            given = self.weights.values() if isinstance(self.weights, dict) else self.weights
            if not all(0 <= weight < math.inf for weight in given) or max(given) == 0:
                raise ValueError("weights: they must be numbers, not negative, nor all zero")
        for name, table in self.trust.items():
            if name not in self.of:
                raise ValueError(f"trust: {name!r} is none of the lists {self.of}")
            if table.by is not None and table.by not in self.of:
                raise ValueError(f"trust.{name}.by: {table.by!r} is none of the lists {self.of}")
        return self

    @property
    def components(self) -> tuple[str, ...]:
        """See ``System``."""
        return tuple(self.of)

    @property
    def planned(self) -> tuple[str, ...]:
        """See ``System``."""
        return tuple(planned(self.trust))

    @property
    def weight_of(self) -> dict[str, Fraction]:
        """Weight of each list as the decimal number it is written as."""
        if self.weight is not None:
            first = Fraction(repr(self.weight))
            return dict(zip(self.of, (first, 1 - first), strict=True))
        if isinstance(self.weights, dict):
            return {name: Fraction(repr(self.weights[name])) for name in self.of}
        return {name: Fraction(repr(w)) for name, w in zip(self.of, self.weights or [1.0] * len(self.of), strict=True)}

    def describe(self) -> str:
        """See ``System``."""
        parts = " + ".join(f"{float(weight):g} × {name}" for name, weight in self.weight_of.items())
        steered = f", {' and '.join(self.planned)} as far as its plans can be trusted" if self.trust else ""
        return f"Reciprocal rank fusion: {parts}, k = {self.k}{steered}."

    def code(self) -> tuple[ModuleType, ...]:
        """See ``System``."""
        return (rrf, trust)

    def depth_for(self, spec: DatasetSpec) -> int:
        """See ``System``."""
        return self.depth

    def open(self, sources: Sources) -> None:
        """See ``System``: there is nothing to open."""

    def rank(self, opened: Any, sources: Sources, questions: Questions) -> Ranked:
        """See ``System``."""
        ranked = {name: sources.component(name, questions) for name in self.of}
        lists = {name: own.for_fusion() for name, own in ranked.items()}
        outcomes = {name: own.outcomes for name, own in ranked.items() if own.outcomes is not None}
        steered = {name: table.factors(outcomes[table.by or name]) for name, table in self.trust.items()}
        cells = {name: cell_counts(outcomes[name]) for name in self.planned}
        frame, report = rrf.rrf(
            lists,
            factors=steered,
            weights=self.weight_of,
            k=self.k,
            canonical=sources.canonical,
            depth=self.depth,
            query_order=questions.ids,
        )
        if len(lists) > 1 and report.queries > 20 and report.shared == 0:
            _LOG.warning("%s share no hit: do they name nodes differently?", " and ".join(lists))
        weights = {name: float(weight) for name, weight in self.weight_of.items()}
        told: dict[str, Any] = {"weights": weights, "k": self.k, **report.metadata()}
        if cells:
            told["questions by risk level and candidates"] = cells
        return Ranked(frame, metadata=told)

    def terms(self, ranks: Mapping[str, int | None], outcomes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float]:
        """See ``System``: the summands of the score."""
        found = {}
        for name, weight in self.weight_of.items():
            if name in self.trust:
                own = outcomes.get(self.trust[name].by or name, {})
                weight *= self.trust[name].factor(own.get("risk_level"), own.get("bucket"))
            rank = ranks[name]
            found[name] = 0.0 if rank is None else float(weight / (self.k + rank))
        return found
