"""The plan: anchors, hops and a target, as one JSON object per question (GRASP, Stage 1).

Our one extension is ``negated`` on a hop. Meaning of a plan: ``docs/plans.md``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


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
    """A variable bound to the nodes of type ``label`` that ``text`` is linked to."""

    var: Text = Field(min_length=1)
    text: Text = Field(min_length=1)
    label: Text
    match_mode: MatchMode = MatchMode.NAME


class Hop(_Model):
    """An edge of relation ``rel`` between two variables, in either direction."""

    from_var: Text = Field(alias="from", min_length=1)
    rel: Text
    to_var: Text = Field(min_length=1)
    to_label: Text
    negated: bool = False


class Target(_Model):
    """The answers: nodes of one of ``labels`` (empty: every candidate type), ranked by ``relevance_text``."""

    var: Literal["T"] = "T"
    labels: list[Text] = Field(default_factory=list)
    relevance_text: Text = ""


RetrievalMode = Literal["doc_search", "graph_filter_doc", "graph_expand", "graph_strict", "skip"]
"""How a question is to be answered (GRASP, Stage 1, Amazon): by documents alone, by a filter with the rest of the
question as text, from a node of the answers' own type, by a filter alone, or by text search outside the plan."""


class Plan(_Model):
    """One question's plan. ``model_dump(mode="json", by_alias=True)`` gives the JSON form.

    ``retrieval_mode`` None asks for nothing but what anchors, hops and target say.
    """

    anchors: list[Anchor] = Field(default_factory=list)
    hops: list[Hop] = Field(default_factory=list)
    target: Target = Target()
    risk_level: RiskLevel = RiskLevel.NORMAL
    retrieval_mode: RetrievalMode | None = None


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
