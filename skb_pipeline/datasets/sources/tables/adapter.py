"""The adapter ``tables``: rows and columns of a user's files become nodes, edges and questions."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.datasets.records import RAW_EDGE_SCHEMA, RawNode, RawQuery, SourceError
from skb_pipeline.datasets.sources.tables.arguments import SPLITS, EdgeTable, NodeTable, QueryTable, TablesArgs
from skb_pipeline.datasets.sources.tables.files import is_empty, match_files
from skb_pipeline.datasets.sources.tables.qrels import read_qrels
from skb_pipeline.datasets.sources.tables.reading import Row, column_names, list_of_texts, read_columns, read_rows
from skb_pipeline.text.cleaning import clean_ids, clean_text

VERSION = "2"
_NAMED = 3


class TablesSource:
    """Adapter ``tables``. Rows of nodes that cannot be read are quarantined; a fault in a file of edges or questions
    is an error that names file and row.
    """

    Args = TablesArgs

    def __init__(self, args: TablesArgs) -> None:
        self.args = args
        self.out_of_scope: Counter[str] = Counter()
        self.cleaned: Counter[str] = Counter()

    def files(self) -> list[Path]:
        """All matched files, empty ones too: they may be filled.

        Raises:
            FileNotFoundError: an environment variable is not set, or a pattern matches nothing.
        """
        tables: list[NodeTable | EdgeTable | QueryTable] = [*self.args.nodes, *self.args.edges, *self.args.queries]
        patterns = [table.files for table in tables] + [t.qrels for t in self.args.queries if t.qrels is not None]
        return sorted({path for pattern in patterns for path in match_files(self._folder(), pattern)[0]})

    def nodes(self) -> Iterator[RawNode]:
        """Every node row. Fields without a value are left out."""
        for table in self.args.nodes:
            columns = [table.id, *([table.type] if table.type else []), *table.fields.values()]
            for path in self._match(table.files):
                source = self._shown(path)
                for row in self._rows(path, columns, table):
                    if row.fault:
                        yield RawNode(source, row.number, None, None, row.values, row.fault)
                        continue
                    external_id = row.values[table.id]
                    if table.skip_empty_ids and not clean_text(external_id or ""):
                        self.out_of_scope[f"{source}: rows without {table.id}"] += 1
                        continue
                    node_type = _node_type(table, row.values)
                    yield RawNode(source, row.number, node_type, external_id, _fields(table, row.values))

    def edges(self) -> Iterator[pa.RecordBatch]:
        """Every edge row, in columns from the file to the SKB."""
        for table in self.args.edges:
            named = [table.relation, table.head_type_column, table.tail_type_column]
            columns = list(dict.fromkeys([table.head, table.tail, *(c for c in named if c is not None)]))
            for path in self._match(table.files):
                for rows, values in read_columns(path, columns, table.layout, lists=[table.tail]):
                    yield self._edge_batch(table, self._shown(path), rows, values)

    def queries(self) -> Iterator[RawQuery] | None:
        """Every question, or None when no table of questions is given."""
        return self._query_rows() if self.args.queries else None

    def _edge_batch(self, table: EdgeTable, source: str, rows: pa.Array, values: dict[str, pa.Array]) -> pa.RecordBatch:
        tails = values[table.tail]
        if table.tail_separator is not None or pa.types.is_list(tails.type):
            lists = list_of_texts(tails, table.tail_separator)
            parents = pc.list_parent_indices(lists)
            tails = pc.list_flatten(lists)
            rows = rows.take(parents)
            values = {name: column.take(parents) for name, column in values.items() if name != table.tail}
        values = {**values, table.tail: clean_ids(pc.fill_null(tails, ""), self.cleaned)}
        if table.skip_empty_tails:
            filled = pc.not_equal(values[table.tail], "")
            self.out_of_scope[f"{source}: rows without {table.tail}"] += len(filled) - pc.sum(filled).as_py()
            rows, values = rows.filter(filled), {name: column.filter(filled) for name, column in values.items()}
        heads, tails = clean_ids(pc.fill_null(values[table.head], ""), self.cleaned), values[table.tail]
        columns = [
            _constant(source, len(rows)),
            rows,
            self._types(heads, table.head_type, values.get(table.head_type_column or "")),
            heads,
            _relations(table, values, len(rows)),
            self._types(tails, table.tail_type, values.get(table.tail_type_column or "")),
            tails,
        ]
        columns = [pc.fill_null(column, "") if column.null_count else column for column in columns]
        return pa.RecordBatch.from_arrays(columns, schema=RAW_EDGE_SCHEMA)

    def _types(self, ids: pa.Array, value: str | None, column: pa.Array | None) -> pa.Array:
        """Node types of a column of ids: stated, from a column, or looked up; "" for ids without a node."""
        if value is not None:
            return _constant(value, len(ids))
        if column is not None:
            return column
        distinct = ids.dictionary_encode()
        types = pa.array([self._type_of.get(i, "") for i in distinct.dictionary.to_pylist()], pa.string())
        return types.take(distinct.indices)

    @cached_property
    def _type_of(self) -> dict[str, str]:
        """Node type by cleaned id.

        Raises:
            SourceError: an id belongs to two types, so edges must say their types.
        """
        found: dict[str, str] = {}
        for table in self.args.nodes:
            columns = [table.id, *([table.type] if table.type else [])]
            for path in self._match(table.files):
                for row in read_rows(path, columns, [table.id], table.layout):
                    external_id = None if row.fault else row.values[table.id]
                    node_type = None if row.fault else _node_type(table, row.values)
                    if not external_id or not node_type:
                        continue
                    external_id, node_type = clean_text(external_id), clean_text(node_type)
                    if found.setdefault(external_id, node_type) != node_type:
                        raise SourceError(
                            f"{self._shown(path)}:{row.number}: id {external_id!r} is used by {node_type!r} and by "
                            f"{found[external_id]!r}: give head_type and tail_type (or their columns) in "
                            "source.args.edges"
                        )
        return found

    def _query_rows(self) -> Iterator[RawQuery]:
        for table in self.args.queries:
            judged = read_qrels(self._match(table.qrels)) if table.qrels is not None else None
            asked: set[str] = set()
            for path in self._match(table.files):
                yield from self._queries_of(table, path, judged, asked)
            orphans = sorted(set(judged or ()) - asked)
            if orphans:
                raise SourceError(
                    f"{table.qrels}: {len(orphans)} judged questions are not in {table.files}, such as {orphans[:3]}"
                )

    def _queries_of(
        self, table: QueryTable, path: Path, judged: dict[str, list[str]] | None, asked: set[str]
    ) -> Iterator[RawQuery]:
        """Questions of one file; ids of judged ones are added to ``asked``."""
        source = self._shown(path)
        has_split = table.split_value is None and (
            "split" in table.model_fields_set or table.split in column_names(path, table.layout)
        )
        columns = [table.id, table.query]
        columns += [c for c, wanted in ((table.split, has_split), (table.answers, judged is None)) if wanted]
        columns += [table.template] if table.template is not None else []
        for row in self._rows(path, columns, table):
            where = f"{source}:{row.number}"
            if row.fault:
                raise SourceError(f"{where}: {row.fault}: {row.values['text'][:80]!r}")
            query_id, query = row.values[table.id], row.values[table.query]
            split = row.values[table.split] if has_split else table.split_value or "test"
            if split not in SPLITS:
                raise SourceError(f"{where}: {table.split}: {split!r} is not one of {SPLITS}")
            if not query_id or not query or not isinstance(query, str):
                raise SourceError(f"{where}: {table.id} and {table.query} must not be empty, and a question is text")
            if judged is None:
                answers = _answers(row.values[table.answers], table.answers_separator, f"{where}: {table.answers}")
            elif clean_text(query_id) in judged:
                answers = judged[clean_text(query_id)]
                asked.add(clean_text(query_id))
            else:
                self.out_of_scope[f"{source}: questions without a judgement in {table.qrels}"] += 1
                continue
            template = None if table.template is None else _template(table, row.values[table.template])
            yield RawQuery(source, row.number, query_id, query, split, answers, template)

    def _rows(self, path: Path, columns: list[str], table: NodeTable | QueryTable) -> Iterator[Row]:
        lost: Counter[str] = Counter()
        yield from read_rows(path, columns, [table.id], table.layout, lost=lost)
        for what, n in lost.items():
            self.out_of_scope[f"{self._shown(path)}: {what}"] = n

    def _folder(self) -> Path:
        folder = os.path.expandvars(self.args.folder)
        if "$" in folder:
            raise FileNotFoundError(f"source.args.folder: {self.args.folder!r} names an environment variable not set")
        return Path(folder).expanduser()

    def _match(self, pattern: str) -> list[Path]:
        """Files of a glob that have data; those that have none or are left out are counted.

        Raises:
            FileNotFoundError: there is none with data.
        """
        paths, left_out = match_files(self._folder(), pattern)
        empty = [path for path in paths if is_empty(path)]
        for what, others in (("empty files", empty), ("hidden files", left_out)):
            if others:
                shown = ", ".join(self._shown(path) for path in others[:_NAMED]) + ", …" * (len(others) > _NAMED)
                self.out_of_scope[f"{pattern}: {what} ({shown})"] = len(others)
        if len(empty) == len(paths):
            names = ", ".join(self._shown(path) for path in empty[:_NAMED])
            raise FileNotFoundError(f"source.args: all {len(empty)} files that match {pattern!r} are empty: {names}")
        return [path for path in paths if path not in empty]

    def _shown(self, path: Path) -> str:
        return path.relative_to(self._folder()).as_posix()


def _constant(value: str, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), length)


def _relations(table: EdgeTable, values: dict[str, pa.Array], length: int) -> pa.Array:
    """The relation of each row: stated, or as in its column, under the name that the spec gives it."""
    if table.relation is None:
        return _constant(table.relation_value or "", length)
    if not table.relation_names:
        return values[table.relation]
    names = {clean_text(name): given for name, given in table.relation_names.items()}
    distinct = values[table.relation].dictionary_encode()
    cleaned = [None if name is None else clean_text(name) for name in distinct.dictionary.to_pylist()]
    renamed = pa.array([None if name is None else names.get(name, name) for name in cleaned], pa.string())
    return renamed.take(distinct.indices)


def _node_type(table: NodeTable, values: dict[str, Any]) -> str | None:
    value = values[table.type] if table.type else table.type_value
    return None if value is None else str(value)


def _fields(table: NodeTable, values: dict[str, Any]) -> dict[str, Any]:
    fields = {name: _split(values[column], table.separators.get(name)) for name, column in table.fields.items()}
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _split(value: Any, separator: str | None) -> Any:
    return value.split(separator) if separator is not None and isinstance(value, str) else value


def _template(table: QueryTable, value: Any) -> str | None:
    return None if value is None else table.template_names.get(str(value), str(value))


def _answers(value: Any, separator: str | None, where: str) -> list[str]:
    """A list of ids as text; text is split at the separator or else read as JSON, and as nothing else.

    Raises:
        SourceError: not a list of ids.
    """
    if separator is not None and (value is None or isinstance(value, str)):
        return [item for item in map(clean_text, (value or "").split(separator)) if item]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{where}: not a JSON list: {value[:80]!r}") from error
    if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, int | str) for v in value):
        raise SourceError(f"{where}: a list of ids was expected, not {str(value)[:80]!r}")
    return [clean_text(str(v)) for v in value]
