"""CPU time of our own document format against ``DataFrame.apply``, in one process, on equal documents.

    python benchmarks/labelled_documents.py
    python benchmarks/labelled_documents.py --scale 0.1 --flavours amazon

Made-up STaRK files (see ``datasets.sources.stark.synthetic``) are loaded into an SKB, whose documents are then built in
the format ``labelled`` with the fields and relations of the built-in specs, without and with relations. At scale 1 they
have STaRK's numbers of nodes and edges.

The plain way is that of scripts for shops and of users of ``stark-qa``: a DataFrame with one column per field, one
``apply(axis=1)`` that joins what is there, neighbours from a dictionary of sets. The second plain way looks neighbours
up with masks over the edge list, as ``stark-qa`` does. As each look-up goes through all edges, it is timed for a sample
of nodes spread evenly, and the seconds of ``apply`` are scaled to all of them.

Both sides start from the SKB file and end with a frame of documents, which must be equal. Hashes of the documents, the
same work for both, are left out. Times are CPU seconds of the whole process with all its threads. Before they are
taken, everything is run once on a tiny graph, so that imports, compilation and first allocations do not count. The
plain way goes first, so ours finds the file's pages in DuckDB's cache; without that it needs up to a third more.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pandas as pd

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.sources.stark.synthetic import synthetic_stark
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.skb.labelled_documents import build_labelled_documents
from skb_pipeline.skb.settings import DocumentSpec
from skb_pipeline.storage.duck import connect

T = TypeVar("T")
Relations = Callable[[int, str], dict[str, set[int]]]
"""Neighbours of a node of a type, by heading in the order of the document."""

FLAVOURS: tuple[Flavour, ...] = ("amazon", "mag", "prime")
COLUMNS = ["node_id", "external_id", "node_type", "name", "document"]


def main() -> None:
    """Build each SKB, make its documents both ways, print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--flavours", nargs="+", choices=FLAVOURS, default=FLAVOURS)
    parser.add_argument("--relations", choices=["without", "with", "both"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=200, help="nodes whose neighbours are looked up with masks")
    args = parser.parse_args()
    kinds = {"without": [False], "with": [True], "both": [False, True]}[args.relations]
    for flavour in args.flavours:
        with redirect_stdout(StringIO()):
            compare(flavour, 0.0, args.seed, kinds, args.sample)
        compare(flavour, args.scale, args.seed, kinds, args.sample)
    print(f"CPU seconds; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def compare(flavour: Flavour, scale: float, seed: int, kinds: list[bool], sample: int) -> None:
    """Print CPU seconds of ours and of the plain ways, whose documents must be equal."""
    with tempfile.TemporaryDirectory() as folder:
        spec = get_spec(flavour)
        source = spec.source.model_copy(update={"args": {"flavour": flavour, "folder": folder}})
        spec = spec.model_copy(update={"source": source})
        synthetic_stark(Path(folder), flavour, scale, seed)
        ingest(spec, open_source(spec), Path(folder) / "skb.duckdb")
        with connect(Path(folder) / "skb.duckdb", read_only=True) as con:
            for relations in kinds:
                spec = spec.model_copy(update={"documents": DocumentSpec(relations=relations)})
                compare_ways(con, spec, sample)


def compare_ways(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, sample: int) -> None:
    """Print one comparison."""
    plain_frame, plain = timed(partial(plain_documents, con, spec))
    found, ours = timed(partial(build_labelled_documents, con, spec))
    size = found["document"].str.len().sum() / 1e6
    with_relations = spec.documents.relations
    print(
        f"{spec.name}, {len(found):,} documents, {size:,.0f} M characters, {'with' if with_relations else 'without'} "
        f"relations: {ours:.2f} s, {len(found) / ours:,.0f} documents/s",
        flush=True,
    )
    pd.testing.assert_frame_equal(found, plain_frame)
    tell("apply" + (" and a dictionary of sets" if with_relations else ""), plain, ours)
    if with_relations:
        chosen = np.unique(np.linspace(0, len(found) - 1, sample).astype(np.int64))
        theirs, masks = documents_by_masks(con, spec, chosen)
        pd.testing.assert_frame_equal(found.iloc[chosen].reset_index(drop=True), theirs)
        tell(f"apply and masks over edges (scaled from {len(chosen)} nodes)", masks, ours)


def tell(what: str, theirs: float, ours: float) -> None:
    """Print one peer's time and how many times ours it is."""
    print(f"  {theirs / ours:8.1f} times: {what}, {theirs:.2f} s", flush=True)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Result and CPU seconds of all threads."""
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def plain_documents(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> pd.DataFrame:
    """Documents with one ``apply``; neighbours from a dictionary of sets."""
    nodes = read_nodes(con)
    return finished(candidates(nodes, spec), spec, nodes, neighbours_from_sets(con, spec, nodes))


def documents_by_masks(
    con: duckdb.DuckDBPyConnection, spec: DatasetSpec, chosen: np.ndarray
) -> tuple[pd.DataFrame, float]:
    """Documents of the chosen rows, and CPU seconds that all would take: reading once, ``apply`` as often as needed."""
    begin = time.process_time()
    nodes = read_nodes(con)
    asked = candidates(nodes, spec)
    relations = neighbours_by_masks(con, spec, nodes)
    read = time.process_time()
    frame = finished(asked.iloc[chosen].reset_index(drop=True), spec, nodes, relations)
    return frame, read - begin + (time.process_time() - read) * len(asked) / len(chosen)


def read_nodes(con: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """All nodes in canonical order."""
    return con.execute(
        "SELECT node_id, external_id, node_type, name, fields, canonical FROM nodes ORDER BY canonical"
    ).df()


def candidates(nodes: pd.DataFrame, spec: DatasetSpec) -> pd.DataFrame:
    """The nodes that get documents, with one column per field."""
    asked = nodes[nodes["node_type"].isin(spec.candidate_types)].reset_index(drop=True)
    fields = pd.DataFrame([json.loads(text) for text in asked.pop("fields")], dtype=object)
    return asked.join(fields.add_prefix("field."))


def finished(rows: pd.DataFrame, spec: DatasetSpec, nodes: pd.DataFrame, relations: Relations) -> pd.DataFrame:
    """The frame of documents."""
    names, places = dict(zip(nodes["node_id"], nodes["name"], strict=True)), nodes.set_index("node_id")["canonical"]
    positions = places.to_dict()

    def render(row: pd.Series) -> str:
        node_type = row["node_type"]
        lines = []
        for field in spec.node_types[node_type].document:
            value = row.get(f"field.{field}")
            if value is None or (isinstance(value, float) and np.isnan(value)):
                continue
            label = node_type if field == spec.node_types[node_type].name_field else field
            lines.append(f"{label}: {plain_text(value)}")
        if spec.documents.relations:
            cap = spec.documents.neighbours
            for heading, others in relations(row["node_id"], node_type).items():
                named = [names[other] for other in sorted(others, key=positions.__getitem__) if names[other]]
                if named:
                    more = f" (+{len(named) - cap} more)" if cap is not None and len(named) > cap else ""
                    lines.append(f"{heading}: {'; '.join(named[:cap])}{more}")
        return "\n".join(lines)

    rows["document"] = rows.apply(render, axis=1)
    return rows[COLUMNS]


def plain_text(value: Any) -> str:
    """A JSON value in one line."""
    if isinstance(value, dict):
        parts = []
        for key, item in value.items():
            text = plain_text(item)
            if text:
                parts.append(f"{key}: ({text})" if isinstance(item, dict) else f"{key}: {text}")
        return ", ".join(parts)
    if isinstance(value, list):
        return "; ".join([text for text in [plain_text(item) for item in value] if text])
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def headings_of(spec: DatasetSpec) -> dict[str, list[tuple[str, str, str, str]]]:
    """By type of node: (heading, relation, side of the node, type of the neighbour), in declared order."""
    found = defaultdict(list)
    for relation in spec.relations:
        found[relation.head].append((relation.head_label or relation.name, relation.name, "head", relation.tail))
        found[relation.tail].append((relation.tail_label or relation.name, relation.name, "tail", relation.head))
    return found


def neighbours_from_sets(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, nodes: pd.DataFrame) -> Relations:
    """Sets of neighbours by node, relation, side and type, filled edge by edge."""
    headings, types = headings_of(spec), dict(zip(nodes["node_id"], nodes["node_type"], strict=True))
    neighbours: dict[tuple[int, str, str, str], set[int]] = defaultdict(set)
    if spec.documents.relations:
        for head, relation, tail in con.execute("SELECT head, relation, tail FROM edges").fetchall():
            neighbours[head, relation, "head", types[tail]].add(tail)
            neighbours[tail, relation, "tail", types[head]].add(head)

    def relations(node_id: int, node_type: str) -> dict[str, set[int]]:
        groups: dict[str, set[int]] = {}
        for heading, *key in headings[node_type]:
            others = neighbours.get((node_id, *key))
            if others:
                groups.setdefault(heading, set()).update(others)
        return groups

    return relations


def neighbours_by_masks(con: duckdb.DuckDBPyConnection, spec: DatasetSpec, nodes: pd.DataFrame) -> Relations:
    """One mask over all edges per node and heading."""
    headings, types = headings_of(spec), dict(zip(nodes["node_id"], nodes["node_type"], strict=True))
    edges = con.execute("SELECT head, relation, tail FROM edges").df()
    names = {name: code for code, name in enumerate(edges["relation"].unique())}
    relation_codes = edges["relation"].map(names).to_numpy()
    ends = {side: edges[side].to_numpy() for side in ("head", "tail")}

    def relations(node_id: int, node_type: str) -> dict[str, set[int]]:
        groups: dict[str, set[int]] = {}
        for heading, relation, side, other_type in headings[node_type]:
            mask = (ends[side] == node_id) & (relation_codes == names.get(relation, -1))
            found = ends["tail" if side == "head" else "head"][mask].tolist()
            others = {other for other in found if types[other] == other_type}
            if others:
                groups.setdefault(heading, set()).update(others)
        return groups

    return relations


if __name__ == "__main__":
    main()
