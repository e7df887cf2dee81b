"""What a sink shows is the text, whatever the text holds: judged by parsers of the sinks' own languages."""

import csv
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from skb_pipeline.text.sinks import (
    TerminalFormatter,
    csv_cell,
    html_json,
    html_text,
    json_text,
    markdown_code_block,
    markdown_list,
    markdown_table,
    markdown_text,
    progress_bar,
    terminal_line,
    terminal_text,
    traceback_text,
    yaml_text,
)
from skb_pipeline_tests.examples import examples

HOSTILE = [
    "\x1b]0;owned\x07", "\x1b[2J\x1b[31mred", "\x9b31mred", "\x9d0;owned\x9c", "abc\b\b\bxyz", "real\rfake", "a\x00b",
    "user\u202etxt.exe\u202c", "\u2066left\u2069", "\ud800", "\u2028line", "soft\u00adhyphen\u200b", "\x7f",
    "```\n# out", "````", "`", "~~~\nout", "![x](http://evil.test/x.png)", "[x](javascript:alert(1))", "[x]: http://e.test",
    "<img src=x onerror=alert(1)>", "<script>", "<http://e.test>", "&lt;b&gt;", "a|b\\|c\\", "| --- |", "===", "---",
    "# a", "1. one", "2) two", "- a", "+ a", "* a", "> a", "    code", "*a* _b_ ~~c~~ `d`", "http://evil.test",
    "HTTPS://e.test/x", "www.evil.test",
    "wWw.evil.test/x", "me@evil.test", "me@.a", "@www.e.test://@a.b", "\\", "\\`", "a\n\nb", "^[1]: x", "",
    '=HYPERLINK("http://evil.test","x")', "+1+cmd|' /C calc'!A0", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1",
    "＝1", " =1",
]  # fmt: skip
TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4)), max_size=5).map("".join),
    st.text("\\`*_[]()<>!#|~&=+-.:@/w1 a\n\t\r\x1b\u202e", max_size=30),
)
MORE = settings(max_examples=examples(2_000, quick=250))
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal acts on, or no output takes."""
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
LINKED = re.compile(r"(https?://|www(?=\.))([-.\w]+)|([-.\w+]+)@([-\w]*(?:\.[-\w]+)+)", re.IGNORECASE | re.ASCII)
"""What Dagster's UI makes links of by itself (remark-gfm: its tokenizer, and once more in finished text)."""


def nodes(text: str) -> list[Token]:
    """All nodes of a Markdown text, those inside paragraphs and cells too."""

    def below(tokens: list[Token]) -> Iterator[Token]:
        for token in tokens:
            yield token
            yield from below(token.children or [])

    return list(below(MARKDOWN.parse(text)))


def shown(inline: Token) -> str:
    """The text of a paragraph or cell that holds nothing but text and code."""
    children = inline.children or []
    assert {child.type for child in children} <= {"text", "text_special", "code_inline"}, children
    parts = re.split("\0", "".join("\0" if c.type == "code_inline" else c.content for c in children))
    assert not any(LINKED.search(part) for part in parts), parts
    return "".join(child.content for child in children)


def one_line(text: str) -> str:
    return terminal_text(re.sub(r"[ \t\r\n]+", " ", text).strip())


@MORE
@given(TEXTS)
def test_a_terminal_gets_nothing_it_obeys(text: str) -> None:
    for safe in (terminal_text(text), terminal_line(text)):
        assert not OBEYED.search(safe)
        safe.encode()
        assert terminal_text(safe) == safe
    assert not set("\n\t\r") & set(terminal_line(text))
    assert terminal_text(text).count("\n") == text.count("\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_each_hostile_text(text: str) -> None:
    for check in (
        test_a_terminal_gets_nothing_it_obeys, test_inline_markdown_is_only_text, test_a_spreadsheet_computes_no_cell,
    ):  # fmt: skip
        check.hypothesis.inner_test(text)  # type: ignore[attr-defined]


def test_how_hidden_characters_are_shown() -> None:
    assert terminal_text("a\x1b[31m\x9b\u202eb\tc\r\nd\re") == "a\\x1b[31m\\x9b\\u202eb\tc\nd\\x0de"
    assert terminal_line("a\tb\r\nc\x07") == "a\\tb\\r\\nc\\x07"
    plain = "Größe 5′ → «α» 心臓 قلب नि\u200dक 👩\u200d🔬 \\n"
    assert terminal_line(plain) == terminal_text(plain) == plain


@MORE
@given(TEXTS)
def test_inline_markdown_is_only_text(text: str) -> None:
    around = nodes(f"before {markdown_text(text)}\n")
    assert [n.type for n in around if n.block] == ["paragraph_open", "inline", "paragraph_close"]
    (inline,) = (n for n in around if n.type == "inline")
    assert shown(inline) == f"before {one_line(text)}".rstrip(" ")
    alone = nodes(markdown_text(text))
    assert [n.type for n in alone if n.block] == ["paragraph_open", "inline", "paragraph_close"] * bool(one_line(text))
    assert [shown(n) for n in alone if n.type == "inline"] == [one_line(text)] * bool(one_line(text))


@MORE
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_items_of_a_list(texts: list[str]) -> None:
    found = nodes(markdown_list(texts))
    assert sum(n.type == "bullet_list_open" for n in found) == 1
    assert sum(n.type == "list_item_open" for n in found) == len(texts)
    assert [shown(n) for n in found if n.type == "inline"] == [one for t in texts if (one := one_line(t))]


@MORE
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=3), TEXTS)
@example([("a\\", "|")], "\\|")
def test_cells_of_a_table(rows: list[tuple[str, str]], head: str) -> None:
    found = nodes(markdown_table([head, "n"], rows, numbers_from=1) + "\n\nafter\n")
    assert sum(n.type == "table_open" for n in found) == 1
    assert sum(n.type == "tr_open" for n in found) == 1 + len(rows)
    cells = [shown(n) for n in found if n.type == "inline"]
    assert cells == [one_line(head), "n", *(one_line(cell) for row in rows for cell in row), "after"]


@MORE
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_code_block_keeps_its_text(texts: list[str]) -> None:
    found = nodes("\n\n".join(map(markdown_code_block, texts)))
    assert [n.type for n in found] == ["fence"] * len(texts)
    assert [n.content for n in found] == [terminal_text(text) + "\n" for text in texts]
    assert not any(n.info for n in found)


@MORE
@given(TEXTS)
def test_json_and_yaml_are_plain_and_equal_when_read_back(text: str) -> None:
    value = {text: [text, 1.5, None], "script": "Größe 心"}
    for written, read in ((json_text(value), json.loads), (yaml_text(value), yaml.safe_load)):
        assert terminal_text(written) == written
        assert "\r" not in written
        assert read(written) == value
    assert "Größe 心" in json_text(value)


@MORE
@given(TEXTS)
def test_a_spreadsheet_computes_no_cell(text: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer).writerow([csv_cell(text), "end"])
    ((cell, _),) = csv.reader(io.StringIO(buffer.getvalue(), newline=""))
    assert cell in (terminal_text(text), "'" + terminal_text(text))
    number = re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", cell.strip(), re.IGNORECASE)
    assert number or cell.strip()[:1] not in tuple("=+-@＝＋－＠")
    assert number or cell[:1] not in ("\t", "\n", "\r")


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (-1.5, -1.5), (None, None), ("-12", "-12"), ("+1.5e-3", "+1.5e-3"), ("-1+1", "'-1+1"), ("plain", "plain"),
        ("=1", "'=1"), ("@x", "'@x"), ("a=1", "a=1"), ("\t=1", "'\t=1"), ("\r=1", "\\x0d=1"), ("", ""),
    ],
)  # fmt: skip
def test_cells(value: object, cell: object) -> None:
    assert csv_cell(value) == cell


def test_a_log_keeps_its_own_colours_and_shows_others() -> None:
    inner = logging.Formatter("\x1b[32m%(levelname)s\x1b[0m %(message)s")
    try:
        raise ValueError("\x1b]0;owned\x07")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "of %s", ("\x1b[2J",), sys.exc_info())
    told = TerminalFormatter(inner).format(record)
    assert told.startswith("\x1b[32mERROR\x1b[0m of \\x1b[2J\nTraceback")
    assert told.endswith("ValueError: \\x1b]0;owned\\x07")
    assert record.getMessage() == "of \x1b[2J"  # other handlers get it as it was
    assert inner.format(record).endswith("\x07")


def test_a_traceback() -> None:
    try:
        raise ValueError("\x1b]0;owned\x07")
    except ValueError as error:
        told = traceback_text(type(error), error, error.__traceback__)
    assert told.endswith("ValueError: \\x1b]0;owned\\x07\n")


def test_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress_bar(range(3), what="load \x1b[2J", unit=" rows")) == [0, 1, 2]
    assert "\rload \\x1b[2J:   0%" in terminal.getvalue()
    assert "\x1b[2J" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")  # it is gone
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert list(progress_bar([1], what="x", unit="y")) == [1]
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


class Parsed(HTMLParser):
    """What an HTML text consists of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, object]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("end", tag))

    def handle_data(self, data: str) -> None:
        self.found.append(("text", data))


@MORE
@given(TEXTS)
@example("</script><script>alert(1)</script>")
@example("\" onclick='x'")
def test_html_shows_the_text_in_elements_and_attributes(text: str) -> None:
    found = Parsed(f'<p title="{html_text(text)}">{html_text(text)}</p>').found
    shown = terminal_text(text)
    assert found == [("p", [("title", shown)]), *([("text", shown)] if shown else []), ("end", "p")]
    assert not OBEYED.search(html_text(text))


@MORE
@given(TEXTS)
@example("</script><script>alert(1)</script>")
@example("<!--<script>")
@example("\u2028")
def test_json_in_html_stays_in_its_element(text: str) -> None:
    made = html_json({text: [text, 1, None, True, (2.5,)]})
    found = Parsed(f"<script>{made}</script>").found
    assert found == [("script", []), ("text", made), ("end", "script")]
    shown = terminal_text(text)
    assert json.loads(made) == {shown: [shown, 1, None, True, [2.5]]}
    assert not re.search("[<>&\u2028\u2029]", made)


def test_json_in_html_is_what_a_browser_reads() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        html_json([float("nan")])
