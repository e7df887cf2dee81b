"""Declared shape of a field, and how its values are cleaned and parsed."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from skb_pipeline.section import Section
from skb_pipeline.text.parsers import PARSED


class Shape(StrEnum):
    """Declared shape of a field; ingest coerces to it and counts every coercion."""

    TEXT = "text"
    TEXTS = "texts"
    INTEGER = "integer"
    NUMBER = "number"
    JSON = "json"


class FieldSpec(Section):
    """One field of a node type. In YAML a bare shape (``definition: text``) is enough."""

    shape: Shape
    html: bool = False
    """Values are HTML: known tags are removed and entities resolved at ingest (see ``text.markup``)."""
    parse: Literal["price", "rank", "rating", "dimensions", "weight", "date"] | None = None
    """Values read out of the text are stored beside it as ``<field>_<suffix>`` (see ``text.parsers``)."""

    def parsed_names(self, field: str) -> list[str]:
        """Names under which parsed values of the field called ``field`` are stored."""
        return [f"{field}_{suffix}" for suffix in PARSED[self.parse]] if self.parse else []
