"""What is written as STaRK's files is what was in the SKB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.records import RawQuery
from skb_pipeline.datasets.sources import open_source
from skb_pipeline.datasets.sources.stark import layout
from skb_pipeline.datasets.sources.stark.synthetic import synthetic_stark
from skb_pipeline.datasets.sources.stark.writing import write_stark
from skb_pipeline.questions.frame import queries_hash
from skb_pipeline.questions.from_source import queries_from_source
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.datasets.stark_files import write_amazon, write_mag, write_prime, write_questions
from skb_pipeline_tests.datasets.test_stark import EDGES, fields, load, rows, spec_for
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.toy import ListSource, buy, toy_spec

WRITERS = {"amazon": write_amazon, "mag": write_mag, "prime": write_prime}


def queries_of(path: Path, flavour: str, folder: Path) -> tuple[pd.DataFrame, str]:
    spec = spec_for(flavour, folder)
    with connect(path, read_only=True) as con:
        frame, _ = queries_from_source(con, open_source(spec).queries() or [], spec.candidate_types)
        return frame, queries_hash(frame, con)


def round_trip(flavour: Any, first: Path, report: LoadReport, folder: Path) -> None:
    """Write the SKB ``first``, read it again and compare content, identity and questions."""
    queries, digest = queries_of(first, flavour, first.parent)
    with connect(first, read_only=True) as con:
        numbers = write_stark(con, folder, flavour, queries)
    assert (numbers == np.arange(len(numbers))).all()
    second, again = load(flavour, folder)
    assert (again.data_version, again.identity) == (report.data_version, report.identity)
    everything = "SELECT node_id, external_id, node_type, name, fields::VARCHAR FROM nodes ORDER BY node_id"
    assert rows(second, everything) == rows(first, everything)
    assert queries_of(second, flavour, folder)[1] == digest


@pytest.mark.parametrize("flavour", ["amazon", "mag", "prime"])
def test_real_files_come_back_equal(tmp_path: Path, flavour: Any) -> None:
    WRITERS[flavour](tmp_path / "a")
    write_questions(tmp_path / "a", flavour)
    path, report = load(flavour, tmp_path / "a")
    if flavour == "mag":  # answers there are papers only, so most of these stay absent
        assert report.nodes_by_type["paper"] == 2
    round_trip(flavour, path, report, tmp_path / "b")


@pytest.mark.parametrize("flavour", ["amazon", "mag", "prime"])
def test_made_up_files_load_without_a_fault_and_come_back_equal(tmp_path: Path, flavour: Any) -> None:
    synthetic_stark(tmp_path / "a", flavour, scale=0.0005, seed=3)
    path, report = load(flavour, tmp_path / "a")
    assert report.quarantine_reasons == {}
    assert min(report.nodes_by_type.values()) >= 3
    assert sum(report.edges_by_relation.values()) == report.edges["stored"] > 100
    round_trip(flavour, path, report, tmp_path / "b")


def test_equal_seeds_give_equal_files_and_others_do_not(tmp_path: Path) -> None:
    def content(name: str, seed: int) -> dict[str, bytes]:
        synthetic_stark(tmp_path / name, "amazon", scale=0.0002, seed=seed)
        return {
            path.relative_to(tmp_path / name).as_posix(): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.suffix in (".pkl", ".csv", ".index")
        }

    first = content("a", 1)
    assert first == content("b", 1)
    assert first != content("c", 2)
    assert {Path(name).name for name in first} == {
        layout.NODE_INFO, layout.NODE_TYPE_DICT, layout.EDGE_TYPE_DICT, layout.QUESTIONS, layout.HUMAN_QUESTIONS,
        "train.index", "val.index", "test.index", "test-0.1.index",
    }  # fmt: skip


def test_products_of_the_synthetic_amazon_are_joined_to_the_brands_they_name(tmp_path: Path) -> None:
    synthetic_stark(tmp_path, "amazon", scale=0.001)
    path, report = load("amazon", tmp_path)
    found = fields(path)
    for kind in ("brand", "category", "color"):
        edges = [(h, t) for h, relation, t in rows(path, EDGES) if relation == f"has_{kind}"]
        named = [(i, name) for i, info in found.items() for name in _listed(info.get(kind))]
        assert sorted((h, found[t][f"{kind}_name"]) for h, t in edges) == sorted(named)
    assert report.fill_rate["product.brand"] == pytest.approx(0.836, abs=0.01)


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []


def test_any_skb_can_be_written_as_prime(tmp_path: Path) -> None:
    nodes = [("product", "b", {"title": "Tent", "price": 3}), ("product", "a", {"title": "Pole"}),
             ("brand", "x", {"name": "Acme"})]  # fmt: skip
    edges = [buy("a", "b"), buy("b", "a"), ("product", "a", "has_brand", "brand", "x")]
    ingest(toy_spec(), ListSource(nodes, edges), tmp_path / "s.duckdb")  # type: ignore[arg-type]
    queries = [
        RawQuery("q", 1, "one", "tent?", "train", ["b"]),
        RawQuery("q", 2, "two", "pole?", "test", ["a", "gone"]),
    ]
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        frame, _ = queries_from_source(con, queries, ["product"])
        numbers = write_stark(con, tmp_path, "prime", frame)
        order = [
            con.execute("SELECT external_id FROM nodes WHERE node_id = ?", [int(i)]).fetchall()[0][0] for i in numbers
        ]
    assert order == ["x", "a", "b"]  # by type, then in canonical order
    source = open_source(spec_for("prime", tmp_path))
    found = [(n.external_id, n.node_type, n.fields) for n in source.nodes()]
    assert found[2] == ("2", "product", {"id": "b", "name": "Tent", "source": "",
                                         "details": {"price": 3.0, "title": "Tent"}})  # fmt: skip
    batches = [row for batch in source.edges() for row in batch.to_pylist()]
    assert sorted((r["head_id"], r["relation"], r["tail_id"]) for r in batches) == [
        ("1", "also_buy", "2"), ("1", "has_brand", "0"), ("2", "also_buy", "1"),
    ]  # fmt: skip
    assert [(q.query_id, q.split, q.answers) for q in source.queries() or []] == [
        ("0", "train", ["2"]), ("1", "test", ["1", "3"]),
    ]  # fmt: skip


@pytest.mark.parametrize("flavour", ["amazon", "mag"])
def test_types_without_a_place_are_named(tmp_path: Path, flavour: Any) -> None:
    ingest(
        toy_spec(), ListSource([("product", "0", {"title": "x"})], [buy("0", "0", "similar")]), tmp_path / "s.duckdb"
    )
    with (
        connect(tmp_path / "s.duckdb", read_only=True) as con,
        pytest.raises(ValueError, match=r"\['(similar|product)'\]"),
    ):
        write_stark(con, tmp_path, flavour)


VALUE = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PRODUCT = st.fixed_dictionaries(
    {"title": VALUE, "price": VALUE},
    optional={
        "brand": VALUE,
        "feature": st.lists(VALUE, max_size=3),
        "description": st.lists(VALUE, max_size=2),
        "details": st.dictionaries(VALUE, VALUE | st.none() | st.integers(), max_size=2),
        "review": st.lists(st.fixed_dictionaries({"summary": VALUE, "overall": st.floats(allow_nan=True)}), max_size=2),
    },
)


@settings(max_examples=examples(15, quick=5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PRODUCT, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5))
def test_whatever_an_skb_holds_comes_back_equal(
    tmp_path: Path, products: list[dict[str, Any]], pairs: list[tuple[int, int]]
) -> None:
    spec = spec_for("amazon", tmp_path)
    edges = [buy(str(h), str(t), relation) for h, t in pairs for relation in ("also_buy", "also_view")
             if max(h, t) < len(products)]  # fmt: skip
    (tmp_path / "s.duckdb").unlink(missing_ok=True)
    nodes = [("product", str(i), info) for i, info in enumerate(products)]
    report = ingest(spec, ListSource(nodes, edges), tmp_path / "s.duckdb")
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        write_stark(con, tmp_path, "amazon")
    assert load("amazon", tmp_path)[1].data_version == report.data_version
