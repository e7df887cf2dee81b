"""The order of the library's rooms: none imports one above it (the picture is in docs/architecture.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import skb_pipeline

ROOT = Path(skb_pipeline.__file__).parent
ORDER = (
    "section", "errors", "storage", "text", "settings", "plans", "datasets", "skb", "questions", "retrieval", "linking",
    "graph", "fusion", "planning", "evaluation", "workspace", "systems", "search", "onboarding", "orchestration",
    "definitions", "cli",
)  # fmt: skip
"""From the bottom to the top. ``settings`` are the files of this name in all rooms: declarations, which read nothing
but each other and what is below them."""


def room_of(module: str) -> str:
    """The room of ``skb_pipeline.x.y``; declarations have one of their own."""
    parts = module.split(".")[1:]
    return "settings" if parts[-1] == "settings" else parts[0]


def imports(path: Path) -> Iterator[str]:
    """First-party modules that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("skb_pipeline."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "skb_pipeline":
            assert node.module is not None
            for alias in node.names:
                below = ROOT.joinpath(*node.module.split(".")[1:], alias.name)
                is_module = below.with_suffix(".py").is_file() or below.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module


FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_room_imports_one_above_it(path: Path) -> None:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    own = ORDER.index(room_of(".".join(["skb_pipeline", *parts])))
    declared_here = f"skb_pipeline.{parts[0]}.settings"
    assert not [m for m in imports(path) if ORDER.index(room_of(m)) > own and m != declared_here]


def test_every_room_has_its_place() -> None:
    files = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert files | folders <= set(ORDER)
