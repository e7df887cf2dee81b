"""The view of traces: its columns, where their values come from, and that the documentation names them all."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import skb_pipeline
from skb_pipeline.evaluation.buckets import MISSES, Bucket, Rule
from skb_pipeline.evaluation.trace_view import COLUMNS, SHOWN, trace_view
from skb_pipeline.evaluation.traces import TRACES

DOCS = Path(skb_pipeline.__file__).parent.parent / "docs" / "metrics.md"
PLAN = {"anchors": [{"var": "a", "text": "DSP"}, {"var": "b", "text": "nobody"}], "hops": []}
LINKS = {"a": [{"name": "DSP"}, {"name": "DSPP"}], "b": []}


def test_a_row_joins_plan_links_and_ranks() -> None:
    empty = dict.fromkeys(TRACES.names)
    traces = pd.DataFrame(
        [
            {**empty, "query_id": "q1", "query": "one", "split": "test", "n_cand": 3, "bucket": "1-10", "n_answers": 2,
             "plan": json.dumps(PLAN), "links": json.dumps(LINKS), "unlinked": json.dumps({"b": "no such name"})},
            {**empty, "query_id": "q2", "query": "two", "split": "val", "n_answers": 0},
        ]
    )  # fmt: skip
    misses = pd.DataFrame(
        [("bm25", "q1", 4, None, None, None), ("fused", "q1", 21, "ranked below", "why", "gold anchors")],
        columns=MISSES.names,
    )
    view = trace_view(traces, misses, "fused")
    assert list(view.columns) == [*COLUMNS, "bm25_rank", "fused_rank"]
    one, two = (row.dropna().to_dict() for _, row in view.iterrows())
    expected = {
        "anchors": "DSP; nobody", "n_anchors": 2, "linked": "DSP; DSPP", "unlinked": "no such name", "n_unlinked": 1,
        "n_cand": 3, "n_cand_bucket": "1-10", "bucket": "ranked below", "bucket_cause": "why",
        "bucket_rule": "gold anchors", "final_rank": 21, "bm25_rank": 4, "fused_rank": 21,
    }  # fmt: skip
    assert {name: one[name] for name in expected} == expected
    assert {"query_id": "q2", "n_anchors": 0, "n_unlinked": 0}.items() <= two.items()
    assert not {"bucket", "final_rank", "bm25_rank", "anchors", "n_cand"} & set(two)
    other = trace_view(traces, misses, "bm25").iloc[0]
    assert (other["final_rank"], other["bucket"]) == (4, None)


def test_the_documentation_names_every_column_bucket_and_rule() -> None:
    text = DOCS.read_text()
    assert not [name for name in (*COLUMNS, *Bucket, *Rule) if f"`{name}`" not in text]
    assert set(SHOWN) <= set(COLUMNS)
