"""The automation condition, driven on a real instance with a parent and a child of its own."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from skb_pipeline.orchestration.automation import on_any_content_change, on_content_change
from skb_pipeline.orchestration.partitions import DATASETS


@dg.asset(partitions_def=DATASETS)
def parent() -> None: ...


@dg.asset(partitions_def=DATASETS, deps=[parent], automation_condition=on_content_change(), code_version="1")
def child() -> None: ...


DEFS = dg.Definitions([parent, child])


@dg.asset(partitions_def=DATASETS)
def questions() -> None: ...


@dg.asset(partitions_def=DATASETS)
def one() -> None: ...


@dg.asset(partitions_def=DATASETS)
def other() -> None: ...


@dg.asset(
    partitions_def=DATASETS, deps=[questions, one, other], automation_condition=on_any_content_change("questions")
)
def table() -> None: ...


OF_MANY = dg.Definitions([questions, one, other, table])


class Ticks:
    """Evaluations one after the other, as the daemon makes them."""

    def __init__(self, instance: dg.DagsterInstance, defs: dg.Definitions = DEFS) -> None:
        self.instance, self.defs = instance, defs
        self.cursor: Any = None

    def requested(self) -> int:
        result = dg.evaluate_automation_conditions(defs=self.defs, instance=self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return result.total_requested

    def made(self, key: str, version: str) -> None:
        self.instance.report_runless_asset_event(
            dg.AssetMaterialization(key, partition="mini", tags={"dagster/data_version": version})
        )


@pytest.fixture
def ticks(home: Path) -> Ticks:
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions("dataset", ["mini"])
        ticks = Ticks(instance)
        ticks.made("parent", "a")
        ticks.made("child", "x")
        assert ticks.requested() == 0, "what exists at the first look is not requested"
        yield ticks  # type: ignore[misc]


def test_only_changed_content_of_an_input_asks_and_only_once(ticks: Ticks) -> None:
    ticks.made("parent", "a")
    assert ticks.requested() == 0
    ticks.made("parent", "b")
    assert ticks.requested() == 1
    assert ticks.requested() == 0
    ticks.made("child", "x")
    assert ticks.requested() == 0
    ticks.made("parent", "a")
    assert ticks.requested() == 1, "content that returns to an earlier state is a change too"


def test_a_new_dataset_waits_for_its_inputs(ticks: Ticks) -> None:
    ticks.instance.add_dynamic_partitions("dataset", ["other"])
    assert ticks.requested() == 0
    ticks.instance.report_runless_asset_event(
        dg.AssetMaterialization("parent", partition="other", tags={"dagster/data_version": "a"})
    )
    assert ticks.requested() == 1


def test_a_table_of_many_waits_for_one_of_them_and_for_what_it_requires(home: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        ticks = Ticks(instance, OF_MANY)
        assert ticks.requested() == 0
        instance.add_dynamic_partitions("dataset", ["mini"])
        assert ticks.requested() == 0, "nothing is there"
        ticks.made("one", "a")
        assert ticks.requested() == 0, "what it requires is not there"
        ticks.made("questions", "q")
        assert ticks.requested() == 1, "one of many is enough"
        ticks.made("table", "t")
        assert ticks.requested() == 0
        ticks.made("other", "b")
        assert ticks.requested() == 1, "each that comes later asks again"
        ticks.made("table", "t2")
        ticks.made("one", "a")
        assert ticks.requested() == 0, "made again with the same content"
