"""Which way the words of a question say that an edge runs: who is the subject of a word for a relation, and what that
makes of it.

A phrase has a *sense*: whether its subject is the head (``out``) or the tail (``in``) of the edge. Word order tells who
the subject is, and the passive turns the sense round. Where something is not certain the answer is ``any``: an edge of
the wrong direction is a wrong answer, one of either direction only a broader question.
"""

from __future__ import annotations

from collections.abc import Sequence

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.folding import FUNCTION_WORDS, fold, stem
from skb_pipeline.planning.rules.reading import Reading
from skb_pipeline.planning.rules.vocabulary import Spot, is_participle
from skb_pipeline.planning.settings import RelationWords
from skb_pipeline.plans.plan import Direction
from skb_pipeline.plans.schema import GraphSchema

_Key = tuple[str, ...]

# "with" is none of them: what is done with something is done by both.
_PREPOSITIONS = frozenset(
    fold("of by in on to for from at into onto under over upon through as against than before after").split()
)
_BE = frozenset(("is", "are", "was", "were", "be", "been", "being"))
_LEADING = _BE | {"has", "have", "a", "an", "the"}
_PRONOUNS = frozenset(("it", "they", "he", "she"))
_NAMED = frozenset(
    fold("by via through relation relations link links edge edges kind labelled labeled called named").split()
)
"""Before a word for a relation: it stands for the relation's name and not for what somebody does."""
_QUOTES = frozenset("\"'“”‘’«»`")
_NEAR = 4
"""Words before a verb among which a form of "to be" belongs to it."""


class Senses:
    """Senses of the phrases for relations whose edges run either way.

    They come, the surest first, from ``planner.relation_words`` with a direction; from headings of documents and the
    relation's name where these read as predicates (``cites``, ``kind of``, ``managed by``); from headings that are
    nouns, before "of" (``dependencies of``).
    """

    def __init__(self, spec: DatasetSpec) -> None:
        schema = GraphSchema.from_spec(spec)
        self._stated: dict[tuple[str, _Key], Direction] = {}
        self._read: dict[tuple[str, _Key], Direction] = {}
        self._nouns: dict[tuple[str, _Key], Direction] = {}
        self._participles: set[tuple[str, _Key]] = set()
        self._names: dict[str, _Key] = {}
        self.added: list[tuple[str, str]] = []
        """(phrase, relation): further words for relations, the active of names in the passive."""
        for relation in spec.relations:
            if schema.two_ways(*relation.triple):
                self._add_name(relation.name)
                self._add_headings(relation.name, relation.head_label, relation.tail_label)
        for name in self._names:
            for phrase in spec.planner.relation_words.get(name, ()):
                if isinstance(phrase, RelationWords):
                    self._put(self._stated, name, fold(phrase.words).split(), Direction(phrase.direction))

    def of(self, relation: str, words: Sequence[str]) -> Direction:
        """Sense of a phrase for a relation (folded words as they stand in the question); ``any`` if it has none."""
        key = tuple(map(stem, words))
        if (relation, key) in self._stated:
            return self._stated[relation, key]
        if (relation, key) in self._read:
            return self._read[relation, key]
        if len(key) > 1 and words[-1] == "by" and is_participle(words[-2]):
            return self.of(relation, words[:-1]).opposite
        name = self._names.get(relation, ())
        # "depend", "depends upon" are told by the name "depends on", but for the passive of either.
        if key and name[:1] == key[:1] and _PREPOSITIONS - {"by"} >= {*key[1:], *name[1:]}:
            return self._read.get((relation, name), Direction.ANY)
        return Direction.ANY

    def before_of(self, relation: str, words: Sequence[str]) -> Direction:
        """Sense of a noun in front of "of"."""
        return self._nouns.get((relation, tuple(map(stem, words))), Direction.ANY)

    def is_participle(self, relation: str, words: Sequence[str]) -> bool:
        """Whether the words hold a participle of a phrase that is not one by itself (``cited`` of ``cites``, but not
        ``located in``)."""
        if (relation, tuple(map(stem, words))) in self._participles or words[-1] == "by":
            return False
        return any(map(is_participle, words))

    def _add_name(self, name: str) -> None:
        words = fold(name).split()
        self._names.setdefault(name, tuple(map(stem, words)))
        is_verb = len(words) == 1 and words[0].endswith("s") and not words[0].endswith("ss")
        if not words or not (is_verb or words[-1] in _PREPOSITIONS or words[0] in _LEADING):
            return
        self._put(self._read, name, words, Direction.OUT)
        bare = [word for i, word in enumerate(words) if word not in _LEADING or i == len(words) - 1]
        if bare and bare != words:
            self._put(self._read, name, bare, Direction.OUT)
            self.added.append((" ".join(bare), name))
        if len(bare) > 1 and bare[-1] == "by" and is_participle(bare[-2]):
            key = name, tuple(map(stem, bare[:-1]))
            self._read[key] = Direction.IN
            self.added.append((" ".join(bare[:-1]), name))

    def _add_headings(self, name: str, head_label: str | None, tail_label: str | None) -> None:
        own = fold(name).split()
        ends = [(fold(head_label or "").split(), Direction.OUT), (fold(tail_label or "").split(), Direction.IN)]
        if ends[0][0] == ends[1][0]:
            if ends[0][0]:
                self._put(self._read, name, ends[0][0], Direction.ANY)
            return
        for words, direction in ends:
            if not words:
                continue
            if words[-1] in _PREPOSITIONS or (len(words) == 1 and words[0] in own and words[0].endswith("s")):
                # What stands under the heading is the object: "cites: X" in the head's document.
                self._put(self._read, name, words, direction)
            elif words[-1] != "with":
                # What stands under it is called so: "dependencies: X" in the head's document.
                self._put(self._nouns, name, words, direction.opposite)

    def _put(
        self, senses: dict[tuple[str, _Key], Direction], name: str, words: Sequence[str], direction: Direction
    ) -> None:
        key = name, tuple(map(stem, words))
        if senses.setdefault(key, direction) is not direction:
            senses[key] = Direction.ANY
        if any(map(is_participle, words)):
            self._participles.add(key)


def direction_in(
    reading: Reading, senses: Senses, relation: str, spot: Spot, first: int, last: int, towards: Spot | None
) -> Direction:
    """Direction of the edge between a thing and another, as seen from the thing.

    Args:
        spot: the word for the relation.
        first, last: words of the thing: a mention, its list, or a noun.
        towards: the noun of the other; None where the question has none.
    """
    said = [word.folded for word in reading.words[spot.first : spot.last + 1]]
    following = _function_words_from(reading, spot.last + 1)
    sense = senses.of(relation, said)
    if _only_named(reading, spot):
        return Direction.ANY
    if spot.last < first:
        if sense is Direction.ANY:
            return senses.before_of(relation, said).opposite if following[:1] == ["of"] else Direction.ANY
        if senses.is_participle(relation, said):
            if "by" in following:
                sense = sense.opposite
            elif _is_form_of_be_before(reading, spot.first):
                return Direction.ANY  # "that are cited in X": who cites is not said
        return sense.opposite  # the other is the subject: "packages depending on X"
    if spot.first <= last or sense is Direction.ANY:
        return Direction.ANY
    if towards is not None and last < towards.first and towards.last < spot.first:
        between = {word.folded for word in reading.words[towards.last + 1 : spot.first]}
        if between & _PRONOUNS:  # "X: which packages does it depend on"
            return _as_subject(reading, senses, relation, spot, said, sense, last)
        if senses.is_participle(relation, said) and ("by" in following or between & _BE):
            sense = sense.opposite
        return sense.opposite  # "X: which packages depend on it"
    return _as_subject(reading, senses, relation, spot, said, sense, last, first)


def _as_subject(
    reading: Reading,
    senses: Senses,
    relation: str,
    spot: Spot,
    said: Sequence[str],
    sense: Direction,
    last: int,
    first: int | None = None,
) -> Direction:
    """The same for a thing in front of the word: ``packages that X depends on``, ``X depends on which packages``."""
    between = [word.folded for word in reading.words[last + 1 : spot.first]]
    be = bool(_BE & {*between}) or (first is not None and _is_form_of_be_before(reading, first, 2))
    possessive = reading.question[reading.words[last].end :][:2] in ("'s", "’s")
    if possessive or (not be and any(word.endswith("ing") for word in said)):
        return Direction.ANY  # "X's citing papers", "with X depending on Y": X does nothing
    if senses.is_participle(relation, said):
        if be:
            return sense.opposite
        if "by" in _function_words_from(reading, spot.last + 1):
            return Direction.ANY  # "papers of X cited by Y"
    return sense


def _function_words_from(reading: Reading, place: int) -> list[str]:
    """Function words from a place on, up to the first other word."""
    found = []
    for word in reading.words[place:]:
        if word.folded not in FUNCTION_WORDS:
            break
        found.append(word.folded)
    return found


def _is_form_of_be_before(reading: Reading, place: int, near: int = _NEAR) -> bool:
    return any(word.folded in _BE for word in reading.words[max(0, place - near) : place])


def _only_named(reading: Reading, spot: Spot) -> bool:
    """Whether a word is the relation's name and says nothing of subject and object: ``linked by "depends" with X``."""
    if spot.first and reading.words[spot.first - 1].folded in _NAMED:
        return True
    before = reading.question[: reading.words[spot.first].start][-1:]
    behind = reading.question[reading.words[spot.last].end :][:1]
    return before in _QUOTES and behind in _QUOTES and bool(before)
