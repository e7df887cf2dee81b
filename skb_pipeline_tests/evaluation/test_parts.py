"""A fused system beside the best of its parts: which part, which split, and when it counts as worse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skb_pipeline.evaluation.metrics import METRICS
from skb_pipeline.evaluation.parts import beside_best_parts, worse_than_parts
from skb_pipeline.evaluation.tables import difference_table, metric_table, write_duckdb

PARTS = {"fused": ["bm25", "dense"]}


def tables(hits: dict[str, dict[str, list[float]]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Metric rows and differences; each system's value of every metric, by split and question."""
    splits = {f"{split}{i}": split for split, own in hits["fused"].items() for i in range(len(own))}
    queries = pd.DataFrame({"query_id": splits.keys(), "split": splits.values(), "origin": "source"})
    queries = queries.assign(query="", answer_ids=[[1]] * len(queries), template=None, gold_plan=None)
    frames = {
        name: queries[["query_id", "split"]].assign(
            **dict.fromkeys(METRICS, np.concatenate([*own.values()])), n_answers=1
        )
        for name, own in hits.items()
    }
    settings = {"dataset": "d", "samples": 500, "seed": 1}
    pairs = [("fused", other) for other in hits if other != "fused"]
    return metric_table(frames, queries, **settings), difference_table(
        frames, queries, baseline_pairs=pairs, **settings
    )


WORSE = {
    "bm25": {"val": [1.0] * 30, "test": [0.0] * 30},
    "dense": {"val": [0.5] * 30, "test": [0.9] * 30},
    "fused": {"val": [0.75] * 30, "test": [0.8] * 30},
}


def test_the_best_part_of_the_validation_questions_counts() -> None:
    found = beside_best_parts(*tables(WORSE), PARTS)
    assert [(one.part, one.split, one.metric, one.worse) for one in found] == [
        ("bm25", "val", metric, True) for metric in METRICS
    ]
    assert str(found[0]) == f"{METRICS[0]} of fused minus bm25 on val: -0.250 [-0.250, -0.250]"


def test_test_questions_count_only_where_there_are_no_others_and_the_sentence_says_so() -> None:
    only_test = {name: {"test": own["test"]} for name, own in WORSE.items()}
    found = beside_best_parts(*tables(only_test), PARTS)
    assert {(one.part, one.split) for one in found} == {("dense", "test")}
    assert "fused minus dense on test (there are no validation questions): -0.100" in str(found[0])


def test_a_difference_within_noise_is_not_worse() -> None:
    rng = np.random.default_rng(3)
    noisy = {"fused": {"val": rng.random(40).tolist()}, "bm25": {"val": rng.random(40).tolist()}}
    noisy["fused"]["val"] = [value - 0.01 for value in noisy["bm25"]["val"][::-1]]
    found = beside_best_parts(*tables(noisy), {"fused": ["bm25"]})
    assert found
    assert not any(one.worse for one in found)
    assert all(one.value < 0 for one in found)


def test_parts_that_were_not_compared_are_left_out() -> None:
    rows, differences = tables(WORSE)
    found = beside_best_parts(rows, differences[differences["other"] == "dense"], PARTS)
    assert {(one.part, one.worse) for one in found} == {("dense", False)}
    assert beside_best_parts(rows, differences, {"fused": ["nobody"], "text": ["bm25"]}) == []


def test_a_stored_table_tells_it(tmp_path: Path) -> None:
    rows, differences = (
        table.assign(depth=100, run_id="r", lineage=json.dumps({})) for table in tables(WORSE)
    )  # fmt: skip
    missing = pd.DataFrame(columns=["dataset", "system", "reason"], dtype=str)
    write_duckdb(tmp_path / "metrics.duckdb", rows, differences, missing=missing)
    assert len(worse_than_parts(tmp_path / "metrics.duckdb", PARTS)) == len(METRICS)
    assert worse_than_parts(tmp_path / "metrics.duckdb", PARTS, ["text"]) == []


@pytest.mark.parametrize("split", ["val", "test"])
def test_only_the_slice_of_all_questions_counts(split: str) -> None:
    rows, differences = tables({name: {split: own["val"]} for name, own in WORSE.items()})
    assert beside_best_parts(rows.assign(slice="human"), differences, PARTS) == []
