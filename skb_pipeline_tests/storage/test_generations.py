"""What is kept for readers while versions are switched, and who may switch them."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from skb_pipeline.storage.artifacts import ArtifactMissingError, ArtifactStore, Recipe
from skb_pipeline.storage.generations import GENERATION, Generation
from skb_pipeline.storage.writing import DatasetBusyError, writer, writing

FORK = multiprocessing.get_context("fork")


def put(store: ArtifactStore, asset: str, text: str, **inputs: str) -> None:
    with store.write(
        Recipe("toy", asset, "1", inputs={f"a/{key}": version for key, version in inputs.items()})
    ) as draft:
        (draft.path / "data.txt").write_text(text)
        draft.finish(f"version of {text}", {})


def record(store: ArtifactStore, **changes: object) -> Generation:
    made = store.all_fitting("toy")
    generation = Generation(
        dataset="toy",
        versions={asset: artifact.path.name for asset, artifact in made.items()},
        data_versions={asset: artifact.data_version for asset, artifact in made.items()},
        spec={"name": "toy"},
        systems={},
        files=[["/data/nodes.csv", 7, 1]],
        run_id="r1",
        created="2026-01-01T00:00:00+00:00",
    )
    generation = replace(generation, **changes)  # type: ignore[arg-type]
    generation.write(store.of_dataset("toy") / GENERATION)
    return generation


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """A finished dataset of two artefacts, one made from the other, that was recorded."""
    store = ArtifactStore(tmp_path)
    put(store, "a/below", "old")
    put(store, "a/above", "made of old", below="version of old")
    record(store)
    return store


def texts(store: ArtifactStore, asset: str) -> set[str]:
    return {path.read_text() for path in store.folder("toy", asset).glob("*/data.txt")}


def test_a_pinned_store_shows_the_set_that_was_recorded(store: ArtifactStore) -> None:
    put(store, "a/below", "new")
    pinned = ArtifactStore(store.root, store.generation("toy"))
    assert pinned.require_fitting("toy", "a/above").file("data.txt").read_text() == "made of old"
    assert pinned.require("toy", "a/below").file("data.txt").read_text() == "old"
    assert store.require("toy", "a/below").file("data.txt").read_text() == "new"
    assert set(store.all_fitting("toy")) == {"a/below"}
    put(store, "a/third", "of no generation")
    with pytest.raises(ArtifactMissingError, match="a/third of dataset 'toy' does not exist yet"):
        pinned.require("toy", "a/third")


def test_what_readers_use_survives_remakes_and_clean_ups_and_no_artefact_has_more_than_two_versions(
    store: ArtifactStore,
) -> None:
    for text in ("new", "newer", "newest"):
        put(store, "a/below", text)
        store.collect_garbage("toy")
        assert texts(store, "a/below") == {text, "old"}
        assert store.generation("toy") is not None
    put(store, "a/above", "made of newest", below="version of newest")
    record(store)
    store.collect_garbage("toy")
    # Where readers use what is current, the previous version stays beside it; that of a/below is gone already.
    assert texts(store, "a/below") == {"newest"}
    assert texts(store, "a/above") == {"made of newest", "made of old"}


def test_a_generation_that_lost_a_version_is_none(store: ArtifactStore) -> None:
    generation = store.generation("toy")
    assert generation is not None
    (store.require("toy", "a/below").path / "manifest.json").unlink()
    assert not store.is_whole(generation)
    assert store.generation("toy") is None


def test_the_file_is_rewritten_for_new_content_only(store: ArtifactStore) -> None:
    path = store.of_dataset("toy") / GENERATION
    before = path.stat().st_mtime_ns
    record(store, run_id="another", created="2027-01-01T00:00:00+00:00")
    assert path.stat().st_mtime_ns == before
    record(store, spec={"name": "toy", "version": "2"})
    found = store.generation("toy")
    assert found is not None
    assert (found.spec, found.run_id) == ({"name": "toy", "version": "2"}, "r1")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"form": 2, "generation": {}}', '{"form": 1, "generation": {"x": 1}}']
)
def test_a_file_of_another_form_is_no_generation(store: ArtifactStore, text: str) -> None:
    (store.of_dataset("toy") / GENERATION).write_text(text)
    assert store.generation("toy") is None


def hold(folder: Path, run_id: str, seconds: float, told: Connection) -> None:
    with writing(folder, run_id):
        told.send("held")
        told.poll(seconds)


@contextmanager
def held_by(folder: Path, run_id: str, seconds: float = 60) -> Iterator[tuple[int, Connection]]:
    """Another process writes the dataset for so long; its number, and what makes it end when something is sent."""
    here, there = FORK.Pipe()
    process = FORK.Process(target=hold, args=(folder, run_id, seconds, there))
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == "held"
        yield process.pid or 0, here
    finally:
        here.send("leave")
        process.join(60)


def test_a_second_writer_is_refused_with_the_run_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    assert writer(folder) is None
    with held_by(folder, "run-of-the-first"):
        assert writer(folder) == "run-of-the-first"
        with (
            pytest.raises(DatasetBusyError, match="run run-of-the-first of dataset 'toy' is going on: wait"),
            writing(folder, "second"),
        ):
            raise AssertionError("two write")
        with writing(tmp_path / "other", "second"):
            pass
    assert writer(folder) is None


def test_a_writer_that_waits_says_for_whom_and_goes_on(tmp_path: Path) -> None:
    told: list[str] = []
    with held_by(tmp_path / "toy", "the-first") as (_, other):

        def tell(line: str) -> None:
            told.append(line)
            other.send("leave")

        with writing(tmp_path / "toy", "second", waits=tell):
            assert writer(tmp_path / "toy") == "second"
    assert told == ["waits for run the-first, which writes dataset 'toy'"]


def test_the_lock_of_a_killed_writer_is_taken_over(tmp_path: Path) -> None:
    with held_by(tmp_path / "toy", "killed") as (pid, _):
        os.kill(pid, signal.SIGKILL)
        told: list[str] = []
        with writing(tmp_path / "toy", "next", waits=told.append):
            assert writer(tmp_path / "toy") == "next"
