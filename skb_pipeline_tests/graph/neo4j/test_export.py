"""The CSV files for the import tool, read back with the standard library."""

import csv
import gzip
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.graph.neo4j import export as neo4j_export
from skb_pipeline.graph.neo4j.export import Neo4jExport, export_skb
from skb_pipeline.graph.neo4j.load import CountMismatchError, load_skb
from skb_pipeline.graph.neo4j.versions import remove_dataset, version_label
from skb_pipeline.plans.names import GraphNames, quote
from skb_pipeline.plans.schema import GraphSchema, Triple
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.bolt_loader import clear
from skb_pipeline_tests.bolt_server import BoltServer
from skb_pipeline_tests.conformance.graphs import Graph, load_graph
from skb_pipeline_tests.conformance.test_hostile_names import HOSTILE
from skb_pipeline_tests.graph.neo4j.cases import HOSTILE_NAMES, NODES, STORED_EDGES, TOY_SCHEMA, product, toy_store

DATA = {"data_version": "a", "identity": "b"}


def parse(path: Path) -> list[list[str | None]]:
    """Rows of a CSV file by RFC 4180; an empty field without quotes is None, as it is for the import tool."""
    text = (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="").read()
    rows: list[list[str | None]] = [[]]
    i = 0
    while i < len(text):
        value: str | None = None
        if text[i] == '"':
            end = i + 1
            while text[end : end + 2] == '""' or text[end] != '"':
                end += 2 if text[end] == '"' else 1
            value, i = text[i + 1 : end].replace('""', '"'), end + 1
        else:
            end = min(k for k in (text.find(",", i), text.find("\n", i)) if k >= 0)
            value, i = text[i:end] or None, end
        rows[-1].append(value)
        if text[i] == "\n":
            rows.append([])
        else:
            assert text[i] == ","
            if text[i + 1] == "\n":
                rows[-1].append(None)
                rows.append([])
                i += 1
        i += 1
    assert rows.pop() == []
    return rows


def data_files(export: Neo4jExport, kind: str) -> list[Path]:
    """Data files of one kind, in the order of the command; each follows its header."""
    found = [a.removeprefix(f"--{kind}=").split(",") for a in export.command if a.startswith(f"--{kind}=")]
    pairs = [pair for pair in found if len(pair) == 2]
    assert all(re.fullmatch(rf"{kind}(-\d+)?-header.csv", head) for head, _ in pairs)
    return [export.folder / pair[1] for pair in found if len(pair) == 2]


def read_back(export: Neo4jExport) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """Nodes as (id, external id, name, canonical, aliases, labels, values of fields), edges as (id, head, type,
    tail)."""
    nodes, edges = set(), set()
    for path in data_files(export, "nodes"):
        (header,) = parse(path.with_name(f"{path.name[:9]}-header.csv"))
        columns = [column.rpartition(":") for column in header[6:-1] if column is not None]
        for row in parse(path):
            key, node, external_id, name, canonical, aliases, *values, labels = row
            fields = {
                key: float(value) if kind == "double" else value
                for (key, _, kind), value in zip(columns, values, strict=True)
                if value is not None
            }
            assert key == node
            assert labels is not None
            listed = tuple(aliases.split("\x1f")) if aliases is not None else None
            told = json.dumps(fields, sort_keys=True)
            nodes.add(
                (int(node or ""), external_id, name, int(canonical or ""), listed, tuple(labels.split("\x1f")), told)
            )
    for path in data_files(export, "relationships"):
        for head, edge, tail, kind in parse(path):
            edges.add((int(edge or ""), int(head or ""), kind, int(tail or "")))
    return nodes, edges


def stored(con: Any, names: GraphNames, schema: GraphSchema) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """The same from the SKB file."""
    aliases: dict[int, tuple[str, ...]] = {}
    for node, alias in con.execute("SELECT node_id, alias FROM aliases ORDER BY node_id, alias").fetchall():
        aliases[node] = (*aliases.get(node, ()), alias)

    def told(kind: str, fields: dict[str, Any]) -> str:
        found = {}
        for field in schema.fields:
            value = fields.get(field.name)
            if field.node_type == kind and value is not None:
                found[names.properties[field.name]] = float(value) if field.kind == "number" else value
        return json.dumps(found, sort_keys=True)

    nodes = {
        (
            node,
            external_id,
            name,
            canonical,
            aliases.get(node),
            (names.labels[kind], names.entity),
            told(kind, json.loads(fields)),
        )
        for node, external_id, name, canonical, kind, fields in con.execute(
            "SELECT node_id, external_id, name, canonical, node_type, fields FROM nodes"
        ).fetchall()
    }
    edges = {
        (edge, head, names.relation_types[relation], tail)
        for edge, head, relation, tail in con.execute("SELECT edge_id, head, relation, tail FROM edges").fetchall()
    }
    return nodes, edges


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_read_back_is_what_is_stored(tmp_path: Path, compressed: bool) -> None:
    nodes = [product(f"id {name[:50]}", name, [f"{name}!", f"1;{name}"]) for name in HOSTILE_NAMES]
    with toy_store(tmp_path / "toy.duckdb", nodes=[*NODES, *nodes]) as (con, data):
        target = tmp_path / "it's new" / "out"
        export = export_skb(con, TOY_SCHEMA, target, dataset="toy", data=data, gzip=compressed)
        expected = stored(con, GraphNames.of(TOY_SCHEMA).within(export.label), TOY_SCHEMA)
    assert len(expected[0]) == len(NODES) + len(HOSTILE_NAMES)
    assert len(expected[1]) == STORED_EDGES == export.counts.totals[1]
    assert read_back(export) == expected
    assert export.label == version_label("toy", data)
    assert export.aliases_changed == 0
    assert all((path.suffix == ".gz") == compressed for path in data_files(export, "nodes"))
    # Two parsers agree, where the standard one cannot tell empty from missing.
    for path in data_files(export, "nodes"):
        with (gzip.open if compressed else open)(path, "rt", encoding="utf-8", newline="") as file:
            assert list(csv.reader(file)) == [[value or "" for value in row] for row in parse(path)]


def test_headers_and_the_nodes_that_make_the_version_current(tmp_path: Path) -> None:
    with toy_store(tmp_path / "toy.duckdb") as (con, data):
        export = export_skb(con, TOY_SCHEMA, tmp_path / "out", dataset="toy", data=data)
    (head,) = parse(export.folder / "nodes-001-header.csv")
    typed = [f"{GraphNames.of(TOY_SCHEMA).properties[f.name]}:{'double' if f.kind == 'number' else 'string'}"
             for f in TOY_SCHEMA.fields if f.node_type == "product"]  # fmt: skip
    assert typed
    assert head == [
        ":ID(node)", "nodeId:long", "externalId:string", "name:string", "canonical:long", "aliases:string[]", *typed,
        ":LABEL",
    ]  # fmt: skip
    (head,) = parse(export.folder / "relationships-header.csv")
    assert head == [":START_ID(node)", "edge_id:long", ":END_ID(node)", ":TYPE"]
    head, row = parse(export.folder / "version.csv")
    version = dict(zip(head, row, strict=True))
    assert version[":ID(_SkbVersion_)"] == "0"
    assert version[":LABEL"] == "_SkbVersion_"
    assert (version["label:string"], version["dataVersion:string"]) == (export.label, data["data_version"])
    assert json.loads(version["names:string"] or "")["labels"] == {"brand": "Brand", "product": "Product"}
    assert json.loads(version["counts:string"] or "")["self_loops"] == {"ALSO_BUY": 1, "SIMILAR": 1}
    head, row = parse(export.folder / "dataset.csv")
    assert dict(zip(head, row, strict=True)) == {
        ":ID(_SkbDataset_)": "0", "dataset:string": "toy", "current:string": export.label, ":LABEL": "_SkbDataset_",
    }  # fmt: skip
    statements = (export.folder / "constraints.cypher").read_text().splitlines()
    assert len(statements) == 3
    assert f"FOR (n:`{export.label}`) REQUIRE n.nodeId IS UNIQUE;" in statements[-1]


def test_the_script_runs_the_command_in_its_own_folder(tmp_path: Path) -> None:
    with toy_store(tmp_path / "toy.duckdb") as (con, data):
        export = export_skb(con, TOY_SCHEMA, tmp_path / "a b", dataset="toy", data=data)
    tool = tmp_path / "bin" / "neo4j-admin"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\npwd\nfor a in "$@"; do echo "$a"; done\n')
    tool.chmod(0o755)
    for arguments, database in (([], "neo4j"), (["my db"], "my db")):
        done = subprocess.run(
            [str(export.folder / "import.sh"), *arguments], env={"PATH": f"{tool.parent}:/usr/bin:/bin"},
            capture_output=True, text=True, check=True, cwd="/",
        )  # fmt: skip
        told = done.stdout.splitlines()
        expected = [a if a != "neo4j" else database for a in export.command[1:]]
        assert told == [str(export.folder), *expected]
    # The database comes first: an option that takes several values would swallow it at the end.
    assert export.command[:5] == ("neo4j-admin", "database", "import", "full", "neo4j")
    assert set(export.command[5:8]) == {"--id-type=integer", "--array-delimiter=U+001F", "--bad-tolerance=0"}
    assert sum(a.startswith("--nodes=") for a in export.command) == 4
    assert sum(a.startswith("--relationships=") for a in export.command) == 4
    assert shlex.split(shlex.join(export.command)) == list(export.command)


def test_fields_over_several_lines_are_announced_only_if_there_are_any(tmp_path: Path) -> None:
    flag = "--multiline-fields=true"
    for i, (node, announced) in enumerate(
        [
            (product("8", "plain", ["plain"]), False),
            (product("8", "two\nlines"), True),
            (product("8", "plain", ["a\rb"]), True),
            (product("a\nb", "plain"), True),
        ]
    ):
        with toy_store(tmp_path / f"{i}.duckdb", nodes=[*NODES, node]) as (con, data):
            several = con.execute(
                "SELECT count(*) FROM (SELECT name AS t FROM nodes UNION ALL SELECT external_id FROM nodes "
                "UNION ALL SELECT alias FROM aliases) WHERE contains(t, chr(10)) OR contains(t, chr(13))"
            ).fetchone()
            export = export_skb(con, TOY_SCHEMA, tmp_path / str(i), dataset="toy", data=data)
        assert (flag in export.command) == (several != (0,)) == announced, node


def test_hostile_types_and_relations(tmp_path: Path) -> None:
    usable = [name for name in HOSTILE if name]
    triples = tuple(Triple(name, f"{name}?", name) for name in usable)
    schema = GraphSchema(tuple(usable), triples, (usable[0],))
    graph = Graph(dict(enumerate(usable)), [(i, f"{name}?", i) for i, name in enumerate(usable)])
    with connect() as con:
        load_graph(con, graph)
        export = export_skb(con, schema, tmp_path / "out", dataset="toy", data=DATA)
        names = GraphNames.of(schema).within(export.label)
        assert read_back(export) == stored(con, names, schema)
    assert export.counts.self_loops == dict.fromkeys(names.relation_types.values(), 1)
    for path in export.folder.iterdir():
        assert set(path.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."), path


def test_an_alias_with_the_separator_is_changed_and_counted(tmp_path: Path) -> None:
    with connect() as con:
        load_graph(con, Graph({0: "product", 1: "brand"}, []))
        con.execute("INSERT INTO aliases VALUES (0, 'a' || chr(31) || 'b'), (0, 'c'), (1, 'd')")
        export = export_skb(con, TOY_SCHEMA, tmp_path / "out", dataset="toy", data=DATA)
    assert export.aliases_changed == 1
    nodes, edges = read_back(export)
    assert {node[0]: node[4] for node in nodes} == {0: ("a b", "c"), 1: ("d",)}
    assert edges == set()


def test_a_folder_in_use_is_left_alone_and_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine").write_text("x")
    empty = tmp_path / "empty"
    empty.mkdir()
    with toy_store(tmp_path / "toy.duckdb") as (con, data):
        with pytest.raises(FileExistsError, match="used is there already"):
            export_skb(con, TOY_SCHEMA, used, dataset="toy", data=data)
        monkeypatch.setattr(neo4j_export, "_EDGES", neo4j_export._EDGES + " AND edge_id > 1")
        with pytest.raises(CountMismatchError, match=r"relationships ALSO_BUY: \d rows written, the SKB file has 3"):
            export_skb(con, TOY_SCHEMA, tmp_path / "out", dataset="toy", data=data)
        monkeypatch.undo()
        assert export_skb(con, TOY_SCHEMA, empty, dataset="toy", data=data).folder == empty
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "toy.duckdb", "used"]
    assert (empty / "import.sh").is_file()


def _import(server: BoltServer, export: Neo4jExport) -> None:
    """Do with the files what the import tool does, going by their headers."""
    convert: dict[str, Any] = {"long": int, "string": str, "string[]": lambda text: text.split("\x1f")}
    for kind in ("nodes", "relationships"):
        for argument in (a for a in export.command if a.startswith(f"--{kind}=")):
            files = argument.removeprefix(f"--{kind}=").split(",")
            (head, *rows) = [row for file in files for row in parse(export.folder / file)]
            for row in rows:
                cells = dict(zip((column or "" for column in head), row, strict=True))
                values = {}
                for column, text in cells.items():
                    name, form = column.split(":")
                    if name and text is not None:
                        values[name] = convert[form](text)
                if kind == "nodes":
                    labels = ":".join(map(quote, (cells[":LABEL"] or "").split("\x1f")))
                    statement = f"CREATE (n:{labels}) SET n = $values"
                else:
                    statement = (
                        f"MATCH (a:{quote(export.label)} {{nodeId: $a}}), (b:{quote(export.label)} {{nodeId: $b}}) "
                        f"CREATE (a)-[r:{quote(cells[':TYPE'] or '')}]->(b) SET r = $values"
                    )
                ends = {"a": int(cells.get(":START_ID(node)") or 0), "b": int(cells.get(":END_ID(node)") or 0)}
                server.driver.execute_query(statement, {"values": values, **ends}, database_=server.database)
    for statement in (export.folder / "constraints.cypher").read_text().splitlines():
        server.driver.execute_query(statement.rstrip(";"), database_=server.database)


def test_an_imported_export_is_what_a_load_would_have_made(bolt_server: BoltServer, tmp_path: Path) -> None:
    server = bolt_server

    def content() -> list[Any]:
        text = "MATCH (n) OPTIONAL MATCH (n)-[r]->(m) RETURN labels(n), properties(n), type(r), r.edge_id, m.nodeId"
        rows = [[*record.values()] for record in server.driver.execute_query(text, database_=server.database).records]
        for labels, properties, *_ in rows:
            labels.sort()
            properties.pop("created", None)
        return sorted(rows, key=repr)

    with toy_store(tmp_path / "toy.duckdb") as (con, data):
        export = export_skb(con, TOY_SCHEMA, tmp_path / "out", dataset="toy", data=data)
        clear(server.driver, server.database)
        _import(server, export)
        imported = content()
        options = {"dataset": "toy", "data": data, "database": server.database}
        assert not load_skb(server.driver, con, TOY_SCHEMA, **options).written
        assert content() == imported
        clear(server.driver, server.database)
        assert load_skb(server.driver, con, TOY_SCHEMA, **options).written
        assert content() == imported
    with server.driver.session(database=server.database) as session:
        assert remove_dataset(session, "toy") == [export.label]
    clear(server.driver, server.database)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")),
                          st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\x1f"),
                                           min_size=1), max_size=3, unique=True)), max_size=8))  # fmt: skip
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, list[str]]]) -> None:
    with connect() as con:
        load_graph(con, Graph(dict.fromkeys(range(len(texts)), "product"), []))
        for i, (name, aliases) in enumerate(texts):
            con.execute("UPDATE nodes SET name = ?, external_id = ? WHERE node_id = ?", [name, f"{i}{name}", i])
            for alias in aliases:
                con.execute("INSERT INTO aliases VALUES (?, ?)", [i, alias])
        folder = tmp_path_factory.mktemp("any") / "out"
        export = export_skb(con, TOY_SCHEMA, folder, dataset="toy", data=DATA)
        assert read_back(export) == stored(con, GraphNames.of(TOY_SCHEMA).within(export.label), TOY_SCHEMA)
