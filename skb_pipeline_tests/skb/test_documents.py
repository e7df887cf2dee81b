import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.documents import build_documents, compact_text, documents_hash
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import Edge, ListSource, buy, toy_spec


def documents(path: Path, nodes: list[Any], edges: list[Edge], spec: DatasetSpec) -> pd.DataFrame:
    path.unlink(missing_ok=True)
    ingest(spec, ListSource(nodes, edges), path)
    with connect(path, read_only=True) as con:
        return build_documents(con, spec)


def text_of(frame: pd.DataFrame, external_id: str) -> str:
    return str(frame.set_index("external_id").loc[external_id, "document"])


NODES = [
    ("product", "1", {"title": "Tent -1", "feature": ["light", "green"], "price": 12.5, "about": "<p>2 &lt; 3</p>"}),
    ("product", "2", {"title": "COVID-19 test", "aliases": "swab"}),
    ("product", "3", {"title": "Pole"}),
    ("brand", "9", {"name": "Acme: Co."}),
]
EDGES: list[Edge] = [buy("1", "2"), buy("1", "3"), buy("3", "1"), buy("2", "2", "similar"),
                     ("product", "1", "has_brand", "brand", "9")]  # fmt: skip


def test_documents_have_labelled_fields_and_relations_in_order(tmp_path: Path) -> None:
    frame = documents(tmp_path / "s", NODES, EDGES, toy_spec())
    assert text_of(frame, "1") == (
        "product: Tent -1\nfeature: light; green\nprice: 12.5\nabout: 2 < 3\n"
        "also bought: COVID-19 test; Pole\nalso_buy: Pole\nbrand: Acme: Co."
    )
    assert text_of(frame, "2") == "product: COVID-19 test\naliases: swab\nalso_buy: Tent -1\nsimilar: COVID-19 test"
    assert text_of(frame, "9") == "brand: Acme: Co.\nproducts: Tent -1"
    assert frame["external_id"].tolist() == ["1", "2", "3", "9"]


def test_neighbours_are_capped_in_canonical_order_and_the_rest_counted(tmp_path: Path) -> None:
    nodes = [("brand", "100", {"name": "Hub"}), *[("product", str(i), {"title": f"p{i}"}) for i in range(1, 13)]]
    edges: list[Edge] = [("product", str(i), "has_brand", "brand", "100") for i in range(1, 13)]
    spec = toy_spec(documents={"neighbours": 3}, candidates=["brand"])
    frame = documents(tmp_path / "s", nodes, edges, spec)
    assert frame["document"].tolist() == ["brand: Hub\nproducts: p1; p2; p3 (+9 more)"]


def test_relations_can_be_left_out(tmp_path: Path) -> None:
    frame = documents(tmp_path / "s", NODES, EDGES, toy_spec(documents={"relations": False}))
    assert text_of(frame, "3") == "product: Pole"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"weight": "3 lb", "size": None, "tags": ["a", "", "b"]}, "weight: 3 lb, tags: a; b"),
        (
            [{"summary": "ok", "style": {"Color": "red"}, "verified": True}, {}],
            "summary: ok, style: (Color: red), verified: true",
        ),
        (0, "0"),
    ],
)
def test_json_is_told_in_one_line(value: object, text: str) -> None:
    assert compact_text(value) == text


def test_a_changed_neighbour_changes_the_hash(tmp_path: Path) -> None:
    before = documents_hash(documents(tmp_path / "a", NODES, EDGES, toy_spec()))
    renamed = [*NODES[:2], ("product", "3", {"title": "Rod"}), NODES[3]]
    assert documents_hash(documents(tmp_path / "b", renamed, EDGES, toy_spec())) != before


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1), min_size=1, max_size=6
    ),
    st.randoms(),
)
def test_every_name_stands_in_its_document_and_row_order_does_not_matter(
    tmp_path: Path, titles: list[str], shuffle: random.Random
) -> None:
    nodes: list[Any] = [("product", str(i), {"title": title}) for i, title in enumerate(titles)]
    edges = [buy("0", str(i)) for i in range(len(titles))]
    frame = documents(tmp_path / "a", nodes, edges, toy_spec())
    assert all(name in text for name, text in zip(frame["name"], frame["document"], strict=True))
    shuffle.shuffle(nodes)
    shuffle.shuffle(edges)
    pd.testing.assert_frame_equal(frame, documents(tmp_path / "b", nodes, edges, toy_spec()))
