import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.text.cleaning import clean_ids, clean_names, clean_text
from skb_pipeline.text.markup import Removed
from skb_pipeline.text.settings import FieldSpec, Shape
from skb_pipeline.text.shapes import coerce

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("bike \ud83d", "bike �"),
        ("\ud83d\ude00 ok", "😀 ok"),
        ("a\x00b", "ab"),
        ("Cafe\u0301", "Caf\u00e9"),
        ("  x\n", "x"),
        ("COVID-19 and HIV-1", "COVID-19 and HIV-1"),
        ("N/A", "N/A"),
    ],
)
def test_text_is_cleaned(raw: str, clean: str) -> None:
    assert clean_text(raw) == clean


def test_changes_are_counted() -> None:
    counts: Counter[str] = Counter()
    for text in ("plain", "\ud83d", "\ud83dx\x00", "Cafe\u0301"):
        clean_text(text, counts)
    assert counts == {"surrogate_replaced": 2, "nul_removed": 1, "nfc_normalised": 1}


@given(ANY_TEXT)
def test_clean_text_is_storable_and_stable(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert "\x00" not in clean
    assert clean_text(clean) == clean


PARTS = st.sampled_from(
    ["a", "é", "e", "\u0301", "क", "ा", "\u200d", "\u200c", "\u200b", "\u00ad", "\ufeff", " ", ",", "😀"]
)


@given(st.lists(PARTS, max_size=8).map("".join))
def test_cleaning_again_changes_nothing_among_invisible_characters(text: str) -> None:
    clean = clean_text(text)
    assert clean_text(clean) == clean
    assert not set(clean) & set("\u200b\u00ad\ufeff")
    assert clean.strip(" \u200c\u200d") == clean.strip(" ")


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\ufeffP-17", "P-17"),
        ("P-\ufeff17", "P-17"),
        ("Wal\u200bmart", "Walmart"),
        ("hyper\u00adtension", "hypertension"),
        ("\u200eR2D2\u200f", "R2D2"),
        ("a\u2060b\u2062c", "abc"),
        ("\u202bעמק\u202c", "עמק"),
        ("e\u200b\u0301", "é"),
        ("\u200dक्ष\u200c", "क्ष"),
        ("क्\u200dष", "क्\u200dष"),
        ("می\u200cخواهم، \u200cرفت", "می\u200cخواهم، رفت"),
        ("👩\u200d🔬\u200d x", "👩\u200d🔬 x"),
        ("GS\u200cR1", "GSR1"),
        ("Auf\u200clage und Au\u00adto", "Auflage und Auto"),
        ("\u200b", ""),
    ],
)
def test_what_cannot_be_seen_goes_and_what_joins_letters_stays(raw: str, clean: str) -> None:
    counts: Counter[str] = Counter()
    assert clean_text(raw, counts) == clean
    assert counts["invisible_removed"] == (clean != raw and raw != "")


def test_ids_are_cleaned_and_counted_row_by_row() -> None:
    counts: Counter[str] = Counter()
    column = pa.array(["7", "7\u200b", "\ufeff8", None, "7\u200b", "Cafe\u0301", "a b "])
    assert clean_ids(column, counts).to_pylist() == ["7", "7", "8", None, "7", "Café", "a b"]
    assert counts == {"invisible_removed": 3, "nfc_normalised": 1}
    few = pa.array(["buys", "bu\u00adys", "buys"])
    assert clean_names(few, counts).to_pylist() == ["buys"] * 3
    assert counts["invisible_removed"] == 4


def test_html_is_cleaned_again_after_its_entities() -> None:
    field = FieldSpec(shape=Shape.TEXT, html=True)
    counts: Counter[str] = Counter()
    removed = Removed()
    assert coerce("co&shy;op&eacute;ra&#8203;tion e&#769;", field, counts, removed) == "coopération é"
    assert coerce("5 < 6 &copy=1", field, counts, removed) == "5 < 6 &copy=1"
    assert (removed.values, counts["invisible_removed"]) == (1, 1)


@pytest.mark.parametrize(
    ("value", "shape", "result", "counted"),
    [
        ("tent", "texts", ["tent"], {"scalar_to_list": 1}),
        (["Nike", "Jordan"], "text", "Nike; Jordan", {"list_joined_to_text": 1}),
        (["a", 3, None], "texts", ["a", "3"], {"null_in_list_dropped": 1}),
        ([None, "a"], "texts", ["a"], {"null_in_list_dropped": 1}),
        ([["a", "b"]], "texts", ["a", "b"], {"nested_list_flattened": 1}),
        (None, "text", None, {}),
        ("", "text", None, {}),
        ([], "texts", None, {}),
        (["", " "], "texts", None, {}),
        ({"a": 1}, "text", None, {"object_is_no_text": 1}),
        (float("nan"), "text", None, {"not_finite_to_null": 1}),
        (True, "text", "true", {}),
        ("007", "text", "007", {}),
        ("12", "integer", 12, {}),
        ("12.5", "number", 12.5, {}),
        (3, "number", 3.0, {}),
        ("$12 - $19", "number", None, {"unparseable_number": 1}),
        ("1,299.00 - 1,499.00", "number", None, {"unparseable_number": 1}),
        ("950,041 in Sports", "integer", None, {"unparseable_number": 1}),
        ("Free", "number", None, {"unparseable_number": 1}),
        ("1e999", "number", None, {"unparseable_number": 1}),
        (["#1 in A", "#2 in B"], "integer", None, {"list_is_no_number": 1}),
    ],
)
def test_values_get_their_declared_shape(value: Any, shape: str, result: Any, counted: dict[str, int]) -> None:
    counts: Counter[str] = Counter()
    assert coerce(value, FieldSpec(shape=Shape(shape)), counts) == result
    assert counts == counted


@pytest.mark.parametrize("word", ["NA", "None", "NaN", "null", "N/A", "nan"])
def test_words_that_look_like_missing_survive(word: str) -> None:
    assert coerce(word, FieldSpec(shape=Shape.TEXT), Counter()) == word


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(JSON_LIKE, st.sampled_from(list(Shape)))
def test_no_value_breaks_the_load(value: Any, shape: Shape) -> None:
    result = coerce(value, FieldSpec(shape=shape), Counter())
    kinds = {Shape.TEXT: str, Shape.TEXTS: list, Shape.INTEGER: int, Shape.NUMBER: float}
    assert result is None or isinstance(result, kinds.get(shape, object))
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("value", "result", "counted"),
    [
        ({"b": " x\x00", "a": [1, None, True]}, {"b": "x", "a": [1, None, True]}, {"nul_removed": 1}),
        ({"vote": float("nan"), "overall": 5.0}, {"vote": None, "overall": 5.0}, {"not_finite_to_null": 1}),
        (["first", "", ("a", 2)], ["first", "", ["a", 2]], {}),
        ({1: "a", "1 ": "b", "c": b"x"}, {"1": "b", "c": None}, {"equal_keys_merged": 1, "object_is_no_json": 1}),
        (" ", None, {}),
        ([], None, {}),
        ({}, None, {}),
        (float("inf"), None, {"not_finite_to_null": 1}),
        (0, 0, {}),
    ],
)
def test_json_is_kept_and_its_texts_cleaned(value: Any, result: Any, counted: dict[str, int]) -> None:
    counts: Counter[str] = Counter()
    cleaned = coerce(value, FieldSpec(shape=Shape.JSON), counts)
    assert cleaned == result
    assert counts == counted
    if isinstance(value, dict) and len(value) == 2:
        assert list(cleaned) == list(result)  # type: ignore[arg-type]


def test_json_that_contains_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    counts: Counter[str] = Counter()
    assert coerce(endless, FieldSpec(shape=Shape.JSON), counts) is not None
    assert counts == {"nested_too_deep": 1}
