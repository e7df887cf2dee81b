"""A question in other words, from its text alone: no graph, no spec, no plan.

What a question made from the graph says stays, how it says it does not: the noun moves away from what is said of it,
one sentence becomes several, everyday verbs take the place of those of the forms, a setting is told first, keywords are
typed in lower case, and here and there two letters change places. Words in quotes, words with capitals and numbers are
taken for names and stay letter by letter, but for keywords that are typed in lower case as a whole.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from skb_pipeline.text.hashing import choose, happens

TYPO_SHARE = 0.2
"""Of paraphrases with two letters changed."""

_BEGINNINGS = (
    r"(?:which|what)(?: of the)?",
    r"(?:find|name|list|show me|give me|tell me about|i am looking for|i'm looking for|do you know|can you show me"
    r"|is there|are there|we need the name of|of all)(?: me)?(?: an?| each| every| any| all| the| some)?",
)
_FRAME = re.compile(rf"^(?:{'|'.join(_BEGINNINGS)})\s+(?P<rest>.+?)\s*[?.]?$", re.IGNORECASE | re.DOTALL)
_RELATIVE = re.compile(r"\s(?:that|which|who)\s(?!one\b)")
_VERBS = frozenset(
    ["is", "are", "was", "were", "has", "have", "had", "does", "do", "can", "may", "must", "belongs", "goes", "lacks"]
)

OPENINGS = (
    "Somebody at work keeps asking me about {an}.",
    "Trying to pin down {an}.",
    "An article brought up {an}, but its title escapes me.",
    "My notes speak of {an}, without saying more.",
)
"""Before what is said of the noun; ``{an}`` is the noun with its article."""
FACTS = ("It {p}.", "All I remember: it {p}.", "Supposedly it {p}.")
FURTHER = ("On top of that it {p}.", "Then again, it {p} as well.", "Besides, it {p}.")
ENDINGS = ("Ideas?", "Who can help?", "", "Thanks!")
CLEFTS = (
    "It {p}, so what {n} might this be?",
    "Suppose it {p}: then we speak of what {n}?",
    "{an}, or anything close to that, provided it {p}",
    "hoping to learn about {an}, as long as it {p}",
)
"""In one sentence, noun last or first."""
SETTINGS = (
    "For a talk next week: {q}",
    "quick one from the help desk, {q}",
    "Not sure how to put this, but {q}",
    "Hello everybody! {q}",
)
"""Before a question whose parts cannot be told apart."""
TYPED = ("{q}", "{q} pls", "anything on {q}", "{q} ???")
"""Around keywords."""
SYNONYMS = {
    "shows": "exhibits", "presents with": "turns up alongside", "is caused by": "arises from",
    "is due to": "comes about through", "is linked to": "has to do with", "is linked with": "has to do with",
    "is associated with": "has to do with", "is connected to": "has to do with", "is related to": "has to do with",
    "is joined by": "hangs together by", "belongs to": "counts among", "is made by": "comes from the house of",
    "mentions": "talks about", "in its description": "in its blurb", "is described with": "has a blurb saying",
    "is treated with": "gets relief from", "is used for": "serves against", "treats": "gives relief from",
    "interacts with": "acts together with", "contains": "includes somewhere", "has": "comes along with",
    "is written by": "was penned by", "cites": "refers back to", "is often bought with": "often shares a basket with",
    "is bought with": "shares a basket with", "is viewed with": "gets looked at beside",
}  # fmt: skip
"""Everyday words for predicates, the longest first; each is tried where a predicate begins or inside it."""


class Parts(NamedTuple):
    """What a question is about, and what it says of it.

    Attributes:
        noun: ``disease``.
        predicates: ``shows Seizure``, each with a verb first.
    """

    noun: str
    predicates: list[str]


def paraphrase(question: str, key: str) -> str:
    """The question in other words.

    Args:
        question: its text, a sentence or keywords.
        key: decides all choices, such as the query id.
    """
    parts = parts_of(question)
    if parts is not None:
        text = _retold(parts, key)
    elif _FRAME.match(question):
        text = choose(SETTINGS, key, "setting").replace("{q}", question[0].lower() + question[1:])
    else:
        typed = question.lower() if happens(0.7, key, "lower case") else question
        text = choose(TYPED, key, "typed").replace("{q}", typed)
    return with_typo(text, key) if happens(TYPO_SHARE, key, "typo") else text


def parts_of(question: str) -> Parts | None:
    """Noun and predicates of a question in one sentence; None where they cannot be told apart."""
    match = _FRAME.match(question)
    if match is None or re.search(r"[.?!]\s", match["rest"]):
        return None
    relative = _RELATIVE.search(match["rest"])
    words = match["rest"].split()
    if question.lower().startswith(("which ", "what ")):
        begins = next((i for i, word in enumerate(words) if i and _is_verb(word, words[i - 1])), None)
        if begins is None:
            return None
        noun, said = " ".join(words[:begins]), " ".join(words[begins:])
    elif relative is not None:
        noun, said = match["rest"][: relative.start()], match["rest"][relative.end() :]
    else:
        return None
    if len(noun.split()) > 3 or '"' in noun:
        return None
    return Parts(noun, _conjuncts(said))


def with_typo(text: str, key: str) -> str:
    """Two inner letters of one word in lower case change places; a text without a word of six letters stays."""
    words = [match for match in re.finditer(r"(?<![\w\"'-])[a-z]{6,}(?![\w\"'-])", text) if '"' not in text]
    if not words:
        return text
    word = choose(words, key, "word with typo")
    places = [i for i in range(word.start() + 1, word.end() - 2) if text[i] != text[i + 1]]
    if not places:
        return text
    at = choose(places, key, "place of typo")
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def _retold(parts: Parts, key: str) -> str:
    noun = parts.noun
    said = [_in_other_words(predicate) for predicate in parts.predicates]
    slots = {"n": noun, "an": f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"}
    if len(said) == 1 and happens(0.6, key, "one sentence"):
        return _filled(choose(CLEFTS, key, "cleft"), {**slots, "p": said[0]})
    sentences = [_filled(choose(OPENINGS, key, "opening"), slots)]
    for place, predicate in enumerate(said):
        forms = FURTHER if place else FACTS
        sentences.append(_filled(choose(forms, key, f"fact {place}"), {"p": predicate}))
    sentences.append(choose(ENDINGS, key, "ending"))
    return " ".join(sentence for sentence in sentences if sentence)


def _filled(form: str, slots: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: slots[match[1]], form)


def _is_verb(word: str, before: str) -> bool:
    if word in _VERBS or word in ("both", "not"):
        return True
    return word.islower() and word.isalpha() and bool(re.search(r"[^siu]s$", word)) and not before.istitle()


def _conjuncts(said: str) -> list[str]:
    """Predicates joined by "and": split where a verb follows; a name may hold the word."""
    said = re.sub(r"^(?:both|not only)\s", "", said)
    found = [""]
    for piece in re.split(r"(,? and (?:also |at the same time )?|,? but also )", said):
        joins = re.fullmatch(r",? (?:and|but) .*|,? and ", piece) is not None
        if joins:
            found.append(piece)
        elif len(found) > 1 and not _is_verb(piece.split(" ")[0], ""):
            found[-2:] = [found[-2] + found[-1] + piece]
        else:
            found[-1] = piece
    return [predicate for predicate in found if predicate]


def _in_other_words(predicate: str) -> str:
    """With another word for one of its verbs, which stands before any name and quoted words."""
    name = re.search(r"[A-Z0-9\"]", predicate)
    free = len(predicate) if name is None else name.start()
    for old in sorted(SYNONYMS, key=len, reverse=True):
        found = re.search(rf"(?<![\w-]){old}(?![\w-])", predicate[:free])
        if found is not None:
            return predicate[: found.start()] + SYNONYMS[old] + predicate[found.end() :]
    return predicate
