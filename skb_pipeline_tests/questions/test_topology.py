"""Exact answers of the three shapes against plain enumeration, on random multigraphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from skb_pipeline.questions.templates import Shape, enumerate_templates
from skb_pipeline.questions.topology import Topology, load_nodes
from skb_pipeline_tests.examples import examples
from skb_pipeline_tests.questions.small_skb import Content, brute_force, build, shop_spec

TEMPLATES = enumerate_templates(shop_spec())
TRIPLES = {
    "made_by": ("product", "brand"),
    "also bought": ("product", "product"),
    "rival of": ("brand", "brand"),
}
SIZE = 4

edge = st.tuples(st.sampled_from(sorted(TRIPLES)), st.integers(0, SIZE - 1), st.integers(0, SIZE - 1))


@settings(max_examples=examples(40))
@given(st.sets(edge, max_size=14))
def test_answers_equal_enumeration(edges: set[tuple[str, int, int]]) -> None:
    content = Content()
    keys = {
        "product": [content.add("product", f"p{i}", title=f"P{i}", description="", tags=[]) for i in range(SIZE)],
        "brand": [content.add("brand", f"b{i}", name=f"B{i}", aka=[]) for i in range(SIZE)],
    }
    for relation, head, tail in sorted(edges):
        head_type, tail_type = TRIPLES[relation]
        content.edges.append((keys[head_type][head], relation, keys[tail_type][tail]))
    con = build(content)
    nodes = load_nodes(con, seed=1)
    topology = Topology(con, nodes)
    stored = con.execute("SELECT head, relation, tail FROM edges").fetchall()
    types = dict(enumerate(nodes.types))
    for template in TEMPLATES:
        if any(step.relation not in TRIPLES for step in template.steps):
            continue
        joined = template.shape is Shape.JOIN
        bound_types = [step.anchor for step in template.steps] if joined else [template.steps[-1].anchor]
        plan = template.plan(["x"] * len(bound_types), None).model_dump(mode="json", by_alias=True)
        for first in range(len(types)):
            second = (first + 1) % len(types)
            anchors = (first, second)[: len(bound_types)]
            if [types[a] for a in anchors] != bound_types:
                continue
            found = topology.answers(template, anchors, max_work=10_000)
            bound = {f"a{i}": int(nodes.node_ids[a]) for i, a in enumerate(anchors, start=1)}
            assert found is not None
            assert set(nodes.node_ids[found].tolist()) == brute_force(types, stored, plan, bound), template.name


def test_work_is_limited() -> None:
    content = Content()
    brand = content.add("brand", "b", name="B", aka=[])
    for i in range(6):
        item = content.add("product", f"p{i}", title=f"P{i}", description="", tags=[])
        content.edges.append((item, "made_by", brand))
    con = build(content)
    topology = Topology(con, load_nodes(con, seed=1))
    by_name = {template.name: template for template in TEMPLATES}
    one = by_name["product <-made_by- brand"]
    assert topology.answers(one, (0,), max_work=5) is None
    assert topology.answers(one, (0,), max_work=6).tolist() == [1, 2, 3, 4, 5, 6]
    two = by_name["product <-made_by- brand <-made_by- product"]
    assert topology.answers(two, (1,), max_work=5) is None
    assert topology.answers(two, (1,), max_work=6).tolist() == [2, 3, 4, 5, 6]
