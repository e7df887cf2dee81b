"""Plans from a language model: asked in rounds over all questions, each reply read, validated and, once, mended.

The model gets the prompt and the text of a question, nothing else: no id, no answer, no node of the SKB (but for what
anchors were linked to, in the round for empty results). What it says has no effect but through a validated plan, so a
question that gives it orders can spoil that question's plan and nothing more.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from skb_pipeline.planning.engines.base import PASSING_CAUSES, UNANSWERED_CAUSES, PlanCause, PlanRecord, Question
from skb_pipeline.planning.engines.completions import LARGER, ChatModel, ChatRequest, Completion, Failed, Message
from skb_pipeline.planning.engines.probing import PlanProbe, ProbeResult
from skb_pipeline.planning.engines.replies import judge, no_plan, read_reply
from skb_pipeline.planning.frames import plan_json
from skb_pipeline.planning.settings import PlansSpec
from skb_pipeline.plans.plan import NOT_EXECUTED, Dropped, Plan, PlanStatus, ValidatedPlan
from skb_pipeline.plans.results import GraphOutcome
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.text.sinks import progress_bar

if TYPE_CHECKING:
    from skb_pipeline.planning.prompts.prompt_set import PromptSet

_ASKED_AGAIN = frozenset({PlanCause.TRUNCATED, PlanCause.INCOMPLETE})
"""Replies that were cut and may be whole with more room, or the second time. A filter reads the same text again."""

MENDABLE = frozenset({PlanCause.INVALID, PlanCause.NOT_JSON, PlanCause.EMPTY_REPLY})
"""Causes that a round which names the faults may heal. Not a reply that was cut, which has none, or did not end its
thinking. Not a filter, a refusal or a failing server, which do not read what we say."""

_REPORT_S = 10.0
_SHOWN = 300
"""Characters of a reason that an explanation repeats."""


@dataclass(frozen=True)
class Attempt:
    """One reply and what it is worth.

    Attributes:
        reply: as it came.
        cause: ``PLANNED`` where there is a plan to execute.
        validated: that plan, or a fallback whose faults say why there is none.
    """

    reply: Completion | Failed
    cause: PlanCause
    validated: ValidatedPlan

    @property
    def executable(self) -> bool:
        return self.validated.plan is not None

    @property
    def mendable(self) -> bool:
        """Whether a round that names the faults may help: also where parts of a plan had to be left out."""
        return self.cause in MENDABLE or self.validated.status is PlanStatus.DEGRADED

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(f"{fault.part}: {fault.reason}" for fault in self.validated.faults)

    @property
    def text(self) -> str | None:
        """What was read: the content or, where the server sent none, the field for thinking."""
        if isinstance(self.reply, Failed):
            return None
        return self.reply.text if self.reply.text and self.reply.text.strip() else self.reply.reasoning

    def __str__(self) -> str:
        kind = "degraded" if self.validated.status is PlanStatus.DEGRADED else self.cause.value
        return ": ".join([kind, *(["; ".join(_cut(fault) for fault in self.faults)] if self.faults else [])])


@dataclass
class _Case:
    """One question on its way; everything about it is kept until its record is made."""

    question: Question
    messages: tuple[Message, ...] = ()
    seen: list[Attempt] = field(default_factory=list)
    chosen: Attempt | None = None
    cause: PlanCause = PlanCause.NO_TEXT
    notes: list[str] = field(default_factory=list)
    milliseconds: float = 0.0
    spent_s: float = 0.0
    cut: bool = False

    def take(self, attempt: Attempt, cause: PlanCause | None = None) -> None:
        """Let an attempt decide the question's plan."""
        self.chosen = attempt
        self.cause = cause if cause is not None and attempt.executable else attempt.cause

    def book(self, attempts: Sequence[Attempt]) -> None:
        """Keep the attempts of a round. They ran side by side, so the longest one counts; a reply that was there
        already takes none of the question's time."""
        self.seen.extend(attempts)
        self.milliseconds += max(a.reply.milliseconds for a in attempts)
        self.spent_s += max(0.0 if _is_cached(a) else a.reply.milliseconds / 1000 for a in attempts)

    @property
    def plan(self) -> ValidatedPlan | None:
        return self.chosen.validated if self.chosen is not None and self.chosen.executable else None


@dataclass(frozen=True)
class _Call:
    case: _Case
    messages: tuple[Message, ...]
    sample: int = 0
    max_tokens: int | None = None


class LanguageModelPlanner:
    """Plans questions with a language model.

    Args:
        name: of the engine, ``openai`` or ``vllm``.
        chat: the model.
        prompts: of the dataset.
        schema: names and triples of the dataset.
        plans: options; its ``model`` gives the time for a question.
        probe: executes plans; needed for self-consistency (``samples`` above 1) and ``empty_result_repair``.
        report: takes a line on the progress every ten seconds and at the end of each round.

    Raises:
        ValueError: an option needs a probe and there is none, or ``plans.model`` is missing.
    """

    def __init__(
        self,
        name: str,
        chat: ChatModel,
        prompts: PromptSet,
        schema: GraphSchema,
        plans: PlansSpec,
        probe: PlanProbe | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        if plans.model is None:
            raise ValueError("plans.model: a language model planner needs it for the time of a question")
        if probe is None and plans.samples > 1:
            raise ValueError("plans.samples: a vote over executed results needs a probe that executes plans")
        if probe is None and plans.empty_result_repair:
            raise ValueError("plans.empty_result_repair needs a probe that executes plans")
        self.name = name
        self._chat, self._prompts, self._schema, self._plans = chat, prompts, schema, plans
        self._probe, self._report = probe, report
        self._deadline_s, self._max_tokens = plans.model.deadline_s, plans.model.max_tokens
        self._unanswered = PASSING_CAUSES if name == "vllm" else UNANSWERED_CAUSES
        self._json_schema = prompts.json_schema()

    def fingerprint(self) -> dict[str, Any]:
        """Model, prompts and options, and the probe where its results matter. Not the time for a question: a plan that
        failed for lack of it is asked for again."""
        options = {"repair", "samples", "empty_result_repair", "negated_hops", "retrieval_modes"}
        probes = self._probe is not None and (self._plans.samples > 1 or self._plans.empty_result_repair)
        return {
            "engine": self.name,
            "model": self._chat.settings(),
            "prompts": self._prompts.version,
            **self._plans.model_dump(mode="json", include=options),
            "probe": self._probe.fingerprint() if probes and self._probe is not None else None,
        }

    def plan(self, questions: Sequence[Question]) -> list[PlanRecord]:
        """One record per question, in their order.

        All questions go through a round together: first the plans (as many as ``samples``), then a repair for what has
        faults that it may heal, then the vote, then another plan for those that matched nothing. A repaired plan
        replaces one with dropped parts only if nothing is dropped from it. In each round, a reply that was cut is asked
        for once more at once, with a larger limit.
        """
        cases = [_Case(question) for question in questions]
        asked = [case for case in cases if case.question.text.strip()]
        results = _Results(self._probe)
        self._first_round(asked)
        if self._plans.samples > 1:
            self._vote(asked, results)
        if self._plans.repair:
            self._repair_round([case for case in asked if self._wants_repair(case)])
        if self._plans.empty_result_repair:
            self._empty_result_round([case for case in asked if case.plan is not None], results)
        return [self._record(case) for case in cases]

    def _first_round(self, cases: Sequence[_Case]) -> None:
        calls: list[_Call] = []
        for case in cases:
            case.messages = self._prompts.messages(case.question.text)
            calls.extend(_Call(case, case.messages, sample) for sample in range(self._plans.samples))
        for case, attempts in self._ask(calls, "plans"):
            case.take(attempts[0])

    def _vote(self, cases: Sequence[_Case], results: _Results) -> None:
        """Take the plan whose result most plans share; of equals the earliest.

        Plans without an answer count only where no plan has one: unlike plans all come to nothing alike, so that they
        share it is no agreement.
        """
        ballots = [(case, [a for a in case.seen if a.executable]) for case in cases]
        results.fetch(a.validated for _, attempts in ballots for a in attempts)
        for case, attempts in ballots:
            found = [results[a.validated] for a in attempts]
            if any(_has_answers(result) for result in found):
                attempts = [a for a, result in zip(attempts, found, strict=True) if _has_answers(result)]
            if not attempts:
                continue
            keys = [results.key(a.validated) for a in attempts]
            best, votes = Counter(keys).most_common(1)[0]
            case.take(attempts[keys.index(best)], PlanCause.VOTED)
            case.notes.append(f"{votes} of {self._plans.samples} plans have this result")
            case.notes.extend(f"plan {i}: {a}" for i, a in enumerate(case.seen, start=1) if not a.executable)

    def _wants_repair(self, case: _Case) -> bool:
        if case.chosen is None or case.cause is PlanCause.VOTED:
            return False
        return case.chosen.mendable

    def _repair_round(self, cases: Sequence[_Case]) -> None:
        calls = []
        for case in cases:
            first = _chosen(case)
            case.notes.append(f"first plan: {first}")
            calls.append(_Call(case, self._prompts.repair(case.question.text, first.text, first.faults)))
        for case, (second,) in self._ask(calls, "repairs"):
            if second.validated.status is PlanStatus.VALID or not _chosen(case).executable:
                case.take(second, PlanCause.REPAIRED)
            else:
                case.notes.append(f"kept, as the repair is no better: {second}")

    def _empty_result_round(self, cases: Sequence[_Case], results: _Results) -> None:
        results.fetch(_chosen(case).validated for case in cases)
        calls = []
        for case in cases:
            validated = _chosen(case).validated
            found = results[validated]
            if found.outcome is GraphOutcome.EMPTY and validated.plan is not None:
                messages = self._prompts.empty_result(case.question.text, validated.plan, found.links)
                calls.append(_Call(case, messages))
        answered = self._ask(calls, "empty results")
        results.fetch(attempt.validated for _, (attempt,) in answered if attempt.executable)
        for case, (attempt,) in answered:
            if attempt.executable and _has_answers(results[attempt.validated]):
                case.notes.append("the plan before it matched nothing")
                case.take(attempt, PlanCause.REPAIRED)
            else:
                nothing = "matches nothing either" if attempt.executable else str(attempt)
                case.notes.append(f"matched nothing; kept, as the plan after it is no better: {nothing}")

    def _ask(self, calls: Sequence[_Call], what: str) -> list[tuple[_Case, list[Attempt]]]:
        """Have all calls of a round answered, and once more those whose reply was cut; per case its attempts in the
        order of ``calls``."""
        found = self._send(calls, what)
        cut = [i for i, attempt in enumerate(found) if attempt.cause in _ASKED_AGAIN]
        again = [replace(calls[i], max_tokens=LARGER * self._max_tokens) for i in cut]
        for i, second in zip(cut, self._send(again, f"{what}, once more with {LARGER} times the tokens"), strict=True):
            if isinstance(second.reply, Failed):
                calls[i].case.notes.append(f"{found[i]}; asked once more: {second}")
            else:
                found[i] = second
        rounds: dict[int, tuple[_Case, list[Attempt]]] = {}
        for call, attempt in zip(calls, found, strict=True):
            rounds.setdefault(id(call.case), (call.case, []))[1].append(attempt)
            call.case.cut |= isinstance(attempt.reply, Completion) and attempt.reply.cut_by is not None
        return list(rounds.values())

    def _send(self, calls: Sequence[_Call], what: str) -> list[Attempt]:
        """Have calls answered: an attempt for each, in their order."""
        if not calls:
            return []
        late = {i for i, call in enumerate(calls) if call.case.spent_s >= self._deadline_s}
        sent = [i for i in range(len(calls)) if i not in late]
        requests = [
            ChatRequest(call.messages, call.sample, self._deadline_s - call.case.spent_s, call.max_tokens)
            for call in (calls[i] for i in sent)
        ]
        found = {i: _failed(Failed(PlanCause.DEADLINE, "no time was left for another call")) for i in late}
        progress = _Progress(f"{self.name}: {what}", len(requests), self._report)
        replies = self._chat.complete(requests, self._json_schema) if requests else iter(())
        try:
            for place, reply in replies:
                found[sent[place]] = self._attempt(reply)
                progress.add(found[sent[place]])
        finally:
            progress.close()
            if isinstance(replies, Generator):
                replies.close()  # so that an interrupt also ends calls on their way
        if len(found) != len(calls):
            raise RuntimeError(f"the chat model gave {len(found)} replies to {len(calls)} requests")
        booked: dict[int, tuple[_Case, list[Attempt]]] = {}
        for i, call in enumerate(calls):
            booked.setdefault(id(call.case), (call.case, []))[1].append(found[i])
        for case, attempts in booked.values():
            case.book(attempts)
        return [found[i] for i in range(len(calls))]

    def _attempt(self, reply: Completion | Failed) -> Attempt:
        if isinstance(reply, Failed):
            return _failed(reply)
        read = read_reply(reply)
        cause, validated = judge(read, self._schema)
        # Skipping is always taken, as it asks for nothing.
        if read.content is not None and cause is not PlanCause.SKIPPED:
            refused = self._not_taken(read.content)
            if refused:
                return Attempt(reply, PlanCause.INVALID, _with_faults(read.content, [*validated.faults, *refused]))
        return Attempt(reply, cause, validated)

    def _not_taken(self, content: Mapping[str, Any]) -> list[Dropped]:
        """Parts of a well-formed plan that use what is switched off."""
        try:
            plan = Plan.model_validate(content)
        except ValidationError:
            return []
        found = []
        if plan.retrieval_mode is not None and not self._plans.retrieval_modes:
            found.append(Dropped(part="retrieval_mode", reason="this planner does not take retrieval modes"))
        if not self._plans.negated_hops:
            reason = "this planner does not take negated hops"
            found.extend(
                Dropped(part=f"hops[{i}].negated", reason=reason) for i, h in enumerate(plan.hops) if h.negated
            )
        return found

    def _record(self, case: _Case) -> PlanRecord:
        replies = [a.reply for a in case.seen if isinstance(a.reply, Completion)]
        told = _last_reply(case)
        return PlanRecord(
            query_id=case.question.query_id,
            engine=self.name,
            cause=case.cause,
            validated=case.chosen.validated if case.chosen is not None else no_plan("the question has no text"),
            model=told.reply.model if told is not None and isinstance(told.reply, Completion) else None,
            prompt_hash=_prompt_hash(case.messages) if case.messages else None,
            raw_output=told.text if told is not None else None,
            attempts=len(replies),
            finish_reason=told.reply.finish_reason if told is not None and isinstance(told.reply, Completion) else None,
            prompt_tokens=_total(reply.prompt_tokens for reply in replies),
            completion_tokens=_total(reply.completion_tokens for reply in replies),
            reused=bool(case.seen) and all(_is_cached(attempt) for attempt in case.seen),
            unanswered=case.cut or any(isinstance(a.reply, Failed) and a.cause in self._unanswered for a in case.seen),
            explanation=tuple(case.notes),
            milliseconds=case.milliseconds,
        )


class _Results:
    """Results of plans that were executed, each distinct plan once."""

    def __init__(self, probe: PlanProbe | None) -> None:
        self._probe = probe
        self._found: dict[str | None, ProbeResult] = {}

    def fetch(self, plans: Iterable[ValidatedPlan]) -> None:
        new = {plan_json(v.plan): v for v in plans if plan_json(v.plan) not in self._found}
        if new and self._probe is not None:
            self._found.update(zip(new, self._probe.execute(list(new.values())), strict=True))

    def __getitem__(self, validated: ValidatedPlan) -> ProbeResult:
        return self._found[plan_json(validated.plan)]

    def key(self, validated: ValidatedPlan) -> tuple[Any, ...]:
        """Equal for plans with the same result."""
        result = self[validated]
        return result.outcome, result.n_cand, result.answers


class _Progress:
    """A bar for people at a terminal and lines for a log."""

    def __init__(self, what: str, total: int, report: Callable[[str], None] | None) -> None:
        self._what, self._total, self._report = what, total, report
        self._causes: Counter[str] = Counter()
        self._told = time.monotonic()
        self._bar = progress_bar(what=what, unit=" calls", total=total)

    def add(self, attempt: Attempt) -> None:
        self._causes[attempt.cause.value] += 1
        self._bar.update()
        if time.monotonic() - self._told >= _REPORT_S:
            self._tell()

    def close(self) -> None:
        self._bar.close()
        if self._total:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        if self._report is not None:
            counts = ", ".join(f"{cause} {count}" for cause, count in self._causes.most_common())
            self._report(f"{self._what}: {self._causes.total()} of {self._total} calls ({counts})")


def _chosen(case: _Case) -> Attempt:
    assert case.chosen is not None
    return case.chosen


def _last_reply(case: _Case) -> Attempt | None:
    """The attempt whose reply is shown: the one that decided, or the last that had a reply."""
    if case.chosen is not None and isinstance(case.chosen.reply, Completion):
        return case.chosen
    return next((a for a in reversed(case.seen) if isinstance(a.reply, Completion)), None)


def _failed(failure: Failed) -> Attempt:
    return Attempt(failure, failure.cause, no_plan(failure.message))


def _is_cached(attempt: Attempt) -> bool:
    return isinstance(attempt.reply, Completion) and attempt.reply.cached


def _has_answers(result: ProbeResult) -> bool:
    return result.outcome is GraphOutcome.OK and result.n_cand > 0


def _with_faults(content: Mapping[str, Any], faults: Sequence[Dropped]) -> ValidatedPlan:
    """A fallback with these faults; the other anchors and hops are listed as not executed."""
    named = {fault.part.partition("]")[0] + "]" for fault in faults}
    parts = [f"{kind}[{i}]" for kind in ("anchors", "hops") for i in range(len(content.get(kind, ())))]
    rest = [Dropped(part=part, reason=NOT_EXECUTED) for part in parts if part not in named]
    return ValidatedPlan(status=PlanStatus.FALLBACK, plan=None, dropped=[*faults, *rest])


def _prompt_hash(messages: Sequence[Message]) -> str:
    """sha256 (hex) of a conversation; broken surrogate pairs in a question do no harm."""
    text = json.dumps([[message.role, message.content] for message in messages])
    return hashlib.sha256(text.encode()).hexdigest()


def _total(counts: Iterable[int | None]) -> int | None:
    """The sum, or None where a part is not known."""
    known = list(counts)
    return sum(count for count in known if count is not None) if known and None not in known else None


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
