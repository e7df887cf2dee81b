import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import (
    Artifact,
    ArtifactMissingError,
    ArtifactStore,
    ManifestMismatchError,
    Recipe,
    projection,
)


def recipe(dataset: str = "toy", **changes: object) -> Recipe:
    return Recipe(**{"dataset": dataset, "asset": "stage/thing", "code_version": "1", **changes})  # type: ignore[arg-type]


def put(store: ArtifactStore, made_from: Recipe, text: str) -> None:
    with store.write(made_from, run_id="r1") as draft:
        (draft.path / "data.txt").write_text(text)
        draft.finish(f"version of {text}", {"rows": len(text)}, note="kept")


def test_written_artifact_is_read_back_with_its_manifest(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    put(store, recipe(config={"k": 1}, inputs={"a/b": "v"}, seed=7), "hello")
    found = store.require("toy", "stage/thing")
    assert found.file("data.txt").read_text() == "hello"
    assert found.data_version == "version of hello"
    kept = {k: found.manifest[k] for k in ("dataset", "config", "inputs", "seed", "run_id", "note", "code_version")}
    assert kept == {"dataset": "toy", "config": {"k": 1}, "inputs": {"a/b": "v"}, "seed": 7, "run_id": "r1",
                    "note": "kept", "code_version": "1"}  # fmt: skip
    assert "duckdb" in found.manifest["installed"]


@pytest.mark.parametrize(
    "change",
    [
        {"code_version": "2"},
        {"inputs": {"a/b": "w"}},
        {"config": {"k": 2}},
        {"identity": "x"},
        {"seed": 1},
        {"libraries": {"torch": "9.9"}},
    ],
)
def test_only_an_equal_recipe_is_reused(tmp_path: Path, change: dict[str, object]) -> None:
    store = ArtifactStore(tmp_path)
    put(store, recipe(), "one")
    assert store.find(recipe()) is not None
    assert store.find(recipe(**change)) is None


def test_missing_artifact_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="skb-pipeline run --dataset toy --to stage/thing"):
        ArtifactStore(tmp_path).require("toy", "stage/thing")


def test_a_failed_write_leaves_the_old_version(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    put(store, recipe(), "old")

    def write_half() -> None:
        with store.write(recipe(seed=1)) as draft:
            (draft.path / "data.txt").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert store.require("toy", "stage/thing").file("data.txt").read_text() == "old"
    assert not list(tmp_path.rglob(f"{atomic.SCRATCH_PREFIX}*"))


def test_a_writer_that_never_finishes_is_an_error(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(RuntimeError, match="finish"), store.write(recipe()):
        pass
    assert store.current("toy", "stage/thing") is None


KILLED = """
import os, signal, sys
from pathlib import Path
from skb_pipeline.storage import artifacts, atomic
place = sys.argv[2]
def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)
replace = os.replace
if place == "before the manifest is whole":
    os.replace = lambda old, new: kill() if Path(new).name == artifacts.MANIFEST else replace(old, new)
elif place == "before the rename":
    os.rename = kill
elif place == "between rename and switch":
    artifacts.ArtifactStore._switch = kill
elif place == "within the switch":
    os.replace = lambda old, new: kill() if Path(new).name == artifacts.CURRENT else replace(old, new)
with artifacts.ArtifactStore(Path(sys.argv[1])).write(artifacts.Recipe("toy", "stage/thing", "1")) as draft:
    (draft.path / "data.txt").write_text("half")
    if place == "in the block":
        kill()
    draft.finish("version of half", {})
    if place == "after finish":
        kill()
"""


@pytest.mark.parametrize(
    "place",
    [
        "in the block",
        "after finish",
        "before the manifest is whole",
        "before the rename",
        "between rename and switch",
        "within the switch",
    ],
)
@pytest.mark.parametrize("old", [None, "old"])
def test_a_killed_writer_leaves_what_was_there(tmp_path: Path, place: str, old: str | None) -> None:
    store = ArtifactStore(tmp_path)
    put(store, recipe("other"), "untouched")
    if old is not None:
        put(store, recipe(seed=1), old)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), place], check=False)
    assert killed.returncode == -signal.SIGKILL
    found = store.current("toy", "stage/thing")
    assert (found and found.file("data.txt").read_text()) == old
    folder = store.folder("toy", "stage/thing")
    halves = [path for path in folder.rglob("data.txt") if path.read_text() == "half"]
    assert len(halves) == 1, "the test must really interrupt a write"
    put(store, recipe(), "whole")
    assert store.require("toy", "stage/thing").file("data.txt").read_text() == "whole"
    assert not list(tmp_path.rglob(f"{atomic.SCRATCH_PREFIX}*"))
    store.collect_garbage("toy")
    left = {path.read_text() for path in folder.rglob("data.txt")}
    assert left == {"whole", *([] if old is None else [old])}
    assert store.require("other", "stage/thing").file("data.txt").read_text() == "untouched"


def test_rerunning_a_partition_replaces_exactly_that_partition(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for dataset in ("amazon", "prime", "amazon"):
        put(store, recipe(dataset), dataset)
    assert {d: store.require(d, "stage/thing").metadata["rows"] for d in ("amazon", "prime")} == {
        "amazon": 6,
        "prime": 5,
    }


def test_an_artifact_of_a_replaced_input_does_not_fit(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for text in ("one", "two"):
        put(store, recipe(asset="stage/input"), text)
        if text == "one":
            put(store, recipe(inputs={"stage/input": "version of one"}), "made of one")
            assert store.require_fitting("toy", "stage/thing").metadata["rows"] == 11
    with pytest.raises(ManifestMismatchError, match="made from another version of stage/input than the current one"):
        store.require_fitting("toy", "stage/thing")


def test_garbage_collection_keeps_current_and_previous(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for text in ("one", "two", "three"):
        put(store, recipe(), text)
    folder = store.folder("toy", "stage/thing")
    at_work = folder / atomic.scratch_name()
    killed = folder / f"{atomic.SCRATCH_PREFIX}{2**22 + 1}-0"
    at_work.mkdir()
    killed.mkdir()
    removed = store.collect_garbage("toy")
    left = {p for p in folder.iterdir() if p.is_dir()}
    assert (len(removed), len(left)) == (1, 3)
    assert at_work in left
    assert killed not in left
    assert store.require("toy", "stage/thing").file("data.txt").read_text() == "three"


def test_atomic_write_replaces_whole_files_only(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    atomic.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        atomic.write_json(path, {"a": float("nan")})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["value.json"]


def test_a_projection_changes_with_its_own_rows_only(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)

    def made(train: str, test: str) -> Artifact:
        with store.write(recipe(seed=len(train + test))) as draft:
            draft.finish(train + test, {}, split_versions={"train": train, "val": "v", "test": test})
        return store.require("toy", "stage/thing")

    first = made("a", "b")
    before = first.version_of(("train", "val")), first.version_of(("test",))
    changed = made("a", "bb")
    assert changed.version_of(("train", "val")) == before[0]
    assert changed.version_of(("val", "train")) == before[0]
    assert changed.version_of(("test",)) != before[1]
    assert made("aaa", "bb").version_of(("train", "val")) != before[0]


def test_an_artifact_without_versions_by_split_says_what_makes_them(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    put(store, recipe(), "x")
    with pytest.raises(ManifestMismatchError, match="run `skb-pipeline run --dataset toy --to stage/thing`"):
        store.require("toy", "stage/thing").version_of(("train",))


def test_a_projected_input_fits_while_its_rows_stay(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)

    def questions(train: str, test: str) -> None:
        with store.write(recipe(asset="questions/queries", seed=hash((train, test)) % 1000)) as draft:
            draft.finish(train + test, {}, split_versions={"train": train, "test": test})

    questions("a", "b")
    seen = store.require("toy", "questions/queries").version_of(("train",))
    put(store, recipe(inputs={projection("questions/queries", ["train"]): seen}), "tuned")
    questions("a", "c")
    assert store.require_fitting("toy", "stage/thing").data_version == "version of tuned"
    questions("b", "c")
    with pytest.raises(ManifestMismatchError, match="another version of questions/queries"):
        store.require_fitting("toy", "stage/thing")


def test_each_manifest_is_read_once_per_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A ladder with two ways at every step has 2^n paths from its top to its foot.
    store = ArtifactStore(tmp_path)
    put(store, recipe(asset="a/0"), "0")
    for step in range(1, 9):
        below = {f"a/{step - 1}": f"version of {step - 1}"}
        put(store, recipe(asset=f"b/{step}", inputs=below), f"b{step}")
        put(store, recipe(asset=f"a/{step}", inputs={**below, f"b/{step}": f"version of b{step}"}), str(step))
    read: list[str] = []
    current = ArtifactStore.current
    monkeypatch.setattr(ArtifactStore, "current", lambda self, d, asset: read.append(asset) or current(self, d, asset))
    store.fitting("toy", ["a/8", "b/8"])
    assert len(read) == len(set(read)) == 17


def test_work_outlives_a_failure_and_goes_with_success(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)

    def fail_after_an_epoch() -> None:
        with store.write(recipe()):
            (store.work_folder(recipe()) / "epoch-1").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_an_epoch()
    assert (store.work_folder(recipe()) / "epoch-1").read_text() == "half"
    assert not list(store.work_folder(recipe(seed=2)).iterdir()), "another recipe has work of its own"
    put(store, recipe(), "done")
    folder = store.folder("toy", "stage/thing")
    assert not list(folder.glob("work-*"))


def test_a_failure_is_remembered_until_a_version_is_made(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    assert store.failure("toy", "stage/thing") is None
    store.record_failure("toy", "stage/thing", "the server is down")
    assert store.failure("toy", "stage/thing") == "the server is down"
    put(store, recipe(), "x")
    assert store.failure("toy", "stage/thing") is None
