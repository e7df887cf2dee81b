"""Which nodes a piece of text names: look-up of one name, and mentions inside a question.

Names and aliases (*surfaces*) of all nodes are kept by a coarse key: folded singular words without blanks. A hit is
then graded by the finest form in which text and surface agree (:class:`Match`). Spelling mistakes are found through
trigrams and only for longer texts. Nothing is decided between nodes that share a surface: a mention keeps them all.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, Self

import duckdb
import numpy as np

from skb_pipeline.linking.abbreviations import further_names
from skb_pipeline.linking.codes import codes_missing, numbers_of
from skb_pipeline.linking.folding import FUNCTION_WORDS, Word, fold, singular, words
from skb_pipeline.linking.persons import PERSONS_LEAST, PERSONS_SHARE, Person, agree, readings, spans
from skb_pipeline.text.folding import in_words, of_folded_scripts

MAX_WORDS = 30
"""Words of the longest mention that is looked for inside a question."""

_FUZZY_MIN = 6
"""Characters (of the key) below which no spelling mistake is forgiven."""
_FUZZY_WORDS = 5
_FUZZY_POOL = 64
_SYMBOL_MAX = 8
_GENERIC_SHARE = 0.01
_GENERIC_MIN = 50
_ORDINARY_MIN = 2
_RARE = 5
_BEGINNING_WORDS = 8
"""Words of the longest name that may be named by its beginning: nobody so shortens a title."""
_TEXT_SAMPLE = 20_000
_CLOSING = (")", "]")
_NUMERALS = frozenset({"ii", "iii", "iv", "vi", "vii", "viii", "ix", "xi", "xii"})


class Match(IntEnum):
    """How a text agrees with a surface, best first."""

    EXACT = 0
    """Letter by letter."""
    FOLDED = 1
    """But for case, accents, punctuation and possessive endings."""
    PLURAL = 2
    """Also but for plural endings, blanks (``IL2``, ``IL-2``) or the order around one comma (``anemia, aplastic``)."""
    INITIALS = 3
    """A person's name: in surname and, as far as both have them, given names or their initials (``Turing, A. M.`` for
    ``Alan Turing``). All persons who may be called so are meant."""
    SHORT = 4
    """Also but for a remark in brackets or the last word, if very many surfaces have that (``sleep apnea syndrome``) or
    the rest belongs to one node alone (``type 1 diabetes mellitus``)."""
    FUZZY = 5
    """But for a few letters."""


class Surface(NamedTuple):
    """A name or (``is_alias``) another name of a node."""

    node_id: int
    node_type: str
    text: str
    is_alias: bool = False


@dataclass(frozen=True, eq=False)
class Mention:
    """A piece of a question that names something.

    Attributes:
        start, end: place in the question, in characters.
        text: the piece, as written.
        match: how it agrees with the surfaces.
        nodes: node type -> int64 ids of the nodes that have such a surface, ascending.
        surfaces: node type -> the text to link with: ``text``, or (one of) the full names of a short or fuzzy match.
    """

    start: int
    end: int
    text: str
    match: Match
    nodes: Mapping[str, np.ndarray]
    surfaces: Mapping[str, str]


class NameIndex:
    """Look-up of names. Build one with :meth:`build` or from surfaces.

    Args:
        surfaces: names and aliases; blank ones are ignored.
        prose: texts in which words that are written small are ordinary words (see :meth:`find`).
    """

    def __init__(self, surfaces: Iterable[Surface], prose: Iterable[str] = ()) -> None:
        self._surfaces = [s for s in surfaces if s.text.strip()]
        self._given = len(self._surfaces)
        self._by_text: dict[str, list[int]] = defaultdict(list)
        self._by_key: dict[str, list[int]] = defaultdict(list)
        self._folded: list[str] = []
        self._longest: dict[str, int] = {}
        in_names: Counter[str] = Counter()
        spelt_small: Counter[str] = Counter()
        for row, surface in enumerate(self._surfaces):
            self._by_text[surface.text].append(row)
            found = words(surface.text)
            self._folded.append(" ".join(word.folded for word in found))
            for variant in (found, _inverted(surface.text), _without_remark(surface.text)):
                if variant:
                    self._add(row, variant)
            in_names.update({word.folded for word in found})
            if len(found) > 1:
                spelt_small.update(_small_words(surface.text))
        for text in prose:
            spelt_small.update(_small_words(text))
        self._generic = {w for w, n in in_names.items() if n > max(_GENERIC_MIN, _GENERIC_SHARE * len(self._surfaces))}
        self._ordinary = {w for w, n in spelt_small.items() if n >= _ORDINARY_MIN} | FUNCTION_WORDS
        self._known_words = {singular(w) for w in in_names} | {singular(w) for w in spelt_small}
        self._add_derived()
        self._add_shortened(in_names)
        self._people = self._read_people()
        self._surnames = frozenset(word for surname in self._people for word in surname.split())

    def _add_derived(self) -> None:
        """What names say of themselves (``X (TNF)``, ``X, also known as Y``), where it is no other node's name."""
        derived: list[tuple[str, Surface]] = []
        for surface in self._surfaces:
            for text in further_names(surface.text):
                key = _key(words(text))
                if key and key not in self._by_key:
                    derived.append((key, Surface(surface.node_id, surface.node_type, text, is_alias=True)))
        for _, surface in dict.fromkeys(derived):
            self._surfaces.append(surface)
            self._by_text[surface.text].append(len(self._surfaces) - 1)
            found = words(surface.text)
            self._folded.append(" ".join(word.folded for word in found))
            self._add(len(self._surfaces) - 1, found)

    def _read_people(self) -> dict[str, list[tuple[int, Person]]]:
        """Surname -> rows and readings of the names that have it, for types whose names are those of persons."""
        read: dict[str, list[tuple[int, list[Person]]]] = defaultdict(list)
        names: Counter[str] = Counter()
        for row, surface in enumerate(self._surfaces[: self._given]):
            people = readings(surface.text)
            names[surface.node_type] += not surface.is_alias
            if people:
                read[surface.node_type].append((row, people))
        found: dict[str, list[tuple[int, Person]]] = defaultdict(list)
        for node_type, rows in read.items():
            persons = sum(not self._surfaces[row].is_alias for row, _ in rows)
            if persons >= max(PERSONS_LEAST, PERSONS_SHARE * names[node_type]):
                for row, people in rows:
                    for person in people:
                        found[person.surname].append((row, person))
        return dict(found)

    def _persons(self, text: str) -> tuple[list[int], Match]:
        """Rows of the persons whom a name may mean, and the grade: those with the very same given names, if any."""
        pairs = [(row, own, other) for own in readings(text) for row, other in self._people.get(own.surname, ())]
        same = sorted({row for row, own, other in pairs if own.given == other.given})
        if same:
            return same, Match.PLURAL
        return sorted({row for row, own, other in pairs if agree(own, other)}), Match.INITIALS

    def _add_shortened(self, in_names: Mapping[str, int]) -> None:
        """Keys of surfaces without a generic last word, where no surface has that key anyway."""
        shortened: dict[str, list[tuple[int, list[Word]]]] = defaultdict(list)
        for row, surface in enumerate(self._surfaces):
            if self._folded[row].rpartition(" ")[2] in self._generic:
                rest = words(surface.text)[:-1]
                distinct = [word for word in rest if word.folded not in self._generic | FUNCTION_WORDS]
                rare = len(rest) == 1 and (rest[0].folded not in self._ordinary or in_names[rest[0].folded] <= _RARE)
                if len(distinct) > 1 or (distinct and rare and len(rest[0].folded) >= _FUZZY_MIN):
                    shortened[_key(rest)].append((row, rest))
        for key, found in shortened.items():
            if key not in self._by_key:
                for row, rest in found:
                    self._add(row, rest)
        self._add_beginnings()

    def _add_beginnings(self) -> None:
        """Keys of names without their last word, whatever that is, where they belong to one node alone.

        So ``type 1 diabetes`` names ``type 1 diabetes mellitus``. Two words that tell something must be left.
        """
        beginnings: dict[str, list[tuple[int, list[Word]]]] = defaultdict(list)
        for row, surface in enumerate(self._surfaces):
            found = words(surface.text)
            rest = found[:-1]
            if (
                len(found) <= _BEGINNING_WORDS
                and len({word.folded for word in rest} - self._generic - FUNCTION_WORDS) > 1
            ):
                beginnings[_key(rest)].append((row, rest))
        for key, named in beginnings.items():
            if key not in self._by_key and len({self._surfaces[row].node_id for row, _ in named}) == 1:
                for row, rest in named:
                    self._add(row, rest)

    @classmethod
    def build(cls, con: duckdb.DuckDBPyConnection, name_fields: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Index all nodes of an SKB file.

        Args:
            con: the SKB file.
            name_fields: node type -> further fields whose values are names (see ``LinkingSpec``).
        """
        prose = con.execute(
            "SELECT fields::VARCHAR FROM nodes WHERE canonical < ? ORDER BY canonical", [_TEXT_SAMPLE]
        ).fetchall()
        return cls(node_surfaces(con, name_fields), (row[0] for row in prose))

    def __len__(self) -> int:
        return self._given

    def ordinary_names(self) -> dict[str, set[str]]:
        """Type -> its names of one word that stand in small letters in the SKB's own texts, folded and singular."""
        found: dict[str, set[str]] = defaultdict(set)
        for surface, folded in zip(self._surfaces, self._folded, strict=True):
            if folded in self._ordinary and folded not in FUNCTION_WORDS:
                found[surface.node_type].add(singular(folded))
        return dict(found)

    def _add(self, row: int, found: Sequence[Word]) -> None:
        self._by_key[_key(found)].append(row)
        parts = _parts(found)
        self._longest[parts[0]] = max(self._longest.get(parts[0], 0), min(len(parts), MAX_WORDS))

    def lookup(self, text: str, labels: Collection[str] | None = None, *, fuzzy: bool = True) -> Mention | None:
        """The nodes that ``text`` names, at the best grade that any node reaches; None if there is none.

        Nothing is guarded here, unlike in :meth:`find`: who calls says that the text is a name.

        Args:
            text: a name.
            labels: node types looked at; default all.
            fuzzy: forgive spelling mistakes when nothing else agrees.
        """
        rows = self._of_types(self._by_text.get(text, ()), labels)
        found = words(text)
        if not rows and found:
            rows = self._of_types(self._with_key(_key(found), text), labels)
            if not rows and self._people:
                people, grade = self._persons(text)
                if people := self._of_types(people, labels):
                    return self._mention(text, 0, len(text), people, grade)
            if not rows and fuzzy:
                rows = self._of_types(self._fuzzy_rows(text, found), labels)
                return self._mention(text, 0, len(text), rows, Match.FUZZY) if rows else None
        return self._graded(text, 0, len(text), rows) if rows else None

    def find(self, question: str, reserved: Container[str] = ()) -> list[Mention]:
        """Mentions in a question, in order, none overlapping another.

        Where mentions would overlap the one with more characters wins, then the earlier. Common words are guarded:

        * a function word, or a phrase of ``reserved``, is no mention unless it is written as a symbol;
        * a *symbol* (one word with a capital behind its first letter, or with capitals only, such as ``WAS``) agrees
          only when written with the same capitals, unless it has a digit. In a question all in small letters, or all
          in capitals, it agrees unless its small form is an ordinary word: one that stands in small letters in the
          texts of the SKB itself;
        * one letter alone is never a mention, two characters only when they are a node's name (no alias) and written
          as that is; Roman numerals are none;
        * words that begin or end with a function word must agree letter by letter (the gene ``protein IT``);
        * a single word that is part of more than 1 % of all surfaces (and more than 50), such as ``syndrome``, is a
          mention only where it is the whole name of a node; one that is a name without its last word
          (:attr:`Match.SHORT`) must begin with the same letter, capital or small.

        Args:
            question: any text.
            reserved: folded phrases that mean something else, such as the words for types and relations.
        """
        found = words(question)
        exact = [*self._exact_candidates(question, found, reserved)]
        whole = [(m.start, m.end) for m in exact if len(words(m.text)) > 1]
        # In "Maria Chen, Wei Liu" nobody is called "Chen, Wei" where a name stands as it is.
        persons = (
            m
            for m in self._person_candidates(question, found)
            if not any(start < m.end and m.start < end and (start, end) != (m.start, m.end) for start, end in whole)
        )
        chosen = _without_overlaps([*exact, *persons])
        taken = [(m.start, m.end) for m in chosen]
        return sorted([*chosen, *self._fuzzy_mentions(question, found, taken, reserved)], key=lambda m: m.start)

    def _exact_candidates(self, question: str, found: Sequence[Word], reserved: Container[str]) -> Iterator[Mention]:
        keys = [_key([word]) for word in found]
        style = _style(question)
        for i, first in enumerate(found):
            key, longest = "", self._longest.get(_parts([first])[0], 0)
            for j in range(i, min(i + longest, len(found))):
                key += keys[j]
                if key not in self._by_key:
                    continue
                start, end = _with_closing(question, found, i, j)
                text = question[start:end]
                rows = self._guarded(text, found[i : j + 1], self._with_key(key, text), reserved, style)
                if rows and not _inside_compound(question, start, end):
                    yield self._graded(text, start, end, rows)

    def _person_candidates(self, question: str, found: Sequence[Word]) -> Iterator[Mention]:
        if self._people and _style(question) is _Style.MIXED:
            for i, j in spans(question, found, self._surnames):
                start, end = found[i].start, found[j].end
                rows, grade = self._persons(question[start:end])
                if rows:
                    yield self._mention(question[start:end], start, end, rows, grade)

    def _guarded(
        self, text: str, found: Sequence[Word], rows: Sequence[int], reserved: Container[str], style: _Style
    ) -> Sequence[int]:
        folded = " ".join(word.folded for word in found)
        if folded in reserved or " ".join(singular(word.folded) for word in found) in reserved:
            rows = [row for row in rows if is_symbol(text) and self._surfaces[row].text == text]
        key = _key(found)
        if len(key) <= 2 or (len(key) == 3 and len(found) > 1):
            rows = [row for row in rows if self._surfaces[row].text == text and not self._surfaces[row].is_alias]
        if len(found) > 1:
            if found[0].folded in FUNCTION_WORDS or found[-1].folded in FUNCTION_WORDS:
                rows = [row for row in rows if self._surfaces[row].text == text]
            return rows
        if len(folded) < 2 or folded.isdigit() or folded in _NUMERALS:
            return ()
        if folded in self._generic:
            rows = [row for row in rows if not self._surfaces[row].is_alias and self._folded[row] == folded]
        ordinary = folded in self._ordinary
        return [
            row
            for row in rows
            if _case_agrees(text, self._surfaces[row], ordinary, style)
            and (self._folded[row].count(" ") == 0 or text[0] == self._surfaces[row].text[0])
        ]

    def _with_key(self, key: str, text: str) -> Sequence[int]:
        """Surfaces of a text's key whose numbers are those of the text: the key of ``22q1.12`` is that of ``22q11.2``.
        A shortened surface may have more."""
        rows = self._by_key.get(key, ())
        if not rows or not any(c.isdigit() for c in key):
            return rows
        numbers = numbers_of(text)
        return [row for row in rows if numbers <= numbers_of(self._surfaces[row].text)]

    def _of_types(self, rows: Iterable[int], labels: Collection[str] | None) -> list[int]:
        return [row for row in rows if labels is None or self._surfaces[row].node_type in labels]

    def _graded(self, text: str, start: int, end: int, rows: Sequence[int]) -> Mention:
        """A mention of the nodes that agree best, type by type."""
        folded = fold(text)
        grades = [self._grade(text, folded, row) for row in rows]
        best: dict[str, Match] = {}
        for row, grade in zip(rows, grades, strict=True):
            node_type = self._surfaces[row].node_type
            best[node_type] = min(grade, best.get(node_type, grade))
        kept = [row for row, grade in zip(rows, grades, strict=True) if grade == best[self._surfaces[row].node_type]]
        return self._mention(text, start, end, kept, min(grades))

    def _grade(self, text: str, folded: str, row: int) -> Match:
        if self._surfaces[row].text == text:
            return Match.EXACT
        if self._folded[row] == folded:
            return Match.FOLDED
        # A shortened key is shorter than that of the surface; all others are as long as one of its two orders.
        return Match.PLURAL if len(_key(words(text))) == len(_key(words(self._surfaces[row].text))) else Match.SHORT

    def _mention(self, text: str, start: int, end: int, rows: Sequence[int], match: Match) -> Mention:
        ids: dict[str, set[int]] = defaultdict(set)
        for row in rows:
            ids[self._surfaces[row].node_type].add(self._surfaces[row].node_id)
        nodes = {node_type: np.array(sorted(found), dtype=np.int64) for node_type, found in sorted(ids.items())}
        full: dict[str, str] = {}
        for row in rows:
            surface = self._surfaces[row]
            full.setdefault(surface.node_type, surface.text)
        surfaces = full if match >= Match.SHORT else dict.fromkeys(nodes, text)
        return Mention(start, end, text, match, nodes, surfaces)

    def _fuzzy_mentions(
        self, question: str, found: Sequence[Word], taken: Sequence[tuple[int, int]], reserved: Container[str]
    ) -> list[Mention]:
        """Misspelt names among the words that belong to no mention; each must hold a word no text of the SKB has."""
        free = [not any(start < w.end and w.start < end for start, end in taken) for w in found]
        candidates = []
        for i in range(len(found)):
            for j in range(i, min(i + _FUZZY_WORDS, len(found))):
                if not free[j]:
                    break
                span = found[i : j + 1]
                start, end = _with_closing(question, found, i, j)
                if self._may_be_misspelt(span, reserved) and not is_symbol(question[start:end]):
                    rows = self._fuzzy_rows(question[start:end], span)
                    if rows and not _inside_compound(question, start, end):
                        candidates.append(self._mention(question[start:end], start, end, rows, Match.FUZZY))
        return _without_overlaps(candidates)

    def _may_be_misspelt(self, span: Sequence[Word], reserved: Container[str]) -> bool:
        ends = (span[0].folded, span[-1].folded)
        if any(end in FUNCTION_WORDS or end in reserved or singular(end) in reserved for end in ends):
            return False
        return any(singular(word.folded) not in self._known_words for word in span)

    def _fuzzy_rows(self, text: str, found: Sequence[Word]) -> list[int]:
        """Surfaces of as many words within the allowed edits of a text's key, all of the smallest distance.

        Allowed are one edit (insertion, deletion, substitution, swap of neighbours) from six characters on, two from
        twelve, three from twenty. Digits and codes must agree: neither ``CYP3A4`` nor ``CYP2C6`` is a misspelling of
        ``CYP3A5`` or ``CYP2D6``. Only Latin, Greek and Cyrillic names may be misspelt: in other scripts one vowel
        sign, or one ideograph, makes another name.
        """
        key = _key(found)
        if len(key) < _FUZZY_MIN or not of_folded_scripts(key):
            return []
        from rapidfuzz.distance import OSA

        allowed = 1 if len(key) < 12 else 2 if len(key) < 20 else 3
        digits = _digits(key)
        closest, best = [], allowed
        for candidate in self._trigrams.nearest(key, _FUZZY_POOL):
            if abs(len(candidate) - len(key)) > allowed or _digits(candidate) != digits:
                continue
            distance = OSA.distance(key, candidate, score_cutoff=best)
            if distance < best:
                closest, best = [candidate], distance
            elif distance == best:
                closest.append(candidate)
        rows = sorted({row for candidate in closest for row in self._by_key[candidate]})
        return [
            row
            for row in rows
            if len(self._folded[row].split()) == len(found) and not codes_missing(text, [self._surfaces[row].text])
        ]

    @cached_property
    def _trigrams(self) -> _Trigrams:
        return _Trigrams([key for key in self._by_key if len(key) >= _FUZZY_MIN - 1])


class _Trigrams:
    """Keys by their trigrams; finds those that share the most with another key."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = keys
        rows: dict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(keys):
            for gram in _grams(key):
                rows[gram].append(row)
        self._rows = {gram: np.array(found, dtype=np.int32) for gram, found in rows.items()}

    def nearest(self, key: str, most: int) -> list[str]:
        """At most ``most`` keys that share at least a third of the trigrams, the closest first."""
        grams = _grams(key)
        postings = [self._rows[gram] for gram in grams if gram in self._rows]
        if not postings:
            return []
        rows, shared = np.unique(np.concatenate(postings), return_counts=True)
        near = shared * 3 >= len(grams)
        rows, shared = rows[near], shared[near]
        order = np.lexsort((rows, -shared))[:most]
        return [self._keys[row] for row in rows[order]]


def node_surfaces(
    con: duckdb.DuckDBPyConnection, name_fields: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Surface]:
    """Names, aliases and values of name fields of all nodes: in canonical order, names first, each once per node."""
    further = name_fields or {}
    rows = con.execute(
        """
        SELECT n.node_id, n.node_type, n.name, a.aliases, CASE WHEN list_contains(?, n.node_type) THEN n.fields END
        FROM nodes n LEFT JOIN (SELECT node_id, list(alias ORDER BY alias) AS aliases FROM aliases GROUP BY node_id) a
        ON a.node_id = n.node_id ORDER BY n.canonical
        """,
        [list(further)],
    )
    while batch := rows.fetchmany(10_000):
        for node_id, node_type, name, aliases, fields in batch:
            texts = [name, *(aliases or ())]
            values = json.loads(fields) if fields is not None else {}
            for field in further.get(node_type, ()):
                value = values.get(field)
                texts.extend(map(str, value if isinstance(value, list) else [] if value is None else [value]))
            for text in dict.fromkeys(texts):
                if text.strip():
                    yield Surface(node_id, node_type, text, is_alias=text != name)


def _key(found: Sequence[Word]) -> str:
    return "".join(singular(part) for word in found for part in word.folded.split())


def _parts(found: Sequence[Word]) -> list[str]:
    """Words cut further where letters and digits meet, so that a name has as many parts however it is written."""
    return [m for word in found for part in word.folded.split() for m in re.findall(r"\d+|\D+", singular(part))] or [""]


def _inverted(text: str) -> list[Word]:
    """Words of ``aplastic anemia`` for ``anemia, aplastic``; none where there is not exactly one such comma."""
    head, comma, rest = text.partition(", ")
    return words(f"{rest} {head}") if comma and "," not in rest and len(rest.split()) <= 4 else []


def _without_remark(text: str) -> list[Word]:
    """Words of ``panuveitis`` for ``panuveitis (disease)``; none where no such remark stands at the end."""
    head, bracket, rest = text.partition(" (")
    return words(head) if bracket and rest.endswith(")") and rest.count("(") == 0 and len(head) > 3 else []


def _small_words(text: str) -> set[str]:
    """Distinct words of a text that are written in small letters and are not part of a compound."""
    return set(re.findall(r"(?<![\w-])[a-z]{2,}(?![\w-])", text))


def is_symbol(text: str) -> bool:
    """One word with a capital behind its first letter, or of capitals only."""
    return len(text) <= _SYMBOL_MAX and not re.search(r"\s", text) and (text.isupper() or text[1:] != text[1:].lower())


class _Style(IntEnum):
    """What capitals tell in a question: nothing where all letters are small or all are capitals."""

    MIXED = 0
    SMALL = 1
    CAPITALS = 2


def _style(question: str) -> _Style:
    return _Style.CAPITALS if question.isupper() else _Style.SMALL if question.islower() else _Style.MIXED


def _case_agrees(text: str, surface: Surface, ordinary: bool, style: _Style) -> bool:
    """Whether a one-word text may stand for a surface with the same key (the rules of :meth:`NameIndex.find`)."""
    if not is_symbol(surface.text):
        return not (ordinary and fold(text) in FUNCTION_WORDS)
    if any(c.isdigit() for c in surface.text):
        return True
    if style is _Style.MIXED:
        return _letters(text) == _letters(surface.text)
    return not ordinary


def _letters(text: str) -> str:
    return "".join(c for c in text if in_words(c))


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _grams(key: str) -> set[str]:
    padded = f"^{key}$"
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


def _with_closing(question: str, found: Sequence[Word], i: int, j: int) -> tuple[int, int]:
    """Place of the words i to j, with brackets at its two ends that close those inside (``(2S)-… acid``)."""
    start, end = found[i].start, found[j].end
    missing = 0
    for c in question[start:end]:
        missing += c in "([{"
        if c in ")]}":
            if missing:
                missing -= 1
            elif start and question[start - 1] in "([{":
                start -= 1
    while missing and end < len(question) and question[end] in ")]}":
        end, missing = end + 1, missing - 1
    return start, end


def _inside_compound(question: str, start: int, end: int) -> bool:
    """Whether a piece is only a part of a hyphenated word that means something else.

    So ``Hodgkin lymphoma`` is not named by ``non-Hodgkin lymphoma``, nor ``glucose`` by ``glucose-6-phosphate``. A
    symbol may be part of a compound (``anti-TNF``), and a following word too (``EGFR-mutated``).
    """
    before, after = question[max(start - 2, 0) : start], question[end : end + 2]
    led = bool(before[-1:] in _CLOSING or (before[-1:] == "-" and _in_compounds(before[:-1]))) and not is_symbol(
        question[start:end]
    )
    return led or bool(re.fullmatch(r"-\d", after))


def _in_compounds(char: str) -> bool:
    """Whether a hyphen behind this character joins it to what follows."""
    return bool(char) and (in_words(char) or char == "_" or char in _CLOSING)


def _without_overlaps(candidates: Iterable[Mention]) -> list[Mention]:
    chosen: list[Mention] = []
    for mention in sorted(candidates, key=lambda m: (m.start - m.end, m.match, m.start)):
        if all(mention.end <= other.start or other.end <= mention.start for other in chosen):
            chosen.append(mention)
    return chosen
