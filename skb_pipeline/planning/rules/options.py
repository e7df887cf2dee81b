"""The ways in which a mention may be joined to what is asked for, each with a score of how well the words fit.

An option is one or two hops from the mention to the target T. Scores only order options; their scale is set here and
means nothing outside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skb_pipeline.planning.rules.directions import Senses, direction_in
from skb_pipeline.planning.rules.reading import Place, Reading
from skb_pipeline.planning.rules.vocabulary import Spot
from skb_pipeline.planning.settings import PlannerSpec
from skb_pipeline.plans.plan import Direction
from skb_pipeline.plans.schema import GraphSchema, Triple

_BEFORE, _BEHIND = 4.0, 2.5
"""A relation word before or behind what it joins."""
_FADING = 0.15
"""Loss per word of distance, at most half."""
_MODIFIER = -2.0
"""The mention only modifies a noun of another type right behind it: ``the serotonin receptor``."""
_NEXT_NOUN = 1.5
"""The mention hangs on the noun before it."""
_QUALIFIED = 3.0
"""A type word beside the mention names the label."""
_USED = 2.5
"""A mention is used at all: better another relation than a condition left out."""
_PREFERRED = 1.0
"""A relation that the spec prefers where words do not tell."""
_CUSTOMARY = 0.1
"""Times the share of edges between two types that belong to a relation."""
_UNSAID = -1.5
"""Words speak of another relation between the same types, or of none and the spec prefers an opposite."""
_MIRRORED = 1.0
"""Two things of one type share a third: both hops over the same relation."""
_CROSSED = -4.0
"""The same over two different relations."""
_UNNAMED = -4.0
"""A type between that the question does not name."""
_DETOUR = -3.0
"""The same where the mention could be joined directly."""
_NAMED_LATER = -1.5
"""A type between that is named behind the mention only."""
_SHARED = 1.0
"""That later noun is said to be the same: ``a common disease``."""
_SHARING = frozenset({"same", "common", "shared", "mutual", "similar"})


@dataclass(frozen=True, eq=False)
class Option:
    """Hops from a mention of type ``label`` to a target of type ``target``.

    Attributes:
        via: type between the two hops; None for one hop.
        noun: first word of the noun that names it; None where the question does not.
        relations: one per hop, from the mention on.
        directions: one per hop, seen from its end towards the mention; ``any`` where the words do not tell, or a
            direction would filter nothing.
        negated: the hop says that there is no such edge.
        spoken: every relation has a word in the question, or is the only one the schema allows.
        score: see the module docstring.
    """

    place: Place
    label: str
    target: str
    via: str | None
    noun: int | None
    relations: tuple[str, ...]
    directions: tuple[Direction, ...]
    negated: bool
    spoken: bool
    score: float


@dataclass(frozen=True)
class _Fit:
    """How well a relation fits between two types at one place of the question."""

    relation: str
    direction: Direction
    word: Spot | None
    score: float
    spoken: bool


class OptionMaker:
    """Options of mentions under one schema.

    Args:
        schema: the allowed triples.
        edges: edges per triple, as stored; missing means none.
        hints: of the spec.
        senses: which way the words for relations run.
    """

    def __init__(
        self,
        schema: GraphSchema,
        edges: Mapping[Triple, int],
        hints: PlannerSpec,
        senses: Senses,
    ) -> None:
        self._schema = schema
        self._senses = senses
        self._negatable = frozenset(hints.negatable)
        self._preferred = frozenset(hints.preferred)
        self._opposites: dict[str, set[str]] = defaultdict(set)
        for one, other in hints.opposites:
            self._opposites[one].add(other)
            self._opposites[other].add(one)
        self._between: dict[tuple[str, str], dict[str, int]] = {}
        for triple in schema.triples:
            for ends in {(triple.head, triple.tail), (triple.tail, triple.head)}:
                counts = self._between.setdefault(ends, {})
                counts[triple.relation] = counts.get(triple.relation, 0) + edges.get(triple, 0)

    def options(self, reading: Reading, place: Place, target: Spot | None, target_type: str) -> list[Option]:
        """All options of one mention, best first; a negation that no relation may carry leaves none."""
        negated = reading.negated(reading.left_gap(place.first))
        if target is not None and target.first > place.last:
            negated = negated or reading.negated((place.last + 1, target.first))
        before = _noun_before(reading, place)
        if before is not None and before != target and reading.negated(reading.left_gap(before.first)):
            return []
        others = {noun.first: noun.meanings for noun in reading.nouns if noun != target}
        found: list[Option] = []
        for label in place.mention.nodes:
            bonus = _USED + (_QUALIFIED if label in place.qualified else 0.0)
            if place.last + 1 in others and label not in others[place.last + 1]:
                bonus += _MODIFIER
            found.extend(self._direct(reading, place, target, label, target_type, bonus, negated))
            if not negated:
                found.extend(self._named(reading, place, target, label, target_type, bonus))
                found.extend(self._unnamed(reading, place, target, label, target_type, bonus))
        return sorted(found, key=lambda o: (-o.score, o.label, o.via or "", o.relations))

    def _direct(
        self,
        reading: Reading,
        place: Place,
        target: Spot | None,
        label: str,
        target_type: str,
        bonus: float,
        negated: bool,
    ) -> Iterator[Option]:
        near = _NEXT_NOUN if target is not None and _noun_before(reading, place) in (target, None) else 0.0
        for fit in self._fits(reading, label, target_type, *reading.listing(place), target):
            if not negated or fit.relation in self._negatable:
                score = fit.score + bonus + near
                hop = (fit.relation,), (fit.direction,)
                yield Option(place, label, target_type, None, None, *hop, negated, fit.spoken, score)

    def _named(
        self, reading: Reading, place: Place, target: Spot | None, label: str, target_type: str, bonus: float
    ) -> Iterator[Option]:
        before = _noun_before(reading, place)
        for noun in reading.nouns:
            if noun == target or reading.negated(reading.left_gap(noun.first)):
                continue
            shift = _NEXT_NOUN if noun == before else 0.0 if noun.first < place.first else _later(reading, noun)
            for via in sorted(noun.meanings):
                outer = self._fits(reading, via, target_type, noun.first, noun.last, target)
                for inner in self._fits(reading, label, via, *reading.listing(place), noun):
                    for fit in outer[:2]:
                        score = inner.score + fit.score / 2 + bonus + shift
                        score += _MIRRORED * (label == target_type and inner.relation == fit.relation)
                        relations = (inner.relation, fit.relation)
                        # A word behind the noun that speaks of the mention says nothing of the target.
                        outer_way = Direction.ANY if fit.word is inner.word else fit.direction
                        spoken = inner.spoken and fit.spoken
                        hops = relations, (inner.direction, outer_way)
                        yield Option(place, label, target_type, via, noun.first, *hops, False, spoken, score)

    def _unnamed(
        self, reading: Reading, place: Place, target: Spot | None, label: str, target_type: str, bonus: float
    ) -> Iterator[Option]:
        detour = _DETOUR if (label, target_type) in self._between else 0.0
        for via in self._schema.node_types:
            outer = self._fits(reading, via, target_type, *reading.listing(place), target)
            for inner in self._fits(reading, label, via, *reading.listing(place), target):
                for n, fit in enumerate(outer):
                    mirrored = label == target_type and inner.relation == fit.relation
                    if n > 1 and not mirrored:
                        continue
                    if mirrored and Direction.ANY not in (inner.direction, fit.direction):
                        continue  # the words say which way one edge runs, not that there are two
                    # One place of the question speaks of both hops, so the same words must not count twice.
                    words = max(inner.score, fit.score) + min(inner.score, fit.score) / 4
                    score = words + bonus + _UNNAMED + detour
                    score += _MIRRORED if mirrored else _CROSSED * (label == target_type)
                    # That place says which way one edge runs; of two it says nothing.
                    hops = (inner.relation, fit.relation), (Direction.ANY, Direction.ANY)
                    yield Option(place, label, target_type, via, None, *hops, False, False, score)

    def _fits(self, reading: Reading, one: str, other: str, first: int, last: int, towards: Spot | None) -> list[_Fit]:
        """Relations between two types, best first, for a thing at words ``first`` to ``last``."""
        counts = self._between.get((one, other), {})
        total = sum(counts.values()) or 1
        fits = []
        forced = reading.said_negatively(reading.left_gap(first))
        nearest = {relation: _best_word(reading, relation, first, last, towards) for relation in self._schema.relations}
        spoken = {relation: score for relation, (score, _) in nearest.items()}
        for relation, edges in counts.items():
            words, word = nearest[relation]
            if (forced and relation not in forced) or any(spoken[o] > words for o in self._opposites[relation]):
                continue
            score = words + _CUSTOMARY * edges / total + _PREFERRED * (relation in self._preferred)
            if words == 0 and (self._opposites[relation] & self._preferred or any(spoken[o] > 0 for o in counts)):
                score += _UNSAID
            way = Direction.ANY
            if word is not None and self._schema.two_ways(one, relation, other):
                way = direction_in(reading, self._senses, relation, word, first, last, towards)
            fits.append(_Fit(relation, way, word, score, words > 0 or len(counts) == 1))
        return sorted(fits, key=lambda fit: (-fit.score, fit.relation))


def _best_word(
    reading: Reading, relation: str, first: int, last: int, towards: Spot | None
) -> tuple[float, Spot | None]:
    """The best score of a word for the relation in the gaps around a thing, and that word."""
    gaps = [(_BEFORE, reading.left_gap(first), first), (_BEHIND, reading.right_gap(last), last)]
    if any(noun.first == first for noun in reading.nouns):
        gaps.append((_BEFORE, (first, last + 1), first))
    if towards is not None and towards.first > last:
        # What is asked for comes later: "X is treated by which drugs", "X: which diseases does it cause".
        gaps += [
            (_BEHIND, (last + 1, towards.first), last),
            (_BEHIND, reading.right_gap(towards.last), towards.last),
        ]
    best: tuple[float, Spot | None] = (0.0, None)
    for weight, gap, to in gaps:
        found = reading.nearest(relation, gap, to)
        if found is not None:
            distance, word = found
            score = weight - min(_FADING * (distance - 1), weight / 2)
            best = max(best, (score, word), key=lambda scored: scored[0])
    return best


def _noun_before(reading: Reading, place: Place) -> Spot | None:
    before = [noun for noun in reading.nouns if noun.last < place.first]
    return before[-1] if before else None


def _later(reading: Reading, noun: Spot) -> float:
    """What a noun behind the mention loses; less when it is said to be shared."""
    shared = noun.first > 0 and reading.words[noun.first - 1].folded in _SHARING
    return _NAMED_LATER + _SHARED * shared
