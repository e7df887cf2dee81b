"""No module writes to people by itself: what is printed, logged, exported or shown as Markdown goes through the
functions of ``text/sinks``, by way of ``cli/printing`` and ``orchestration/steps``."""

import ast
from collections.abc import Iterator
from pathlib import Path

import skb_pipeline

ROOT = Path(skb_pipeline.__file__).parent
RAW = {
    "click.echo", "click.secho", "click.echo_via_pager", "click.confirm", "click.prompt", "click.progressbar",
    "sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__", "sys.excepthook", "os.write", "print",
    "csv.writer", "csv.DictWriter", "logging.StreamHandler", "logging.basicConfig", "logging.lastResort",
    "traceback.print_exc", "traceback.print_exception", "warnings.warn", "MetadataValue.md",
}  # fmt: skip
METHODS = {"to_csv", "to_markdown", "to_html", "to_clipboard"}
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
EVENTS = {"AssetCheckResult", "AssetObservation", "AssetMaterialization", "MaterializeResult", "ObserveResult"}
WRITE_MARKDOWN = {"evaluation", "orchestration", "questions", "systems"}
MARKUP = ("```", "| ", "|-", "![")

ALLOWED = {
    # The common functions themselves.
    "cli/printing.py": {
        "click.echo", "click.confirm", "csv.writer", "sys.excepthook", "logging.lastResort",
    },
    "text/sinks.py": {"tqdm"},
    "orchestration/steps.py": {"MetadataValue.md", "metadata of MaterializeResult"},
    # Files for machines.
    "graph/neo4j/export.py": {"csv.writer"},
    "datasets/sources/stark/writing.py": {"csv.writer"},
    # A picture that was made here.
    "orchestration/assets/evaluation.py": {"markup '!['"},
}  # fmt: skip


def findings(source: str, room: str) -> Iterator[str]:
    """Raw sinks in a module: names that are used, and what is given to a log or an event without a function."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = ".".join(ast.unparse(node).split(".")[-2:])
            yield from {name} & RAW
            yield from {name.split(".")[-1]} & METHODS
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ("tqdm" for module in modules if module.split(".")[0] in ("tqdm", "rich"))
        elif isinstance(node, ast.Call):
            yield from _of_call(node, room)
        elif room in WRITE_MARKDOWN and isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield from (f"markup {sign!r}" for sign in MARKUP if str(node.value).lstrip().startswith(sign))


def _of_call(node: ast.Call, room: str) -> Iterator[str]:
    called = ast.unparse(node.func)
    if called.split(".")[-1] in LEVELS and ".log." in f".{called}" and not _made_by(node.args[0], {"terminal_text"}):
        yield "context.log"
    for keyword in node.keywords:
        if keyword.arg == "ensure_ascii" and room == "cli":
            yield "JSON with hidden characters"
        if keyword.arg == "metadata" and called.split(".")[-1] in EVENTS and not _made_by(keyword.value, {"plain"}):
            yield f"metadata of {called.split('.')[-1]}"


def _made_by(value: ast.expr, functions: set[str]) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in functions


def test_every_module_uses_the_common_functions() -> None:
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        raw = set(findings(path.read_text(), name.split("/")[0]))
        if raw:
            found[name] = raw
    assert found == ALLOWED


def test_raw_sinks_are_noticed() -> None:
    source = '''
"""| no table |"""
from tqdm.auto import tqdm
print(1)
click.echo(x)
sys.stderr.write(x)
frame.to_csv(path)
step.context.log.info(f"about {x}")
context.log.warning(terminal_text(x))
dg.MetadataValue.md(x)
dg.AssetCheckResult(passed=True, metadata={"a": x})
dg.AssetCheckResult(passed=True, metadata=plain({"a": x}))
json.dumps(x, ensure_ascii=False)
f"| {x} |"
'''
    noticed = [
        "tqdm", "print", "click.echo", "sys.stderr", "to_csv", "context.log", "MetadataValue.md",
        "metadata of AssetCheckResult",
    ]  # fmt: skip
    assert sorted(findings(source, "orchestration")) == sorted([*noticed, "markup '| '"])
    assert sorted(findings(source, "cli")) == sorted([*noticed, "JSON with hidden characters"])
