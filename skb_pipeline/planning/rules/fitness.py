"""How well the texts of nodes fit a question: tf-idf cosines over the words of the SKB file, without any model.

The planner uses it to choose between readings of a question that all have answers: the candidates of the right one
tend to be described in the question's own words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import duckdb
import numpy as np

from skb_pipeline.linking.folding import FUNCTION_WORDS, fold_word, singular

_CHARACTERS = 2000
"""Read of a node's text: what a long one tells stands at its beginning, and memory stays bounded."""
_NODES_AT_ONCE = 50_000
"""Their words are held by DuckDB in a form that takes far more room than the arrays kept of them."""
_BATCH = 100_000
_WORDS = """
SELECT word, list(row ORDER BY row) AS rows
FROM (
    SELECT DISTINCT row, unnest(regexp_extract_all(lower(text), '[\\p{L}\\p{M}\\p{N}]+')) AS word
    FROM (
        SELECT (row_number() OVER (ORDER BY n.node_id) - 1 + $before)::INTEGER AS row,
               left(concat_ws(' ', n.name, a.aliases, json_extract(n.fields, '$.*')::VARCHAR), $characters) AS text
        FROM nodes n
        LEFT JOIN (
            SELECT node_id, string_agg(alias, ' ') AS aliases FROM aliases
            WHERE node_id BETWEEN $first AND $last GROUP BY node_id
        ) a ON a.node_id = n.node_id
        WHERE n.node_id BETWEEN $first AND $last
    )
)
GROUP BY word
"""


class TextFitness:
    """Which nodes have a word in their name, other names or fields.

    Read from the SKB file once, some tens of thousands of nodes at a time; a hundred thousand with long texts take some
    ten seconds.

    Args:
        con: the SKB file; not used after construction.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._ids = np.sort(np.asarray(con.execute("SELECT node_id FROM nodes").fetchnumpy()["node_id"], np.int64))
        parts: dict[str, list[np.ndarray]] = defaultdict(list)
        folds: dict[str, list[str]] = {}
        for before in range(0, len(self._ids), _NODES_AT_ONCE):
            ids = self._ids[before : before + _NODES_AT_ONCE]
            given = {"before": before, "characters": _CHARACTERS, "first": int(ids[0]), "last": int(ids[-1])}
            for batch in con.sql(_WORDS, params=given).to_arrow_reader(_BATCH):
                rows = np.split(batch["rows"].flatten().to_numpy(), batch["rows"].offsets.to_numpy()[1:-1])
                for word, found in zip(batch["word"].to_pylist(), rows, strict=True):
                    if word not in folds:
                        folds[word] = [singular(folded) for folded in fold_word(word).split()]
                    for key in folds[word]:
                        parts[key].append(found)
        self._rows = {
            word: found[0].copy() if len(found) == 1 else np.unique(np.concatenate(found))
            for word, found in parts.items()
        }
        squares = np.zeros(len(self._ids))
        self.lengths = np.zeros(len(self._ids))
        """Distinct content words of each node, float64 [nodes in the order of their ids]."""
        for word, found in self._rows.items():
            squares[found] += self._weight(found)
            self.lengths[found] += word not in FUNCTION_WORDS
        self._norms = np.sqrt(np.maximum(squares, 1e-12))

    def of_words(self, folded: Iterable[str]) -> np.ndarray:
        """Fit of every node to some words, float64 [nodes in the order of their ids].

        The value is sum of idf² over the shared words, over the length of the node's own vector of idf (Salton and
        Buckley 1988, "Term-weighting approaches in automatic text retrieval", with binary term frequency): the cosine
        with the question but for the question's own length, which is the same for all nodes. idf = ln(nodes / nodes
        with the word); function words and repetitions do not count.

        Args:
            folded: words as ``folding.words`` gives them.
        """
        values = np.zeros(len(self._ids))
        content = (word for word in folded if word not in FUNCTION_WORDS)
        for key in {singular(part) for word in content for part in word.split()}:
            found = self._rows.get(key)
            if found is not None:
                values[found] += self._weight(found)
        return values / self._norms

    def rows_with(self, folded: Iterable[str]) -> np.ndarray:
        """Places (in the order of ids) of the nodes that have all of some words; ascending, none without content words.

        Args:
            folded: as for :meth:`of_words`.
        """
        found: np.ndarray | None = None
        for key in {singular(part) for word in folded if word not in FUNCTION_WORDS for part in word.split()}:
            rows = self._rows.get(key, np.empty(0, dtype=np.int64))
            found = rows if found is None else np.intersect1d(found, rows, assume_unique=True)
        return np.empty(0, dtype=np.int64) if found is None else found

    def rows_of(self, node_ids: np.ndarray) -> np.ndarray:
        """Places of nodes of the SKB in the order of ids."""
        return np.searchsorted(self._ids, node_ids)

    def pick(self, values: np.ndarray, node_ids: np.ndarray) -> np.ndarray:
        """Those of ``values`` (of :meth:`of_words`) that belong to some nodes of the SKB; float64 [node_ids]."""
        return values[self.rows_of(node_ids)]

    def _weight(self, found: np.ndarray) -> float:
        return float(np.log(len(self._ids) / len(found)) ** 2)
