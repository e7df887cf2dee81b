"""Plans written by others, read from a file. They are validated like any plan; nothing in the file is trusted.

A row has a ``query_id`` and a ``plan`` (an object or its JSON text) or, where that is null, a ``raw_output`` (a model's
reply, read as replies are); where it has a ``finish_reason``, that counts for both. The formats are in
``docs/language-models.md``.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skb_pipeline.errors import UserError
from skb_pipeline.planning.engines.base import PlanCause, PlanRecord, Question
from skb_pipeline.planning.engines.completions import Completion
from skb_pipeline.planning.engines.replies import Reply, judge, no_plan, read_reply
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import parse_plan_json
from skb_pipeline.text.cleaning import clean_text

_MODEL, _PLAN, _OUTPUT, _REASON = ("model", "engine"), "plan", "raw_output", "finish_reason"


def plan_path(path: str | Path) -> Path:
    """Where a file of plans lies: ``$VAR`` and ``~`` are expanded."""
    return Path(os.path.expandvars(path)).expanduser()


class PlanFileError(UserError, ValueError):
    """A file of plans that cannot be read; the message names the file and the line, row or key."""


@dataclass(frozen=True)
class _Row:
    """A row and where it stands, such as ``line 3``."""

    place: str
    values: Mapping[str, Any]


class FileEngine:
    """Gives the plans of a file.

    Names of types and relations as Neo4j spells them (``GeneOrProtein``, ``HAS_BRAND``, see ``graph.names``) are read
    as those of the schema, unless the schema has such a name itself; the record's explanation says so.

    Args:
        path: ``.jsonl`` or ``.ndjson`` (a row per line), ``.json`` (a list of rows, or an object with a plan per query
            id) or ``.parquet``; ``$VAR`` and ``~`` are expanded.
        schema: names and triples of the dataset.

    Attributes:
        path: with everything expanded.
        unused: query ids of the file that the last call of :meth:`plan` did not ask for, in the order of the file.

    Raises:
        PlanFileError: there is no such file, its format is unknown or broken, a row has no ``query_id`` or neither plan
            nor output, or a ``query_id`` is there twice.
    """

    name = "file"

    def __init__(self, path: str | Path, schema: GraphSchema) -> None:
        self.path = plan_path(path)
        self.unused: tuple[str, ...] = ()
        self._schema, self._names = schema, GraphNames.of(schema)
        read = _FORMATS.get(self.path.suffix.lower())
        if read is None:
            raise PlanFileError(f"{self.path}: unknown format; known are {', '.join(_FORMATS)}")
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise PlanFileError(f"{self.path}: cannot be read: {error.strerror}") from error
        # Read once: what is hashed is what is used, whatever is done to the file meanwhile.
        self._hash = hashlib.sha256(content).hexdigest()
        self._rows = _by_query_id(self.path, read(self.path, content))

    def fingerprint(self) -> dict[str, Any]:
        """The content of the file, wherever it lies, and the names and triples that its plans are checked against."""
        return {"engine": self.name, "sha256": self._hash, "schema": asdict(self._schema)}

    def plan(self, questions: Sequence[Question]) -> list[PlanRecord]:
        """One record per question, in their order. The text of a question does not matter, only its id."""
        asked = {question.query_id for question in questions}
        self.unused = tuple(query_id for query_id in self._rows if query_id not in asked)
        return [self._record(question.query_id) for question in questions]

    def _record(self, query_id: str) -> PlanRecord:
        row = self._rows.get(query_id)
        if row is None:
            missing = no_plan(f"{self.path.name} has no plan for this question")
            return PlanRecord(query_id, self.name, PlanCause.NOT_IN_FILE, missing)
        reply = _reply(row.values)
        notes: list[str] = []
        if reply.content is not None:
            reply = Reply(content=_in_schema_names(reply.content, self._schema, self._names, notes))
        cause, validated = judge(reply, self._schema)
        output, model = row.values.get(_OUTPUT), next((m for m in map(row.values.get, _MODEL) if m), None)
        return PlanRecord(
            query_id,
            self.name,
            cause,
            validated,
            model=None if model is None else str(model),
            raw_output=output if isinstance(output, str) else None,
            finish_reason=row.values.get(_REASON),
            explanation=tuple(notes),
        )


def _reply(values: Mapping[str, Any]) -> Reply:
    """The row's plan or, without one, what its output holds."""
    name = _PLAN if values.get(_PLAN) is not None else _OUTPUT
    given = values.get(name)
    told = Completion(
        text=given if isinstance(given, str) else None,
        reasoning=None,
        finish_reason=values.get(_REASON),
        model="",
        prompt_tokens=None,
        completion_tokens=_count(values.get("completion_tokens")),
        milliseconds=0.0,
        limit=_count(values.get("max_tokens")),
    )
    # Also a plan is not executed that somebody has read from half a reply.
    if given is None or isinstance(given, str) or told.cut_by is not None:
        return read_reply(told)
    if isinstance(given, Mapping) and name == _PLAN:
        return Reply(content=dict(given))
    return Reply(cause=PlanCause.NOT_JSON, reason=f"{name} is no text, but a {type(given).__name__}")


def _count(value: Any) -> int | None:
    """A number of tokens; Parquet files of pandas have floats where some rows have none."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if whole else None


# -------------------------------------------------------------------------------------------------------- names


def _in_schema_names(
    content: Mapping[str, Any], schema: GraphSchema, names: GraphNames, notes: list[str]
) -> dict[str, Any]:
    """The plan with names of the schema where it has those of Neo4j; ``notes`` gain a line for each such name."""

    def of_type(value: Any) -> Any:
        return _translated(value, schema.node_types, names.node_type_of, "label", notes)

    def of_relation(value: Any) -> Any:
        return _translated(value, schema.relations, names.relation_of, "relationship type", notes)

    changed = dict(content)
    for part, translate in (("anchors", {"label": of_type}), ("hops", {"rel": of_relation, "to_label": of_type})):
        if isinstance(content.get(part), list):
            changed[part] = [_with(item, translate) for item in content[part]]
    target = content.get("target")
    if isinstance(target, Mapping) and isinstance(target.get("labels"), list):
        changed["target"] = {**target, "labels": [of_type(label) for label in target["labels"]]}
    return changed


def _with(item: Any, translate: Mapping[str, Callable[[Any], Any]]) -> Any:
    """An anchor or hop with some values translated; anything that is no object is left to validation."""
    if not isinstance(item, Mapping):
        return item
    return {key: translate[key](value) if key in translate else value for key, value in item.items()}


def _translated(value: Any, known: Sequence[str], lookup: Callable[[str], str], what: str, notes: list[str]) -> Any:
    if not isinstance(value, str) or value in known:
        return value
    try:
        name = lookup(value)
    except KeyError:
        return value
    note = f"{what} {value!r} read as {name!r}"
    if note not in notes:
        notes.append(note)
    return name


# -------------------------------------------------------------------------------------------------------- files


def _by_query_id(path: Path, rows: Iterator[_Row]) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    for row in rows:
        query_id = row.values.get("query_id")
        if isinstance(query_id, bool) or not isinstance(query_id, str | int) or not clean_text(str(query_id)):
            raise PlanFileError(f"{path}: {row.place}: no query_id (text or a whole number), but {query_id!r}")
        if _PLAN not in row.values and _OUTPUT not in row.values:
            raise PlanFileError(f"{path}: {row.place}: neither {_PLAN!r} nor {_OUTPUT!r}, but {sorted(row.values)}")
        reason = row.values.get(_REASON)
        if reason is not None and not isinstance(reason, str):
            raise PlanFileError(f"{path}: {row.place}: {_REASON} is a text or null, not {reason!r}")
        query_id = clean_text(str(query_id))
        before = found.setdefault(query_id, row)
        if before is not row:
            raise PlanFileError(f"{path}: {row.place}: query_id {query_id!r} is there already, {before.place}")
    return found


def _jsonl_rows(path: Path, content: bytes) -> Iterator[_Row]:
    for number, line in enumerate(_text(path, content).split("\n"), start=1):
        if line.strip():
            yield _row(path, f"line {number}", _parsed(path, f"line {number}", line))


def _json_rows(path: Path, content: bytes) -> Iterator[_Row]:
    value = _parsed(path, "as a whole", _text(path, content))
    if isinstance(value, list):
        for number, values in enumerate(value, start=1):
            yield _row(path, f"item {number}", values)
    elif isinstance(value, dict) and "query_id" not in value:
        for query_id, plan in value.items():
            if not isinstance(plan, dict | str):
                raise PlanFileError(f"{path}: key {query_id!r}: a plan is needed, not {type(plan).__name__}")
            yield _Row(f"key {query_id!r}", {"query_id": query_id, _PLAN: plan})
    else:
        raise PlanFileError(f"{path}: a list of rows is needed, or an object with a plan per query id")


def _parquet_rows(path: Path, content: bytes) -> Iterator[_Row]:
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
            for number, values in enumerate(rows, start=1):
                yield _Row(
                    f"row {number}", {**values, _PLAN: _without_nulls(values[_PLAN])} if _PLAN in values else values
                )
    except pa.ArrowException as error:
        raise PlanFileError(f"{path}: no Parquet file that can be read: {error}") from error


def _without_nulls(value: Any) -> Any:
    """A plan kept as a struct, without the fields that Parquet adds because other rows have them."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _row(path: Path, place: str, values: Any) -> _Row:
    if not isinstance(values, dict):
        raise PlanFileError(f"{path}: {place}: a JSON object is needed, not {type(values).__name__}")
    return _Row(place, values)


def _parsed(path: Path, place: str, text: str) -> Any:
    try:
        return parse_plan_json(text)
    except ValueError as error:
        raise PlanFileError(f"{path}: {place}: not JSON: {error}") from error


def _text(path: Path, content: bytes) -> str:
    try:
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise PlanFileError(f"{path}: not UTF-8: {error}") from error


_FORMATS: dict[str, Callable[[Path, bytes], Iterator[_Row]]] = {
    ".jsonl": _jsonl_rows,
    ".ndjson": _jsonl_rows,
    ".json": _json_rows,
    ".parquet": _parquet_rows,
}
