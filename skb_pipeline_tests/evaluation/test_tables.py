"""Shape and values of the tables, what is refused, and the file they are kept in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skb_pipeline.evaluation.metrics import CONTRACT, METRICS, query_metrics
from skb_pipeline.evaluation.tables import (
    DIFFERENCE_ROWS,
    METRIC_ROWS,
    CoverageError,
    difference_table,
    holm,
    markdown_table,
    metric_table,
    text_table,
    write_duckdb,
)
from skb_pipeline.storage import duck
from skb_pipeline_tests.evaluation.cases import queries_of, random_case, ranking_of

SETTINGS = {"dataset": "toy", "samples": 300, "seed": 3}


@pytest.fixture(scope="module")
def queries() -> pd.DataFrame:
    _, answers = random_case(0)
    frame = queries_of(answers, template=["t1", "t2", None] * 20, uses_alias=[True] * 30 + [False] * 30)
    frame["split"] = np.where(np.arange(60) < 20, "val", "test")
    return pd.concat([frame, queries_of({"none": []}, template="t9")], ignore_index=True)


@pytest.fixture(scope="module")
def per_system(queries: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {
        name: query_metrics(ranking_of(random_case(seed)[0]), queries) for name, seed in (("graph", 5), ("bm25", 6))
    }


def test_metric_rows(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    rows = metric_table(per_system, queries, **SETTINGS)
    assert rows.columns.tolist() == METRIC_ROWS.names
    keys = ["dataset", "system", "split", "slice", "metric"]
    assert not rows.duplicated(keys).any()
    slices = rows.groupby("split", sort=False)["slice"].unique()
    assert slices.index.tolist() == ["test", "val"]
    assert slices["test"][:3].tolist() == ["all", "template=t1", "template=t2"]
    assert "alias=no" not in slices["val"]
    assert "template=t9" not in set(rows["slice"])  # its one query has no answer
    assert rows["system"].unique().tolist() == ["graph", "bm25"]
    assert rows["metric"][:4].tolist() == list(METRICS)
    assert ((rows["ci_low"] <= rows["value"]) & (rows["value"] <= rows["ci_high"])).all()


def test_metric_values_are_macro_averages(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    rows = metric_table(per_system, queries, **SETTINGS).set_index(["system", "split", "slice", "metric"])
    scores = per_system["bm25"].merge(queries[["query_id", "template"]], on="query_id")
    chosen = scores[(scores["split"] == "test") & (scores["template"] == "t2")]
    row = rows.loc[("bm25", "test", "template=t2", "recall@20")]
    assert row["value"] == pytest.approx(chosen["recall@20"].mean())
    assert row["n_queries"] == len(chosen)
    assert rows.loc[("bm25", "test", "all", "mrr"), "n_queries"] == 40


def test_rows_of_a_system_do_not_depend_on_the_others_or_on_row_order(
    per_system: dict[str, pd.DataFrame], queries: pd.DataFrame
) -> None:
    both = metric_table(per_system, queries, **SETTINGS)
    alone = metric_table({"bm25": per_system["bm25"].iloc[::-1]}, queries.iloc[::-1], **SETTINGS)
    pd.testing.assert_frame_equal(both[both["system"] == "bm25"].reset_index(drop=True), alone, check_exact=True)


def test_difference_rows(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    pairs = [("graph", "bm25"), ("graph", "graph")]
    rows = difference_table(per_system, queries, baseline_pairs=pairs, **SETTINGS)
    assert rows.columns.tolist() == DIFFERENCE_ROWS.names
    assert len(rows) == 2 * 2 * 4  # splits, pairs, metrics
    assert set(rows["slice"]) == {"all"}
    means = metric_table(per_system, queries, **SETTINGS).set_index(["system", "split", "slice", "metric"])["value"]
    first = rows.iloc[3]
    expected = means["graph", "test", "all", "mrr"] - means["bm25", "test", "all", "mrr"]
    assert (first["split"], first["metric"], first["n_queries"]) == ("test", "mrr", 40)
    assert first["difference"] == pytest.approx(expected)
    same = rows[rows["other"] == "graph"]
    assert same[["difference", "ci_low", "ci_high"]].eq(0).all(axis=None)
    assert same["p_value"].eq(1).all()


def test_difference_rows_of_further_slices(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    rows = difference_table(
        per_system, queries, baseline_pairs=[("graph", "bm25")], slices=["alias=no", "all"], **SETTINGS
    )
    assert set(zip(rows["split"], rows["slice"], strict=True)) == {
        ("test", "all"),
        ("test", "alias=no"),
        ("val", "all"),
    }


def test_no_pairs_give_an_empty_table(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    rows = difference_table(per_system, queries, baseline_pairs=[], **SETTINGS)
    assert (len(rows), rows.columns.tolist()) == (0, DIFFERENCE_ROWS.names)


def test_holm_by_hand() -> None:
    given = pd.Series([0.04, 0.01, 0.03, 0.5], index=[7, 3, 5, 1])
    # Sorted .01 .03 .04 .5, times 4 3 2 1: .04 .09 .08 .5, none below the one before it.
    assert holm(given).round(12).to_dict() == {7: 0.09, 3: 0.04, 5: 0.09, 1: 0.5}
    assert holm(pd.Series([0.9, 0.8])).tolist() == [1.0, 1.0]
    assert holm(pd.Series([0.2])).tolist() == [0.2]


def test_p_values_are_corrected_within_split_slice_and_metric(
    per_system: dict[str, pd.DataFrame], queries: pd.DataFrame
) -> None:
    names = list(per_system)
    pairs = [(names[0], names[1]), (names[1], names[0])]
    rows = difference_table(per_system, queries, baseline_pairs=pairs, **SETTINGS)
    # The same comparison from both sides: two equal p values, each doubled.
    assert np.allclose(rows["p_holm"], (2 * rows["p_value"]).clip(upper=1))
    alone = difference_table(per_system, queries, baseline_pairs=pairs[:1], **SETTINGS)
    assert (alone["p_holm"] == alone["p_value"]).all()


def test_systems_must_cover_the_same_queries(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    short = {**per_system, "short": per_system["bm25"].iloc[1:]}
    with pytest.raises(CoverageError, match="system 'short' was not evaluated on query 'q0'"):
        metric_table(short, queries, **SETTINGS)
    with pytest.raises(CoverageError, match=r"'short'.*'q0'"):
        difference_table(short, queries, baseline_pairs=[("graph", "bm25")], **SETTINGS)
    with pytest.raises(CoverageError, match=r"system 'graph'.*not among those compared: 'q3'"):
        metric_table(per_system, queries[queries["query_id"] != "q3"], **SETTINGS)
    twice = {"twice": pd.concat([per_system["bm25"], per_system["bm25"].iloc[:1]])}
    with pytest.raises(CoverageError, match="'twice' has query 'q0' more than once"):
        metric_table(twice, queries, **SETTINGS)


def test_nothing_to_compare(per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="0 systems"):
        metric_table({}, queries, **SETTINGS)
    with pytest.raises(ValueError, match="0 queries with answers"):
        metric_table(per_system, queries_of({"q": []}), **SETTINGS)
    with pytest.raises(ValueError, match="no system 'dense'"):
        difference_table(per_system, queries, baseline_pairs=[("dense", "bm25")], **SETTINGS)


@pytest.fixture(scope="module")
def shown() -> pd.DataFrame:
    rows = [
        ("toy", system, "test", "all", metric, value, value - 0.1, value + 0.1, 40)
        for system, values in (("graph|x", (0.25, 0.5)), ("bm25", (0.125, 0.4996)))
        for metric, value in zip(("hit@1", "mrr"), values, strict=True)
    ]
    return pd.DataFrame(rows, columns=METRIC_ROWS.names)


def test_markdown(shown: pd.DataFrame) -> None:
    lines = markdown_table(shown, split="test", metrics=("mrr", "hit@1")).splitlines()
    assert lines[:4] == [
        "| system | n | mrr | hit@1 |",
        "| --- | ---: | ---: | ---: |",
        r"| graph\|x | 40 | 0.500 \[0.400, 0.600\] | 0.250 \[0.150, 0.350\] |",
        r"| bm25 | 40 | 0.500 \[0.400, 0.600\] | 0.125 \[0.025, 0.225\] |",
    ]
    assert lines[4] == ""
    assert CONTRACT in lines[5]
    assert lines[5].startswith("Dataset toy, split test, slice all.")


def test_text_columns_are_aligned(shown: pd.DataFrame) -> None:
    text = text_table(shown, split="test", metrics=("hit@1", "mrr"))
    lines = text.splitlines()
    assert lines[0].split() == ["system", "n", "hit@1", "mrr"]
    assert len({len(line) for line in lines[:3]}) == 1
    assert lines[1] == "graph|x  40  0.250 [0.150, 0.350]  0.500 [0.400, 0.600]"
    assert CONTRACT in " ".join(text.split())


def test_depth_is_stated_where_it_is_known(shown: pd.DataFrame) -> None:
    deep = shown.assign(depth=[1000, 1000, 100, 100])
    text = text_table(deep, split="test", metrics=("hit@1", "mrr"))
    assert "Depth of the stored lists: graph|x 1000, bm25 100." in " ".join(text.split())


def test_tables_that_cannot_be_shown(shown: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="split 'val' and slice 'all'; there are: test/all"):
        markdown_table(shown, split="val")
    with pytest.raises(ValueError, match=r"'graph\|x' has no rows for hit@5, recall@20"):
        text_table(shown, split="test")
    with pytest.raises(ValueError, match="one dataset, got other, toy"):
        text_table(pd.concat([shown, shown.assign(dataset="other")]), split="test")


def test_duckdb_file(tmp_path: Path, per_system: dict[str, pd.DataFrame], queries: pd.DataFrame) -> None:
    metrics = metric_table(per_system, queries, **SETTINGS).assign(ranking_version="abc", depth=100)
    empty = difference_table(per_system, queries, baseline_pairs=[], **SETTINGS)
    full = difference_table(per_system, queries, baseline_pairs=[("graph", "bm25")], **SETTINGS)
    path = tmp_path / "new" / "report.duckdb"
    write_duckdb(path, metrics, empty)
    with duck.connect(path, read_only=True) as con:
        described = con.execute("SELECT column_name, column_type FROM (DESCRIBE differences)").fetchall()
        assert dict(described) == {
            **dict.fromkeys(("dataset", "system", "other", "split", "slice", "metric"), "VARCHAR"),
            **dict.fromkeys(("difference", "ci_low", "ci_high", "p_value", "p_holm"), "DOUBLE"),
            "n_queries": "BIGINT",
        }
    write_duckdb(path, metrics, full)
    with duck.connect(path, read_only=True) as con:
        stored = con.execute("FROM metrics").df()
        pd.testing.assert_frame_equal(stored, metrics, check_dtype=False)
        assert con.execute("SELECT count(*) FROM differences").fetchone() == (len(full),)
        assert sorted(con.execute("SELECT table_name FROM duckdb_tables()").fetchall()) == [
            ("differences",),
            ("metrics",),
            ("missing",),
        ]
    assert [entry.name for entry in path.parent.iterdir()] == ["report.duckdb"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, shown: pd.DataFrame) -> None:
    path = tmp_path / "report.duckdb"
    path.write_bytes(b"old")
    with pytest.raises(KeyError, match="differences has no column"):
        write_duckdb(path, shown, shown)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.duckdb"]
