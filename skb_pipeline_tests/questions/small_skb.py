"""Small SKBs for the tests of questions, and answers found by plain enumeration."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.store import TABLES, build_adjacency

SPEC_DATA = {
    "name": "shop",
    "description": "a made-up catalogue",
    "source": {"adapter": "none"},
    "encoder": {"model": "none"},
    "node_types": {
        "product": {
            "fields": {"title": "text", "description": "text", "tags": "texts", "price": "number"},
            "name_field": "title",
            "document": ["title", "description", "tags", "price"],
        },
        "brand": {
            "fields": {"name": "text", "aka": "texts"},
            "name_field": "name",
            "alias_field": "aka",
            "document": ["name"],
        },
        "category": {
            "fields": {"name": "text"},
            "name_field": "name",
            "document": ["name"],
            "plural": "categories",
        },
    },
    "relations": [
        {"name": "made_by", "head": "product", "tail": "brand"},
        {"name": "IN_CATEGORY", "head": "product", "tail": "category"},
        {"name": "also bought", "head": "product", "tail": "product"},
        {"name": "part of", "head": "category", "tail": "category", "symmetric": True},
        {"name": "rival of", "head": "brand", "tail": "brand"},
    ],
    "candidates": ["product", "brand", "category"],
    "questions": {
        "per_template": 100,
        "max_answers": 12,
        "phrasings": [
            {
                "relation": "made_by",
                "target": "product",
                "anchor": "brand",
                "forms": ["is made by the brand {x}", "comes from {x}"],
                "held_out": ["leaves the works of {x}"],
                "keywords": ["by {x}"],
            }
        ],
    },
}


def shop_spec(**questions: object) -> DatasetSpec:
    """The spec of the made-up catalogue, with some question settings changed."""
    settings = {**SPEC_DATA["questions"], **questions}  # type: ignore[dict-item]
    return DatasetSpec.model_validate({**SPEC_DATA, "questions": settings})


Key = tuple[str, str]


@dataclass
class Content:
    """Nodes (key -> fields, aliases) and edges between keys; nothing is numbered yet."""

    nodes: dict[Key, dict[str, object]] = field(default_factory=dict)
    aliases: dict[Key, list[str]] = field(default_factory=dict)
    edges: list[tuple[Key, str, Key]] = field(default_factory=list)

    def add(self, node_type: str, external_id: str, aliases: Sequence[str] = (), **fields: object) -> Key:
        key = (node_type, external_id)
        self.nodes[key] = fields
        self.aliases[key] = list(aliases)
        return key

    def name(self, key: Key) -> str:
        return str(self.nodes[key]["title" if key[0] == "product" else "name"])


_WORDS = """amber basket canvas dental elastic fabric garden hollow insulated jacket kettle lantern magnetic
notebook orange portable quartz rubber silver thermal umbrella velvet wooden yellow zipper cotton hiking marble
ceramic bamboo leather copper"""
WORDS = _WORDS.split()


def shop(seed: int = 5, products: int = 150) -> Content:
    """A catalogue with a hub (one brand, one category), ambiguous names, aliases, self-loops, reciprocal pairs."""
    rng = random.Random(seed)
    content = Content()
    brands = []
    for i in range(16):
        # Names repeat after twelve, so that some are ambiguous.
        name = f"{WORDS[i % 12].title()} Works"
        aka = [f"{WORDS[i][:3].upper()}{i}", "House"] if i % 3 else []
        brands.append(content.add("brand", f"b{i}", aka, name=name, aka=aka))
    categories = [
        content.add("category", f"c{i}", name=f"{WORDS[i].title()} {WORDS[(i * 3 + 7) % 30]} goods") for i in range(20)
    ]
    items = []
    for i in range(products):
        text = f"A {rng.choice(WORDS)}-{rng.choice(WORDS)} thing. For {rng.choice(WORDS)} {rng.choice(WORDS)} use."
        items.append(
            content.add(
                "product",
                f"p{i}",
                title=f"{rng.choice(WORDS).title()} {rng.choice(WORDS)} {i % 140}",
                description=text if i % 7 else None,
                tags=[rng.choice(WORDS), rng.choice(WORDS)],
                price=i * 1.5,
            )
        )
    edges: set[tuple[Key, str, Key]] = set()
    for item in items:
        edges.add((item, "made_by", brands[0] if rng.random() < 0.3 else rng.choice(brands)))
        edges.add((item, "IN_CATEGORY", categories[0] if rng.random() < 0.3 else rng.choice(categories)))
        for _ in range(2):
            other = rng.choice(items)
            edges.add((item, "also bought", other))
            if rng.random() < 0.2:
                edges.add((other, "also bought", item))
    edges.add((items[0], "also bought", items[0]))
    for i, category in enumerate(categories[1:], start=1):
        edges.add((category, "part of", categories[i // 3]))
    for _ in range(14):
        a, b = rng.choice(brands), rng.choice(brands)
        edges.add((a, "rival of", b))
    content.edges = sorted(edges)
    return content


def build(
    content: Content, path: str = ":memory:", *, shuffle: int | None = None, node_ids: Mapping[Key, int] | None = None
) -> duckdb.DuckDBPyConnection:
    """Write an SKB. ``shuffle`` seeds the order of rows and the edge ids; ``node_ids`` overrides the numbering."""
    keys = sorted(content.nodes, key=lambda key: (key[1], key[0]))
    canonical = {key: i for i, key in enumerate(keys)}
    ids = dict(node_ids) if node_ids is not None else canonical
    edges = list(content.edges)
    if shuffle is not None:
        random.Random(shuffle).shuffle(keys)
        random.Random(shuffle + 1).shuffle(edges)
    con = duckdb.connect(path)
    con.execute(TABLES)
    nodes = [
        (ids[key], key[1], key[0], content.name(key), json.dumps(content.nodes[key]), "-", canonical[key])
        for key in keys
    ]
    aliases = [(ids[key], alias) for key in keys for alias in content.aliases[key]]
    rows = [(i, ids[head], relation, ids[tail]) for i, (head, relation, tail) in enumerate(edges)]
    for table, values in [("nodes", nodes), ("aliases", aliases), ("edges", rows)]:
        if values:
            con.register("new_rows", pd.DataFrame(values))
            con.execute(f"INSERT INTO {table} SELECT * FROM new_rows")
            con.unregister("new_rows")
    build_adjacency(con)
    return con


def words_of(text: str) -> list[str]:
    """Casefolded words, found without a regular expression."""
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


def mentions_phrase(fields: Mapping[str, object], names: Sequence[str], phrase: str) -> bool:
    """Whether one text value of the named fields has the words of ``phrase`` in a row."""
    wanted = phrase.split()
    for name in names:
        value = fields.get(name)
        for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            found = words_of(text)
            if any(found[i : i + len(wanted)] == wanted for i in range(len(found))):
                return True
    return False


def brute_force(
    types: Mapping[int, str],
    edges: Sequence[tuple[int, str, int]],
    plan: Mapping[str, object],
    anchors: Mapping[str, int],
) -> set[int]:
    """Targets of all matches of a plan, by trying every edge for every hop."""
    touching: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for number, (head, relation, tail) in enumerate(edges):
        touching[relation, head].append((tail, number))
        if head != tail:
            touching[relation, tail].append((head, number))
    found: set[int] = set()

    def extend(hops: Sequence[Mapping[str, str]], bound: dict[str, int], used: frozenset[int]) -> None:
        if not hops:
            found.add(bound["T"])
            return
        hop = hops[0]
        for other, number in touching[hop["rel"], bound[hop["from"]]]:
            known = bound.get(hop["to_var"])
            if number not in used and known in (None, other) and types[other] == hop["to_label"]:
                extend(hops[1:], {**bound, hop["to_var"]: other}, used | {number})

    extend(plan["hops"], dict(anchors), frozenset())  # type: ignore[arg-type]
    return found
