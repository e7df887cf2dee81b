"""Commands that read, while the data set is edited, half made anew or cleaned up, or in a home that is read-only."""

import ctypes
import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration.running import materialise
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.search import SearchSession, ask
from skb_pipeline.storage import atomic
from skb_pipeline.storage.artifacts import ArtifactMissingError, ArtifactStore
from skb_pipeline.storage.generations import GENERATION, Generation
from skb_pipeline.storage.writing import writer
from skb_pipeline.systems.newest import file_states
from skb_pipeline.workspace import Workspace
from skb_pipeline_tests.storage.test_generations import held_by

QUESTION = "Which gene causes long QT syndrome 2?"


def call(*args: str) -> Result:
    done = CliRunner().invoke(cli, list(args))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def search(system: str = "bm25") -> Result:
    return call("search", "--dataset", "mini", "--format", "json", "--system", system, QUESTION)


def edit_spec(home: Path, **sections: Any) -> None:
    path = home / "catalogue" / "mini.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **sections}, sort_keys=False))


def generation() -> Generation:
    found = Workspace().store.generation("mini")
    assert found is not None
    return found


def test_what_is_recorded_is_all_that_was_made_and_what_made_it(finished_home: Path) -> None:
    found, store = generation(), Workspace().store
    current = store.all_fitting("mini")
    assert found.versions == {asset: made.path.name for asset, made in current.items()}
    assert {"evaluation/metrics", "evaluation/traces", "evaluation/plan_quality", "skb/store"} <= found.versions.keys()
    assert set(found.systems) == {"bm25", "dense", "graph", "text", "fused"}
    assert found.spec == get_spec("mini").model_dump(mode="json")
    assert found.files == file_states(open_source(get_spec("mini")).files())
    assert found.run_id == current["evaluation/traces"].manifest["run_id"]


def test_an_edited_spec_that_was_not_run_changes_no_answer_and_is_told(finished_home: Path) -> None:
    path = finished_home / "catalogue" / "mini.yaml"
    before, whole = path.read_text(), search()
    assert (whole.exit_code, whole.stderr) == (0, "")
    table = call("metrics", "--dataset", "mini")
    encoder = yaml.safe_load(before)["encoder"]
    edits = {
        "its spec": lambda: edit_spec(finished_home, encoder={**encoder, "max_length": 7}, lexical={"k1": 0.3}),
        "its spec cannot be read now": lambda: path.write_text("name: [mini\n"),
        "its spec is gone": path.unlink,
    }
    for told, edit in edits.items():
        edit()
        answered = search()
        assert (answered.exit_code, answered.stdout) == (0, whole.stdout)
        assert answered.stderr.count("\n") == 1
        assert told in answered.stderr
        assert answered.stderr.endswith("`skb-pipeline run --dataset mini` makes it anew\n")
        printed = call("metrics", "--dataset", "mini")
        assert (printed.stdout, printed.stderr) == (table.stdout, answered.stderr)
    path.write_text(before)
    assert search().stderr == ""
    edit_spec(finished_home, description="Other words, the same data.")
    assert search().stderr == ""


def test_a_changed_encoder_does_not_keep_a_search_from_its_index(finished_home: Path) -> None:
    with SearchSession.open("mini") as session:
        before = session.search(QUESTION)
    encoder = get_spec("mini").model_dump(mode="json")["encoder"]
    edit_spec(finished_home, encoder={**encoder, "query_prefix": "question: ", "max_length": 16})
    told: list[str] = []
    assert ask("mini", lambda session: session.search(QUESTION), tell=told.append) == before
    assert len(told) == 1


def test_systems_are_those_that_were_made_and_new_ones_are_there_at_once(finished_home: Path) -> None:
    whole = search("text")
    own = finished_home / "systems.yaml"
    own.write_text("text: {kind: rrf, of: [bm25], k: 3}\nmine: {kind: rrf, of: [bm25], k: 3}\n")
    answered = search("text")
    assert answered.stdout == whole.stdout
    assert "(the settings of text)" in answered.stderr
    assert json.loads(search("mine").stdout)[0]["score"] == pytest.approx(1 / 4)
    own.write_text("text: [\n")
    answered = search("text")
    assert answered.stdout == whole.stdout
    assert "the systems cannot be read now" in answered.stderr


def test_half_a_refresh_remade_and_cleaned_up_leaves_what_readers_use(finished_home: Path) -> None:
    whole, used = search(), generation()
    for neighbours in (3, 4):
        edit_spec(finished_home, documents={"neighbours": neighbours})
        materialise("mini", to="text/documents")
        assert call("gc", "--dataset", "mini").exit_code == 0
        answered = search()
        assert (answered.exit_code, answered.stdout) == (0, whole.stdout)
        assert "(its spec, 1 artefacts made anew): `skb-pipeline run" in answered.stderr
    assert generation() == used
    store = Workspace().store
    query_id = QUERIES.read(store.require("mini", "questions/queries"), ["query_id"])["query_id"].iloc[0]
    traced = call("trace", "--dataset", "mini", query_id)
    assert json.loads(traced.stdout)["query_id"] == query_id
    assert traced.stderr == answered.stderr
    assert {len(list(folder.glob("*/manifest.json"))) for folder in store.of_dataset("mini").glob("*/*/")} == {1, 2}
    with held_by(store.of_dataset("mini"), "run-of-the-refresh"):
        assert search().stderr.endswith(": run run-of-the-refresh is making it anew\n")
        for command in (("run",), ("gc",), ("guidance", "--refresh")):
            refused = call(*command, "--dataset", "mini")
            assert (refused.exit_code, refused.stdout) == (1, "")
            assert "run run-of-the-refresh of dataset 'mini' is going on" in refused.stderr.splitlines()[-1]


def test_changed_source_files_are_told_with_the_table(finished_home: Path) -> None:
    found = generation()
    assert found.files is not None
    assert call("metrics", "--dataset", "mini").stderr == ""
    (path, size, changed), *others = found.files
    for other in ([path, size + 1, changed], [path, size, None]):
        told = {**found.__dict__, "files": [other, *others]}
        atomic.write_json(Workspace().store.of_dataset("mini") / GENERATION, {"form": 1, "generation": told})
        assert "(source files)" in call("metrics", "--dataset", "mini").stderr


def test_a_reader_whose_versions_go_asks_the_newer_generation_once(finished_home: Path) -> None:
    store, tries = Workspace().store, []
    other = shutil.copytree(store.require("mini", "index/bm25").path, finished_home / "other")

    def asked(session: SearchSession) -> list[dict[str, Any]]:
        tries.append(session)
        if len(tries) == 1:  # a run ends and a clean-up follows
            old = generation()
            shutil.rmtree(store.folder("mini", "index/bm25") / old.versions["index/bm25"])
            other.rename(store.folder("mini", "index/bm25") / "newer")
            told = {**old.__dict__, "versions": {**old.versions, "index/bm25": "newer"}}
            atomic.write_json(store.of_dataset("mini") / GENERATION, {"form": 1, "generation": told})
        return session.search(QUESTION, system="bm25")

    assert ask("mini", asked)[0]["rank"] == 1
    assert len(tries) == 2
    shutil.rmtree(store.folder("mini", "index/bm25"))
    with pytest.raises(ArtifactMissingError, match="index/bm25 of dataset 'mini' does not exist yet: run"):
        ask("mini", asked)
    assert len(tries) == 3, "without a newer generation there is no second try"


def test_a_home_without_generations_is_read_as_it_stands(finished_home: Path) -> None:
    whole = search()
    (Workspace().store.of_dataset("mini") / GENERATION).unlink()
    assert (search().stdout, search().stderr) == (whole.stdout, "")
    edit_spec(finished_home, lexical={"k1": 0.3})
    refused = search()
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "`skb-pipeline run --dataset mini` makes it anew" in refused.stderr


READ = textwrap.dedent("""
    import os
    from click.testing import CliRunner
    from skb_pipeline.cli import cli
    try:
        open(os.environ["SKB_HOME"] + "/x", "w")
    except PermissionError:
        print("may not be written")
    for command in (
        ["search", "--dataset", "mini", "--explain", "Which gene causes long QT syndrome 2?"],
        ["plan", "--dataset", "mini", "Which diseases have the phenotype words that no cache knows?"],
        ["metrics", "--dataset", "mini"], ["lineage", "--dataset", "mini"], ["systems", "--dataset", "mini"],
        ["dataset", "show", "mini"], ["guidance", "--dataset", "mini"],
    ):
        done = CliRunner().invoke(cli, command)
        print(command[0], done.exit_code, len(done.stdout) > 0, repr(done.exception), repr(done.stderr[-300:]))
""")
_CAPBSET_DROP, _DAC_OVERRIDE = 24, 1


def obey_permissions() -> None:
    """Permission bits hold for root too in the program that this process becomes; for others they do anyway."""
    ctypes.CDLL(None).prctl(_CAPBSET_DROP, _DAC_OVERRIDE, 0, 0, 0)


@pytest.fixture
def unwritable(finished_home: Path) -> Iterator[Path]:
    """The finished home where nobody may write, without the vectors of texts of questions."""
    for cache in (finished_home / "cache" / "mini").iterdir():
        shutil.rmtree(cache)
    (finished_home / "cache" / "model_hashes.json").unlink(missing_ok=True)
    everything = [finished_home, *finished_home.rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield finished_home
    for path in everything:
        path.chmod(0o755)


def test_all_that_reads_works_in_a_home_that_may_not_be_written(unwritable: Path) -> None:
    def states() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in unwritable.rglob("*")}

    before = states()
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, preexec_fn=obey_permissions, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == "may not be written"
    assert [line.split(" ", 1)[1][:11] for line in lines] == ["0 True None"] * 7, done.stdout
    assert states() == before


@pytest.mark.deep
def test_thirty_searches_during_a_refresh_and_after_its_kill_all_answer(finished_home: Path) -> None:
    command = [sys.executable, "-m", "skb_pipeline.cli", "run", "--dataset", "mini"]
    folder = Workspace().store.of_dataset("mini")
    whole, used = search("fused"), generation()
    edit_spec(finished_home, documents={"neighbours": 3}, lexical={"k1": 0.9})

    def started() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while (run := writer(folder)) is None:
            assert process.poll() is None
            time.sleep(0.05)
        return process, run

    def answers(process: subprocess.Popen[str], n: int) -> list[str]:
        told = []
        for _ in range(n):
            during = process.poll() is None
            answered = search("fused")
            assert answered.exit_code == 0, answered.stderr
            if during and generation() == used:
                assert answered.stdout == whole.stdout
            told.append(answered.stderr)
        return told

    refresh, run = started()
    told = answers(refresh, 8)
    assert f"run {run} is making it anew" in told[0]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"run {run} of dataset 'mini' is going on" in refused.stderr
    while ArtifactStore(folder.parent).require("mini", "text/documents").path.name == used.versions["text/documents"]:
        assert refresh.poll() is None
        time.sleep(0.01)
    refresh.send_signal(signal.SIGKILL)
    refresh.communicate()
    (line,) = set(answers(refresh, 2))
    assert line.endswith("`skb-pipeline run --dataset mini` makes it anew\n")

    refresh, _ = started()
    answers(refresh, 20)
    assert refresh.communicate(timeout=300)[0]
    assert refresh.returncode == 0
    assert generation().versions["index/bm25"] != used.versions["index/bm25"]
    assert search("fused").stderr == ""
    assert call("gc", "--dataset", "mini").exit_code == 0
    assert search("fused").exit_code == 0
