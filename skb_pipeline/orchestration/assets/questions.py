"""Stage ``questions``: what retrieval is measured with."""

from skb_pipeline.orchestration import types
from skb_pipeline.orchestration.assets.catalog import snapshotted
from skb_pipeline.orchestration.assets.skb import SOURCES
from skb_pipeline.orchestration.steps import Step, pipeline_asset
from skb_pipeline.questions import from_source, generate
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.questions.from_source import SourceQueriesReport, queries_from_source
from skb_pipeline.questions.generate import generate_questions
from skb_pipeline.questions.report import QuestionReport
from skb_pipeline.questions.splits import versions_by_split
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.text.sinks import markdown_list
from skb_pipeline.workspace import SKB_FILE


@pipeline_asset(
    "questions/queries",
    inputs=["catalog/snapshot", "skb/store"],
    sections=["source", "node_types", "relations", "candidates", "questions"],
    partly=["documents"],
    code=[generate, from_source, *SOURCES],
    writes=[QUERIES],
    revision="2",
    kinds={"parquet"},
)
def queries(step: Step, draft: Draft) -> None:
    """Questions with answers, split into train, val and test: the source's own, or made from the knowledge base.

    The answers of a question made here are all nodes that satisfy it; it keeps its gold plan and template.
    """
    with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
        report: QuestionReport | SourceQueriesReport
        with snapshotted(step) as source:
            raw = source.queries()
            if raw is not None:
                frame, report = queries_from_source(con, raw, step.spec.candidate_types)
        if raw is None:
            frame, report = generate_questions(con, step.spec)
        version, by_split = versions_by_split(frame, con)
    QUERIES.write(draft.path, types.check_frame(QUERIES, frame))
    draft.finish(
        version,
        {"dagster/row_count": len(frame), **report.metadata()},
        markdown={"examples": markdown_list(frame["query"].head(10))},
        split_versions=by_split,
    )
