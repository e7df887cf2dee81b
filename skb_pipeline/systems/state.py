"""Whether a dataset has the ranking of a system, in words."""

from __future__ import annotations

from skb_pipeline.storage.artifacts import ManifestMismatchError
from skb_pipeline.systems.registry import Registry
from skb_pipeline.workspace import Workspace


def state_of(system: str, registry: Registry, workspace: Workspace, dataset: str) -> str:
    """``made``, or why it is not there: not asked for, failed, out of date, not made yet.

    Raises:
        UnknownDatasetError, UnknownSystemError: there is no such dataset, or its spec names no such system.
    """
    reason = registry.why_not(system, workspace.spec(dataset))
    if reason is not None:
        return reason
    asset = f"ranking/{system}"
    failed = workspace.store.failure(dataset, asset)
    if failed is not None:
        return f"failed at the last run: {failed}"
    if workspace.store.current(dataset, asset) is None:
        return "not made yet"
    try:
        made = workspace.store.require_fitting(dataset, asset)
    except ManifestMismatchError:
        return "out of date"
    if "absent" in made.manifest:
        return "not made yet"
    same = made.manifest["config"].get("system") == registry[system].settings()
    return "made" if same else "out of date: its settings changed since"
