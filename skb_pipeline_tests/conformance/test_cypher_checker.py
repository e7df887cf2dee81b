"""Every Cypher text, compiled or sent, passes Neo4j's own parser and semantic checker.

They come as the npm package that Neo4j's editors use, which knows no server; it is installed once into the cache folder
of the user. Without Node, or where the package cannot be had, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from neo4j import ManagedTransaction

from skb_pipeline.graph.neo4j import versions
from skb_pipeline.graph.neo4j.cypher import compile_candidate_check, compile_cypher
from skb_pipeline.graph.neo4j.load import load_skb
from skb_pipeline.graph.neo4j.versions import open_executor
from skb_pipeline.plans.names import PROPERTIES, GraphNames
from skb_pipeline_tests.bolt_loader import clear
from skb_pipeline_tests.bolt_server import BoltServer
from skb_pipeline_tests.conformance.graphs import RANDOM_SCHEMA, bind, loaded, make_plan, random_graph
from skb_pipeline_tests.conformance.plans import random_plans
from skb_pipeline_tests.graph.neo4j.cases import TOY_SCHEMA, toy_store

pytestmark = pytest.mark.deep

PACKAGE, VERSION = "@neo4j-cypher/language-support", "2.0.0-next.38"
SCRIPT = Path(__file__).with_name("cypher_checker.cjs")
ERROR, WARNING = 1, 2
OF_CANDIDATES = ("id", "cosine")
"""Keys of the maps that the parameter with candidates holds."""


class Checker:
    """The parser and the semantic checker."""

    def __init__(self, node: str, package: Path) -> None:
        self._command = [node, str(SCRIPT), str(package)]

    def complaints(self, queries: Sequence[str], schema: Mapping[str, Any], most: int = WARNING) -> list[str]:
        """What is said against some queries, with the query; warnings only where ``most`` asks for them."""
        asked = json.dumps({"schema": schema, "queries": list(queries)})
        told = subprocess.run(
            self._command, input=asked, capture_output=True, text=True, check=True, timeout=600
        ).stdout
        return [
            f"{one['message']}\n{query}"
            for query, found in zip(queries, json.loads(told), strict=True)
            for one in found
            if one["severity"] <= most
        ]


@pytest.fixture(scope="module")
def checker() -> Checker:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node is not on this machine")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "skb_pipeline_tests" / f"cypher-{VERSION}"
    package = folder / "node_modules" / PACKAGE
    if not (package / "package.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"{PACKAGE}@{VERSION}"]
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        except subprocess.SubprocessError as error:
            pytest.skip(f"{PACKAGE} cannot be installed: {error}")
    checker = Checker(node, package)
    try:
        checker.complaints(["RETURN 1"], {})
    except subprocess.SubprocessError as error:
        pytest.skip(f"{PACKAGE} does not run on this Node: {error}")
    return checker


def names_of(names: GraphNames) -> dict[str, Any]:
    """The names of a graph as the checker takes them."""

    def bare(quoted: str) -> str:
        return quoted.strip("`").replace("``", "`")

    return {
        "labels": [*map(bare, names.labels.values()), names.entity],
        "relationshipTypes": [*map(bare, names.relation_types.values())],
        "propertyKeys": [*PROPERTIES, *OF_CANDIDATES, *map(bare, names.properties.values())],
    }


def test_it_finds_what_is_wrong(checker: Checker) -> None:
    schema = {"labels": ["A"], "relationshipTypes": ["B"], "propertyKeys": ["x"]}
    fine, syntax, variable, label = checker_queries = (
        "MATCH (n:A)-[:B]->(m) WHERE n.x > 3 RETURN m",
        "MATCH (n:A-[:B]->(m) RETURN n",
        "MATCH (n:A) RETURN m",
        "MATCH (n:C) RETURN n",
    )
    assert not checker.complaints([fine], schema)
    for query in (syntax, variable):
        assert checker.complaints([query], schema, ERROR), query
    assert len(checker.complaints(checker_queries, schema)) >= 3
    assert "Label C is not present" in checker.complaints([label], schema)[0]


def test_texts_of_random_plans(checker: Checker) -> None:
    """With direction, negation, optional hops and conditions on fields, as they are run and as they are shown."""
    names = GraphNames.of(RANDOM_SCHEMA)
    with loaded(random_graph(5, 300, 2_000)) as con:
        plans = [case.plan for case in random_plans(con, RANDOM_SCHEMA, 500, seed=11)]
    texts = [compile_cypher(plan, RANDOM_SCHEMA, header=i % 2 == 0).text for i, plan in enumerate(plans)]
    texts += [compile_candidate_check(plan, names) for plan in plans]
    assert sum(bool(plan.where) for plan in plans) > 50
    assert sum(any(hop.optional for hop in plan.hops) for plan in plans) > 50
    found = checker.complaints(list(dict.fromkeys(texts)), names_of(names))
    assert not found, found[0]


def use(server: BoltServer, tmp_path: Path) -> None:
    """A graph is loaded, looked at, asked and removed."""
    clear(server.driver, server.database)
    with toy_store(tmp_path / "toy.duckdb") as (con, data):
        for version in (data, {**data, "data_version": "another"}):
            (brand,) = con.execute("SELECT min(node_id) FROM nodes WHERE node_type = 'brand'").fetchone() or (0,)
            load_skb(server.driver, con, TOY_SCHEMA, dataset="toy", data=version, database=server.database)
    executor = open_executor(server.driver, TOY_SCHEMA, "toy", database=server.database, data=version)
    plan = make_plan({"b": "brand"}, ["b -has_brand- T:product"])
    assert executor.execute(plan, bind(b={brand: 1.0}), limit=5).route == "cypher"
    with server.driver.session(database=server.database) as session:
        assert len(versions.list_versions(session, "toy")) == 2
        versions.remove_stale(session, "toy")
        versions.remove_dataset(session, "toy")
    clear(server.driver, server.database)


def test_texts_that_are_sent(
    checker: Checker, bolt_server: BoltServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a load, a second version beside it, a plan, and a removal."""
    sent: list[str] = []
    run = ManagedTransaction.run

    def recorded(self: ManagedTransaction, query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(str(getattr(query, "text", query)))
        return run(self, query, *args, **kwargs)

    monkeypatch.setattr(ManagedTransaction, "run", recorded)
    use(bolt_server, tmp_path)
    assert len(set(sent)) > 8
    assert any("CREATE" in text or "MERGE" in text for text in sent)
    nothing: dict[str, Any] = {}
    found = checker.complaints(list(dict.fromkeys(sent)), nothing, ERROR)
    assert not found, found[0]
