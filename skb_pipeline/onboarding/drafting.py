"""A first spec for a folder of tables: ``skb-pipeline dataset init``.

Everything in it is a guess from names and values, for a person to edit: node tables have a column of different ids,
edge tables two columns whose values are ids of nodes, question tables a question and its answers. The triples and
their counts are those of the data. A draft comes out of any folder with a table that can hold nodes; what is weak in it
stands in it as comments.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from skb_pipeline.datasets.records import SourceError
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.onboarding.fields import NAME_NAMES, choose_fields
from skb_pipeline.onboarding.guesses import Edges, Found, Nodes, Questions, json_ids, named, singular
from skb_pipeline.onboarding.profiling import Column, Table, read_tables
from skb_pipeline.onboarding.relations import (
    count_triples,
    edge_table,
    edges_inside,
    ends_by_name,
    guess_candidates,
    nodes_of_ends,
    nodes_of_values,
)
from skb_pipeline.onboarding.writing import SPLITS, one_line, write_draft
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.storage.paths import UnsafeNameError, check_dataset_name

_SAMPLE = 1_000
_LONG = 60
_ID_NAMES = ("id", "node_id", "nodeid", "_id", "key", "uid", "uri", "curie", "identifier", "code")
_TYPE_NAMES = ("node_type", "nodetype", "entity_type", "node_label", "_type", "type", "label", "kind")
_QUERY_NAMES = ("query", "question", "query_text", "text")
_ANSWER_NAMES = ("answer_ids", "answers", "answer", "gold", "relevant", "answer_id")
_MANY_TYPES = ("nodes", "node", "entities", "entity", "vertices", "items")


@dataclass(frozen=True)
class Draft:
    """Text of a spec that ``load_spec`` accepts, and what a person should look at; that stands in the text too."""

    text: str
    doubts: list[str]


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
        SourceError: there is no table that can be read, or none with a column that can hold ids of nodes.
    """
    tables, doubts = read_tables(folder)
    if not tables:
        told = f"no table can be read: {'; '.join(doubts)}" if doubts else "no Parquet, CSV or JSONL files"
        raise SourceError(f"{folder}: {told}")
    doubts += [told for table in tables for told in _said_of(table)]
    found = _find(tables, doubts)
    if not found.nodes:
        listed = ", ".join(table.pattern for table in tables)
        raise SourceError(f"{folder}: no table of nodes in {listed}: no column has text or integers that can be ids")
    count_triples(found, doubts)
    if not found.triples:
        listed = ", ".join(f"{n.table.pattern} (ids in {n.key.name})" for n in found.nodes)
        doubts.append(f"nothing joins the nodes of {listed}: no column holds ids of them; give `edges` and `relations`")
    guess_candidates(found, doubts)
    spec = DatasetSpec.model_validate(yaml.safe_load(write_draft(folder, name, found, [])))
    open_source(spec)
    if not found.questions and found.triples:  # they are made from the graph
        doubts += _without_direction(spec)
    doubts = [one_line(doubt) for doubt in dict.fromkeys(doubts)]
    return Draft(write_draft(folder, name, found, doubts), doubts)


def _without_direction(spec: DatasetSpec) -> list[str]:
    """What the missing words for the two ways of a relation mean, a line for each relation."""
    schema = GraphSchema.from_spec(spec)
    between: dict[str, list[str]] = {}
    for head, relation, tail in spec.triples:
        if schema.two_ways(head, relation, tail):
            between.setdefault(relation, []).append(head if head == tail else f"{head} and {tail}")
    return [
        f"relation {relation!r} runs either way ({', '.join(types)}), and no phrasing says which way its words run: "
        "until one does, it is asked for in undirected words, with the answers of both ways; stubs are at the end"
        for relation, types in between.items()
    ]


def _said_of(table: Table) -> list[str]:
    """What to know of how a table was read."""
    told, layout = [], table.layout
    if layout.delimiter is not None:
        told.append(f"{table.pattern}: {layout.delimiter!r} is taken for the mark between cells")
    if layout.encoding != "utf-8":
        told.append(f"{table.pattern}: is not UTF-8; {layout.encoding} is taken for its encoding")
    if layout.escape is not None:
        told.append(f"{table.pattern}: quotes inside cells have a backslash before them: `escape` says so")
    if table.unreadable:
        told.append(f"{table.pattern}: {table.unreadable} rows cannot be read and would be quarantined")
    return told + [f"{table.pattern}: {n} values of {what}" for what, n in table.lost.items()]


def _find(tables: list[Table], doubts: list[str]) -> Found:
    """What each table is: questions, edges, nodes or nothing; and edges out of tables of nodes."""
    questions = [found for table in tables if (found := _question_table(table, doubts)) is not None]
    asked = [found.table for found in questions]
    others = [table for table in tables if table not in asked and table.rows]
    guesses = [edge_table(table, others, doubts, node_like=_is_node_like(table)) for table in others]
    edges = [one for one in guesses if one is not None]
    joining = [one.table for one in edges]
    nodes: list[Nodes] = []
    for table in (t for t in others if t not in joining):
        guessed = _node_table(table, others, edges, doubts)
        nodes += [guessed] if guessed is not None else []
    if not nodes:
        return _without_node_tables(others, questions, doubts)
    inside = [one for guessed in nodes for one in edges_inside(guessed, nodes, doubts)]
    edges += inside
    pointing = {id(one.tail) for one in inside}
    for guessed in nodes:
        choose_fields(guessed, pointing, doubts)
    if not edges and len(nodes) == 1 and (made := nodes_of_values(nodes[0], doubts)) is not None:
        nodes, edges = [*nodes, made[0]], [made[1]]
    return _counted(Found(nodes, edges, _apart(questions, doubts)), doubts)


def _without_node_tables(tables: list[Table], questions: list[Questions], doubts: list[str]) -> Found:
    """Nodes are what edges join; else the rows of the table with most different values in one column."""
    for table in tables:
        ends = nodes_of_ends(table, doubts)
        if ends is not None:
            return _counted(Found(ends[0], [ends[1]], _apart(questions, doubts)), doubts)
    fit = [(table, column) for table in tables for column in table.columns.values() if column.can_be_id]
    if not fit:
        return Found([], [], [])
    table, key = max(fit, key=lambda pair: (len(pair[1].distinct), pair[1].name.lower() in _ID_NAMES))
    doubts.append(f"{table.pattern}: no column has a different id in every row; {key.name} is taken for it")
    types: list[str | None] = [singular(table.stem)] * table.rows
    nodes = Nodes(table, key, None, types)
    choose_fields(nodes, set(), doubts)
    return _counted(Found([nodes], [], _apart(questions, doubts)), doubts)


def _counted(found: Found, doubts: list[str]) -> Found:
    """The same, with rows of nodes that a load would quarantine, and doubts on repeated ids."""
    for one in found.nodes:
        keys = list(zip(one.key.texts, one.types, strict=True))
        found.node_rows += one.table.rows + one.table.unreadable
        without_type = sum(key is not None and kind is None for key, kind in keys)
        without_id = 0 if one.skip_empty_ids else sum(key is None for key, _ in keys)
        found.bad_nodes += without_id + without_type + one.table.unreadable
        if without_id:
            doubts.append(f"{one.table.pattern}: {without_id} rows have no id in {one.key.name}; they are quarantined")
        if without_type:
            doubts.append(f"{one.table.pattern}: {without_type} rows have no type; they are quarantined")
        repeated = [key for key in keys if key[0] is not None]
        again = len(repeated) - len(set(repeated))
        if again and not one.skip_empty_ids and one.name != one.key.name:
            ((example, _), _) = Counter(repeated).most_common(1)[0]
            doubts.append(f"{one.table.pattern}: {again} rows repeat an id in {one.key.name}, such as {example!r}: "
                          "rows of one id become one node")  # fmt: skip
    return found


# ---------------------------------------------------------------------------------------------- kinds of tables


def _question_table(table: Table, doubts: list[str]) -> Questions | None:
    """A table with a column of questions and one of answers that are lists of ids."""
    query, answers = named(table, _QUERY_NAMES), named(table, _ANSWER_NAMES)
    if query is None or answers is None or not query.distinct or not table.rows:
        return None
    as_text = bool(answers.distinct) and all(text.startswith("[") for text in list(answers.distinct)[:_SAMPLE])
    if not (answers.is_list or as_text):
        return None
    if any(not json_ids(text) and text.strip("[] ") for text in answers.distinct):
        doubts.append(f"{table.pattern}: values of {answers.name} are no JSON lists of ids; a load stops at them")
    key = next((c for c in table.keys if c is not query), query)
    split = named(table, ("split",))
    if split is not None and not split.distinct <= SPLITS:
        doubts.append(f"{table.pattern}: splits are train, val and test; here {sorted(split.distinct - SPLITS)[:3]} "
                      "occur too, so all its questions are test questions")  # fmt: skip
    elif split is None:
        doubts.append(f"{table.pattern}: no column `split`, so all its questions are test questions")
    return Questions(table, key, query, answers, split)


def _apart(questions: list[Questions], doubts: list[str]) -> list[Questions]:
    """Tables of questions whose ids no earlier table has."""
    kept: list[Questions] = []
    for one in questions:
        clash = next((other for other in kept if other.key.distinct & one.key.distinct), None)
        if clash is None:
            kept.append(one)
        else:
            doubts.append(f"{one.table.pattern}: is not used: ids of its questions occur in {clash.table.pattern} too")
    return kept


def _is_node_like(table: Table) -> bool:
    """Whether a table has ids of its own, and names or text about them."""
    if not table.keys:
        return False
    name = named(table, NAME_NAMES)
    names = name is not None and len(name.distinct) > max(2, table.rows / 5)
    return names or any(column.mean_length > _LONG for column in table.columns.values())


def _node_table(table: Table, tables: list[Table], edges: list[Edges], doubts: list[str]) -> Nodes | None:
    keys = table.keys
    if not keys or (ends_by_name(table) is not None and not _is_node_like(table)):
        doubts.append(f"{table.pattern}: is not used: no column has a different id in every row, and no two columns "
                      "hold ids of nodes")  # fmt: skip
        return None
    ends = [end.distinct for e in edges for end in (e.head, e.tail)]
    ends += [c.distinct for t in tables if t is not table for c in t.columns.values() if c.name.lower().endswith("id")]

    def rank(key: Column) -> tuple[int, int, bool]:
        return (
            -sum(len(end & key.distinct) for end in ends),
            next((i for i, name in enumerate(_ID_NAMES) if key.name.lower() == name), len(_ID_NAMES)),
            not key.is_key,
        )

    key = min(keys, key=rank)
    others = [c.name for c in keys if c is not key and c.is_key]
    if others:
        doubts.append(f"{table.pattern}: {key.name} is taken for the id; {others} differ in every row too")
    type_column = _type_column(table, key, doubts)
    types: list[str | None] = [singular(table.stem)] * table.rows if type_column is None else type_column.texts
    return Nodes(table, key, type_column, types)


def _type_column(table: Table, key: Column, doubts: list[str]) -> Column | None:
    for name in _TYPE_NAMES:
        column = named(table, (name,))
        if column is None or column is key or column.is_list or column.is_object or not column.distinct:
            continue
        if column.filled < table.rows * 0.9 or len(column.distinct) > max(2, min(50, table.rows / 5)):
            continue
        if name in ("type", "label", "kind") and table.stem.lower() not in _MANY_TYPES:
            doubts.append(f"{table.pattern}: {column.name} could be the node type; {singular(table.stem)!r} is taken")
            continue
        return column
    return None
