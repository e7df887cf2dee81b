"""The report on two systems: judged by an HTML parser, and its script by Node where that is installed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

from skb_pipeline.evaluation.buckets import MISSES, bucket_table
from skb_pipeline.evaluation.metrics import METRICS
from skb_pipeline.evaluation.report import FIRST, MOST_ANSWERS, Compared, ReportError, outcome, report_data, report_html
from skb_pipeline.evaluation.traces import TRACES
from skb_pipeline_tests.evaluation.cases import ranking_of

HOSTILE = [
    "</script><script>alert(1)</script>", "<!--<script>", "]]></style><img src=http://evil.test/x onerror=alert(1)>",
    '" onmouseover="alert(1)', "'><b>&lt;", "\u202etxt.exe \x1b[2J\u2028", "{{ 7 * 7 }}{% raw %}",
]  # fmt: skip
NODES = pd.DataFrame(
    {"external_id": HOSTILE, "node_type": "disease", "name": [f"name {name}" for name in HOSTILE]},
    index=pd.RangeIndex(len(HOSTILE), name="node_id"),
)
PLAN = {"anchors": [{"var": "a0", "text": HOSTILE[0]}], "hops": []}
LINKS = {"a0": [{"name": HOSTILE[1], "node_type": "disease", "external_id": "x", "cosine": 1.0, "grade": "exact"}]}
RANKS: list[tuple[int | None, int | None]] = [(1, 2), (2, 1), (3, 3), (None, None), (30, None), (None, 40), (1, 1)]
"""Rank of the one answer of question i, node i, in either list."""
OUTCOMES = ["win", "loss", "tie", "tie", "win", "loss", "tie"]


def compared(questions: int = len(RANKS), split: str = "all", **changes: Any) -> Compared:
    empty = dict.fromkeys(TRACES.names)
    traces, misses = [], []
    for i in range(questions):
        ranks = RANKS[i % len(RANKS)]
        node = {key: str(NODES.loc[i % len(NODES), key]) for key in ("external_id", "node_type", "name")}
        answer = {**node, "ranks": dict(zip("ab", ranks, strict=True))}
        traces.append(
            {**empty, "query_id": f"q{i}", "query": f"{HOSTILE[i % len(HOSTILE)]} question {i}",
             "split": "val" if i == 6 else "test", "template": None if i else HOSTILE[2], "plan": json.dumps(PLAN),
             "links": json.dumps(LINKS), "unlinked": json.dumps({"a1": HOSTILE[3]}), "status": HOSTILE[4],
             "answers": json.dumps([answer])}
        )  # fmt: skip
        for system, rank in zip("ab", ranks, strict=True):
            missed = rank is None or rank > 20
            misses.append((system, f"q{i}", rank, "cut" if missed else None, HOSTILE[0] if missed else None, None))
    frame = pd.DataFrame(traces)
    told = pd.DataFrame(misses, columns=MISSES.names).astype({"rank": "Int64"})
    queries = frame[["query_id", "split"]].assign(answer_ids=[[1]] * questions)
    numbers = {"value": 0.5, "ci_low": 0.25, "ci_high": 0.75, "difference": 0.5, "p_value": 0.01, "slice": "all"}
    rows = [{**numbers, "system": system, "split": s, "metric": metric}
            for s in ("test", "val") for system in "ab" for metric in METRICS]  # fmt: skip
    table = pd.DataFrame(rows)
    lists = ranking_of({f"q{i}": list(range(len(NODES))) for i in range(min(questions, 7))})
    settings: dict[str, Any] = {
        "dataset": HOSTILE[0], "a": "a", "b": "b", "split": split, "version": HOSTILE[2], "traces": frame,
        "misses": told, "buckets": bucket_table(told, queries), "first": {"a": lists, "b": lists[lists["rank"] < 3]},
        "nodes": NODES, "metrics": table, "differences": table[table["system"] == "a"],
    }  # fmt: skip
    return Compared(**{**settings, **changes})


class Page(HTMLParser):
    """Elements of a page, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.texts["script"][0]))


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(report_html(compared()))


def test_texts_of_others_are_neither_elements_nor_attributes(page: Page) -> None:
    assert [attributes.get("type") for tag, attributes in page.elements if tag == "script"] == [
        "application/json",
        None,
    ]
    assert not {"img", "b", "iframe", "link"} & {tag for tag, _ in page.elements}
    attributes = {name for _, own in page.elements for name in own}
    assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "style")}
    assert f"a and b on {HOSTILE[0]}" in "".join(page.texts["title"])
    assert "49" not in "".join(page.texts["title"])


def test_the_page_loads_nothing_and_runs_its_own_script_only(page: Page) -> None:
    (policy,) = [own["content"] for tag, own in page.elements if own.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for kind, text in (("script", page.texts["script"][1]), ("style", page.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "innerHTML" not in page.texts["script"][1]


def test_the_data_holds_ranks_hits_and_texts(page: Page) -> None:
    data = page.data
    assert [question["outcome"] for question in data["questions"]] == OUTCOMES
    assert [(q["a"]["rank"], q["b"]["rank"]) for q in data["questions"]] == RANKS
    first = data["questions"][1]
    assert first["query"] == f"{HOSTILE[1]} question 1"
    assert [(data["nodes"][node][1], right) for node, right in first["b"]["first"]] == [
        (HOSTILE[0], 0),
        (HOSTILE[1], 1),
    ]
    assert len(first["a"]["first"]) == min(FIRST, len(NODES))
    assert [data["nodes"][node][1] for node, *_ in first["answers"]] == [HOSTILE[1]]
    assert data["questions"][4]["a"]["bucket"] == "cut"
    assert data["questions"][0]["plan"] == PLAN
    # What would be hidden is shown: the direction mark, the escape and the line separator.
    assert data["questions"][5]["query"] == "\\u202etxt.exe \\x1b[2J\\u2028 question 5"


def test_tables_stand_on_the_page(page: Page) -> None:
    cells = page.texts["td"]
    at = cells.index("test")
    assert cells[at + 1 : at + 4] == ["2", "2", "2"]
    assert "+0.500 [+0.250, +0.750]*\np = 0.010" in cells
    assert "0.500 [0.250, 0.750]" in cells
    at = cells.index("a", cells.index("a minus b", cells.index("a minus b") + 1) + 1)
    assert cells[at + 1 : at + 4] == ["6", "3", "0"]  # of six test questions three were found


def test_one_split_and_none() -> None:
    data = report_data(compared(split="val"))
    assert [question["id"] for question in data["questions"]] == ["q6"]
    with pytest.raises(ReportError, match="no question of split 'train' has answers"):
        report_html(compared(split="train"))


def test_answers_that_stand_highest_are_kept() -> None:
    given = compared(1)
    answers = [{"external_id": f"n{i}", "node_type": "t", "name": "x" * 900, "ranks": {"a": None if i < 50 else i}}
               for i in range(100)]  # fmt: skip
    given.traces.loc[0, "answers"] = json.dumps(answers)
    data = report_data(given)
    (question,) = data["questions"]
    assert (question["n_answers"], len(question["answers"])) == (100, MOST_ANSWERS)
    assert [rank for _, rank, _ in question["answers"]] == list(range(50, 50 + MOST_ANSWERS))
    assert max(len(name) for *_, name in data["nodes"]) < 210


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [(1, 2, "win"), (2, 1, "loss"), (7, 7, "tie"), (None, None, "tie"), (None, 900, "loss"), (900, None, "win")],
)
def test_the_higher_first_answer_wins(a: int | None, b: int | None, told: str) -> None:
    assert outcome(a, b) == told


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_filters_orders_and_pages_in_node(page: Page) -> None:
    script = f"""
const data = JSON.parse({json.dumps(page.texts["script"][0])});
const ids = (filter) => filtered(data.questions, filter).map((q) => q.id).join(" ");
const large = pageOf([...Array(10001).keys()], 999);
console.log(JSON.stringify({{
  all: ids({{}}), wins: ids({{ outcome: "win" }}), val: ids({{ split: "val" }}), cut: ids({{ bucket_a: "cut" }}),
  both: ids({{ bucket_a: "found", bucket_b: "cut" }}), words: ids({{ text: "QUESTION  <!--" }}),
  byId: ids({{ text: "q3" }}),
  none: ids({{ template: "(none)", split: "test" }}), own: ids({{ template: data.questions[0].template }}),
  best: ids({{ order: "largest win first", outcome: "win" }}),
  worst: ids({{ order: "largest loss first", split: "test" }}),
  large: [large.page, large.pages, large.rows.length], empty: pageOf([], 3), second: pageOf([1, 2, 3], 1, 2).rows,
}}));
"""
    source = page.texts["script"][1] + script
    done = subprocess.run(["node", "-"], input=source, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {
        "all": "q0 q1 q2 q3 q4 q5 q6", "wins": "q0 q4", "val": "q6", "cut": "q3 q4 q5", "both": "",
        "words": "q1", "byId": "q3", "none": "q1 q2 q3 q4 q5", "own": "q0", "best": "q0 q4",
        "worst": "q1 q5 q2 q3 q4 q0", "large": [200, 201, 1], "empty": {"page": 0, "pages": 1, "rows": []},
        "second": [3],
    }  # fmt: skip


def test_the_script_is_plain_text_for_the_parser(page: Page) -> None:
    assert not re.search("</|<!--|https?:", page.texts["script"][1])
