"""Your own tables: nodes, edges and (optionally) questions from Parquet files.

Ids are read as text: an integer column gives its digits, a text column its letters; a column of floats is refused,
as ``7`` and ``7.0`` would be two nodes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from skb_pipeline.datasets.records import RawNode, RawQuery, edge_batches

SPLITS = ("train", "val", "test")


class _Args(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeTable(_Args):
    """Files of nodes. ``type`` names a column, ``type_value`` states one type for all rows; exactly one is given.

    Attributes:
        files: glob below the folder.
        id: column of the external id.
        fields: field of the spec -> column.
        separators: field -> text that separates the items of a list kept in one cell.
    """

    files: str
    id: str
    type: str | None = None
    type_value: str | None = None
    fields: dict[str, str] = Field(min_length=1)
    separators: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_type(self) -> Self:
        if (self.type is None) == (self.type_value is None):
            raise ValueError("give either type (a column) or type_value")
        unknown = set(self.separators) - set(self.fields)
        if unknown:
            raise ValueError(f"separators for fields that are not mapped: {sorted(unknown)}")
        return self


class EdgeTable(_Args):
    """Files of edges. Types of the ends are looked up by id unless ``head_type``/``tail_type`` (values) are given."""

    files: str
    head: str
    tail: str
    relation: str | None = None
    relation_value: str | None = None
    head_type: str | None = None
    tail_type: str | None = None

    @model_validator(mode="after")
    def _one_relation(self) -> Self:
        if (self.relation is None) == (self.relation_value is None):
            raise ValueError("give either relation (a column) or relation_value")
        return self


class QueryTable(_Args):
    """Files of questions; ``answers`` is a column of lists of ids, or of JSON lists as text.

    ``template`` names a column whose values become slices of the metrics; ``template_names`` renames its values.
    """

    files: str
    id: str = "query_id"
    query: str = "query"
    split: str = "split"
    answers: str = "answer_ids"
    template: str | None = None
    template_names: dict[str, str] = Field(default_factory=dict)


class TablesArgs(_Args):
    """Arguments in ``source.args``. ``folder`` may name environment variables, such as ``$MY_DATA/shop``."""

    folder: str
    nodes: list[NodeTable] = Field(min_length=1)
    edges: list[EdgeTable] = Field(default_factory=list)
    queries: list[QueryTable] = Field(default_factory=list)

    @field_validator("folder")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty")
        return value


class TablesSource:
    """Adapter ``tables``."""

    Args = TablesArgs

    def __init__(self, args: TablesArgs) -> None:
        self.args = args
        self.out_of_scope: Counter[str] = Counter()

    def files(self) -> list[Path]:
        """All matched files.

        Raises:
            FileNotFoundError: an environment variable is not set, or a pattern matches nothing.
        """
        tables: list[NodeTable | EdgeTable | QueryTable] = [*self.args.nodes, *self.args.edges, *self.args.queries]
        return sorted({path for table in tables for path in self._match(table.files)})

    def nodes(self) -> Iterator[RawNode]:
        """Every node row."""
        for table in self.args.nodes:
            columns = [table.id, *([table.type] if table.type else []), *table.fields.values()]
            for source, row, values in self._rows(table.files, columns, ids=[table.id]):
                fields = {
                    name: _split(values[column], table.separators.get(name)) for name, column in table.fields.items()
                }
                node_type = values[table.type] if table.type else table.type_value
                yield RawNode(source, row, node_type, values[table.id], fields)

    def edges(self) -> Iterator[pa.RecordBatch]:
        """Every edge row."""
        return edge_batches(self._edge_rows())

    def queries(self) -> Iterator[RawQuery] | None:
        """Every question, or None when no table of questions is given."""
        return self._query_rows() if self.args.queries else None

    def _edge_rows(self) -> Iterator[tuple[str, int, str, str, str, str, str]]:
        for table in self.args.edges:
            columns = [table.head, table.tail, *([table.relation] if table.relation else [])]
            for source, row, values in self._rows(table.files, columns, ids=[table.head, table.tail]):
                head, tail = values[table.head] or "", values[table.tail] or ""
                relation = values[table.relation] if table.relation else table.relation_value
                head_type = table.head_type or self._type_of.get(head, "")
                tail_type = table.tail_type or self._type_of.get(tail, "")
                yield source, row, head_type, head, relation or "", tail_type, tail

    def _query_rows(self) -> Iterator[RawQuery]:
        for table in self.args.queries:
            columns = [table.id, table.query, table.split, table.answers, *([table.template] if table.template else [])]
            for source, row, values in self._rows(table.files, columns, ids=[table.id]):
                template = None
                if table.template is not None and values[table.template] is not None:
                    text = str(values[table.template])
                    template = table.template_names.get(text, text)
                if values[table.split] not in SPLITS:
                    raise ValueError(f"{source}:{row}: {table.split}: {values[table.split]!r} is not one of {SPLITS}")
                if not values[table.id] or not values[table.query]:
                    raise ValueError(f"{source}:{row}: {table.id} and {table.query} must not be empty")
                yield RawQuery(
                    source=source,
                    row=row,
                    query_id=values[table.id],
                    query=values[table.query],
                    split=values[table.split],
                    answers=_answers(values[table.answers], f"{source}:{row}: {table.answers}"),
                    template=template,
                )

    @cached_property
    def _type_of(self) -> dict[str, str]:
        """Node type by id.

        Raises:
            ValueError: an id belongs to two types, so edges must say their types.
        """
        found: dict[str, str] = {}
        for node in self.nodes():
            if node.external_id is None or node.node_type is None:
                continue
            if found.setdefault(node.external_id, node.node_type) != node.node_type:
                raise ValueError(
                    f"{node.source}:{node.row}: id {node.external_id!r} is used by {node.node_type!r} and by "
                    f"{found[node.external_id]!r}: give head_type and tail_type in source.args.edges"
                )
        return found

    def _match(self, pattern: str) -> list[Path]:
        folder = os.path.expandvars(self.args.folder)
        if "$" in folder:
            raise FileNotFoundError(f"source.args.folder: {self.args.folder!r} names an environment variable not set")
        paths = sorted(p for p in Path(folder).expanduser().glob(pattern) if p.is_file())
        if not paths:
            raise FileNotFoundError(f"source.args: no file matches {pattern!r} in {folder}")
        return paths

    def _rows(self, pattern: str, columns: list[str], *, ids: list[str]) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """(file name, 1-based row, values) of every row; ``ids`` arrive as text."""
        for path in self._match(pattern):
            file = pq.ParquetFile(path)
            missing = [c for c in columns if c not in file.schema_arrow.names]
            if missing:
                raise ValueError(f"{path.name}: columns {missing} are missing; there are {file.schema_arrow.names}")
            for name in ids:
                kind = file.schema_arrow.field(name).type
                if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                    raise ValueError(f"{path.name}: {name}: ids must be text or integers, this column is {kind}")
            row = 0
            for batch in file.iter_batches(columns=list(dict.fromkeys(columns))):
                for values in batch.to_pylist():
                    row += 1
                    for name in ids:
                        values[name] = None if values[name] is None else str(values[name])
                    yield path.name, row, values


def _split(value: Any, separator: str | None) -> Any:
    return value.split(separator) if separator is not None and isinstance(value, str) else value


def _answers(value: Any, where: str) -> list[str]:
    """A list of ids as text; text is read as JSON and as nothing else.

    Raises:
        ValueError: not a list of ids.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not a JSON list: {value[:80]!r}") from error
    if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int | str) for v in value):
        raise ValueError(f"{where}: a list of ids was expected, not {str(value)[:80]!r}")
    return [str(v) for v in value]
