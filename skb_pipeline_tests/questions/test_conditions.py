"""Which words make a textual condition, and when a text meets it."""

from __future__ import annotations

import pytest

from skb_pipeline.questions.conditions import NodeText, TextStore, candidate_phrases, only_named, words
from skb_pipeline.questions.topology import load_nodes
from skb_pipeline_tests.questions.small_skb import Content, build, shop_spec


def test_words_are_casefolded_runs_of_letters_and_digits() -> None:
    assert words("Straße_2: X-ray, don't") == ["strasse", "2", "x", "ray", "don", "t"]


@pytest.mark.parametrize(
    ("phrase", "met"),
    [
        ("velvet lining", True),
        ("velvet", True),
        ("lining velvet", False),
        ("lining soft", False),  # the words stand in two values
        ("vel", False),
        ("item", True),  # the name is text too
        ("acme", False),
    ],
)
def test_condition_wants_whole_words_in_a_row_within_one_value(phrase: str, met: bool) -> None:
    content = Content()
    content.add("product", "p", title="Item", description="Black VELVET-lining", tags=["soft", "warm"], price=3.5)
    con = build(content)
    text = TextStore(con, load_nodes(con, 1), shop_spec().node_types).load([0])[0]
    assert text.contains(phrase) is met


def test_phrases_leave_out_what_says_nothing_or_gives_the_answer_away() -> None:
    text = NodeText("Velvet chair", ("The velvet seat, with oak-wooden legs. Carved 1920 legs with arms",), "")
    phrases = set(candidate_phrases(text, False, ["Oak House", "legs"], "q"))
    assert phrases == {"seat", "wooden", "carved", "arms"}


def test_pairs_of_neighbouring_words() -> None:
    text = NodeText("Thing", ("A folding-chair frame. Steel tubes",), "")
    found = set(candidate_phrases(text, False, [], "q"))
    assert {"folding chair", "chair frame", "steel tubes"} <= found
    assert "frame steel" not in found


def test_order_differs_between_queries_only() -> None:
    text = NodeText("Thing", ("alpha bravo charlie delta echoes foxtrot",), "")
    assert candidate_phrases(text, False, [], "q") == candidate_phrases(text, False, [], "q")
    assert candidate_phrases(text, False, [], "q") != candidate_phrases(text, False, [], "r")


def test_a_whole_name_is_no_condition() -> None:
    assert candidate_phrases(NodeText("Marfan", (), ""), True, [], "q") == []
    assert set(candidate_phrases(NodeText("Marfan syndrome", (), ""), True, [], "q")) == {"marfan", "syndrome"}


def test_types_with_nothing_but_names() -> None:
    types = shop_spec().node_types
    assert {name: only_named(spec) for name, spec in types.items()} == {
        "product": False,
        "brand": True,
        "category": True,
    }
