"""Stage ``skb``: the knowledge base itself."""

import dagster as dg

from skb_pipeline.datasets.sources import open_source
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.skb.ingest import CODE_VERSION, ingest
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.workspace import SKB_FILE


@pipeline_asset("skb/store", deps=["catalog/snapshot"], code_version=CODE_VERSION, kinds={"duckdb"})
def store(context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig) -> dg.MaterializeResult:
    """Nodes, aliases and edges in one DuckDB file, cleaned, with bad rows in quarantine.

    Rows in = rows stored + rows quarantined + duplicates dropped, for nodes and for edges. Node ids of an earlier
    load are kept.
    """
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["catalog/snapshot"],
        sections=["source", "node_types", "relations", "candidates"],
    )  # fmt: skip

    def build(draft: Draft) -> None:
        previous = workspace.store.current(step.dataset, "skb/store")
        report = ingest(
            step.spec, open_source(step.spec), draft.path / SKB_FILE,
            previous=previous.file(SKB_FILE) if previous else None,
        )  # fmt: skip
        numbers = report.as_dict()
        for name in ("data_version", "identity"):
            del numbers[name]
        draft.finish(
            report.data_version,
            {
                **{f"nodes {k}": v for k, v in numbers.pop("nodes").items()},
                **{f"edges {k}": v for k, v in numbers.pop("edges").items()},
                **numbers,
            },
            skb_identity=report.identity,
        )

    return step.run(build)
