from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.planning.prompts.data_blocks import json_line, text_block

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=300)
"""With lone surrogates, controls and characters beyond the basic plane."""
UNSEEN = "\u202e\u2028\u200b\x85\xad\ufeff\U000e0041"


@given(ANY_TEXT)
def test_a_text_stays_on_its_line_and_can_be_read_back(text) -> None:
    line = json_line(text)
    assert json.loads(line) == text
    assert len(line.splitlines()) == 1
    assert not set(line) & set("`<>" + UNSEEN)
    line.encode()  # lone surrogates would fail


@given(ANY_TEXT, st.integers(2, 120))
def test_a_block_is_bounded_and_counts_what_is_cut(text, most) -> None:
    block = text_block(text, most)
    kept = json.loads(block.json)
    assert len(block.json) <= most
    assert text == kept + text[len(kept) :]
    assert block.cut == len(text) - len(kept)
    if block.cut:  # no room for one more
        assert len(json_line(kept + text[len(kept)])) > most


def test_escapes() -> None:
    assert json_line("a `b` <|x|>\n") == r'"a \u0060b\u0060 \u003c|x|\u003e\n"'
    assert json_line("\U000e0041é") == r'"\udb40\udc41é"'
    assert json_line({"k`": ["<"]}) == r'{"k\u0060": ["\u003c"]}'
    assert text_block("x" * 10_000_000, 20).cut == 10_000_000 - 18
