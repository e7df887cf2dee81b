"""Conditions on fields are read as a person would mean them, with the piece of the question that states them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import NodeTypeSpec
from skb_pipeline.planning.rules.conditions import FieldOfKind, Kind, fields_of, stated_conditions

FIELDS = [
    FieldOfKind("price", Kind.PRICE),
    FieldOfKind("reviews", Kind.RATING),
    FieldOfKind("released", Kind.DATE),
    FieldOfKind("page", Kind.NUMBER),
]


@pytest.mark.parametrize(
    ("question", "stated"),
    [
        ("under $50", [("price_min", "<", 50)]),
        ("cheaper than 1,299.50 dollars", [("price_min", "<", 1299.5)]),
        ("at most 20 euros", [("price_min", "<=", 20)]),
        ("more than $5", [("price_max", ">", 5)]),
        ("between $10 and $20", [("price_max", ">=", 10), ("price_min", "<=", 20)]),
        ("between 10 and 20 dollars", [("price_max", ">=", 10), ("price_min", "<=", 20)]),
        ("at least 4 stars", [("reviews_mean", ">=", 4)]),
        ("rated above 4.5", [("reviews_mean", ">", 4.5)]),
        ("4+ stars", [("reviews_mean", ">=", 4)]),
        ("3 stars or better", [("reviews_mean", ">=", 3)]),
        ("after 2019", [("released_year", ">", 2019)]),
        ("since 2019", [("released_year", ">=", 2019)]),
        ("in 2019", [("released_year", "=", 2019)]),
        ("before May 2020", [("released_date", "<", "2020-05-01")]),
        ("after May 2020", [("released_date", ">", "2020-05-31")]),
        ("until February 2020", [("released_date", "<=", "2020-02-29")]),
        ("in Feb. 2021", [("released_date", ">=", "2021-02-01"), ("released_date", "<=", "2021-02-28")]),
        ("after January 31st, 2020", [("released_date", ">", "2020-01-31")]),
        ("before 2020-01-31", [("released_date", "<", "2020-01-31")]),
        ("between 2015 and 2018", [("released_year", ">=", 2015), ("released_year", "<=", 2018)]),
        ("fewer than 300 pages", [("page", "<", 300)]),
        ("pages between 10 and 20", [("page", ">=", 10), ("page", "<=", 20)]),
        ("no more than 2,000 pages", [("page", "<=", 2000)]),
    ],
)
def test_what_is_stated(question, stated) -> None:
    asked = f"Which ones are there, {question}, for me?"
    found = stated_conditions(asked, FIELDS)
    assert sorted((s.field, s.op, s.value) for s in found) == sorted(stated)
    assert {asked[s.start : s.end] for s in found} == {question}


@pytest.mark.parametrize(
    "question",
    [
        "under 50", "more than 20 people", "over 3 years", "a 5 star hotel", "in 30 days", "after February 31, 2020",
        "between 20 and 10 dollars", "over the hill", "version 2.0 since then", "before the war", "CYP3A4 above all",
        "under $", "in 12,000 homes",
    ],
)  # fmt: skip
def test_what_is_no_condition(question) -> None:
    assert stated_conditions(f"Which are {question}?", FIELDS) == []


def test_several_conditions_keep_their_places() -> None:
    question = "Find tents under $50 with at least 4 stars released after 2019"
    found = stated_conditions(question, FIELDS)
    assert [question[s.start : s.end] for s in found] == ["under $50", "at least 4 stars", "after 2019"]


def test_of_two_fields_of_a_kind_the_one_that_is_called_by_name_is_meant() -> None:
    fields = [FieldOfKind("price", Kind.PRICE), FieldOfKind("list_price", Kind.PRICE)]
    assert stated_conditions("under $50", fields) == []
    assert [s.field for s in stated_conditions("a price under $50", fields)] == ["price_min"]
    assert stated_conditions("a list price under $50", fields) == []  # both names stand there


def test_a_year_field_knows_no_months() -> None:
    fields = [FieldOfKind("year", Kind.YEAR)]
    assert [(s.field, s.op, s.value) for s in stated_conditions("papers after 2019", fields)] == [("year", ">", 2019)]
    assert stated_conditions("papers after May 2019", fields) == []


def test_fields_of_a_type() -> None:
    fields = {"name": "text", "cost": {"shape": "text", "parse": "price"}, "year": "integer", "pages": "integer"}
    fields |= {"stars": {"shape": "json", "parse": "rating"}, "size": {"shape": "text", "parse": "weight"}}
    fields |= {"out": {"shape": "text", "parse": "date"}}
    node_type = NodeTypeSpec.model_validate({"fields": fields, "name_field": "name", "document": ["name"]})
    assert fields_of(node_type) == [
        ("cost", Kind.PRICE), ("year", Kind.YEAR), ("pages", Kind.NUMBER), ("stars", Kind.RATING), ("out", Kind.DATE)
    ]  # fmt: skip


PIECES = ["under", "between", "and", "$50", "10", "2019", "May", "stars", "at least", "pages", ",", "after", "$", "1,0"]


@given(st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join) | st.text(max_size=30))
def test_any_text_is_read_and_pieces_do_not_overlap(question) -> None:
    found = stated_conditions(question, FIELDS)
    pieces = sorted({(s.start, s.end) for s in found})
    assert all(0 <= start < end <= len(question) for start, end in pieces)
    assert all(one[1] <= other[0] for one, other in pairwise(pieces))


@pytest.mark.parametrize(
    "question",
    [
        # Denied, it would be the opposite.
        "not over $100", "nothing over $50", "isn't more than $50", "not after 2019", "no older than 2015",
        "except in 2019", "never more than 300 pages", "without more than 300 pages", "not published after 2019",
        # One of several, it would shut out the others.
        "in 2019 or in 2020", "in 2019 or 2020", "under $50 or over $100",
        # Another number than its first digits say.
        "under $5k", "under $5 million", "at most $1.5 million", "less than $1,00", "under $" + "9" * 400,
        "under $" + "9" * 5000 + ".5", "more than 5% pages",
        # Other letters that pass for an i where case does not count.
        "papers s\u0131nce 2019", "papers S\u0130NCE 2019", "in Apr\u0130l 2020",
    ],
)  # fmt: skip
def test_what_would_be_misread_states_nothing(question: str) -> None:
    assert stated_conditions(f"Which are there, {question}, for me?", FIELDS) == []
