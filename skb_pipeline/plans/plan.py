"""The plan: anchors, hops and a target, as one JSON object per question (GRASP, Stage 1).

Our extensions are ``negated``, ``direction`` and ``optional`` on a hop, ``any_of`` on an anchor, and ``where``. Meaning
of a plan: ``docs/plans.md``.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

TARGET = "T"
"""The variable whose bindings are the answers."""


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is no text") from None
    return text


Text = Annotated[str, AfterValidator(_storable)]
"""Text that can be stored as UTF-8. JSON may hold half a surrogate pair, which cannot."""


def _comparable(value: Any) -> Any:
    """One fault for a value of any wrong kind; the union below would give one per member."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            _storable(item)
        elif isinstance(item, bool) or not isinstance(item, int | float) or not abs(item) <= sys.float_info.max:
            raise ValueError("a value is a text, a finite number or a list of these")
    return value


Value = Annotated[str | int | float | list[str | int | float], BeforeValidator(_comparable)]
"""What a field is compared with."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _left_out(dumped: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """What was dumped, without the keys that have their default."""
    return {key: value for key, value in dumped.items() if key not in defaults or value != defaults[key]}


class MatchMode(StrEnum):
    """What an anchor's text is compared with: names and aliases, or whole documents."""

    NAME = "name"
    DOC = "doc"


class RiskLevel(StrEnum):
    """How far the planner trusts its own plan, from not at all to fully."""

    NO_TRADE = "no_trade"
    WEAK = "weak"
    NORMAL = "normal"
    AGGRESSIVE = "aggressive"


class Anchor(_Model):
    """A variable bound to the nodes of type ``label`` that ``text``, or one of the texts ``any_of``, is linked to."""

    var: Text = Field(min_length=1)
    text: Text = Field(min_length=1)
    label: Text
    match_mode: MatchMode = MatchMode.NAME
    any_of: list[Annotated[Text, Field(min_length=1)]] = Field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """All its texts, without repetition."""
        return list(dict.fromkeys([self.text, *self.any_of]))

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _left_out(dump(self), any_of=[])


class Direction(StrEnum):
    """Which way the edge of a hop is stored: either, with ``from`` as its head, or with ``to_var`` as its head."""

    ANY = "any"
    OUT = "out"
    IN = "in"

    @property
    def opposite(self) -> Direction:
        """The same direction seen from the other end."""
        return {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}.get(self, self)


class Hop(_Model):
    """An edge of relation ``rel`` between two variables. ``optional``: it orders answers and removes none."""

    from_var: Text = Field(alias="from", min_length=1)
    rel: Text
    to_var: Text = Field(min_length=1)
    to_label: Text
    negated: bool = False
    direction: Direction = Direction.ANY
    optional: bool = False

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _left_out(dump(self), direction=Direction.ANY, optional=False)


class Target(_Model):
    """The answers: nodes of one of ``labels`` (empty: every candidate type), ranked by ``relevance_text``."""

    var: Literal["T"] = "T"
    labels: list[Text] = Field(default_factory=list)
    relevance_text: Text = ""


RetrievalMode = Literal["doc_search", "graph_filter_doc", "graph_expand", "graph_strict", "skip"]
"""How a question is to be answered (GRASP, Stage 1, Amazon): by documents alone, by a filter with the rest of the
question as text, from a node of the answers' own type, by a filter alone, or by text search outside the plan."""


Comparison = Literal["=", "!=", "<", "<=", ">", ">=", "in", "contains"]
"""``in`` takes a list, ``contains`` a text, the others a text or a number."""


class Condition(_Model):
    """The nodes of variable ``var`` have, in the parsed field ``field``, a value that compares so with ``value``."""

    var: Text = Field(min_length=1)
    field: Text = Field(min_length=1)
    op: Comparison
    value: Value


class Plan(_Model):
    """One question's plan. ``model_dump(mode="json", by_alias=True)`` gives the JSON form.

    ``retrieval_mode`` None asks for nothing but what anchors, hops and target say. ``any_of`` of an anchor,
    ``direction`` and ``optional`` of a hop and ``where`` are left out of the JSON form where they have their defaults,
    so that plans that do not use them are written as they were before there were such keys.
    """

    anchors: list[Anchor] = Field(default_factory=list)
    hops: list[Hop] = Field(default_factory=list)
    target: Target = Target()
    risk_level: RiskLevel = RiskLevel.NORMAL
    retrieval_mode: RetrievalMode | None = None
    where: list[Condition] = Field(default_factory=list)

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _left_out(dump(self), where=[])


class PlanStatus(StrEnum):
    """Outcome of validation."""

    VALID = "valid"
    DEGRADED = "degraded"
    FALLBACK = "fallback"


NOT_EXECUTED = "not executed: the plan is not usable as a whole"
"""Reason given for parts of a fallback that have no fault of their own."""


class Dropped(_Model):
    """A part of a plan that is not executed (``hops[1].rel``), and why."""

    part: str
    reason: str


class ValidatedPlan(_Model):
    """A plan an engine may execute (``plan`` is None for the text-only fallback), with what was dropped.

    ``search_types`` are the candidate types that a plan without use asked for: the fallback searches their documents,
    or all of them where there are none.
    """

    status: PlanStatus
    plan: Plan | None
    dropped: list[Dropped] = Field(default_factory=list)
    search_types: list[str] = Field(default_factory=list)

    @property
    def faults(self) -> list[Dropped]:
        """``dropped`` without the parts that only share the fate of a faulty plan: what a planner should mend."""
        return [part for part in self.dropped if part.reason != NOT_EXECUTED]
