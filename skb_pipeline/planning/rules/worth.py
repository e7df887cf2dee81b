"""Which names are worth naming: whether a word of a question that is some node's name means that node, or is a word
like any other.

The SKB itself tells: of the nodes whose texts have the word, how many are the named node or linked with it? Where
``asthma`` stands in the text of a drug, that drug is mostly about the disease asthma; where ``organization``
stands in an abstract, that paper has mostly nothing to do with the paper called "Organization".
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb
import numpy as np

from skb_pipeline.linking.folding import FUNCTION_WORDS, fold, words
from skb_pipeline.linking.name_index import Match, Mention, NameIndex, is_symbol
from skb_pipeline.planning.rules.fitness import TextFitness

_TRUST, _TRUST_SHARE = 5.0, 0.001
"""A name is trusted like one that this many texts (or this share of all) have used in its sense: what few texts use
cannot be judged by them, and is rare."""
_PLAIN = 0.3
"""Least share of uses in the name's sense, beyond chance, for a name in small letters (see ``_is_plain``)."""
_WRITTEN = 0.1
"""The same for a name that is written like one."""
_COMMON, _IN_COMMON = 0.05, 0.6
"""The same for one plain word that more than this share of the texts has (those of the type that has it most)."""
_VOCABULARY = 0.2
"""A type whose names of one word make up more than this share of the words of other types' texts is one of words."""
_SENTENCE_ENDS = ".?!:;\n"
_NEIGHBOURS = "SELECT DISTINCT dst FROM adjacency WHERE src IN (SELECT unnest($ids::BIGINT[]))"


class Use(NamedTuple):
    """How the texts of an SKB use the words of a name.

    Attributes:
        texts: nodes whose text has all of the words.
        meant: those of them that are named so, or linked with a node that is.
        chance: how many of them would be if words and links had nothing to do with each other (the texts of each type
            times the share of its nodes that are named or linked so).
        share: share of the nodes with the words among those of the type that most of them are of.
    """

    texts: int
    meant: int
    chance: float
    share: float


class NameWorth:
    """Judges the mentions of questions.

    Args:
        con: the SKB file; must stay open.
        fitness: the words of its nodes.
        index: their names.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, fitness: TextFitness, index: NameIndex) -> None:
        self._con, self._fitness = con, fitness
        types = np.asarray(con.execute("SELECT node_type FROM nodes ORDER BY node_id").fetchnumpy()["node_type"], str)
        names, self._types = np.unique(types, return_inverse=True)
        self._per_type = np.maximum(np.bincount(self._types), 1)
        self._trust = max(_TRUST, _TRUST_SHARE * len(types))
        self._known: dict[tuple[bytes, str], Use] = {}
        words_of = np.bincount(self._types, weights=fitness.lengths)
        self.coverage: dict[str, float] = {}
        """Type -> share of the words of other types' texts that are its names of one word."""
        for node_type, ordinary in index.ordinary_names().items():
            own = int(np.searchsorted(names, node_type))
            uses = sum(int((self._types[fitness.rows_with([word])] != own).sum()) for word in ordinary)
            self.coverage[node_type] = uses / max(float(words_of.sum() - words_of[own]), 1.0)

    def common(self, question: str, mention: Mention) -> str | None:
        """Why a mention is likelier a word like any other than a name; None for one that is a name.

        With a trust of t texts, at least a share s of (meant - chance + t) / (texts + t) makes it a name. A symbol
        (``GCK``) that agrees with its name is one, unless all of the question is in capitals, and so is what is
        written letter by letter as a name with a capital is, within a sentence whose other words have none.
        """
        if is_symbol(mention.text) and mention.match <= Match.FOLDED and not question.isupper():
            return None
        if mention.match is Match.EXACT and not mention.text.islower() and _stands_out(question, mention):
            return None
        plain, folded = _is_plain(question, mention), fold(mention.text)
        if plain and " " not in folded and all(self.coverage.get(label, 0.0) > _VOCABULARY for label in mention.nodes):
            return f"is a common word, as most names of {' and '.join(mention.nodes)} are"
        least = _PLAIN if plain else _WRITTEN
        rows = self._fitness.rows_with(folded.split())
        if self._trust >= least * (len(rows) + self._trust):
            return None
        named = np.unique(np.concatenate(list(mention.nodes.values())))
        key = named.tobytes(), folded
        if key not in self._known:
            self._known[key] = self._use(rows, named)
        use = self._known[key]
        if least == _PLAIN and " " not in folded and use.share > _COMMON:
            least = _IN_COMMON
        if use.meant - use.chance + self._trust >= least * (use.texts + self._trust):
            return None
        return f"is a common word: of {use.texts} texts with it, {use.meant} have to do with what is called so"

    def _use(self, rows: np.ndarray, named: np.ndarray) -> Use:
        linked = self._con.execute(_NEIGHBOURS, {"ids": named.tolist()}).fetchnumpy()["dst"]
        meant = self._fitness.rows_of(np.union1d(named, np.asarray(linked, np.int64)))
        texts, found = (np.bincount(self._types[r], minlength=len(self._per_type)) for r in (rows, meant))
        chance = float((texts * found / self._per_type).sum())
        most = int(texts.argmax())
        return Use(len(rows), int(np.isin(rows, meant).sum()), chance, float(texts[most] / self._per_type[most]))


def _is_plain(question: str, mention: Mention) -> bool:
    """Whether a mention is not written like a name: small, with a capital where any word has one, or with capitals that
    are not the name's. Several words in small letters are, where the name itself has them so."""
    text = mention.text
    if " " in fold(text):
        return text.islower() and mention.match > Match.EXACT
    before = question[: mention.start].rstrip()
    begins = not before or before[-1] in _SENTENCE_ENDS
    return text.islower() or begins or question.isupper() or mention.match > Match.EXACT


def _stands_out(question: str, mention: Mention) -> bool:
    """Whether a mention does not begin a sentence, most of whose other content words begin with a small letter."""
    begin = max(question.rfind(sign, 0, mention.start) for sign in _SENTENCE_ENDS) + 1
    end = min((place for sign in _SENTENCE_ENDS if (place := question.find(sign, mention.end)) >= 0), default=None)
    if not question[begin : mention.start].strip():
        return False
    others = question[begin : mention.start], question[mention.end : end]
    content = [part[w.start] for part in others for w in words(part) if w.folded not in FUNCTION_WORDS]
    return 2 * sum(letter.isupper() for letter in content) <= len(content)
