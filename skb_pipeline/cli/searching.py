"""Commands for a single question: ``search`` and ``plan``."""

from __future__ import annotations

from typing import Any

import click

from skb_pipeline.cli.options import ENGINES, dataset_option, format_option
from skb_pipeline.cli.printing import Row, note, print_json, print_rows, readable_errors
from skb_pipeline.text.sinks import json_text


@click.command()
@dataset_option
@click.option("--system", default="fused", show_default=True, help="Which one: see `skb-pipeline systems`.")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1, 1000), help="Number of hits.")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only nodes that meet it, such as 'price < 50'; repeat it for several.",
)
@click.option("--explain", is_flag=True, help="Also print plan, links and each branch's ranks (to stderr).")
@click.argument("question")
@format_option
@readable_errors
def search(name: str, system: str, k: int, where: tuple[str, ...], explain: bool, question: str, output: str) -> None:
    """Rank the nodes of a dataset for one question."""
    from skb_pipeline.search import SearchSession, ask

    def asked(session: SearchSession) -> tuple[list[Row], Row | None, list[str]]:
        lacking = session.only(where) if where else 0
        hits = session.search(question, system=system, k=k)
        told = session.worse_than_parts(system)
        if lacking:
            told.append(f"{lacking} candidates have no value to compare and are left out.")
        if not explain:
            return hits, None, told
        return session.with_branch_ranks(question, hits), session.explain(question), told

    hits, explained, told = ask(name, asked, tell=note)
    for line in told:
        note(line)
    if explained is not None:
        note(json_text(explained))
    ranks = [key for key in hits[0] if key.startswith("rank ")] if hits else []
    print_rows(hits, ["rank", "external_id", "node_type", "name", "score", *ranks], output)


@click.command()
@dataset_option
@click.option("--engine", type=ENGINES, help="Who makes the plan; default: as the spec says.")
@click.argument("question")
@readable_errors
def plan(name: str, engine: Any, question: str) -> None:
    """Print a question's plan as JSON: plan, status, dropped, links, cypher, sql, n_cand."""
    from skb_pipeline.search import ask

    print_json(ask(name, lambda session: session.explain(question), engine=engine, present_plans=True, tell=note))
