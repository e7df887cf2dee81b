"""Schedules: the slow, thorough look that does not rely on a sensor having seen a change."""

from collections.abc import Iterator

import dagster as dg

from skb_pipeline.orchestration.jobs import refresh_catalog
from skb_pipeline.workspace import Workspace


@dg.schedule(
    job=refresh_catalog,
    cron_schedule="0 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Hashes the source files of every dataset that was materialised before, each night.",
)
def nightly_catalogue(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """One run per dataset that was looked at before (another may have to be downloaded first, which a person decides).

    The key holds the tick time, so a tick asks once.
    """
    store = Workspace().store
    for name in sorted(context.instance.get_dynamic_partitions("dataset")):
        if store.current(name, "catalog/snapshot") is None:
            continue
        yield dg.RunRequest(run_key=f"{name}-{context.scheduled_execution_time:%Y%m%dT%H%M}", partition_key=name)


ALL = [nightly_catalogue]
