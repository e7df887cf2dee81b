"""Help: every command has one, and none waits for what only a command itself needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

import click
import pytest
from click.testing import CliRunner

import skb_pipeline.cli as package
from skb_pipeline.cli import cli


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(below, *path, name)


def test_no_command_of_a_module_is_forgotten() -> None:
    modules = [import_module(f"skb_pipeline.cli.{m.name}") for m in iter_modules(package.__path__) if m.name[0] != "_"]
    defined = {id(c) for module in modules for c in vars(module).values() if isinstance(c, click.Command)}
    assert len(defined) > 10
    assert defined <= {id(command_at(path)) for path in commands(cli)}


@pytest.mark.parametrize("path", list(commands(cli)), ids=" ".join)
def test_every_command_says_what_it_does(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*path, "--help"])
    assert shown.exit_code == 0
    assert shown.output.splitlines()[2].strip()


def test_help_imports_nothing_slow() -> None:
    script = (
        "import sys; from skb_pipeline.cli import cli; "
        "cli(['neo4j', 'load', '--help'], standalone_mode=False); "
        "print(sorted({'torch', 'dagster', 'pandas', 'numpy', 'duckdb', 'pydantic', 'neo4j'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "skb_pipeline.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("skb-pipeline, version ")
