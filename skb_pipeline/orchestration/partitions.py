"""The one partition dimension: the dataset. Split is a column; variants are asset keys."""

from __future__ import annotations

import dagster as dg

from skb_pipeline.datasets.catalogue import spec_files
from skb_pipeline.storage.paths import check_dataset_name

DATASETS = dg.DynamicPartitionsDefinition(name="dataset")


def register_datasets(instance: dg.DagsterInstance, names: list[str] | None = None) -> list[str]:
    """Make datasets of the catalogue (default: all) known as partitions; return those that were new.

    Raises:
        UnsafeNameError: a name that may not be a partition key (Dagster itself would accept it).
    """
    wanted = [check_dataset_name(name) for name in (names if names is not None else spec_files())]
    known = set(instance.get_dynamic_partitions("dataset"))
    new = [name for name in wanted if name not in known]
    if new:
        instance.add_dynamic_partitions("dataset", new)
    return new
