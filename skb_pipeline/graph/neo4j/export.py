"""Writes an SKB file as CSV for ``neo4j-admin database import full``, for graphs too large to load through the driver.

The files make a whole database: the version's nodes and relationships as :mod:`skb_pipeline.graph.neo4j.load` writes
them, and the nodes that name the version and make it current. The import tool wants a database that is empty or may be
overwritten, so an exported graph does not join others.

Quoting: every text is in double quotes, with those inside doubled; a missing value is an empty field without quotes,
an empty text is ``""``. Back-slashes and back-ticks mean nothing. Elements of lists are separated by the control
character U+001F; one inside an alias becomes a blank, and is counted.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from skb_pipeline.graph.neo4j import versions
from skb_pipeline.graph.neo4j.load import CountMismatchError, count_skb, typed_columns
from skb_pipeline.graph.neo4j.versions import DATASET_NODE, VERSION_NODE, GraphCounts
from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.storage import atomic

SEPARATOR = "\x1f"
SCRIPT = "import.sh"
CONSTRAINTS = "constraints.cypher"
_NODE_HEADER = ":ID(node),nodeId:long,externalId:string,name:string,canonical:long,aliases:string[]"
_EDGE_HEADER = ":START_ID(node),edge_id:long,:END_ID(node),:TYPE"
_NODES = """
SELECT n.node_id AS id, n.node_id AS node_id, n.external_id, n.name, n.canonical,
       array_to_string(list_transform(a.aliases, lambda alias: replace(alias, chr(31), ' ')), chr(31)) AS aliases,
       {values} ? AS labels
FROM nodes n LEFT JOIN (SELECT node_id, list(alias ORDER BY alias) AS aliases FROM aliases GROUP BY 1) a USING (node_id)
WHERE n.node_type = ?
"""
_COMMAND = ("neo4j-admin", "database", "import", "full")
_EDGES = "SELECT head, edge_id, tail, ? AS type FROM edges WHERE relation = ?"


@dataclass(frozen=True)
class Neo4jExport:
    """What an export wrote.

    Attributes:
        folder: where the files are.
        label: the version label.
        counts: nodes and relationships written.
        aliases_changed: aliases with a U+001F inside, which became a blank.
        command: what imports the files, as arguments; to be run in ``folder``, which holds it as a script too.
    """

    folder: Path
    label: str
    counts: GraphCounts
    aliases_changed: int
    command: tuple[str, ...]


def export_skb(
    con: duckdb.DuckDBPyConnection,
    schema: GraphSchema,
    folder: Path,
    *,
    dataset: str,
    data: Mapping[str, str],
    gzip: bool = False,
) -> Neo4jExport:
    """Write all files into a new folder; it appears when it is complete.

    Args:
        con: connection to the SKB file.
        schema: the dataset's names.
        folder: must not exist, or be empty.
        dataset: name of the dataset.
        data: ``data_version`` and ``identity`` of the SKB.
        gzip: compress the data files.

    Raises:
        FileExistsError: the folder has something in it.
        ValueError: the file has types or relations that the schema lacks.
        CountMismatchError: fewer or more rows were written than the file has.
    """
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there already and not an empty folder")
    names = GraphNames.of(schema).within(versions.version_label(dataset, data))
    expected = count_skb(con, names)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.parent / atomic.scratch_name()
    scratch.mkdir()
    try:
        command = _write_files(con, scratch, schema, names, expected, dataset, data, gzip)
        atomic.fsync_tree(scratch)
        os.replace(scratch, folder)
        atomic.fsync_one(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Neo4jExport(folder, names.entity, expected, _count(con, "aliases", "contains(alias, chr(31))"), command)


def _write_files(
    con: duckdb.DuckDBPyConnection,
    folder: Path,
    schema: GraphSchema,
    names: GraphNames,
    expected: GraphCounts,
    dataset: str,
    data: Mapping[str, str],
    gzip: bool,
) -> tuple[str, ...]:
    (folder / "relationships-header.csv").write_text(_EDGE_HEADER + "\n")
    arguments = [f"--nodes={name}" for name in _write_meta(folder, names, expected, dataset, data)]
    for i, (node_type, label) in enumerate(sorted(names.labels.items())):
        file = folder / f"nodes-{i:03}{_slug(label)}.csv{'.gz' if gzip else ''}"
        labels, fields = SEPARATOR.join((label, names.entity)), typed_columns(schema, names, node_type)
        header = file.with_name(f"nodes-{i:03}-header.csv")
        with header.open("w", encoding="utf-8", newline="") as opened:
            typed = [f"{field.key}:{'double' if field.kind is FieldKind.NUMBER else 'string'}" for field in fields]
            csv.writer(opened, lineterminator="\n").writerow([*_NODE_HEADER.split(","), *typed, ":LABEL"])
        columns = [f"field{k}" for k in range(len(fields))]
        values = "".join(f"{field.expression} AS {column}, " for field, column in zip(fields, columns, strict=True))
        texts = [column for field, column in zip(fields, columns, strict=True) if field.kind is not FieldKind.NUMBER]
        query, parameters = _NODES.format(values=values), [*(field.path for field in fields), labels, node_type]
        written = _copy(con, query, parameters, file, ("external_id", "name", "aliases", *texts, "labels"))
        _check(f"nodes {label}", written, expected.nodes.get(label, 0))
        arguments.append(f"--nodes={header.name},{file.name}")
    for i, (relation, given) in enumerate(sorted(names.relation_types.items())):
        file = folder / f"relationships-{i:03}{_slug(given)}.csv{'.gz' if gzip else ''}"
        written = _copy(con, _EDGES, [given, relation], file, ("type",))
        _check(f"relationships {given}", written, expected.relationships.get(given, 0))
        arguments.append(f"--relationships=relationships-header.csv,{file.name}")
    options = [*_options(con), *arguments]
    script = folder / SCRIPT
    script.write_text(_script(options))
    script.chmod(0o755)
    statements = [*versions.meta_constraints(), versions.node_constraint(names.entity)]
    (folder / CONSTRAINTS).write_text("".join(f"{statement};\n" for statement in statements))
    return (*_COMMAND, "neo4j", *options)


def _write_meta(
    folder: Path, names: GraphNames, counts: GraphCounts, dataset: str, data: Mapping[str, str]
) -> list[str]:
    """The nodes beside the graph, one file per kind, header included."""
    rows = {
        VERSION_NODE: versions.version_properties(dataset, data, names, counts),
        DATASET_NODE: {"dataset": dataset, "current": names.entity},
    }
    files = {VERSION_NODE: "version.csv", DATASET_NODE: "dataset.csv"}
    for kind, properties in rows.items():
        with (folder / files[kind]).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(
                [f":ID({kind})", *(f"{key}:string" for key in properties), ":LABEL"]
            )
            csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(["0", *properties.values(), kind])
    return list(files.values())


def _copy(
    con: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[str], file: Path, texts: Sequence[str]
) -> int:
    """Write a query's rows; gives their number."""
    target = str(file).replace("'", "''")
    compression = "gzip" if file.suffix == ".gz" else "none"
    row = con.execute(
        f"COPY ({query}) TO '{target}' (FORMAT csv, HEADER false, DELIMITER ',', QUOTE '\"', ESCAPE '\"', NULLSTR '', "
        f"FORCE_QUOTE ({', '.join(texts)}), COMPRESSION {compression})",
        parameters,
    ).fetchone()
    assert row is not None
    return int(row[0])


def _options(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Options of the import tool, which expects fields over several lines, at a price, only if there are any."""
    pattern = "'[\\n\\r]'"
    several_lines = _count(con, "nodes", f"regexp_matches(name, {pattern}) OR regexp_matches(external_id, {pattern})")
    several_lines += _count(con, "aliases", f"regexp_matches(alias, {pattern})")
    # In JSON a line break is an escape.
    several_lines += _count(con, "nodes", "contains(fields::VARCHAR, '\\n') OR contains(fields::VARCHAR, '\\r')")
    options = ["--id-type=integer", "--array-delimiter=U+001F", "--bad-tolerance=0"]
    return [*options, "--multiline-fields=true"] if several_lines else options


def _script(options: Sequence[str]) -> str:
    lines = " \\\n  ".join(shlex.quote(option) for option in options)
    return (
        "#!/bin/sh\n"
        "# Imports the files beside this one into the database $1 (default: neo4j), which must be empty and stopped;\n"
        f"# then run {CONSTRAINTS} with cypher-shell.\n"
        'cd "$(dirname "$0")" || exit 1\n'
        f'{" ".join(_COMMAND)} "${{1:-neo4j}}" \\\n  {lines}\n'
    )


def _slug(name: str) -> str:
    """A part of a file name that tells which names are inside; the import tool takes file names as patterns."""
    slug = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:40]
    return f"-{slug}" if slug else ""


def _count(con: duckdb.DuckDBPyConnection, table: str, condition: str) -> int:
    row = con.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()
    assert row is not None
    return int(row[0])


def _check(what: str, written: int, expected: int) -> None:
    if written != expected:
        raise CountMismatchError(f"{what}: {written} rows written, the SKB file has {expected}")
