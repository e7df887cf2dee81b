"""What is printed beside data: tracebacks, warnings, questions; and rows as CSV."""

import csv
import io
import logging
import sys

import pytest
from click.testing import CliRunner

from skb_pipeline.cli.printing import aligned, confirm, plain_messages, print_rows


def test_tracebacks_and_warnings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert logging.lastResort is not None
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging.lastResort, "formatter", logging.lastResort.formatter)
    plain_messages()
    sys.excepthook(ValueError, ValueError("\x1b]0;owned\x07"), None)
    logging.lastResort.handle(logging.LogRecord("x", logging.WARNING, "f", 1, "no dataset: %s", ("\x9b1m",), None))
    assert capsys.readouterr().err == "ValueError: \\x1b]0;owned\\x07\nno dataset: \\x9b1m\n"


def test_a_question_is_one_line() -> None:
    with CliRunner().isolation(input="y\n") as (_, stderr, _output):
        confirm("Remove a\n\x1b[2J?")
        assert stderr is not None
        assert stderr.getvalue() == b"Remove a\\n\\x1b[2J? [y/N]: y\n"


def test_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "=1+1", "n": -2, "score": 0.5}, {"id": "b\nc", "n": 3, "score": -0.25}]
    print_rows(rows, ["id", "n", "score"], "csv")
    read = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert read == [["id", "n", "score"], ["'=1+1", "-2", "0.5"], ["b\nc", "3", "-0.25"]]
    assert aligned(rows, ["id", "n", "score"]).splitlines()[2].split() == ["b\\nc", "3", "-0.2500"]
