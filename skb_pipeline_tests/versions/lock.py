"""Digests of the code behind every asset, beside the versions they had: ``versions.lock.json`` in this folder.

A digest covers the syntax tree of a module without docstrings, comments and ``VERSION`` itself. An asset is behind the
function that is declared as it, and all first-party modules that its ``code`` modules import, directly or not, but for
declarations of the spec (``settings.py`` and ``datasets/spec.py``): those count by their values, as sections.

``python -m skb_pipeline_tests.versions.lock`` (``make versions``) writes the lock anew. The digest is never the version
itself: a refactoring must not cost an hour of embedding.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import skb_pipeline
from skb_pipeline.systems.kinds import KINDS

ROOT = Path(skb_pipeline.__file__).parent
LOCK = Path(__file__).with_name("versions.lock.json")
DECLARATIONS = {"skb_pipeline.section", "skb_pipeline.errors", "skb_pipeline.datasets.spec"}

Lock = dict[str, dict[str, Any]]
"""``modules``: name -> digest. ``assets``: key -> ``version``, ``function`` (digest), ``modules`` (names)."""


def current_lock(definitions: Any) -> Lock:
    """The lock of the code as it stands.

    Args:
        definitions: ``dagster.Definitions`` whose assets are declared by ``pipeline_asset``.
    """
    assets: dict[str, Any] = {}
    graph = definitions.resolve_asset_graph()
    for key in sorted(graph.materializable_asset_keys):
        node = graph.get(key)
        module, function = str(node.metadata["function"]).split(":")
        code = list(node.metadata["code"])
        assets["/".join(key.path)] = {
            "version": node.code_version,
            "function": function_digest(module, function),
            "modules": sorted({m for name in code for m in closure(name)}),
        }
    for kind, system in KINDS.items():
        # A kind that no built-in system is of has no asset here, and its versions stand in its modules alone.
        modules = closure(system.__module__)
        versions = {name: version for name in modules if (version := version_of(name)) is not None}
        told = ", ".join(f"{name.removeprefix('skb_pipeline.')} {versions[name]}" for name in sorted(versions))
        assets[f"kind/{kind}"] = {"version": told, "function": "", "modules": sorted(modules)}
    names = sorted({m for asset in assets.values() for m in asset["modules"]})
    return {"modules": {name: module_digest(name) for name in names}, "assets": assets}


def differences(lock: Lock, now: Lock) -> list[str]:
    """What speaks against the lock, one sentence per asset; empty where it holds."""
    found = []
    for key, asset in now["assets"].items():
        before = lock["assets"].get(key)
        if before is None:
            found.append(f"{key} is new: run `make versions`")
            continue
        changed = sorted(
            _shown(name)
            for name in {*asset["modules"], *before["modules"]}
            if lock["modules"].get(name) != now["modules"].get(name)
        )
        if asset["function"] != before["function"]:
            changed.append("its own function")
        if asset["version"] != before["version"]:
            found.append(f"{key} has the version {asset['version']!r} now: run `make versions`")
        elif changed:
            found.append(
                f"{key}: {', '.join(changed)} changed; bump VERSION (or revision) where results differ, and run "
                "`make versions`"
            )
    found += [f"{key} is gone: run `make versions`" for key in sorted(lock["assets"].keys() - now["assets"].keys())]
    return found


def _shown(module: str) -> str:
    return _file(module).relative_to(ROOT).as_posix()


@cache
def closure(module: str) -> frozenset[str]:
    """First-party modules that a module needs, itself among them, declarations left out."""
    found: set[str] = set()
    frontier = [module]
    while frontier:
        name = frontier.pop()
        if name not in found and not _is_declaration(name):
            found.add(name)
            frontier += imports(name)
    return frozenset(found)


def _is_declaration(name: str) -> bool:
    return name in DECLARATIONS or name.endswith(".settings")


def imports(module: str) -> list[str]:
    """First-party modules that a module imports, wherever in it the import stands but for types alone."""
    return sorted({name for node in _needed(_tree(module)) for name in _imported(node)})


def _needed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _needed(child)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith("skb_pipeline."))
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "skb_pipeline":
        for alias in node.names:
            below = f"{node.module}.{alias.name}"
            yield below if _file(below).is_file() else str(node.module)


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split(".")[1:])
    module_file = path.with_suffix(".py")
    return module_file if module_file.is_file() else path / "__init__.py"


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


def version_of(module: str) -> str | None:
    """What a module's ``VERSION`` says; None without one."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and _idle(node) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return None


@cache
def module_digest(module: str) -> str:
    """Digest (16 hex digits) of what a module does."""
    return digest(_tree(module))


@cache
def function_digest(module: str, qualname: str) -> str:
    """Digest of one function: its arguments and body, without decorators."""
    node: ast.AST = _tree(module)
    for name in (part for part in qualname.split(".") if part != "<locals>"):
        node = next(n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n.name == name)
    assert isinstance(node, ast.FunctionDef)
    return digest(node.args, *node.body)


def digest(*trees: ast.AST) -> str:
    """Digest of syntax trees: docstrings, other bare strings and ``VERSION`` do not count.

    It is written out here, as ``ast.dump`` differs from one version of Python to the next.
    """
    return hashlib.sha256(json.dumps([_written(tree) for tree in trees]).encode()).hexdigest()[:16]


def _written(value: Any) -> Any:
    """A node as nested lists, without what is empty."""
    if isinstance(value, list):
        return [_written(item) for item in value if not _idle(item)]
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = [(name, own) for name, own in ast.iter_fields(value) if own is not None and own != []]
    return [type(value).__name__, [[name, _written(own)] for name, own in fields]]


def _idle(node: Any) -> bool:
    """Whether a statement does nothing: a bare string, or the version that stands beside the behaviour."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "VERSION" for t in node.targets)


def read_lock() -> Lock:
    """The lock as it was last written."""
    lock: Lock = json.loads(LOCK.read_text())
    return lock


def write_lock() -> None:
    """Write the lock of the built-in assets."""
    from skb_pipeline.orchestration.build import build_defs
    from skb_pipeline.systems.registry import BUILTIN, Registry, read_systems

    lock = current_lock(build_defs(registry=Registry(read_systems(BUILTIN))))
    LOCK.write_text(json.dumps(lock, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_lock()
