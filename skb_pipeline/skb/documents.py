"""Node documents: the text of a node, field by field under labels, and its neighbours' names by relation.

A document looks like this (fields in the order of the spec, empty ones left out)::

    phenotype: Bradycardia
    synonyms: Slow heartbeats
    definition: A slower than normal heart rate …
    kind of: Arrhythmia
    seen in: Long QT syndrome 9; Sick sinus syndrome 2 (+31 more)

Neighbours stand in canonical order, so the text does not depend on the order of any row. Every name stands in
it letter by letter; no replacement is ever run over a finished document.

A line of fields is ``label: value``; the name's label is the node's type. A JSON value stands in one line:
``key: value`` joined by commas, items by semicolons, nulls and empty values left out, objects within objects in
brackets. Headings with the same text are one line, in declared order of the relations, seen from the head first; a
neighbour reached twice under it is named once.

This is the format ``labelled``, made in :mod:`.labelled_documents`; documents as the STaRK benchmark has them are made
in :mod:`.stark_documents`. Here both get their hashes.
"""

from __future__ import annotations

import hashlib
import logging

import duckdb
import pandas as pd
import pyarrow as pa

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.labelled_documents import build_labelled_documents
from skb_pipeline.skb.stark_documents import build_stark_documents
from skb_pipeline.storage.duck import frame_hash
from skb_pipeline.storage.frames import Column, Frame

VERSION = "3"
_LOG = logging.getLogger(__name__)
DOCUMENTS = Frame(
    name="Documents",
    description="One document per candidate node.",
    file="documents.parquet",
    key=("node_id",),
    columns={
        "node_id": Column(pa.int64(), filled=True, unique=True, least=0),
        "external_id": Column(pa.string(), filled=True),
        "node_type": Column(pa.string(), filled=True),
        "name": Column(pa.string(), filled=True),
        "document": Column(pa.string(), filled=True),
        "text_hash": Column(pa.string(), filled=True),
    },
)


def build_documents(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> pd.DataFrame:
    """Documents of all candidate nodes.

    Args:
        con: an SKB file.
        spec: gives candidate types, format, document fields, labels and the cap on neighbours.

    Returns:
        Frame of ``DOCUMENTS`` in canonical order; ``text_hash`` is the sha256 of the document. Its
        ``attrs["counts"]`` says, by reason, how often something could not be read or was left out.
    """
    counts: dict[str, int] = {}
    if spec.documents.format == "labelled":
        nodes = build_labelled_documents(con, spec)
    else:
        nodes, counts = build_stark_documents(con, spec)
    for reason, n in counts.items():
        _LOG.warning("documents of %s: %s: %d", spec.name, reason, n)
    nodes["text_hash"] = [hashlib.sha256(d.encode()).hexdigest() for d in nodes["document"]]
    nodes = nodes[DOCUMENTS.names]
    nodes.attrs["counts"] = counts
    return nodes


def documents_hash(documents: pd.DataFrame) -> str:
    """Content hash of a documents frame under external ids."""
    return frame_hash(documents[["node_type", "external_id", "text_hash"]])
