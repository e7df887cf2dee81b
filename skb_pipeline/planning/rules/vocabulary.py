"""The words a schema and its hints give for types, relations and negation, and where a question uses them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.folding import FUNCTION_WORDS, Word, fold, singular, stem

_IRREGULAR = frozenset(
    fold(
        "bought built caught chosen drawn driven fed found given held kept known led made run seen sent shown sold "
        "taken taught thrown understood won written"
    ).split()
)


class Spot(NamedTuple):
    """Words ``first`` to ``last`` (positions, both included) of a question, and what they may stand for."""

    first: int
    last: int
    meanings: frozenset[str]


class Phrases:
    """Phrases with their meanings, compared word by word in one form (``singular`` or ``stem``)."""

    def __init__(self, form: Callable[[str], str]) -> None:
        self._form = form
        self._meanings: dict[tuple[str, ...], set[str]] = defaultdict(set)
        self._longest = 0

    def add(self, phrase: str, meaning: str) -> None:
        """Give a phrase one more meaning; one without letters and digits is ignored."""
        key = self._key(fold(phrase).split())
        if key:
            self._meanings[key].add(meaning)
            self._longest = max(self._longest, len(key))

    def __contains__(self, phrase: object) -> bool:
        return isinstance(phrase, str) and self._key(fold(phrase).split()) in self._meanings

    def find(self, found: Sequence[Word], free: Sequence[bool]) -> list[Spot]:
        """Spots among the free words, left to right, at each place the longest phrase."""
        keys = self._key([word.folded for word in found])
        spots, i = [], 0
        while i < len(keys):
            step = 1
            for n in range(min(self._longest, len(keys) - i), 0, -1):
                meanings = self._meanings.get(keys[i : i + n])
                if meanings and all(free[i : i + n]):
                    spots.append(Spot(i, i + n - 1, frozenset(meanings)))
                    step = n
                    break
            i += step
        return spots

    def _key(self, folded: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._form(word) for word in folded)


@dataclass(frozen=True)
class Vocabulary:
    """Words for node types (singular forms), for relations (stems) and of negation (folded)."""

    types: Phrases
    relations: Phrases
    negations: frozenset[str]

    @classmethod
    def from_spec(cls, spec: DatasetSpec, more: Iterable[tuple[str, str]] = ()) -> Self:
        """Words of the schema (names, plurals, headings of documents) and of ``spec.planner``, and ``more`` phrases for
        relations, each with its relation.

        A heading that is itself a word for a type (``genes``) tells nothing of the relation and is left out.
        """
        types, relations = Phrases(singular), Phrases(stem)
        for name, node_type in spec.node_types.items():
            words = [name, *name.split("/"), node_type.plural or "", *spec.planner.type_words.get(name, ())]
            for word in words:
                types.add(word, name)
        for relation in spec.relations:
            for phrase in (relation.name, relation.head_label or "", relation.tail_label or ""):
                if phrase not in types and not FUNCTION_WORDS.issuperset(fold(phrase).split()):
                    relations.add(phrase, relation.name)
        for name, phrases in spec.planner.relation_words.items():
            for given in phrases:
                relations.add(given if isinstance(given, str) else given.words, name)
        for phrase, name in more:
            relations.add(phrase, name)
        return cls(types, relations, frozenset(fold(word) for word in spec.planner.negation_words))

    def __contains__(self, phrase: object) -> bool:
        """Whether a phrase means a type or a relation, so that it is no name."""
        return phrase in self.types or phrase in self.relations

    def type_spots(self, found: Sequence[Word], free: Sequence[bool]) -> list[Spot]:
        """Words for types; ``gene or protein``, two words for one type, is one spot."""
        merged: list[Spot] = []
        for spot in self.types.find(found, free):
            last = merged[-1] if merged else None
            if last and last.meanings == spot.meanings and _joined(found[last.last + 1 : spot.first]):
                merged[-1] = Spot(last.first, spot.last, spot.meanings)
            else:
                merged.append(spot)
        return merged

    def negation_spots(self, found: Sequence[Word]) -> list[int]:
        """Positions of negation words, but for those that deny nothing: ``not only``, ``with or without``."""
        folded = [word.folded for word in found]
        return [i for i, word in enumerate(folded) if word in self.negations and not _denies_nothing(folded, i)]


_NO_DENIAL = frozenset({"only", "just", "merely", "solely", "simply", "necessarily", "exclusively"})
"""Behind a negation word: it denies nothing (``not only X but also Y``)."""
_BOUNDS = frozenset({"more", "less", "fewer", "later", "earlier", "longer", "higher", "lower", "older", "younger"})
_OPEN_PAIRS = (("with", "without"), ("whether", "not"))


def _denies_nothing(folded: Sequence[str], i: int) -> bool:
    behind = folded[i + 1 : i + 3]
    if behind[:1] and behind[0] in _NO_DENIAL:
        return True
    if len(behind) == 2 and behind[0] in _BOUNDS and behind[1] == "than":
        return True  # "no more than"
    either = tuple(folded[max(0, i - 2) : i + 1])
    return any(either == (one, "or", other) for one, other in _OPEN_PAIRS) or tuple(folded[i : i + 3]) == (
        "without",
        "or",
        "with",
    )


def is_participle(folded: str) -> bool:
    """Whether a word may be a past participle."""
    return folded.endswith("ed") or folded in _IRREGULAR


def _joined(between: Sequence[Word]) -> bool:
    return not between or (len(between) == 1 and between[0].folded in ("or", "and"))
