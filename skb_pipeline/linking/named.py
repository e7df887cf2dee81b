"""Which nodes a whole question names: one that is nothing but a node's name asks for that node.

Question and names agree when their folded forms do (:mod:`.folding`: case, accents, punctuation and possessive endings
make no difference); texts without a letter or digit agree when they are equal but for case and runs of blanks. Nothing
is guessed here: no plural, no beginning of a name, no spelling mistake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.linking.folding import fold
from skb_pipeline.linking.name_index import node_surfaces
from skb_pipeline.storage.duck import frame_hash
from skb_pipeline.storage.frames import Column, Frame

VERSION = "1"
NAMES = Frame(
    name="Names",
    description="Names and other names of all candidate nodes with the form by which whole questions are compared.",
    file="names.parquet",
    key=("node_id", "text"),
    columns={
        "folded": Column(pa.string(), filled=True),
        "node_id": Column(pa.int64(), filled=True, least=0),
        "node_type": Column(pa.string(), filled=True),
        "external_id": Column(pa.string(), filled=True),
        "text": Column(pa.string(), filled=True),
        "is_alias": Column(pa.bool_(), filled=True),
    },
)
"""Sorted by ``folded``, so that few rows are read for few questions."""


class Named(IntEnum):
    """How a question names a node, the surest first."""

    NAME = 0
    """Letter by letter by its name."""
    FOLDED_NAME = 1
    """By its name, when both are folded."""
    ALIAS = 2
    """Letter by letter by another name of it."""
    FOLDED_ALIAS = 3


def whole_name(text: str) -> str:
    """The form by which a question and a name are compared."""
    return fold(text) or " ".join(text.casefold().split())


def names_of(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> pd.DataFrame:
    """Rows of ``NAMES``.

    Args:
        con: an SKB file.
        spec: gives candidate types and further fields that hold names.
    """
    surfaces = pd.DataFrame(
        node_surfaces(con, spec.linking.name_fields), columns=["node_id", "node_type", "text", "is_alias"]
    )
    surfaces = surfaces[surfaces["node_type"].isin(spec.candidate_types)]
    ids = con.execute("SELECT node_id, external_id FROM nodes").df()
    frame = surfaces.merge(ids, on="node_id", how="left")
    frame["folded"] = [whole_name(text) for text in frame["text"]]
    return frame.sort_values(["folded", "node_id", "text"], kind="stable")[NAMES.names].reset_index(drop=True)


def names_hash(frame: pd.DataFrame) -> str:
    """Content hash of ``NAMES`` under external ids."""
    return frame_hash(frame.drop(columns="node_id"))


def nodes_named(path: Path, questions: Sequence[str]) -> list[dict[int, Named]]:
    """For each question the nodes it names as a whole, with the surest way in which it does; mostly none.

    Args:
        path: the file of ``NAMES``.
        questions: cleaned like the names.
    """
    folded = [whole_name(question) for question in questions]
    wanted = sorted({key for key in folded if key})
    rows = pq.read_table(path, columns=["folded", "node_id", "text", "is_alias"], filters=[("folded", "in", wanted)])
    by_key: dict[str, list[tuple[int, str, bool]]] = defaultdict(list)
    for row in rows.to_pylist():
        by_key[row["folded"]].append((row["node_id"], row["text"], row["is_alias"]))
    found: list[dict[int, Named]] = []
    for question, key in zip(questions, folded, strict=True):
        grades: dict[int, Named] = {}
        for node_id, text, is_alias in by_key.get(key, ()):
            grade = Named(2 * is_alias + (text != question))
            grades[node_id] = min(grade, grades.get(node_id, grade))
        found.append(grades)
    return found
