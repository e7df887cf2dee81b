"""STaRK's questions: two CSV files and lists of ids per split."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skb_pipeline.datasets.records import RawQuery, SourceError
from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.layout import Flavour

SPLITS = ("train", "val", "test")
HUMAN, SYNTHESIZED = "human", "synthesized"


@dataclass(frozen=True)
class QuestionFiles:
    """Paths of the files of one data set; ``human`` and ``sample`` are None where they are absent."""

    questions: Path
    human: Path | None
    splits: dict[str, Path]
    sample: Path | None

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        optional = [path for path in (self.human, self.sample) if path is not None]
        return [self.questions, *self.splits.values(), *optional]


def find_questions(folder: Path, flavour: Flavour) -> QuestionFiles | None:
    """The files below ``folder``: in ``qa/FLAVOUR`` (as on the hub), ``FLAVOUR`` or ``folder`` itself; None if absent.

    Raises:
        FileNotFoundError: questions without their splits.
    """
    for place in (folder / "qa" / flavour, folder / flavour, folder):
        questions = place / "stark_qa" / layout.QUESTIONS
        if questions.is_file():
            splits = {split: place / "split" / f"{split}.index" for split in SPLITS}
            missing = [str(path) for path in splits.values() if not path.is_file()]
            if missing:
                raise FileNotFoundError(f"{questions} has no splits: {', '.join(missing)} are missing")
            human = questions.with_name(layout.HUMAN_QUESTIONS)
            sample = place / "split" / f"{layout.TEST_SAMPLE}.index"
            return QuestionFiles(
                questions, human if human.is_file() else None, splits, sample if sample.is_file() else None
            )
    return None


def read_questions(
    files: QuestionFiles, *, kinds: tuple[str, ...], test_sample: bool, out_of_scope: Counter[str]
) -> Iterator[RawQuery]:
    """Questions of the wanted kinds. Written by people: ids ``human-ID``, all in the split test.

    Args:
        files: where they are.
        kinds: ``synthesized``, ``human`` or both.
        test_sample: of the synthesized test questions only STaRK's fixed tenth, the others count as out of scope.
            Without it that tenth is still marked, by ``sample``, where its file is present.
        out_of_scope: counts what is left out.

    Raises:
        SourceError: a row that cannot be read, a question in no split or in two, a sample that is asked for but absent
            or not a part of the test questions.
    """
    if SYNTHESIZED in kinds:
        split_of = _read_splits(files.splits)
        sample = _read_sample(files.sample, split_of)
        if test_sample and sample is None:
            raise SourceError(f"test_sample is asked for, but {layout.TEST_SAMPLE}.index is not there")
        for row, number, query, answers in _rows(files.questions):
            split = split_of.pop(number, None)
            if split is None:
                raise SourceError(f"{files.questions.name}:{row}: question {number} is in none of the splits")
            if test_sample and sample is not None and split == "test" and number not in sample:
                out_of_scope[f"test questions outside {layout.TEST_SAMPLE}"] += 1
                continue
            part = layout.TEST_SAMPLE if sample is not None and number in sample else None
            yield RawQuery(files.questions.name, row, str(number), query, split, answers, SYNTHESIZED, part)
        if split_of:
            number, split = next(iter(split_of.items()))
            raise SourceError(f"{split}.index: question {number} is not in {files.questions.name}")
    if HUMAN in kinds and files.human is not None:
        for row, number, query, answers in _rows(files.human):
            yield RawQuery(files.human.name, row, f"human-{number}", query, "test", answers, HUMAN)


def _read_splits(paths: dict[str, Path]) -> dict[int, str]:
    split_of: dict[int, str] = {}
    for split, path in paths.items():
        for number in _read_ids(path):
            if number in split_of:
                raise SourceError(f"{path.name}: question {number} is also in {split_of[number]}.index")
            split_of[number] = split
    return split_of


def _read_sample(path: Path | None, split_of: dict[int, str]) -> dict[int, None] | None:
    if path is None:
        return None
    sample = _read_ids(path)
    strange = [number for number in sample if split_of.get(number) != "test"]
    if strange:
        raise SourceError(f"{path.name}: {len(strange)} questions are not in test.index, such as {strange[0]}")
    return sample


def _read_ids(path: Path) -> dict[int, None]:
    """Distinct question ids, one per line, in order."""
    found: dict[int, None] = {}
    for row, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            found[_whole_number(line.strip(), f"{path.name}:{row}")] = None
    return found


def _rows(path: Path) -> Iterator[tuple[int, int, str, list[str]]]:
    """(line where the row ends, id, question, answers). Texts stay as they are: ``NA`` is a text like any other."""
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        missing = {"id", "query", "answer_ids"} - set(reader.fieldnames or ())
        if missing:
            raise SourceError(f"{path.name}: columns {sorted(missing)} are missing")
        try:
            for values in reader:
                where = f"{path.name}:{reader.line_num}"
                if None in values or None in values.values():
                    raise SourceError(f"{where}: the row does not have as many columns as the header")
                yield (
                    reader.line_num,
                    _whole_number(values["id"], f"{where}: id"),
                    values["query"],
                    _answers(values["answer_ids"], f"{where}: answer_ids"),
                )
        except csv.Error as error:
            raise SourceError(f"{path.name}:{reader.line_num}: {error}") from error


def _whole_number(text: str, where: str) -> int:
    # Not int(): to Python "13924_12592" is a number.
    if not (text.isascii() and text.isdigit()):
        raise SourceError(f"{where}: a whole number was expected, not {text[:80]!r}")
    return int(text)


def _answers(text: str, where: str) -> list[str]:
    """Answers as text. Read as JSON and as nothing else: the file is data, not a program."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SourceError(f"{where}: not a JSON list: {text[:80]!r}") from error
    if not isinstance(found, list) or any(not isinstance(item, int) or isinstance(item, bool) for item in found):
        raise SourceError(f"{where}: a list of whole numbers was expected, not {text[:80]!r}")
    return [str(item) for item in found]
