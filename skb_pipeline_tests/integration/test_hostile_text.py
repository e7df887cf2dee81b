"""A source full of what terminals, Markdown and spreadsheets obey goes through a run and is shown as text only."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.orchestration.build import build_defs
from skb_pipeline.orchestration.running import asset_keys, open_instance
from skb_pipeline.text.sinks import terminal_text
from skb_pipeline_tests.conftest import enter_home
from skb_pipeline_tests.text.test_sinks import LINKED, OBEYED, nodes
from skb_pipeline_tests.toy import toy_spec

NAMES = [
    "Tent \x1b]0;owned\x07 \x9b31m", "```\n\n# Out\n![x](http://evil.test/x.png)\n\n```", "<img src=http://evil.test/y.png>",
    '=HYPERLINK("http://evil.test","x")', "a|b\\|c\n| --- |", "[go](http://evil.test) www.evil.test me@evil.test",
    "back\b\b\bspace\rreturn", "+1+1", "````````", "- x\n1. y",
]  # fmt: skip
IDS = [f"={i}+\x1b[2J|" for i in range(len(NAMES))]
QUESTIONS = [f"{name} tent" for name in NAMES]
ABOUT = "Words ![x](http://evil.test/z.png) <b>first</b>\x1b[0m"


def write_source(folder: Path) -> dict[str, Any]:
    folder.mkdir()

    def table(name: str, rows: list[dict[str, Any]]) -> None:
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    table("p.jsonl", [{"id": i, "title": n, "about": f"{n}\n{n}"} for i, n in zip(IDS, NAMES, strict=True)])
    edges = [{"a": IDS[0], "b": i} for i in IDS[1:]] + [{"a": IDS[0], "b": f"gone\x1b[{n}m\x07"} for n in range(3)]
    table("e.jsonl", edges)
    splits = ("test", "val", "train")
    asked = [{"query_id": f"q\x1b{n}", "query": query, "answer_ids": [IDS[n]], "split": splits[n % 3]}
             for n, query in enumerate(QUESTIONS)]  # fmt: skip
    table("q.jsonl", asked)
    return {
        "folder": str(folder),
        "nodes": [{"files": "p.jsonl", "id": "id", "type_value": "product",
                   "fields": {"title": "title", "feature": "about"}}],
        "edges": [{"files": "e.jsonl", "head": "a", "tail": "b", "relation_value": "also_buy"}],
        "queries": [{"files": "q.jsonl"}],
    }  # fmt: skip


def call(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    """The result of a run in a home of its own."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        enter_home(folder / "home", patch)
        spec = toy_spec(
            name="hostile", description=ABOUT, citation=f"{ABOUT} \u202etxt", candidates=["product"],
            source={"adapter": "tables", "args": write_source(folder / "files"), "max_bad_edge_rate": 0.5},
        )  # fmt: skip
        text = yaml.safe_dump(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
        (folder / "home" / "catalogue" / "hostile.yaml").write_text(text)
        own = {"own": {"kind": "lexical", "about": ABOUT}}
        (folder / "home" / "systems.yaml").write_text(yaml.safe_dump(own))
        yield call("run", "--dataset", "hostile")


def test_a_run_prints_plain_characters(hostile: Result) -> None:
    assert hostile.exit_code == 0, hostile.output
    assert not OBEYED.search(hostile.output)


COMMANDS = [
    ["search", "--dataset", "hostile", "--explain", QUESTIONS[0]],
    ["search", "--dataset", "hostile", "--system", "bm25", QUESTIONS[1]],
    ["metrics", "--dataset", "hostile"],
    ["plan", "--dataset", "hostile", QUESTIONS[2]],
    ["prompt", "--dataset", "hostile", QUESTIONS[3]],
    ["guidance", "--dataset", "hostile"],
    ["trace", "--dataset", "hostile", "q\x1b0"],
    ["trace", "--dataset", "hostile", "q\x1b99"],
    ["traces", "--dataset", "hostile"],
    ["traces", "--dataset", "hostile", "--columns", "all", "--format", "csv"],
    ["traces", "--dataset", "hostile", "--where", "\x1b[2J = 1"],
    ["traces", "--dataset", "hostile", "--where", "query::int = 1"],
    ["traces", "--dataset", "hostile", "--buckets"],
    ["lineage", "--dataset", "hostile"],
    ["systems", "--dataset", "hostile"],
    ["dataset", "show", "hostile"],
    ["dataset", "check", "hostile"],
    ["dataset", "show", "hos\x1b[2Jtile"],
    ["metrics", "--dataset", "hostile", "--format", "\x1b[2J"],
]


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: " ".join(args[:2]))
@pytest.mark.usefixtures("hostile")
def test_commands_print_plain_characters(args: list[str]) -> None:
    result = call(*args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert not OBEYED.search(result.output), result.output
    if args[0] == "search":
        assert len(result.stdout.splitlines()) == 11  # one line for each name, whatever is in it


@pytest.mark.usefixtures("hostile")
def test_json_holds_the_text_itself() -> None:
    found = json.loads(call("search", "--dataset", "hostile", "--format", "json", QUESTIONS[0]).stdout)
    assert {row["name"] for row in found} == {name.strip() for name in NAMES}
    assert {row["external_id"] for row in found} == set(IDS)
    assert json.loads(call("trace", "--dataset", "hostile", "q\x1b0").stdout)["query"] == QUESTIONS[0]
    checked = json.loads(call("dataset", "check", "--format", "json", "hostile").stdout)
    assert [stop["rows"] for stop in checked["quarantine"]] == [3]
    assert yaml.safe_load(call("dataset", "show", "hostile").stdout)["description"] == ABOUT


@pytest.mark.usefixtures("hostile")
def test_a_spreadsheet_gets_text_and_numbers() -> None:
    printed = call("search", "--dataset", "hostile", "--format", "csv", QUESTIONS[0]).stdout
    rows = list(csv.DictReader(io.StringIO(printed, newline="")))
    assert {row["external_id"] for row in rows} == {f"'={i}+\\x1b[2J|" for i in range(len(IDS))}
    assert '\'=HYPERLINK("http://evil.test","x")' in {row["name"] for row in rows}
    assert [float(row["score"]) for row in rows] == sorted((float(row["score"]) for row in rows), reverse=True)


@pytest.mark.usefixtures("hostile")
def test_metadata_of_a_run() -> None:
    """In Dagster's UI no picture from outside, no link, no heading, no HTML; examples are there to the letter."""
    shown: dict[str, dict[str, dg.MetadataValue]] = {}
    with open_instance(["hostile"]) as instance:
        for key in asset_keys():
            records = instance.fetch_materializations(dg.AssetKey(key.split("/")), limit=1).records
            for record in records:
                assert record.asset_materialization is not None
                shown[key] = dict(record.asset_materialization.metadata)
    assert len(shown) > 15
    markdown = {
        f"{key} {name}": value.value for key, values in shown.items() for name, value in values.items()
        if isinstance(value, dg.MarkdownMetadataValue)
    }  # fmt: skip
    assert len(markdown) >= 6
    for text in markdown.values():
        judge_markdown(str(text))
    texts = json.dumps([[k, v.value] for values in shown.values() for k, v in values.items()], default=str,
                       ensure_ascii=False)  # fmt: skip
    assert not OBEYED.search(texts)
    assert "\\u001b" not in texts  # none that JSON escaped: they are visible, see text/sinks
    assert "\\\\x1b]0;owned\\\\x07" in texts
    assert "```" in str(markdown["text/documents examples"])


def judge_markdown(text: str) -> None:
    found = nodes(text)
    kinds = {node.type for node in found}
    assert not kinds & {"html_block", "html_inline", "heading_open", "code_block", "hr", "em_open"}, kinds
    for node in found:
        if node.type == "link_open":
            assert re.match(r"/(assets|runs)/[\w/?=&%-]+$", str(node.attrs["href"])), node  # pages of the UI itself
        if node.type == "image":
            assert str(node.attrs["src"]).startswith("data:image/png;base64,")  # a plot made here
        if node.type == "text":
            assert not LINKED.search(node.content), node.content
    assert not OBEYED.search(text)


@pytest.mark.usefixtures("hostile")
def test_what_a_spec_says_of_a_system_is_no_markup() -> None:
    described = build_defs().resolve_asset_graph().get(dg.AssetKey(["ranking", "own"])).description
    assert described is not None
    judge_markdown(described)
    assert not any(node.type == "image" for node in nodes(described))


@pytest.mark.usefixtures("hostile")
def test_a_report_shows_text(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    result = call("report", "--dataset", "hostile", "fused", "own", "--split", "all", "--out", str(file))
    assert result.exit_code == 0, result.output
    text = file.read_text()
    assert not OBEYED.search(text.replace("\n", ""))
    assert "<img" not in text
    data = json.loads(text.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    assert [question["query"] for question in data["questions"]] == [terminal_text(query) for query in QUESTIONS]
