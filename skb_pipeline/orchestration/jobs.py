"""Jobs: named selections of assets a person starts for one dataset."""

from __future__ import annotations

import dagster as dg

materialise = dg.define_asset_job(
    "materialise",
    selection=dg.AssetSelection.all(),
    description="Everything from source files to the metric table; what did not change is reused.",
)
refresh_catalog = dg.define_asset_job(
    "refresh_catalog",
    selection=dg.AssetSelection.assets(dg.AssetKey(["catalog", "snapshot"])),
    description="Look at the source files again. Assets follow by themselves if the automation sensor is on.",
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
ALL = [materialise, refresh_catalog, evaluate, table]
