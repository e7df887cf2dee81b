"""Stage ``ranking``: each branch's hits for every question."""

from collections.abc import Iterator, Sequence

import dagster as dg
import numpy as np
import pandas as pd

from skb_pipeline.fusion.rrf import static_rrf
from skb_pipeline.graph.branch import OUTCOMES_SCHEMA, GraphBranch, branch_hits, outcomes_frame
from skb_pipeline.graph.neo4j.connection import open_driver
from skb_pipeline.graph.neo4j.versions import open_executor
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.assets.neo4j import settings_or_skip
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.planning.frames import validated_plans
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.ranking import RANKING_SCHEMA, Hits, rank_hits
from skb_pipeline.skb.store import canonical_positions, node_table
from skb_pipeline.storage.artifacts import Artifact, Draft, stable_hash
from skb_pipeline.storage.duck import connect, content_hash, frame_hash
from skb_pipeline.storage.frames import read_frame, write_frame
from skb_pipeline.workspace import (
    ANCHORS_FOLDER,
    BM25_FOLDER,
    DENSE_FOLDER,
    OUTCOMES_FILE,
    PLANS_FILE,
    QUERIES_FILE,
    RANKING_FILE,
    SKB_FILE,
    skb_of,
)

CODE_VERSION = "1"
GRAPH_CODE_VERSION = "3"
GRAPH_SECTIONS = ("retrieval", "relations", "candidates", "linking")


@pipeline_asset(
    "ranking/bm25", deps=["index/bm25", "questions/queries", "skb/store"], code_version=CODE_VERSION, kinds={"parquet"}
)
def bm25(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Nodes ranked by BM25: shared words, weighted by rarity."""
    step = Step(
        context, workspace, config, code_version=CODE_VERSION,
        inputs=["index/bm25", "questions/queries", "skb/store"], sections=["retrieval", "lexical"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        index = BM25Index.load(step.input("index/bm25").file(BM25_FOLDER), step.spec.lexical)
        queries = read_frame(step.input("questions/queries").file(QUERIES_FILE), ["query_id", "query"])
        canonical = _canonical(step)
        hits = index.search(queries["query"].tolist(), step.spec.retrieval.depth, canonical=canonical)
        store_ranking(step, draft, queries["query_id"].tolist(), hits, canonical)

    return step.run(build)


@pipeline_asset(
    "ranking/dense", deps=["index/dense", "questions/queries", "skb/store"], code_version=CODE_VERSION,
    kinds={"parquet"},
)  # fmt: skip
def dense(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Nodes ranked by the cosine between the question's and the document's embedding."""
    step = Step(
        context, workspace, config, code_version=CODE_VERSION,
        inputs=["index/dense", "questions/queries", "skb/store"], sections=["retrieval", "encoder"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        queries = read_frame(step.input("questions/queries").file(QUERIES_FILE), ["query_id", "query"])
        encoder, cache = workspace.open_encoder(step.spec)
        index = DenseIndex.load(step.input("index/dense").file(DENSE_FOLDER), encoder.fingerprint())
        vectors, stats = embed_texts(
            cache, encoder, queries["query"].tolist(), "query", keys=queries["query_id"].tolist()
        )
        canonical = _canonical(step)
        hits = index.search(vectors, step.spec.retrieval.depth, canonical=canonical)
        draft.metadata = {"texts encoded": stats.encoded, "texts reused": stats.reused}
        store_ranking(step, draft, queries["query_id"].tolist(), hits, canonical)

    return step.run(build)


def _canonical(step: Step) -> np.ndarray:
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        return canonical_positions(con)


def store_ranking(step: Step, draft: Draft, query_ids: Sequence[str], hits: Hits, canonical: np.ndarray) -> None:
    """Turn hits into a ranking and finish the draft with it."""
    depth = step.spec.retrieval.depth
    finish_ranking(
        step, draft, query_ids, rank_hits(hits, canonical=canonical, depth=depth, query_order=query_ids), depth
    )


def finish_ranking(step: Step, draft: Draft, query_ids: Sequence[str], frame: pd.DataFrame, depth: int) -> None:
    """Check a ranking, write it, and finish the draft with its content hash and counts."""
    write_frame(draft.path / RANKING_FILE, types.check_frame(types.RANKING, frame), RANKING_SCHEMA)
    per_query = frame.groupby("query_id").size()
    draft.finish(
        ranking_hash(step, frame),
        {
            **draft.metadata,
            "dagster/row_count": len(frame),
            "queries": len(query_ids),
            "queries without hits": len(query_ids) - len(per_query),
            "depth": depth,
            "hits per query mean": round(float(per_query.mean()), 1) if len(per_query) else 0.0,
        },
    )


def graph_hits_for_fusion(graph: Artifact) -> pd.DataFrame:
    """The graph ranking without the questions that were answered by text only: they have weight 0 in a fusion."""
    ranking = read_frame(graph.file(RANKING_FILE))
    outcomes = read_frame(graph.file(OUTCOMES_FILE), ["query_id", "fallback"])
    return ranking[~ranking["query_id"].isin(outcomes.loc[outcomes["fallback"], "query_id"])]


def ranking_hash(step: Step, frame: pd.DataFrame) -> str:
    """Content hash under external ids; scores count to six decimals, as the last bits depend on batching."""
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        con.register("ranking", frame)
        return content_hash(
            con,
            """SELECT r.query_id, n.node_type, n.external_id, r.rank, round(r.score, 6) AS score
               FROM ranking r JOIN nodes n USING (node_id)""",
        )


PLANS = "planning/query_plans"


@pipeline_asset(
    "ranking/graph",
    deps=[PLANS, "graph/anchors", "graph/csr", "questions/queries", "skb/store"],
    code_version=GRAPH_CODE_VERSION,
    kinds={"parquet"},
)
def graph(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Nodes ranked by executing each question's plan over the relations, rescored by the rest of the question.

    A question without a plan is answered by a document search; its hits take no part in the fusion. What became of
    each question (links, number of candidates, time) stands in `outcomes.parquet`.
    """
    step = Step(
        context, workspace, config, code_version=GRAPH_CODE_VERSION,
        inputs=[PLANS, "graph/anchors", "graph/csr", "questions/queries", "skb/store"], sections=GRAPH_SECTIONS,
    )  # fmt: skip

    def build(draft: Draft) -> None:
        rank_by_plans(step, draft, workspace.open_graph_branch(step.spec))

    return step.run(build, holds=_no_timeouts)


@pipeline_asset(
    "ranking/graph_neo4j",
    deps=[PLANS, "graph/anchors", "graph/neo4j", "questions/queries", "skb/store"],
    code_version=GRAPH_CODE_VERSION,
    kinds={"parquet", "neo4j"},
    automatic=False,
    optional=True,
)
def graph_neo4j(
    context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig
) -> Iterator[dg.MaterializeResult]:
    """The ranking `graph` once more, with the same plans executed on the Neo4j server; skipped without `NEO4J_URI`.

    Linking, rescoring and what is stored are the same, so the two rankings must be equal.
    """
    settings = settings_or_skip(context)
    if settings is None:
        return
    step = Step(
        context, workspace, config, code_version=GRAPH_CODE_VERSION,
        inputs=[PLANS, "graph/anchors", "graph/neo4j", "questions/queries", "skb/store"], sections=GRAPH_SECTIONS,
    )  # fmt: skip

    def build(draft: Draft) -> None:
        encoder, cache = workspace.open_encoder(step.spec)
        anchors = AnchorIndex.load(step.input("graph/anchors").file(ANCHORS_FOLDER), cache, encoder)
        with open_driver(settings) as driver:
            executor = open_executor(
                driver, GraphSchema.from_spec(step.spec), step.dataset, database=settings.database,
                data=skb_of(step.input("skb/store")),
            )  # fmt: skip
            branch = GraphBranch(
                executor, anchors, candidate_types=step.spec.candidate_types, depth=step.spec.retrieval.depth
            )
            rank_by_plans(step, draft, branch)

    yield step.run(build, holds=_no_timeouts)


def rank_by_plans(step: Step, draft: Draft, branch: GraphBranch) -> None:
    """Answer all questions of the step's inputs with a branch, and finish the draft with ranking and outcomes."""
    plans = plans_of(step.input(PLANS))
    queries = read_frame(step.input("questions/queries").file(QUERIES_FILE), ["query_id", "query"])
    query_ids = queries["query_id"].tolist()
    plans = plans.set_index("query_id").loc[query_ids].reset_index()
    answers = branch.answer(
        queries["query"].tolist(),
        validated_plans(plans),
        progress=lambda done, total: step.context.log.info(f"{done} of {total} plans executed"),
    )
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        outcomes = outcomes_frame(query_ids, plans, answers, node_table(con))
    write_frame(draft.path / OUTCOMES_FILE, outcomes, OUTCOMES_SCHEMA)
    executed = outcomes[~outcomes["fallback"]]
    draft.metadata = {
        "outcomes": outcomes["outcome"].value_counts().to_dict(),
        "routes": outcomes["route"].value_counts().to_dict(),
        "n_cand median": float(executed["n_cand"].median()) if len(executed) else 0.0,
        "plan milliseconds p95": round(float(executed["milliseconds"].quantile(0.95)), 2) if len(executed) else 0.0,
    }
    store_ranking(step, draft, query_ids, branch_hits(answers), _canonical(step))
    # What follows also reads the outcomes, so they count; times and the way a plan went do not.
    content = outcomes.drop(columns=["milliseconds", "touched_edges", "route"])
    draft.data_version = stable_hash([draft.data_version, frame_hash(content)])


def plans_of(plans: Artifact, engine: str | None = None) -> pd.DataFrame:
    """Rows of one engine, by default of the one whose plans are executed."""
    frame = read_frame(plans.file(PLANS_FILE))
    return frame[frame["engine"] == (engine or plans.manifest["engine"])].reset_index(drop=True)


def _no_timeouts(made: Artifact) -> bool:
    """A plan that ran out of time on a busy machine is tried again."""
    return "timeout" not in made.metadata["outcomes"]


@pipeline_asset(
    "ranking/fused",
    deps=["ranking/graph", "ranking/bm25", "ranking/dense", "questions/queries", "skb/store"],
    code_version=CODE_VERSION,
    kinds={"parquet"},
)
def fused(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """The graph ranking joined with a text ranking by weighted reciprocal ranks."""
    spec = workspace.spec(context.partition_key)
    text = f"ranking/{spec.fusion.text}"
    step = Step(
        context, workspace, config, code_version=CODE_VERSION,
        inputs=["ranking/graph", text, "questions/queries", "skb/store"], sections=["fusion"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        order = read_frame(step.input("questions/queries").file(QUERIES_FILE), ["query_id"])["query_id"].tolist()
        frame, report = static_rrf(
            graph_hits_for_fusion(step.input("ranking/graph")),
            read_frame(step.input(text).file(RANKING_FILE)),
            weight=spec.fusion.weight,
            k=spec.fusion.k,
            canonical=_canonical(step),
            depth=spec.fusion.depth,
            query_order=order,
        )
        if report.queries > 20 and report.shared == 0:
            context.log.warning("the graph and the text ranking share no hit: do they name nodes differently?")
        draft.metadata = {"weight": spec.fusion.weight, "k": spec.fusion.k, "text branch": spec.fusion.text,
                          **report.metadata()}  # fmt: skip
        finish_ranking(step, draft, order, frame, spec.fusion.depth)

    return step.run(build)
