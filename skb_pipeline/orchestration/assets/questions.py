"""Stage ``questions``: what retrieval is measured with."""

import dagster as dg

from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.questions.frame import QUERIES_SCHEMA, queries_hash
from skb_pipeline.questions.from_source import SourceQueriesReport, queries_from_source
from skb_pipeline.questions.generate import generate_questions
from skb_pipeline.questions.report import QuestionReport
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.frames import write_frame
from skb_pipeline.workspace import QUERIES_FILE, SKB_FILE

CODE_VERSION = "3"


@pipeline_asset(
    "questions/queries", deps=["catalog/snapshot", "skb/store"], code_version=CODE_VERSION, kinds={"parquet"}
)
def queries(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Questions with answers, split into train, val and test: the source's own, or made from the knowledge base.

    The answers of a question made here are all nodes that satisfy it; it keeps its gold plan and template.
    """
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["catalog/snapshot", "skb/store"],
        sections=["source", "node_types", "relations", "candidates", "questions"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            raw = open_source(step.spec).queries()
            report: QuestionReport | SourceQueriesReport
            if raw is None:
                frame, report = generate_questions(con, step.spec)
            else:
                frame, report = queries_from_source(con, raw, step.spec.candidate_types)
            version = queries_hash(frame, con)
        write_frame(draft.path / QUERIES_FILE, types.check_frame(types.QUERIES, frame), QUERIES_SCHEMA)
        sample = "\n".join(f"- {text}" for text in frame["query"].head(10))
        draft.finish(version, {"dagster/row_count": len(frame), **report.metadata()}, markdown={"examples": sample})

    return step.run(build)
