"""Commands on a Neo4j server: ``neo4j load``, ``export``, ``status`` and ``remove``."""

from __future__ import annotations

from pathlib import Path

import click

from skb_pipeline.cli.options import dataset_option, format_option
from skb_pipeline.cli.printing import note, out, print_rows, readable_errors
from skb_pipeline.errors import UnknownNameError, unknown_name


@click.group()
def neo4j() -> None:
    """The graph on a Neo4j server (NEO4J_URI, NEO4J_USER, NEO4J_PASSWORD, NEO4J_DATABASE)."""


@neo4j.command("load")
@dataset_option
@click.option("--force", is_flag=True, help="Load although nothing changed.")
@format_option
@readable_errors
def neo4j_load(name: str, force: bool, output: str) -> None:
    """Load a dataset beside its version in use, check all counts, and switch to it."""
    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings
    from skb_pipeline.orchestration.running import materialise, prepare_home

    get_spec(name)
    Neo4jSettings.require()
    prepare_home()
    outcomes = materialise(name, to="graph/neo4j", force=force)
    (outcome,) = (o for o in outcomes if o.asset == "graph/neo4j")
    columns = ["label", "address", "database", "nodes", "relationships", "self-loops", "reused"]
    print_rows([outcome.metadata], columns, output)


@neo4j.command("export")
@dataset_option
@click.option("--output", "folder", required=True, type=click.Path(path_type=Path), help="A new or empty folder.")
@click.option("--gzip", is_flag=True, help="Compress the data files.")
@readable_errors
def neo4j_export(name: str, folder: Path, gzip: bool) -> None:
    """Write CSV files for `neo4j-admin database import` and print the command that imports them."""
    import shlex

    from skb_pipeline.datasets.catalogue import get_spec
    from skb_pipeline.graph.neo4j.export import export_skb
    from skb_pipeline.plans.schema import GraphSchema
    from skb_pipeline.storage.duck import connect
    from skb_pipeline.workspace import SKB_FILE, Workspace, skb_of

    schema, store = GraphSchema.from_spec(get_spec(name)), Workspace().store.require(name, "skb/store")
    with connect(store.file(SKB_FILE), read_only=True) as con:
        export = export_skb(con, schema, folder, dataset=name, data=skb_of(store), gzip=gzip)
    nodes, relationships, _ = export.counts.totals
    note(f"{nodes} nodes and {relationships} relationships of {export.label} in {export.folder}")
    if export.aliases_changed:
        note(f"{export.aliases_changed} aliases had a U+001F inside; it is a blank now")
    note("In that folder, with the database stopped (or ./import.sh DATABASE):")
    out(shlex.join(export.command))


@neo4j.command("status")
@format_option
@readable_errors
def neo4j_status(output: str) -> None:
    """List the versions of all datasets on the server."""
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
    from skb_pipeline.graph.neo4j.versions import list_versions

    settings = Neo4jSettings.require()
    with open_driver(settings) as driver, driver.session(database=settings.database) as session:
        found = list_versions(session)
    note(f"{settings.address}, {settings.database or 'home database'}: {len(found)} versions")
    columns = ["dataset", "label", "state", "nodes", "relationships", "created"]
    rows = [
        {
            "dataset": v.dataset, "label": v.label, "state": v.state, "nodes": v.counts.totals[0],
            "relationships": v.counts.totals[1], "created": v.created,
        }
        for v in found
    ]  # fmt: skip
    print_rows(rows, columns, output)


@neo4j.command("remove")
@click.option("--dataset", "name", required=True, help="Name of a dataset; it need not be in the catalogue any more.")
@readable_errors
def neo4j_remove(name: str) -> None:
    """Remove all versions of a dataset from the server."""
    from skb_pipeline.graph.neo4j.connection import Neo4jSettings, open_driver
    from skb_pipeline.graph.neo4j.versions import list_versions, remove_dataset

    settings = Neo4jSettings.require()
    with open_driver(settings) as driver, driver.session(database=settings.database) as session:
        known = sorted({version.dataset for version in list_versions(session)})
        if name not in known:
            raise UnknownNameError(unknown_name(f"no version of a dataset {name!r} is on the server", name, known))
        removed = remove_dataset(session, name)
    note(f"{len(removed)} versions removed")
