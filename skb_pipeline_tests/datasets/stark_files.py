"""Tiny data sets in STaRK's files, one per flavour, as its own code writes them (pickle and torch.save)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.layout import Flavour

NAN = float("nan")
AMAZON_NODES: dict[int, dict[str, Any]] = {
    0: {
        "review": [
            {"reviewerID": "A1", "summary": "Good", "style": {"Color:": " Red"}, "reviewText": "Works\x00.",
             "vote": "1,204", "overall": 5.0, "verified": True, "reviewTime": "01 1, 2018"},
            {"reviewerID": "A2", "summary": "Bad", "style": NAN, "reviewText": "Broke", "vote": NAN, "overall": 1.0,
             "verified": False, "reviewTime": "02 1, 2018"},
        ],
        "qa": [{"questionType": "yes/no", "answerType": "Y", "question": "Fits?", "answer": "Yes", "answerTime": NAN}],
        "asin": "B0", "title": "Tent", "global_category": "Sports and Outdoors", "price": "$12 - $19",
        "feature": ["light", "", "green"], "rank": "12,345 in Sports & Outdoors (", "description": ["For two.", "Dry."],
        "details": {"product_dimensions": "5 x 5 x 2 inches ; 3 pounds", "asin": "B0"}, "brand": np.str_("Acme"),
        "category": ["tents"], "color": ["red", "green"],
    },
    1: {"review": [], "qa": [], "asin": "B1", "title": "NA", "global_category": "", "price": "", "feature": "one text",
        "rank": ["#1 in A", "#2 in B"], "description": "alone", "details": {}},
    2: {"review": [], "qa": [], "asin": "B2", "title": "Pole", "global_category": "", "price": "$5", "feature": [],
        "rank": "", "description": ["x"], "details": {}, "brand": "Acme"},
    3: {"brand_name": np.str_("Acme")},
    4: {"category_name": np.str_("tents")},
    5: {"color_name": np.str_("green")},
    6: {"color_name": np.str_("red")},
}  # fmt: skip
AMAZON_TYPES = [0, 0, 0, 1, 2, 3, 3]
AMAZON_EDGES = [
    (0, 1, 0),
    (0, 1, 1),
    (1, 0, 1),
    (2, 0, 0),
    (0, 2, 1),
    (0, 3, 2),
    (2, 3, 2),
    (0, 4, 3),
    (0, 5, 4),
    (0, 6, 4),
]
MAG_NODES: dict[int, dict[str, Any]] = {
    0: {"id": 7, "mag_id": np.int64(11), "Rank": 9, "DisplayName": "Ann", "PaperCount": 3, "CitationCount": -1,
        "type": "author", "new_id": 0},
    1: {"id": 8, "mag_id": 12, "Rank": 9, "DisplayName": "-1", "PaperCount": -1, "CitationCount": "-1",
        "type": "institution"},
    2: {"id": 9, "mag_id": 13, "Rank": 9, "DisplayName": "COVID-19", "Level": 1, "PaperCount": 5, "CitationCount": 6,
        "type": "field_of_study"},
    3: {"mag_id": 14, "title": "HIV-1 genes", "abstract": "On HIV-1.\n", "Date": "2015-01-01", "Year": 2015,
        "OriginalVenue": -1, "JournalDisplayName": "-1", "PaperCitationCount": -1, "type": "paper"},
    4: {"mag_id": 15, "title": "Cited", "abstract": NAN, "Date": -1, "Year": -1, "OriginalVenue": "Venue",
        "type": "paper"},
}  # fmt: skip
MAG_TYPES = [0, 1, 2, 3, 3]
MAG_EDGES = [(0, 1, 0), (3, 4, 1), (3, 2, 2), (0, 3, 3), (0, 4, 3)]
PRIME_NODES: dict[int, dict[str, Any]] = {
    0: {"id": "13924_12592", "type": "disease", "name": "fever", "source": "MONDO_grouped",
        "details": {"mondo_definition": "Heat.", "orphanet_prevalence": NAN}},
    1: {"id": 9796, "type": "gene/protein", "name": "PHYHIP", "source": "NCBI",
        "details": {"_id": "9796", "alias": ["DYRK1AP3", "KIAA0273"], "interpro": [{"desc": "Fold", "id": "IPR1"}]}},
    2: {"id": "DB01", "type": "drug", "name": "None", "source": "DrugBank", "details": {"half_life": NAN}},
    3: {"id": "9", "type": "gene/protein", "name": "NAT1", "source": "NCBI"},
    4: {"id": "U1", "type": "anatomy", "name": "liver", "source": "UBERON"},
}  # fmt: skip
PRIME_TYPES = [0, 1, 3, 1, 5]
_PRIME_ONE_WAY = [(0, 1, 9), (2, 1, 3), (1, 2, 2), (1, 3, 0), (4, 1, 16)]
PRIME_EDGES = [*_PRIME_ONE_WAY, *((t, h, r) for h, t, r in _PRIME_ONE_WAY), (0, 1, 9)]
QUESTIONS = (
    'id,query,answer_ids\n0,"NA","[0]"\n1,"Two\nlines, ""quoted""","[0, 2, 0]"\n2,third,[1]\n3,fourth,"[1, 99]"\n'
)
HUMAN = 'id,query,answer_ids\n0,mine,"[2]"\n'
SPLITS = {"train": "1\n", "val": "2\n", "test": "0\n3\n", "test-0.1": "3\n"}


def write_amazon(folder: Path, *, base_only: bool = False) -> Path:
    """Both graphs of Amazon, or the base graph alone; returns the folder of the larger one."""
    base = folder / "skb" / "amazon" / "processed"
    edges = [edge for edge in AMAZON_EDGES if edge[2] < 2]
    _save(base, {i: AMAZON_NODES[i] for i in range(3)}, None, edges)
    _pickle(base / layout.EDGE_TYPE_DICT, {0: "also_buy", 1: "also_view"})
    if base_only:
        return base
    cache = base / layout.AMAZON_CACHE
    _save(cache, AMAZON_NODES, AMAZON_TYPES, AMAZON_EDGES)
    _names(cache, "amazon")
    return cache


def write_mag(folder: Path) -> Path:
    """MAG, whose dicts of names are not among the files."""
    place = folder / "skb" / "mag" / "processed"
    _save(place, MAG_NODES, MAG_TYPES, MAG_EDGES)
    return place


def write_prime(folder: Path) -> Path:
    """Prime, every edge in both directions."""
    place = folder / "skb" / "prime" / "processed"
    _save(place, PRIME_NODES, PRIME_TYPES, PRIME_EDGES)
    _names(place, "prime")
    return place


def write_questions(folder: Path, flavour: Flavour) -> Path:
    """Four synthesized questions and a human one; returns the folder."""
    place = folder / "qa" / flavour
    (place / "stark_qa").mkdir(parents=True)
    (place / "split").mkdir()
    (place / "stark_qa" / layout.QUESTIONS).write_text(QUESTIONS, newline="")
    (place / "stark_qa" / layout.HUMAN_QUESTIONS).write_text(HUMAN)
    for name, ids in SPLITS.items():
        (place / "split" / f"{name}.index").write_text(ids)
    return place


def _save(
    place: Path, nodes: dict[int, dict[str, Any]], types: list[int] | None, edges: list[tuple[int, int, int]]
) -> None:
    place.mkdir(parents=True, exist_ok=True)
    _pickle(place / layout.NODE_INFO, nodes)
    heads, tails, codes = zip(*edges, strict=True)
    torch.save(torch.tensor([heads, tails]), place / layout.EDGE_INDEX)
    torch.save(torch.tensor(codes), place / layout.EDGE_TYPES)
    if types is not None:
        torch.save(torch.tensor(types), place / layout.NODE_TYPES)


def _names(place: Path, flavour: Flavour) -> None:
    _pickle(place / layout.NODE_TYPE_DICT, dict(enumerate(layout.TYPES[flavour])))
    _pickle(place / layout.EDGE_TYPE_DICT, dict(enumerate(layout.RELATIONS[flavour])))


def _pickle(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value))
