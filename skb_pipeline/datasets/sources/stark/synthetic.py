"""STaRK's files with made-up content of realistic size and shape: word frequencies and degrees follow power laws.

At scale 1 there are as many nodes of each type, and nearly as many edges of each relation, as in the real data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.sources.stark.questions import HUMAN, SYNTHESIZED
from skb_pipeline.datasets.sources.stark.writing import Question, write_graph, write_questions

NODES: dict[Flavour, dict[str, int]] = {
    "amazon": {"product": 957_192, "brand": 62_000, "category": 850, "color": 15_500},
    "mag": {"author": 1_104_554, "institution": 8_701, "field_of_study": 59_469, "paper": 700_244},
    "prime": {
        "disease": 17_080, "gene/protein": 27_671, "molecular_function": 11_169, "drug": 7_957, "pathway": 2_516,
        "anatomy": 14_035, "effect/phenotype": 15_311, "biological_process": 28_642, "cellular_component": 4_176,
        "exposure": 818,
    },
}  # fmt: skip
EDGES: dict[Flavour, tuple[tuple[str, str, str, int], ...]] = {
    "amazon": (
        ("also_buy", "product", "product", 3_700_000), ("also_view", "product", "product", 2_900_000),
        ("has_brand", "product", "brand", 800_000), ("has_category", "product", "category", 1_600_000),
        ("has_color", "product", "color", 440_000),
    ),
    "mag": (
        ("author___affiliated_with___institution", "author", "institution", 1_000_000),
        ("paper___cites___paper", "paper", "paper", 4_900_000),
        ("paper___has_topic___field_of_study", "paper", "field_of_study", 7_200_000),
        ("author___writes___paper", "author", "paper", 6_800_000),
    ),
    "prime": (
        ("ppi", "gene/protein", "gene/protein", 321_000), ("carrier", "drug", "gene/protein", 900),
        ("enzyme", "drug", "gene/protein", 5_300), ("target", "drug", "gene/protein", 16_400),
        ("transporter", "drug", "gene/protein", 3_100), ("contraindication", "drug", "disease", 30_700),
        ("indication", "drug", "disease", 9_400), ("off-label use", "drug", "disease", 2_600),
        ("synergistic interaction", "drug", "drug", 1_336_000), ("associated with", "gene/protein", "disease", 80_400),
        ("associated with", "gene/protein", "effect/phenotype", 1_700),
        ("parent-child", "disease", "disease", 32_000),
        ("parent-child", "biological_process", "biological_process", 53_000),
        ("phenotype absent", "disease", "effect/phenotype", 1_200),
        ("phenotype present", "disease", "effect/phenotype", 150_000),
        ("side effect", "drug", "effect/phenotype", 64_800), ("interacts with", "gene/protein", "pathway", 42_600),
        ("interacts with", "gene/protein", "biological_process", 144_800),
        ("interacts with", "gene/protein", "molecular_function", 69_500),
        ("interacts with", "gene/protein", "cellular_component", 83_400),
        ("interacts with", "exposure", "gene/protein", 2_400), ("linked to", "exposure", "disease", 4_600),
        ("expression present", "gene/protein", "anatomy", 1_518_000),
        ("expression absent", "gene/protein", "anatomy", 19_900),
    ),
}  # fmt: skip
_CANDIDATES: dict[Flavour, str] = {"amazon": "product", "mag": "paper", "prime": "gene/protein"}
_ASKED: dict[Flavour, tuple[int, int]] = {"amazon": (9_100, 81), "mag": (13_323, 84), "prime": (11_204, 98)}
_CHUNK = 1_000
_ONSETS = [*"bcdfghlmnprstvwz", "br", "cr", "dr", "fl", "gr", "pl", "st", "tr"]
_VOWELS = [*"aeiou", "ai", "ea", "ou"]


def synthetic_stark(folder: Path, flavour: Flavour, scale: float = 1.0, seed: int = 0) -> Path:
    """Write a made-up data set of one flavour, with questions, in STaRK's files.

    Memory is bounded by the edges (about 100 bytes each): texts are drawn a thousand nodes at a time.

    Args:
        folder: laid out as on the hub.
        scale: share of the real number of nodes and edges; at least three nodes of each type are made.
        seed: equal seeds give equal files.

    Returns:
        The folder of the processed graph.
    """
    maker = _Maker(flavour, scale, seed)
    written = write_graph(
        folder,
        flavour,
        node_info=maker.node_info(),
        node_types=np.repeat(np.arange(len(maker.counts)), list(maker.counts.values())),
        edge_index=np.stack([maker.heads, maker.tails]),
        edge_types=maker.codes,
        type_names=dict(enumerate(layout.TYPES[flavour])),
        relation_names=dict(enumerate(layout.RELATIONS[flavour])),
    )
    write_questions(folder, flavour, maker.questions(scale))
    return written


class _Words:
    """Texts cut out of one long text, whose words have Zipf's frequencies."""

    def __init__(self, rng: np.random.Generator, length: int) -> None:
        syllables = [a + b for a in _ONSETS for b in _VOWELS]
        parts = rng.integers(len(syllables), size=(30_000, 3))
        sizes = rng.integers(1, 4, size=len(parts))
        words = np.array(["".join(syllables[i] for i in row[:n]) for row, n in zip(parts, sizes, strict=True)])
        frequency = 1 / np.arange(3, len(words) + 3)
        drawn = words[rng.choice(len(words), size=length, p=frequency / frequency.sum())]
        self._text = " ".join(drawn)
        self._starts = np.concatenate([[0], np.cumsum(np.char.str_len(drawn) + 1)])
        self._rng = rng

    def cut(self, lengths: np.ndarray) -> list[str]:
        """A text of each length (in words)."""
        first = self._rng.integers(len(self._starts) - 1 - lengths)
        begin, end = self._starts[first], self._starts[first + lengths] - 1
        return [self._text[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]

    def some(self, count: int, mean: float, spread: float = 0.8) -> list[str]:
        """Texts of log-normal length."""
        drawn = self._rng.lognormal(np.log(mean) - spread**2 / 2, spread, count)
        return self.cut(np.clip(drawn, 1, 800).astype(np.int64))


class _Maker:
    def __init__(self, flavour: Flavour, scale: float, seed: int) -> None:
        self.flavour = flavour
        self.rng = np.random.default_rng(seed)
        self.counts = {name: max(3, round(count * scale)) for name, count in NODES[flavour].items()}
        ends = np.cumsum(list(self.counts.values())).tolist()
        self.offsets = {name: end - self.counts[name] for name, end in zip(self.counts, ends, strict=True)}
        self.words = _Words(self.rng, min(max(20_000, round(4_000_000 * scale)), 4_000_000))
        parts = [self._edges(*edge, scale) for edge in EDGES[flavour]]
        self.heads, self.tails, self.codes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.names = {
            name: [f"{text} {i}" for i, text in enumerate(self.words.some(count, 3, 0.4))]
            for name, count in self.counts.items()
            if name not in ("product", "paper")
        }

    def _edges(self, relation: str, head: str, tail: str, count: int, scale: float) -> tuple[np.ndarray, ...]:
        """Distinct edges without loops; some nodes have very many. Of Prime in both directions."""
        size = max(3, round(count * scale))
        n_heads, n_tails = self.counts[head], self.counts[tail]
        if relation == "has_brand":
            heads = self.rng.choice(n_heads, size=min(size, n_heads), replace=False)
        else:
            heads = (n_heads * self.rng.random(size) ** 1.3).astype(np.int64)
        tails = (n_tails * self.rng.random(len(heads)) ** 2.5).astype(np.int64)
        heads, tails = heads + self.offsets[head], tails + self.offsets[tail]
        total = sum(self.counts.values())
        heads, tails = np.divmod(np.unique(heads * total + tails), total)
        heads, tails = heads[heads != tails], tails[heads != tails]
        if self.flavour == "prime":
            heads, tails = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        return heads, tails, np.full(len(heads), layout.RELATIONS[self.flavour].index(relation))

    def node_info(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number, fields) of all nodes."""
        makers: dict[Flavour, Callable[[str, np.ndarray], list[dict[str, Any]]]] = {
            "amazon": self._amazon, "mag": self._mag, "prime": self._prime,
        }  # fmt: skip
        make = makers[self.flavour]
        for name, count in self.counts.items():
            for start in range(0, count, _CHUNK):
                places = np.arange(start, min(start + _CHUNK, count))
                yield from zip((places + self.offsets[name]).tolist(), make(name, places), strict=True)

    def _amazon(self, node_type: str, places: np.ndarray) -> list[dict[str, Any]]:
        if node_type != "product":
            return [{f"{node_type}_name": self.names[node_type][i]} for i in places.tolist()]
        n = len(places)
        titles, descriptions = self.words.some(n, 9, 0.4), self.words.some(n, 57)
        features, reviews, qa = (
            self._lists(n, 5, self._features),
            self._lists(n, 6, self._reviews),
            self._lists(n, 0.8, self._qa),
        )
        prices, ranks = self.rng.lognormal(3, 1, n).round(2), self.rng.integers(1, 5_000_000, n)
        links = {kind: self._linked(f"has_{kind}", places) for kind in ("brand", "category", "color")}
        made = []
        for i, place in enumerate(places.tolist()):
            info = {
                "review": reviews[i], "qa": qa[i], "asin": f"B{place:09d}", "title": titles[i],
                "global_category": "Sports and Outdoors", "price": f"${prices[i]}" if i % 3 else "",
                "feature": features[i], "rank": f"{ranks[i]:,} in Sports & Outdoors (",
                "description": [descriptions[i]],
                "details": {"product_dimensions": f"{i % 40 + 1} x 5 x 2 inches ; {i % 9 + 1} pounds"} if i % 2 else {},
            }  # fmt: skip
            for kind, found in links.items():
                if found[i]:
                    info[kind] = found[i][0] if kind == "brand" else found[i]
            made.append(info)
        return made

    def _linked(self, relation: str, places: np.ndarray) -> list[list[str]]:
        """Names at the other end of a relation, for products that follow one another."""
        names, offset = self.names[relation.removeprefix("has_")], self.offsets[relation.removeprefix("has_")]
        begin, end = np.searchsorted(self.codes, [code := layout.RELATIONS["amazon"].index(relation), code + 1])
        heads, tails = self.heads[begin:end], self.tails[begin:end] - offset
        bounds = np.searchsorted(heads, np.append(places, places[-1] + 1)).tolist()
        return [[names[t] for t in tails[a:b].tolist()] for a, b in pairwise(bounds)]

    def _lists(self, n: int, mean: float, make: Callable[[int], list[Any]]) -> list[list[Any]]:
        """Lists of log-normal length, their items made all at once."""
        sizes = np.clip(self.rng.lognormal(np.log(mean) - 0.5, 1.0, n), 0, 150).astype(np.int64)
        items, bounds = make(int(sizes.sum())), np.concatenate([[0], np.cumsum(sizes)]).tolist()
        return [items[a:b] for a, b in pairwise(bounds)]

    def _features(self, count: int) -> list[str]:
        return self.words.some(count, 9)

    def _reviews(self, count: int) -> list[dict[str, Any]]:
        stars, votes = self.rng.integers(1, 6, count).tolist(), self.rng.zipf(2.0, count).tolist()
        return [
            {
                "reviewerID": f"A{i:013d}", "summary": summary, "style": float("nan"), "reviewText": text,
                "vote": f"{vote:,}" if vote > 1 else float("nan"), "overall": float(star), "verified": star > 1,
                "reviewTime": "01 5, 2018",
            }
            for i, (summary, text, star, vote) in enumerate(
                zip(self.words.some(count, 4), self.words.some(count, 50), stars, votes, strict=True)
            )
        ]  # fmt: skip

    def _qa(self, count: int) -> list[dict[str, Any]]:
        return [
            {
                "questionType": "open-ended",
                "answerType": "?",
                "question": q + "?",
                "answer": a,
                "answerTime": "Jan 1, 2015",
            }
            for q, a in zip(self.words.some(count, 12), self.words.some(count, 25), strict=True)
        ]

    def _mag(self, node_type: str, places: np.ndarray) -> list[dict[str, Any]]:
        n, ids = len(places), (places + self.offsets[node_type]).tolist()
        counts = self.rng.zipf(1.7, (n, 2)).clip(max=10**6).tolist()
        if node_type != "paper":
            level = {"Level": 2} if node_type == "field_of_study" else {}
            return [
                {"type": node_type, "mag_id": 2 * number, "Rank": 9_000 + number % 9_000, "DisplayName": name,
                 "PaperCount": papers, "CitationCount": cited if number % 7 else -1, **level}
                for number, (papers, cited), name in zip(
                    ids, counts, (self.names[node_type][i] for i in places.tolist()), strict=True
                )
            ]  # fmt: skip
        titles, abstracts, venues = (
            self.words.some(n, 10, 0.4),
            self.words.some(n, 140, 0.5),
            self.words.some(n, 4, 0.3),
        )
        years = (2019 - self.rng.zipf(1.6, n).clip(max=60)).tolist()
        return [
            {**dict.fromkeys(layout.MAG_FIELDS["paper"], -1), "type": node_type, "mag_id": 2 * number, "title": title,
             "abstract": abstract, "DocType": "Journal", "Year": year, "Date": f"{year}-01-01",
             "OriginalVenue": venue if number % 3 else -1, "JournalDisplayName": venue if number % 2 else "-1",
             "PaperRank": 20_000, "ReferenceCount": references, "PaperCitationCount": cited,
             "EstimatedCitationCount": cited}
            for number, title, abstract, year, venue, (references, cited) in zip(
                ids, titles, abstracts, years, venues, counts, strict=True
            )
        ]  # fmt: skip

    def _prime(self, node_type: str, places: np.ndarray) -> list[dict[str, Any]]:
        n = len(places)
        made: list[dict[str, Any]] = [
            {"id": str(10 * place), "type": node_type, "name": self.names[node_type][place], "source": "MADE"}
            for place in places.tolist()
        ]
        long, short, listed = self.words.some(n, 60), self.words.some(n, 8), self._lists(n, 3, self._features)
        for info, text, note, items in zip(made, long, short, listed, strict=True):
            if node_type == "gene/protein":
                info["details"] = {
                    "query": info["name"], "_id": info["id"], "alias": items or note, "other_names": items,
                    "summary": text,
                    "generif": [{"pubmed": i, "text": item} for i, item in enumerate(items)],
                    "interpro": [{"desc": note, "id": "IPR0", "short_desc": note}],
                    "genomic_pos": {"chr": "1", "start": 1, "end": 2},
                }  # fmt: skip
            elif node_type == "drug":
                info["details"] = {"description": text, "half_life": float("nan"), "mechanism_of_action": note}
            elif node_type == "disease":
                info["details"] = {
                    "mondo_name": info["name"],
                    "mondo_definition": text,
                    "orphanet_prevalence": float("nan"),
                }
            elif node_type == "pathway":
                info["details"] = {"stId": info["id"], "speciesName": "Homo sapiens", "summation": [{"text": text}]}
            elif node_type in ("biological_process", "molecular_function", "cellular_component"):
                info["details"] = {"go_id": info["id"], "definition": text}
        return made

    def questions(self, scale: float) -> Iterator[Question]:
        """Questions about what one node is joined to, by one relation; at most 20 answers."""
        target = _CANDIDATES[self.flavour]
        first, last = self.offsets[target], self.offsets[target] + self.counts[target]
        starts = {name: start for name, start in self.offsets.items() if name in self.names}
        usable = np.flatnonzero(
            (self.heads >= first) & (self.heads < last) & ((self.tails < first) | (self.tails >= last))
        )
        if len(usable) == 0:
            return
        order = usable[np.lexsort((self.heads[usable], self.codes[usable], self.tails[usable]))]
        bounds = np.flatnonzero(np.diff(self.tails[order]) | np.diff(self.codes[order])) + 1
        groups = np.split(order, bounds)
        for kind, total in zip((SYNTHESIZED, HUMAN), _ASKED[self.flavour], strict=True):
            count = max(10, round(total * scale))
            places = self.rng.choice(["train", "val", "test"], size=count, p=[0.65, 0.17, 0.18])
            for number, (group, split, topic) in enumerate(
                zip(self.rng.integers(len(groups), size=count), places.tolist(), self.words.some(count, 4), strict=True)
            ):
                edges = groups[group][:20]
                other = int(self.tails[edges[0]])
                node_type = max((n for n, start in starts.items() if start <= other), key=lambda name: starts[name])
                name = self.names[node_type][other - starts[node_type]]
                query = f"Which {target} goes with {name}?{chr(10) if number % 50 == 7 else ' '}It is about {topic}."
                yield Question(
                    number, query, self.heads[edges].tolist(), split if kind == SYNTHESIZED else "test", kind
                )
