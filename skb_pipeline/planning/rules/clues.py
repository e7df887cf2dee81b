"""What the words around a name or a type word tell of it: that it is meant, left open, or used in another sense."""

from __future__ import annotations

from collections.abc import Sequence

from skb_pipeline.linking.folding import FUNCTION_WORDS, Word, fold, singular
from skb_pipeline.planning.rules.vocabulary import Spot, Vocabulary, is_participle

PAUSES = ",;.:?!"
INTRODUCING = frozenset({"the", "a", "an", "such", "as", "like", "called", "named", "including", "both", "either"})
"""May stand between a word that speaks of a name and the name."""
_JOINING = INTRODUCING | {"to", "with", "for", "by", "in", "on", "of", "from"}
_QUOTES = frozenset("\"'“”‘’«»`")
_EITHER_WAY = (["with", "or", "without"], ["without", "or", "with"], ["whether", "or", "not"])
_ASKING = frozenset(
    fold(
        "which what whose any each every all list find name show give suggest recommend identify do does did can could "
        "may might will would should must"
    ).split()
)
"""Before a noun: it is what is asked for, or the subject of a verb."""
_ASKING_NEAR = 3


_WHICH = frozenset(fold("what which whats").split())
_REQUESTS = frozenset(fold("tell give show name list find want need recommend suggest identify provide bring").split())
_UP_TO_NOUN = frozenset(
    fold("s is are was a an the all any every each me us my other some full whole complete set of those these").split()
)
"""Between a word that asks and the noun it asks for."""
_BEFORE_RELATIVE = frozenset(fold("for in to with by of from on at through under over within about").split())


def asks_for(noun: Spot, question: str, found: Sequence[Word]) -> bool:
    """Whether the words right before a noun ask for it: ``what is a product``, ``give me all the products``, but not
    ``in which products``."""
    at = noun.first - 1
    while at >= 0 and found[at].folded in _UP_TO_NOUN and not _paused(question, found, at):
        at -= 1
    if at < 0 or _paused(question, found, at):
        return False
    if found[at].folded in _WHICH:
        return at == 0 or found[at - 1].folded not in _BEFORE_RELATIVE or _paused(question, found, at - 1)
    return found[at].folded in _REQUESTS


def _paused(question: str, found: Sequence[Word], at: int) -> bool:
    """Whether a pause stands behind a word."""
    return any(c in PAUSES for c in question[found[at].end : found[at + 1].start])


def is_quoted(question: str, start: int, end: int) -> bool:
    """Whether a piece of a question stands in quotes."""
    return start > 0 and question[start - 1] in _QUOTES and question[end : end + 1] in _QUOTES


def spoken_of(first: int, found: Sequence[Word], relations: Sequence[Spot]) -> bool:
    """Whether a content word for a relation stands right before the word ``first``: ``located in the membrane``."""
    return any(
        spot.last < first
        and all(word.folded in _JOINING for word in found[spot.last + 1 : first])
        and any(word.folded not in FUNCTION_WORDS for word in found[spot.first : spot.last + 1])
        for spot in relations
    )


def left_open(first: int, found: Sequence[Word]) -> bool:
    """Whether ``with or without`` stands right before the word ``first``."""
    before = [word.folded for word in found[:first]]
    while before and before[-1] in INTRODUCING:
        before.pop()
    return before[-3:] in _EITHER_WAY


def in_another_sense(
    noun: Spot, question: str, found: Sequence[Word], free: Sequence[bool], vocabulary: Vocabulary
) -> bool:
    """Whether a type word in the singular only makes part of another notion: ``a paper cut``, ``volume of traffic``.

    One that is asked for (``which paper``), and one before a name, a verb's form or a word of the vocabulary, is not.

    Args:
        free: per word whether it belongs to no mention.
    """
    last, behind = found[noun.last], noun.last + 1
    if singular(last.folded) != last.folded or behind >= len(found) or not free[behind]:
        return False
    if any(word.folded in _ASKING for word in found[max(0, noun.first - _ASKING_NEAR) : noun.first]):
        return False
    if any(c in PAUSES for c in question[last.end : found[behind].start]):
        return False
    following = found[behind].folded
    if following == "of":
        if behind + 1 >= len(found) or not free[behind + 1]:
            return False
        following = found[behind + 1].folded
    elif following.endswith(("s", "ing", "ly")) or is_participle(following):
        return False
    return following not in vocabulary and following not in FUNCTION_WORDS
