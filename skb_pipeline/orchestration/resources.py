"""What assets are given: the workspace on disk, of which a run alone writes its dataset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from skb_pipeline.orchestration.runs import tell_process
from skb_pipeline.orchestration.starters import started_here
from skb_pipeline.storage.paths import is_dataset_name
from skb_pipeline.storage.writing import writing
from skb_pipeline.text.sinks import terminal_text
from skb_pipeline.workspace import Workspace


class WorkspaceResource(dg.ConfigurableResource[Workspace]):
    """Gives assets a plain :class:`Workspace`; two runs of one dataset take turns.

    The command line refuses to start a run beside another. One of the UI waits, and its log says for which: it was
    asked for already, perhaps by a sensor that would have to ask again.

    Attributes:
        home: folder; empty means ``$SKB_HOME``, else ``.skb`` in the project.
    """

    home: str = ""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Workspace]:
        """The workspace, for as long as the run lives."""
        workspace = self.create_resource(context)
        run = context.run
        dataset = run.tags.get("dagster/partition", "") if run is not None else ""
        if run is None or not is_dataset_name(dataset) or started_here(run):
            yield workspace
            return

        def tell(text: str) -> None:
            if context.log is not None:
                context.log.info(terminal_text(text))

        with writing(workspace.store.of_dataset(dataset), run.run_id, waits=tell):
            yield workspace

    def create_resource(self, context: dg.InitResourceContext) -> Workspace:
        """The workspace; nothing is opened yet. It is made once per run, in the run's process."""
        if context.instance is not None and context.run is not None:
            tell_process(context.instance, context.run)
        return Workspace(Path(self.home)) if self.home else Workspace()


WorkspaceParam = dg.ResourceParam[Workspace]
"""Annotation of the assets' parameter ``workspace``."""
