"""Textual conditions: words of a node's own text that narrow the answers of a graph question."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb

from skb_pipeline.datasets.spec import NodeTypeSpec
from skb_pipeline.questions.topology import Nodes
from skb_pipeline.text.folding import in_words, run_pattern
from skb_pipeline.text.hashing import key_hash
from skb_pipeline.text.settings import Shape

_JOINS = re.compile(r"[\s-]")
"""Between the two words of a phrase stands one blank or hyphen, so that no phrase runs over a full stop."""
MIN_LETTERS = 4
MAX_WORDS = 500
"""Words of one field value among which phrases are looked for."""
MAX_CACHED = 50_000

_STOP_TEXT = """
abnormal abnormally about above accompanied affect affected after against along also although among
another around associated based because been before being below between both cannot cause caused causes
causing characterised characterized common commonly could describe described different does doing done
down during each either especially even every field find found from further generally given have having
here however including increased into itself just known lack lacks large lead leading leads less like
located long made mainly make many more most much must near nearly neither never next node nodes normal
normally often only onto other others over particularly presence present rather refers relation results
reveal same seen several shall short should show shown shows similar since small some such than that their
them then there these they this those through thus together toward towards type types under until upon
used using usually various very well were what when where whether which while whose will with within
without would your
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
"""Words that say little about any subject."""


def words(text: str) -> list[str]:
    """Casefolded words: maximal runs of letters, digits and their marks."""
    return _word().findall(text.casefold())


@functools.cache
def _word() -> re.Pattern[str]:
    return re.compile(run_pattern())


@dataclass(frozen=True)
class NodeText:
    """Text of one node.

    Attributes:
        name: its name.
        values: its other text values, without aliases.
        haystack: words of every text value between blanks, one value per line.
    """

    name: str
    values: tuple[str, ...]
    haystack: str

    def contains(self, phrase: str) -> bool:
        """Whether some value holds the words of ``phrase`` one after the other (``phrase`` as from ``words``)."""
        return f" {phrase} " in self.haystack


class TextStore:
    """Reads the text of nodes: values of the document fields of shape ``text`` or ``texts``."""

    def __init__(self, con: duckdb.DuckDBPyConnection, nodes: Nodes, node_types: dict[str, NodeTypeSpec]) -> None:
        self._con = con
        self._nodes = nodes
        self._specs = node_types
        self._cache: dict[int, NodeText] = {}

    def load(self, positions: Iterable[int]) -> dict[int, NodeText]:
        """Texts by position; one statement for all that were not read lately."""
        wanted = set(positions)
        if len(self._cache) + len(wanted) > MAX_CACHED:
            self._cache.clear()
        missing = sorted(wanted - self._cache.keys())
        if missing:
            rows = self._con.execute(
                "SELECT node_id, fields FROM nodes WHERE node_id IN (SELECT unnest(?::BIGINT[]))",
                [self._nodes.node_ids[missing].tolist()],
            ).fetchall()
            by_id = dict(rows)
            for position in missing:
                fields = json.loads(by_id[int(self._nodes.node_ids[position])])
                self._cache[position] = self._node_text(position, fields)
        return {position: self._cache[position] for position in wanted}

    def _node_text(self, position: int, fields: dict[str, object]) -> NodeText:
        spec = self._specs[self._nodes.types[position]]
        haystack, values = [], []
        for field in text_fields(spec):
            for value in _texts(fields.get(field)):
                haystack.append(f" {' '.join(words(value))} ")
                if field not in (spec.name_field, spec.alias_field):
                    values.append(value)
        return NodeText(self._nodes.names[position], tuple(values), "\n".join(haystack))


def _is_letter(char: str) -> bool:
    return char.isalpha() or (in_words(char) and not char.isalnum())


def text_fields(spec: NodeTypeSpec) -> list[str]:
    """Document fields that hold text, in document order."""
    return [f for f in spec.document if spec.fields[f].shape in (Shape.TEXT, Shape.TEXTS)]


def only_named(spec: NodeTypeSpec) -> bool:
    """The type has no text beside names and aliases."""
    return all(f in (spec.name_field, spec.alias_field) for f in text_fields(spec))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def candidate_phrases(text: NodeText, from_name: bool, taken: Sequence[str], query_id: str) -> list[str]:
    """Words and pairs of neighbouring words a condition could be made of, in the order to try them.

    Left out are short words, numbers, function words, every word of ``taken`` and, where the phrase does not come
    from the name, every word of the node's own name. A whole name is no condition.

    Args:
        text: text of the gold node.
        from_name: take the words from the name, for a type that has no other text.
        taken: texts whose words would repeat what the question says anyway (anchors, type).
        query_id: key of the order.
    """
    excluded = STOP_WORDS.union(*map(words, taken), () if from_name else words(text.name))
    phrases: set[str] = set()
    for value in [text.name] if from_name else text.values:
        found = list(_word().finditer(value.casefold()))[:MAX_WORDS]
        good = [len(m[0]) >= MIN_LETTERS and all(map(_is_letter, m[0])) and m[0] not in excluded for m in found]
        phrases.update(m[0] for m, ok in zip(found, good, strict=True) if ok)
        folded = value.casefold()
        for i in range(len(found) - 1):
            if good[i] and good[i + 1] and _JOINS.fullmatch(folded, found[i].end(), found[i + 1].start()):
                phrases.add(f"{found[i][0]} {found[i + 1][0]}")
    if from_name:
        phrases.discard(" ".join(words(text.name)))
    return sorted(phrases, key=lambda phrase: (key_hash(query_id, "phrase", phrase), phrase))
