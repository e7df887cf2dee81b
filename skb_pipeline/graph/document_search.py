"""Search of all documents of some types: what answers a ``doc_search`` plan, and a question without a usable plan.

A document scores the sum of its cosines with the texts that are searched for. Products in float32 over blocks of
documents choose who may be among the best; only these are computed again in float64, so the cost is one pass over the
vectors per few questions, and hits do not depend on the questions beside them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skb_pipeline.graph.fields import FieldValues
from skb_pipeline.linking.anchors import BLOCK, COSINE_MARGIN, AnchorIndex, exact_cosines
from skb_pipeline.plans.plan import Condition
from skb_pipeline.plans.results import GraphOutcome, GraphResult
from skb_pipeline.text.sinks import progress_bar

ROUTE = "documents"
_AT_ONCE = 16
"""Questions that share a pass: 4 bytes per document and question are held meanwhile."""


@dataclass(frozen=True)
class DocumentQuery:
    """What is searched for.

    Attributes:
        types: node types whose documents are searched; repetitions and types without documents change nothing.
        texts: a document's score is the sum of its cosines with them; a blank one adds 0.
        where: conditions on the fields of the documents' nodes.
    """

    types: tuple[str, ...]
    texts: tuple[str, ...]
    where: tuple[Condition, ...] = ()


def search_documents(
    index: AnchorIndex, queries: Sequence[DocumentQuery], *, depth: int, fields: FieldValues | None = None
) -> list[GraphResult]:
    """The best documents for every query, exactly.

    Args:
        index: holds the documents' vectors.
        queries: n queries; each distinct text is encoded once.
        depth: hits kept per query.
        fields: of the same SKB; None will do for queries without conditions.

    Returns:
        n results: hits by score (descending) and canonical order; each cosine is rounded to 1e-6. ``n_cand`` is the
        number of documents searched, blank ones among them and those that do not meet the conditions not;
        ``lacking`` the number of documents of the types whose node lacks a value that a condition asks for;
        ``milliseconds`` an equal share of the pass.

    Raises:
        ValueError: ``depth`` is below 1, or there are conditions and no fields.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    vectors = index.embed([text for query in queries for text in query.texts])
    ends = np.cumsum([0, *(len(query.texts) for query in queries)])
    groups: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for i, query in enumerate(queries):
        told = repr([condition.model_dump() for condition in query.where])
        groups.setdefault((tuple(dict.fromkeys(query.types)), told), []).append(i)
    results: dict[int, GraphResult] = {}
    with progress_bar(what="documents", unit=" questions", total=len(queries)) as progress:
        for (types, _), members in groups.items():
            rows, lacking = _rows_of(index, types, queries[members[0]].where, fields)
            for first in range(0, len(members), _AT_ONCE):
                part = members[first : first + _AT_ONCE]
                found = _search(index, rows, [vectors[ends[i] : ends[i + 1]] for i in part], depth)
                results.update(zip(part, (replace(result, lacking=lacking) for result in found), strict=True))
                progress.update(len(part))
    return [results[i] for i in range(len(queries))]


def _rows_of(
    index: AnchorIndex, types: Sequence[str], where: Sequence[Condition], fields: FieldValues | None
) -> tuple[np.ndarray, int]:
    """Rows (int64) of the documents of some types that meet all conditions; and how many lack a value."""
    if where and fields is None:
        raise ValueError("conditions on fields need the values of fields")
    found, lacking = [np.empty(0, np.int64)], 0
    for name in types:
        if name not in index.documents.slices:
            continue
        place = index.documents.slices[name]
        rows = np.arange(place.start, place.stop)
        if where and fields is not None:
            ids = index.documents.rows["node_id"].to_numpy()[rows]
            known = fields.node_ids(name)
            order = np.argsort(known)
            places = order[np.searchsorted(known, ids, sorter=order)]
            lacking += int(np.count_nonzero(~fields.having(name, where)[places]))
            rows = rows[fields.meeting(name, where)[places]]
        found.append(rows)
    return np.concatenate(found), lacking


def _search(index: AnchorIndex, rows: np.ndarray, texts: Sequence[np.ndarray], depth: int) -> list[GraphResult]:
    """Results for queries over the same documents; ``texts``: per query the vectors of its texts [m, dim]."""
    begin = time.perf_counter()
    ids = index.documents.rows["node_id"].to_numpy()[rows]
    hits = []
    for query, rough in zip(texts, _rough_scores(index.documents.vectors, rows, texts), strict=True):
        near = _maybe_best(rough, depth, COSINE_MARGIN * max(1, len(query)))
        scores = np.zeros(len(near))
        for text in query:
            if text.any():
                scores += exact_cosines(index.documents.vectors, text, rows[near])
        best = np.lexsort((index.canonical[ids[near]], -scores))[:depth]
        hits.append((ids[near[best]], scores[best]))
    share = (time.perf_counter() - begin) * 1000 / max(1, len(texts))
    outcome = GraphOutcome.OK if len(rows) else GraphOutcome.EMPTY
    return [GraphResult(*hit, len(rows), outcome, ROUTE, share) for hit in hits]


def _rough_scores(vectors: np.ndarray, rows: np.ndarray, texts: Sequence[np.ndarray]) -> np.ndarray:
    """Sums of cosines in float32 [queries, rows]."""
    scores = np.zeros((len(texts), len(rows)), dtype=np.float32)
    if not vectors.shape[1] or not any(query.any() for query in texts):
        return scores
    queries = np.stack([query.sum(axis=0, dtype=np.float32) for query in texts])
    for start in range(0, len(rows), BLOCK):
        block = vectors[rows[start : start + BLOCK]].astype(np.float32, copy=False)
        scores[:, start : start + BLOCK] = queries @ block.T
    return scores


def _maybe_best(rough: np.ndarray, depth: int, margin: float) -> np.ndarray:
    """Places of everything that may be among the ``depth`` best when no score is off by more than ``margin``."""
    if len(rough) <= depth:
        return np.arange(len(rough))
    lowest = np.partition(rough, len(rough) - depth)[len(rough) - depth]
    return np.flatnonzero(rough >= lowest - 2 * margin)
