import datetime
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import NodeTypeSpec
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline.text.parsers import PARSED, parse_field
from skb_pipeline_tests.toy import ListSource, toy_spec

NOTHING: dict[str, Any] = {}


def check(parse: str, value: Any, expected: dict[str, Any], failure: str | None) -> None:
    counts: Counter[str] = Counter()
    assert parse_field(value, parse, counts) == expected
    assert counts == (Counter({f"{parse}_{failure}": 1}) if failure else Counter())


@pytest.mark.parametrize(
    ("value", "expected", "failure"),
    [
        ("$1,299.00 - $1,499.00", {"min": 1299.0, "max": 1499.0}, None),
        ("$12 - $19", {"min": 12.0, "max": 19.0}, None),
        ("$12", {"min": 12.0, "max": 12.0}, None),
        (" 3.50 € ", {"min": 3.5, "max": 3.5}, None),
        ("USD 5 to USD 7", {"min": 5.0, "max": 7.0}, None),
        (7, {"min": 7.0, "max": 7.0}, None),
        (["$5"], {"min": 5.0, "max": 5.0}, None),
        ("$.99", {"min": 0.99, "max": 0.99}, None),
        ("", NOTHING, None),
        (None, NOTHING, None),
        ([], NOTHING, None),
        ("$", NOTHING, "unparseable"),
        ("Free", NOTHING, "unparseable"),
        ("1.299,00 €", NOTHING, "unparseable"),
        ("1,29", NOTHING, "unparseable"),
        ("$5 $6", NOTHING, "unparseable"),
        ("$5 - $6 - $7", NOTHING, "unparseable"),
        ("$19 - $12", NOTHING, "range_reversed"),
        (-3, NOTHING, "negative"),
        (True, NOTHING, "unparseable"),
        (["$5", "$6"], NOTHING, "unparseable"),
        ({"amount": 3}, NOTHING, "unparseable"),
        (float("nan"), NOTHING, "unparseable"),
    ],
)
def test_price(value: Any, expected: dict[str, Any], failure: str | None) -> None:
    check("price", value, expected, failure)


@pytest.mark.parametrize(
    ("value", "expected", "failure"),
    [
        ("950,041 in Sports & Outdoors (", {"number": 950041, "category": "Sports & Outdoors"}, None),
        (">#1,234 in Toys &amp; Games (See Top 100 in Toys)", {"number": 1234, "category": "Toys & Games"}, None),
        ("57 in Magazine Subscriptions", {"number": 57, "category": "Magazine Subscriptions"}, None),
        (["#1 in A", "#2 in B"], {"number": 1, "category": "A"}, "further_ranks_left_out"),
        ('["#1 in A","#2 in B"]', {"number": 1, "category": "A"}, "further_ranks_left_out"),
        ("950,041", {"number": 950041}, None),
        (12, {"number": 12}, None),
        ("", NOTHING, None),
        ("9,50 in Sports", NOTHING, "unparseable"),
        ("in Sports", NOTHING, "unparseable"),
        ("12 of 100 in Sports", NOTHING, "unparseable"),
        (1.5, NOTHING, "unparseable"),
    ],
)  # fmt: skip
def test_rank(value: Any, expected: dict[str, Any], failure: str | None) -> None:
    check("rank", value, expected, failure)


@pytest.mark.parametrize(
    ("value", "expected", "failure"),
    [
        ([{"overall": 5.0, "text": "x"}, {"rating": "4"}], {"mean": 4.5, "count": 2}, None),
        ([5, 4, 4.5], {"mean": 4.5, "count": 3}, None),
        (["5/5 Five Stars - 10/10", "2/5 bad"], {"mean": 3.5, "count": 2}, None),
        ("4.5 out of 5 stars", {"mean": 4.5, "count": 1}, None),
        ([5, "great"], {"mean": 5.0, "count": 1}, "unparseable"),
        ([{"text": "no rating"}], NOTHING, "unparseable"),
        ("6/5", NOTHING, "unparseable"),
        ([], NOTHING, None),
    ],
)
def test_rating(value: Any, expected: dict[str, Any], failure: str | None) -> None:
    check("rating", value, expected, failure)


@pytest.mark.parametrize(
    ("value", "expected", "failure"),
    [
        ("10 x 5 x 3 inches ; 2 pounds", {"length": 10.0, "width": 5.0, "height": 3.0, "unit": "inches",
                                          "weight": 2.0, "weight_unit": "pounds"}, None),
        ("3.4 x 2.1 inches ; 1.44 ounces", {"length": 3.4, "width": 2.1, "unit": "inches",
                                            "weight": 1.44, "weight_unit": "ounces"}, None),
        ("10 x 5 x 3 inches 2 pounds", NOTHING, "without_separator"),
        ("10 x 5 x 3 inches", NOTHING, "without_separator"),
        ("10 x 5 x 3 parsecs ; 2 pounds", NOTHING, "unparseable"),
        ("10 x 5 x 3 inches ; heavy", NOTHING, "unparseable"),
        (None, NOTHING, None),
    ],
)  # fmt: skip
def test_dimensions(value: Any, expected: dict[str, Any], failure: str | None) -> None:
    check("dimensions", value, expected, failure)


@pytest.mark.parametrize(
    ("value", "expected", "failure"),
    [
        ("2 pounds (View shipping rates)", {"number": 2.0, "unit": "pounds", "grams": 907.18474}, None),
        ("1,500 g", {"number": 1500.0, "unit": "g", "grams": 1500.0}, None),
        ("2", NOTHING, "unparseable"),
        ("2 stones and more", NOTHING, "unparseable"),
    ],
)
def test_weight(value: Any, expected: dict[str, Any], failure: str | None) -> None:
    check("weight", value, expected, failure)


@pytest.mark.parametrize(
    ("value", "expected", "failure"),
    [
        ("2020-01-31", {"date": "2020-01-31", "year": 2020}, None),
        ("2020-01-31T10:00:00Z", {"date": "2020-01-31", "year": 2020}, None),
        ("January 31, 2020", {"date": "2020-01-31", "year": 2020}, None),
        ("31 Jan 2020", {"date": "2020-01-31", "year": 2020}, None),
        (datetime.date(2020, 1, 31), {"date": "2020-01-31", "year": 2020}, None),
        ("2021", {"year": 2021}, None),
        ("2020-02-31", NOTHING, "unparseable"),
        ("01/02/2020", NOTHING, "ambiguous"),
        ("soon", NOTHING, "unparseable"),
    ],
)
def test_date(value: Any, expected: dict[str, Any], failure: str | None) -> None:
    check("date", value, expected, failure)


TEXT = st.text(max_size=20) | st.from_regex(r"[$#\[0-9,. x;in-]{0,20}")
JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rating", "x"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@given(JSON_LIKE, st.sampled_from(sorted(PARSED)))
def test_no_value_breaks_a_parser_and_only_declared_names_come_out(value: Any, parse: str) -> None:
    counts: Counter[str] = Counter()
    found = parse_field(value, parse, counts)
    assert set(found) <= set(PARSED[parse])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert all(name.startswith(f"{parse}_") for name in counts)


def test_ingest_keeps_the_text_and_stores_parsed_values_beside_it(tmp_path: Path) -> None:
    product = {
        "fields": {
            "title": "text",
            "price": {"shape": "text", "parse": "price"},
            "rank": {"shape": "texts", "parse": "rank"},
        },
        "name_field": "title",
        "document": ["title", "price"],
    }
    spec = toy_spec(node_types={**toy_spec().model_dump()["node_types"], "product": product})
    nodes = [("product", "1", {"title": "a", "price": "$12 - $19", "rank": ["#1 in A\ud83d", "#2 in B"]}),
             ("product", "2", {"title": "b", "price": "Free"})]  # fmt: skip
    report = ingest(spec, ListSource(nodes), tmp_path / "s.duckdb")
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        stored = [
            json.loads(f) for (f,) in con.execute("SELECT fields::VARCHAR FROM nodes ORDER BY canonical").fetchall()
        ]
    assert stored[0] == {"title": "a", "price": "$12 - $19", "price_min": 12.0, "price_max": 19.0,
                         "rank": ["#1 in A�", "#2 in B"], "rank_number": 1, "rank_category": "A�"}  # fmt: skip
    assert stored[1] == {"title": "b", "price": "Free"}
    assert report.coerced == {"product.price: price_unparseable": 1, "product.rank: rank_further_ranks_left_out": 1}
    assert (report.fill_rate["product.price"], report.fill_rate["product.price_min"]) == (1.0, 0.5)


def test_a_parsed_name_must_not_be_taken() -> None:
    with pytest.raises(ValueError, match=r"already taken: \['price_min'\]"):
        NodeTypeSpec.model_validate({
            "fields": {"name": "text", "price": {"shape": "text", "parse": "price"}, "price_min": "number"},
            "name_field": "name", "document": ["name"],
        })  # fmt: skip


def test_a_list_whose_escapes_stand_before_marks_is_a_list() -> None:
    found: Counter[str] = Counter()
    assert parse_field('["\\n\u0301", "$5"]', "price", found) == parse_field(["\n\u0301", "$5"], "price", found)
    assert parse_field('["\\r\u0301$5"]', "price", Counter()) == parse_field("\u0301$5", "price", Counter())
