"""The spec's section ``linking``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skb_pipeline.section import Section


class LinkingSpec(Section):
    """Which nodes an anchor's text is linked to (see ``graph.linking``)."""

    name_k: int = Field(default=5, ge=1)
    name_tau: float = Field(default=0.95, ge=0, le=1)
    """Kept are nodes with at least this share of the best cosine."""
    doc_k: int = Field(default=10, ge=1)
    doc_tau: float = Field(default=0.90, ge=0, le=1)
    min_cosine: float = Field(default=0.75, ge=-1, le=1)
    """Below this no node is linked by name, however much better it is than the others."""
    doc_min_cosine: float = Field(default=0.45, ge=-1, le=1)
    """The same for documents, which are never as near to a short text as a name is."""
    vectors: Literal["float32", "float16"] = "float32"
    """How vectors are stored; float16 halves the files and changes cosines by up to 0.001."""
    name_fields: dict[str, list[str]] = Field(default_factory=dict)
    """Further fields, by node type, whose values are names (a gene's full name beside its symbol)."""
