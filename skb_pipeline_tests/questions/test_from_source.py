"""Questions of a source: answers looked up, faults counted, answers seen in training marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from skb_pipeline.datasets.records import RawQuery
from skb_pipeline.questions.frame import QUERIES, seen_answers
from skb_pipeline.questions.from_source import queries_from_source
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import ListSource, toy_spec


def asked(query_id: str, split: str, answers: list[str]) -> RawQuery:
    return RawQuery("qa.csv", 1, query_id, f"question {query_id}?", split, answers)


def test_seen_answers_are_marked_for_test_questions_only(tmp_path: Path) -> None:
    ingest(toy_spec(), ListSource([("product", i, {"title": i}) for i in "012"]), tmp_path / "s.duckdb")
    queries = [
        asked("a", "test", ["1", "2"]),
        asked("b", "test", ["0"]),
        asked("c", "train", ["2", "gone", "2"]),
        asked("d", "val", ["2"]),
        asked("e", "test", ["gone"]),
    ]
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        frame, report = queries_from_source(con, queries, ["product"])
    assert list(frame["seen_answer"]) == [True, False, None, None, True]
    assert QUERIES.table(frame)["seen_answer"].to_pylist() == [True, False, None, None, True]
    assert (report.repeated_answers, report.absent_answers) == (1, {"train": 1, "test": 1})


@pytest.mark.parametrize("splits", [[], ["train"], ["test"]])
def test_without_training_or_test_questions_nothing_is_seen(splits: list[str]) -> None:
    assert seen_answers(splits, [[1]] * len(splits)) == [False if split == "test" else None for split in splits]
