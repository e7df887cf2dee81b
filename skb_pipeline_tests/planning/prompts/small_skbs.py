"""Small SKBs with the nodes and edges that examples of the built-in guidance speak of, and others beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from rank_bm25 import BM25Plus

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.graph.memory.executor import MemoryExecutor
from skb_pipeline.linking.name_index import NameIndex
from skb_pipeline.plans.plan import Anchor, ValidatedPlan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.skb.documents import build_documents
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import ListSource

Fact = tuple[str, str, str]
"""(name of the head, relation, name of the tail)"""


class NamedSkb:
    """An SKB executed in memory: anchors are linked by exact name, answers ranked by BM25 on ``relevance_text``."""

    def __init__(self, con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> None:
        self.schema = GraphSchema.from_spec(spec)
        self.names = NameIndex.build(con)
        self.executor = MemoryExecutor(CsrGraph.from_skb(con), self.schema)
        documents = build_documents(con, spec.model_copy(update={"candidates": []}))
        found = con.execute("SELECT node_id, node_type, name FROM nodes").fetchall()
        self.name_of = {node: name for node, _, name in found}
        self.type_of = {node: kind for node, kind, _ in found}
        self.row = {node: i for i, node in enumerate(documents["node_id"])}
        self.bm25 = BM25Plus([_words(text) for text in documents["document"]])

    @classmethod
    def of_facts(
        cls,
        spec: DatasetSpec,
        names: Mapping[str, Sequence[str]],
        facts: Sequence[Fact],
        texts: Mapping[str, Any],
        path: Path,
    ) -> NamedSkb:
        """Ingest facts into the file ``path``. ``names``: of the nodes, by type; ``texts``: further fields by name."""
        key = {name: (kind, str(i)) for kind, every in names.items() for i, name in enumerate(every)}
        nodes = [
            (kind, number, {spec.node_types[kind].name_field: name, **texts.get(name, {})})
            for name, (kind, number) in key.items()
        ]
        edges = [(*key[head], relation, *key[tail]) for head, relation, tail in facts]
        report = ingest(spec, ListSource(nodes, edges), path)
        assert report.edges["stored"] == len(facts), report.edges
        with connect(path, read_only=True) as con:
            return cls(con, spec)

    def run(self, plans: Sequence[ValidatedPlan]) -> list[tuple[int, list[int]]]:
        """Number of answers and the answers, best first."""
        return [self._answer(checked) for checked in plans]

    def answers(self, checked: ValidatedPlan) -> list[str]:
        """Names of the answers, best first."""
        return [self.name_of[node] for node in self._answer(checked)[1]]

    def _answer(self, checked: ValidatedPlan) -> tuple[int, list[int]]:
        plan = checked.plan
        assert plan is not None
        if plan.retrieval_mode == "doc_search":
            scores = self._text_scores(plan.anchors[0].text)
            nodes = [node for node in self.row if self.type_of[node] in plan.target.labels and scores[node] > 0]
            found = dict.fromkeys(nodes, 0.0)
        else:
            bindings = {anchor.var: self._link(anchor) for anchor in plan.anchors}
            result = self.executor.execute(plan, bindings)
            found = dict(zip(result.node_ids.tolist(), result.scores.tolist(), strict=True))
            scores = self._text_scores(plan.target.relevance_text)
        return len(found), sorted(found, key=lambda node: (-found[node] - scores[node], node))

    def _link(self, anchor: Anchor) -> tuple[np.ndarray, np.ndarray]:
        hit = self.names.lookup(anchor.text, [anchor.label], fuzzy=False)
        ids = hit.nodes[anchor.label] if hit else np.empty(0, np.int64)
        return ids, np.ones(len(ids))

    def _text_scores(self, text: str) -> dict[int, float]:
        scores = self.bm25.get_scores(_words(text)) if text else np.zeros(len(self.row))
        floor = scores.min(initial=0.0)
        return {node: float(scores[i] - floor) for node, i in self.row.items()}


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
