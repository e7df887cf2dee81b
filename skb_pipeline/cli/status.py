"""The command ``status``: what is out of date, why, and what a run would do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from skb_pipeline.cli.options import dataset_option, json_option
from skb_pipeline.cli.printing import aligned, note, out, print_json, readable_errors

if TYPE_CHECKING:
    from skb_pipeline.orchestration.status import AssetStatus

_REASONS_SHOWN = 4


@click.command()
@dataset_option
@click.option("--verify", is_flag=True, help="Hash every source file, whatever its size and time say.")
@json_option
@readable_errors
def status(name: str, verify: bool, output: str) -> None:
    """Say of each asset whether it is fresh, stale (and why), missing or failed, and what a run would do.

    Nothing is computed and nothing is written. The exit code is 0 when all is fresh and 1 otherwise.
    """
    from skb_pipeline.orchestration.status import status_of
    from skb_pipeline.workspace import Workspace

    found = status_of(name, Workspace(), verify=verify)
    if output == "json":
        print_json(_as_json(name, found))
    else:
        rows = [{"asset": one.asset, "state": one.state, "why": _why(one)} for one in found]
        out(aligned(rows, ["asset", "state", "why"]))
        note(_summary(found))
    if not all(one.settled for one in found):
        sys.exit(1)


def _why(one: AssetStatus) -> str:
    reasons, more = one.reasons[:_REASONS_SHOWN], len(one.reasons) - _REASONS_SHOWN
    work = [f"{number} {what}" for what, number in one.work.items() if number]
    return "; ".join(" ".join(text.split()) for text in [*reasons, *([f"and {more} more"] if more > 0 else []), *work])


def _totals(found: Sequence[AssetStatus]) -> dict[str, Any]:
    """What a run would do: assets made anew for their own sake, and with those that follow them if nothing comes out
    equal."""
    own, all_of_them = [one for one in found if one.by_itself], [one for one in found if not one.settled]
    work = Counter[str]()
    for one in all_of_them:
        work.update(one.work)
    return {
        "assets": len(own),
        "assets at most": len(all_of_them),
        **work,
        "seconds": round(sum(one.seconds or 0 for one in own), 1),
        "seconds at most": round(sum(one.seconds or 0 for one in all_of_them), 1),
        "time unknown of": sum(one.seconds is None for one in all_of_them),
    }


def _summary(found: Sequence[AssetStatus]) -> str:
    states = Counter(one.state for one in found)
    line = ", ".join(f"{number} {state}" for state, number in states.most_common())
    if all(one.settled for one in found):
        return f"{line}: a run would make nothing"
    totals = _totals(found)
    unknown = totals.pop("time unknown of")
    first = f"{totals.pop('assets')} to {totals.pop('assets at most')} assets made"
    seconds = f"{totals.pop('seconds'):g} to {totals.pop('seconds at most'):g} seconds at the last rates"
    work = [f"{number} {what}" for what, number in totals.items()]
    told = ", ".join([first, *work, seconds]) + (f" (and {unknown} of unknown time)" if unknown else "")
    return f"{line}. A run: {told}"


def _as_json(name: str, found: Sequence[AssetStatus]) -> dict[str, Any]:
    return {
        "dataset": name,
        "fresh": all(one.settled for one in found),
        "run": _totals(found),
        "assets": [
            {
                "asset": one.asset,
                "state": one.state,
                "reasons": one.reasons,
                "differences": [difference.as_json() for difference in one.differences],
                "follows": list(one.follows),
                **one.work,
                "seconds": one.seconds,
                "created": one.created,
                "run_id": one.run_id,
            }
            for one in found
        ],
    }
