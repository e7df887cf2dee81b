"""Stage ``graph``: the graph on a Neo4j server, an asset of its own so that a missing server stops nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager

from skb_pipeline.graph.neo4j import load, versions
from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
from skb_pipeline.graph.neo4j.load import load_skb
from skb_pipeline.graph.neo4j.versions import is_current_and_complete, version_label
from skb_pipeline.orchestration.steps import Opened, Step, pipeline_asset
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.storage.artifacts import Artifact, Draft
from skb_pipeline.storage.duck import connect
from skb_pipeline.workspace import SKB_FILE, skb_of

SKIPPED = "NEO4J_URI is not set"


@contextmanager
def _server(step: Step) -> Iterator[Opened]:
    """(driver, settings) as ``opened``; skipped without settings."""
    settings = Neo4jSettings.from_environment()
    if settings is None:
        yield Opened(skip=SKIPPED)
        return
    with open_driver(settings) as driver:

        def holds(_: Artifact) -> bool:
            with driver.session(database=settings.database) as session:
                label = version_label(step.dataset, skb_of(step.input("skb/store")))
                return is_current_and_complete(session, step.dataset, label)

        yield Opened(
            config={"address": settings.address, "database": settings.database},
            holds=holds,
            value=(driver, settings),
        )


@pipeline_asset(
    "graph/neo4j",
    inputs=["skb/store"],
    sections=["node_types", "relations"],
    partly=["candidates"],
    opens=_server,
    code=[load, versions],
    pool="neo4j",
    kinds={"neo4j"},
    optional=True,
)
def neo4j(step: Step, draft: Draft) -> None:
    """Nodes and edges on the Neo4j server of `NEO4J_URI`, beside older versions; skipped when that is not set.

    The result is a manifest: where the graph is, under which label, what its labels and relationship types are
    called, and how many there are. A run counts on the server whether they are still there.
    """
    driver, settings = step.opened
    store, schema = step.input("skb/store"), GraphSchema.from_spec(step.spec)
    with connect(store.file(SKB_FILE), read_only=True) as con:
        loaded = load_skb(driver, con, schema, dataset=step.dataset, data=skb_of(store), database=settings.database)
    nodes, relationships, self_loops = loaded.counts.totals
    draft.finish(
        step.recipe.content_key(),
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
