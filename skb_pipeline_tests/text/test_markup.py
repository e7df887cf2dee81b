from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.text.markup import Removed, strip_html


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<b>Bold</b> &amp; <i>fine</i>", "Bold & fine"),
        ("one<br>two<br/>three", "one two three"),
        ("<ul><li>a</li><li>b</li></ul>", "a b"),
        ("<script>alert(1)</script>safe<style>b{}</style>", "safe"),
        ("caf&eacute; &#8482;", "café ™"),
        ("<TABLE BORDER=0><TR><TD>x<TD>y</TABLE>", "x y"),
        ("H<sub>2</sub>O and bi<b>o</b>tin", "H2O and biotin"),
        ('see <a href="p?x=1&y=2" target=_blank>this</a>', "see this"),
        ("<a href=page.asp?id=3>t</a><br clear=all/>u", "t u"),
        ("<!doctype html><!-- a <b> c -->x<?xml version='1.0'?>", "x"),
        ("<input type=checkbox checked>on", "on"),
        ("&amp;lt;b&amp;gt; &amp;amp;", "&lt;b&gt; &amp;"),
        ("&lt;p&gt; stays", "<p> stays"),
        ("&#x2264; &#8805;", "≤ ≥"),
        ("<p\nclass='x'>a</p >b", "a b"),
    ],
)
def test_markup_goes(html: str, text: str) -> None:
    assert strip_html(html) == text


@pytest.mark.parametrize(
    "text",
    [
        "p < 0.05 and x > 3",
        "Take it if a<b and c>d, or i<s & u>2",
        "map<string, vector<double>> m",
        "List<object> and Option<A>; Set<i>",
        "Jane <jane.doe@mail.org> wrote <unknown>",
        "cut off <b",
        "cut off <a href='x",
        "<!-- never closed",
        "Q&A at M&S, AT&T; x&copy=2&notit;",
        "&#38 without its semicolon, &#x;",
        "<ſ> <İ>",
        "2<3",
        " blanks  stay\tas they are & so on ",
    ],
)
def test_text_that_only_looks_like_markup_stays(text: str) -> None:
    removed = Removed()
    assert strip_html(text, removed) == text
    assert removed == Removed()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<&")) | st.text(alphabet="<> &;ab1=\"'/!-"))
def test_text_without_a_known_tag_or_entity_is_returned_as_it_is(text: str) -> None:
    # The second alphabet can write <a>, <b> and comments; every other text of it is no markup.
    if not any(tag in text for tag in ("<a", "<b", "</a", "</b", "<!--")):
        assert strip_html(text) == text


@given(st.lists(st.sampled_from(["<b>", "</b>", "<p>", "x", " ", "<", "&lt;", "&amp;", "<y>", "é"]), max_size=10))
def test_letters_outside_of_tags_are_never_lost(parts: list[str]) -> None:
    text = strip_html("".join(parts))
    assert [c for c in text if c in "xé"] == [p for p in parts if p in "xé"]
    assert text.count("<y>") == parts.count("<y>")


def test_what_was_taken_out_is_counted_with_the_longest_pieces() -> None:
    removed = Removed()
    strip_html("<b>a</b> &amp; <b>c</b>", removed)
    strip_html("no markup, 1 < 2", removed)
    strip_html("x<!-- a long remark -->y&#65;", removed)
    told = removed.as_dict()
    assert (told["values"], told["characters"]) == (2, 18 + 26)
    assert told["pieces"] == {"</b>": 2, "<b>": 2, "&#…;": 1, "&amp;": 1, "<!-- -->": 1}
    assert told["longest"] == ["<!-- a long remark -->", "</b>", "<b>"]


@pytest.mark.parametrize("piece", ["<b", "<a x=", '<a x="', "<!--", "<script>", "x<b>", "<a ", "&a"])
def test_hostile_texts_take_no_longer_than_their_length(piece: str) -> None:
    started = time.process_time()
    strip_html(piece * 20_000)
    assert time.process_time() - started < 2
