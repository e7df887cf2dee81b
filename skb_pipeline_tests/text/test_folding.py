"""One rule for words and their folded forms, in every script."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.linking.folding import fold, words
from skb_pipeline.text.folding import fold_run, of_folded_scripts, plain_signs, run_pattern
from skb_pipeline.text.tokens import Tokeniser

DIFFERENT = [
    ("सीमा", "सोमा", "सम"),  # Devanagari
    ("ปลา", "ปล้า", "ปล่า"),  # Thai
    ("كِتاب", "كُتّاب", "كتب"),  # Arabic
    ("মিনা", "মীনা", "মন"),  # Bengali
    ("סֵפֶר", "סַפָּר", "ספרא"),  # Hebrew
    ("கமலா", "கமலி", "கமல்"),  # Tamil
    ("ភូមិ", "ភ្នំ", "ភម"),  # Khmer
    ("が", "か", "ガ"),  # Japanese
    ("김", "강", "감"),
]
MARKS = [chr(c) for c in range(0x300, sys.maxunicode) if unicodedata.category(chr(c)) in ("Mn", "Mc")]


@pytest.mark.parametrize("names", DIFFERENT)
def test_names_that_differ_in_marks_stay_different(names: tuple[str, ...]) -> None:
    tokenise = Tokeniser("en")
    for rule in (fold_run, fold, lambda text: tuple(tokenise(text))):
        assert len({rule(name) for name in names}) == len(names)
    for name in names:
        for form in ("NFC", "NFD", "NFKC"):
            written = unicodedata.normalize(form, name)
            assert tokenise(written) == tokenise(name)
            assert fold(written) == fold(name)
            assert len(words(written)) == len(tokenise(written)) == 1


@pytest.mark.parametrize(
    ("written", "found_by"),
    [
        ("İzmir", "izmir"), ("IĞDIR ığdır", "igdir igdir"), ("Château", "chateau"), ("ＸＹＺ９", "xyz9"),
        ("CO₂", "co2"), ("x²", "x2"), ("ﬂora", "flora"), ("Ⅻ", "xii"), ("Ångström", "angstrom"), ("Øre", "ore"),
        ("Łomża", "lomza"), ("Đakovo", "dakovo"), ("Ærø", "aero"), ("Ἀθήνα", "αθηνα"), ("Ёлка", "елка"),
        ("10㎏", "10kg"), ("ab\u00adc d\u200de", "abc de"), ("Na⁺", "na+"), ("Straße", "strasse"),
        ("q̄̃", "q"), ("2½", "2 1/2"),
    ],
)  # fmt: skip
def test_variants_of_latin_greek_and_cyrillic_meet(written: str, found_by: str) -> None:
    tokenise = Tokeniser("en")
    assert set(tokenise(found_by)) <= set(tokenise(written))
    assert fold(written) == fold(found_by)


def test_accents_may_be_told_to_stay_but_compatibility_forms_go() -> None:
    tokenise = Tokeniser("en", fold_accents=False)
    assert tokenise("Château naïf İzmir") == ["château", "naïf", "izmir"]
    assert tokenise("CO₂ ＸＹＺ９ 10㎏") == ["co2", "xyz9", "10kg"]


def test_trade_marks_and_emoji_are_no_letters() -> None:
    assert Tokeniser("none")("Kodak™ ❤️love™") == ["kodak", "love"]


def test_no_mark_of_any_script_separates() -> None:
    run = re.compile(run_pattern())
    assert [mark for mark in MARKS if not run.fullmatch(f"a{mark}b")] == []
    assert [mark for mark in MARKS if len(words(f"क{mark}क")) != 1] == []
    assert [mark for mark in MARKS if len(Tokeniser("none")(f"ก{mark}ก")) != 1] == []


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_folding_twice_is_folding_once(text: str) -> None:
    for accents in (True, False):
        once = fold_run(text, accents=accents)
        assert fold_run(once, accents=accents) == once
    assert fold(fold(text)) == fold(text)


@given(st.text(st.sampled_from("कखािीुेंก้ำبَّאָabé-' "), max_size=10))
def test_no_vowel_sign_is_dropped(text: str) -> None:
    own = {c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) in ("Mn", "Mc")}
    assert own - {"\u0301"} <= set("".join(Tokeniser("none")(text)))
    assert own - {"\u0301"} <= set(fold(text))


@given(st.text(max_size=20))
def test_signs_made_plain_keep_every_letter(text: str) -> None:
    plain = text.translate(plain_signs())
    assert [c for c in plain if c.isalpha() and c in text] == [c for c in text if c.isalpha() and c in plain]


def test_scripts_in_which_misspellings_are_forgiven() -> None:
    assert all(map(of_folded_scripts, ["abc 12", "ärzte", "αβγ", "ёлка", "1234"]))
    assert not any(map(of_folded_scripts, ["कमल", "abcक", "ปลา", "日本", "كتب", "გია"]))
