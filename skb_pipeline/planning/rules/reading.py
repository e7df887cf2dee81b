"""What a question says, before anything is decided: its mentions, type words, relation words and negations.

Positions are those of words. The gaps around a mention in which words may speak of its relation are defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from skb_pipeline.linking.folding import FUNCTION_WORDS, Word, words
from skb_pipeline.linking.name_index import Mention
from skb_pipeline.planning.rules.clues import (
    INTRODUCING,
    PAUSES,
    asks_for,
    in_another_sense,
    is_quoted,
    left_open,
    spoken_of,
)
from skb_pipeline.planning.rules.vocabulary import Spot, Vocabulary

_COORDINATORS = frozenset({"and", "or", "but", "that", "which", "who", "while", "whose", "as", "well", "both", "also"})
_LISTING = frozenset({"and", "or", "both", "as", "well", "also", "either", "the", "a", "an", "with", "together"})
_PREAMBLE = 2
"""Content words before what is asked for, at most, where that is of no candidate type."""


@dataclass(frozen=True, eq=False)
class Place:
    """A mention with its word positions (both included) and the type words that stand beside it."""

    mention: Mention
    first: int
    last: int
    qualified: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reading:
    """One question taken apart.

    Attributes:
        question: the text.
        words: all of its words.
        places: mentions that are conditions, in order.
        guessed: mentions that may be no names (see ``worth``), in order: conditions at most guessed, which a plan may
            rank by but must not filter by.
        open: mentions of which the question says that they may hold or not (``with or without``).
        qualifiers: type words that only say what a mention is (``the gene KCNQ1``).
        nouns: all other type words, in order: what is asked for, and what lies between.
        relations: relation words outside mentions.
        negating: those of them that hold a negation word.
        negations: positions of negation words that are no part of a relation's words.
    """

    question: str
    words: tuple[Word, ...]
    places: tuple[Place, ...]
    guessed: tuple[Place, ...]
    open: tuple[Place, ...]
    qualifiers: tuple[Spot, ...]
    nouns: tuple[Spot, ...]
    relations: tuple[Spot, ...]
    negating: tuple[Spot, ...]
    negations: tuple[int, ...]

    @cached_property
    def _stops(self) -> list[tuple[int, int]]:
        """Mentions and nouns, which bound a gap, in order."""
        places = [*self.places, *self.guessed, *self.open]
        return sorted([(p.first, p.last) for p in places] + [(n.first, n.last) for n in self.nouns])

    def left_gap(self, first: int) -> tuple[int, int]:
        """Positions [low, high) from the mention (left out) or noun (taken in) before to a thing at ``first``.

        A noun is taken in since it may speak of the relation too: ``transporter genes``, ``treatments for``.
        """
        nouns = {noun.last: noun.first for noun in self.nouns}
        last = max((last for start, last in self._stops if start < first), default=-1)
        return nouns.get(last, last + 1), first

    def right_gap(self, last: int) -> tuple[int, int]:
        """Positions [low, high) behind a thing that ends at ``last``, up to the next clause, mention or noun."""
        high = min((start for start, _ in self._stops if start > last), default=len(self.words))
        for i in range(last + 1, high):
            if self.words[i].folded in _COORDINATORS or self._pause_before(i):
                return last + 1, i
        return last + 1, high

    def continues_list(self, place: Place) -> Place | None:
        """The mention before, when nothing but ``and``, ``or`` or a comma stands between (``A and B``)."""
        before = [p for p in self.places if p.last < place.first]
        if not before:
            return None
        ranges = [(q.first, q.last) for q in self.qualifiers] + [(p.first, p.last) for p in self.guessed]
        ignored = {i for first, last in ranges for i in range(first, last + 1)}
        between = [w.folded for i, w in self._between(before[-1].last, place.first) if i not in ignored]
        return before[-1] if _LISTING.issuperset(between) else None

    def listing(self, place: Place) -> tuple[int, int]:
        """First and last word of the list that a mention belongs to, of itself where it stands in none.

        What is said before or behind a list is said of all its members: ``targets of both A and B``.
        """
        first = last = place
        while (before := self.continues_list(first)) is not None:
            first = before
        for other in self.places:
            if other.first > last.last and self.continues_list(other) is last:
                last = other
        return first.first, last.last

    def asked_for(self, candidates: Collection[str]) -> Spot | None:
        """The noun for what is asked for: the first of a candidate type that the words right before ask for, else the
        first of a candidate type, or a noun of another type that stands before it, with next to nothing said before;
        None where there is none of these."""
        for noun in self.nouns:
            if noun.meanings.intersection(candidates) and asks_for(noun, self.question, self.words):
                return noun
        for noun in self.nouns:
            if noun.meanings.intersection(candidates):
                return noun
            if noun is self.nouns[0] and self._content_before(noun.first) <= _PREAMBLE:
                return noun
        return None

    def _content_before(self, place: int) -> int:
        """Content words before a word in its sentence, those of mentions included."""
        count = 0
        for i in range(place - 1, -1, -1):
            if any(c in ".?!" for c in self.question[self.words[i].end : self.words[i + 1].start]):
                break
            count += self.words[i].folded not in FUNCTION_WORDS
        return count

    def negated(self, gap: tuple[int, int]) -> bool:
        """Whether a free negation word stands in a gap."""
        low, high = gap
        return any(low <= i < high for i in self.negations)

    def said_negatively(self, gap: tuple[int, int]) -> frozenset[str]:
        """Relations that are spoken of in a gap in words that hold a negation (``must not``)."""
        low, high = gap
        return frozenset().union(*(s.meanings for s in self.negating if low <= s.last < high))

    def denied(self, place: Place) -> bool:
        """Whether the words before a mention say that something is not the case."""
        gap = self.left_gap(place.first)
        return self.negated(gap) or bool(self.said_negatively(gap))

    def nearest(self, relation: str, gap: tuple[int, int], to: int) -> tuple[int, Spot] | None:
        """The word for ``relation`` in a gap that is nearest to position ``to``, with its distance in words; None if
        there is none."""
        low, high = gap
        return min(
            (
                (min(abs(s.first - to), abs(s.last - to)), s)
                for s in self.relations
                if relation in s.meanings and low <= s.last < high
            ),
            key=lambda found: found[0],
            default=None,
        )

    def rest(self, used: Sequence[tuple[int, int]], keep: Sequence[int] = ()) -> str:
        """Content words that belong to none of the used word ranges, as written, joined by blanks."""
        gone = {i for first, last in used for i in range(first, last + 1)}
        left = [
            self.question[w.start : w.end]
            for i, w in enumerate(self.words)
            if i not in gone and (w.folded not in FUNCTION_WORDS or i in keep)
        ]
        return " ".join(left)

    def unused(self) -> list[str]:
        """Folded words that belong to no mention, type word or word for a relation."""
        spots = [*self.qualifiers, *self.nouns, *self.relations]
        used = [(p.first, p.last) for p in self.places] + [(spot.first, spot.last) for spot in spots]
        gone = {i for first, last in used for i in range(first, last + 1)}
        return [word.folded for i, word in enumerate(self.words) if i not in gone]

    def _between(self, last: int, first: int) -> list[tuple[int, Word]]:
        return [(i, self.words[i]) for i in range(last + 1, first)]

    def _pause_before(self, i: int) -> bool:
        return any(c in PAUSES for c in self.question[self.words[i - 1].end : self.words[i].start])


def read(
    question: str,
    mentions: Sequence[Mention],
    vocabulary: Vocabulary,
    common: Callable[[str, Mention], bool] = lambda question, mention: False,
) -> Reading:
    """Take a question apart around its mentions.

    Args:
        common: whether a mention is likelier a word like any other than a name. It is a condition all the same where
            the question says so: by quotes, a type word beside it, or a word for a relation right before it.
    """
    found = tuple(words(question))
    places = [place for mention in mentions if (place := _place(mention, found)) is not None]
    free = [not any(p.first <= i <= p.last for p in places) for i in range(len(found))]
    relations = vocabulary.relations.find(found, free)
    nouns = [
        n for n in vocabulary.type_spots(found, free) if not in_another_sense(n, question, found, free, vocabulary)
    ]
    covered = {i for spot in relations for i in range(spot.first, spot.last + 1)}
    negations = vocabulary.negation_spots(found)
    qualifiers: list[Spot] = []
    for n, place in enumerate(places):
        beside = [spot for spot in nouns if _qualifies(spot, place, found)]
        # The only noun of a question is what it asks for, even right before a name: "genes KCNQ1".
        beside = [
            spot
            for spot in beside
            if len(nouns) - len(qualifiers) > 1 or spot.first > place.last or spot.last + 1 < place.first
        ]
        qualifiers.extend(spot for spot in beside if spot not in qualifiers)
        names = frozenset().union(*(spot.meanings for spot in beside)) & place.mention.nodes.keys()
        places[n] = Place(place.mention, place.first, place.last, names)
    undecided = [p for p in places if left_open(p.first, found)]
    conditions = [p for p in places if p not in undecided]
    guessed = [
        p
        for p in conditions
        if not p.qualified
        and not is_quoted(question, p.mention.start, p.mention.end)
        and not spoken_of(p.first, found, relations)
        and common(question, p.mention)
    ]
    return Reading(
        question,
        found,
        tuple(p for p in conditions if p not in guessed),
        tuple(guessed),
        tuple(undecided),
        tuple(qualifiers),
        tuple(noun for noun in nouns if noun not in qualifiers),
        tuple(relations),
        tuple(spot for spot in relations if any(spot.first <= i <= spot.last for i in negations)),
        tuple(i for i in negations if free[i] and i not in covered),
    )


def _place(mention: Mention, found: Sequence[Word]) -> Place | None:
    inside = [i for i, word in enumerate(found) if mention.start <= word.start and word.end <= mention.end]
    return Place(mention, inside[0], inside[-1]) if inside else None


def _qualifies(spot: Spot, place: Place, found: Sequence[Word]) -> bool:
    """Whether a type word only says what the mention is: right behind it, or before it with function words between."""
    if not spot.meanings & place.mention.nodes.keys():
        return False
    if spot.first == place.last + 1:
        return True
    between = found[spot.last + 1 : place.first]
    if spot.last >= place.first or len(between) > 3:
        return False
    return all(word.folded in INTRODUCING for word in between)
