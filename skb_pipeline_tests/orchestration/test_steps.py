"""The frame of assets: what a declaration gives, and what happens when something it names changes."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from skb_pipeline.errors import PassingError, UserError
from skb_pipeline.orchestration import steps
from skb_pipeline.orchestration.resources import WorkspaceResource
from skb_pipeline.orchestration.steps import Opened, Step, StepConfig, only, optional, pinned, pipeline_asset
from skb_pipeline.questions.frame import QUERIES, SPLITS
from skb_pipeline.retrieval.ranking import RANKING
from skb_pipeline.storage.artifacts import Artifact, ArtifactStore, Draft, Recipe
from skb_pipeline.storage.frames import Column, Frame
from skb_pipeline.workspace import Workspace

BUILT: list[str] = []
"""Keys of the assets that were computed, in order."""


@pytest.fixture
def store(home: Path) -> ArtifactStore:
    BUILT.clear()
    return Workspace().store


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as live:
        live.add_dynamic_partitions("dataset", ["mini"])
        yield live


@pytest.fixture
def run(store: ArtifactStore, instance: dg.DagsterInstance) -> Any:
    def run(
        *assets: dg.AssetsDefinition, tags: dict[str, str] | None = None, **config: Any
    ) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            assets, instance=instance, partition_key="mini", raise_on_error=False, tags=tags,
            resources={"workspace": WorkspaceResource(home=str(store.root.parent))},
            run_config={"ops": config} if config else None,
        )  # fmt: skip

    return run


def module(name: str, version: str) -> types.ModuleType:
    made = types.ModuleType(f"skb_pipeline.{name}")
    made.VERSION = version  # type: ignore[attr-defined]
    return made


def simple(key: str = "made/thing", **declared: Any) -> dg.AssetsDefinition:
    """An asset whose content is that of its recipe."""

    @pipeline_asset(key, kinds={"file"}, description="A thing that is made for a test of its frame.", **declared)
    def build(step: Step, draft: Draft) -> None:
        BUILT.append(key)
        draft.finish(step.recipe.content_key(), {"one": 1})

    return build


def put_queries(store: ArtifactStore, texts: dict[str, str]) -> None:
    """Questions, one per split."""
    rows = [{"query_id": s, "query": texts[s], "split": s, "answer_ids": [1], "origin": "given"} for s in SPLITS]
    frame = pd.DataFrame(rows).reindex(columns=QUERIES.names).astype(object).where(lambda f: f.notna(), None)
    recipe = Recipe(dataset="mini", asset="questions/queries", code_version="1", config=texts)
    with store.write(recipe) as draft:
        QUERIES.write(draft.path, frame)
        draft.finish(str(texts), {}, split_versions=texts)


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = (e for e in result.all_events if e.event_type_value == "STEP_FAILURE")
    error = event.step_failure_data.error
    assert error is not None
    while error.cause is not None:
        error = error.cause
    return error.message


def test_a_declaration_gives_dependencies_group_and_version() -> None:
    made = simple(
        inputs=["skb/store", only("questions/queries", splits=["train"]), pinned("graph/csr")],
        waits_for=["index/bm25"], code=[module("a.b", "7"), module("c", "x")], writes=[RANKING], revision="3",
    )  # fmt: skip
    assert {"/".join(key.path) for key in made.dependency_keys} == {
        "skb/store", "questions/queries", "graph/csr", "index/bm25",
    }  # fmt: skip
    spec = made.get_asset_spec()
    assert spec.group_name == "made"
    assert spec.code_version == f"a.b 7, asset 3, c x, frame Ranking {RANKING.version}"


def test_a_module_without_a_version_is_refused() -> None:
    with pytest.raises(AttributeError, match="VERSION"):
        simple(code=[types.ModuleType("skb_pipeline.no_version")])


def test_nothing_is_computed_twice_for_one_recipe(run: Any) -> None:
    asset = simple(sections=["lexical"])
    first, second = run(asset), run(asset)
    assert BUILT == ["made/thing"]
    assert [
        r.get_asset_materialization_events()[0].materialization.metadata["reused"].value for r in (first, second)
    ] == [False, True]
    run(asset, made__thing={"config": {"force": True}})
    assert BUILT == ["made/thing"] * 2


CHANGED = Frame("Ranking", "…", "ranking.parquet", ("a",), {**RANKING.columns, "why": Column(pa.string())})
RETYPED = Frame("Ranking", "…", "ranking.parquet", ("a",), {**RANKING.columns, "rank": Column(pa.int64())})


@pytest.mark.parametrize(
    "change",
    [
        {"code": [module("a.b", "2")]},
        {"code": [module("a.b", "1"), module("c", "1")]},
        {"writes": [CHANGED]},
        {"writes": [RETYPED]},
        {"revision": "2"},
        {"sections": ["lexical", "retrieval"]},
    ],
    ids=["version", "another module", "another column", "another type", "revision", "another section"],
)
def test_what_is_declared_otherwise_is_made_anew(run: Any, change: dict[str, Any]) -> None:
    declared = {"code": [module("a.b", "1")], "writes": [RANKING], "sections": ["lexical"]}
    run(simple(**declared))
    run(simple(**{**declared, **change}))
    assert BUILT == ["made/thing"] * 2


def test_another_version_of_a_library_makes_it_anew(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asset = simple(libraries=["numpy", "faiss-cpu|faiss-gpu-cu12"])
    run(asset)
    monkeypatch.setattr(steps, "deciding_versions", lambda names: dict.fromkeys(names, "99.0"))
    run(asset)
    run(asset)
    assert BUILT == ["made/thing"] * 2


def test_an_undeclared_section_cannot_be_read(run: Any, store: ArtifactStore) -> None:
    @pipeline_asset("made/thing", sections=["lexical"], kinds={"file"}, description="Reads what it must not.")
    def build(step: Step, draft: Draft) -> None:
        assert step.spec.lexical.k1 > 0
        assert step.spec.name == "mini"
        step.spec.encoder  # noqa: B018

    result = run(build)
    told = "UndeclaredSectionError: made/thing reads the section 'encoder' of the spec without declaring it"
    assert told in failure(result)
    assert store.failure("mini", "made/thing") == told


def test_a_section_that_no_spec_has_is_an_error(run: Any) -> None:
    assert "made/thing declares sections that no spec has: ['lexicall']" in failure(run(simple(sections=["lexicall"])))


def test_tuning_sees_and_depends_on_its_splits_only(run: Any, store: ArtifactStore) -> None:
    seen: list[list[str]] = []

    @pipeline_asset(
        "tuning/weights", inputs=[only("questions/queries", splits=["train", "val"])], kinds={"file"},
        description="Something that learns, so it must not see test questions.",
    )  # fmt: skip
    def tuned(step: Step, draft: Draft) -> None:
        BUILT.append("tuned")
        seen.append(step.rows("questions/queries", QUERIES, ["query"])["query"].tolist())
        with pytest.raises(ValueError, match=r"declares only some splits of questions/queries"):
            step.input("questions/queries")
        draft.finish(step.recipe.content_key(), {"one": 1})

    put_queries(store, {"train": "a", "val": "b", "test": "c"})
    run(tuned)
    put_queries(store, {"train": "a", "val": "b", "test": "other"})
    assert run(tuned).success
    assert BUILT == ["tuned"], "a changed test question asks for nothing"
    put_queries(store, {"train": "a", "val": "new", "test": "other"})
    run(tuned)
    assert seen == [["a", "b"], ["a", "new"]]
    manifest = store.require("mini", "tuning/weights").manifest
    assert list(manifest["inputs"]) == ["questions/queries@train+val"]


def test_a_ranking_is_cut_by_the_questions_it_is_about(run: Any, store: ArtifactStore) -> None:
    frame = pd.DataFrame({"query_id": ["x", "y"], "node_id": [1, 2], "rank": [1, 1], "score": [1.0, 1.0]})
    with store.write(Recipe(dataset="mini", asset="ranking/r", code_version="1")) as draft:
        RANKING.write(draft.path, frame)
        draft.finish("v", {}, split_versions={"train": "a"}, query_ids_by_split={"train": ["y"], "test": ["x"]})
    rows: list[list[int]] = []

    @pipeline_asset(
        "tuning/weights", inputs=[only("ranking/r", splits=["train"])], kinds={"file"}, description="Learns from it."
    )
    def tuned(step: Step, draft: Draft) -> None:
        rows.append(step.rows("ranking/r", RANKING, ["node_id"])["node_id"].tolist())
        draft.finish("w", {"one": 1})

    assert run(tuned).success
    assert rows == [[2]]


def test_a_pinned_input_is_read_and_asks_for_nothing(run: Any, store: ArtifactStore) -> None:
    asset = simple(inputs=[pinned("questions/queries", splits=["train"])])
    put_queries(store, {"train": "a", "val": "b", "test": "c"})
    run(asset)
    put_queries(store, {"train": "changed", "val": "b", "test": "c"})
    run(asset)
    assert BUILT == ["made/thing"]
    assert store.require("mini", "made/thing").manifest["lineage"] == {}


def test_an_optional_input_that_is_missing_is_told_with_its_reason(run: Any, store: ArtifactStore) -> None:
    @contextmanager
    def broken(step: Step) -> Iterator[Opened]:
        raise OSError("no route to host")
        yield Opened()

    below = simple("planning/broken", opens=broken)
    above = simple("ranking/above", inputs=["planning/broken"])
    told: list[dict[str, str]] = []

    @pipeline_asset(
        "evaluation/table", inputs=[optional("ranking/above"), optional("ranking/other")], kinds={"file"},
        description="A table of whatever there is.",
    )  # fmt: skip
    def table(step: Step, draft: Draft) -> None:
        told.append(dict(step.lacking))
        draft.finish(step.recipe.content_key(), {"one": 1})

    other = simple("ranking/other")
    first = run(below, above, other, table)
    assert not first.success
    assert told == [], "Dagster does not start what comes after a failed step"
    with dg.DagsterInstance.ephemeral() as live:
        live.add_dynamic_partitions("dataset", ["mini"])
        job = dg.define_asset_job("table", selection=[table])
        defs = dg.Definitions(
            [below, above, other, table], jobs=[job],
            resources={"workspace": WorkspaceResource(home=str(store.root.parent))},
        )  # fmt: skip
        assert defs.resolve_job_def("table").execute_in_process(instance=live, partition_key="mini").success
    assert told == [{"ranking/above": "planning/broken failed: OSError: no route to host"}]


def test_a_failed_asset_finds_its_half_done_work_again(run: Any) -> None:
    found: list[int] = []

    @pipeline_asset("training/model", kinds={"file"}, description="Learns in epochs and fails in the second.")
    def train(step: Step, draft: Draft) -> None:
        done = sorted(step.work_folder.iterdir())
        found.append(len(done))
        (step.work_folder / f"epoch-{len(done) + 1}").write_text("weights")
        if len(done) < 2:
            raise OSError("out of memory")
        draft.finish("trained", {"epochs": len(done) + 1})

    outcomes = [run(train).success for _ in range(3)]
    assert outcomes == [False, False, True]
    assert found == [0, 1, 2]


def test_an_opened_reason_skips_without_failing(run: Any, store: ArtifactStore) -> None:
    @contextmanager
    def no_server(step: Step) -> Iterator[Opened]:
        yield Opened(skip="SERVER is not set")

    result = run(simple(opens=no_server, optional=True))
    assert result.success
    assert BUILT == []
    assert result.get_asset_materialization_events() == []


def test_only_what_is_read_this_time_counts(run: Any, store: ArtifactStore) -> None:
    class Config(StepConfig):
        looks: bool = False

    @contextmanager
    def chosen(step: Step) -> Iterator[Opened]:
        yield Opened(reads=["questions/queries"] if step.config.looks else [])

    asset = simple(inputs=["questions/queries"], opens=chosen, config=Config)
    assert run(asset).success, "an input that is not read need not be there"
    put_queries(store, {"train": "a", "val": "b", "test": "c"})
    run(asset, made__thing={"config": {"looks": True}})
    assert BUILT == ["made/thing"] * 2


def test_what_no_longer_holds_is_made_again(run: Any) -> None:
    still_there = [True]

    def holds(_: Artifact) -> bool:
        return still_there[0]

    @contextmanager
    def looking(step: Step) -> Iterator[Opened]:
        yield Opened(holds=holds)

    asset = simple(opens=looking)
    run(asset)
    run(asset)
    still_there[0] = False
    run(asset)
    assert BUILT == ["made/thing"] * 2


class AwayError(PassingError):
    """Of a server of a test."""


def test_only_what_may_pass_is_tried_again_and_not_on_a_terminal(
    run: Any, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "WAITS", (0.0, 0.0))
    raised: list[Exception] = []

    @pipeline_asset("made/thing", kinds={"file"}, description="Fails as long as there is something to raise.")
    def build(step: Step, draft: Draft) -> None:
        BUILT.append("made/thing")
        if raised:
            raise raised.pop(0)
        draft.finish(step.recipe.content_key(), {"one": 1})

    raised[:] = [AwayError("no answer"), AwayError("no answer")]
    result = run(build)
    assert (result.success, len(BUILT)) == (True, 3)
    assert store.failure("mini", "made/thing") is None
    raised[:] = [AwayError("no answer")] * 5
    result = run(build, made__thing={"config": {"force": True}})
    assert (result.success, len(BUILT)) == (False, 6)
    assert failure(result) == "skb_pipeline_tests.orchestration.test_steps.AwayError: no answer\n"
    assert store.failure("mini", "made/thing") == "no answer"
    for error, tags in ((UserError("wrong setting"), {}), (AwayError("no answer"), {"skb/pid": "1"})):
        BUILT.clear()
        raised[:] = [error] * 3
        assert not run(build, tags=tags, made__thing={"config": {"force": True}}).success
        assert len(BUILT) == 1
