"""Stage ``graph``: what plans are executed with."""

from skb_pipeline.graph.memory import csr as csr_format
from skb_pipeline.graph.memory.csr import CsrGraph
from skb_pipeline.linking import anchors as linking
from skb_pipeline.linking.anchors import AnchorIndex
from skb_pipeline.orchestration.assets.index import encoder_of
from skb_pipeline.orchestration.steps import Step, pipeline_asset
from skb_pipeline.retrieval import encoder
from skb_pipeline.retrieval.encoder import ENCODER_LIBRARIES
from skb_pipeline.skb import documents
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import ANCHORS_FOLDER, CSR_FOLDER, SKB_FILE, skb_of


@pipeline_asset("graph/csr", inputs=["skb/store"], code=[csr_format], kinds={"numpy"})
def csr(step: Step, draft: Draft) -> None:
    """The relations as arrays of neighbours, memory-mapped by the plan executor."""
    store = step.input("skb/store")
    with connect(store.file(SKB_FILE), read_only=True) as con:
        graph = CsrGraph.from_skb(con, data=skb_of(store))
    graph.save(draft.path / CSR_FOLDER)
    draft.finish(
        step.recipe.content_key(), {"nodes": graph.n_nodes, "entries": graph.n_entries, "bytes": graph.nbytes()}
    )


@pipeline_asset(
    "graph/anchors",
    inputs=["skb/store"],
    sections=["node_types", "relations", "documents", "linking"],
    partly=["encoder", "candidates"],  # documents of all types are read here, whichever may be answers
    opens=encoder_of,
    code=[linking, documents, encoder],
    libraries=ENCODER_LIBRARIES,
    pool="gpu",
    kinds={"numpy"},
)
def anchors(step: Step, draft: Draft) -> None:
    """Embeddings of all names, aliases and documents by node type, to which the texts of a plan are linked."""
    model, cache = step.opened
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        index = AnchorIndex.build(con, step.spec, cache, model)
    index.save(draft.path / ANCHORS_FOLDER)
    draft.finish(
        step.recipe.content_key(),
        {
            "names and aliases": len(index.names.rows),
            "documents": len(index.documents.rows),
            "texts encoded": model.encode_calls,
            "names truncated": index.truncated["names"],
            "documents truncated": index.truncated["documents"],
            "encoder": model.fingerprint(),
        },
    )
