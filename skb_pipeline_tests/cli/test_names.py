"""Names that nothing has: one line with what there is and what is spelled alike, whatever is chosen by name."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.cli import cli
from skb_pipeline.errors import unknown_name
from skb_pipeline.evaluation.tables import write_duckdb
from skb_pipeline.evaluation.traces import TRACES
from skb_pipeline.storage.artifacts import Recipe
from skb_pipeline.workspace import METRICS_FILE, Workspace
from skb_pipeline_tests.conftest import write_mini_spec

SPLITS, SLICES = ["test", "val"], ["all", "wording=held_out"]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A home with the metrics and traces of ``mini``, and what a dataset without a spec left behind."""
    folder = tmp_path_factory.mktemp("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKB_HOME", str(folder))
        patch.delenv("SKB_CATALOGUE", raising=False)
        write_mini_spec(folder / "catalogue")
        store = Workspace().store
        one = {"dataset": "mini", "value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n_queries": 3}
        metrics = [
            {**one, "system": system, "split": split, "slice": name, "metric": metric}
            for system in ("bm25", "fused") for split in SPLITS for name in SLICES
            for metric in ("hit@1", "hit@5", "recall@20", "mrr")
        ]  # fmt: skip
        differences = pd.DataFrame(
            columns=["dataset", "system", "other", "split", "slice", "metric", "difference", "ci_low", "ci_high",
                     "p_value", "p_holm", "n_queries"]
        )  # fmt: skip
        with store.write(Recipe("mini", "evaluation/metrics", "1")) as draft:
            write_duckdb(draft.path / METRICS_FILE, pd.DataFrame(metrics), differences)
            draft.finish("v", {})
        empty = dict.fromkeys(TRACES.names)
        rows = [{**empty, "query_id": f"syn-{i:03}", "query": "?", "split": "val", "answers": "[]", "first": "{}"}
                for i in range(100)]  # fmt: skip
        with store.write(Recipe("mini", "evaluation/traces", "1")) as draft:
            TRACES.write(draft.path, pd.DataFrame(rows))
            draft.finish("v", {})
        with store.write(Recipe("gone", "evaluation/metrics", "1")) as draft:
            draft.finish("v", {})
        yield folder


def run_cli(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("metrics --dataset mini --split vall", "unknown split 'vall'; there are: test, val; near to it: val"),
        ("metrics --dataset mini --split TEST --format csv", "there are: test, val, all; near to it: test"),
        ("metrics --dataset mini --slice wording=held-out", "near to it: wording=held_out"),
        ("metrics --dataset mini --slice evry --format json", "near to it: every"),
        ("metrics --dataset mini --split all", "--split all needs --format json or csv"),
        ("metrics --dataset mini --slice every", "--slice every needs --format json or csv"),
        ("metrics --dataset minni", "unknown dataset 'minni'; there are: amazon, demo, gone, hpo, mag, "),
        ("metrics --dataset minni", "; near to it: mini"),
        ("trace --dataset mini syn-1O4", "unknown query 'syn-1O4'; there are 100, such as syn-000, syn-001"),
        ("lineage --dataset mini --system fusd", "unknown system 'fusd'; there are: bm25, fused; near to it: fused"),
        ("lineage --dataset mini --metric hit1", "unknown metric 'hit1'; there are: hit@1, hit@5, recall@20, mrr"),
        ("lineage --dataset mini --split tset", "unknown split 'tset'; there are: test, val; near to it: test"),
        ("history --dataset mini", "no history of metrics yet: run `skb-pipeline run --dataset mini`"),
        ("run --dataset mini --to skb/stores", "near to it: skb/store"),
        ("search --dataset Mini x", "dataset name 'Mini' is not allowed"),
        ("dataset show mini2", "near to it: mini"),
        ("dataset check hpoo", "'hpoo'; there are: amazon, demo, hpo, mag, mini, prime; near to it: hpo"),
        ("systems --dataset dem", "near to it: demo"),
        ("gc --dataset mni", "near to it: mini"),
    ],
)  # fmt: skip
def test_one_line_with_what_there_is(evaluated: Path, command: str, told: str) -> None:
    failed = run_cli(*command.split())
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert told in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert not (evaluated / "dagster").exists()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("metrics --dataset mini --format xml", "is not one of 'table', 'json', 'csv'"),
        ("plan --dataset mini --engine rule x", "is not one of 'rules', 'openai', 'vllm', 'file'"),
        ("run --dataset mini --too x", "Did you mean '--to'?"),
    ],
)
def test_choices_of_the_command_line_itself_are_listed_too(evaluated: Path, command: str, told: str) -> None:
    failed = run_cli(*command.split())
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert told in failed.stderr


def test_names_that_are_there_pass(evaluated: Path) -> None:
    every = run_cli("metrics", "--dataset", "mini", "--split", "all", "--slice", "every", "--format", "json")
    assert len(json.loads(every.stdout)) == 2 * len(SPLITS) * len(SLICES) * 4
    table = run_cli("metrics", "--dataset", "mini", "--split", "val", "--slice", "wording=held_out")
    assert (table.exit_code, table.stdout.count("fused")) == (0, 1)
    # A dataset without a spec keeps its artefacts, and they stay readable.
    assert "metrics.duckdb is missing" in run_cli("lineage", "--dataset", "gone").stderr


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=80))
def test_whatever_the_names_it_is_one_line_and_near_names_are_known(name: str, known: list[str]) -> None:
    line = unknown_name(f"unknown thing {name!r}", name, known)
    assert len(line.splitlines()) == 1
    assert line.startswith("unknown thing")
    assert ("near to it" in line) or name not in known or not name


def test_spelling_in_capitals_is_near() -> None:
    assert unknown_name("x", "GRAPH_RULES", ["bm25", "graph_rules"]).endswith("near to it: graph_rules")
    assert unknown_name("x", "zzz", ["bm25"], shown=[]) == "x; there are: none"
