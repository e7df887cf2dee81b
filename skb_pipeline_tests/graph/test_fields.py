"""Values of fields as they are read from a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.graph.fields import FieldValues, folded
from skb_pipeline.plans.plan import Condition
from skb_pipeline.plans.schema import FieldKind, GraphSchema, typed_fields
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, Graph, load_graph
from skb_pipeline_tests.toy import toy_spec

GRAPH = Graph(
    {5: "p", 9: "q", 2: "p", 7: "p"},
    [],
    {5: {"size": 3, "word": "Red", "day": "2020-01-31"}, 2: {"size": None, "word": "blue"}, 7: {"size": -0.5}},
)


def condition(field: str, op: Any, value: Any) -> Condition:
    return Condition(var="T", field=field, op=op, value=value)


@pytest.mark.parametrize(
    ("asked", "meets", "has"),
    [
        (condition("size", ">=", -0.5), [True, False, True], [True, False, True]),
        (condition("size", "!=", 3), [False, False, True], [True, False, True]),
        (condition("size", "in", [3, 4]), [True, False, False], [True, False, True]),
        (condition("word", "=", "rED"), [True, False, False], [True, True, False]),
        (condition("word", "!=", "rED"), [False, True, False], [True, True, False]),
        (condition("word", "contains", "E"), [True, True, False], [True, True, False]),
        (condition("day", "<", "2020-02-01"), [True, False, False], [True, False, False]),
        (condition("name", "=", "x"), [False] * 3, [False] * 3),
    ],
)
def test_nodes_that_meet_a_condition(asked: Condition, meets: list[bool], has: list[bool], tmp_path: Path) -> None:
    """In canonical order, which here is 5, 2, 7."""
    with connect(tmp_path / "skb.duckdb") as con:
        load_graph(con, GRAPH)
    values = FieldValues.at(tmp_path / "skb.duckdb", RANDOM_SCHEMA)
    assert values.node_ids("p").tolist() == [5, 2, 7]
    assert values.meeting("p", [asked]).tolist() == meets
    assert values.having("p", [asked]).tolist() == has
    # A field is read once: without the file it is still known.
    (tmp_path / "skb.duckdb").unlink()
    np.testing.assert_array_equal(values.meeting("p", [asked]), meets)
    with pytest.raises(KeyError, match="no typed field 'name'"):
        values.column("p", "name")


def test_letters_are_folded_from_a_to_z_alone() -> None:
    assert folded("Straße ÄÖ İ AZ") == "straße ÄÖ İ az"


def test_typed_fields_of_a_spec() -> None:
    spec = toy_spec()
    kinds = {(f.node_type, f.name): f.kind for f in GraphSchema.from_spec(spec).fields}
    assert kinds == {
        ("product", "price"): FieldKind.NUMBER,
        ("product", "rank"): FieldKind.NUMBER,
        ("product", "about"): FieldKind.TEXT,
    }
    demo = get_spec("demo")
    parsed = {f.name: f.kind.value for name, node in demo.node_types.items() for f in typed_fields(name, node)}
    assert not {name for node in demo.node_types.values() for name, f in node.fields.items() if f.parse} & {*parsed}


def test_kinds_of_parsed_values() -> None:
    fields = {
        name: {"shape": "text", "parse": name} for name in ("price", "rank", "rating", "dimensions", "weight", "date")
    }
    spec = toy_spec(
        node_types={
            "product": {"fields": {"title": "text", **fields}, "name_field": "title", "document": ["title"]},
            "brand": {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]},
        }
    )
    kinds = {f.name: f.kind.value for f in GraphSchema.from_spec(spec).fields}
    assert {name for name, kind in kinds.items() if kind == "text"} == {
        "rank_category", "dimensions_unit", "dimensions_weight_unit", "weight_unit",
    }  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == "date"} == {"date_date"}
    assert {"price_min", "price_max", "rating_mean", "date_year", "weight_grams", "rank_number"} <= {*kinds}
    assert len(kinds) == 17
