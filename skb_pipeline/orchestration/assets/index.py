"""Stage ``index``: what makes documents searchable."""

import dagster as dg

from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.retrieval.dense import DenseIndex
from skb_pipeline.retrieval.embedding import embed_texts
from skb_pipeline.retrieval.lexical import BM25Index
from skb_pipeline.storage.artifacts import Draft, stable_hash
from skb_pipeline.storage.frames import read_frame
from skb_pipeline.workspace import BM25_FOLDER, DENSE_FOLDER, DOCUMENTS_FILE

CODE_VERSION = "1"


@pipeline_asset("index/bm25", deps=["text/documents"], code_version=CODE_VERSION, kinds={"numpy"})
def bm25(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Word index over the documents for BM25."""
    step = Step(context, workspace, config, code_version=CODE_VERSION, inputs=["text/documents"], sections=["lexical"])

    def build(draft: Draft) -> None:
        documents = read_frame(step.input("text/documents").file(DOCUMENTS_FILE), ["node_id", "document"])
        index = BM25Index.build(documents["node_id"].to_numpy(), documents["document"].tolist(), step.spec.lexical)
        index.save(draft.path / BM25_FOLDER)
        version = stable_hash([step.input("text/documents").data_version, step.spec.section("lexical"), CODE_VERSION])
        draft.finish(version, {"documents": len(index), "empty documents": index.n_empty})

    return step.run(build)


@pipeline_asset("index/dense", deps=["text/documents"], code_version=CODE_VERSION, kinds={"faiss"})
def dense(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Embedding of every document in an exact vector index. Only texts never seen before are encoded."""
    encoder, cache = workspace.open_encoder(workspace.spec(context.partition_key))
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["text/documents"],
        config={"encoder": encoder.fingerprint()},
    )  # fmt: skip

    def build(draft: Draft) -> None:
        documents = read_frame(step.input("text/documents").file(DOCUMENTS_FILE))
        keys = (documents["node_type"] + " " + documents["external_id"]).tolist()
        vectors, stats = embed_texts(cache, encoder, documents["document"].tolist(), "document", keys=keys)
        index = DenseIndex.build(documents["node_id"].to_numpy(), vectors, encoder.fingerprint())
        index.save(draft.path / DENSE_FOLDER)
        version = stable_hash([step.input("text/documents").data_version, encoder.fingerprint(), CODE_VERSION])
        distinct = stats.encoded + stats.reused
        draft.finish(
            version,
            {
                "vectors": len(index),
                "dimension": index.dimension,
                "texts encoded": stats.encoded,
                "texts reused": stats.reused,
                "reuse rate": round(stats.reused / distinct, 4) if distinct else 0.0,
                "texts truncated": stats.truncated,
                "blank documents": len(index.skipped),
                "encoder": encoder.fingerprint(),
            },
        )

    return step.run(build)
