"""The main job on a small real slice: from source files to metrics, again, after changes, and killed.

The kills here are of a whole job. What each mechanism promises is tested beside it: the pointer switch in
``storage/test_artifacts.py``, rows of all kinds in ``storage/rows``, encoding in ``retrieval/test_encoder.py``.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
import yaml
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.evaluation.metrics import METRICS
from skb_pipeline.orchestration.running import StageOutcome, materialise
from skb_pipeline.storage.artifacts import ArtifactStore
from skb_pipeline.storage.writing import LOCK
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.conftest import enter_home


def versions(store: ArtifactStore, dataset: str = "mini") -> dict[str, str]:
    """Data version of every current artefact."""
    found = {}
    for pointer in sorted((store.root / dataset).glob("*/*/current.json")):
        asset = "/".join(pointer.parent.parts[-2:])
        found[asset] = store.require(dataset, asset).data_version
    return found


def files_of(store: ArtifactStore) -> dict[Path, int]:
    """Modification time of every stored file but locks, which each run takes."""
    files = [path for path in sorted(store.root.rglob("*")) if path.is_file() and path.name != LOCK]
    return {path: path.stat().st_mtime_ns for path in files}


def by_asset(outcomes: list[StageOutcome]) -> dict[str, StageOutcome]:
    return {o.asset: o for o in outcomes}


def edit_spec(home: Path, change: Any) -> None:
    path = home / "catalogue" / "mini.yaml"
    spec = yaml.safe_load(path.read_text())
    change(spec)
    path.write_text(yaml.safe_dump(spec, sort_keys=False))


def run_killed(home: Path, script: str, *args: str) -> None:
    """The command line in a process of its own, which a script kills."""
    environment = {**os.environ, "SKB_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr


def run_cli(*args: str) -> Result:
    done = CliRunner().invoke(cli, args)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_a_second_run_rewrites_nothing_and_changes_touch_only_what_they_must(finished_home: Path) -> None:
    store = Workspace().store
    # Documents are needed twice, as an index and for linking: whoever comes second finds them in the cache.
    # Two pairs of them are alike and are encoded once each.
    dense = store.require("mini", "index/dense").metadata
    assert dense["vectors"] == 142
    assert dense["texts encoded"] + dense["texts reused"] == 140
    before = files_of(store)

    second = materialise("mini")
    assert all(o.reused for o in second)
    assert files_of(store) == before
    assert versions(store) == {o.asset: store.require("mini", o.asset).data_version for o in second}

    # Every asset shows metadata of its own in the UI, also when it was reused.
    for outcome in second:
        assert set(outcome.metadata) - {"reused", "dagster/uri", "inputs"}, outcome.asset

    edit_spec(finished_home, lambda spec: spec.update(lexical={"k1": 0.9}))
    third = by_asset(materialise("mini"))
    assert {a for a, o in third.items() if not o.reused} >= {"index/bm25", "ranking/bm25", "evaluation/metrics"}
    assert {a for a, o in third.items() if o.reused} >= {"skb/store", "text/documents", "index/dense", "ranking/dense"}

    # Fewer neighbours change some documents; only those are encoded again.
    edit_spec(finished_home, lambda spec: spec.update(documents={"neighbours": 9}))
    fourth = by_asset(materialise("mini"))
    assert not fourth["index/dense"].reused
    encoded = sum(fourth[asset].metadata["texts encoded"] for asset in ("index/dense", "graph/anchors"))
    assert 0 < encoded < 140 / 2


def test_metric_rows_lead_back_to_their_sources(finished_home: Path) -> None:
    store = Workspace().store
    current = versions(store)
    with duckdb.connect(str(store.require("mini", "evaluation/metrics").file("metrics.duckdb")), read_only=True) as con:
        rows = con.execute("SELECT system, metric, value, ci_low, ci_high, n_queries, lineage FROM metrics").fetchall()
        assert con.execute("SELECT count(*) FROM differences").fetchone() != (0,)
    assert {(system, metric) for system, metric, *_ in rows} >= {(s, m) for s in ("bm25", "dense") for m in METRICS}
    for system, _, value, low, high, n, lineage in rows:
        assert 0 <= low <= value <= high <= 1
        assert n > 0
        told = json.loads(lineage)
        assert {f"ranking/{system}", "questions/queries", "skb/store", "catalog/snapshot"} <= set(told)
        assert all(current[asset] == version for asset, version in told.items())


def test_the_command_line(finished_home: Path) -> None:
    done = run_cli("run", "--dataset", "mini", "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert set(rows[0]) == {
        "dataset", "system", "split", "slice", "metric", "value", "ci_low", "ci_high", "n_queries",
    }  # fmt: skip
    assert "evaluation/metrics" in done.stderr
    assert "none rewritten, no encoder call" in done.stderr
    assert "recall@20" in run_cli("metrics", "--dataset", "mini").stdout

    for system in ("bm25", "dense"):
        found = run_cli(
            "search", "--dataset", "mini", "Ventricular tachycardia", "--system", system, "--format", "json", "-k", "3"
        )
        hits = json.loads(found.stdout)
        names = {h["name"].lower() for h in hits}
        assert any("ventricular tachycardia" in name for name in names), names
        assert [h["rank"] for h in hits] == [1, 2, 3]
        assert set(hits[0]) == {"rank", "external_id", "node_type", "name", "score"}
        assert hits[0]["score"] >= hits[1]["score"] >= hits[2]["score"]

    names = json.loads(run_cli("dataset", "list", "--format", "json").stdout)
    assert {row["name"] for row in names} >= {"demo", "hpo", "mini"}
    csv = run_cli("metrics", "--dataset", "mini", "--format", "csv").stdout
    assert csv.startswith("dataset,system,split,slice,metric,value")
    lineage = run_cli("lineage", "--dataset", "mini").stdout.splitlines()
    assert lineage[0].startswith("mrr of fused on test of mini: 0.")
    assert len(lineage) <= 60

    for wrong, message in [
        (["run", "--dataset", "nope"], "unknown dataset 'nope'"),
        (["run", "--dataset", "mini", "--to", "no/asset"], "there is no asset 'no/asset'"),
        (["search", "--dataset", "demo", "x"], "does not exist yet: run `skb-pipeline run --dataset demo"),
        (["search", "--dataset", "mini", "x", "--system", "bing"], "unknown system 'bing'"),
        (["metrics", "--dataset", "../etc"], "dataset name '../etc' is not allowed"),
    ]:
        failed = run_cli(*wrong)
        assert failed.exit_code != 0
        assert message in failed.stderr
        assert failed.stdout == ""
        assert "Traceback" not in failed.stderr


KILLED = textwrap.dedent("""
    import os, signal, sys
    from skb_pipeline.storage import artifacts
    from skb_pipeline.cli import main
    asset = sys.argv.pop(1)
    finish = artifacts.Draft.finish
    def killed(self, *args, **kwargs):
        finish(self, *args, **kwargs)
        if "/".join(self.path.parts[-3:-1]) == asset:
            os.kill(os.getpid(), signal.SIGKILL)
    artifacts.Draft.finish = killed
    main()
""")
KILLED_ENCODING = textwrap.dedent("""
    import os, signal
    from skb_pipeline.retrieval import embedding
    from skb_pipeline.storage.rows import arrays
    from skb_pipeline.cli import main
    embedding.embed_texts.__kwdefaults__["flush_every"] = 2
    put = arrays.ArrayRows.put
    def killed(self, keys, rows):
        put(self, keys, rows)
        os.kill(os.getpid(), signal.SIGKILL)
    arrays.ArrayRows.put = killed
    main()
""")


def test_a_killed_run_is_closed_and_the_next_one_makes_what_it_did_not(finished_home: Path) -> None:
    store = Workspace().store
    expected = versions(store)
    shutil.rmtree(store.folder("mini", "text/documents"))
    run_killed(finished_home, KILLED, "text/documents", "run", "--dataset", "mini", "--to", "text/documents")
    assert store.current("mini", "text/documents") is None
    assert list(store.root.rglob(".scratch-*"))
    made = by_asset(materialise("mini", to="text/documents"))
    assert {asset for asset, outcome in made.items() if not outcome.reused} == {"text/documents"}
    assert versions(store) == expected
    assert not list(store.root.rglob(".scratch-*"))
    with dg.DagsterInstance.get() as instance:
        after, killed, *_ = instance.get_runs()
    assert (after.status, killed.status) == (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@pytest.mark.deep
def test_killed_in_every_stage_it_ends_with_the_same_hashes(
    finished_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = [o.asset for o in materialise("mini")]
    expected = versions(Workspace().store)
    encoding = next(asset for asset in order if asset in ("graph/anchors", "index/dense"))
    other = tmp_path / "killed"
    enter_home(other, monkeypatch)
    store = Workspace().store
    for asset in order:
        if asset == encoding:
            run_killed(other, KILLED_ENCODING, "run", "--dataset", "mini", "--to", asset)
        run_killed(other, KILLED, asset, "run", "--dataset", "mini")
        assert store.current("mini", asset) is None
    materialise("mini")
    assert versions(store) == expected
    assert not list(store.root.rglob(".scratch-*"))
