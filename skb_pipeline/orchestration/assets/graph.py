"""Stage ``graph``: what plans are executed with."""

import dagster as dg

from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.skb import documents
from skb_pipeline.storage.artifacts import Draft, stable_hash
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import ANCHORS_FOLDER, CSR_FOLDER, SKB_FILE, skb_of

CODE_VERSION = "1"


@pipeline_asset("graph/csr", deps=["skb/store"], code_version=CODE_VERSION, kinds={"numpy"})
def csr(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """The relations as arrays of neighbours, memory-mapped by the plan executor."""
    step = Step(context, workspace, config, code_version=CODE_VERSION, inputs=["skb/store"])

    def build(draft: Draft) -> None:
        store = step.input("skb/store")
        with connect(store.file(SKB_FILE), read_only=True) as con:
            graph = CsrGraph.from_skb(con, data=skb_of(store))
        graph.save(draft.path / CSR_FOLDER)
        draft.finish(
            stable_hash([store.data_version, CODE_VERSION]),
            {"nodes": graph.n_nodes, "entries": graph.n_entries, "bytes": graph.nbytes()},
        )

    return step.run(build)


@pipeline_asset("graph/anchors", deps=["skb/store"], code_version=CODE_VERSION, kinds={"numpy"})
def anchors(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Embeddings of all names, aliases and documents by node type, to which the texts of a plan are linked."""
    encoder, cache = workspace.open_encoder(workspace.spec(context.partition_key))
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["skb/store"],
        sections=["node_types", "relations", "documents", "linking"], 
        config={"encoder": encoder.fingerprint(), "documents code": documents.CODE_VERSION},
    )  # fmt: skip

    def build(draft: Draft) -> None:
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            index = AnchorIndex.build(con, step.spec, cache, encoder)
        index.save(draft.path / ANCHORS_FOLDER)
        draft.finish(
            stable_hash([step.recipe.inputs, step.recipe.config, CODE_VERSION]),
            {
                "names and aliases": len(index.names.rows),
                "documents": len(index.documents.rows),
                "texts encoded": encoder.encode_calls,
                "encoder": encoder.fingerprint(),
            },
        )

    return step.run(build)
