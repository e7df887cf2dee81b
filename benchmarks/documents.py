"""CPU time of STaRK's document formats against two peers, in one process, on equal documents.

    python benchmarks/documents.py
    python benchmarks/documents.py --scale 0.1 --formats stark_prime
    pip install --no-deps --target FOLDER stark-qa && python benchmarks/documents.py --peer FOLDER

The graphs are invented; at scale 1 they have about the numbers of nodes and edges of STaRK's own. Every format is
built without and with relations.

The plain way reads nodes and edges into pandas, puts neighbours of each node and relation into sets, and calls one
function per node with ``DataFrame.apply``. Both start from the SKB file and end with a frame of documents, which must
be equal. Hashes of the documents, the same work for both, are left out.

The package ``stark-qa``, where it is given or installed, opens its own files of the same graph and calls
``get_doc_info`` node by node. With relations, where a call looks through all edges, it does so for a sample of the
nodes spread evenly, and its seconds are scaled to all of them. Our documents are made with ``stark_compat`` then, and
those of the sample must be equal. Opening the package's files, which parses all text, is told on its own: it is
needed once, but never avoided.

Times are CPU seconds of the whole process with all its threads. Before they are taken, everything is run once on a
tiny graph, so that imports and first allocations do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar, cast

import duckdb
import numpy as np
import pandas as pd
import stark_peer

from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.datasets.stark_names import MAG_RELATIONS, PRIME_RELATIONS, PRIME_TYPES
from skb_pipeline.skb.stark_documents import build_stark_documents
from skb_pipeline.skb.store import TABLES, build_adjacency
from skb_pipeline.storage.duck import connect

T = TypeVar("T")
Neighbours = dict[tuple[int, str], set[int]]
Infos = dict[int, dict[str, Any]]

TEXT, JSON = "text", "json"
NODES = {
    "stark_amazon": {"product": 957_192, "brand": 62_000, "category": 850, "color": 15_500},
    "stark_mag": {"author": 1_104_554, "institution": 9_488, "field_of_study": 58_699, "paper": 700_244},
    "stark_prime": dict(
        zip(PRIME_TYPES, (17080, 27671, 11169, 7957, 2516, 14035, 15311, 28642, 4176, 818), strict=True)
    ),
}
EDGES: dict[str, dict[tuple[str, str, str], int]] = {
    "stark_amazon": {
        ("product", "also_buy", "product"): 3_700_000,
        ("product", "also_view", "product"): 2_900_000,
        ("product", "has_brand", "brand"): 800_000,
        ("product", "has_category", "category"): 1_600_000,
        ("product", "has_color", "color"): 440_000,
    },
    "stark_mag": {
        (name.split("___")[0], name, name.split("___")[2]): n
        for name, n in zip(MAG_RELATIONS, (1_000_000, 9_700_000, 5_400_000, 3_800_000), strict=True)
    },
    "stark_prime": {
        ("gene/protein", "ppi", "gene/protein"): 320_000,
        ("drug", "target", "gene/protein"): 16_000,
        ("drug", "indication", "disease"): 9_000,
        ("drug", "side effect", "effect/phenotype"): 65_000,
        ("drug", "synergistic interaction", "drug"): 1_330_000,
        ("disease", "associated with", "gene/protein"): 80_000,
        ("disease", "phenotype present", "effect/phenotype"): 150_000,
        ("gene/protein", "interacts with", "biological_process"): 145_000,
        ("gene/protein", "interacts with", "molecular_function"): 70_000,
        ("gene/protein", "interacts with", "cellular_component"): 83_000,
        ("anatomy", "expression present", "gene/protein"): 1_520_000,
        ("anatomy", "expression absent", "gene/protein"): 20_000,
    },
}
FIELDS: dict[str, dict[str, dict[str, str]]] = {
    "stark_amazon": {
        "product": dict.fromkeys(("title", "brand"), TEXT)
        | dict.fromkeys(("description", "feature", "details", "review", "qa"), JSON),
        **{kind: {f"{kind}_name": TEXT} for kind in ("brand", "category", "color")},
    },
    "stark_mag": {
        "paper": dict.fromkeys(
            ("title", "abstract", "Date", "OriginalVenue", "JournalDisplayName", "ConferenceSeriesDisplayName",
             "ConferenceInstancesDisplayName"), TEXT,
        ),
        **{
            kind: {"DisplayName": TEXT, "PaperCount": "integer", "CitationCount": "integer"}
            for kind in ("author", "institution", "field_of_study")
        },
    },
    "stark_prime": {kind: {"name": TEXT, "source": TEXT, "details": JSON} for kind in PRIME_TYPES},
}  # fmt: skip
VOCABULARY = np.array([f"word{i}" for i in range(4000)] + ["COVID-19", "pre- and post", "Interleukin-1", "5 x 3."])


@dataclass(frozen=True)
class Peer:
    """The package ``stark-qa`` and how many nodes it is asked for when it names relations."""

    package: Path
    sample: int


def main() -> None:
    """Build each graph, make its documents both ways, print times and ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--formats", nargs="+", choices=list(NODES), default=list(NODES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", type=Path, help="folder with the package stark_qa; default: where it is installed")
    parser.add_argument("--sample", type=int, default=100, help="nodes for stark_qa with relations")
    args = parser.parse_args()
    package = stark_peer.find_package(args.peer)
    peer = None if package is None else Peer(package, args.sample)
    if peer is None:
        print("stark-qa is not here: plain loop only")
    for name in args.formats:
        with redirect_stdout(StringIO()):
            compare(name, 0.0, args.seed, peer)
        compare(name, args.scale, args.seed, peer)
    print(f"CPU seconds; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def compare(name: str, scale: float, seed: int, peer: Peer | None) -> None:
    """Print CPU seconds of both peers and of ours, whose documents must be equal."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "skb.duckdb"
        with connect(file) as con:
            n_edges = fill_store(con, name, scale, np.random.default_rng(seed))
            con.execute("CHECKPOINT")
            ((n_nodes,),) = con.execute("SELECT count(*) FROM nodes").fetchall()
        print(f"{name}: {n_nodes:,} nodes, {n_edges:,} edges")
        with connect(file, read_only=True) as con:
            for relations in (False, True):
                theirs, plain = timed(partial(plain_documents, con, name, relations))
                (found, _), ours = timed(partial(build_stark_documents, con, make_spec(name, relations)))
                pd.testing.assert_frame_equal(found, theirs)
                tell(f"plain loop {plain:8.2f}", relations, plain, ours)
            if peer is not None:
                compare_with_package(con, name, peer, Path(folder))


def compare_with_package(con: duckdb.DuckDBPyConnection, name: str, peer: Peer, folder: Path) -> None:
    """Print CPU seconds of stark-qa and of ours."""
    flavour = cast(Flavour, name.removeprefix("stark_"))
    stark_peer.write_files(con, folder, flavour)
    skb, opening = timed(lambda: stark_peer.open_peer(peer.package, folder, flavour))
    for relations in (False, True):
        (found, _), ours = timed(partial(build_stark_documents, con, make_spec(name, relations, compat=True)))
        chosen = np.arange(len(found))
        if relations:
            chosen = np.unique(np.linspace(0, len(found) - 1, peer.sample).astype(np.int64))
        theirs, seconds = timed(partial(stark_peer.documents, skb, chosen, relations))
        unequal = np.flatnonzero(found["document"].to_numpy()[chosen] != np.array(theirs, dtype=object))
        if len(unequal):
            raise AssertionError(f"{name}: documents of {len(unequal)} nodes differ, such as {chosen[unequal[0]]}")
        loop = seconds * len(found) / len(chosen)
        how = f"scaled from {len(chosen)} nodes" if len(chosen) < len(found) else "all nodes"
        tell(
            f"stark-qa   {opening + loop:8.2f} = opening {opening:.2f} + {loop:.2f} ({how})",
            relations,
            opening + loop,
            ours,
        )


def tell(what: str, relations: bool, theirs: float, ours: float) -> None:
    """Print one comparison."""
    kind = "with relations" if relations else "without relations"
    print(f"  {kind:17}  ours {ours:6.2f}  {theirs / ours:7.1f} times: {what}", flush=True)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Result and CPU seconds of all threads."""
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def make_spec(name: str, relations: bool, *, compat: bool = False) -> DatasetSpec:
    """The spec of an invented dataset."""
    return DatasetSpec.model_validate(
        {
            "name": "bench",
            "description": "for the benchmark",
            "source": {"adapter": "tables", "args": {"stark_compat": compat}},
            "node_types": {
                kind: {"fields": fields, "name_field": next(iter(fields)), "document": list(fields)}
                for kind, fields in FIELDS[name].items()
            },
            "relations": [{"head": head, "name": relation, "tail": tail} for head, relation, tail in EDGES[name]],
            "documents": {"format": name, "relations": relations},
            "encoder": {"model": "unused"},
        }
    )


def fill_store(con: duckdb.DuckDBPyConnection, name: str, scale: float, rng: np.random.Generator) -> int:
    """Invented nodes and edges as an SKB file has them; gives the number of edges."""
    con.execute(TABLES)
    first, span = 0, {}
    for kind, n in NODES[name].items():
        count = max(round(n * scale), 10)
        span[kind] = (first, count)
        fields = [invent(name, kind, rng) for _ in range(count)]
        rows = pd.DataFrame({"node_id": range(first, first + count), "node_type": kind})
        rows["name"] = [next(iter(f.values())) for f in fields]
        rows["fields"] = [json.dumps(f) for f in fields]
        con.register("node_rows", rows)
        con.execute(
            "INSERT INTO nodes SELECT node_id, node_id::VARCHAR, node_type, name, fields, '', node_id FROM node_rows"
        )
        first += count
    n_edges = 0
    for (head, relation, tail), n in EDGES[name].items():
        heads, tails = (span[kind][0] + rng.integers(span[kind][1], size=round(n * scale)) for kind in (head, tail))
        rows = pd.DataFrame({"head": heads, "tail": tails}).drop_duplicates()
        con.register("edge_rows", rows.assign(edge_id=np.arange(len(rows)) + n_edges))
        con.execute("INSERT INTO edges SELECT edge_id, head, ?, tail FROM edge_rows", [relation])
        n_edges += len(rows)
    build_adjacency(con)
    return n_edges


def words(rng: np.random.Generator, n: int) -> str:
    """A text of ``n`` words."""
    return " ".join(VOCABULARY[rng.integers(len(VOCABULARY), size=n)].tolist())


def invent(name: str, kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Fields of one node; the first is its name."""
    if name == "stark_prime":
        details: dict[str, Any] = {"summary": words(rng, 60), "_id": 3, "synonyms": [words(rng, 2) for _ in range(3)]}
        if kind == "gene/protein":
            details |= {"alias": ["IL-1", "b"], "interpro": [{"id": "x", "desc": words(rng, 4)} for _ in range(3)]}
            details["generif"] = [{"pubmed": i, "text": words(rng, 20)} for i in range(5)]
            details["genomic_pos"] = [{"chr": "X", "start": int(rng.integers(10**7))}]
        return {"name": words(rng, 2), "source": "NCBI"} | ({"details": details} if rng.random() < 0.6 else {})
    if kind == "paper":
        paper = {"title": words(rng, 10), "abstract": words(rng, 150), "Date": "2014-10-01"}
        return paper | {str(rng.choice(["OriginalVenue", "JournalDisplayName"])): words(rng, 3)}
    if kind != "product":
        label = f"{kind}_name" if name == "stark_amazon" else "DisplayName"
        return {label: words(rng, 2)} | ({"PaperCount": 3, "CitationCount": 40} if name == "stark_mag" else {})
    reviews = [
        {"summary": words(rng, 4), "reviewText": words(rng, 35), "vote": rng.choice([None, None, "2", "1,024"])}
        for _ in range(int(rng.integers(0, 11)))
    ]
    return {
        "title": words(rng, 12),
        "brand": words(rng, 1),
        "description": [words(rng, 30), words(rng, 30)],
        "feature": [words(rng, 8), "", "ASIN: B01", words(rng, 8)],
        "details": {"product_dimensions": "10 x 5 x 3 inches ; 2 pounds"},
        "review": reviews,
        "qa": [{"question": words(rng, 10), "answer": words(rng, 15)} for _ in range(int(rng.integers(0, 4)))],
    }


def plain_documents(con: duckdb.DuckDBPyConnection, name: str, relations: bool) -> pd.DataFrame:
    """Documents node by node: adjacency in dictionaries of sets, ``DataFrame.apply`` with one function per node."""
    nodes = con.execute("SELECT node_id, external_id, node_type, name, fields FROM nodes ORDER BY canonical").df()
    nodes["info"] = nodes["fields"].map(json.loads)
    infos = {
        row.node_id: {**row.info, "type": row.node_type, "title": row.name} for row in nodes.itertuples(index=False)
    }
    neighbours: Neighbours = defaultdict(set)
    edges = con.execute("SELECT head, relation, tail FROM edges").df() if relations else pd.DataFrame()
    for edge in edges.itertuples(index=False):
        neighbours[edge.head, edge.relation].add(edge.tail)
        neighbours[edge.tail, edge.relation].add(edge.head)
    render = {"stark_amazon": plain_amazon, "stark_mag": plain_mag, "stark_prime": plain_prime}[name]
    nodes["document"] = nodes.apply(lambda row: render(row["node_id"], infos, neighbours), axis=1)
    return nodes[["node_id", "external_id", "node_type", "name", "document"]]


def plain_amazon(node_id: int, infos: Infos, neighbours: Neighbours) -> str:
    """A product, brand, category or colour."""
    info = infos[node_id]
    if info["type"] != "product":
        return f"{info['type']} name: {info['title']}"
    text = f"- product: {info['title']}\n"
    if "brand" in info:
        text += f"- brand: {info['brand']}\n"
    parts = info.get("details", {}).get("product_dimensions", "").split(" ; ")
    if len(parts) == 2:
        text += f"- dimensions: {parts[0]}\n- weight: {parts[1]}\n"
    description = " ".join(info.get("description", [])).strip(" ")
    if description:
        text += f"- description: {description}\n"
    if info.get("feature"):
        text += "- features: \n"
        for i, feature in enumerate(info["feature"]):
            if feature and not re.search(r"\basin\b", feature, re.IGNORECASE):
                text += f"#{i + 1}: {feature}\n"
    if info.get("review"):
        text += "- reviews: \n"
        votes = [int(review["vote"].replace(",", "")) if review["vote"] else 0 for review in info["review"]]
        for i in np.argsort(-np.array(votes), kind="stable")[:25]:
            review = info["review"][i]
            text += f'#{i + 1}:\nsummary: {review["summary"]}\ntext: "{review["reviewText"]}"\n'
    if info.get("qa"):
        text += "- Q&A: \n"
        for i, qa in enumerate(info["qa"][:25]):
            text += f'#{i + 1}:\nquestion: "{qa["question"]}"\nanswer: "{qa["answer"]}"\n'
    relations = ""
    for relation, title in (("also_buy", "purchased"), ("also_view", "viewed")):
        others = sorted(neighbours.get((node_id, relation), ()))
        if others:
            relations += f"  products also {title}: \n"
            relations += "".join(f"#{k + 1}: {infos[other]['title']}\n" for k, other in enumerate(others))
    brands = sorted(neighbours.get((node_id, "has_brand"), ()))
    if brands:
        relations += f"  brand: {infos[brands[0]]['title']}\n"
    return text + (f"- relations:\n{relations}" if relations else "")


def plain_mag(node_id: int, infos: Infos, neighbours: Neighbours) -> str:
    """A paper, author, institution or field of study."""
    info = infos[node_id]
    kind = info["type"]
    if kind != "paper":
        title = {"author": "- author name", "institution": " - institution", "field_of_study": " - field of study"}[
            kind
        ]
        text = f"{title}: {info['title']}\n"
        for what, key in (("paper", "PaperCount"), ("citation", "CitationCount")):
            if key in info:
                text += f"- {kind.split('_')[0]} {what} count: {info[key]}\n"
        return text
    text = f" - paper title: {info['title']}\n"
    text += " - abstract: " + info["abstract"].replace("\r", "").rstrip("\n") + "\n"
    if "Date" in info:
        text += f" - publication date: {info['Date']}\n"
    if "OriginalVenue" in info:
        text += f" - venue: {info['OriginalVenue']}\n"
    elif "JournalDisplayName" in info:
        text += f" - journal: {info['JournalDisplayName']}\n"
    relations = ""
    for relation in MAG_RELATIONS:
        labels = []
        for other in sorted(neighbours.get((node_id, relation), ())):
            label = infos[other]["title"]
            if infos[other]["type"] == "paper":
                label = f'"{label}"'
            elif infos[other]["type"] == "author":
                places = sorted(neighbours.get((other, MAG_RELATIONS[0]), ()))
                if places:
                    label += f" ({', '.join(infos[place]['title'] for place in places)})"
            labels.append(label)
        if labels:
            relations += f"\n{relation.replace('___', ' ')}: ({', '.join(labels)}),"
    return text + (f"- relations:\n{relations}" if relations else "")


def plain_prime(node_id: int, infos: Infos, neighbours: Neighbours) -> str:
    """Any node of PrimeKG."""
    info = infos[node_id]
    text = f"- name: {info['title']}\n- type: {info['type']}\n- source: {info['source']}\n"
    glosses = {"summary": "protein summary text", "alias": "other gene names", "genomic_pos": "genomic position",
               "interpro": "protein family and classification information", "generif": "PubMed text"}  # fmt: skip
    details = ""
    for key, value in info.get("details", {}).items():
        if key.startswith("_") or "_id" in key:
            continue
        if info["type"] == "gene/protein" and key in glosses:
            if key == "interpro":
                value = [entry["desc"] for entry in value]
            elif key == "generif":
                value = " ".join("; ".join(entry["text"] for entry in value).split(" ")[:50_000])
            elif key == "genomic_pos":
                value = value[0]
            key = f"{key} ({glosses[key]})"
        details += f"  - {key}: {value}\n"
    if details:
        text += "- details:\n" + details
    relations = ""
    for relation in PRIME_RELATIONS:
        by_type: dict[str, list[str]] = defaultdict(list)
        for other in sorted(neighbours.get((node_id, relation), ())):
            by_type[infos[other]["type"]].append(infos[other]["title"])
        if by_type:
            groups = "".join(f"{kind}: ({', '.join(by_type[kind])})," for kind in PRIME_TYPES if kind in by_type)
            relations += f"\n  {relation.replace(' ', '_')}: {{{groups}}}"
    return text + (f"- relations:{relations}" if relations else "")


if __name__ == "__main__":
    main()
