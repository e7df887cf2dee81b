"""What assets are given: the workspace on disk."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from skb_pipeline.orchestration.runs import tell_process
from skb_pipeline.workspace import Workspace


class WorkspaceResource(dg.ConfigurableResource[Workspace]):
    """Gives assets a plain :class:`Workspace`.

    Attributes:
        home: folder; empty means ``$SKB_HOME``, else ``.skb`` in the project.
    """

    home: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Workspace:
        """The workspace; nothing is opened yet. It is made once per run, in the run's process."""
        if context.instance is not None and context.run is not None:
            tell_process(context.instance, context.run)
        return Workspace(Path(self.home)) if self.home else Workspace()


WorkspaceParam = dg.ResourceParam[Workspace]
"""Annotation of the assets' parameter ``workspace``."""
