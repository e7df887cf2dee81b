"""The frame of queries: its columns and its content hash."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pandas as pd
import pyarrow as pa

from skb_pipeline.storage.duck import content_hash
from skb_pipeline.storage.frames import Column, Frame

SPLITS = ("train", "val", "test")
QUERIES = Frame(
    name="Queries",
    description="Questions with their answers (node ids), split, origin, template and gold plan.",
    file="queries.parquet",
    key=("query_id",),
    columns={
        "query_id": Column(pa.string(), filled=True, unique=True),
        "query": Column(pa.string(), filled=True),
        "split": Column(pa.string(), one_of=SPLITS),
        "answer_ids": Column(pa.list_(pa.int64())),
        "origin": Column(pa.string(), filled=True),
        "template": Column(pa.string()),
        "gold_plan": Column(pa.string()),
        "anchor_ids": Column(pa.list_(pa.struct([("var", pa.string()), ("node_id", pa.int64())]))),
        "wording": Column(pa.string()),
        "style": Column(pa.string()),
        "uses_alias": Column(pa.bool_()),
        "gold_key": Column(pa.string()),
        "seen_answer": Column(pa.bool_()),
        "sample": Column(pa.string()),
    },
)
"""One row per query. ``answer_ids`` are in canonical order; what only questions made from the SKB have
(``template`` to ``gold_key``) is null for questions that came with a source. ``seen_answer`` is that of
:func:`seen_answers`, ``sample`` names a published part of a split (STaRK's ``test-0.1``) and is null elsewhere."""

_BY_EXTERNAL_KEY = """
WITH answers AS (
    SELECT query_id, list(key ORDER BY key) AS answer_keys
    FROM (
        SELECT q.query_id, [coalesce(n.node_type, ''), coalesce(n.external_id, 'unknown id ' || q.node_id)] AS key
        FROM (SELECT query_id, unnest(answer_ids) AS node_id FROM queries_to_hash) q
        LEFT JOIN nodes n USING (node_id)
    ) GROUP BY query_id
), anchors AS (
    SELECT query_id, list(key ORDER BY key) AS anchor_keys
    FROM (
        SELECT q.query_id,
               [q.anchor.var, coalesce(n.node_type, ''), coalesce(n.external_id, 'unknown id ' || q.anchor.node_id)]
                   AS key
        FROM (SELECT query_id, unnest(anchor_ids) AS anchor FROM queries_to_hash) q
        LEFT JOIN nodes n ON n.node_id = q.anchor.node_id
    ) GROUP BY query_id
)
SELECT q.* EXCLUDE (answer_ids, anchor_ids), answers.answer_keys, anchors.anchor_keys
FROM queries_to_hash q LEFT JOIN answers USING (query_id) LEFT JOIN anchors USING (query_id)
"""


def seen_answers(splits: Iterable[str], answers: Iterable[Iterable[object]]) -> list[bool | None]:
    """Whether any answer of a test question is an answer of a training question; None in other splits.

    A trained stage may know such an answer by heart, so metrics are worth telling apart by it.
    """
    rows = [(split, set(own)) for split, own in zip(splits, answers, strict=True)]
    trained = set().union(*(own for split, own in rows if split == "train"))
    return [not trained.isdisjoint(own) if split == "test" else None for split, own in rows]


def queries_hash(frame: pd.DataFrame, con: duckdb.DuckDBPyConnection) -> str:
    """Content hash of queries, with answers and anchors under their external keys.

    Neither row order nor the numbering of the nodes counts. An answer the SKB does not hold keeps its number.

    Args:
        frame: columns of ``QUERIES``; ``query_id`` unique.
        con: connection on the SKB that ``frame`` belongs to.
    """
    with con.cursor() as cursor:  # its registered table is gone with it
        cursor.register("queries_to_hash", QUERIES.table(frame))
        return content_hash(cursor, _BY_EXTERNAL_KEY)
