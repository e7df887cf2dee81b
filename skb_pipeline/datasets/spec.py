"""``DatasetSpec``: everything the pipeline must be told about one SKB, as a YAML file.

Field by field it is explained in ``docs/add-a-dataset.md``. Models are frozen and refuse unknown keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from skb_pipeline.datasets.stark_names import format_faults
from skb_pipeline.skb.parsers import PARSED
from skb_pipeline.storage.paths import check_dataset_name


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shape(StrEnum):
    """Declared shape of a field; ingest coerces to it and counts every coercion."""

    TEXT = "text"
    TEXTS = "texts"
    INTEGER = "integer"
    NUMBER = "number"
    JSON = "json"


class FieldSpec(_Model):
    """One field of a node type. In YAML a bare shape (``definition: text``) is enough."""

    shape: Shape
    html: bool = False
    """Values are HTML: tags are removed and entities resolved at ingest."""
    parse: Literal["price", "rank", "rating", "dimensions", "weight", "date"] | None = None
    """Values read out of the text are stored beside it as ``<field>_<suffix>`` (see ``skb.parsers``)."""

    def parsed_names(self, field: str) -> list[str]:
        """Names under which parsed values of the field called ``field`` are stored."""
        return [f"{field}_{suffix}" for suffix in PARSED[self.parse]] if self.parse else []


class NodeTypeSpec(_Model):
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


class Triple(NamedTuple):
    """An allowed (head type, relation, tail type)."""

    head: str
    relation: str
    tail: str


class RelationSpec(_Model):
    """One allowed triple. The same relation name may occur with several pairs of types."""

    name: str = Field(min_length=1)
    head: str
    tail: str
    symmetric: bool = False
    """A reciprocal pair (a, r, b), (b, r, a) is one edge; otherwise both are kept."""
    head_label: str | None = None
    """Heading of the neighbours in the head's document; default: the relation's name."""
    tail_label: str | None = None
    """Heading of the neighbours in the tail's document; default: the relation's name."""

    @property
    def triple(self) -> Triple:
        """The triple without settings."""
        return Triple(self.head, self.name, self.tail)


class SourceSpec(_Model):
    """Which adapter reads the source files, and its arguments (the adapter checks them)."""

    adapter: str
    args: dict[str, Any] = Field(default_factory=dict)
    max_bad_edge_rate: float = Field(default=0.05, ge=0, le=1)
    """The load fails when a larger share of edges is quarantined."""
    max_bad_node_rate: float = Field(default=0.05, ge=0, le=1)
    """The load fails when a larger share of node rows is quarantined."""


class DocumentSpec(_Model):
    """How node documents are built (the formats named after STaRK: see ``docs/stark.md``).

    In a STaRK format ``relations`` is false and ``neighbours`` null unless given.
    """

    format: Literal["labelled", "stark_amazon", "stark_mag", "stark_prime"] = "labelled"
    relations: bool = True
    """Add one line per relation with names of neighbours."""
    neighbours: int | None = Field(default=10, ge=1)
    """Names per relation, in canonical order (null: all); ``labelled`` counts the rest as ``(+n more)``."""
    compact: bool = False
    """One line per document; for STaRK formats only."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_format(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("format", "labelled") != "labelled":
            return {"relations": False, "neighbours": None, **value}
        return value

    @model_validator(mode="after")
    def _compact_known(self) -> Self:
        if self.compact and self.format == "labelled":
            raise ValueError("compact is for the STaRK formats, not for 'labelled'")
        return self


class LexicalSpec(_Model):
    """BM25 (see ``retrieval.lexical``)."""

    method: Literal["lucene", "robertson", "atire", "bm25l", "bm25+"] = "lucene"
    k1: float = Field(default=1.2, ge=0)
    b: float = Field(default=0.75, ge=0, le=1)
    stopwords: Literal["en", "none"] = "en"


class EncoderSpec(_Model):
    """The sentence encoder of the dense branch.

    ``model`` is a Hugging Face id, a folder, or ``package:NAME`` for a model that a Python package carries
    (the package offers ``get_model_path()``).
    """

    model: str
    revision: str | None = None
    max_length: int = Field(default=256, ge=8)
    batch_size: int = Field(default=32, ge=1)
    query_prefix: str = ""
    document_prefix: str = ""
    pooling: Literal["mean", "cls", "last_token"] | None = None
    """How a text's vector comes from those of its tokens, in the last layer; null: as the model's files say, and where
    they say nothing, as sentence-transformers takes it (mean; for causal models the last token)."""


class Phrasing(_Model):
    """Surface forms of one triple seen from its target: predicates such as ``shows {x}``.

    Subject is the target in the singular; ``{x}`` stands for the other end: a name, or a clause such as ``a gene
    that ...`` (a form that ends with ``{x}`` is preferred then). ``held_out`` forms are used for test questions
    only. ``keywords`` stand behind the target's noun in keyword style: ``with {x}``.
    """

    relation: str
    target: str
    anchor: str
    forms: list[str] = Field(min_length=1)
    held_out: list[str] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list)

    @field_validator("forms", "held_out", "keywords")
    @classmethod
    def _one_slot(cls, value: list[str]) -> list[str]:
        bad = [form for form in value if form.count("{x}") != 1]
        if bad:
            raise ValueError(f"each form needs {{x}} exactly once; wrong: {bad}")
        return value

    @model_validator(mode="after")
    def _held_out_unseen(self) -> Self:
        both = sorted(set(self.forms) & set(self.held_out))
        if both:
            raise ValueError(f"held_out forms must not be among the known forms; in both: {both}")
        return self


class QuestionSpec(_Model):
    """Questions with exact answers, made from the SKB (see ``docs/questions.md``)."""

    seed: int = 13
    per_template: int = Field(default=60, ge=1)
    """Upper bound on the expected number of gold nodes drawn per template."""
    max_answers: int = Field(default=20, ge=1)
    alias_share: float = Field(default=0.3, ge=0, le=1)
    keyword_share: float = Field(default=0.25, ge=0, le=1)
    text_condition_share: float = Field(default=0.3, ge=0, le=1)
    held_out_share: float = Field(default=0.5, ge=0, le=1)
    """Share of test questions worded with held-out forms."""
    split: dict[str, float] = Field(default_factory=lambda: {"train": 0.5, "val": 0.2, "test": 0.3})
    phrasings: list[Phrasing] = Field(default_factory=list)

    @field_validator("split")
    @classmethod
    def _sums_to_one(cls, value: dict[str, float]) -> dict[str, float]:
        if set(value) != {"train", "val", "test"} or abs(sum(value.values()) - 1) > 1e-9 or min(value.values()) < 0:
            raise ValueError("split needs train, val and test shares that are not negative and sum to 1")
        return value

    @field_validator("phrasings")
    @classmethod
    def _phrased_once(cls, value: list[Phrasing]) -> list[Phrasing]:
        keys = [(p.target, p.relation, p.anchor) for p in value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"phrasings given twice for (target, relation, anchor): {twice}")
        return value


class PlannerSpec(_Model):
    """Hints for planners: words a person uses for a type or a relation (see ``docs/planner.md``)."""

    type_words: dict[str, list[str]] = Field(default_factory=dict)
    """Nouns for the nodes of a type, in the singular; its own name need not be listed."""
    relation_words: dict[str, list[str]] = Field(default_factory=dict)
    """Words and phrases that speak of a relation; its own name and labels need not be listed."""
    negation_words: list[str] = Field(default_factory=lambda: ["not", "no", "without", "never", "neither", "nor"])
    negatable: list[str] = Field(default_factory=list)
    """Relations whose absence in the SKB means "no": a negation word makes a negated hop of them."""
    preferred: list[str] = Field(default_factory=list)
    """Relations assumed where a question's words fit several between two types."""
    opposites: list[tuple[str, str]] = Field(default_factory=list)
    """Pairs of relations that exclude each other: where words speak of one, the other never takes its place."""


Engine = Literal["rules", "openai", "vllm", "file"]
LANGUAGE_MODELS: tuple[Engine, ...] = ("openai", "vllm")
"""Engines that ask a language model."""


class LanguageModelSpec(_Model):
    """The language model of the engines ``openai`` (a server) and ``vllm`` (in the process)."""

    name: str
    revision: str | None = None
    """Of the model's files; for ``vllm`` only, a server knows its own."""
    base_url: str | None = None
    """Of the server, up to and with ``/v1``; None: ``$OPENAI_BASE_URL``."""
    api_key_env: str = Field(default="OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
    """Environment variable that holds the key; a server without keys needs none."""
    temperature: float = Field(default=0.0, ge=0)
    sample_temperature: float = Field(default=0.7, ge=0)
    """Of the further plans of self-consistency."""
    seed: int = 0
    max_tokens: int = Field(default=1024, ge=16)
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What a server calls that limit; newer models of OpenAI take the second only."""
    vllm: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of ``vllm.LLM``, such as ``tensor_parallel_size`` or ``max_model_len``."""
    structured: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the server is made to answer with a plan."""
    thinking: bool | None = None
    """Whether the chat template lets the model think first; None: as the template has it."""
    deadline_s: float = Field(default=120.0, gt=0)
    """Seconds for one question, all rounds and retries together."""
    concurrency: int = Field(default=8, ge=1)
    retries: int = Field(default=4, ge=0)
    """Further tries after a failure that may heal (429, 5xx, connection)."""


class PlansSpec(_Model):
    """How plans are made (see ``docs/planner.md`` for the rules, ``docs/language-models.md`` for the others)."""

    engine: Engine = "rules"
    """Whose plans the graph ranking executes."""
    compare: list[Engine] = Field(default_factory=list)
    """Further engines whose plans are made and judged beside those."""
    model: LanguageModelSpec | None = None
    file: str | None = None
    """Plans written by others, for the engine ``file``; ``$VAR`` and ``~`` are expanded."""
    guidance: Literal["generated", "amazon", "mag", "prime"] = "generated"
    """What the prompt tells of the dataset: made from its schema and training questions, or written for it."""
    examples: int = Field(default=8, ge=0)
    """Most examples in generated guidance."""
    repair: bool = True
    """One round that names the faults of a plan."""
    samples: int = Field(default=1, ge=1, le=32)
    """Plans per question, of which the one with the most common executed result is taken."""
    empty_result_repair: bool = False
    """One round for a plan that matched nothing."""
    negated_hops: bool = False
    """Whether the prompt offers negated hops."""
    retrieval_modes: bool = False
    """Whether the prompt offers retrieval modes."""
    splits: list[Literal["train", "val", "test"]] = Field(default_factory=list)
    """Splits whose questions a language model plans; empty means all."""
    max_fallback_rate: float = Field(default=0.5, ge=0, le=1)
    """Share of fallbacks among the questions asked above which a check fails."""

    @model_validator(mode="after")
    def _engines_configured(self) -> Self:
        engines = [self.engine, *self.compare]
        if len(set(engines)) != len(engines):
            raise ValueError(f"plans.compare: an engine is named twice: {engines}")
        if set(LANGUAGE_MODELS) & set(engines) and self.model is None:
            raise ValueError("plans.model: the engines openai and vllm need one")
        if "file" in engines and self.file is None:
            raise ValueError("plans.file: the engine file needs one")
        return self

    @property
    def engines(self) -> list[Engine]:
        """All engines, the one that is executed first."""
        return [self.engine, *self.compare]


class LinkingSpec(_Model):
    """Which nodes an anchor's text is linked to (see ``graph.linking``)."""

    name_k: int = Field(default=5, ge=1)
    name_tau: float = Field(default=0.95, ge=0, le=1)
    """Kept are nodes with at least this share of the best cosine."""
    doc_k: int = Field(default=10, ge=1)
    doc_tau: float = Field(default=0.90, ge=0, le=1)
    min_cosine: float = Field(default=0.75, ge=-1, le=1)
    """Below this no node is linked by name, however much better it is than the others."""
    doc_min_cosine: float = Field(default=0.45, ge=-1, le=1)
    """The same for documents, which are never as near to a short text as a name is."""
    vectors: Literal["float32", "float16"] = "float32"
    """How vectors are stored; float16 halves the files and changes cosines by up to 0.001."""
    name_fields: dict[str, list[str]] = Field(default_factory=dict)
    """Further fields, by node type, whose values are names (a gene's full name beside its symbol)."""


class FusionSpec(_Model):
    """Static reciprocal rank fusion of the graph ranking with a text branch (see ``fusion.rrf``)."""

    weight: float = Field(default=0.5, ge=0, le=1)
    """Weight of the graph ranking; the text branch has the rest."""
    k: int = Field(default=60, ge=0)
    text: Literal["bm25", "dense"] = "bm25"
    depth: int = Field(default=100, ge=1)
    """Rows kept per query in the fused ranking."""


class RetrievalSpec(_Model):
    """Depths of rankings."""

    depth: int = Field(default=1000, ge=1)
    """Rows kept per query in a first-stage ranking."""


class EvaluationSpec(_Model):
    """Bootstrap settings of the metric table."""

    bootstrap_samples: int = Field(default=2000, ge=100)
    seed: int = 20


class DatasetSpec(_Model):
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
    fusion: FusionSpec = FusionSpec()
    evaluation: EvaluationSpec = EvaluationSpec()

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
    def _document_format_fits(self) -> Self:
        documents = self.documents
        if documents.format == "labelled":
            return self
        faults = format_faults(
            documents.format, self.node_types, [r.name for r in self.relations] if documents.relations else None
        )
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

    def section(self, *names: str) -> dict[str, Any]:
        """The named top-level sections as plain JSON values: what a step declares to depend on.

        ``documents`` also holds ``stark_compat`` where it changes their text.
        """
        dumped = self.model_dump(mode="json")
        if self.documents.format != "labelled":
            dumped["documents"]["stark_compat"] = self.stark_compat
        return {name: dumped[name] for name in names}
