"""Stage ``planning``: each question as a plan over the relations."""

import dagster as dg

from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.planning.engines.base import Question
from skb_pipeline.planning.engines.by_rules import RulesEngine
from skb_pipeline.planning.frames import CONTENT, PLANS_SCHEMA, plans_frame
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.storage.duck import connect, frame_hash
from skb_pipeline.storage.frames import read_frame, write_frame
from skb_pipeline.workspace import PLANS_FILE, QUERIES_FILE, SKB_FILE

CODE_VERSION = "3"


@pipeline_asset(
    "planning/plans_rules", deps=["questions/queries", "skb/store"], code_version=CODE_VERSION, kinds={"parquet"}
)
def plans_rules(
    context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig
) -> dg.MaterializeResult:
    """A plan per question, made by rules: names found in the question, joined by the relations its words speak of.

    The planner reads the question's text only, never its answers, gold plan or template.
    """
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["questions/queries", "skb/store"],
        sections=["node_types", "relations", "candidates", "planner", "linking"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        queries = read_frame(step.input("questions/queries").file(QUERIES_FILE), ["query_id", "query"])
        with connect(step.input("skb/store").file(SKB_FILE), read_only=True) as con:
            frame = plans_frame(RulesEngine(con, step.spec).plan([Question(*row) for row in queries.values.tolist()]))
        write_frame(draft.path / PLANS_FILE, frame, PLANS_SCHEMA)
        draft.finish(
            frame_hash(frame[CONTENT]),
            {
                "dagster/row_count": len(frame),
                "status": frame["status"].value_counts().to_dict(),
                "cause": frame["cause"].value_counts().to_dict(),
                "risk level": frame["risk_level"].value_counts().to_dict(),
                "milliseconds median": round(float(frame["milliseconds"].median()), 2),
            },
        )

    return step.run(build)
