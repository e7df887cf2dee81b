"""Stage ``text``: what retrieval reads of each node."""

import dagster as dg

from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.skb.documents import CODE_VERSION, DOCUMENTS_SCHEMA, build_documents, documents_hash
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.frames import write_frame
from skb_pipeline.workspace import DOCUMENTS_FILE, SKB_FILE


@pipeline_asset("text/documents", deps=["skb/store"], code_version=CODE_VERSION, kinds={"parquet"})
def documents(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """One text per candidate node: its fields under labels, and names of its neighbours by relation."""
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["skb/store"],
        sections=["node_types", "relations", "candidates", "documents"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            frame = build_documents(con, step.spec)
        counts = dict(frame.attrs.get("counts", {}))
        types.check_frame(types.DOCUMENTS, frame)
        write_frame(draft.path / DOCUMENTS_FILE, frame, DOCUMENTS_SCHEMA)
        words = frame["document"].str.split().str.len()
        draft.finish(
            documents_hash(frame),
            {
                "dagster/row_count": len(frame),
                "words mean": round(float(words.mean()), 1),
                "words max": int(words.max()),
                "not rendered": counts,
            },
            markdown={"examples": "\n\n".join(f"```\n{text[:600]}\n```" for text in frame["document"].head(3))},
        )

    return step.run(build)
