"""The spec's section ``fusion``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skb_pipeline.section import Section


class FusionSpec(Section):
    """Static reciprocal rank fusion of the graph ranking with a text branch (see ``fusion.rrf``)."""

    weight: float = Field(default=0.5, ge=0, le=1)
    """Weight of the graph ranking; the text branch has the rest."""
    k: int = Field(default=60, ge=0)
    text: Literal["bm25", "dense"] = "bm25"
    depth: int = Field(default=100, ge=1)
    """Rows kept per query in the fused ranking."""
