"""The spec's sections ``planner`` and ``plans``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from skb_pipeline.section import Section


class RelationWords(Section):
    """Words for a relation that tell which way its edge runs, seen from the subject of the words."""

    words: str
    direction: Literal["out", "in", "any"]
    """``X requires Y`` has X as the head of the edge: ``out``; ``X is a dependency of Y`` has it as the tail: ``in``.
    ``any``: the words tell nothing, whatever the relation's name seems to say."""


class PlannerSpec(Section):
    """Hints for planners: words a person uses for a type or a relation (see ``docs/planner.md``)."""

    type_words: dict[str, list[str]] = Field(default_factory=dict)
    """Nouns for the nodes of a type, in the singular; its own name need not be listed."""
    relation_words: dict[str, list[str | RelationWords]] = Field(default_factory=dict)
    """Words and phrases that speak of a relation, some with their direction; its own name and labels need not be
    listed."""
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


_SECRET = re.compile(
    r"(?:api|access|auth|secret|private)[-_]?(?:key|token)|password|secret|bearer|^authorization$", re.IGNORECASE
)
_NOT_EXTRA = {"model", "messages", "stream", "n", "temperature", "seed", "max_tokens", "max_completion_tokens"}
"""Fields of a request that have settings of their own, or that would make of the answer another thing."""


def _secret_names(value: Any, name: str = "") -> Iterator[str]:
    """Names of fields that look like secrets and whose text is no environment variable."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secret_names(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _secret_names(inner, name)
    elif isinstance(value, str) and _SECRET.search(name) and not value.startswith("$"):
        yield name


class LanguageModelSpec(Section):
    """The language model of the engines ``openai`` (a server) and ``vllm`` (in the process)."""

    name: str
    revision: str | None = None
    """Of the model's files; for ``vllm`` only, a server knows its own."""
    base_url: str | None = None
    """Of the server, up to and with ``/v1``; None: ``$OPENAI_BASE_URL``."""
    api_key_env: str = Field(default="OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
    """Environment variable that holds the key; a server without keys needs none."""
    temperature: float | None = Field(default=0.0, ge=0)
    """null: the server is not told, for those that refuse it."""
    sample_temperature: float | None = Field(default=0.7, ge=0)
    """Of the further plans of self-consistency."""
    seed: int | None = 0
    """null: the server is not told."""
    max_tokens: int = Field(default=1024, ge=16)
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What a server calls that limit; newer models of OpenAI take the second only."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request, for a server; a text that is ``$NAME`` stands for that environment variable, which
    is where a secret belongs."""
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

    @field_validator("extra_body")
    @classmethod
    def _extra_body_can_be_sent(cls, value: dict[str, Any]) -> dict[str, Any]:
        ours = sorted(value.keys() & _NOT_EXTRA)
        if ours:
            raise ValueError(f"{', '.join(ours)} cannot be set here")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not JSON: {error}") from None
        for name in _secret_names(value):
            raise ValueError(f"{name!r} looks like a secret: write $NAME for the environment variable that holds it")
        return value


class PlansSpec(Section):
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
