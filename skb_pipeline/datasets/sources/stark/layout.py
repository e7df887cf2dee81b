"""Names in STaRK's files: folders, codes of types and relations, and where a value is kept in ``node_info``."""

from __future__ import annotations

from typing import Literal

from skb_pipeline.datasets.stark_names import MAG_RELATIONS, PRIME_RELATIONS, PRIME_TYPES

Flavour = Literal["amazon", "mag", "prime"]

HUB_REPOSITORY = "snap-stanford/stark"
AMAZON_CACHE = "cache/brand-category-color"
"""Folder of the Amazon graph that everybody uses, below ``processed``."""

NODE_INFO, EDGE_INDEX, EDGE_TYPES = "node_info.pkl", "edge_index.pt", "edge_types.pt"
NODE_TYPES, NODE_TYPE_DICT, EDGE_TYPE_DICT = "node_types.pt", "node_type_dict.pkl", "edge_type_dict.pkl"
QUESTIONS, HUMAN_QUESTIONS = "stark_qa.csv", "stark_qa_human_generated_eval.csv"
TEST_SAMPLE = "test-0.1"

TYPES: dict[Flavour, tuple[str, ...]] = {
    "amazon": ("product", "brand", "category", "color"),
    "mag": ("author", "institution", "field_of_study", "paper"),
    "prime": PRIME_TYPES,
}
"""Node types in the order of their codes."""

RELATIONS: dict[Flavour, tuple[str, ...]] = {
    "amazon": ("also_buy", "also_view", "has_brand", "has_category", "has_color"),
    "mag": MAG_RELATIONS,
    "prime": PRIME_RELATIONS,
}
"""Relations in the order of their codes."""

PRIME_DIRECTION = (
    "exposure",
    "drug",
    "gene/protein",
    "disease",
    "effect/phenotype",
    "anatomy",
    "pathway",
    "biological_process",
    "molecular_function",
    "cellular_component",
)
"""PrimeKG holds every edge in both directions under one name. Between two types the one that comes first here is the
head (drug → disease, gene → anatomy); within a type direction is unknown."""

PRODUCT_DEFAULTS: dict[str, object] = {
    "review": [],
    "qa": [],
    "asin": "",
    "title": "",
    "global_category": "",
    "price": "",
    "feature": [],
    "rank": "",
    "details": {},
    "description": [],
}
"""What every product of Amazon has; ``brand``, ``category`` and ``color`` are absent where there is none."""

_MAG_ENTITY = ("mag_id", "Rank", "DisplayName", "PaperCount", "CitationCount")
MAG_FIELDS: dict[str, tuple[str, ...]] = {
    "author": _MAG_ENTITY,
    "institution": _MAG_ENTITY,
    "field_of_study": (*_MAG_ENTITY, "Level"),
    "paper": (
        "mag_id",
        "title",
        "abstract",
        "DocType",
        "OriginalTitle",
        "BookTitle",
        "Year",
        "Date",
        "Publisher",
        "OriginalVenue",
        "JournalDisplayName",
        "ConferenceSeriesDisplayName",
        "ConferenceInstancesDisplayName",
        "PaperRank",
        "ReferenceCount",
        "PaperCitationCount",
        "EstimatedCitationCount",
    ),
}
"""What ``node_info`` of MAG has; missing values are -1."""

PRIME_FIELDS = ("id", "name", "source", "details")
"""What ``node_info`` of Prime has beside the type."""


def files_of(flavour: Flavour) -> tuple[str, ...]:
    """The files of a processed graph; MAG keeps its dicts of names in STaRK's code."""
    tensors = (NODE_INFO, EDGE_INDEX, EDGE_TYPES, NODE_TYPES)
    return tensors if flavour == "mag" else (*tensors, NODE_TYPE_DICT, EDGE_TYPE_DICT)
