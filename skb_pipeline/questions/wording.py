"""Surface forms: how a question is put into words.

A question is worded in two styles: as a sentence or as keywords. Every choice is made by the hash of the query id.
Of each kind of form some are *held out*: they are used for test questions only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.plan import Direction
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.templates import Shape, Step, Template, phrased_steps
from skb_pipeline.text.hashing import choose, happens

Item = TypeVar("Item")


class Forms(NamedTuple):
    """Known forms and forms for test questions only."""

    known: tuple[str, ...]
    held_out: tuple[str, ...]


# {n} noun of the answers, {an} the same with its article, {ns} plural, {p} predicate.
QUESTIONS = Forms(
    (
        "Which {n} {p}?",
        "What {n} {p}?",
        "Find {an} that {p}.",
        "I am looking for {an} that {p}.",
        "Name every {n} that {p}.",
        "Can you show me {an} that {p}?",
        "List each {n} that {p}.",
        "Do you know {an} that {p}?",
    ),
    (
        "Of all {ns}, which one {p}?",
        "Tell me about any {n} that {p}.",
        "Is there {an} that {p}?",
        "We need the name of each {n} that {p}.",
    ),
)
JOINED = Forms(
    ("{p} and {q}", "{p} and also {q}", "both {p} and {q}"),
    ("not only {p} but also {q}", "{p} and at the same time {q}"),
)
NESTED = Forms(("{an} that {p}", "some {n} that {p}", "at least one {n} that {p}"), ("any {n} which {p}",))
BOTH_NAMES = Forms(("{x} and {y}", "both {x} and {y}"), ("{x} together with {y}",))

# Textual condition: {c} the words, {w} "word" or "words".
AFTER_NOUN = Forms(
    (
        'mentioning "{c}"',
        'described with the {w} "{c}"',
        'with "{c}" in its description',
    ),
    ('whose description contains "{c}"',),
)
AS_PREDICATE = Forms(
    (
        'mentions "{c}" in its description',
        'is described with the {w} "{c}"',
        'has "{c}" in its description',
    ),
    ('comes with a description containing "{c}"',),
)
AS_SENTENCE = Forms(
    (
        'The {n} should mention "{c}" in its description.',
        'The description of the {n} has the {w} "{c}" in it.',
    ),
    ('In the description of the {n} one reads "{c}".',),
)
NAME_AFTER_NOUN = Forms(('with "{c}" in its name', 'named with the {w} "{c}"'), ('whose name includes "{c}"',))
NAME_AS_PREDICATE = Forms(
    ('has "{c}" in its name', 'is named with the {w} "{c}"'), ('goes by a name containing "{c}"',)
)
NAME_AS_SENTENCE = Forms(
    ('The name of the {n} contains "{c}".', 'The {n} has the {w} "{c}" in its name.'),
    ('In the name of the {n} one reads "{c}".',),
)

# {k} what a node must fulfil, in keywords, behind its noun.
KEYWORDS = Forms(("{n} {k}", "{ns} {k}"), ("{ns}: {k}", "all {ns} {k}"))
KEYWORDS_AND_TEXT = Forms(
    ("{n} {k} {c}", "{c} {n} {k}", '{ns} {k} "{c}"', '"{c}" {ns} {k}'), ("{ns}: {k}; {c}", "all {ns} {k} + {c}")
)
JOINED_KEYWORDS = Forms(("{p}, {q}", "{p} and {q}"), ("{p} + {q}",))

# A triple without phrasing in the spec: {r} relation, {x} the other end.
GENERIC = Forms(
    (
        'is connected to {x} by the relation "{r}"',
        'is linked with {x} ("{r}")',
        'stands in the relation "{r}" with {x}',
        'has {x} among its neighbours by "{r}"',
        'has a link of the kind "{r}" to {x}',
    ),
    ('is tied to {x} through "{r}"', 'shares an edge labelled "{r}" with {x}'),
)
# The same where edges run either way and the spec does not say which way its words run: no subject and no object.
UNDIRECTED = Forms(
    (
        'is linked by "{r}" with {x}',
        'is joined by "{r}" with {x}',
        'shares a link of the kind "{r}" with {x}',
        'is connected by "{r}" with {x}, in whichever direction',
    ),
    ('is tied by "{r}" with {x}', 'has {x} at the other end of a link of the kind "{r}"'),
)
UNDIRECTED_KEYWORDS = ('linked by "{r}" with {x}', 'joined by "{r}" with {x}')
GENERIC_KEYWORDS = ("{r} {x}", '"{r}" {x}', "{x} ({r})", "{r}: {x}")


@dataclass(frozen=True)
class Worded:
    """One question in words.

    Attributes:
        text: the question.
        held_out: some form of it is held out.
        style: ``question`` or ``keyword``.
    """

    text: str
    held_out: bool
    style: str


class _Chooser:
    """Picks forms for one question and remembers whether a held-out one was among them."""

    def __init__(self, query_id: str, held_out: bool) -> None:
        self.query_id = query_id
        self.wants_held_out = held_out
        self.used_held_out = False

    def form(self, what: str, forms: Forms) -> str:
        held_out = self.wants_held_out and bool(forms.held_out)
        self.used_held_out |= held_out
        return choose(forms.held_out if held_out else forms.known, self.query_id, what)

    def outer_form(self, what: str, forms: Forms) -> str:
        """A form whose slot takes a clause: one that ends with it if there is any, since words behind a clause
        would seem to belong to it."""
        return self.form(what, ending_in_slot(forms))

    def coin(self, what: str, share: float = 0.5) -> bool:
        return happens(share, self.query_id, what)


class Wordings:
    """Words questions for one dataset, with the phrasings of its spec and generic ones for the other triples."""

    def __init__(self, spec: DatasetSpec) -> None:
        self._nouns = {name: readable(name) for name in spec.node_types}
        self._plurals = {
            name: node_type.plural or plural(self._nouns[name]) for name, node_type in spec.node_types.items()
        }
        self._keyword_share = spec.questions.keyword_share
        self._schema = GraphSchema.from_spec(spec)
        self._phrasings = phrased_steps(spec)

    def type_words(self, node_type: str) -> tuple[str, str]:
        """Noun of a type in the singular and the plural."""
        return self._nouns[node_type], self._plurals[node_type]

    def forms(self, step: Step) -> Forms:
        """Predicates of a step; those of the spec if it has any, else generic ones."""
        phrasing = self._phrasings.get(step)
        if phrasing is not None:
            return Forms(tuple(phrasing.forms), tuple(phrasing.held_out))
        return Forms(*(_generic(step, forms) for forms in (UNDIRECTED if self._hides_direction(step) else GENERIC)))

    def keyword_forms(self, step: Step) -> tuple[str, ...]:
        """Keyword forms of a step; those of the spec if it has any, else generic ones."""
        phrasing = self._phrasings.get(step)
        if phrasing is not None and phrasing.keywords:
            return tuple(phrasing.keywords)
        if phrasing is not None and step.direction is not Direction.ANY:
            # Generic keywords say no direction: ``package that depends on {x}`` says that of the phrasing.
            return tuple(f"that {form}" for form in phrasing.forms)
        return _generic(step, UNDIRECTED_KEYWORDS if self._hides_direction(step) else GENERIC_KEYWORDS)

    def _hides_direction(self, step: Step) -> bool:
        """Whether a step asks for edges of both directions though the direction means something."""
        return step.direction is Direction.ANY and self._schema.two_ways(*step[:3])

    def word(
        self,
        template: Template,
        mentions: Sequence[str],
        phrase: str | None,
        *,
        phrase_in_name: bool,
        query_id: str,
        held_out: bool,
    ) -> Worded:
        """Put one question into words.

        Args:
            template, mentions: as for ``Template.plan``.
            phrase: words of the textual condition, or None.
            phrase_in_name: the condition is on the name, as the type has no other text.
            query_id: key of all choices.
            held_out: use held-out forms wherever there are any.
        """
        chooser = _Chooser(query_id, held_out)
        if chooser.coin("style", self._keyword_share):
            text = self._keywords(template, mentions, phrase, chooser)
            return Worded(text, chooser.used_held_out, "keyword")
        text = self._sentence(template, mentions, phrase, phrase_in_name, chooser)
        return Worded(text, chooser.used_held_out, "question")

    def _sentence(
        self, template: Template, mentions: Sequence[str], phrase: str | None, in_name: bool, chooser: _Chooser
    ) -> str:
        noun, nouns = self.type_words(template.target)
        predicate = self._predicate(template, mentions, chooser)
        modifier, appendix = "", ""
        if phrase is not None:
            slots = {"c": phrase, "w": "words" if " " in phrase else "word", "n": noun}
            if chooser.coin("condition first"):
                form = chooser.form("condition", NAME_AFTER_NOUN if in_name else AFTER_NOUN)
                modifier = " " + fill(form, slots)
            elif template.shape is Shape.TWO_HOPS:
                # A second predicate could be read as one about the node in the middle: say it in a sentence.
                form = chooser.form("condition", NAME_AS_SENTENCE if in_name else AS_SENTENCE)
                appendix = " " + fill(form, slots)
            else:
                form = chooser.form("condition", NAME_AS_PREDICATE if in_name else AS_PREDICATE)
                comma = "," if template.shape is Shape.JOIN else ""
                predicate = f"{predicate}{comma} and {fill(form, slots)}"
        slots = {"n": noun + modifier, "an": with_article(noun) + modifier, "ns": nouns + modifier, "p": predicate}
        return fill(chooser.form("frame", QUESTIONS), slots) + appendix

    def _predicate(self, template: Template, mentions: Sequence[str], chooser: _Chooser) -> str:
        first = template.steps[0]
        if template.shape is Shape.ONE_HOP:
            return fill(chooser.form("relation 1", self.forms(first)), {"x": mentions[0]})
        second = template.steps[1]
        if template.shape is Shape.TWO_HOPS:
            form = chooser.outer_form("relation 1", self.forms(first))
            noun, _ = self.type_words(second.target)
            inner = fill(chooser.form("relation 2", self.forms(second)), {"x": mentions[0]})
            middle = fill(chooser.form("nested", NESTED), {"n": noun, "an": with_article(noun), "p": inner})
            return fill(bare_slot(form, self.type_words(second.target)), {"x": middle})
        form = chooser.form("relation 1", self.forms(first))
        a, b = _in_order(mentions, chooser.coin("order"))
        if first == second:
            if chooser.coin("both names"):
                names = fill(chooser.form("both", BOTH_NAMES), {"x": a, "y": b})
                return fill(bare_slot(form, self.type_words(first.anchor)), {"x": names})
            both = [fill(form, {"x": a}), fill(form, {"x": b})]
        else:
            one = fill(form, {"x": mentions[0]})
            other = fill(chooser.form("relation 2", self.forms(second)), {"x": mentions[1]})
            both = _in_order([one, other], chooser.coin("order"))
        return fill(chooser.form("joined", JOINED), {"p": both[0], "q": both[1]})

    def _keywords(self, template: Template, mentions: Sequence[str], phrase: str | None, chooser: _Chooser) -> str:
        noun, nouns = self.type_words(template.target)
        first = template.steps[0]
        forms = self.keyword_forms(first)
        if template.shape is Shape.TWO_HOPS:
            forms = ending_in_slot(Forms(forms, ())).known
        form = choose(forms, chooser.query_id, "keywords 1")
        if template.shape is Shape.ONE_HOP:
            text = fill(form, {"x": mentions[0]})
        elif template.shape is Shape.TWO_HOPS:
            middle, _ = self.type_words(template.steps[1].target)
            inner = choose(self.keyword_forms(template.steps[1]), chooser.query_id, "keywords 2")
            text = fill(form, {"x": f"{middle} {fill(inner, {'x': mentions[0]})}"})
        else:
            other = form
            if first != template.steps[1]:
                other = choose(self.keyword_forms(template.steps[1]), chooser.query_id, "keywords 2")
            both = [fill(form, {"x": mentions[0]}), fill(other, {"x": mentions[1]})]
            p, q = _in_order(both, chooser.coin("order"))
            text = fill(chooser.form("joined", JOINED_KEYWORDS), {"p": p, "q": q})
        slots = {"k": text, "n": noun, "ns": nouns, "c": phrase or ""}
        return fill(chooser.form("frame", KEYWORDS if phrase is None else KEYWORDS_AND_TEXT), slots)


def _generic(step: Step, forms: Sequence[str]) -> tuple[str, ...]:
    return tuple(fill(form, {"r": readable(step.relation)}) for form in forms)


def _in_order(pair: Sequence[Item], swap: bool) -> list[Item]:
    return list(reversed(pair)) if swap else list(pair)


def fill(form: str, slots: Mapping[str, str]) -> str:
    """Replace ``{slot}`` by its value, once: braces inside a value (a node's name, say) stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: slots.get(match[1], match[0]), form)


def ending_in_slot(forms: Forms) -> Forms:
    """The forms that end with ``{x}``; all of them if none does."""
    known, held_out = (tuple(form for form in group if form.endswith("{x}")) for group in forms)
    return Forms(known or forms.known, held_out) if known or held_out else forms


def bare_slot(form: str, type_words: Sequence[str]) -> str:
    """``form`` made fit for a noun phrase instead of a name.

    Quotes around ``{x}`` and the type in front of it go: ``due to the gene {x}`` becomes ``due to {x}``, which then
    reads ``due to a gene that ...``.
    """
    kinds = "|".join(re.escape(word) for word in type_words)
    return re.sub(rf"(?:\b(?:the )?(?:{kinds}) )?([\"'“]?)\{{x\}}[\"'”]?", "{x}", form, flags=re.IGNORECASE)


def readable(name: str) -> str:
    """A type or relation name as words: ``HAS_BRAND`` is ``has brand``, ``fieldOfStudy`` is ``field of study``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", " ", name.replace("_", " "))
    if spaced.isupper() and " " in spaced:
        return " ".join(spaced.lower().split())
    return " ".join(word if word[1:] != word[1:].lower() else word.lower() for word in spaced.split())


def plural(noun: str) -> str:
    """Regular English plural."""
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if re.search(r"(s|x|z|ch|sh)$", noun) else "s")


def with_article(noun: str) -> str:
    """``noun`` behind ``a`` or ``an``, by sound: ``a unit``, ``an hour``, ``an mRNA``."""
    first = noun.split()[0] if noun.strip() else noun
    if first[1:2].isupper():
        vowel = first[0].upper() in "AEFHILMNORSX"
    elif re.match(r"(uni(?!n)|use|usu|util|eu|one|ubi)", first, re.IGNORECASE):
        vowel = False
    else:
        vowel = bool(re.match(r"([aeiou]|hour|honest|honou?r|heir)", first, re.IGNORECASE))
    return f"{'an' if vowel else 'a'} {noun}"
