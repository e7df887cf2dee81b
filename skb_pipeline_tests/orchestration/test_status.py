"""What is out of date and why: each kind of reason, told of exactly the assets it is about."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.orchestration import steps
from skb_pipeline.orchestration.differences import ABSENT, Difference
from skb_pipeline.orchestration.running import materialise
from skb_pipeline.orchestration.status import AssetStatus, status_of
from skb_pipeline.planning.engines.completions import ChatRequest
from skb_pipeline.planning.engines.kept_replies import completion_key, open_replies
from skb_pipeline.planning.engines.openai_http import OpenAIChat
from skb_pipeline.planning.prompts.prompt_set import PromptSet
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.text import tokens
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.toy import toy_spec


def looked(dataset: str = "mini", **how: Any) -> dict[str, AssetStatus]:
    return {one.asset: one for one in status_of(dataset, Workspace(), **how)}


def with_reasons(found: dict[str, AssetStatus]) -> set[str]:
    return {asset for asset, one in found.items() if one.by_itself}


def files_of(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def add_to_spec(home: Path, text: str) -> None:
    path = home / "catalogue" / "mini.yaml"
    path.write_text(f"{path.read_text()}\n{text}\n")


def test_all_is_fresh_after_a_run_and_looking_writes_nothing(finished_home: Path) -> None:
    before = files_of(finished_home)
    shown = CliRunner().invoke(cli, ["status", "--dataset", "mini", "--format", "json"])
    assert shown.exit_code == 0
    told = json.loads(shown.stdout)
    states = {one["asset"]: one["state"] for one in told["assets"]}
    assert {a for a, s in states.items() if s == "skipped"} == {"graph/neo4j", "ranking/graph_neo4j"}
    assert {a for a, s in states.items() if s == "fresh"} == set(states) - {"graph/neo4j", "ranking/graph_neo4j"}
    assert told["fresh"]
    assert told["run"]["assets at most"] == 0
    assert files_of(finished_home) == before


def test_a_setting_is_told_with_both_values_where_it_counts(finished_home: Path) -> None:
    add_to_spec(finished_home, "lexical: {k1: 0.9}")
    before = files_of(finished_home)
    found = looked()
    assert with_reasons(found) == {"index/bm25", "ranking/bm25"}
    assert list(found["index/bm25"].differences) == [Difference("setting", "lexical.k1", 1.2, 0.9)]
    follow = {a for a, one in found.items() if one.state == "stale"} - {"index/bm25", "ranking/bm25"}
    assert follow == {
        "ranking/text", "ranking/fused", "evaluation/query_metrics_bm25", "evaluation/query_metrics_text",
        "evaluation/query_metrics_fused", "evaluation/traces", "evaluation/metrics",
    }  # fmt: skip
    assert found["ranking/fused"].reasons == ["follows ranking/bm25 (reused where that comes out equal)"]
    assert found["index/bm25"].seconds is not None
    shown = CliRunner().invoke(cli, ["status", "--dataset", "mini"])
    assert shown.exit_code == 1
    assert "index/bm25                      stale    setting lexical.k1: 1.2 → 0.9" in shown.stdout.splitlines()
    assert files_of(finished_home) == before
    made = {o.asset for o in materialise("mini", to="evaluation/query_metrics_bm25") if not o.reused}
    assert with_reasons(found) <= made <= with_reasons(found) | follow
    assert with_reasons(looked()) & {"index/bm25", "ranking/bm25", "evaluation/query_metrics_bm25"} == set()


def test_what_another_encoder_would_embed_is_counted(finished_home: Path) -> None:
    path = finished_home / "catalogue" / "mini.yaml"
    path.write_text(path.read_text().replace("max_length: 256", "max_length: 128"))
    found = looked()
    assert Difference("setting", "encoder.max_length", 256, 128) in found["index/dense"].differences
    assert found["index/dense"].work == {"texts to embed": 140}, "two pairs of the 142 documents are alike"
    assert found["ranking/dense"].work["texts to embed"] > 0
    shutil.rmtree(Workspace().store.folder("mini", "index/dense"))
    path.write_text(path.read_text().replace("max_length: 128", "max_length: 256"))
    again = looked()["index/dense"]
    assert (again.state, again.work) == ("missing", {"texts to embed": 0})


def test_prompts_that_have_no_reply_are_counted_and_nothing_is_asked(finished_home: Path) -> None:
    add_to_spec(finished_home, "plans: {engine: openai, model: {name: m, base_url: 'http://127.0.0.1:9/v1'}}")
    workspace = Workspace()
    asked = QUERIES.read(workspace.store.require("mini", "questions/queries"), ["query"])["query"]
    plans = looked()["planning/query_plans"]
    assert plans.by_itself
    assert plans.work == {"prompts to ask": asked.nunique()}
    assert plans.seconds is None, "the rules that made the last ones tell nothing of a model's time"
    assert not workspace.cache("mini", "replies").exists()
    spec = workspace.spec("mini")
    prompts = PromptSet(spec, workspace.guidance("mini"))
    assert spec.plans.model is not None
    request = ChatRequest(prompts.messages(asked[0]))
    key = completion_key(OpenAIChat(spec.plans.model).settings(), request, prompts.json_schema())
    with open_replies(workspace.cache("mini", "replies")) as kept:
        kept.put([key], [{"text": "{}"}])
    assert looked()["planning/query_plans"].work == {"prompts to ask": asked.nunique() - 1}


def test_a_version_of_code_is_told_with_its_module(finished_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "VERSION", "next")
    found = looked()
    assert "index/bm25" in with_reasons(found)
    (difference,) = found["index/bm25"].differences
    assert (difference.kind, difference.name, difference.new) == ("code", "text.tokens", "next")
    assert "index/dense" not in with_reasons(found)


def test_a_version_of_a_library_is_told_with_its_name(finished_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = steps.deciding_versions
    monkeypatch.setattr(
        steps,
        "deciding_versions",
        lambda names: {**real(names), **({"bm25s": "99.0"} if "bm25s" in real(names) else {})},
    )
    found = looked()
    (difference,) = found["index/bm25"].differences
    assert (difference.kind, difference.name, difference.new) == ("library", "bm25s", "99.0")
    assert {asset for asset in with_reasons(found) if asset.startswith("index/")} == {"index/bm25"}


def test_a_failure_and_what_was_never_made_are_told(finished_home: Path) -> None:
    store = Workspace().store
    store.record_failure("mini", "ranking/dense", "the disk is full")
    shutil.rmtree(store.folder("mini", "graph/csr"))
    found = looked()
    assert (found["ranking/dense"].state, found["graph/csr"].state) == ("failed", "missing")
    assert found["ranking/dense"].reasons == ["failed at the last run: the disk is full"]
    assert found["evaluation/query_metrics_dense"].follows == ["ranking/dense"]
    assert found["ranking/graph"].follows == ["graph/csr"]
    assert not found["ranking/graph"].by_itself
    assert found["ranking/bm25"].state == "fresh"


def test_an_input_that_was_made_anew_is_told_with_its_versions(finished_home: Path) -> None:
    add_to_spec(finished_home, "documents: {neighbours: 9}")
    materialise("mini", only="text/documents")
    found = looked()
    assert found["text/documents"].state == "fresh"
    (difference,) = found["index/bm25"].differences
    assert (difference.kind, difference.name) == ("input", "text/documents")
    assert difference.new == Workspace().store.require("mini", "text/documents").data_version


@pytest.fixture
def shop(home: Path, tmp_path: Path) -> Path:
    """The folder of a data set of three tables, of which a snapshot was made."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "p.csv").write_text("id,title\n1,Tent\n2,Stove\n")
    (folder / "q.csv").write_text("id,title\n3,Lamp\n")
    (folder / "e.csv").write_text("a,b\n1,2\n")
    for path in folder.iterdir():
        os.utime(path, (1.6e9, 1.6e9))
    args = {
        "folder": str(folder),
        "nodes": [{"files": "[pq].csv", "id": "id", "type_value": "product", "fields": {"title": "title"}}],
        "edges": [{"files": "e.csv", "head": "a", "tail": "b", "relation_value": "also_buy"}],
    }
    spec = toy_spec(name="shop", source={"adapter": "tables", "args": args})
    (home / "catalogue" / "shop.yaml").write_text(
        yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    )
    materialise("shop", to="catalog/snapshot")
    return folder


def test_the_file_that_changed_is_named(shop: Path) -> None:
    found = looked("shop")
    assert found["catalog/snapshot"].state == "fresh"
    assert found["skb/store"].state == "missing"
    assert found["skb/store"].follows == []

    (shop / "p.csv").touch()
    assert looked("shop")["catalog/snapshot"].state == "fresh", "touched, and equal"

    time = (shop / "q.csv").stat()
    (shop / "q.csv").write_text("id,title\n3,Lump\n")
    os.utime(shop / "q.csv", ns=(time.st_atime_ns, time.st_mtime_ns))
    (difference,) = looked("shop")["catalog/snapshot"].differences
    assert (difference.kind, difference.name) == ("file", "q.csv"), "of the same size and time of modification"
    (shop / "q.csv").write_text("id,title\n3,Lamp\n")

    (shop / "e.csv").rename(shop.parent / "gone.csv")
    assert any("e.csv" in reason for reason in looked("shop")["catalog/snapshot"].reasons)
    (shop.parent / "gone.csv").rename(shop / "e.csv")

    (shop / "p.csv").unlink()
    (difference,) = looked("shop")["catalog/snapshot"].differences
    assert (difference.kind, difference.name, difference.new) == ("file", "p.csv", ABSENT)
    assert looked("shop")["skb/store"].follows == ["catalog/snapshot"]


def test_files_that_cannot_have_changed_are_read_only_where_one_asks_for_it(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skb_pipeline.orchestration import status

    read: list[str] = []
    real = status.file_digest

    def digest(path: Path) -> str:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(status, "file_digest", digest)
    monkeypatch.setattr(status, "_SLACK_S", -60.0)  # the files were written in the very second of the snapshot
    looked("shop")
    assert read == []
    looked("shop", verify=True)
    assert sorted(read) == ["e.csv", "p.csv", "q.csv"]
    read.clear()
    (shop / "p.csv").write_text("id,title\n1,Tent\n2,Stoves\n")
    looked("shop")
    assert read == ["p.csv"]


def test_a_dataset_that_was_never_run_is_missing_as_a_whole(home: Path) -> None:
    shown = CliRunner().invoke(cli, ["status", "--dataset", "mini", "--format", "json"])
    assert shown.exit_code == 1
    told = json.loads(shown.stdout)
    assert {one["state"] for one in told["assets"]} == {"missing", "skipped"}
    assert not (home / "store").exists()
    failed = CliRunner().invoke(cli, ["status", "--dataset", "mni"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert "unknown dataset 'mni'" in failed.stderr
    assert "near to it: mini" in failed.stderr
