"""What an earlier version of the code left behind is loaded or made anew by a plain run, and never half used."""

import json
from pathlib import Path
from typing import Any

import pytest

from skb_pipeline.graph.memory import csr
from skb_pipeline.orchestration import steps
from skb_pipeline.orchestration.running import materialise
from skb_pipeline.planning.frames import PLANS
from skb_pipeline.search import SearchSession
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import MANIFEST, ManifestMismatchError
from skb_pipeline.storage.frames import read_frame
from skb_pipeline.text import tokens
from skb_pipeline.workspace import Workspace

QUESTION = "Which gene causes long QT syndrome 2?"


def made_anew() -> set[str]:
    return {o.asset for o in materialise("mini") if not o.reused}


def search(system: str) -> list[dict[str, Any]]:
    with SearchSession.open("mini") as session:
        return session.search(QUESTION, system=system)


@pytest.mark.parametrize(
    ("module", "asset", "system"),
    [
        pytest.param(csr, "graph/csr", "graph", id="csr", marks=pytest.mark.deep),
        pytest.param(tokens, "index/bm25", "bm25", id="tokens"),
    ],
)
def test_a_run_heals_what_a_search_refuses(
    finished_home: Path, monkeypatch: pytest.MonkeyPatch, module: Any, asset: str, system: str
) -> None:
    before = search(system)
    monkeypatch.setattr(module, "VERSION", "next")
    with pytest.raises(ManifestMismatchError, match="`skb-pipeline run --dataset mini` makes it anew"):
        search(system)
    assert asset in made_anew()
    assert search(system) == before
    assert made_anew() == set()


def test_plans_of_an_earlier_schema_are_made_anew(finished_home: Path) -> None:
    """As a store of the version before plans had the column ``search_types``: its code version said nothing of that."""
    store = Workspace().store
    plans = store.require("mini", "planning/query_plans")
    path = plans.file(PLANS.file)
    read_frame(path).drop(columns="search_types").to_parquet(path)
    manifest = json.loads((plans.path / MANIFEST).read_text())
    atomic.write_json(plans.path / MANIFEST, {**manifest, "code_version": "3", "recipe_key": "of that version"})
    with pytest.raises(
        ManifestMismatchError, match=r"no column search_types, .*--dataset mini --to planning/query_plans"
    ):
        PLANS.read(store.require("mini", "planning/query_plans"))
    made = made_anew()
    assert "planning/query_plans" in made
    assert not PLANS.read(store.require("mini", "planning/query_plans"))["search_types"].isna().any()
    # The plans came out as they were, so nothing below them had to be made again.
    assert made == {"planning/query_plans"}


def test_another_library_remakes_what_it_decides_and_no_more(
    finished_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = steps.deciding_versions
    monkeypatch.setattr(
        steps,
        "deciding_versions",
        lambda names: {**real(names), **({"torch": "99.0"} if "torch" in real(names) else {})},
    )
    outcomes = {o.asset: o for o in materialise("mini")}
    made = {asset for asset, o in outcomes.items() if not o.reused}
    assert {"index/dense", "graph/anchors", "ranking/dense", "ranking/graph"} <= made
    assert not made & {"skb/store", "text/documents", "questions/queries", "index/bm25", "ranking/bm25"}
    assert outcomes["index/dense"].metadata["texts encoded"] == 0, "kept vectors are taken"
