"""Stage ``text``: what retrieval reads of each node."""

from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.steps import Step, pipeline_asset
from skb_pipeline.skb import documents as rendering
from skb_pipeline.skb.documents import DOCUMENTS, build_documents, documents_hash
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.text.sinks import markdown_code_block
from skb_pipeline.workspace import SKB_FILE


@pipeline_asset(
    "text/documents",
    inputs=["skb/store"],
    sections=["node_types", "relations", "candidates", "documents"],
    code=[rendering],
    writes=[DOCUMENTS],
    revision="2",
    kinds={"parquet"},
)
def documents(step: Step, draft: Draft) -> None:
    """One text per candidate node: its fields under labels, and names of its neighbours by relation."""
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        frame = build_documents(con, step.spec)
    counts = dict(frame.attrs.get("counts", {}))
    DOCUMENTS.write(draft.path, types.check_frame(DOCUMENTS, frame))
    words = frame["document"].str.split().str.len()
    draft.finish(
        documents_hash(frame),
        {
            "dagster/row_count": len(frame),
            "words mean": round(float(words.mean()), 1),
            "words max": int(words.max()),
            "not rendered": counts,
        },
        markdown={"examples": "\n\n".join(markdown_code_block(text[:600]) for text in frame["document"].head(3))},
    )
