"""One HTML file about two systems: where each is better, by how much, and why questions were missed.

The file needs nothing but itself: style, script and data stand in it, and its content security policy lets a browser
load nothing else. Python escapes what it writes by ``text.sinks.html_text``; the data is JSON inside a script element,
and the page's script shows texts as texts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from skb_pipeline.errors import UserError
from skb_pipeline.evaluation.bootstrap import METHOD
from skb_pipeline.evaluation.buckets import WIDE, WITHIN, Bucket, wide_buckets
from skb_pipeline.evaluation.metrics import METRICS
from skb_pipeline.text.sinks import html_json, html_text

FIRST = 10
"""Hits shown of each list."""
MOST_ANSWERS = 20
"""Answers shown of a question, those that stand highest in either list."""
MOST_NAME = 200
"""Characters of a node's name."""
_PAGE = Path(__file__).with_name("page")


class ReportError(UserError, ValueError):
    """There is nothing to compare."""


@dataclass(frozen=True)
class Compared:
    """What a report is made from.

    Attributes:
        dataset: its name.
        a, b: names of the systems; a win is one of ``a``.
        split: train, val, test, or ``all``.
        version: of the traces.
        traces: rows of ``TRACES``.
        misses: rows of ``MISSES``.
        buckets: rows of ``BUCKET_ROWS``.
        first: for ``a`` and ``b`` the rows ``query_id, node_id, rank`` of their rankings.
        nodes: index ``node_id``, columns ``external_id, node_type, name``.
        metrics: rows of ``METRIC_ROWS``.
        differences: rows of ``DIFFERENCE_ROWS`` of ``a`` minus ``b``.
    """

    dataset: str
    a: str
    b: str
    split: str
    version: str
    traces: pd.DataFrame
    misses: pd.DataFrame
    buckets: pd.DataFrame
    first: Mapping[str, pd.DataFrame]
    nodes: pd.DataFrame
    metrics: pd.DataFrame
    differences: pd.DataFrame

    @property
    def splits(self) -> list[str]:
        """Those that are told of, in the order of their names."""
        known = sorted(self.buckets["split"].unique())
        return known if self.split == "all" else [name for name in known if name == self.split]


def report_html(compared: Compared) -> str:
    """The page.

    Raises:
        ReportError: no question of the split has answers.
    """
    data = report_data(compared)
    if not data["questions"]:
        raise ReportError(f"no question of split {compared.split!r} has answers")
    script, style = ((_PAGE / f"report.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    return _template().render(
        dataset=compared.dataset,
        a=compared.a,
        b=compared.b,
        split=compared.split,
        version=compared.version[:16],
        n=len(data["questions"]),
        outcomes=_outcome_rows(data["questions"], compared.splits),
        metrics=METRICS,
        metric_rows=_metric_rows(compared),
        method=METHOD,
        wide=WIDE,
        within=WITHIN,
        bucket_rows=_bucket_rows(compared),
        data=Markup(html_json(data)),
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash(script),
        style_hash=_hash(style),
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE), undefined=jinja2.StrictUndefined, finalize=_escaped, autoescape=False
    )
    return environment.get_template("report.html")


def _escaped(value: Any) -> str:
    """What the template shows; only what was made as ``Markup`` here is more than text."""
    return str(value) if isinstance(value, Markup) else html_text(str(value))


def _hash(text: str) -> str:
    """What a content security policy knows a script or a style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def report_data(compared: Compared) -> dict[str, Any]:
    """What the page's script reads, as plain JSON values.

    ``questions``: those of the split with answers, in the order of the traces, with ``outcome`` (win, loss or tie) and,
    for either system as ``a`` and ``b``, ``rank`` (None: no right answer is listed), ``bucket``, ``cause``, ``rule``
    and ``first`` (pairs of a node and whether it is right). Nodes are indices into ``nodes``.
    """
    sides = {side: _sides(compared, name) for side, name in (("a", compared.a), ("b", compared.b))}
    listed = {node for own in sides.values() for side in own.values() for node in side["first"]}
    known = _Nodes(compared.nodes.loc[sorted(listed)])
    questions = []
    for trace in compared.traces.to_dict("records"):
        query_id = trace["query_id"]
        if query_id in sides["a"] and query_id in sides["b"] and compared.split in ("all", trace["split"]):
            questions.append(_question(compared, trace, {s: own[query_id] for s, own in sides.items()}, known))
    return {
        "a": compared.a,
        "b": compared.b,
        "buckets": [bucket.value for bucket in Bucket],
        "nodes": known.rows,
        "questions": questions,
    }


class _Nodes:
    """Nodes of a page, each once.

    Args:
        listed: those in lists; index ``node_id``, columns ``external_id, node_type, name``.
    """

    def __init__(self, listed: pd.DataFrame) -> None:
        self.listed = listed.to_dict("index")
        self.rows: list[tuple[str, str, str]] = []
        self._places: dict[tuple[str, str, str], int] = {}

    def place(self, node: Mapping[str, str]) -> int:
        name = node["name"]
        shown = name if len(name) <= MOST_NAME else f"{name[:MOST_NAME]}…"
        row = node["node_type"], node["external_id"], shown
        if row not in self._places:
            self._places[row] = len(self.rows)
            self.rows.append(row)
        return self._places[row]


def _sides(compared: Compared, system: str) -> dict[str, dict[str, Any]]:
    """By question what one system made of it; ``first`` holds node ids still."""
    own = compared.misses[compared.misses["system"] == system]
    plain = own.astype(object).where(own.notna(), None)
    ranking = compared.first[system]
    top = ranking[ranking["rank"] <= FIRST].sort_values(["query_id", "rank"])
    hits = top.groupby("query_id")["node_id"].agg(list).to_dict()
    return {
        row["query_id"]: {
            **{name: row[name] for name in ("bucket", "cause", "rule")},
            "rank": None if row["rank"] is None else int(row["rank"]),
            "first": hits.get(row["query_id"], []),
        }
        for row in plain.to_dict("records")
    }


def _question(
    compared: Compared, trace: Mapping[str, Any], sides: Mapping[str, dict[str, Any]], known: _Nodes
) -> dict[str, Any]:
    answers = json.loads(trace["answers"])
    right = {(answer["node_type"], answer["external_id"]) for answer in answers}
    names = {"a": compared.a, "b": compared.b}
    ranks = [[answer["ranks"].get(name) for name in names.values()] for answer in answers]
    order = sorted(range(len(answers)), key=lambda i: min((r for r in ranks[i] if r is not None), default=10**9))
    plan, links = _parsed(trace["plan"]), _parsed(trace["links"])
    return {
        "id": trace["query_id"],
        "query": trace["query"],
        "split": trace["split"],
        "template": _text(trace["template"]),
        "n_answers": len(answers),
        "anchors": " ".join(anchor["text"] for anchor in plan["anchors"]) if plan else None,
        "facts": _facts(trace),
        "plan": plan,
        "gold_plan": _parsed(trace["gold_plan"]),
        "links": {var: [_link_line(node) for node in own] for var, own in links.items()} if links else None,
        "outcome": outcome(sides["a"]["rank"], sides["b"]["rank"]),
        "answers": [[known.place(answers[i]), *ranks[i]] for i in order[:MOST_ANSWERS]],
        **{side: {**own, "first": _hits(own["first"], right, known)} for side, own in sides.items()},
    }


def outcome(a: int | None, b: int | None) -> str:
    """``win`` where the first right answer stands higher in the first list, ``loss`` where in the second, ``tie`` where
    at one rank or in neither (None)."""
    if a == b:
        return "tie"
    return "win" if b is None or (a is not None and a < b) else "loss"


def _link_line(node: Mapping[str, Any]) -> str:
    """A linked node for people."""
    return f"{node['name']} ({node['node_type']} {node['external_id']}): {node['cosine']:.3f}, {node['grade']}"


def _facts(trace: Mapping[str, Any]) -> str:
    """One line on what became of the plan."""
    told = {name: _text(trace[name]) for name in ("engine", "status", "cause", "risk_level", "outcome", "link_grade")}
    parts = [f"{name.replace('_', ' ')}: {value}" for name, value in told.items() if value is not None]
    if pd.notna(trace["n_cand"]):
        parts.append(f"candidates: {int(trace['n_cand'])}")
    reasons = _parsed(trace["unlinked"]) or {}
    return "; ".join([*parts, *(f"{var} has no node: {reason}" for var, reason in reasons.items())]) or "no plans"


def _hits(node_ids: Sequence[int], right: set[tuple[str, str]], known: _Nodes) -> list[list[int]]:
    hits = []
    for node_id in node_ids:
        node = known.listed[node_id]
        hits.append([known.place(node), int((node["node_type"], node["external_id"]) in right)])
    return hits


def _parsed(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _outcome_rows(questions: Sequence[Mapping[str, Any]], splits: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"split": split, **{kind: sum(q["split"] == split and q["outcome"] == kind for q in questions)
                            for kind in ("win", "loss", "tie")}}
        for split in splits
    ]  # fmt: skip


def _metric_rows(compared: Compared) -> list[dict[str, Any]]:
    """Means of both systems and their paired difference, by split."""
    rows: list[dict[str, Any]] = []
    for split in compared.splits:
        for system in (compared.a, compared.b):
            own = compared.metrics[(compared.metrics["system"] == system) & (compared.metrics["split"] == split)]
            by_metric = own[own["slice"] == "all"].set_index("metric").loc[list(METRICS)]
            numbers = by_metric[["value", "ci_low", "ci_high"]].itertuples(index=False, name=None)
            cells = [_interval(value, low, high, "") for value, low, high in numbers]
            rows.append({"split": split, "name": system, "cells": cells})
        own = compared.differences[compared.differences["split"] == split]
        by_metric = own.set_index("metric").loc[list(METRICS)]
        cells = []
        for value, low, high, p in by_metric[["difference", "ci_low", "ci_high", "p_value"]].itertuples(index=False):
            star = "*" if low > 0 or high < 0 else ""
            cells.append(f"{_interval(value, low, high, '+')}{star}\np = {p:.3f}")
        rows.append({"split": split, "name": f"{compared.a} minus {compared.b}", "cells": cells})
    return rows


def _interval(value: float, low: float, high: float, sign: str) -> str:
    return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _bucket_rows(compared: Compared) -> list[dict[str, Any]]:
    chosen = compared.buckets[compared.buckets["system"].isin([compared.a, compared.b])]
    return [
        {"split": split, "cells": [row[name] for name in WIDE]}
        for split in compared.splits
        for row in wide_buckets(chosen, split=split)
    ]
