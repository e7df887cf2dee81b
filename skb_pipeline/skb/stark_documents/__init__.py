"""Documents as the STaRK benchmark has them, for Amazon, MAG and PrimeKG (see ``docs/stark.md``).

Each of the modules ``amazon``, ``mag`` and ``prime`` has ``texts(con, style)``, which gives one text per candidate.
Texts are put together inside DuckDB, all nodes at once; details of PrimeKG, which stand in documents as Python writes
lists and dictionaries, are added in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import duckdb
import pandas as pd
import pyarrow as pa

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.datasets.stark_names import PRIME_TYPES
from skb_pipeline.skb.stark_documents import amazon, mag, prime
from skb_pipeline.skb.stark_documents.style import Style, Texts, compact, compact_as_stark

_FORMATS: dict[str, Callable[[duckdb.DuckDBPyConnection, Style], Texts]] = {
    "stark_amazon": amazon.texts,
    "stark_mag": mag.texts,
    "stark_prime": prime.texts,
}


def build_stark_documents(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> tuple[pd.DataFrame, dict[str, int]]:
    """Documents of all candidate nodes in the format ``spec.documents.format``, which must be a STaRK format.

    Args:
        con: an SKB file.
        spec: gives candidate types, format, ``relations``, ``neighbours`` and ``compact``, and by the source's
            argument ``stark_compat`` whether faults of STaRK are repeated.

    Returns:
        Frame ``node_id, external_id, node_type, name, document`` in canonical order, and counts of what could not be
        read or was left out, by a readable reason; reasons that did not occur are absent.
    """
    style = Style(
        relations=spec.documents.relations,
        cap=spec.documents.neighbours,
        compat=spec.stark_compat,
        compact=spec.documents.compact,
    )
    types = pa.table(
        {
            "node_type": pa.array(list(spec.node_types), pa.string()),
            "code": pa.array([_code(name, i) for i, name in enumerate(spec.node_types)], pa.int64()),
            "candidate": pa.array([name in spec.candidate_types for name in spec.node_types], pa.bool_()),
        }
    )
    relations = pa.table({"relation": pa.array(list(dict.fromkeys(r.name for r in spec.relations)), pa.string())})
    with ExitStack() as stack:
        for name, table in (("stark_types", types), ("stark_relations", relations)):
            con.register(name, table)
            stack.callback(con.unregister, name)
        found = _FORMATS[spec.documents.format](con, style)
        nodes = con.execute(
            "SELECT node_id, external_id, node_type, name, canonical FROM nodes "
            "JOIN stark_types USING (node_type) WHERE candidate ORDER BY canonical"
        ).df()
    nodes["document"] = nodes["node_id"].map(pd.Series(found.documents, index=found.node_ids, dtype=object))
    if style.compact:
        nodes["document"] = [
            _compacted(text, name, node_type, spec.documents.format, style.compat)
            for text, name, node_type in zip(nodes["document"], nodes["name"], nodes["node_type"], strict=True)
        ]
    counts = {reason: n for reason, n in found.counts.items() if n}
    return nodes.drop(columns="canonical"), counts


def _compacted(text: str, name: str, node_type: str, document_format: str, compat: bool) -> str:
    if not compat:
        return compact(text, name)
    # STaRK returns the one line of a brand, a category or a colour before it comes to the compact form.
    return text if document_format == "stark_amazon" and node_type != "product" else compact_as_stark(text)


def _code(type_name: str, position: int) -> int:
    """STaRK's code of a PrimeKG type; any other type follows these in declared order."""
    return PRIME_TYPES.index(type_name) if type_name in PRIME_TYPES else len(PRIME_TYPES) + position
