"""Commands that show what a language model is given: ``prompt`` and ``guidance``."""

from __future__ import annotations

import click

from skb_pipeline.cli.options import dataset_option
from skb_pipeline.cli.printing import note, out, print_json, readable_errors


@click.command()
@dataset_option
@click.argument("question")
@readable_errors
def prompt(name: str, question: str) -> None:
    """Print what a language model is asked for a question, and (to stderr) the version of the prompts."""
    from skb_pipeline.planning.prompts.prompt_set import PromptSet
    from skb_pipeline.text.cleaning import clean_text
    from skb_pipeline.workspace import Workspace

    workspace = Workspace()
    prompts = PromptSet(workspace.spec(name), workspace.guidance(name))
    for message in prompts.messages(clean_text(question)):
        out(f"--- {message.role}\n{message.content}")
    note(f"prompts {prompts.version}")


@click.command()
@dataset_option
@click.option("--refresh", is_flag=True, help="Make it anew; every prompt changes with it.")
@readable_errors
def guidance(name: str, refresh: bool) -> None:
    """Print what prompts tell of a dataset (pinned: it changes with the schema or on request only), as JSON."""
    from skb_pipeline.orchestration.running import materialise, prepare_home
    from skb_pipeline.workspace import Workspace

    if refresh:
        prepare_home()
        (made,) = materialise(name, only="planning/guidance", force=True)
        for told in [*made.metadata["notes"], *made.metadata["reasons"]]:
            note(told)
    print_json(Workspace().guidance(name).to_json())
