from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.text.stopwords import STOPWORDS
from skb_pipeline.text.tokens import Tokeniser


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("IL-2", ["il-2", "il", "2"]),
        ("C++", ["c++", "c"]),
        ("C#", ["c#", "c"]),
        ("β-catenin", ["β-catenin", "β", "catenin"]),
        ("R&D", ["r&d", "r", "d"]),
        ("3M", ["3m"]),
        ("HP:0001250", ["hp:0001250", "hp", "0001250"]),
        ("22q11.2", ["22q11.2", "22q11", "2"]),
        ("vitamin C", ["vitamin", "c"]),
        ("CD4+/CD8+ cells", ["cd4+/cd8+", "cd4", "cd8", "cells"]),
        ("5'-UTR", ["5'-utr", "5", "utr"]),
        ("snake_case", ["snake_case", "snake", "case"]),
        ("(IL-2).", ["il-2", "il", "2"]),
        ("Straße", ["strasse"]),
        ("हिन्दी", ["हिन्दी"]),
        ("— … !", []),
        ("", []),
    ],
)
def test_names_people_search_for_become_terms(text: str, terms: list[str]) -> None:
    assert Tokeniser("none")(text) == terms


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("IL\u20112", "IL-2"),  # non-breaking hyphen
        ("IL\u20132", "IL-2"),  # en dash
        ("Alzheimer\u2019s", "Alzheimer's"),
        ("\u00b5-opioid", "\u03bc-opioid"),  # micro sign and Greek mu
        ("hyper\u00adtension", "hypertension"),  # soft hyphen
    ],
)
def test_typographic_variants_meet(written: str, plain: str) -> None:
    assert Tokeniser("en")(written) == Tokeniser("en")(plain)


def test_possessive_s_is_no_term() -> None:
    assert Tokeniser("none")("Alzheimer's disease") == ["alzheimer's", "alzheimer", "disease"]


def test_stop_words_go_but_symbols_spelt_like_them_stay() -> None:
    tokenise = Tokeniser("en")
    assert tokenise("It was the gene WAS") == ["gene", "was"]
    assert tokenise("A lack of vitamin A. A person with hepatitis A") == [
        "lack", "vitamin", "a", "person", "hepatitis", "a",
    ]  # fmt: skip
    assert tokenise("name: X\nA disorder") == ["name", "x", "disorder"]


def test_without_stop_words_everything_stays() -> None:
    assert Tokeniser("none")("A lack of it") == ["a", "lack", "of", "it"]


def test_stop_words_are_small_letters_only() -> None:
    assert all(word == word.lower() for word in STOPWORDS["en"])
    assert len(STOPWORDS["en"]) == 33
    assert STOPWORDS["en"] < STOPWORDS["en_long"]
    assert {"which", "does", "those"} <= STOPWORDS["en_long"]
    assert not {"gene", "find", "drug"} & STOPWORDS["en_long"]


@given(st.text())
def test_every_letter_and_digit_is_in_some_term(text: str) -> None:
    terms = Tokeniser("none", fold_accents=False)(text)
    assert all(term and not any(c.isspace() for c in term) for term in terms)
    plain = unicodedata.normalize("NFKC", text.replace("İ", "i"))
    letters = {c for c in unicodedata.normalize("NFKC", plain.casefold()) if c.isalnum() and c.isascii()}
    assert letters - set("tmsm") <= set("".join(terms))


@given(st.text(st.characters(codec="ascii")))
def test_ascii_text_is_read_by_the_same_rule_as_any_other(text: str) -> None:
    assert Tokeniser("en")(f"{text} \u03b1")[:-1] == Tokeniser("en")(text)


@given(st.lists(st.sampled_from(["IL-2", "WAS", "was", "C++", "vitamin", "A", "β-catenin", "x's"]), max_size=8))
def test_what_was_seen_before_changes_nothing(words: list[str]) -> None:
    used = Tokeniser("en")
    used("IL-2 vitamin A x's was")
    text = " ".join(words)
    assert used(text) == Tokeniser("en")(text)
