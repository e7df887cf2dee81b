"""Running the job from Python: the instance, the registered partition, and what each stage did.

The command line and tests use this; the UI starts the same job on the same instance.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.unchanged import SourceChangedError
from skb_pipeline.errors import UnknownNameError, UserError, unknown_name
from skb_pipeline.orchestration.partitions import register_datasets
from skb_pipeline.orchestration.runs import close_killed_runs, killed_runs_closed
from skb_pipeline.orchestration.sensors import TABLE_FOLLOWS
from skb_pipeline.orchestration.starters import starter_tags
from skb_pipeline.storage.atomic import file_lock, write_bytes
from skb_pipeline.storage.paths import HomeError, home_fault, project_root, skb_home
from skb_pipeline.storage.writing import writing
from skb_pipeline.systems.registry import load_registry
from skb_pipeline.workspace import Workspace

_PLANS = dg.AssetKey(["planning", "query_plans"])
_GUIDANCE = dg.AssetKey(["planning", "guidance"])
_METRICS = dg.AssetKey(["evaluation", "metrics"])
_LOCK = "opening.lock"
_TRIES = 3
_DAMAGED = ("malformed", "not a database", "no such table", "no such column", "already exists", "duplicate column")
"""Words of SQLite on files that two processes made at once, or that are cut."""


class RunFailedError(UserError, RuntimeError):
    """A run ended with a failed step or a failed blocking check; ``outcomes`` are the stages that were finished."""

    def __init__(self, message: str, outcomes: list[StageOutcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


@dataclass(frozen=True)
class StageOutcome:
    """One asset of a run: its key, wall time in seconds, whether it was reused, its metadata, and a line for each of
    its checks that did not pass.
    """

    asset: str
    seconds: float
    reused: bool
    metadata: dict[str, Any]
    warnings: tuple[str, ...] = ()


def prepare_home() -> Path:
    """Create the home folder with Dagster's home inside, put ``dagster.yaml`` there, set ``DAGSTER_HOME``.

    Several processes may do so at once. ``$SKB_DAGSTER_YAML`` names other settings than those that are shipped.

    Returns:
        Dagster's home.

    Raises:
        HomeError: the folder cannot be made or written, or its name does not do; the message names ``SKB_HOME``.
    """
    home = skb_home()
    dagster_home = home / "dagster"
    root = project_root()
    default = (root or Path(__file__).parents[1]) / "dagster.yaml"
    shipped = Path(os.environ.get("SKB_DAGSTER_YAML") or default).read_bytes()
    try:
        dagster_home.mkdir(parents=True, exist_ok=True)
        (home / "catalogue").mkdir(exist_ok=True)
        target = dagster_home / "dagster.yaml"
        if not target.is_file() or target.read_bytes() != shipped:
            write_bytes(target, shipped)
        # An old home may have become read-only; SQLite would say so in words of its own.
        os.close(os.open(dagster_home / _LOCK, os.O_RDWR | os.O_CREAT, 0o666))
    except OSError as error:
        raise (home_fault(error, making=True) or error) from error
    os.environ["SKB_HOME"] = str(home)
    os.environ["DAGSTER_HOME"] = str(dagster_home)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    return dagster_home


@contextmanager
def open_instance(datasets: Sequence[str] | None = ()) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance of the prepared home, with some datasets (None: all of the catalogue) as partitions and runs
    of killed processes closed.

    All this is done by one process at a time: on a fresh home Dagster makes its SQLite files while it opens them, and
    two processes that do so at once leave files that none can open.

    Raises:
        LockedError: another process has been opening it for two minutes.
        HomeError: the files were damaged so before; the message says what to remove.
    """
    dagster_home = Path(os.environ["DAGSTER_HOME"])
    with file_lock(dagster_home / _LOCK, what="has been preparing the home folder"):
        instance = _open(dagster_home)
        try:
            register_datasets(instance, None if datasets is None else list(datasets))
            close_killed_runs(instance)
        except BaseException:
            instance.dispose()
            raise
    with instance:
        yield instance


def _open(dagster_home: Path) -> dg.DagsterInstance:
    from alembic.util.exc import CommandError
    from sqlalchemy.exc import DatabaseError

    try:
        return dg.DagsterInstance.get()
    except (CommandError, DatabaseError) as error:
        told = str(error).strip().splitlines()[0]
        if isinstance(error, DatabaseError) and not any(sign in told for sign in _DAMAGED):
            raise
        raise HomeError(
            f"Dagster's own files cannot be opened ({told}): remove {dagster_home / 'history'} and "
            f"{dagster_home / 'schedules'} and start again; that loses the history of runs, and no artefact"
        ) from error


def asset_keys() -> list[str]:
    """Keys ``stage/name`` of all assets."""
    from skb_pipeline.orchestration.build import build_defs

    executable = build_defs().resolve_job_def("materialise").asset_layer.executable_asset_keys
    return sorted("/".join(key.path) for key in executable)


def check_asset(name: str, known: Iterable[str] | None = None) -> None:
    """See that there is an asset of this key.

    Raises:
        UnknownNameError: there is none; the message lists those there are.
    """
    keys = sorted(asset_keys() if known is None else known)
    if name not in keys:
        raise UnknownNameError(unknown_name(f"there is no asset {name!r}", name, keys))


def materialise(
    dataset: str,
    *,
    to: str | None = None,
    only: str | None = None,
    force: bool = False,
    plans: Mapping[str, Any] | None = None,
    instance: dg.DagsterInstance | None = None,
) -> list[StageOutcome]:
    """Materialise all assets of a dataset, or one with everything it needs.

    Args:
        dataset: name in the catalogue; registered as a partition if it is not yet.
        to: asset key ``stage/name``; None means all.
        only: asset key of the single asset to materialise, from what is there.
        force: compute although nothing changed.
        plans: run config of ``planning/query_plans``; None values are left out.

    Raises:
        UnknownNameError: there is no asset ``to`` or ``only``; the message lists those there are.
        UnknownSystemError, SystemsError: the spec or the file of systems names one that is not there.
        RunFailedError: a step or a blocking check failed; the message names it. Files that changed while they were read
            are read again first, three times in all.
        DatasetBusyError: another run of the dataset is going on; the message names it.
    """
    from skb_pipeline.orchestration.build import build_defs

    load_registry(skb_home()).wanted(get_spec(dataset))  # a misspelt system shows before anything is computed
    defs = build_defs()
    job = defs.resolve_job_def("materialise")
    keys = {"/".join(key.path): key for key in job.asset_layer.executable_asset_keys}
    selection = None
    named = only or to
    if named is not None:
        check_asset(named, keys)
        assets = dg.AssetSelection.assets(keys[named])
        selection = list((assets if only else assets.upstream()).resolve(defs.resolve_asset_graph()))
    tags, run_id = {**starter_tags(), TABLE_FOLLOWS: "yes"}, str(uuid.uuid4())
    with (
        writing(Workspace().store.of_dataset(dataset), run_id),
        open_instance([dataset]) if instance is None else instance as live,
    ):
        if instance is not None:
            register_datasets(live, [dataset])
            close_killed_runs(live)
        with killed_runs_closed(live):
            for again in range(_TRIES):
                result = job.execute_in_process(
                    instance=live,
                    partition_key=dataset,
                    asset_selection=selection,
                    run_config=_run_config(selection or list(keys.values()), force, plans or {}),
                    tags=tags,
                    run_id=None if again else run_id,
                    raise_on_error=False,
                )
                if only is not None or not _source_changed(result):
                    break
            outcomes = _outcomes(result)
            if not result.success and _METRICS in (selection or keys.values()):
                outcomes += _table_of_the_others(defs, live, dataset, tags, done={o.asset for o in outcomes})
    if not result.success:
        raise RunFailedError(_failure(result, dataset), outcomes)
    return outcomes


def _table_of_the_others(
    defs: dg.Definitions, instance: dg.DagsterInstance, dataset: str, tags: Mapping[str, str], done: set[str]
) -> list[StageOutcome]:
    """The metric table and the traces of the systems there are, after a run in which one failed.

    Dagster does not start what comes after a failed step, and these come after all systems. Where there is nothing to
    put into them, their failure adds nothing to that of the run.
    """
    job = defs.resolve_job_def("table")
    keys = [k for k in job.asset_layer.executable_asset_keys if "/".join(k.path) not in done]
    if not keys:
        return []
    result = job.execute_in_process(
        instance=instance,
        partition_key=dataset,
        asset_selection=keys,
        run_config=_run_config(keys, False, {}),
        tags=dict(tags),
        raise_on_error=False,
    )
    return _outcomes(result)


def _run_config(selection: list[dg.AssetKey], force: bool, plans: Mapping[str, Any]) -> dict[str, Any]:
    """Events go to the instance's own log; on the terminal a failure is told by :class:`RunFailedError` alone."""
    config: dict[str, Any] = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    # Guidance is pinned: every prompt would change with it. It is made anew only where it alone is asked for.
    forced = [key for key in selection if key != _GUIDANCE or len(selection) == 1] if force else []
    ops: dict[str, dict[str, Any]] = {"__".join(key.path): {"force": True} for key in forced}
    given = {name: value for name, value in plans.items() if value is not None}
    if given and _PLANS in selection:
        ops.setdefault("__".join(_PLANS.path), {}).update(given)
    if ops:
        config["ops"] = {name: {"config": values} for name, values in ops.items()}
    return config


def _outcomes(result: dg.ExecuteInProcessResult) -> list[StageOutcome]:
    seconds = {
        event.step_key: (event.step_success_data.duration_ms / 1000)
        for event in result.all_node_events
        if event.event_type_value == "STEP_SUCCESS"
    }
    warned: dict[str, list[str]] = defaultdict(list)
    for check in result.get_asset_check_evaluations():
        if not check.passed:
            told = ", ".join(f"{name}: {value.value}" for name, value in check.metadata.items() if value.value)
            warned["/".join(check.asset_key.path)].append(f"{check.check_name.replace('_', ' ')}: no; {told}")
    found = []
    for event in result.get_asset_materialization_events():
        metadata = {key: value.value for key, value in event.materialization.metadata.items()}
        key = "/".join(event.materialization.asset_key.path)
        time, reused = seconds.get(event.step_key, 0.0), bool(metadata.get("reused"))
        found.append(StageOutcome(key, time, reused, metadata, tuple(warned[key])))
    return found


def _source_changed(result: dg.ExecuteInProcessResult) -> bool:
    """Whether a step failed because a source file was not the one that was hashed."""
    failed = [event.step_failure_data.error for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    while any(error is not None for error in failed):
        if any(error is not None and error.cls_name == SourceChangedError.__name__ for error in failed):
            return True
        failed = [error.cause for error in failed if error is not None]
    return False


def _failure(result: dg.ExecuteInProcessResult, dataset: str) -> str:
    store = Workspace().store
    reasons = []
    for event in result.all_events:
        if event.event_type_value == "STEP_FAILURE":
            asset = str(event.step_key).replace("__", "/", 1)
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            # An asset remembers why it failed, in its own words; a check does not.
            told = store.failure(dataset, asset) or (error.message.strip() if error else "failed")
            reasons.append(f"{asset}: {told}")
    for check in result.get_asset_check_evaluations():
        if not check.passed and check.severity is dg.AssetCheckSeverity.ERROR:
            counts = ", ".join(f"{name}: {value.value}" for name, value in check.metadata.items())
            reasons.append(f"check {check.check_name} of {'/'.join(check.asset_key.path)} failed ({counts})")
    told = "; ".join(reasons) or "a step failed"
    return f"{told}\nThe whole log is in the UI (`skb-pipeline ui`) under run {result.run_id}"
