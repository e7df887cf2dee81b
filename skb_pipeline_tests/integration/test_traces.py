"""Traces as a user searches them, and the report, on a finished home."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.evaluation.buckets import BUCKET_ROWS, MISSES, WIDE, WITHIN
from skb_pipeline.evaluation.metrics import QUERY_METRICS
from skb_pipeline.evaluation.trace_view import COLUMNS
from skb_pipeline.evaluation.traces import TRACES
from skb_pipeline.workspace import Workspace

SYSTEMS = ["bm25", "dense", "graph", "text", "fused"]


def call(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def found(condition: str, *args: str) -> list[dict[str, Any]]:
    result = call("traces", "--dataset", "mini", "--where", condition, "--format", "json", "--limit", "0", *args)
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


def test_traces_agree_with_the_metrics(finished_home: Path) -> None:
    store = Workspace().store
    rows = found("true", "--columns", "all")
    assert list(rows[0]) == [*COLUMNS, *(f"{system}_rank" for system in SYSTEMS)]
    for system in SYSTEMS:
        measured = QUERY_METRICS.read(store.require("mini", f"evaluation/query_metrics_{system}"))
        first = {row["query_id"]: row[f"{system}_rank"] for row in rows}
        mrr = [1 / first[q] if first[q] else 0.0 for q in measured["query_id"]]
        assert mrr == pytest.approx(measured["mrr"].tolist())
    assert all(row["final_rank"] == row["fused_rank"] for row in rows)

    wanted = [r["query_id"] for r in rows if r["graph_rank"] and r["graph_rank"] > 5 and r["split"] == "test"]
    assert wanted
    assert [row["query_id"] for row in found("graph_rank > 5", "--split", "test", "--columns", "query_id")] == wanted
    assert [row["query_id"] for row in found("final_rank > 5", "--split", "test", "--system", "graph")] == wanted

    # Every missed question is in one bucket, and a found one in none.
    missed = found("true", "--system", "graph", "--columns", "bucket,graph_rank,bucket_rule")
    assert {row["bucket"] for row in missed if row["graph_rank"] and row["graph_rank"] <= WITHIN} == {None}
    assert all(row["bucket"] and row["bucket_rule"] == "gold anchors" for row in missed if
               row["graph_rank"] is None or row["graph_rank"] > WITHIN)  # fmt: skip


def test_buckets_are_counted(finished_home: Path) -> None:
    artifact = Workspace().store.require("mini", "evaluation/traces")
    misses = MISSES.read(artifact).merge(TRACES.read(artifact, ["query_id", "split"]), on="query_id")
    counted = json.loads(call("traces", "--dataset", "mini", "--buckets", "--format", "json").stdout)
    assert [row["system"] for row in counted] == SYSTEMS
    for row in counted:
        own = misses[(misses["system"] == row["system"]) & (misses["split"] == "test")]
        assert row["found"] == int((own["rank"] <= WITHIN).sum())
        assert sum(row[name] for name in WIDE[2:]) == row["n"] == len(own)
    assert "| graph | " in artifact.manifest["markdown"]["test misses"]
    rows = BUCKET_ROWS.read(artifact)
    assert pd.Series(["all", "answers=1"]).isin(rows["slice"]).all()
    shown = call("traces", "--dataset", "mini", "--buckets", "--slice", "answers=1", "--system", "graph").stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["system", "graph"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["traces", "--where", "graph_rnk = 1"], "unknown column 'graph_rnk'"),
        (["traces", "--where", "graph_rnk = 1"], "near to it: graph_rank"),
        (["traces", "--where", "true; ATTACH 'x.db'"], "the condition is no expression"),
        (["traces", "--columns", "query,quer"], "unknown column 'quer'"),
        (["traces", "--system", "fusde"], "near to it: fused"),
        (["traces", "--buckets", "--slice", "answer=1"], "near to it: answers=1"),
        (["report", "fused", "bm52"], "near to it: bm25"),
        (["report", "fused", "fused"], "fused is named twice"),
        (["report", "fused", "bm25", "--split", "tset"], "near to it: test"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(
    args: list[str], told: str, materialised_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKB_HOME", str(materialised_home))
    result = call(args[0], "--dataset", "mini", *args[1:])
    assert result.exit_code == 1
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_report_tells_what_the_metrics_say(finished_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "report.html"
    result = call("report", "--dataset", "mini", "fused", "bm25", "--out", str(file))
    assert (result.exit_code, result.stdout) == (0, f"{file}\n"), result.output
    text = file.read_text()
    data = json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    ranks = {q["id"]: (q["a"]["rank"], q["b"]["rank"]) for q in data["questions"]}
    assert ranks == {r["query_id"]: (r["fused_rank"], r["bm25_rank"])
                     for r in found("split = 'test'", "--columns", "query_id,fused_rank,bm25_rank")}  # fmt: skip
    rows = json.loads(call("metrics", "--dataset", "mini", "--format", "json").stdout)
    for row in rows:
        if row["system"] in ("fused", "bm25") and row["metric"] == "mrr":
            assert f"{row['value']:.3f} [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" in text
    differences = call("metrics", "--dataset", "mini").stdout
    (line,) = [line for line in differences.splitlines() if line.startswith("bm25") and "+" in line]
    assert line.split("  ")[-1].strip() in text
    first = [data["nodes"][q["a"]["first"][0][0]][1] for q in data["questions"]]
    traces = TRACES.read(Workspace().store.require("mini", "evaluation/traces")).set_index("query_id")
    assert first == [json.loads(traces.loc[q["id"], "first"])["fused"]["external_id"] for q in data["questions"]]
    for question in data["questions"]:
        right = [place for place, (_, right) in enumerate(question["a"]["first"], start=1) if right]
        assert (right[0] if right else None) == (question["a"]["rank"] if (question["a"]["rank"] or 99) <= 10 else None)


def test_traces_of_an_earlier_version_say_what_makes_them_anew(finished_home: Path) -> None:
    artifact = Workspace().store.require("mini", "evaluation/traces")
    old = TRACES.read(artifact).drop(columns=["template", "n_answers"])
    old.to_parquet(artifact.file(TRACES.file))
    result = call("traces", "--dataset", "mini")
    assert result.exit_code == 1
    assert "run `skb-pipeline run --dataset mini --to evaluation/traces`" in result.stderr
