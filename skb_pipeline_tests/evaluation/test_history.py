"""Old metric rows: nothing is lost when versions are removed, and nothing stands twice."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.evaluation.history import HistoryError, append_history, history_plot, history_rows, read_history
from skb_pipeline.orchestration.running import asset_keys, materialise
from skb_pipeline.workspace import Workspace


def entry(value: float, time: str, version: str, store: str = "s1", run: str | None = "r") -> pd.DataFrame:
    lineage = json.dumps({"ranking/bm25": "k1", "skb/store": store, "questions/queries": "q1"})
    row = {"dataset": "d", "system": "bm25", "split": "test", "metric": "mrr", "n_queries": 3, "lineage": lineage}
    rows = pd.DataFrame([{**row, "slice": name, "value": value, "ci_low": 0.0} for name in ("all", "template=x")])
    return history_rows(rows, time=time, run_id=run, table_version=version, provenance=[{"asset": "a"}])


def test_an_entry_is_added_where_it_tells_something_new(tmp_path: Path) -> None:
    path = tmp_path / "d" / "h.parquet"
    assert append_history(path, entry(0.5, "2026-01-01T00:00:00+00:00", "v1"))
    before = path.stat().st_mtime_ns
    assert not append_history(path, entry(0.5, "2026-01-01T00:00:00+00:00", "v1"))
    assert not append_history(path, entry(0.5, "2026-01-02T00:00:00+00:00", "v1", run="forced"))
    assert path.stat().st_mtime_ns == before
    assert append_history(path, entry(0.6, "2026-01-03T00:00:00+00:00", "v2"))
    assert append_history(path, entry(0.5, "2026-01-04T00:00:00+00:00", "v1")), "back to what it was is news"
    assert append_history(path, entry(0.5, "2026-01-05T00:00:00+00:00", "v1", store="s2")), "of another store"
    rows = read_history(path, provenance=True)
    assert rows.loc[rows["slice"] == "all", ["value", "store_version"]].to_numpy().tolist() == [
        [0.5, "s1"], [0.6, "s1"], [0.5, "s1"], [0.5, "s2"],
    ]  # fmt: skip
    assert len(rows) == 8
    assert rows["ranking_version"].unique().tolist() == ["k1"]
    assert json.loads(rows["provenance"].iloc[0]) == [{"asset": "a"}]
    assert history_plot(rows, split="test").startswith(b"\x89PNG")


def test_a_file_of_fewer_columns_is_read_and_a_damaged_one_named(tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    entry(0.5, "2026-01-01T00:00:00+00:00", "v1").drop(columns="queries_version").to_parquet(path)
    assert append_history(path, entry(0.6, "2026-01-02T00:00:00+00:00", "v2"))
    assert read_history(path)["queries_version"].tolist() == [None, None, "q1", "q1"]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(HistoryError, match=r"h\.parquet cannot be read .*move it away"):
        append_history(path, entry(0.7, "2026-01-03T00:00:00+00:00", "v3"))


def test_rows_outlive_their_versions_and_a_rerun_adds_none(finished_home: Path) -> None:
    def shown(*options: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(cli, ["history", "--dataset", "mini", "--format", "json", *options])
        assert done.exit_code == 0, done.output
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    store, spec = Workspace().store, finished_home / "catalogue" / "mini.yaml"
    text = spec.read_text()
    made = [store.require("mini", "evaluation/metrics")]
    for seed in (1, 2, 3):
        spec.write_text(f"{text}\nevaluation: {{seed: {seed}}}\n")
        materialise("mini", only="evaluation/metrics")
        made.append(store.require("mini", "evaluation/metrics"))
    store.collect_garbage("mini", asset_keys())
    assert [one.path.exists() for one in made] == [True, False, False, True], "the generation's and the current one"
    before = Workspace().history("mini").stat().st_mtime_ns
    (again,) = materialise("mini", only="evaluation/metrics")
    assert again.reused
    assert Workspace().history("mini").stat().st_mtime_ns == before

    rows = shown("--system", "fused", "--metric", "mrr", "--split", "test")
    assert [row["table_version"] for row in rows] == [one.data_version for one in made]
    assert [row["change"] for row in rows] == [None, 0, 0, 0], "another seed moves intervals only"
    assert {row["store_version"] for row in rows} == {store.require("mini", "skb/store").data_version}
    assert rows[-1]["run_id"] == store.require("mini", "evaluation/metrics").manifest["run_id"]
    keys = [tuple(row[k] for k in ("time", "table_version", "system", "split", "slice", "metric")) for row in shown()]
    assert len(set(keys)) == len(keys) == 4 * 5 * 3 * 4, "versions, systems, splits, metrics"
    page = again.metadata["history"]
    assert page.count("![mrr on test over time](data:image/png;base64,") == 1
    failed = CliRunner().invoke(cli, ["history", "--dataset", "mini", "--system", "fusd"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "unknown system 'fusd'; there are: " in failed.stderr
    assert "near to it: fused" in failed.stderr
