"""Stage ``graph``: the graph on a Neo4j server, an asset of its own so that a missing server stops nothing else."""

from collections.abc import Iterator

import dagster as dg

from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
from skb_pipeline.graph.neo4j.load import load_skb
from skb_pipeline.graph.neo4j.versions import SCHEME, is_current_and_complete, version_label
from skb_pipeline.orchestration.resources import WorkspaceParam
from skb_pipeline.orchestration.steps import Step, StepConfig, pipeline_asset
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.storage.artifacts import Artifact, Draft, stable_hash
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import SKB_FILE, skb_of

CODE_VERSION = "1"
SKIPPED = "NEO4J_URI is not set"


@pipeline_asset(
    "graph/neo4j", deps=["skb/store"], code_version=CODE_VERSION, kinds={"neo4j"}, automatic=False, optional=True
)
def neo4j(
    context: dg.AssetExecutionContext, workspace: WorkspaceParam, config: StepConfig
) -> Iterator[dg.MaterializeResult]:
    """Nodes and edges on the Neo4j server of `NEO4J_URI`, beside older versions; skipped when that is not set.

    The result is a manifest: where the graph is, under which label, what its labels and relationship types are
    called, and how many there are. A run counts on the server whether they are still there.
    """
    settings = settings_or_skip(context)
    if settings is None:
        return
    step = Step(
        context, workspace, config, code_version=CODE_VERSION, inputs=["skb/store"],
        sections=["node_types", "relations"],
        config={"address": settings.address, "database": settings.database},
    )  # fmt: skip
    store, schema = step.input("skb/store"), GraphSchema.from_spec(step.spec)
    data = skb_of(store)
    label = version_label(step.dataset, data)

    with open_driver(settings) as driver:

        def holds(_: Artifact) -> bool:
            with driver.session(database=settings.database) as session:
                return is_current_and_complete(session, step.dataset, label)

        def build(draft: Draft) -> None:
            with connect(store.file(SKB_FILE), read_only=True) as con:
                loaded = load_skb(
                    driver, con, schema, dataset=step.dataset, data=data, database=settings.database
                )  # fmt: skip
            nodes, relationships, self_loops = loaded.counts.totals
            draft.finish(
                stable_hash([store.data_version, CODE_VERSION, SCHEME]),
                {
                    "label": loaded.label,
                    "address": settings.address,
                    "database": settings.database or "(home database)",
                    "nodes": nodes,
                    "relationships": relationships,
                    "self-loops": self_loops,
                    "was there already": not loaded.written,
                    "old versions removed": len(loaded.removed),
                },
                names={"labels": dict(loaded.names.labels), "relation_types": dict(loaded.names.relation_types)},
                counts={"nodes": dict(loaded.counts.nodes), "relationships": dict(loaded.counts.relationships)},
            )

        yield step.run(build, holds=holds)


def settings_or_skip(context: dg.AssetExecutionContext) -> Neo4jSettings | None:
    """The server's settings; without them an observation says why this asset ends without a result.

    Assets below it that the run has selected are told the same, since Dagster does not start them then.
    """
    settings = Neo4jSettings.from_environment()
    if settings is not None:
        return settings
    layer = context.job_def.asset_layer
    below = sorted(layer.get(context.asset_key).child_keys & layer.selected_asset_keys)
    for key in (context.asset_key, *below):
        context.log.info(f"{'/'.join(key.path)} skipped: {SKIPPED}")
        context.log_event(
            dg.AssetObservation(asset_key=key, partition=context.partition_key, metadata={"skipped": SKIPPED})
        )
    return None
