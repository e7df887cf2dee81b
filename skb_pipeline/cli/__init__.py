"""The command line ``skb-pipeline``. Data goes to stdout, everything else to stderr; exit code 0 only on success.

One module per group of commands. What is slow to import is imported inside the commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import click

from skb_pipeline.cli import datasets, neo4j, prompts, provenance, running, searching, status, systems, tables, traces
from skb_pipeline.cli.printing import Commands, plain_messages


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="skb-pipeline")
def cli() -> None:
    """Retrieval pipeline for semi-structured knowledge bases."""


for _command in (
    datasets.dataset,
    running.run, status.status, running.gc, running.ui,
    tables.metrics, tables.trace, traces.traces, traces.report,
    provenance.lineage, provenance.history, provenance.compare,
    searching.search, searching.plan,
    systems.systems,
    prompts.prompt, prompts.guidance,
    neo4j.neo4j,
):  # fmt: skip
    cli.add_command(_command)


def main() -> None:
    """Entry point."""
    plain_messages()
    cli(prog_name="skb-pipeline")
