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
    ready = (
        ~condition.in_progress()
        & ~condition.any_deps_in_progress()
        & ~condition.any_deps_match(condition.missing())
        & condition.all_deps_blocking_checks_passed()
    )
    return (_held() & ready).with_label("on_content_change")


def on_any_content_change(*required: str) -> dg.AutomationCondition:
    """Like :func:`on_content_change` for what is made of as many inputs as there are, such as a table of systems.

    A missing input holds nothing up, once one is there and none of the ``required`` (asset keys) is missing; each that
    comes later asks again. Blocking checks do not count: an input that failed its own is left out by its maker.
    """
    condition = dg.AutomationCondition
    needed = dg.AssetSelection.assets(*(dg.AssetKey(key.split("/")) for key in required))
    ready = (
        ~condition.in_progress()
        & ~condition.any_deps_in_progress()
        & ~condition.any_deps_match(condition.missing()).allow(needed)
        & condition.any_deps_match(~condition.missing()).ignore(needed)
    )
    return (_held() & ready).with_label("on_any_content_change")


def _held() -> dg.AutomationCondition:
    """A reason to run, kept until the asset was requested."""
    condition = dg.AutomationCondition
    changed = condition.any_deps_match(condition.data_version_changed() & ~condition.executed_with_root_target())
    trigger = (
        changed
        | condition.code_version_changed()
        | condition.newly_missing()
        | condition.execution_failed().newly_true()
    )
    return trigger.since(condition.newly_requested() | condition.initial_evaluation())
