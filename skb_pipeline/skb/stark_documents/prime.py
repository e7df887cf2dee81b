"""Documents in the format of STaRK-Prime, that is of PrimeKG with details."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from skb_pipeline.datasets.stark_names import PRIME_RELATIONS
from skb_pipeline.skb.stark_documents.style import Style, Texts

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


def texts(con: duckdb.DuckDBPyConnection, style: Style) -> Texts:
    """Texts of all candidates.

    Counted are details that are no object (left out), and values of genes that are not formed as expected (they
    stand as they are).
    """
    rows = con.execute(
        "SELECT node_id, node_type, name, fields::VARCHAR AS fields FROM nodes JOIN stark_types USING (node_type) "
        "WHERE candidate ORDER BY node_id"
    ).fetchnumpy()
    counts: dict[str, int] = {}
    relations = _relations(con, style) if style.relations else {}
    documents = np.empty(len(rows["node_id"]), dtype=object)
    for i, (node_id, node_type, name, fields) in enumerate(
        zip(rows["node_id"].tolist(), rows["node_type"], rows["name"], rows["fields"], strict=True)
    ):
        documents[i] = _node(node_type, name, json.loads(fields), counts) + relations.get(node_id, "")
    return Texts(rows["node_id"], documents, counts)


def _node(node_type: str, name: str, fields: dict[str, Any], counts: dict[str, int]) -> str:
    text = f"- name: {name}\n- type: {node_type}\n"
    if "source" in fields:
        text += f"- source: {fields['source']}\n"
    details = fields.get("details", {})
    if not isinstance(details, dict):
        _count(counts, "details are no object")
        return text
    lines = []
    for key, value in _filled(details).items():
        if key.startswith("_") or "_id" in key:
            continue
        if node_type == _GENE and key in _GLOSSES:
            lines.append(f"  - {key} ({_GLOSSES[key]}): {_gene_value(key, value, counts)}\n")
        else:
            lines.append(f"  - {key}: {value}\n")
    return text + "- details:\n" + "".join(lines) if lines else text


def _filled(details: dict[str, Any]) -> dict[str, Any]:
    """Details without missing values, in objects within them too."""
    return {
        key: _filled(value) if isinstance(value, dict) else value
        for key, value in details.items()
        if value is not None and str(value) not in ("", "nan")
    }


def _gene_value(key: str, value: Any, counts: dict[str, int]) -> Any:
    """What is shown of a gene's value: descriptions of interpro entries, texts of generif, the first position."""
    if key == "genomic_pos":
        return value[0] if isinstance(value, list) and value else value
    shown = {"interpro": "desc", "generif": "text"}.get(key)
    if shown is None:
        return value
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not all(isinstance(e, dict) and shown in e for e in entries):
        _count(counts, f"{key} of genes that is no list of objects with {shown!r}")
        return value
    found = [entry[shown] for entry in entries]
    if key == "interpro":
        return found
    return " ".join("; ".join(map(str, found)).split(" ")[:MAX_GENERIF_WORDS])


def _count(counts: dict[str, int], reason: str) -> None:
    counts[reason] = counts.get(reason, 0) + 1


def _relations(con: duckdb.DuckDBPyConnection, style: Style) -> dict[int, str]:
    """node_id -> its relations: under each, names of neighbours by type."""
    con.execute("DROP TABLE IF EXISTS temp.stark_groups")
    cap = "" if style.cap is None else f"[1:{style.cap}]"
    con.execute(f"""
        CREATE TEMP TABLE stark_groups AS
        WITH blocks AS (
            SELECT src, relation, code, min(canonical) AS first,
                   node_type || ': (' || array_to_string(list(name ORDER BY canonical){cap}, ', ') || '),' AS text
            FROM (SELECT DISTINCT src, relation, dst FROM adjacency)
            JOIN nodes ON nodes.node_id = dst JOIN stark_types USING (node_type)
            GROUP BY src, relation, code, node_type
        )
        SELECT src, relation, list(code ORDER BY first) AS codes, list(text ORDER BY first) AS texts
        FROM blocks GROUP BY src, relation
    """)
    for name, table in (("stark_orders", _type_orders(con, style)), ("stark_places", _places(con))):
        con.register(name, table)
    rows = con.execute(r"""
        SELECT src, '- relations:' || string_agg(
            E'\n  ' || heading || ': {' || array_to_string(list_select(texts, "order"), '') || '}', '' ORDER BY place)
        FROM stark_groups JOIN stark_orders USING (codes) JOIN stark_places USING (relation)
        GROUP BY src
    """).fetchall()
    for name in ("stark_orders", "stark_places"):
        con.unregister(name)
    con.execute("DROP TABLE temp.stark_groups")
    return dict(rows)


def _type_orders(con: duckdb.DuckDBPyConnection, style: Style) -> pa.Table:
    """For each sequence of type codes as first met, the 1-based order in which they are shown.

    STaRK goes through a Python set of the codes, whose order depends on the set's size; else they are shown by code.
    """
    sequences = [codes for (codes,) in con.execute("SELECT DISTINCT codes FROM stark_groups").fetchall()]
    shown = [list(set(codes)) if style.compat else sorted(codes) for codes in sequences]
    orders = [[codes.index(c) + 1 for c in order] for codes, order in zip(sequences, shown, strict=True)]
    lists = pa.list_(pa.int64())
    return pa.table({"codes": pa.array(sequences, lists), "order": pa.array(orders, lists)})


def _places(con: duckdb.DuckDBPyConnection) -> pa.Table:
    """Heading and place of each declared relation: in STaRK's order, then any others as declared."""
    declared = [name for (name,) in con.execute("SELECT relation FROM stark_relations").fetchall()]
    ordered = sorted(declared, key=lambda r: PRIME_RELATIONS.index(r) if r in PRIME_RELATIONS else len(PRIME_RELATIONS))
    return pa.table(
        {
            "relation": pa.array(ordered, pa.string()),
            "heading": pa.array([name.replace(" ", "_") for name in ordered], pa.string()),
            "place": pa.array(range(len(ordered)), pa.int64()),
        }
    )
