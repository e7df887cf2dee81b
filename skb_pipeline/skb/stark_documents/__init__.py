"""Documents as the STaRK benchmark has them, for Amazon, MAG and PrimeKG (see ``docs/stark.md``).

Each of the modules ``amazon``, ``mag`` and ``prime`` has a class that turns a batch of nodes into texts, column by
column, with neighbours from sorted arrays. Only details of PrimeKG, which stand in documents as Python writes lists and
dictionaries, are made node by node.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Protocol

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.datasets.stark_names import PRIME_TYPES
from skb_pipeline.skb.stark_documents.amazon import AmazonTexts
from skb_pipeline.skb.stark_documents.mag import MagTexts
from skb_pipeline.skb.stark_documents.prime import PrimeTexts
from skb_pipeline.skb.stark_documents.style import Style, compact, compact_as_stark

_BATCH = 4_000  # small enough that its columns stay in the cache
_FETCHED = 5  # batches read by one statement, whose own cost counts where texts are short


class _Renderer(Protocol):
    columns: ClassVar[str]
    counts: Counter[str]

    def texts(self, rows: pa.Table) -> np.ndarray: ...


def build_stark_documents(
    con: duckdb.DuckDBPyConnection, spec: DatasetSpec, *, batch: int = _BATCH
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Documents of all candidate nodes in the format ``spec.documents.format``, which must be a STaRK format.

    Args:
        con: an SKB file.
        spec: gives candidate types, format, ``relations``, ``neighbours`` and ``compact``, and by the source's
            argument ``stark_compat`` whether faults of STaRK are repeated.
        batch: nodes worked on at once; sets memory use, not the result.

    Returns:
        Frame ``node_id, external_id, node_type, name, document`` in canonical order, and counts of what could not be
        read or was left out, by a readable reason; reasons that did not occur are absent.
    """
    style = Style(
        types={name: _code(name, i) for i, name in enumerate(spec.node_types)},
        relation_names=list(dict.fromkeys(r.name for r in spec.relations)),
        relations=spec.documents.relations,
        cap=spec.documents.neighbours,
        compat=spec.stark_compat,
        compact=spec.documents.compact,
    )
    renderer = _renderer(con, spec.documents.format, style)
    ((end,),) = con.execute("SELECT coalesce(max(canonical) + 1, 0) FROM nodes").fetchall()
    frames = []
    for begin in range(0, max(end, 1), _FETCHED * batch):
        rows = con.sql(
            f"SELECT node_id, external_id, node_type, name, canonical, {renderer.columns} FROM nodes "
            "WHERE list_contains(?, node_type) AND canonical >= ? AND canonical < ?",
            params=[spec.candidate_types, begin, begin + _FETCHED * batch],
        ).to_arrow_table()
        if (np.diff(np.asarray(rows["canonical"])) < 0).any():
            rows = rows.sort_by("canonical")
        frame = rows.select(["node_id", "external_id", "node_type", "name"]).to_pandas()
        rows = rows.combine_chunks()
        parts = [renderer.texts(rows.slice(at, batch)) for at in range(0, len(rows), batch)]
        frame["document"] = np.concatenate([np.empty(0, dtype=object), *parts])
        frames.append(frame)
    nodes = pd.concat(frames, ignore_index=True)
    if style.compact:
        nodes["document"] = [
            _compacted(text, name, node_type, spec.documents.format, style.compat)
            for text, name, node_type in zip(nodes["document"], nodes["name"], nodes["node_type"], strict=True)
        ]
    return nodes, {reason: n for reason, n in renderer.counts.items() if n}


def _renderer(con: duckdb.DuckDBPyConnection, document_format: str, style: Style) -> _Renderer:
    if document_format == "stark_amazon":
        return AmazonTexts(con, style)
    return MagTexts(con, style) if document_format == "stark_mag" else PrimeTexts(con, style)


def _compacted(text: str, name: str, node_type: str, document_format: str, compat: bool) -> str:
    if not compat:
        return compact(text, name)
    # STaRK returns the one line of a brand, a category or a colour before it comes to the compact form.
    return text if document_format == "stark_amazon" and node_type != "product" else compact_as_stark(text)


def _code(type_name: str, position: int) -> int:
    """STaRK's code of a PrimeKG type; any other type follows these in declared order."""
    return PRIME_TYPES.index(type_name) if type_name in PRIME_TYPES else len(PRIME_TYPES) + position
