"""What the documents name is there: modules in examples, files behind links, and commands."""

import importlib
import re
from pathlib import Path

import pytest

from skb_pipeline.cli import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
IMPORT = re.compile(r"^from (skb_pipeline[\w.]*) import \(?([\w, ]+)", re.MULTILINE)
MENTION = re.compile(r"`(skb_pipeline(?:\.[a-z_0-9]+)+)(?:\.[A-Za-z_]+)?`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"skb-pipeline ([a-z0-9]+)(?: ([a-z]+))?")


@pytest.fixture(params=PAGES, ids=lambda path: path.name)
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_imports_of_examples_work(page: Path) -> None:
    for module, names in IMPORT.findall(page.read_text()):
        loaded = importlib.import_module(module)
        for name in filter(None, (part.strip() for part in names.split(","))):
            assert hasattr(loaded, name), f"{module}.{name}"


def test_modules_that_are_mentioned_exist(page: Path) -> None:
    for name in MENTION.findall(page.read_text()):
        path = ROOT.joinpath(*name.split("."))
        found = path.is_dir() or path.with_suffix(".py").is_file()
        assert found or path.parent.is_dir() or path.parent.with_suffix(".py").is_file(), name


def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_commands_exist(page: Path) -> None:
    for name, below in COMMAND.findall(page.read_text()):
        assert name in cli.commands, name
        group = getattr(cli.commands[name], "commands", None)
        if group is not None and below:
            assert below in group, (name, below)
