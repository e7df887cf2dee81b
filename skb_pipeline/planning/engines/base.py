"""What every planner engine takes (questions) and gives (a ``PlanRecord`` for each), and how planning may end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

from skb_pipeline.plans.plan import Dropped, PlanStatus, RiskLevel, ValidatedPlan


@dataclass(frozen=True)
class Question:
    """One question to plan; ``query_id`` never reaches a model, as ids of public sets have given answers away."""

    query_id: str
    text: str


class PlanCause(StrEnum):
    """How planning of one question ended. All but the first three leave the text-only fallback."""

    PLANNED = "planned"
    """At the first attempt."""
    REPAIRED = "repaired"
    """After a round that named the faults of the first attempt."""
    VOTED = "voted"
    """The plan whose executed result most of several plans share."""

    NO_TEXT = "no_text"
    SKIPPED = "skipped"
    """The planner asked for text search (``retrieval_mode: skip``)."""
    NO_MENTION = "no_mention"
    """Rules: the question names no node that the index knows."""
    NO_RELATION = "no_relation"
    """Rules: names were found, but none of them could be joined to what is asked for."""
    INVALID = "invalid"
    """A plan that does not fit the schema, also after the repair round."""

    TRUNCATED = "truncated"
    """The reply ran into the token limit."""
    INCOMPLETE = "incomplete"
    """The server ended the reply before it was complete: aborted, failed, or a reason we do not know."""
    OPEN_THINKING = "open_thinking"
    """The reply ended inside the model's thinking."""
    EMPTY_REPLY = "empty_reply"
    NOT_JSON = "not_json"
    """No single JSON object could be read from the reply."""
    CONTENT_FILTER = "content_filter"
    """The reply was withheld, or the model refused."""

    DEADLINE = "deadline"
    """The time for one question was up."""
    REFUSED = "refused"
    """The server answered with a status that trying again does not heal (4xx)."""
    SERVER_ERROR = "server_error"
    CONNECTION = "connection"
    TOO_LARGE = "too_large"
    """The answer was larger than any plan."""
    MALFORMED = "malformed"
    """The answer is no chat completion."""

    NOT_ASKED = "not_asked"
    """The question was outside the number or the splits to be planned."""
    NOT_IN_FILE = "not_in_file"


PASSING_CAUSES = frozenset({PlanCause.DEADLINE, PlanCause.SERVER_ERROR, PlanCause.CONNECTION})
"""Failures of the server or the network, not of the question; they may pass by themselves."""

UNANSWERED_CAUSES = PASSING_CAUSES | {PlanCause.REFUSED, PlanCause.MALFORMED}
"""How asking a server ends without a reply: the next run asks again. Its address, its key and how it was started are in
no recipe, so nothing else would notice that a refused key or a wrong address was put right. What vLLM refuses inside
the process it will always refuse."""


@dataclass(frozen=True, eq=False)
class PlanRecord:
    """One question's plan and how it came about.

    Attributes:
        query_id: of the question.
        engine: ``rules``, ``openai``, ``vllm`` or ``file``.
        cause: how planning ended.
        validated: what is executed; a fallback unless ``cause`` is one of the first three.
        model: the model as the server names it; None without one.
        prompt_hash: of the messages of the first attempt; None without a model.
        raw_output: the reply the plan was read from, or the last one, as it came.
        attempts: calls whose replies were looked at, those from the cache included.
        finish_reason: of that reply.
        prompt_tokens, completion_tokens: sum over all attempts, as the server counts; None where it does not say.
        reused: no call was made, all replies were there already.
        unanswered: some call, of whatever round, got no reply, or none that is whole, which a later one may get, so the
            plan may become another.
        mentions: names found in the question (rules).
        explanation: lines for people.
        milliseconds: wall time; for cached replies that of the original calls.
    """

    query_id: str
    engine: str
    cause: PlanCause
    validated: ValidatedPlan
    model: str | None = None
    prompt_hash: str | None = None
    raw_output: str | None = None
    attempts: int = 0
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reused: bool = False
    unanswered: bool = False
    mentions: tuple[str, ...] = ()
    explanation: tuple[str, ...] = ()
    milliseconds: float = 0.0

    @property
    def risk_level(self) -> RiskLevel:
        """Of the plan that is executed; ``no_trade`` for a fallback."""
        return RiskLevel.NO_TRADE if self.validated.plan is None else self.validated.plan.risk_level

    @classmethod
    def not_asked(cls, query_id: str, engine: str) -> Self:
        """The record of a question outside the number or the splits to be planned."""
        return cls(query_id, engine, PlanCause.NOT_ASKED, ValidatedPlan(status=PlanStatus.FALLBACK, plan=None))

    @classmethod
    def unreached(cls, query_id: str, engine: str, reason: str) -> Self:
        """The record of a question that could not be asked, as the server of the model cannot be used."""
        dropped = [Dropped(part="reply", reason=reason)]
        fallback = ValidatedPlan(status=PlanStatus.FALLBACK, plan=None, dropped=dropped)
        return cls(query_id, engine, PlanCause.CONNECTION, fallback, unanswered=True)


_RIGHTLY_NONE = (PlanCause.SKIPPED, PlanCause.NO_MENTION)


def fallback_rate(records: Iterable[PlanRecord]) -> float:
    """Share without a plan among the questions asked; 0 where none was. Text search that the planner asked for is no
    failure of it, nor is its silence on a question that names nothing."""
    asked = [record for record in records if record.cause is not PlanCause.NOT_ASKED]
    failed = [r for r in asked if r.validated.plan is None and r.cause not in _RIGHTLY_NONE]
    return len(failed) / len(asked) if asked else 0.0


class PlannerEngine(Protocol):
    """Makes plans. A question never makes it raise; what went wrong is the record's cause."""

    @property
    def name(self) -> str:
        """``rules``, ``openai``, ``vllm`` or ``file``."""

    def fingerprint(self) -> dict[str, Any]:
        """All that decides its plans besides the questions and the SKB, as plain JSON values."""

    def plan(self, questions: Sequence[Question]) -> list[PlanRecord]:
        """One record per question, in their order."""
