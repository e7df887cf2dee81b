"""``DatasetSpec``: everything the pipeline must be told about one SKB, as a YAML file.

Field by field it is explained in ``docs/add-a-dataset.md``. A section that configures one room stands in that room's
``settings.py``. Models are frozen and refuse unknown keys.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from skb_pipeline.datasets.stark_names import format_faults
from skb_pipeline.evaluation.settings import EvaluationSpec
from skb_pipeline.linking.settings import LinkingSpec
from skb_pipeline.orchestration.settings import Refresh
from skb_pipeline.planning.settings import PlannerSpec, PlansSpec
from skb_pipeline.plans.plan import Direction
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.questions.settings import QuestionSpec
from skb_pipeline.retrieval.settings import EncoderSpec, LexicalSpec, RetrievalSpec
from skb_pipeline.section import Section
from skb_pipeline.skb.settings import DocumentSpec
from skb_pipeline.storage.paths import check_dataset_name
from skb_pipeline.text.cleaning import without_invisible
from skb_pipeline.text.settings import FieldSpec, Shape

ALWAYS = frozenset({"name", "description", "version", "citation", "licence"})
"""Fields that say who a dataset is, and decide no result."""
_NAMING = ("relations", "candidates", "questions", "planner", "linking")
"""Sections that name types and relations."""


def _seen(value: Any) -> Any:
    """A value with all texts in it, keys too, in NFC and without invisible characters."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", without_invisible(value))
    if isinstance(value, Mapping):
        return {_seen(key): _seen(item) for key, item in value.items()}
    return [_seen(item) for item in value] if isinstance(value, list) else value


class NodeTypeSpec(Section):
    """Fields of one node type and how its documents are built."""

    fields: dict[str, FieldSpec]
    name_field: str
    alias_field: str | None = None
    document: list[str] = Field(min_length=1)
    """Fields that make up the document, in this order. The name must be among them."""
    plural: str | None = None
    """Plural used when questions are worded; default is the regular English plural."""

    @field_validator("fields", mode="before")
    @classmethod
    def _bare_shape(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: {"shape": v} if isinstance(v, str) else v for k, v in value.items()}
        return value

    @model_validator(mode="after")
    def _names_known(self) -> Self:
        for what, name in [("name_field", self.name_field), ("alias_field", self.alias_field)]:
            if name is not None and name not in self.fields:
                raise ValueError(f"{what} {name!r} is not one of the declared fields {sorted(self.fields)}")
        stored = [*self.fields, *(name for field in self.fields for name in self.fields[field].parsed_names(field))]
        twice = sorted({name for name in stored if stored.count(name) > 1})
        if twice:
            raise ValueError(f"names of parsed values are already taken: {twice}")
        if self.fields[self.name_field].shape is not Shape.TEXT:
            raise ValueError(f"name_field {self.name_field!r} must have the shape text")
        if self.alias_field is not None and self.fields[self.alias_field].shape is Shape.JSON:
            raise ValueError(f"alias_field {self.alias_field!r} must not have the shape json")
        unknown = [f for f in self.document if f not in self.fields]
        if unknown or len(set(self.document)) != len(self.document):
            raise ValueError(f"document must list declared fields once each; unknown or repeated: {unknown}")
        if self.name_field not in self.document:
            raise ValueError(f"document must contain the name field {self.name_field!r}")
        return self


class RelationSpec(Section):
    """One allowed triple. The same relation name may occur with several pairs of types."""

    name: str = Field(min_length=1)
    head: str
    tail: str
    symmetric: bool = False
    """A reciprocal pair (a, r, b), (b, r, a) is one edge; otherwise both are kept."""
    head_label: str | None = None
    """Heading of the neighbours in the head's document; default: see ``DatasetSpec.headings``."""
    tail_label: str | None = None
    """Heading of the neighbours in the tail's document; default: see ``DatasetSpec.headings``."""

    @property
    def triple(self) -> Triple:
        """The triple without settings."""
        return Triple(self.head, self.name, self.tail)


class SourceSpec(Section):
    """Which adapter reads the source files, and its arguments (the adapter checks them)."""

    adapter: str
    args: dict[str, Any] = Field(default_factory=dict)
    max_bad_edge_rate: float = Field(default=0.05, ge=0, le=1)
    """The load fails when a larger share of edges is quarantined."""
    max_bad_node_rate: float = Field(default=0.05, ge=0, le=1)
    """The load fails when a larger share of node rows is quarantined."""


class DatasetSpec(Section):
    """One dataset. See the module docstring."""

    name: str
    description: str
    version: str | None = None
    citation: str | None = None
    licence: str | None = None
    source: SourceSpec
    node_types: dict[str, NodeTypeSpec] = Field(min_length=1)
    relations: list[RelationSpec] = Field(min_length=1)
    candidates: list[str] = Field(default_factory=list)
    """Node types that can be answers; empty means all."""
    documents: DocumentSpec = DocumentSpec()
    lexical: LexicalSpec = LexicalSpec()
    encoder: EncoderSpec
    retrieval: RetrievalSpec = RetrievalSpec()
    questions: QuestionSpec = QuestionSpec()
    planner: PlannerSpec = PlannerSpec()
    plans: PlansSpec = PlansSpec()
    linking: LinkingSpec = LinkingSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    refresh: Refresh | None = None
    """When it is refreshed by itself, see ``docs/refresh.md``; None: whenever it changes, once it was materialised."""
    systems: list[str] = Field(default_factory=list)
    """Systems that are made for this dataset, with those they are made of; empty means all that need no download, no
    server and no training (see ``docs/add-a-system.md``)."""

    @model_validator(mode="before")
    @classmethod
    def _fusion_moved(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "fusion" in value:
            raise ValueError(
                "the section fusion is gone: what is done with a dataset stands in systems.yaml of the home folder, "
                "such as `fused: {kind: rrf, of: [graph, dense], weight: 0.5, k: 60}` (docs/add-a-system.md)"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _names_seen(cls, value: Any) -> Any:
        """Names of types and relations are cleaned as those in the rows are, so that they meet."""
        if not isinstance(value, Mapping):
            return value
        cleaned = {key: _seen(value[key]) for key in _NAMING if key in value}
        types = value.get("node_types")
        if isinstance(types, Mapping):
            cleaned["node_types"] = {_seen(name): declared for name, declared in types.items()}
        return {**value, **cleaned}

    @field_validator("name")
    @classmethod
    def _safe_name(cls, value: str) -> str:
        return check_dataset_name(value)

    @model_validator(mode="after")
    def _types_known(self) -> Self:
        known = set(self.node_types)
        for i, relation in enumerate(self.relations):
            for end in (relation.head, relation.tail):
                if end not in known:
                    raise ValueError(f"relations.{i} ({relation.name!r}): type {end!r} is not in node_types")
            if relation.symmetric and relation.head != relation.tail:
                raise ValueError(f"relations.{i} ({relation.name!r}): only a relation within one type is symmetric")
        triples = [r.triple for r in self.relations]
        if len(set(triples)) != len(triples):
            raise ValueError("relations: the same triple is declared twice")
        for type_name in self.candidates:
            if type_name not in known:
                raise ValueError(f"candidates: type {type_name!r} is not in node_types")
        names = {r.name for r in self.relations}
        for i, p in enumerate(self.questions.phrasings):
            ends = {(p.target, p.relation, p.anchor), (p.anchor, p.relation, p.target)}
            if not ends & set(triples):
                raise ValueError(f"questions.phrasings.{i}: no triple joins {p.target!r}, {p.relation!r}, {p.anchor!r}")
        planner = self.planner
        for hint, keys in (
            ("relation_words", list(planner.relation_words)),
            ("negatable", planner.negatable),
            ("preferred", planner.preferred),
            ("opposites", [name for pair in planner.opposites for name in pair]),
        ):
            for key in keys:
                if key not in names:
                    raise ValueError(f"planner.{hint}: relation {key!r} is not declared")
        for key in self.planner.type_words:
            if key not in known:
                raise ValueError(f"planner.type_words: type {key!r} is not in node_types")
        for key, fields in self.linking.name_fields.items():
            if key not in known:
                raise ValueError(f"linking.name_fields: type {key!r} is not in node_types")
            unknown = [name for name in fields if name not in self.node_types[key].fields]
            if unknown:
                raise ValueError(f"linking.name_fields: {key!r} has no fields {unknown}")
        return self

    @model_validator(mode="after")
    def _directions_fit(self) -> Self:
        schema, questions = GraphSchema.from_spec(self), self.questions
        for name in questions.directions:
            if name not in schema.relations:
                raise ValueError(f"questions.directions: relation {name!r} is not declared")
        seen: dict[tuple[str, ...], int] = {}
        for i, p in enumerate(questions.phrasings):
            two_ways = schema.two_ways(p.target, p.relation, p.anchor)
            if p.direction in (Direction.OUT, Direction.IN) and not two_ways:
                if Triple(p.target, p.relation, p.anchor) in schema.symmetric:
                    raise ValueError(f"questions.phrasings.{i}: {p.relation!r} is symmetric, so it has no direction")
                if not schema.allows(p.target, p.relation, p.anchor, Direction(p.direction)):
                    raise ValueError(
                        f"questions.phrasings.{i}: no edge of {p.relation!r} runs that way between {p.target!r} and "
                        f"{p.anchor!r} (direction {p.direction}, seen from {p.target!r})"
                    )
            key = (p.target, p.relation, p.anchor, str(questions.direction_of(p)) if two_ways else "")
            if key in seen:
                raise ValueError(
                    f"questions.phrasings.{i}: says the same as questions.phrasings.{seen[key]} (target, relation, "
                    "anchor and, where it matters, direction)"
                )
            seen[key] = i
        return self

    @model_validator(mode="after")
    def _document_format_fits(self) -> Self:
        documents = self.documents
        if documents.format == "labelled":
            return self
        faults = format_faults(
            documents.format, self.node_types, [r.name for r in self.relations] if documents.relations else None
        )
        if not self.lexical.headings:
            faults.append("lexical.headings: what is a heading is known of 'labelled' documents only")
        if self.stark_compat and documents.neighbours is not None:
            faults.append(
                "documents.neighbours: with stark_compat there is no limit; STaRK draws neighbours at random or fails"
            )
        if faults:
            raise ValueError(f"documents.format {documents.format!r}: " + "; ".join(faults))
        return self

    @property
    def stark_compat(self) -> bool:
        """Whether faults of STaRK are repeated, by the argument ``stark_compat`` of the source."""
        return self.source.args.get("stark_compat") is True

    @property
    def triples(self) -> list[Triple]:
        """All allowed triples, in declared order."""
        return [r.triple for r in self.relations]

    @property
    def candidate_types(self) -> list[str]:
        """Types of possible answers, in declared order."""
        return list(self.candidates or self.node_types)

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Headings of the neighbours in the head's and in the tail's document, per relation in declared order.

        What ``head_label`` and ``tail_label`` say, else the relation's name. Where edges run either way and the way
        means something, the two are never the same: the one that is not given is then the other's with ``(reverse)``
        behind it.
        """
        schema, found = GraphSchema.from_spec(self), []
        for relation in self.relations:
            head = relation.head_label or relation.name
            tail = relation.tail_label or relation.name
            if schema.two_ways(*relation.triple):
                if relation.tail_label is None or (head == tail and relation.head_label is not None):
                    tail = f"{head} (reverse)"
                elif head == tail:
                    head = f"{tail} (reverse)"
            found.append((head, tail))
        return found

    def decides_as(self, other: DatasetSpec) -> bool:
        """Whether the two give the same results: all but :data:`ALWAYS` is equal."""
        return self.model_dump(exclude=set(ALWAYS)) == other.model_dump(exclude=set(ALWAYS))

    def section(self, *names: str) -> dict[str, Any]:
        """The named top-level sections as plain JSON values: what a step declares to depend on.

        ``documents`` also holds ``stark_compat`` where it changes their text.
        """
        dumped = self.model_dump(mode="json", include=set(names))
        if "documents" in names and self.documents.format != "labelled":
            dumped["documents"]["stark_compat"] = self.stark_compat
        return {name: dumped[name] for name in names}
