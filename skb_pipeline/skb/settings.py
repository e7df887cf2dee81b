"""The spec's section ``documents``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from skb_pipeline.section import Section


class DocumentSpec(Section):
    """How node documents are built (the formats named after STaRK: see ``docs/stark.md``).

    In a STaRK format ``relations`` is false and ``neighbours`` null unless given.
    """

    format: Literal["labelled", "stark_amazon", "stark_mag", "stark_prime"] = "labelled"
    relations: bool = True
    """Add one line per relation with names of neighbours."""
    neighbours: int | None = Field(default=10, ge=1)
    """Names per relation, in canonical order (null: all); ``labelled`` counts the rest as ``(+n more)``."""
    compact: bool = False
    """One line per document; for STaRK formats only."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_format(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("format", "labelled") != "labelled":
            return {"relations": False, "neighbours": None, **value}
        return value

    @model_validator(mode="after")
    def _compact_known(self) -> Self:
        if self.compact and self.format == "labelled":
            raise ValueError("compact is for the STaRK formats, not for 'labelled'")
        return self
