"""Questions that come with a source: their answers looked up in the SKB, faults counted, nothing lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb
import pandas as pd

from skb_pipeline.datasets.records import RawQuery
from skb_pipeline.questions.frame import QUERIES, seen_answers
from skb_pipeline.text.cleaning import clean_text

VERSION = "4"


ORIGIN = "source"


@dataclass
class SourceQueriesReport:
    """Counts of :func:`queries_from_source`.

    Attributes:
        splits: questions per split.
        repeated_answers: answers given twice in one question, dropped.
        absent_answers: per split, answers that are no candidate node; they stay in the denominator of Recall.
        absent_examples: up to five of their external ids.
        without_answers: questions without any answer; metrics leave them out and count them.
    """

    splits: dict[str, int] = field(default_factory=dict)
    repeated_answers: int = 0
    absent_answers: dict[str, int] = field(default_factory=dict)
    absent_examples: list[str] = field(default_factory=list)
    without_answers: int = 0

    def metadata(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def queries_from_source(
    con: duckdb.DuckDBPyConnection, queries: Iterable[RawQuery], candidate_types: list[str]
) -> tuple[pd.DataFrame, SourceQueriesReport]:
    """The frame of queries of a source.

    An answer that is no candidate node gets a negative number in place of a node id (the same for the same external
    id), so that it can never be found but still counts.

    Args:
        con: an SKB file.
        queries: raw questions.
        candidate_types: types of possible answers.

    Returns:
        Frame of ``QUERIES`` in the order of the source, and the report.

    Raises:
        ValueError: a query id occurs twice, or an answer's id belongs to candidates of several types.
    """
    known: dict[str, tuple[int, int]] = {}
    for external_id, node_id, canonical in con.execute(
        "SELECT external_id, node_id, canonical FROM nodes WHERE list_contains(?, node_type)", [candidate_types]
    ).fetchall():
        if external_id in known:
            raise ValueError(f"external id {external_id!r} belongs to candidates of several types: answers are unclear")
        known[external_id] = (node_id, canonical)
    report = SourceQueriesReport()
    absent: dict[str, int] = {}
    seen: set[str] = set()
    rows = []
    for raw in queries:
        query_id = clean_text(raw.query_id)
        if query_id in seen:
            raise ValueError(f"{raw.source}:{raw.row}: query id {query_id!r} is used twice")
        seen.add(query_id)
        distinct = list(dict.fromkeys(map(clean_text, raw.answers)))
        report.repeated_answers += len(raw.answers) - len(distinct)
        report.without_answers += not distinct
        report.splits[raw.split] = report.splits.get(raw.split, 0) + 1
        missing = [a for a in distinct if a not in known]
        for answer in missing:
            absent.setdefault(answer, -1 - len(absent))
            report.absent_answers[raw.split] = report.absent_answers.get(raw.split, 0) + 1
        found = sorted((known[a] for a in distinct if a in known), key=lambda pair: pair[1])
        answer_ids = [node_id for node_id, _ in found] + [absent[a] for a in missing]
        rows.append(
            {
                "query_id": query_id,
                "query": clean_text(raw.query),
                "split": raw.split,
                "answer_ids": answer_ids,
                "origin": ORIGIN,
                "template": raw.template,
                "sample": raw.sample,
            }
        )
    report.absent_examples = sorted(absent)[:5]
    frame = pd.DataFrame(rows, columns=QUERIES.names)
    frame["seen_answer"] = seen_answers(frame["split"], frame["answer_ids"])
    return frame.astype(object).where(lambda f: f.notna(), None), report
