"""Stage ``skb``: the knowledge base itself."""

from skb_pipeline.datasets.sources import hpo
from skb_pipeline.datasets.sources.stark import adapter as stark
from skb_pipeline.datasets.sources.tables import adapter as tables
from skb_pipeline.orchestration.assets.catalog import snapshotted
from skb_pipeline.orchestration.steps import Step, pipeline_asset
from skb_pipeline.skb import ingest as ingesting
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.artifacts import Draft
from skb_pipeline.workspace import SKB_FILE

SOURCES = (hpo, stark, tables)
"""Modules of the adapters: what they read out of files."""


@pipeline_asset(
    "skb/store",
    inputs=["catalog/snapshot"],
    sections=["source", "node_types", "relations", "candidates"],
    partly=["documents"],  # a STaRK adapter asks for its format, which follows from the source
    code=[ingesting, *SOURCES],
    kinds={"duckdb"},
)
def store(step: Step, draft: Draft) -> None:
    """Nodes, aliases and edges in one DuckDB file, cleaned, with bad rows in quarantine.

    Rows in = rows stored + rows quarantined + duplicates dropped + rows merged, for nodes and for edges. Rows of nodes
    that have one type and id and differ become one node; `merged_nodes` says which fields were in conflict. Node ids of
    an earlier load are kept.
    """
    previous = step.store.current(step.dataset, "skb/store")
    with snapshotted(step) as source:
        report = ingest(
            step.spec, source, draft.path / SKB_FILE, previous=previous.file(SKB_FILE) if previous else None
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
