"""Is a fused system at least as good as the best of what it is made of?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from skb_pipeline.evaluation.metrics import METRICS
from skb_pipeline.storage.duck import connect

SPLITS = ("val", "test")
"""Where it is looked at: on test only if there is no validation question."""


@dataclass(frozen=True)
class Comparison:
    """A fused system beside its best part, in one metric.

    Attributes:
        system, part: names; ``part`` has the highest mean of all parts.
        split, metric: where.
        value, low, high: mean of (system - part) over paired questions, with its 95 % interval.
    """

    system: str
    part: str
    split: str
    metric: str
    value: float
    low: float
    high: float

    @property
    def worse(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.high < 0

    def __str__(self) -> str:
        where = self.split if self.split == "val" else f"{self.split} (there are no validation questions)"
        return (
            f"{self.metric} of {self.system} minus {self.part} on {where}: "
            f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"
        )


def beside_best_parts(
    metric_rows: pd.DataFrame, differences: pd.DataFrame, parts: Mapping[str, Sequence[str]]
) -> list[Comparison]:
    """Each fused system beside the best of its parts, per metric.

    Args:
        metric_rows, differences: rows of ``METRIC_ROWS`` and ``DIFFERENCE_ROWS`` of one dataset.
        parts: system -> the systems it is made of. Those without rows, and those it was not compared with, are left
            out.
    """
    whole = metric_rows[metric_rows["slice"] == "all"]
    split = next((split for split in SPLITS if (whole["split"] == split).any()), None)
    means = whole[whole["split"] == split].set_index(["system", "metric"])["value"].to_dict()
    own = differences[(differences["slice"] == "all") & (differences["split"] == split)]
    compared = own.set_index(["system", "other", "metric"])[["difference", "ci_low", "ci_high"]]
    found = []
    for system, of in parts.items():
        for metric in METRICS:
            known = [part for part in of if (part, metric) in means and (system, part, metric) in compared.index]
            if known and split is not None:
                best = max(known, key=lambda part: means[part, metric])
                value, low, high = compared.loc[(system, best, metric)].tolist()
                found.append(Comparison(system, best, split, metric, value, low, high))
    return found


def worse_than_parts(
    metrics_file: Path, parts: Mapping[str, Sequence[str]], systems: Collection[str] | None = None
) -> list[str]:
    """What of a stored metric table says that a fused system is worse than the best of its parts, a sentence each.

    Args:
        metrics_file: the DuckDB file of ``evaluation/metrics``.
        parts: see :func:`beside_best_parts`.
        systems: only these.
    """
    with connect(metrics_file, read_only=True) as con:
        rows, differences = (con.execute(f"SELECT * FROM {table}").df() for table in ("metrics", "differences"))
    asked = {system: of for system, of in parts.items() if systems is None or system in systems}
    return [str(one) for one in beside_best_parts(rows, differences, asked) if one.worse]
