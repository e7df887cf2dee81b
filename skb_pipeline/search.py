"""One question against a dataset's finished artefacts: hits of any ranking, and why they came out that way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import duckdb
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.errors import UserError
from skb_pipeline.planning.engines.base import PlannerEngine, Question
from skb_pipeline.planning.settings import Engine
from skb_pipeline.skb.store import canonical_positions, node_table
from skb_pipeline.storage.duck import connect
from skb_pipeline.text.cleaning import clean_text
from skb_pipeline.workspace import BM25_FOLDER, DENSE_FOLDER, SKB_FILE, Workspace

SYSTEMS = ("bm25", "dense", "graph", "fused")


class UnknownSystemError(UserError, KeyError):
    """There is no ranking of this name."""


class SearchSession:
    """Searches with the rankings' own indexes and settings; each is opened when first needed."""

    def __init__(
        self,
        workspace: Workspace,
        spec: DatasetSpec,
        con: duckdb.DuckDBPyConnection,
        planner: PlannerEngine,
    ) -> None:
        self.workspace = workspace
        self.spec = spec
        self.con = con
        self._planner = planner
        self.canonical = canonical_positions(con)
        self._answers: dict[str, Any] = {}

    @classmethod
    @contextmanager
    def open(
        cls, dataset: str, workspace: Workspace | None = None, engine: Engine | None = None
    ) -> Iterator[SearchSession]:
        """A session on the current artefacts of ``dataset``; ``engine`` plans instead of the spec's.

        Raises:
            ArtifactMissingError: the dataset was never materialised; the message says how to do it.
            EngineSettingsError, ModelSettingsError: the engine cannot be used with the spec and the environment.
        """
        from skb_pipeline.planning.engines.opening import with_engine

        workspace = workspace or Workspace()
        spec = with_engine(workspace.spec(dataset), engine)
        store = workspace.store.require(spec.name, "skb/store")
        with (
            connect(store.file(SKB_FILE), read_only=True) as con,
            workspace.open_engine(spec, spec.plans.engine, con, typed=True) as (planner, _),
        ):
            yield cls(workspace, spec, con, planner)

    def search(self, question: str, *, system: str = "fused", k: int = 10) -> list[dict[str, Any]]:
        """The ``k`` best nodes: ``rank`` (from 1), ``external_id``, ``node_type``, ``name``, ``score``.

        Raises:
            UnknownSystemError: ``system`` is not one of :data:`SYSTEMS`.
        """
        ranking = self.ranking(clean_text(question), system)
        hits = ranking[ranking["rank"] <= k]
        nodes = self._nodes.loc[hits["node_id"]]
        return [
            {"rank": int(rank), **node, "score": float(score)}
            for rank, node, score in zip(hits["rank"], nodes.to_dict("records"), hits["score"], strict=True)
        ]

    def ranking(self, question: str, system: str) -> pd.DataFrame:
        """A system's ranking of one cleaned question, which has the query id ``q``.

        Raises:
            UnknownSystemError: ``system`` is not one of :data:`SYSTEMS`.
        """
        from skb_pipeline.retrieval.ranking import rank_hits

        if system == "fused":
            return self._fused(question)
        branches = {"bm25": self._bm25, "dense": self._dense, "graph": self._graph}
        if system not in branches:
            raise UnknownSystemError(f"unknown system {system!r}; there are: {', '.join(SYSTEMS)}")
        depth = self.spec.retrieval.depth
        return rank_hits(branches[system](question), canonical=self.canonical, depth=depth, query_order=["q"])

    def explain(self, question: str) -> dict[str, Any]:
        """How the graph branch understands a question.

        Returns:
            Plain JSON values: ``engine``, ``plan`` (None for a text search), ``status``, ``cause`` (how planning
            ended), ``dropped``, ``risk_level``, ``explanation``, of a language model also ``model``, ``attempts`` and
            ``raw_output``; ``links`` (per anchor, nodes with cosines), ``outcome``, ``route``, ``n_cand``,
            ``fallback``, ``sql`` and ``cypher`` (the latter marked as not run against a server).
        """
        from skb_pipeline.graph.branch import links_of
        from skb_pipeline.graph.neo4j.cypher import compile_cypher
        from skb_pipeline.graph.sql import compile_sql

        planned, answer = self._answer(clean_text(question))
        plan, result = planned.validated.plan, answer.result
        has_hops = plan is not None and len(plan.hops) > 0
        costs = {var: len(ids) for var, (ids, _) in answer.bindings.items()}
        reply = {"model": planned.model, "attempts": planned.attempts, "raw_output": planned.raw_output}
        return {
            "engine": planned.engine,
            "plan": None if plan is None else plan.model_dump(mode="json", by_alias=True),
            "status": planned.validated.status.value,
            "cause": planned.cause.value,
            "dropped": [d.model_dump() for d in planned.validated.dropped],
            "risk_level": planned.risk_level.value,
            "explanation": list(planned.explanation),
            **(reply if planned.attempts else {}),
            "links": links_of(answer.bindings, self._nodes),
            "outcome": "no_plan" if result is None else result.outcome.value,
            "route": "text" if result is None else result.route,
            "n_cand": 0 if result is None else result.n_cand,
            "fallback": answer.fallback,
            "cypher": compile_cypher(plan, self._schema, costs, header=True).text if plan and has_hops else None,
            "sql": compile_sql(plan, self._schema).text if plan and has_hops else None,
        }

    def with_branch_ranks(self, question: str, hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """``hits`` with a column ``rank NAME`` per branch: its rank of the node, empty where it is not listed."""
        question = clean_text(question)
        key = ["external_id", "node_type"]
        for system in ("bm25", "dense", "graph"):
            ranking = self.ranking(question, system)
            nodes = self._nodes.loc[ranking["node_id"], key]
            ranks = dict(zip(nodes.itertuples(index=False, name=None), ranking["rank"].tolist(), strict=True))
            hits = [{**hit, f"rank {system}": ranks.get((hit["external_id"], hit["node_type"]), "")} for hit in hits]
        return hits

    @cached_property
    def _nodes(self) -> pd.DataFrame:
        return node_table(self.con)

    @cached_property
    def _schema(self) -> Any:
        from skb_pipeline.plans.schema import GraphSchema

        return GraphSchema.from_spec(self.spec)

    @cached_property
    def _branch(self) -> Any:
        return self.workspace.open_graph_branch(self.spec)

    def _answer(self, question: str) -> Any:
        """(record of the plan, what the graph branch made of it)."""
        if question not in self._answers:
            (planned,) = self._planner.plan([Question("q", question)])
            self._answers[question] = planned, self._branch.answer([question], [planned.validated])[0]
        return self._answers[question]

    def _graph(self, question: str) -> Any:
        from skb_pipeline.graph.branch import branch_hits

        return branch_hits([self._answer(question)[1]])

    def _bm25(self, question: str) -> Any:
        from skb_pipeline.retrieval.lexical import BM25Index

        artifact = self.workspace.store.require_fitting(self.spec.name, "index/bm25")
        index = BM25Index.load(artifact.file(BM25_FOLDER), self.spec.lexical)
        return index.search([question], self.spec.retrieval.depth, canonical=self.canonical)

    def _dense(self, question: str) -> Any:
        from skb_pipeline.retrieval.dense import DenseIndex
        from skb_pipeline.retrieval.embedding import embed_texts

        encoder, cache = self.workspace.open_encoder(self.spec)
        artifact = self.workspace.store.require_fitting(self.spec.name, "index/dense")
        index = DenseIndex.load(artifact.file(DENSE_FOLDER), encoder.fingerprint())
        # What people type is not kept.
        vectors, _ = embed_texts(cache, encoder, [question], "query", keep=False)
        return index.search(vectors, self.spec.retrieval.depth, canonical=self.canonical)

    def _fused(self, question: str) -> pd.DataFrame:
        from skb_pipeline.fusion.rrf import static_rrf

        graph = self.ranking(question, "graph")
        if self._answer(question)[1].fallback:
            graph = graph.iloc[:0]
        fusion = self.spec.fusion
        return static_rrf(
            graph,
            self.ranking(question, fusion.text),
            weight=fusion.weight,
            k=fusion.k,
            canonical=self.canonical,
            depth=fusion.depth,
            query_order=["q"],
        )[0]
