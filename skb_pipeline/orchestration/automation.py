"""When an asset runs by itself."""

from __future__ import annotations

import dagster as dg


def on_content_change() -> dg.AutomationCondition:
    """Run when the *content* of an input changed, and only when all inputs are ready.

    Term by term:

    * ``data_version_changed`` of any dependency: reacts to content, not to the mere fact that a parent ran again.
      ``executed_with_root_target`` excludes parents that ran in one run together with this asset.
    * ``code_version_changed``: the step behaves differently now.
    * ``newly_missing``: a dataset was registered, or its artefact removed.
    * ``execution_failed().newly_true()``: one retry after a failure, not an endless loop.
    * ``.since(newly_requested | initial_evaluation)``: the wish is held until the asset was *requested*, so a
      change that arrives while a run is in progress is not lost.
    * ready: nothing in progress, here or upstream; no input missing; blocking checks of the inputs passed.

    ``will_be_requested`` is left out on purpose: a child must not share a run with its parent, or it would run
    even when the parent's output turned out unchanged.
    """
    condition = dg.AutomationCondition
    changed = condition.any_deps_match(condition.data_version_changed() & ~condition.executed_with_root_target())
    trigger = (
        changed
        | condition.code_version_changed()
        | condition.newly_missing()
        | condition.execution_failed().newly_true()
    )
    ready = (
        ~condition.in_progress()
        & ~condition.any_deps_in_progress()
        & ~condition.any_deps_match(condition.missing())
        & condition.all_deps_blocking_checks_passed()
    )
    held = trigger.since(condition.newly_requested() | condition.initial_evaluation())
    return (held & ready).with_label("on_content_change")
