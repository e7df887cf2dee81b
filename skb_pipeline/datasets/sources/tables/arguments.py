"""``source.args`` of the adapter ``tables``."""

from __future__ import annotations

import codecs
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from skb_pipeline.datasets.sources.tables.reading import Layout

SPLITS = ("train", "val", "test")


class _Args(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Files(_Args):
    """Files of one kind, read by their suffix: ``.parquet``, ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson``; text may be
    compressed (``.gz``).

    Attributes:
        files: glob below the folder.
        delimiter, encoding: of CSV files; default: a comma (a tab in ``.tsv``), UTF-8.
        header: False for CSV files without a line of names; their columns are called "1", "2" and so on.
        quotes: False where a ``"`` in a CSV file is an ordinary character.
        escape: character in a CSV file that makes the next one an ordinary one, such as a backslash; without it quotes
            in a quoted cell are doubled, and a row with text behind a closing quote is faulty.
    """

    files: str = Field(min_length=1)
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    encoding: str = "utf-8"
    header: bool = True
    quotes: bool = True
    escape: str | None = Field(default=None, min_length=1, max_length=1)

    @field_validator("delimiter", "escape")
    @classmethod
    def _ascii(cls, value: str | None) -> str | None:
        if value is not None and (not value.isascii() or value in '"\r\n'):
            raise ValueError(f"{value!r} is no ASCII character other than a quote and line ends")
        return value

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.escape is not None and self.escape == self.delimiter:
            raise ValueError("delimiter and escape must differ")
        return self

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError as error:
            raise ValueError(f"encoding {value!r} is unknown") from error

    @property
    def layout(self) -> Layout:
        """How its CSV files are written."""
        return Layout(self.delimiter, self.encoding, self.header, self.quotes, self.escape)


class NodeTable(_Files):
    """Files of nodes. ``type`` names a column, ``type_value`` states one type for all rows; exactly one is given.

    Attributes:
        id: column of the external id.
        fields: field of the spec -> column.
        separators: field -> text that separates the items of a list kept in one cell.
        skip_empty_ids: rows without an id are no nodes (a column of brands in a table of products, say); they are
            counted, not quarantined.
    """

    id: str
    type: str | None = None
    type_value: str | None = None
    fields: dict[str, str] = Field(min_length=1)
    separators: dict[str, str] = Field(default_factory=dict)
    skip_empty_ids: bool = False

    @model_validator(mode="after")
    def _one_type(self) -> Self:
        if (self.type is None) == (self.type_value is None):
            raise ValueError("give either type (a column) or type_value")
        unknown = set(self.separators) - set(self.fields)
        if unknown:
            raise ValueError(f"separators for fields that are not mapped: {sorted(unknown)}")
        if "" in self.separators.values():
            raise ValueError("a separator must not be empty")
        return self


class EdgeTable(_Files):
    """Files of edges, or of nodes with a column that points at other nodes.

    Attributes:
        head, tail: columns of external ids. ``tail`` may hold lists: one edge for each item.
        tail_separator: separates the items of a list kept in one cell of ``tail``.
        relation, relation_value: a column, or one relation for all rows; exactly one is given. ``relation_names``
            renames values of the column.
        head_type, tail_type: one type for all rows; head_type_column, tail_type_column: a column. Without either the
            type is looked up by id, which must then belong to nodes of one type only.
        skip_empty_tails: rows with an empty ``tail`` are no edges; they are counted, not quarantined.
    """

    head: str
    tail: str
    tail_separator: str | None = Field(default=None, min_length=1)
    relation: str | None = None
    relation_value: str | None = None
    relation_names: dict[str, str] = Field(default_factory=dict)
    head_type: str | None = None
    tail_type: str | None = None
    head_type_column: str | None = None
    tail_type_column: str | None = None
    skip_empty_tails: bool = False

    @model_validator(mode="after")
    def _given_once(self) -> Self:
        if (self.relation is None) == (self.relation_value is None):
            raise ValueError("give either relation (a column) or relation_value")
        if self.relation_names and self.relation is None:
            raise ValueError("relation_names renames values of the column that relation names; there is none")
        for end in ("head", "tail"):
            if getattr(self, f"{end}_type") is not None and getattr(self, f"{end}_type_column") is not None:
                raise ValueError(f"give either {end}_type or {end}_type_column")
        return self


class QueryTable(_Files):
    """Files of questions, with their answers in a column or in TREC files of judgements.

    Attributes:
        id, query: columns.
        split: column of train, val or test. Without that column every question is a test question.
        split_value: the split of all rows, in place of the column.
        answers: column of lists of ids, or of JSON lists as text; an empty list is a question without answers.
        answers_separator: separates ids kept in one cell of ``answers``.
        qrels: glob of TREC judgements (``query 0 node relevance``, or three columns ``query node relevance`` under a
            line of names), in place of ``answers``. Answers are the nodes with a relevance above 0; questions that
            occur in no judgement are left out and counted.
        template: column whose values become slices of the metrics; ``template_names`` renames its values.
    """

    id: str = "query_id"
    query: str = "query"
    split: str = "split"
    split_value: str | None = None
    answers: str = "answer_ids"
    answers_separator: str | None = Field(default=None, min_length=1)
    qrels: str | None = Field(default=None, min_length=1)
    template: str | None = None
    template_names: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _given_once(self) -> Self:
        given = self.model_fields_set
        if self.split_value is not None:
            if "split" in given:
                raise ValueError("give either split (a column) or split_value")
            if self.split_value not in SPLITS:
                raise ValueError(f"split_value {self.split_value!r} is not one of {SPLITS}")
        if self.qrels is not None and given & {"answers", "answers_separator"}:
            raise ValueError("give either answers (a column) or qrels")
        return self


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
