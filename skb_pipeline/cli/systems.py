"""The command ``systems``: what rankings there are, and what they still need."""

from __future__ import annotations

import click

from skb_pipeline.cli.options import format_option
from skb_pipeline.cli.printing import print_rows, readable_errors


@click.command()
@click.option("--dataset", "name", help="Say of each whether this dataset has it, and if not, why.")
@format_option
@readable_errors
def systems(name: str | None, output: str) -> None:
    """List all systems: built-in ones, and your own in systems.yaml of the home folder."""
    from skb_pipeline.systems.registry import load_registry
    from skb_pipeline.systems.state import state_of
    from skb_pipeline.workspace import Workspace

    workspace = Workspace()
    registry = load_registry(workspace.root)
    rows = [
        {
            "system": system,
            "kind": registry[system].kind,
            "needs": ", ".join(sorted(registry.needs(system))),
            **({"state": state_of(system, registry, workspace, name)} if name is not None else {}),
            "about": registry[system].about or registry[system].describe(),
        }
        for system in registry.shown
    ]
    print_rows(rows, list(rows[0]), output)
