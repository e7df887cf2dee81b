"""The spec's sections ``lexical``, ``encoder`` and ``retrieval``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skb_pipeline.section import Section
from skb_pipeline.text.stopwords import StopwordList


class LexicalSpec(Section):
    """BM25 (see ``retrieval.lexical``)."""

    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = "lucene"
    k1: float = Field(default=1.2, ge=0)
    b: float = Field(default=0.75, ge=0, le=1)
    stopwords: StopwordList = "en_long"
    """Words that are no terms: ``en`` (the 33 of Lucene), ``en_long`` (those and the function words of Snowball's
    list), ``none``."""
    fold_accents: bool = True
    """``naïve`` and ``naive`` are one term; compatibility forms (``H₂O``) are always folded."""
    headings: bool = True
    """Labels of fields and headings of neighbours are terms of a document, too."""


class EncoderSpec(Section):
    """The sentence encoder of the dense branch.

    ``model`` is a Hugging Face id, a folder, or ``package:NAME`` for a model that a Python package carries
    (the package offers ``get_model_path()``).
    """

    model: str
    revision: str | None = None
    max_length: int = Field(default=256, ge=8)
    batch_size: int = Field(default=32, ge=1)
    """Texts put through the model at once on a GPU; on a CPU it only says how many are kept at a time."""
    query_prefix: str | None = None
    """Text put before every question; null: what the model's own files say (its prompts); "": nothing."""
    document_prefix: str | None = None
    """The same for documents and names."""
    pooling: Literal["mean", "cls", "last_token"] | None = None
    """How a text's vector comes from those of its tokens, in the last layer; null: as the model's files say, and where
    they say nothing, as sentence-transformers takes it (mean; for causal models the last token)."""


class RetrievalSpec(Section):
    """Depths of rankings."""

    depth: int = Field(default=1000, ge=1)
    """Rows kept per query in a first-stage ranking."""
