"""Which texts agree in their codes, and which do not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.linking.codes import codes_missing, codes_of, numbers_of

EQUAL = [
    ("CYP-2C19", "CYP2C19"),
    ("cyp 2 c 19", "CYP2C19"),
    ("HLA DQ8", "HLA-DQ8"),
    ("HLA-DQ8 antigen", "HLADQ8"),
    ("HLA DQ8 antigen", "HLADQ8"),
    ("HLA-A*02:01", "HLA A 02 01"),
    ("HLA-A", "HLA-A*02:01"),
    ("type II collagen", "collagen type 2"),
    ("factor 5 Leiden", "Factor V (Leiden)"),
    ("vitamin B-12", "vitamin B12"),
    ("vitamins B12", "Vitamin B12, oral"),
    ("interferon gamma", "IFN-γ"),
    ("C++ compiler", "C++"),
    ("C# language", "C#"),
    (".NET runtime", ".NET"),
    ("Rh- blood", "Rh\u2212"),
    ("CD8+ cells", "T cell, CD8+"),
    ("5,000 ml", "5000 ml bottle"),
    ("deletion 7q11.23", "del(7)(q11.23), 7q11.23"),
    ("EC 2.7.11.1", "EC 2.7.11.1 kinase"),
    ("GTX 12V 15 mower", "GTX 12V-15"),
    ("N-[4-oxo]-amine", "n 4 oxo amine"),
    ("U.S.A.", "USA"),
    ("R&D", "R and D"),
    ("J. Doe", "Jane Doe"),
    ("O'Hara", "OHara"),
    ("l'eau", "eau"),
    ("a rare tumour", "rare neoplasm"),
    ("pre- and postnatal care", "prenatal care"),
    ("\uff21\uff22\uff11", "AB1"),
    ("H₂O", "h2o"),
    ("蛋白", "蛋白质"),
    ("水", "饮用水"),
]
DIFFERENT = [
    ("CYP2C9", "CYP2C19", ["cyp2c9"]),
    ("CYP2C6", "CYP2D6", ["cyp2c6"]),
    ("GTX 14V-20", "GTX 12V-15", ["14v 20"]),
    ("GTX 15V-12", "GTX 12V-15", ["15v 12"]),
    ("HLA-A*02:01", "HLA-A*01:02", ["02 01"]),
    ("HLA-A", "HLA-B", ["a"]),
    ("HLA-DQ8", "HLA-DR8", ["dq8"]),
    ("1-15", "11-5", ["1 15"]),
    ("7q1.123", "7q11.23", ["7q1 123"]),
    ("C", "C++", ["c"]),
    ("C++", "C#", ["c++"]),
    (".NET", "net", [".net"]),
    ("Rh-", "Rh+", ["rh-"]),
    ("CD8+", "CD8", ["cd8+"]),
    ("vitamin K", "vitamin D", ["k"]),
    ("hepatitis a", "hepatitis B", ["a"]),
    ("type III", "type 2", ["iii"]),
    ("interferon beta", "interferon-α", ["beta"]),
    ("IL1", "IL1B", ["il1"]),
    ("version 20", "version 2", ["20"]),
    ("X-ray tube 3", "ray tube", ["x", "3"]),
]


@pytest.mark.parametrize(("text", "surface"), EQUAL)
def test_ways_of_writing_a_code_agree(text: str, surface: str) -> None:
    assert codes_missing(text, [surface]) == []


@pytest.mark.parametrize(("text", "surface", "missing"), DIFFERENT)
def test_another_code_does_not(text: str, surface: str, missing: list[str]) -> None:
    assert codes_missing(text, [surface]) == missing


def test_a_code_may_stand_in_any_of_the_names() -> None:
    names = ["cytochrome P450 family 2 subfamily C member 19", "CYP2C19"]
    assert codes_missing("CYP2C19, a P450 enzyme", names) == []
    assert codes_missing("CYP2C19, a P451 enzyme", names) == ["p451"]
    assert codes_missing("enzyme 19", []) == ["19"]
    assert codes_missing("an enzyme of the liver", []) == []


def test_plain_words_are_no_codes() -> None:
    for text in ("Crohn's disease", "A disease", "the cat's eye", "acute-phase protein", "E. coli", "mix of the two"):
        assert codes_of(text) == [], text


def test_numbers_of_a_text() -> None:
    assert numbers_of("7q11.23") == numbers_of("7 Q11-23") == {"7": 1, "11": 1, "23": 1}
    assert numbers_of("7q1.123") != numbers_of("7q11.23")
    assert numbers_of("1,200 × 1200") == {"1200": 2}


WORDS = st.lists(
    st.from_regex(r"[A-Za-z]{1,5}|[A-Z]{1,3}[0-9]{1,3}|[0-9]{1,4}[a-z]?", fullmatch=True), min_size=1, max_size=5
)


@given(WORDS, st.sampled_from([" ", "-", "/", ", ", " - "]))
def test_a_text_agrees_with_itself_and_with_more(words: list[str], joined: str) -> None:
    text = joined.join(words)
    assert codes_missing(text, [text]) == []
    assert codes_missing(text, [f"known as {text} (entry)"]) == []
    assert codes_missing(text, ["something", text.swapcase()]) == []


@given(st.from_regex(r"[A-Z]{1,3}[0-9]{1,3}[a-z]?", fullmatch=True), st.integers(0, 9), st.data())
def test_a_changed_digit_never_agrees(code: str, digit: int, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([match.start() for match in re.finditer(r"\d", code)]))
    other = code[:place] + str(digit) + code[place + 1 :]
    assert (codes_missing(f"gene {code}", [f"gene {other}"]) == []) == (other == code)


@given(st.text(max_size=30), st.lists(st.text(max_size=30), max_size=3))
def test_any_text_is_read(text: str, surfaces: list[str]) -> None:
    missing = codes_missing(text, surfaces)
    assert set(missing) <= set(codes_of(text))
    assert codes_missing(text, [*surfaces, text]) == []
