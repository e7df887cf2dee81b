import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ArtifactMissingError, ArtifactStore, ManifestMismatchError, Recipe


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
    assert "duckdb" in found.manifest["libraries"]


@pytest.mark.parametrize(
    "change", [{"code_version": "2"}, {"inputs": {"a/b": "w"}}, {"config": {"k": 2}}, {"identity": "x"}, {"seed": 1}]
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


def test_a_killed_writer_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    put(store, recipe("other"), "untouched")
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from skb_pipeline.storage.artifacts import ArtifactStore, Recipe
        with ArtifactStore(Path(sys.argv[1])).write(Recipe("toy", "stage/thing", "1")) as draft:
            (draft.path / "data.txt").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert store.current("toy", "stage/thing") is None
    assert list(tmp_path.rglob(f"{atomic.SCRATCH_PREFIX}*")), "the test must really interrupt a write"
    put(store, recipe(), "whole")
    assert store.require("toy", "stage/thing").file("data.txt").read_text() == "whole"
    assert not list(tmp_path.rglob(f"{atomic.SCRATCH_PREFIX}*"))
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
