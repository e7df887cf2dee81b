"""Jobs: named selections of assets a person starts for one dataset."""

from __future__ import annotations

import dagster as dg

materialise = dg.define_asset_job(
    "materialise",
    selection=dg.AssetSelection.all(),
    description="Everything from source files to the metric table; what did not change is reused.",
    # A run that Dagster starts again after its process was killed begins at the files: they may have changed.
    tags={"dagster/retry_strategy": "ALL_STEPS"},
)
evaluate = dg.define_asset_job(
    "evaluate",
    selection=dg.AssetSelection.groups("evaluation"),
    description="Metrics and tables from the rankings as they stand.",
)
table = dg.define_asset_job(
    "table",
    selection=dg.AssetSelection.assets(*(dg.AssetKey(["evaluation", name]) for name in ("metrics", "traces"))),
    description="The metric table and the traces of the systems there are, whatever became of the others.",
)
ALL = [materialise, evaluate, table]
