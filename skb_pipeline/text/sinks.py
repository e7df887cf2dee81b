"""Where text of others is shown: one function per sink, so that what is data there stays data.

Text of a source, a question, a plan, a model's reply or a server's error may hold anything. Shown raw, a terminal obeys
it, Markdown becomes pictures and links, and a spreadsheet computes it. What writes to people goes through here; files
for machines (artefacts, import files of Neo4j, STaRK's own files) hold the text as it is.

Everywhere, characters that nobody sees become visible: ``\\xNN``, ``\\uNNNN``. These are the controls of terminals
(ESC, BEL, backspace, the C1 set), marks that turn the writing direction, and broken surrogates, which no output takes.
"""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from skb_pipeline.text.invisible import INVISIBLE

if TYPE_CHECKING:
    from tqdm import tqdm

_HIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb\ud800-\udfff{INVISIBLE}]")
"""All that is not to reach a screen; line feed and tab are left to each sink."""
_LINE_ENDS = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

# ------------------------------------------------------------------------------------------------------- terminals


def terminal_text(text: str) -> str:
    """``text`` of several lines for a terminal or a log. Line feeds and tabs stay; a second call changes nothing."""
    return _HIDDEN.sub(_visible, text.replace("\r\n", "\n"))


def terminal_line(text: str) -> str:
    """The same for one line, such as a cell of a table: line feeds, tabs and returns are shown as ``\\n``, ``\\t``,
    ``\\r``."""
    for char, shown in _LINE_ENDS.items():
        text = text.replace(char, shown)
    return terminal_text(text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class TerminalFormatter(logging.Formatter):
    """What another formatter makes, with message and traceback as :func:`terminal_text`; colours of its own stay.

    Args:
        inner: adds time, level, colours; default: the message alone.
    """

    def __init__(self, inner: logging.Formatter | None = None) -> None:
        super().__init__()
        self._inner = inner or logging.Formatter("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One record; it is not changed, as other handlers get it too."""
        safe = logging.makeLogRecord(record.__dict__)
        safe.msg, safe.args = terminal_text(record.getMessage()), ()
        if safe.exc_info and not safe.exc_text:
            safe.exc_text = self._inner.formatException(safe.exc_info)
        if safe.exc_text:
            safe.exc_text = terminal_text(safe.exc_text)
        return self._inner.format(safe)


def progress_bar(over: Iterable[Any] | None = None, *, what: str, unit: str, total: int | None = None) -> tqdm[Any]:
    """A bar on stderr that goes when it is done; nothing where stderr is no terminal.

    Args:
        over: what is gone through; None where ``update`` is called.
        what: stands before the bar.
        unit: of the count.
        total: how many there will be, if that is known.
    """
    from tqdm import tqdm

    return tqdm(over, desc=terminal_line(what), unit=unit, total=total, disable=None, leave=False)


def traceback_text(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """A traceback as Python prints it, for a terminal."""
    import traceback

    return terminal_text("".join(traceback.format_exception(kind, error, trace)))


# -------------------------------------------------------------------------------------------------- JSON, YAML, CSV


def json_text(value: Any) -> str:
    """``value`` as indented JSON. Letters of all scripts stay readable; what would be hidden is escaped, so that the
    text is plain on a terminal and equal when it is read back."""
    # Outside strings JSON has no such character, and inside ``\\uNNNN`` is the same character.
    return _HIDDEN.sub(lambda m: f"\\u{ord(m.group()):04x}", json.dumps(value, indent=1, ensure_ascii=False))


def yaml_text(value: Any) -> str:
    """``value`` as YAML, block style, keys in their order; escaped where something would be hidden."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    if _HIDDEN.search(text) is None:
        return text
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=100)


_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\n]")
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def csv_cell(value: Any) -> Any:
    """A value for a CSV file that people open in a spreadsheet.

    Text that would be computed there gets an apostrophe in front, which makes it text. Numbers stay as they are, also
    those that are written as text.
    """
    if not isinstance(value, str):
        return value
    text = terminal_text(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


# --------------------------------------------------------------------------------------------------------- Markdown

_MARKUP = re.compile(
    # What GitHub's Markdown makes links of by itself, also where it is escaped; only code is never looked at. One
    # piece of code for neighbours, since two pieces would join their backticks.
    r"(?P<link>(?:://|(?<=www)\.|@(?=[-\w]*\.))+)"
    r"|(?P<sign>[\\`*_\[\]<>#|~&])"
    # Lists, rules and underlines of headings, which count only at the beginning.
    r"|\A(?P<first>[-+=:])(?!\d)|\A(?P<number>\d+)(?P<dot>[.)])(?!\d)",
    re.IGNORECASE,
)


def markdown_text(text: str) -> str:
    """``text`` as one line of Markdown that shows just these characters: no heading, list, link, picture or HTML, and
    no end of a table's cell. Runs of blanks and line ends become one blank."""
    line = re.sub(r"[ \t\r\n]+", " ", text).strip()  # readers of Markdown drop blanks of all kinds at the ends
    return _MARKUP.sub(_escaped, terminal_text(line))


def _escaped(match: re.Match[str]) -> str:
    if match["link"] is not None:
        return f"`{match['link']}`"
    if match["number"] is not None:
        return f"{match['number']}\\{match['dot']}"
    return f"\\{match.group()}"


def markdown_code_block(text: str) -> str:
    """``text`` of several lines as a block of code, fenced by more backticks than any run inside has."""
    shown = terminal_text(text)
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{shown}\n{fence}"


class Markdown(str):
    """Text that is Markdown already, of one line, made by a function of this module."""


def markdown_link(text: str, target: str) -> Markdown:
    """A link to a page of the UI.

    Args:
        text: what is shown.
        target: a path that begins with one slash, with nothing of a source in it but what is percent-encoded here.
    """
    return Markdown(f"[{markdown_text(text)}]({quote(target, safe='/?=&')})")


def markdown_list(items: Iterable[str]) -> str:
    """A list with one item per text."""
    return "\n".join(f"- {markdown_text(item)}" for item in items)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers_from: int | None = None) -> str:
    """A table; each cell shows ``str`` of its value and nothing more, or is :class:`Markdown`.

    Args:
        header: names of the columns.
        rows: each as long as the header.
        numbers_from: columns from this one on are aligned to the right.
    """
    rule = ["---" if numbers_from is None or i < numbers_from else "---:" for i in range(len(header))]
    body = [[_markdown_cell(cell) for cell in line] for line in [header, *rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in [body[0], rule, *body[1:]])


def _markdown_cell(value: Any) -> str:
    return value if isinstance(value, Markdown) else markdown_text(str(value))


# -------------------------------------------------------------------------------------------------------------- HTML


def html_text(text: str) -> str:
    """``text`` for the content of an HTML element, or for an attribute in quotes: shown as these characters."""
    return html.escape(terminal_text(text))


def html_json(value: Any) -> str:
    """``value`` as JSON for a ``<script type="application/json">``, whatever its texts hold: nothing in them ends the
    element or begins a comment. Hidden characters of texts, keys too, are shown as :func:`terminal_text` does, since
    they are read back to be shown.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(_shown(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda m: f"\\u{ord(m.group()):04x}", text)  # these stand in texts only


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return terminal_text(value)
    if isinstance(value, dict):
        return {terminal_text(key): _shown(inner) for key, inner in value.items()}
    return [_shown(inner) for inner in value] if isinstance(value, list | tuple) else value
