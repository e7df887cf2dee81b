"""What is guessed of tables on the way to a draft: tables of nodes, of edges, of questions, and words for them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from skb_pipeline.onboarding.profiling import Column, Table

TripleNames = tuple[str, str, str]
"""Head type, relation, tail type."""


@dataclass
class FieldGuess:
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
class Nodes:
    """A table of nodes and what was guessed of it.

    Attributes:
        key: column of ids.
        types: the type of every row; None where the type's column is empty.
        skip_empty_ids: rows without an id are no nodes: the ids are a column of somebody else's table.
    """

    table: Table
    key: Column
    type_column: Column | None
    types: list[str | None]
    name: str = ""
    fields: dict[str, FieldGuess] = field(default_factory=dict)
    skip_empty_ids: bool = False


@dataclass
class Edges:
    """A table of edges (or of nodes with a column of other nodes' ids).

    Attributes:
        relation, relation_value: a column, or one relation for all rows.
        renamed: shorter names for values of ``relation`` that repeat the types of the ends.
        head_type, tail_type: where ids are not unique over types.
    """

    table: Table
    head: Column
    tail: Column
    relation: Column | None
    relation_value: str | None
    separator: str | None = None
    inside_nodes: bool = False
    head_type: str | None = None
    tail_type: str | None = None
    head_type_column: Column | None = None
    tail_type_column: Column | None = None
    renamed: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, str, str, str | None, str | None]]:
        """(head, relation, tail, head type, tail type) of every edge; lists give one each. A type is None where it has
        to be looked up."""
        count = self.table.rows
        relations = self.relation.texts if self.relation is not None else [self.relation_value] * count
        tails: list[list[str]] = [[] if text is None else [text] for text in self.tail.texts]
        for row, items in self.tail.items:
            tails[row] = items
        if self.separator is not None:
            tails = [[item.strip() for text in row for item in text.split(self.separator)] for row in tails]
        elif not self.inside_nodes:
            tails = [row or [""] for row in tails]
        head_types = self.head_type_column.texts if self.head_type_column else [self.head_type] * count
        tail_types = self.tail_type_column.texts if self.tail_type_column else [self.tail_type] * count
        rows = zip(self.head.texts, relations, tails, head_types, tail_types, strict=True)
        return [
            (head or "", self.renamed.get(relation or "", relation or ""), tail, head_type, tail_type)
            for head, relation, items, head_type, tail_type in rows
            for tail in items
            if tail or not self.inside_nodes
        ]


@dataclass
class Questions:
    """A table of questions."""

    table: Table
    key: Column
    query: Column
    answers: Column
    split: Column | None

    def answer_ids(self) -> list[str]:
        """All answers, as often as they occur."""
        listed = [item for _, items in self.answers.items for item in items]
        return listed + [item for text in self.answers.texts if text is not None for item in json_ids(text)]


@dataclass
class Found:
    """Everything that a draft is written from.

    Attributes:
        triples: edges of each triple and whether it looks symmetric, most edges first.
        candidates: types that can be answers.
        answers: answers per type, where questions are given; ``by_answers``: the candidates were taken from them.
        bad_edges, edge_rows, bad_nodes, node_rows: rows a load would quarantine, of how many.
    """

    nodes: list[Nodes]
    edges: list[Edges]
    questions: list[Questions]
    triples: dict[TripleNames, tuple[int, bool]] = field(default_factory=dict)
    candidates: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    by_answers: bool = False
    bad_edges: int = 0
    edge_rows: int = 0
    bad_nodes: int = 0
    node_rows: int = 0

    def rows_by_type(self) -> dict[str, list[tuple[Nodes, list[int]]]]:
        """Type -> (table, its rows of that type), most nodes first."""
        by_type: dict[str, list[tuple[Nodes, list[int]]]] = {}
        for found in self.nodes:
            rows: dict[str, list[int]] = {}
            for row, node_type in enumerate(found.types):
                if node_type is not None and found.key.texts[row] is not None:
                    rows.setdefault(node_type, []).append(row)
            for node_type, members in rows.items():
                by_type.setdefault(node_type, []).append((found, members))
        return dict(sorted(by_type.items(), key=lambda pair: -sum(len(rows) for _, rows in pair[1])))


def json_ids(text: str) -> list[str]:
    """Ids in a JSON list kept as text; empty for anything else."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return []
    return [str(item) for item in value if isinstance(item, str | int)] if isinstance(value, list) else []


def words_of(name: str) -> list[str]:
    """The words in the name of a column, type or relation, in small letters: ``fromNodeID`` is from, node, id."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return [word.lower() for word in re.split(r"[\W_]+", spaced) if word]


def singular(word: str) -> str:
    """Singular of a regular English plural, in small letters."""
    word = word.lower()
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return word[: -len(ending)] + replacement
    return word


def share(values: set[str], known: set[str]) -> float:
    """Share of values that are known; 0 for none."""
    return len(values & known) / len(values) if values else 0.0


def items_of(column: Column, separator: str | None) -> set[str]:
    """Different values of a column, those in lists one by one."""
    if column.is_list:
        return {item for _, items in column.items for item in items} | column.distinct
    if separator is None:
        return column.distinct
    return {item.strip() for text in column.distinct for item in text.split(separator) if item.strip()}


def named(table: Table, names: tuple[str, ...], among: list[Column] | None = None) -> Column | None:
    """The column with the first of some names, in any case."""
    columns = {c.name.lower(): c for c in (table.columns.values() if among is None else among)}
    return next((columns[name] for name in names if name in columns), None)


def copies(one: Column, other: Column) -> bool:
    """Whether two columns hold the same value in most rows."""
    pairs = [(a, b) for a, b in zip(one.texts, other.texts, strict=True) if a is not None and b is not None]
    return bool(pairs) and sum(a == b for a, b in pairs) > len(pairs) / 2
