"""Names of STaRK's node types, relations and fields, and what a spec with a STaRK document format must declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

PRIME_TYPES = (
    "disease",
    "gene/protein",
    "molecular_function",
    "drug",
    "pathway",
    "anatomy",
    "effect/phenotype",
    "biological_process",
    "cellular_component",
    "exposure",
)
"""Node types of PrimeKG in the order of STaRK's type codes."""

PRIME_RELATIONS = (
    "ppi",
    "carrier",
    "enzyme",
    "target",
    "transporter",
    "contraindication",
    "indication",
    "off-label use",
    "synergistic interaction",
    "associated with",
    "parent-child",
    "phenotype absent",
    "phenotype present",
    "side effect",
    "interacts with",
    "linked to",
    "expression present",
    "expression absent",
)
"""Relations of PrimeKG in the order of STaRK's codes."""

MAG_RELATIONS = (
    "author___affiliated_with___institution",
    "paper___cites___paper",
    "paper___has_topic___field_of_study",
    "author___writes___paper",
)
"""Relations of MAG in the order of STaRK's codes; a spec may also call one by its middle part (``writes``)."""

AMAZON_RELATIONS = ("also_buy", "also_view", "has_brand")
"""The relations of Amazon that stand in a product's document."""

_LISTS = ("texts", "json")
_COUNTS = ("integer", "number", "text")
_MAG_ENTITY = {"DisplayName": ("text",), "PaperCount": _COUNTS, "CitationCount": _COUNTS}
_PAPER_TEXTS = (
    "title",
    "abstract",
    "Date",
    "OriginalVenue",
    "JournalDisplayName",
    "ConferenceSeriesDisplayName",
    "ConferenceInstancesDisplayName",
)
_WITHOUT_DETAILS = ("anatomy", "effect/phenotype", "exposure")
_DETAILS: dict[str, tuple[str, ...]] = {"details": ("json",)}
_PRIME_ENTITY: dict[str, tuple[str, ...]] = {"name": ("text",), "source": ("text",)}
_FIELDS: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "stark_amazon": {
        "product": {
            "title": ("text",),
            "brand": ("text",),
            "description": _LISTS,
            "feature": _LISTS,
            "details": ("json",),
            "review": ("json",),
            "qa": ("json",),
        },
        "brand": {"brand_name": ("text",)},
        "category": {"category_name": ("text",)},
        "color": {"color_name": ("text",)},
    },
    "stark_mag": {
        "paper": dict.fromkeys(_PAPER_TEXTS, ("text",)),
        "author": _MAG_ENTITY,
        "institution": _MAG_ENTITY,
        "field_of_study": _MAG_ENTITY,
    },
    "stark_prime": {name: _PRIME_ENTITY | ({} if name in _WITHOUT_DETAILS else _DETAILS) for name in PRIME_TYPES},
}
"""format -> node type -> field -> shapes it may have. The first field of a type is its name."""

_RELATIONS = {"stark_amazon": AMAZON_RELATIONS, "stark_mag": MAG_RELATIONS, "stark_prime": ()}


class _Field(Protocol):
    @property
    def shape(self) -> str: ...


class _NodeType(Protocol):
    @property
    def fields(self) -> Mapping[str, _Field]: ...

    @property
    def name_field(self) -> str: ...


def mag_relation(name: str) -> str | None:
    """STaRK's name of a MAG relation given in full or by its middle part; None for any other."""
    return next((full for full in MAG_RELATIONS if name in (full, full.split("___")[1])), None)


def format_faults(
    document_format: str, node_types: Mapping[str, _NodeType], relations: Iterable[str] | None
) -> list[str]:
    """What a spec lacks for a STaRK document format, one readable line each; empty when nothing is missing.

    Args:
        document_format: ``stark_amazon``, ``stark_mag`` or ``stark_prime``.
        relations: names of the declared relations, or None when documents have no relations. Of a relation between
            types that are not declared nothing is asked.
    """
    known = _FIELDS[document_format]
    faults = []
    for type_name, node_type in node_types.items():
        if type_name not in known:
            faults.append(f"node_types.{type_name}: the format knows only the types {', '.join(known)}")
            continue
        name = next(iter(known[type_name]))
        if node_type.name_field != name:
            faults.append(f"node_types.{type_name}: name_field must be {name!r}, not {node_type.name_field!r}")
        for field, shapes in known[type_name].items():
            declared = node_type.fields.get(field)
            if declared is None:
                faults.append(f"node_types.{type_name}: field {field!r} is missing (shape {' or '.join(shapes)})")
            elif str(declared.shape) not in shapes:
                faults.append(
                    f"node_types.{type_name}: field {field!r} must have the shape {' or '.join(shapes)}, "
                    f"not {declared.shape}"
                )
    if relations is not None:
        faults += _missing_relations(document_format, set(node_types), set(relations))
    return faults


def _missing_relations(document_format: str, types: set[str], declared: set[str]) -> list[str]:
    """Relations the format looks for by name; a misspelt one would be missing in every document."""
    known = {mag_relation(name) or name for name in declared} if document_format == "stark_mag" else declared
    faults = []
    for name in _RELATIONS[document_format]:
        ends = {name.split("___")[0], name.split("___")[2]} if "___" in name else {"product"}
        if name == "has_brand":
            ends.add("brand")
        if ends <= types and name not in known:
            faults.append(f"relations: {name!r} is missing; the documents of the format name its neighbours")
    return faults
