"""The rules planner: plans from the schema, the names in the SKB and the hints of the spec; no model, no training.

How it reads a question is told in ``docs/planner.md``; the steps are in ``reading`` (what stands there), ``options``
(how a mention may be joined to the target) and here (which options together make the plan).
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import duckdb
import numpy as np

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.abbreviations import says_the_same
from skb_pipeline.linking.name_index import Match, Mention, NameIndex
from skb_pipeline.planning.rules.conditions import Stated, fields_of, stated_conditions
from skb_pipeline.planning.rules.directions import Senses
from skb_pipeline.planning.rules.fitness import TextFitness
from skb_pipeline.planning.rules.neighbours import Neighbours
from skb_pipeline.planning.rules.options import Option, OptionMaker
from skb_pipeline.planning.rules.reading import Place, Reading, read
from skb_pipeline.planning.rules.vocabulary import Spot, Vocabulary
from skb_pipeline.planning.rules.worth import NameWorth
from skb_pipeline.plans.plan import (
    TARGET,
    Anchor,
    Condition,
    Direction,
    Dropped,
    Hop,
    MatchMode,
    Plan,
    PlanStatus,
    RiskLevel,
    Target,
    ValidatedPlan,
)
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.plans.validation import MAX_ANCHORS, MAX_HOPS, validate

VERSION = "9"


_QUOTED = re.compile(r"[\"“][^\"”]*[\"”]")
_OPTIONS = 8
"""Options tried per mention."""
_COMBINATIONS = 4096
_CHECKS = 200
"""Combinations whose answers are looked up at most."""
_FIT = 4.0
"""Times the fit of the best candidate's text (see ``fitness``), on the scale of ``options``: a word that is rare in the
SKB (idf 7) in the name of a node that has four such words adds 14, about as much as three words for relations."""
_FEW = 500
_BROAD = -3.0
"""More candidates than that: the combination hardly tells one node from another."""
_SAME_AS_BEFORE = 5.0
"""Score of two mentions of a list that are joined in the same way: that ``both A and B`` have an answer in common tells
more than a word for another relation, by which they have none."""


class PlanOutcome(StrEnum):
    """How planning ended."""

    PLANNED = "planned"
    NO_TEXT = "no_text"
    NO_MENTION = "no_mention"
    """The question names no node that the index knows."""
    NO_RELATION = "no_relation"
    """Names were found, but none of them could be joined to what is asked for."""
    INVALID = "invalid"
    """The plan did not pass validation."""


@dataclass(frozen=True, eq=False)
class PlannedQuestion:
    """One question's plan and how it came about.

    Attributes:
        question: as given.
        outcome: see :class:`PlanOutcome`.
        validated: the validated plan; a fallback unless ``outcome`` is ``planned``.
        mentions: names found, in order; for given entities those that the index knows.
        explanation: one line per decision, and per part of the question that the plan leaves out.
        milliseconds: wall time.
    """

    question: str
    outcome: PlanOutcome
    validated: ValidatedPlan
    mentions: tuple[Mention, ...]
    explanation: tuple[str, ...]
    milliseconds: float

    @property
    def risk_level(self) -> RiskLevel:
        """Of the plan that is executed; ``no_trade`` for a fallback."""
        return RiskLevel.NO_TRADE if self.validated.plan is None else self.validated.plan.risk_level


class _Choice(NamedTuple):
    """Options that make a plan, with the sum of their scores and of what graph and texts add."""

    answered: bool
    score: float
    options: list[Option]

    @property
    def rank(self) -> tuple[bool, float]:
        """What choices for different target types are compared by."""
        return self.answered, self.score


class RulesPlanner:
    """Plans questions about one SKB. Not for use by several threads at once, as it holds a connection.

    Args:
        con: the SKB file; must stay open.
        spec: its dataset's spec.
        index: names; built from ``con`` when not given.
        check_answers: choose among plans only those that have an answer in the graph, if there is any. Without it the
            words alone decide.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        spec: DatasetSpec,
        *,
        index: NameIndex | None = None,
        check_answers: bool = True,
    ) -> None:
        self.schema = GraphSchema.from_spec(spec)
        self.index = index or NameIndex.build(con, spec.linking.name_fields)
        senses = Senses(spec)
        self.vocabulary = Vocabulary.from_spec(spec, senses.added)
        self._fields = {name: fields_of(spec.node_types[name]) for name in self.schema.candidate_types}
        self._maker = OptionMaker(self.schema, _edges_per_triple(con), spec.planner, senses)
        self._neighbours = Neighbours(con)
        self._fitness = TextFitness(con) if check_answers else None
        self._worth = NameWorth(con, self._fitness, self.index) if self._fitness is not None else None

    def plan(self, question: str, entities: Sequence[str] | None = None) -> PlannedQuestion:
        """Plan one question. Never raises for what a question says; a question without a plan has an outcome too.

        Args:
            question: any text.
            entities: names of the nodes that the question is about, given from outside instead of being looked for.
                One that stands in the question is read at its place, any other as if it stood at the end.
        """
        start = time.perf_counter()
        text, mentions = self._mentions(question, entities)
        reading = read(text, mentions, self.vocabulary, self._is_common if entities is None else _is_never_common)
        chosen, target, notes = self._choose(reading)
        notes.extend(dict.fromkeys(self._use_note(reading, place) for place in reading.guessed))
        notes.extend(f"no condition: {p.mention.text!r} may hold or not" for p in reading.open)
        stated = self._stated(reading, chosen, target)
        notes.extend(f"where {one.field} {one.op} {one.value}" for one in stated)
        if not chosen and stated:
            outcome = PlanOutcome.PLANNED
            validated = validate(self._document_search(reading, target, stated), self.schema)
        elif chosen:
            outcome = PlanOutcome.PLANNED
            validated = validate(_assemble(reading, chosen, target, stated, notes), self.schema)
            left_out = self._left_out(reading, target, chosen)
            notes.extend(f"left out: {place.mention.text!r} is {why}" for place, why in left_out)
        else:
            outcome = _failure(question, reading)
            reason = self._why_none(outcome, reading, target)
            types = [t for t in self.schema.candidate_types if target is not None and t in target.meanings]
            dropped = [Dropped(part="plan", reason=reason)]
            validated = ValidatedPlan(status=PlanStatus.FALLBACK, plan=None, dropped=dropped, search_types=types)
            notes.append(f"no plan, {outcome.value}: {reason}")
        if outcome is PlanOutcome.PLANNED and validated.plan is None:
            outcome = PlanOutcome.INVALID
            notes.extend(f"{fault.part}: {fault.reason}" for fault in validated.faults)
        milliseconds = (time.perf_counter() - start) * 1000
        return PlannedQuestion(question, outcome, validated, tuple(mentions), tuple(notes), milliseconds)

    def plan_all(
        self, questions: Iterable[str], entities: Iterable[Sequence[str] | None] | None = None
    ) -> list[PlannedQuestion]:
        """Plan many questions; one row each, in order. ``entities`` as in :meth:`plan`, for each question."""
        if entities is None:
            return [self.plan(question) for question in questions]
        return [self.plan(question, names) for question, names in zip(questions, entities, strict=True)]

    def _mentions(self, question: str, entities: Sequence[str] | None) -> tuple[str, list[Mention]]:
        """The text to read and its mentions."""
        if entities is None:
            return question, self.index.find(question, self.vocabulary)
        text, found = question, []
        taken: list[tuple[int, int]] = []
        for name in dict.fromkeys(entities):
            hit = self.index.lookup(name)
            if hit is None:
                continue
            place = text.casefold().find(name.casefold()) if len(text.casefold()) == len(text) else text.find(name)
            if place < 0 or any(a < place + len(name) and place < b for a, b in taken):
                text = f"{text} ; {name}"
                place = len(text) - len(name)
            taken.append((place, place + len(name)))
            found.append(Mention(place, place + len(name), name, hit.match, hit.nodes, hit.surfaces))
        return text, sorted(found, key=lambda m: m.start)

    def _choose(self, reading: Reading) -> tuple[list[Option], Spot | None, list[str]]:
        """The options that make the plan, one for each mention that is used, the target's noun, and notes."""
        target = reading.asked_for(self.schema.candidate_types)
        types = [t for t in self.schema.candidate_types if target is None or t in target.meanings]
        notes = [_target_note(reading, target, types)]
        groups = _same_things(reading)
        best = _Choice(False, -np.inf, [])
        fits = self._fitness.of_words(reading.unused()) if self._fitness is not None else None
        for target_type in types:
            choices = [self._usable(reading, places, target, target_type) for places in groups]
            found = self._best_combination(reading, choices, fits)
            if found is not None and found.rank > best.rank:
                best = found
        return best.options, target, notes

    def _stated(self, reading: Reading, chosen: Sequence[Option], target: Spot | None) -> list[Stated]:
        """Conditions on fields of the answers; none inside a name that the plan uses or inside quotes, and without such
        names only where one type of answer can be meant."""
        types = [t for t in self.schema.candidate_types if target is None or t in target.meanings]
        if not chosen and len(types) != 1:
            return []
        taken = [(o.place.mention.start, o.place.mention.end) for o in chosen]
        taken += [quoted.span() for quoted in _QUOTED.finditer(reading.question)]
        target_type = chosen[0].target if chosen else types[0]
        return [
            one
            for one in stated_conditions(reading.question, self._fields[target_type])
            if not any(start < one.end and one.start < end for start, end in taken)
            and self.schema.kind_of(target_type, one.field) is not None
        ]

    def _document_search(self, reading: Reading, target: Spot | None, stated: Sequence[Stated]) -> Plan:
        """A plan for a question that names nothing but states conditions."""
        (target_type,) = (t for t in self.schema.candidate_types if target is None or t in target.meanings)
        text = reading.rest([*_words_of(reading, stated)], []) or reading.question
        return Plan(
            anchors=[Anchor(var="q", text=text, label=target_type, match_mode=MatchMode.DOC)],
            target=Target(labels=[target_type]),
            risk_level=RiskLevel.WEAK if target is None else RiskLevel.NORMAL,
            retrieval_mode="doc_search",
            where=_conditions(stated),
        )

    def _is_common(self, question: str, mention: Mention) -> bool:
        return self._worth is not None and self._worth.common(question, mention) is not None

    def _use_note(self, reading: Reading, place: Place) -> str:
        why = self._worth.common(reading.question, place.mention) if self._worth is not None else None
        return f"for ranking only: {place.mention.text!r} {why}"

    def _left_out(self, reading: Reading, target: Spot | None, chosen: Sequence[Option]) -> list[tuple[Place, str]]:
        """Names that are no part of a plan, each with the reason."""
        groups = _same_things(reading)
        used = [group for group in groups if any(option.place in group for option in chosen)]
        found = []
        for number, group in enumerate(groups):
            if group not in used:
                many = "one more than a plan may hold"
                why = self._why_left_out(reading, group[0], target, chosen) if number < MAX_ANCHORS else many
                found.append((group[0], why))
        return found

    def _why_left_out(self, reading: Reading, place: Place, target: Spot | None, chosen: Sequence[Option]) -> str:
        target_type = chosen[0].target
        options = self._maker.options(reading, place, target, target_type)
        if not options:
            return (
                "denied, which no relation that fits can express"
                if reading.denied(place)
                else f"joined to {target_type} by no relation of the schema"
            )
        if self._fitness is None:
            return "joined by no relation that fits the others"
        options = [o for o in options if o.negated or len(self._neighbours.of_option(o))]
        if not options:
            return f"linked with no {target_type} by a relation that fits"
        answers = [self._neighbours.answers([*chosen, option]) for option in options]
        if all(found is not None and not len(found) for found in answers):
            return f"met by no {target_type} that meets the other conditions"
        return "joined only by a guess, which fits the words less than leaving it out"

    def _why_none(self, outcome: PlanOutcome, reading: Reading, target: Spot | None) -> str:
        """Why a question gets no plan."""
        if outcome is PlanOutcome.NO_TEXT:
            return "the question has no text"
        if outcome is PlanOutcome.NO_MENTION:
            common = dict.fromkeys(repr(place.mention.text) for place in reading.guessed)
            exception = f" (but for common words: {', '.join(common)})" if common else ""
            return f"the question names nothing that the SKB has{exception}"
        types = [t for t in self.schema.candidate_types if target is None or t in target.meanings]
        if not types:
            return f"the question asks for {' or '.join(sorted(target.meanings if target else ()))}, no candidate type"
        names = ", ".join(repr(p.mention.text) for p in reading.places)
        return f"{names}: linked with no {' or '.join(types)} by a relation that fits"

    def _usable(self, reading: Reading, places: Sequence[Place], target: Spot | None, target_type: str) -> list[Option]:
        """The best options of one thing, wherever the question mentions it."""
        made = [self._maker.options(reading, place, target, target_type) for place in places]
        options = sorted((o for group in made for o in group), key=lambda o: -o.score)
        if self._fitness is not None:
            options = [o for o in options if o.negated or len(self._neighbours.of_option(o))]
        return options[:_OPTIONS]

    def _best_combination(
        self, reading: Reading, choices: Sequence[Sequence[Option]], fits: np.ndarray | None
    ) -> _Choice | None:
        """The combination with the best score; those with an answer come first if that is checked."""
        ranked = _combinations(reading, choices)
        if not ranked:
            return None
        if fits is not None:
            answered = [
                _Choice(True, score + evidence, options)
                for score, options in ranked[:_CHECKS]
                if (evidence := self._evidence(options, fits)) is not None
            ]
            if answered:
                return max(answered, key=lambda choice: choice.score)
        return _Choice(False, *ranked[0])

    def _evidence(self, options: Sequence[Option], fits: np.ndarray) -> float | None:
        """What the graph and the texts add to the score of a combination; None where nothing answers it."""
        targets = self._neighbours.answers(options)
        if targets is None or self._fitness is None:
            return 0.0
        if not len(targets):
            return None
        return _FIT * float(self._fitness.pick(fits, targets).max()) + _BROAD * (len(targets) > _FEW)


def _same_things(reading: Reading) -> list[list[Place]]:
    """Mentions of the same nodes together, as when a name is repeated, and those that are said to be the same."""
    groups: list[list[Place]] = []
    for place in reading.places:
        for group in groups:
            nodes, other = group[0].mention.nodes, place.mention.nodes
            same = any(np.array_equal(nodes[label], other[label]) for label in nodes.keys() & other.keys())
            if same or _is_also_called(reading, group[-1], place):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def _is_also_called(reading: Reading, one: Place, other: Place) -> bool:
    """Whether the question gives a second name right behind a first: ``tumor necrosis factor (TNF)``."""
    first, second = one.mention, other.mention
    between, behind = reading.question[first.end : second.start], reading.question[second.end :]
    return first.end < second.start and says_the_same(between, behind, first.text, second.text)


def _combinations(reading: Reading, choices: Sequence[Sequence[Option]]) -> list[tuple[float, list[Option]]]:
    """Combinations with a positive hop, best first; a mention may also be left out, which adds no score."""
    most = _OPTIONS
    choices = list(choices[:MAX_ANCHORS])
    while np.prod([len(c[:most]) + 1.0 for c in choices]) > _COMBINATIONS and most > 1:
        most -= 1
    listed = {p.first: before for p in reading.places if (before := reading.continues_list(p)) is not None}
    found = []
    for combination in itertools.product(*([*c[:most], None] for c in choices)):
        options = [o for o in combination if o is not None]
        if sum(len(o.relations) for o in options) > MAX_HOPS:
            continue
        # A type between that nobody named is a last resort: it is assumed for all mentions or for none.
        if any(not o.negated for o in options) and len({o.via is not None and o.noun is None for o in options}) == 1:
            by_place = {o.place.first: o for o in options}
            score = sum(o.score for o in options)
            for first, before in listed.items():
                one, other = by_place.get(first), by_place.get(before.first)
                if one and other and _joined_alike(one, other):
                    score += _SAME_AS_BEFORE
            found.append((score, options))
    return sorted(found, key=lambda f: -f[0])


def _conditions(stated: Sequence[Stated]) -> list[Condition]:
    return [Condition(var=TARGET, field=one.field, op=one.op, value=one.value) for one in stated]


def _words_of(reading: Reading, stated: Sequence[Stated]) -> Iterator[tuple[int, int]]:
    """The words that state conditions, by position: first and last of each."""
    for one in stated:
        inside = [i for i, word in enumerate(reading.words) if word.start < one.end and one.start < word.end]
        if inside:
            yield inside[0], inside[-1]


def _assemble(
    reading: Reading, chosen: Sequence[Option], target: Spot | None, stated: Sequence[Stated], notes: list[str]
) -> Plan:
    """The plan of the chosen options; notes gain a line per decision and per part left out."""
    anchors, hops = [], []
    target_type = chosen[0].target
    between: dict[tuple[int | None, str | None, str, Direction], str] = {}
    for i, option in enumerate(chosen):
        var = f"a{i}"
        anchors.append(Anchor(var=var, text=option.place.mention.surfaces[option.label], label=option.label))
        end = TARGET
        if option.via is not None:
            noun = option.noun if option.noun is not None else -1 - i
            key = (noun, option.via, option.relations[1], option.directions[1])
            fresh = key not in between
            end = between.setdefault(key, f"m{len(between)}")
            if fresh:
                hops.append(_hop(end, option.relations[1], TARGET, target_type, option.directions[1]))
        label = option.via or target_type
        hops.append(_hop(var, option.relations[0], end, label, option.directions[0], negated=option.negated))
        notes.append(_option_note(option))
    taken = [group for group in _same_things(reading) if any(o.place in group for o in chosen)]
    left_out = [p for p in reading.places if not any(p in group for group in taken)]
    rest = _relevance_text(reading, [p for group in taken for p in group], stated)
    if rest:
        notes.append(f"for ranking only: {rest!r}")
    return Plan(
        anchors=anchors,
        hops=hops,
        target=Target(labels=[target_type], relevance_text=rest),
        risk_level=_risk(reading, chosen, target, left_out, rest),
        where=_conditions(stated),
    )


def _relevance_text(reading: Reading, taken: Sequence[Place], stated: Sequence[Stated]) -> str:
    """What nothing has used. A name that is denied is no part of it: it would draw up what is not wanted."""
    denied = [p for p in (*reading.places, *reading.guessed) if reading.denied(p)]
    gaps = [reading.left_gap(p.first) for p in denied]
    kept = [i for i in reading.negations if not any(low <= i < high for low, high in gaps)]
    spots = [*reading.qualifiers, *reading.nouns, *reading.relations]
    used = [(p.first, p.last) for p in [*taken, *denied]] + [(spot.first, spot.last) for spot in spots]
    return reading.rest([*used, *_words_of(reading, stated)], kept)


def _hop(start: str, relation: str, end: str, label: str, direction: Direction, *, negated: bool = False) -> Hop:
    ends = {"from": start, "rel": relation, "to_var": end, "to_label": label}
    return Hop.model_validate({**ends, "negated": negated, "direction": direction})


def _risk(
    reading: Reading, chosen: Sequence[Option], target: Spot | None, left_out: Sequence[Place], rest: str
) -> RiskLevel:
    """See ``docs/planner.md``: weak where something was guessed, aggressive where nothing was left open."""
    spoken: dict[int, Option] = {}
    guessed = False
    for option in chosen:
        before = reading.continues_list(option.place)
        model = spoken.get(before.first) if before is not None else None
        if option.spoken or (model is not None and _joined_alike(option, model)):
            spoken[option.place.first] = option
        else:
            guessed = True
    misspelt = any(o.place.mention.match > Match.PLURAL for o in chosen)
    if target is None or guessed or misspelt or left_out:
        return RiskLevel.WEAK
    ambiguous = any(sum(map(len, o.place.mention.nodes.values())) > 1 for o in chosen)
    return RiskLevel.NORMAL if ambiguous or rest else RiskLevel.AGGRESSIVE


def _joined_alike(one: Option, other: Option) -> bool:
    paths = [(o.relations, o.directions, o.via, o.noun, o.label) for o in (one, other)]
    return paths[0] == paths[1]


def _failure(question: str, reading: Reading) -> PlanOutcome:
    if not question.strip():
        return PlanOutcome.NO_TEXT
    return PlanOutcome.NO_RELATION if reading.places else PlanOutcome.NO_MENTION


def _is_never_common(question: str, mention: Mention) -> bool:
    """Names that are given from outside are meant."""
    return False


def _target_note(reading: Reading, target: Spot | None, types: Sequence[str]) -> str:
    if target is None:
        return "asked for: no type is named, so the best of all candidate types is taken"
    words = reading.words
    said = reading.question[words[target.first].start : words[target.last].end]
    return f"asked for: {' or '.join(types) or 'no candidate type'} ({said!r})"


def _option_note(option: Option) -> str:
    hops = zip(option.relations, option.directions, strict=True)
    edges = [relation if way is Direction.ANY else f"{relation}, {way}" for relation, way in hops]
    path = f" – {option.via}".join(f" –{edge}" for edge in edges)
    others = sorted(set(option.place.mention.nodes) - {option.label})
    return (
        f"{option.place.mention.text!r} ({option.place.mention.match.name.lower()}) is a {option.label}:"
        f"{path}– {option.target}"
        + (" must be absent" if option.negated else "")
        + ("" if option.spoken else ", relation guessed")
        + (f"; could also be: {', '.join(others)}" if others else "")
    )


def _edges_per_triple(con: duckdb.DuckDBPyConnection) -> dict[Triple, int]:
    rows = con.execute(
        "SELECT h.node_type, e.relation, t.node_type, count(*) FROM edges e "
        "JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail GROUP BY ALL"
    ).fetchall()
    return {Triple(head, relation, tail): count for head, relation, tail, count in rows}
