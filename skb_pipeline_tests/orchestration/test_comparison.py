"""Two versions of a metric table: a change of one thing is told as that one thing."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.evaluation.history import append_history, history_rows
from skb_pipeline.evaluation.metrics import QUERY_METRICS
from skb_pipeline.orchestration.lineage import behind
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.storage.artifacts import Recipe
from skb_pipeline.workspace import Workspace

QUESTIONS = ["q1", "q2", "q3", "q4"]


def put(asset: str, version: str, write: Any = None, **recipe: Any) -> dict[str, str]:
    """A version of an artefact, as an input of the next."""
    with Workspace().store.write(Recipe("mini", asset, **{"code_version": "asset 1", **recipe}), "run") as draft:
        if write is not None:
            write(draft.path)
        draft.finish(version, {})
    return {asset: version}


def table(day: int, reciprocal: list[float], *, k1: float = 1.2, code: str = "a.b 1, asset 1") -> None:
    """A version of the table of one system, with 1/rank of the first answer of each question."""
    queries = pd.DataFrame(
        {"query_id": q, "query": f"Text of {q}", "split": "test", "answer_ids": [1], "origin": "given"}
        for q in QUESTIONS
    ).reindex(columns=QUERIES.names)
    asked = put("questions/queries", "q", lambda folder: QUERIES.write(folder, queries.astype(object)))
    ranking = put("ranking/bm25", f"r{reciprocal}", inputs=asked, config={"lexical": {"k1": k1}}, code_version=code)
    own = pd.DataFrame({"query_id": QUESTIONS, "split": "test", "mrr": reciprocal})
    own = own.reindex(columns=QUERY_METRICS.names).fillna(dict.fromkeys(QUERY_METRICS.names, 0))
    measured = put(
        "evaluation/query_metrics_bm25", f"m{reciprocal}", lambda folder: QUERY_METRICS.write(folder, own),
        inputs={**ranking, **asked},
    )  # fmt: skip
    put("evaluation/metrics", f"table-{day}", inputs={**measured, **asked})
    row = {"dataset": "mini", "system": "bm25", "split": "test", "slice": "all", "metric": "mrr", "n_queries": 4}
    rows = pd.DataFrame([{**row, "value": sum(reciprocal) / 4, "lineage": json.dumps(ranking)}])
    store = Workspace().store
    made = behind(store.require("mini", "evaluation/metrics"), store)
    entry = history_rows(
        rows, time=f"2026-01-0{day}T00:00:00+00:00", run_id=f"run-{day}", table_version=f"table-{day}",
        provenance=[one.as_json() for one in made],
    )  # fmt: skip
    append_history(Workspace().history("mini"), entry)


def compare(*args: str) -> Result:
    return CliRunner().invoke(cli, ["compare", "--dataset", "mini", *args])


def told(*args: str) -> dict[str, Any]:
    done = compare(*args, "--format", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_setting_and_one_question(home: Path) -> None:
    table(1, [1.0, 1 / 2, 1 / 3, 0.0])
    table(2, [1.0, 1 / 2, 1 / 7, 0.0], k1=0.9)
    found = told()
    assert (found["old"]["table_version"], found["new"]["run_id"]) == ("table-1", "run-2")
    assert found["differences"] == [
        {"kind": "setting", "name": "lexical.k1", "old": 1.2, "new": 0.9, "assets": ["ranking/bm25"]}
    ]
    assert set(found["artefacts"]) == {"ranking/bm25", "evaluation/query_metrics_bm25", "evaluation/metrics"}
    (number,) = found["numbers"]
    assert number["change"] == pytest.approx((1 / 7 - 1 / 3) / 4)
    assert found["questions"] == [
        {"system": "bm25", "split": "test", "query_id": "q3", "query": "Text of q3", "old": 3, "new": 7}
    ]
    shown = compare().stdout
    assert "setting lexical.k1: 1.2 → 0.9 (ranking/bm25)" in shown
    assert "1 questions moved" in shown


def test_what_moves_the_mean_most_stands_first_and_an_unlisted_answer_has_no_rank(home: Path) -> None:
    table(1, [1.0, 1 / 2, 1 / 100, 0.0])
    table(2, [1 / 2, 1 / 2, 1 / 900, 1 / 4], code="a.b 2, asset 1")
    found = told()
    assert [(one["query_id"], one["old"], one["new"]) for one in found["questions"]] == [
        ("q1", 1, 2), ("q4", None, 4), ("q3", 100, 900),
    ]  # fmt: skip
    assert found["differences"] == [{"kind": "code", "name": "a.b", "old": "1", "new": "2", "assets": ["ranking/bm25"]}]
    assert [line.split()[:5] for line in compare("--questions", "2").stdout.splitlines()[-2:]] == [
        ["bm25", "test", "q1", "1", "2"], ["bm25", "test", "q4", "-", "4"],
    ]  # fmt: skip


def test_what_comes_out_otherwise_without_a_reason_is_marked(home: Path) -> None:
    table(1, [1.0, 1.0, 1.0, 1.0])
    table(2, [1.0, 1.0, 1.0, 0.5])
    found = told()
    assert found["differences"] == []
    assert found["artefacts"]["ranking/bm25"] == "made from the same, and yet another"
    assert found["artefacts"]["evaluation/metrics"] == ""


def test_after_gc_settings_and_numbers_are_told_and_lost_ranks_are_said_to_be(home: Path) -> None:
    for day, k1 in ((1, 1.2), (2, 0.9), (3, 0.7)):
        table(day, [1.0, 1 / (day + 1), 0.0, 0.0], k1=k1)
    assert told("table-1", "table-3")["questions"][0]["old"] == 2
    Workspace().store.collect_garbage("mini")
    found = told("2026-01-01", "run-3")
    assert [(one["old"], one["new"]) for one in found["differences"]] == [(1.2, 0.7)]
    assert found["numbers"][0]["change"] == pytest.approx((1 / 4 - 1 / 2) / 4)
    assert found["questions"] == []
    assert found["questions not told"] == {
        "bm25": "the rows per question of the old version are gone (`gc` keeps the last two)"
    }
    assert (
        "Questions of bm25: the rows per question of the old version are gone" in compare("table-1", "table-3").stderr
    )
    assert told()["questions"][0] == {
        "system": "bm25", "split": "test", "query_id": "q2", "query": "Text of q2", "old": 3, "new": 4,
    }  # fmt: skip


def test_names_of_versions(home: Path) -> None:
    table(1, [1.0, 0.5, 0.5, 0.5])
    assert "there is no version of the metric table before that one" in compare().stderr
    table(2, [1.0, 0.5, 0.5, 0.0])
    for args, message in (
        (
            ["tabel-1"],
            "unknown version 'tabel-1' of the metric table; there are: table-1, table-2; near to it: table-1",
        ),
        (["table-"], "'table-' means several versions: table-1, table-2"),
        (["table-1", "table-2", "--system", "bm52"], "unknown system 'bm52'; there are: bm25; near to it: bm25"),
    ):
        failed = compare(*args)
        assert (failed.exit_code, failed.stdout) == (1, "")
        assert message in failed.stderr
    assert told("table-2", "table-1")["numbers"][0]["change"] == pytest.approx(0.125)
