"""Sensors: notice changed source files and new specs, and let assets follow by their automation condition.

Both are off until a person switches them on, as following a change may mean an hour of embedding.
"""

import json
from pathlib import Path

import dagster as dg

from skb_pipeline.datasets.catalogue import get_spec, spec_files
from skb_pipeline.datasets.loading import SpecError
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration.jobs import materialise, refresh_catalog, table
from skb_pipeline.orchestration.partitions import DATASETS
from skb_pipeline.text.sinks import terminal_text

TABLE_FOLLOWS = "skb/table_follows"
"""Tag of a run whose starter makes the table of the remaining systems itself."""


@dg.sensor(
    jobs=[refresh_catalog, materialise],
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Registers new datasets of the catalogue, looks again at those whose files changed, and runs the whole "
    "job of those whose spec changed.",
)
def catalogue_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Compare names, sizes and times of source files with the cursor; bytes are hashed by the run it requests.

    No run key: a key is remembered for ever, and a file that returns to an earlier state would be skipped.
    """
    seen: dict[str, list[list[object]]] = json.loads(context.cursor or "{}")
    known = set(context.instance.get_dynamic_partitions("dataset"))
    current: dict[str, list[list[object]]] = {}
    problems = []
    for name, spec_file in spec_files().items():
        try:
            current[name] = file_states([spec_file, *open_source(get_spec(name)).files()])
        except (SpecError, OSError) as error:
            problems.append(terminal_text(f"{name}: {error}"))
            if name in seen:
                current[name] = seen[name]
    for problem in problems:
        context.log.warning(terminal_text(f"cannot look at {problem}"))
    changed = [name for name, states in current.items() if states != seen.get(name)]
    new = [name for name in changed if name not in known]
    if not changed:
        return dg.SkipReason("no source file and no spec changed" + (f"; problems: {problems}" if problems else ""))
    return dg.SensorResult(
        run_requests=[
            # Most of a spec is no source: a changed one reaches every asset only through the whole job, which
            # reuses what does not depend on the change.
            dg.RunRequest(
                partition_key=name,
                job_name=(materialise if name in seen and seen[name][0] != current[name][0] else refresh_catalog).name,
            )
            for name in changed
        ],
        dynamic_partitions_requests=[DATASETS.build_add_request(new)] if new else [],
        cursor=json.dumps(current, sort_keys=True),
    )


def file_states(paths: list[Path]) -> list[list[object]]:
    """Path, size in bytes and modification time in ns of each file."""
    return [[str(path), (stat := path.stat()).st_size, stat.st_mtime_ns] for path in paths]


content_changes = dg.AutomationConditionSensorDefinition(
    "content_changes",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.STOPPED,
    minimum_interval_seconds=30,
    description="Requests assets whose inputs changed in content (see orchestration/automation.py).",
)


@dg.run_failure_sensor(
    name="table_of_the_others",
    monitor_all_code_locations=False,
    request_job=table,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="After a failed run that was to make the metric table, makes it of the systems there are: one that "
    "fails takes no other's row away.",
)
def table_of_the_others(context: dg.RunFailureSensorContext) -> dg.RunRequest | dg.SkipReason:
    """Dagster does not start what comes after a failed step, and the table comes after all systems."""
    run = context.dagster_run
    if run.job_name == table.name or TABLE_FOLLOWS in run.tags:
        return dg.SkipReason("the table itself failed, or whoever started the run makes it")
    wanted = run.asset_selection is None or dg.AssetKey(["evaluation", "metrics"]) in run.asset_selection
    if run.job_name not in (materialise.name, "__ASSET_JOB") or not wanted or "dagster/partition" not in run.tags:
        return dg.SkipReason("no metric table was asked for")
    return dg.RunRequest(run_key=run.run_id, partition_key=run.tags["dagster/partition"])


ALL = [catalogue_changes, content_changes, table_of_the_others]
