"""Documents in the format of STaRK-Prime, that is of PrimeKG with details."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, ClassVar

import duckdb
import numpy as np
import pyarrow as pa

from skb_pipeline.datasets.stark_names import PRIME_RELATIONS
from skb_pipeline.skb.stark_documents.columns import Lists, concat, given, line
from skb_pipeline.skb.stark_documents.graph import Neighbours, load_names, load_neighbours
from skb_pipeline.skb.stark_documents.style import Style

MAX_GENERIF_WORDS = 50_000

_GENE = "gene/protein"
_GLOSSES = {
    "name": "gene name",
    "type_of_gene": "gene types",
    "alias": "other gene names",
    "other_names": "extended other gene names",
    "genomic_pos": "genomic position",
    "generif": "PubMed text",
    "interpro": "protein family and classification information",
    "summary": "protein summary text",
}


class PrimeTexts:
    """Texts of nodes, batch by batch.

    ``counts`` grows with each batch. Counted are details that are no object (left out), and values of genes that are
    not formed as expected (they stand as they are).
    """

    columns: ClassVar[str] = "fields::VARCHAR AS fields"

    def __init__(self, con: duckdb.DuckDBPyConnection, style: Style) -> None:
        self.style = style
        self.counts: Counter[str] = Counter()
        self._neighbours: dict[str, Neighbours] = {}
        if style.relations:
            self._neighbours = load_neighbours(con, sorted(style.relation_names, key=_relation_code))
            self._nodes = load_names(con, style.types)
            self._type_names = {code: name for name, code in style.types.items()}

    def texts(self, rows: pa.Table) -> np.ndarray:
        """Texts of the rows of a batch, object [rows]."""
        node_types, names, fields = (rows[name].to_pylist() for name in ("node_type", "name", "fields"))
        texts = np.empty(len(rows), dtype=object)
        parsed = json.loads(f"[{','.join(fields)}]")  # one call costs less than one per node
        texts[:] = [_node(*node, self.counts) for node in zip(node_types, names, parsed, strict=True)]
        if self.style.relations:
            texts += self._relations(np.asarray(rows["canonical"])).to_numpy(zero_copy_only=False)
        return texts

    def _relations(self, positions: np.ndarray) -> pa.Array:
        """Under each relation, names of neighbours by type."""
        parts = [
            line(f"\n  {relation.replace(' ', '_')}: {{", given(self._by_type(pairs.of(positions))), "}")
            for relation, pairs in self._neighbours.items()
        ]
        return line("- relations:", given(concat(*parts))).fill_null("") if parts else pa.array([""] * len(positions))

    def _by_type(self, others: Lists) -> pa.Array:
        """One text per group: a block for each type among the neighbours."""
        positions, owners = np.asarray(others.values), others.owners
        codes = self._nodes.types[positions]
        order = np.lexsort((self._shown_at(others, codes), owners))
        owners, codes = owners[order], codes[order]
        begins = np.flatnonzero(np.diff(owners, prepend=-1) | np.diff(codes, prepend=-1))
        names = Lists(self._nodes.names.take(pa.array(positions[order])), np.append(begins, len(order)))
        types = pa.array([self._type_names[code] for code in codes[begins].tolist()], pa.string())
        blocks = line(types, ": (", names.first(self.style.cap).joined(", "), "),")
        return Lists(blocks, np.searchsorted(owners[begins], np.arange(len(others.offsets)))).joined()

    def _shown_at(self, others: Lists, codes: np.ndarray) -> np.ndarray:
        """Where the block of each neighbour's type stands, int64 [m]: by type code."""
        if not self.style.compat:
            return codes
        # STaRK goes through a Python set of the codes. For small integers its order is fixed, but not always rising.
        shown = np.empty(len(codes), dtype=np.int64)
        for begin, end in zip(others.offsets[:-1].tolist(), others.offsets[1:].tolist(), strict=True):
            group = codes[begin:end].tolist()
            places = {code: place for place, code in enumerate(set(group))}
            shown[begin:end] = [places[code] for code in group]
        return shown


def _node(node_type: str, name: str, fields: dict[str, Any], counts: Counter[str]) -> str:
    text = f"- name: {name}\n- type: {node_type}\n"
    if "source" in fields:
        text += f"- source: {fields['source']}\n"
    details = fields.get("details", {})
    if not isinstance(details, dict):
        counts["details are no object"] += 1
        return text
    is_gene = node_type == _GENE
    lines = []
    for key, value in details.items():
        if value is None or value == "" or value == "nan" or key[:1] == "_" or "_id" in key:
            continue
        if isinstance(value, dict):
            value = _filled(value)
        if is_gene and key in _GLOSSES:
            lines.append(f"  - {key} ({_GLOSSES[key]}): {_gene_value(key, value, counts)}\n")
        else:
            lines.append(f"  - {key}: {value}\n")
    return text + "- details:\n" + "".join(lines) if lines else text


def _filled(details: dict[str, Any]) -> dict[str, Any]:
    """An object without missing values, in objects within it too."""
    return {
        key: _filled(value) if isinstance(value, dict) else value
        for key, value in details.items()
        if value is not None and value not in ("", "nan")
    }


def _gene_value(key: str, value: Any, counts: Counter[str]) -> Any:
    """What is shown of a gene's value: descriptions of interpro entries, texts of generif, the first position."""
    if key == "genomic_pos":
        return value[0] if isinstance(value, list) and value else value
    shown = {"interpro": "desc", "generif": "text"}.get(key)
    if shown is None:
        return value
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not all(isinstance(e, dict) and shown in e for e in entries):
        counts[f"{key} of genes that is no list of objects with {shown!r}"] += 1
        return value
    found = [entry[shown] for entry in entries]
    if key == "interpro":
        return found
    return " ".join("; ".join(map(str, found)).split(" ")[:MAX_GENERIF_WORDS])


def _relation_code(name: str) -> int:
    """STaRK's code of a relation; any other follows, in declared order."""
    return PRIME_RELATIONS.index(name) if name in PRIME_RELATIONS else len(PRIME_RELATIONS)
