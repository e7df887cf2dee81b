"""Versions of graphs in one Neo4j database: their names, which one is current, counting and removing them.

All nodes of one version of a dataset have a label of their own, the *version label* ``<dataset>_<12 hex digits>``,
beside the label of their type. ``nodeId`` is unique within it. Beside the graphs there are two kinds of nodes:

* ``(:_SkbVersion_ {label, dataset, dataVersion, identity, names, counts, created})``, one per version, written when its
  load begins; ``names`` and ``counts`` are JSON;
* ``(:_SkbDataset_ {dataset, current, previous})``, one per dataset: the labels of the version to read and of the one
  before. It is written last, in one transaction, and that is the switch.

So Neo4j Community, which has just one database, holds any number of datasets, and a version is loaded beside the one
in use.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from skb_pipeline.graph.neo4j.bolt import BoltExecutor
from skb_pipeline.plans.names import GraphNames, quote
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.storage.artifacts import ManifestMismatchError, stable_hash
from skb_pipeline.storage.paths import check_dataset_name
from skb_pipeline.text.sinks import progress_bar

if TYPE_CHECKING:
    from neo4j import Driver, ManagedTransaction, Record, Session

VERSION = "2"
"""Bumped when the same data would be stored in another form, so that it becomes another version."""
VERSION_NODE = "_SkbVersion_"
DATASET_NODE = "_SkbDataset_"
REMOVED_AT_ONCE = 10_000
_NODES_AT_ONCE = 1_000
_VERSION_LABEL = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}_[0-9a-f]{12}")


@dataclass(frozen=True)
class GraphCounts:
    """Nodes by label, relationships and self-loops by type; every relationship counts once. There are no zeros."""

    nodes: Mapping[str, int]
    relationships: Mapping[str, int]
    self_loops: Mapping[str, int]

    @property
    def totals(self) -> tuple[int, int, int]:
        """Nodes, relationships, self-loops."""
        return sum(self.nodes.values()), sum(self.relationships.values()), sum(self.self_loops.values())

    def differences(self, other: GraphCounts) -> list[str]:
        """What differs, as text: ``relationships WRITES: 5, not 6``."""
        told = []
        for kind, mine in asdict(self).items():
            theirs = asdict(other)[kind]
            for name in sorted({*mine, *theirs}):
                if mine.get(name, 0) != theirs.get(name, 0):
                    told.append(f"{kind.replace('_', '-')} {name}: {mine.get(name, 0)}, not {theirs.get(name, 0)}")
        return told

    def fits_in(self, other: GraphCounts) -> bool:
        """Whether no number is larger than the other's."""
        return all(
            n <= asdict(other)[kind].get(name, 0) for kind, mine in asdict(self).items() for name, n in mine.items()
        )


@dataclass(frozen=True)
class StoredVersion:
    """A version in the database.

    Attributes:
        label: the version label.
        state: ``unfinished`` is one that a load began and has not switched to.
        names: what types and relations are called, with ``entity`` the version label.
        counts: what a complete load has.
        created: ISO time of the first load.
    """

    label: str
    dataset: str
    state: Literal["current", "previous", "unfinished"]
    data_version: str
    identity: str
    names: GraphNames
    counts: GraphCounts
    created: str


def version_label(dataset: str, data: Mapping[str, str]) -> str:
    """The label of one version: equal data under equal node ids have equal labels.

    Args:
        dataset: name of the dataset.
        data: ``data_version`` and ``identity`` of the SKB, as :func:`skb_pipeline.workspace.skb_of` gives them.
    """
    digest = stable_hash([VERSION, data["data_version"], data["identity"]])
    return f"{check_dataset_name(dataset)}_{digest[:12]}"


def list_versions(session: Session, dataset: str | None = None) -> list[StoredVersion]:
    """All versions, or those of one dataset; by dataset, then time."""
    records = read(
        session,
        f"MATCH (v:{quote(VERSION_NODE)}) WHERE $dataset IS NULL OR v.dataset = $dataset\n"
        f"OPTIONAL MATCH (d:{quote(DATASET_NODE)} {{dataset: v.dataset}})\n"
        "RETURN v.label AS label, v.dataset AS dataset, v.dataVersion AS data_version, v.identity AS identity, "
        "v.names AS names, v.counts AS counts, v.created AS created, d.current AS current, d.previous AS previous",
        dataset=dataset,
    )
    return sorted((_stored(record) for record in records), key=lambda version: (version.dataset, version.created))


def current_version(session: Session, dataset: str) -> StoredVersion | None:
    """The version of a dataset to read, or None."""
    return next((v for v in list_versions(session, dataset) if v.state == "current"), None)


def open_executor(
    driver: Driver,
    schema: GraphSchema,
    dataset: str,
    *,
    database: str | None = None,
    data: Mapping[str, str] | None = None,
) -> BoltExecutor:
    """An executor of plans over a dataset's current version; it stays with that version when another is switched to.

    Args:
        driver: an open driver; the caller closes it.
        schema: the dataset's names.
        dataset: name of the dataset.
        database: the server's database; None is the home database.
        data: the SKB that the version must have been made from (``data_version`` and ``identity``).

    Raises:
        ManifestMismatchError: nothing is loaded, it was made from other data, or lacks names of the schema.
    """
    with driver.session(database=database) as session:
        version = current_version(session, dataset)
    if version is None:
        raise ManifestMismatchError(
            f"Neo4j holds no version of {dataset!r}: run `skb-pipeline neo4j load --dataset {dataset}`"
        )
    if data is not None and version.label != version_label(dataset, data):
        raise ManifestMismatchError(
            f"Neo4j's version {version.label} of {dataset!r} was made from other data: "
            f"run `skb-pipeline neo4j load --dataset {dataset}`"
        )
    unknown = [t for t in schema.node_types if t not in version.names.labels]
    unknown += [r for r in schema.relations if r not in version.names.relation_types]
    unknown += [f for f in dict.fromkeys(field.name for field in schema.fields) if f not in version.names.properties]
    if unknown:
        raise ManifestMismatchError(f"Neo4j's version {version.label} has no names for {unknown}")
    return BoltExecutor(driver, schema, database, names=version.names)


def create_meta_constraints(session: Session) -> None:
    """One node per version, one per dataset."""
    for text in meta_constraints():
        write(session, text)


def meta_constraints() -> list[str]:
    """Statements that make the nodes beside the graphs unique."""
    return [
        f"CREATE CONSTRAINT {quote(f'{kind}{key}')} IF NOT EXISTS FOR (n:{quote(kind)}) REQUIRE n.{key} IS UNIQUE"
        for kind, key in ((VERSION_NODE, "label"), (DATASET_NODE, "dataset"))
    ]


def node_constraint(label: str) -> str:
    """Statement that makes ``nodeId`` unique within a version, and so gives it an index."""
    name, entity = quote(f"{_checked(label)}_nodeId"), quote(label)
    return f"CREATE CONSTRAINT {name} IF NOT EXISTS FOR (n:{entity}) REQUIRE n.nodeId IS UNIQUE"


def version_properties(dataset: str, data: Mapping[str, str], names: GraphNames, counts: GraphCounts) -> dict[str, str]:
    """Properties of a version's node."""
    tables = {
        "labels": dict(names.labels),
        "relationTypes": dict(names.relation_types),
        "properties": dict(names.properties),
    }
    return {
        "label": names.entity,
        "dataset": dataset,
        "dataVersion": data["data_version"],
        "identity": data["identity"],
        "names": json.dumps(tables, sort_keys=True),
        "counts": json.dumps(asdict(counts), sort_keys=True),
        "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }


def begin_version(session: Session, properties: Mapping[str, str]) -> None:
    """Write the node of a version whose load begins; one that is there already keeps its time."""
    fixed = {key: value for key, value in properties.items() if key not in ("label", "created")}
    write(
        session,
        f"MERGE (v:{quote(VERSION_NODE)} {{label: $label}}) ON CREATE SET v.created = $created SET v += $fixed",
        label=properties["label"],
        created=properties["created"],
        fixed=fixed,
    )


def switch(session: Session, dataset: str, label: str, *, keep_previous: bool = True) -> None:
    """Make a version current, in one transaction. Doing it twice is the same as once."""
    previous = "CASE WHEN d.current = $label THEN d.previous ELSE d.current END" if keep_previous else "null"
    write(
        session,
        f"MERGE (d:{quote(DATASET_NODE)} {{dataset: $dataset}})\nSET d.previous = {previous}, d.current = $label",
        dataset=dataset,
        label=label,
    )


def count_version(session: Session, label: str) -> GraphCounts:
    """Count all nodes and relationships of a version on the server."""
    entity = quote(_checked(label))
    nodes = read(session, f"MATCH (n:{entity}) UNWIND labels(n) AS label RETURN label, count(*) AS n")
    edges = read(
        session,
        f"MATCH (n:{entity})-[r]->(m)\n"
        "RETURN type(r) AS type, count(*) AS n, sum(CASE WHEN n = m THEN 1 ELSE 0 END) AS loops",
    )
    return GraphCounts(
        nodes={r["label"]: r["n"] for r in nodes if r["label"] != label},
        relationships={r["type"]: r["n"] for r in edges},
        self_loops={r["type"]: r["loops"] for r in edges if r["loops"]},
    )


def is_current_and_complete(session: Session, dataset: str, label: str) -> bool:
    """Whether a version is the one to read and has all its nodes and relationships, counted now."""
    version = current_version(session, dataset)
    return version is not None and version.label == label and count_version(session, label) == version.counts


def remove_stale(session: Session, dataset: str) -> list[str]:
    """Remove all versions of a dataset but the current and the previous; gives their labels."""
    stale = [version.label for version in list_versions(session, dataset) if version.state == "unfinished"]
    for label in stale:
        remove_version(session, label)
    return stale


def remove_dataset(session: Session, dataset: str) -> list[str]:
    """Remove everything of a dataset; gives the labels of the versions."""
    write(session, f"MATCH (d:{quote(DATASET_NODE)} {{dataset: $dataset}}) DELETE d", dataset=dataset)
    return remove_stale(session, dataset)


def remove_version(session: Session, label: str) -> None:
    """Remove one version in small transactions, its own node last, so that one that was cut short can be run again."""
    entity = quote(_checked(label))
    page = f"MATCH (n:{entity}) RETURN n.nodeId AS id ORDER BY n.nodeId LIMIT $limit"
    # A hub's relationships may be too many for one transaction, so nodes are freed of theirs before they go.
    edges = (
        f"UNWIND $ids AS id MATCH (n:{entity} {{nodeId: id}})-[r]-() WITH DISTINCT r LIMIT $limit DELETE r "
        "RETURN count(*) AS n"
    )
    nodes = f"UNWIND $ids AS id MATCH (n:{entity} {{nodeId: id}}) DETACH DELETE n"
    with progress_bar(what=f"remove {label}", unit=" nodes") as progress:
        while ids := [record["id"] for record in read(session, page, limit=_NODES_AT_ONCE)]:
            while write(session, edges, ids=ids, limit=REMOVED_AT_ONCE)[0]["n"]:
                continue
            write(session, nodes, ids=ids)
            progress.update(len(ids))
    write(session, f"DROP CONSTRAINT {quote(f'{label}_nodeId')} IF EXISTS")
    write(session, f"MATCH (v:{quote(VERSION_NODE)} {{label: $label}}) DELETE v", label=label)


def read(session: Session, text: str, **parameters: Any) -> list[Record]:
    """Records of a statement in a managed read transaction."""
    return session.execute_read(_run, text, parameters)


def write(session: Session, text: str, **parameters: Any) -> list[Record]:
    """Records of a statement in a managed write transaction; tried again after a passing failure, so it must be
    idempotent."""
    return session.execute_write(_run, text, parameters)


def _run(transaction: ManagedTransaction, text: str, parameters: dict[str, Any]) -> list[Record]:
    return list(transaction.run(text, parameters))


def _checked(label: str) -> str:
    if not _VERSION_LABEL.fullmatch(label):
        raise ValueError(f"{label!r} is not the label of a version")
    return label


def _stored(record: Record) -> StoredVersion:
    label, names, counts = record["label"], json.loads(record["names"]), json.loads(record["counts"])
    state: Literal["current", "previous", "unfinished"] = "unfinished"
    if label == record["current"]:
        state = "current"
    elif label == record["previous"]:
        state = "previous"
    return StoredVersion(
        label=label,
        dataset=record["dataset"],
        state=state,
        data_version=record["data_version"],
        identity=record["identity"],
        names=GraphNames(names["labels"], names["relationTypes"], (), properties=names.get("properties", {})).within(
            _checked(label)
        ),
        counts=GraphCounts(**counts),
        created=record["created"],
    )
