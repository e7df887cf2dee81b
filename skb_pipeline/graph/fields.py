"""``FieldValues``: typed fields by node type, read from the SKB file once per field, and conditions on them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import duckdb
import numpy as np

from skb_pipeline.plans.plan import Condition
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.storage.duck import connect

_SMALL = {ord(capital): capital.lower() for capital in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_ORDERED: Mapping[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def folded(text: str) -> str:
    """A text with A to Z as small letters and all else as it is, which SQL and Cypher can do alike."""
    return text.translate(_SMALL)


@dataclass(frozen=True, eq=False)
class Column:
    """One field of all nodes of a type, in canonical order.

    Attributes:
        kind: how it compares.
        numbers: float64 [nodes], NaN without a value; of texts and dates None.
        codes: int32 [nodes], places in ``words``, -1 without a value; of numbers None.
        words: distinct texts; those of kind ``text`` folded.
    """

    kind: FieldKind
    numbers: np.ndarray | None
    codes: np.ndarray | None
    words: tuple[str, ...] = ()

    @cached_property
    def present(self) -> np.ndarray:
        """bool [nodes]: whether there is a value."""
        return ~np.isnan(self.numbers) if self.numbers is not None else np.asarray(self.codes >= 0)  # type: ignore[operator]

    def meets(self, condition: Condition) -> np.ndarray:
        """bool [nodes]: whether there is a value that compares so. The condition suits the kind."""
        given = condition.value if isinstance(condition.value, list) else [condition.value]
        if self.numbers is not None:
            wanted = [float(value) for value in given]
            if condition.op == "in":
                return np.isin(self.numbers, wanted)
            return self.present & _ORDERED[condition.op](self.numbers, wanted[0])
        texts = [folded(str(v)) if self.kind is FieldKind.TEXT else str(v) for v in given]
        fits = np.array([_compares(word, condition.op, texts) for word in self.words] + [False], dtype=np.bool_)
        return np.asarray(fits[self.codes])


def _compares(word: str, op: str, given: Sequence[str]) -> bool:
    if op == "in":
        return word in given
    if op == "contains":
        return given[0] in word
    return bool(_ORDERED[op](word, given[0]))  # type: ignore[arg-type]


class FieldValues:
    """Values of the typed fields of one SKB, for conditions on fields.

    Args:
        open_store: gives a connection to the SKB file, for the time of one query.
        schema: the dataset's names and fields.
    """

    def __init__(
        self, open_store: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]], schema: GraphSchema
    ) -> None:
        self.schema = schema
        self._open = open_store
        self._columns: dict[tuple[str, str], Column] = {}
        self._ids: dict[str, np.ndarray] = {}

    @classmethod
    def at(cls, path: Path, schema: GraphSchema) -> Self:
        """Of an SKB file, which is opened when a field is first asked for."""
        return cls(lambda: connect(path, read_only=True), schema)

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection, schema: GraphSchema) -> Self:
        """Of an open connection, which must stay open."""

        @contextmanager
        def same() -> Iterator[duckdb.DuckDBPyConnection]:
            yield con

        return cls(same, schema)

    def column(self, node_type: str, field: str) -> Column:
        """One field, read when first asked for.

        Raises:
            KeyError: the type has no such typed field.
        """
        key = (node_type, field)
        if key not in self._columns:
            kind = self.schema.kind_of(node_type, field)
            if kind is None:
                raise KeyError(f"type {node_type!r} has no typed field {field!r}")
            with self._open() as con:
                self._columns[key] = _read(con, node_type, field, kind)
        return self._columns[key]

    def meeting(self, node_type: str, conditions: Iterable[Condition]) -> np.ndarray:
        """bool per node of a type in canonical order: whether it meets all conditions. A field that the type lacks is
        a missing value."""
        return self._all(node_type, conditions, lambda column, condition: column.meets(condition))

    def having(self, node_type: str, conditions: Iterable[Condition]) -> np.ndarray:
        """bool per node of a type in canonical order: whether it has a value for each condition."""
        return self._all(node_type, conditions, lambda column, condition: column.present)

    def _all(
        self, node_type: str, conditions: Iterable[Condition], test: Callable[[Column, Condition], np.ndarray]
    ) -> np.ndarray:
        kept = np.ones(len(self.node_ids(node_type)), dtype=np.bool_)
        for condition in conditions:
            if self.schema.kind_of(node_type, condition.field) is None:
                return np.zeros(len(kept), dtype=np.bool_)
            kept &= test(self.column(node_type, condition.field), condition)
        return kept

    def node_ids(self, node_type: str) -> np.ndarray:
        """int64 node ids of a type in canonical order."""
        if node_type not in self._ids:
            with self._open() as con:
                rows = con.execute(
                    "SELECT node_id FROM nodes WHERE node_type = ? ORDER BY canonical", [node_type]
                ).fetchnumpy()
            self._ids[node_type] = np.asarray(rows["node_id"], dtype=np.int64)
        return self._ids[node_type]


def _read(con: duckdb.DuckDBPyConnection, node_type: str, field: str, kind: FieldKind) -> Column:
    path = "/" + field.replace("~", "~0").replace("/", "~1")
    value = "json_extract_string(fields, $path)"
    if kind is FieldKind.NUMBER:
        value = f"coalesce(TRY_CAST({value} AS DOUBLE), 'nan'::DOUBLE)"
    text = f"SELECT {value} AS value FROM nodes WHERE node_type = $type ORDER BY canonical"
    con.execute(text, {"path": path, "type": node_type})
    if kind is FieldKind.NUMBER:
        return Column(kind, np.asarray(con.fetchnumpy()["value"], dtype=np.float64), None)
    words: dict[str, int] = {}
    codes = []
    while rows := con.fetchmany(100_000):
        for (word,) in rows:
            if word is None:
                codes.append(-1)
                continue
            codes.append(words.setdefault(folded(word) if kind is FieldKind.TEXT else word, len(words)))
    return Column(kind, None, np.array(codes, dtype=np.int32), tuple(words))
