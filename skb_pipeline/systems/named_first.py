"""The rule that holds in every ranking of questions: what a question names as a whole stands first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skb_pipeline.linking.named import NAMES, nodes_named
from skb_pipeline.retrieval.ranking import build_ranking
from skb_pipeline.systems.kind import Sources
from skb_pipeline.systems.ranked import Questions, Ranked

VERSION = "1"
INPUT = "index/names"
"""What a system that keeps the rule reads."""


def named_first(ranked: Ranked, sources: Sources, questions: Questions, depth: int) -> Ranked:
    """A ranking in which a question that is nothing but the name of candidate nodes has these first.

    Nodes named letter by letter come before those named when folded, names before other names, nodes of one way in
    canonical order (``linking.named``). Their scores are the least above that of the best hit; all other questions and
    hits keep theirs. As every list of such a question begins with the same nodes, so does each fusion of them.

    Args:
        ranked: rows of ``RANKING`` for these questions.
        sources: give ``index/names`` and the canonical order.
        questions: what was asked.
        depth: rows kept per query.
    """
    named = nodes_named(sources.artifact(INPUT).file(NAMES.file), questions.texts)
    asked = {query_id: nodes for query_id, nodes in zip(questions.ids, named, strict=True) if nodes}
    if not asked:
        return ranked
    frame = ranked.ranking
    query_ids, node_ids, scores = (frame[name].to_numpy() for name in ("query_id", "node_id", "score"))
    kept = np.ones(len(frame), dtype=bool)
    added: list[tuple[str, int, float]] = []
    for query_id, nodes in asked.items():
        own = query_ids == query_id
        score = float(scores[own].max(initial=-np.inf)) if own.any() else 0.0
        kept &= ~(own & np.isin(node_ids, list(nodes)))
        for way in sorted(set(nodes.values()), reverse=True):
            score = float(np.nextafter(score, np.inf))
            added += [(query_id, node_id, score) for node_id, grade in nodes.items() if grade == way]
    ranking = build_ranking(
        np.concatenate([query_ids[kept], np.array([row[0] for row in added], dtype=object)]),
        np.concatenate([node_ids[kept], np.array([row[1] for row in added], dtype=np.int64)]),
        np.concatenate([scores[kept], np.array([row[2] for row in added])]),
        canonical=sources.canonical,
        depth=depth,
        query_order=questions.ids,
    )
    return replace(ranked, ranking=ranking, metadata={**ranked.metadata, "questions that are a name": len(asked)})
