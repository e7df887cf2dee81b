"""Stage ``ranking``: each branch's hits for every question."""

from collections.abc import Sequence

import dagster as dg
import numpy as np
import pandas as pd

from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.retrieval.ranking import RANKING_SCHEMA, Hits, build_ranking
from skb_pipeline.skb.store import canonical_positions
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect, content_hash
from skb_pipeline.storage.frames import read_frame, write_frame
from skb_pipeline.workspace import BM25_FOLDER, DENSE_FOLDER, QUERIES_FILE, RANKING_FILE, SKB_FILE

CODE_VERSION = "1"


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
    """Turn hits into a ranking, check it, write it, and finish the draft with its content hash."""
    frame = build_ranking(
        np.asarray(query_ids, dtype=object)[hits.query], hits.node_id, hits.score,
        canonical=canonical, depth=step.spec.retrieval.depth, query_order=query_ids,
    )  # fmt: skip
    write_frame(draft.path / RANKING_FILE, types.check_frame(types.RANKING, frame), RANKING_SCHEMA)
    per_query = frame.groupby("query_id").size()
    draft.finish(
        ranking_hash(step, frame),
        {
            **draft.metadata,
            "dagster/row_count": len(frame),
            "queries": len(query_ids),
            "queries without hits": len(query_ids) - len(per_query),
            "depth": step.spec.retrieval.depth,
            "hits per query mean": round(float(per_query.mean()), 1) if len(per_query) else 0.0,
        },
    )


def ranking_hash(step: Step, frame: pd.DataFrame) -> str:
    """Content hash under external ids; scores count to six decimals, as the last bits depend on batching."""
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        con.register("ranking", frame)
        return content_hash(
            con,
            """SELECT r.query_id, n.node_type, n.external_id, r.rank, round(r.score, 6) AS score
               FROM ranking r JOIN nodes n USING (node_id)""",
        )
