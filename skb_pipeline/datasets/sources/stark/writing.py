"""STaRK's files written: from any SKB, or from parts. They are what ``adapter`` and STaRK's own loader read.

Dicts are pickled batch by batch, so memory does not grow with the graph.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.layout import Flavour
from skb_pipeline.datasets.sources.stark.questions import HUMAN, SPLITS

_BATCH = 1_000


@dataclass(frozen=True)
class Question:
    """One question: its number, text, answers (node numbers), split, kind (``synthesized`` or ``human``), and whether
    it is in the sample of the test split (None: nobody says)."""

    number: int
    query: str
    answers: list[int]
    split: str
    kind: str
    sample: bool | None = None


def write_dict(path: Path, items: Iterable[tuple[Any, Any]]) -> int:
    """Pickle a dict (protocol 3) from its items, a thousand at a time; returns how many there were.

    Objects that occur twice are written twice: without a memo the batches stand for themselves.
    """
    items, written = iter(items), 0
    with path.open("wb") as file:
        file.write(b"\x80\x03}")
        while batch := dict(islice(items, _BATCH)):
            buffer = io.BytesIO()
            pickler = pickle.Pickler(buffer, protocol=3)
            pickler.fast = True
            pickler.dump(batch)
            items_only = buffer.getvalue()[3:-1]  # between "a protocol 3 pickle of a dict" and "stop"
            # A single item is written without the marks of a batch; readers that cut at batches need them.
            file.write(items_only if len(batch) > 1 else b"(" + items_only[:-1] + b"u")
            written += len(batch)
        file.write(b".")
    return written


def write_graph(
    folder: Path,
    flavour: Flavour,
    *,
    node_info: Iterable[tuple[int, dict[str, Any]]],
    node_types: np.ndarray,
    edge_index: np.ndarray,
    edge_types: np.ndarray,
    type_names: Mapping[int, str],
    relation_names: Mapping[int, str],
) -> Path:
    """Write a processed graph into ``folder/skb/FLAVOUR/processed`` (Amazon: the graph with brands below it).

    Args:
        node_info: (number, fields) in ascending order of numbers.
        node_types: int64 [nodes]; edge_index: int64 [2, edges]; edge_types: int64 [edges].
        type_names, relation_names: code -> name; not written for MAG, whose names are fixed.

    Returns:
        The folder written.

    Raises:
        ValueError: ``node_info`` has another length than ``node_types``.
    """
    import torch

    target = folder / "skb" / flavour / "processed" / (layout.AMAZON_CACHE if flavour == "amazon" else "")
    target.mkdir(parents=True, exist_ok=True)
    written = write_dict(target / layout.NODE_INFO, node_info)
    if written != len(node_types):
        raise ValueError(f"{written} nodes were given for {len(node_types)} node types")
    for name, array in [
        (layout.NODE_TYPES, node_types),
        (layout.EDGE_INDEX, edge_index),
        (layout.EDGE_TYPES, edge_types),
    ]:
        torch.save(torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)), target / name)
    if flavour != "mag":
        for name, names in [(layout.NODE_TYPE_DICT, type_names), (layout.EDGE_TYPE_DICT, relation_names)]:
            (target / name).write_bytes(pickle.dumps(dict(names), protocol=4))
    return target


def write_questions(folder: Path, flavour: Flavour, questions: Iterable[Question]) -> None:
    """Write CSV files and splits into ``folder/qa/FLAVOUR``.

    In test-0.1 are the questions that say so, or the first tenth of the test split where none says anything.
    """
    place = folder / "qa" / flavour
    for sub in ("stark_qa", "split"):
        (place / sub).mkdir(parents=True, exist_ok=True)
    ids: dict[str, list[int]] = {split: [] for split in SPLITS}
    marks: dict[int, bool | None] = {}
    with (
        (place / "stark_qa" / layout.QUESTIONS).open("w", encoding="utf-8", newline="") as made,
        (place / "stark_qa" / layout.HUMAN_QUESTIONS).open("w", encoding="utf-8", newline="") as human,
    ):
        writers = {HUMAN: csv.writer(human)}
        rest = csv.writer(made)
        for writer in (writers[HUMAN], rest):
            writer.writerow(["id", "query", "answer_ids"])
        for question in questions:
            writers.get(question.kind, rest).writerow([question.number, question.query, json.dumps(question.answers)])
            if question.kind != HUMAN:
                ids[question.split].append(question.number)
                marks[question.number] = question.sample
    sample = [number for number in ids["test"] if marks[number]]
    if all(mark is None for mark in marks.values()):
        sample = ids["test"][: len(ids["test"]) // 10]
    for split, numbers in {**ids, layout.TEST_SAMPLE: sample}.items():
        (place / "split" / f"{split}.index").write_text("".join(f"{number}\n" for number in numbers))


def write_stark(
    con: duckdb.DuckDBPyConnection, folder: Path, flavour: Flavour, queries: pd.DataFrame | None = None
) -> np.ndarray:
    """Write an SKB, and questions about it, as STaRK's files.

    Nodes keep their external ids as numbers when these are 0 to n - 1; otherwise they are numbered by type, within a
    type in canonical order. ``prime`` takes any SKB: what has no place in ``node_info`` goes into ``details``. The
    other flavours take only their own types and relations.

    Args:
        con: an SKB file.
        folder: laid out as on the hub; existing files are replaced.
        queries: frame of ``QUERIES``; those with the template ``human`` go into the file of human questions.
            Answers that are not in the SKB get numbers above all nodes.

    Returns:
        int64 [nodes]: the node id of every number.

    Raises:
        ValueError: a type or relation has no place in the flavour.
    """
    types = _codes(con, "SELECT DISTINCT node_type FROM nodes", layout.TYPES[flavour], flavour, "node types")
    relations = _codes(con, "SELECT DISTINCT relation FROM edges", layout.RELATIONS[flavour], flavour, "relations")
    node_ids, node_types = _numbered(con, types)
    number_of = np.full(int(node_ids.max(initial=-1)) + 1, -1, dtype=np.int64)
    number_of[node_ids] = np.arange(len(node_ids))
    edges = con.execute("SELECT head, relation, tail FROM edges ORDER BY edge_id").fetchnumpy()
    index = np.stack([number_of[edges["head"]], number_of[edges["tail"]]]) if len(edges["head"]) else np.zeros((2, 0))
    codes = np.array([relations[name] for name in edges["relation"]], dtype=np.int64)
    own_types = set(types) == set(layout.TYPES[flavour])
    if flavour == "prime" and own_types:
        back = index[0] != index[1]
        index, codes = np.concatenate([index, index[::-1, back]], axis=1), np.concatenate([codes, codes[back]])
    write_graph(
        folder,
        flavour,
        node_info=_node_info(con, node_ids, flavour, own_types),
        node_types=node_types,
        edge_index=index,
        edge_types=codes,
        type_names={code: name for name, code in types.items()},
        relation_names={code: name for name, code in relations.items()},
    )
    if queries is not None:
        write_questions(folder, flavour, _questions(queries, number_of))
    return node_ids


def _codes(
    con: duckdb.DuckDBPyConnection, query: str, known: tuple[str, ...], flavour: Flavour, what: str
) -> dict[str, int]:
    """Name -> code. Of Prime, names beyond STaRK's replace them all: its files carry their own."""
    present = {name for (name,) in con.execute(query).fetchall()}
    strange = sorted(present - set(known))
    if strange and flavour != "prime":
        raise ValueError(f"STaRK's {flavour} has no {what} {strange}; it has {list(known)}")
    names = sorted(present) if strange else known
    return {name: code for code, name in enumerate(names)}


def _numbered(con: duckdb.DuckDBPyConnection, types: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Node ids and type codes by number."""
    nodes = con.execute("SELECT node_id, node_type, external_id FROM nodes ORDER BY canonical").df()
    codes = nodes["node_type"].map(dict(types)).to_numpy(dtype=np.int64)
    ids = nodes["node_id"].to_numpy(dtype=np.int64)
    if (nodes["external_id"] == pd.Series(range(len(nodes))).astype(str)).all():
        return ids, codes
    order = np.argsort(codes, kind="stable")
    return ids[order], codes[order]


def _node_info(
    con: duckdb.DuckDBPyConnection, node_ids: np.ndarray, flavour: Flavour, own_types: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    with con.cursor() as cursor:
        cursor.register("numbers", pa.table({"node_id": node_ids, "number": np.arange(len(node_ids))}))
        cursor.execute("""
            SELECT number, node_type, external_id, name, fields::VARCHAR
            FROM nodes JOIN numbers USING (node_id) ORDER BY number
        """)
        while rows := cursor.fetchmany(_BATCH):
            for number, node_type, external_id, name, fields in rows:
                yield number, _info(flavour, own_types, node_type, external_id, name, json.loads(fields))


def _info(
    flavour: Flavour, own_types: bool, node_type: str, external_id: str, name: str, fields: dict[str, Any]
) -> dict[str, Any]:
    if flavour == "amazon":
        if node_type == layout.TYPES["amazon"][0]:
            return {**layout.PRODUCT_DEFAULTS, **fields}
        key = f"{node_type}_name"
        return {key: fields.get(key, name)}
    if flavour == "mag":
        return {**dict.fromkeys(layout.MAG_FIELDS[node_type], -1), **fields, "type": node_type}
    if own_types:
        return {"type": node_type, **{key: fields[key] for key in layout.PRIME_FIELDS if key in fields}}
    details = {key: value for key, value in fields.items() if key not in layout.PRIME_FIELDS}
    details |= fields["details"] if isinstance(fields.get("details"), dict) else {}
    info = {"id": external_id, "type": node_type, "name": name, "source": "", **fields}
    info = {key: info[key] for key in ("id", "type", "name", "source")}
    return {**info, "details": details} if details else info


def _questions(frame: pd.DataFrame, number_of: np.ndarray) -> Iterator[Question]:
    """Questions keep numeric ids; all others are numbered in their order."""
    nodes = int((number_of >= 0).sum())
    human = (frame["template"] == HUMAN).to_numpy()
    for kind in (False, True):
        part = frame[human == kind]
        ids = part["query_id"].str.removeprefix(f"{HUMAN}-")
        numeric = bool(ids.str.fullmatch("[0-9]{1,9}").all()) and not ids.duplicated().any()
        for place, (query_id, row) in enumerate(zip(ids, part.itertuples(index=False), strict=True)):
            answers = [int(number_of[a]) if a >= 0 else nodes - 1 - int(a) for a in row.answer_ids]
            number = int(query_id) if numeric else place
            marked = isinstance(row.sample, str)
            yield Question(number, row.query, answers, row.split, HUMAN if kind else "synthesized", marked)
