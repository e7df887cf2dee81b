"""Schedules: the slow, thorough look that does not rely on a sensor having seen a change."""

from collections.abc import Iterator

import dagster as dg

from skb_pipeline.orchestration.jobs import refresh_catalog


@dg.schedule(
    job=refresh_catalog,
    cron_schedule="0 3 * * *",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Hashes the source files of every registered dataset each night.",
)
def nightly_catalogue(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """One run per registered dataset; the key holds the tick time, so a tick asks once."""
    for name in sorted(context.instance.get_dynamic_partitions("dataset")):
        yield dg.RunRequest(run_key=f"{name}-{context.scheduled_execution_time:%Y%m%dT%H%M}", partition_key=name)


ALL = [nightly_catalogue]
