"""TREC judgements (qrels): which nodes are relevant to which question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources.tables.files import open_text
from skb_pipeline.text.cleaning import clean_text


def read_qrels(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Question id -> ids of nodes with a relevance above 0, in the order of the files.

    A line is ``question iteration node relevance`` (TREC) or ``question node relevance`` under a line of names (BEIR),
    separated by tabs or blanks. A question with judgements of 0 only has an empty list.

    Raises:
        SourceError: a line that is neither; names file and line.
    """
    judged: dict[str, list[str]] = {}
    for path in paths:
        for number, cells in _lines(path):
            where = f"{path.name}:{number}"
            if number == 1 and not _is_integer(cells[-1]):
                continue
            if len(cells) not in (3, 4) or not _is_integer(cells[-1]):
                raise SourceError(f"{where}: a judgement is 'question 0 node relevance', not {' '.join(cells)[:80]!r}")
            relevant = judged.setdefault(clean_text(cells[0]), [])
            if int(cells[-1]) > 0:
                relevant.append(clean_text(cells[-2]))
    return judged


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with open_text(path, "utf-8") as file:
            for number, line in enumerate(file, start=1):
                cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
                if any(cells):
                    yield number, cells
    except UnicodeDecodeError as error:
        raise SourceError(f"{path.name}: cannot be read: {error}") from error


def _is_integer(text: str) -> bool:
    return text.strip().lstrip("-").isascii() and text.strip().lstrip("-").isdigit()
