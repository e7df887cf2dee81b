import pytest

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.plan import Direction
from skb_pipeline.plans.schema import GraphSchema, Triple


def test_from_spec_takes_types_triples_and_candidates_in_declared_order() -> None:
    kind = {"fields": {"name": "text"}, "name_field": "name", "document": ["name"]}
    spec = DatasetSpec.model_validate(
        {
            "name": "shop",
            "description": "d",
            "source": {"adapter": "tabular"},
            "encoder": {"model": "m"},
            "node_types": {"product": kind, "brand": kind},
            "relations": [
                {"name": "has", "head": "product", "tail": "brand"},
                {"name": "also_buy", "head": "product", "tail": "product"},
                {"name": "has", "head": "brand", "tail": "brand", "symmetric": True},
            ],
        }
    )
    schema = GraphSchema.from_spec(spec)
    assert schema.node_types == ("product", "brand")
    assert schema.candidate_types == ("product", "brand")
    assert schema.relations == ("has", "also_buy")
    assert schema.triples_of("has") == (Triple("product", "has", "brand"), Triple("brand", "has", "brand"))
    assert schema.triples_of("unknown") == ()
    assert schema.symmetric == (Triple("brand", "has", "brand"),)


def test_allows_looks_in_both_directions_and_at_both_types() -> None:
    schema = GraphSchema(("a", "b"), (Triple("a", "r", "b"),), ("a",))
    assert schema.allows("a", "r", "b")
    assert schema.allows("b", "r", "a")
    assert not schema.allows("a", "r", "a")
    assert not schema.allows("a", "R", "b")


def test_allows_one_direction() -> None:
    schema = GraphSchema(("a", "b"), (Triple("a", "r", "b"), Triple("a", "s", "a"), Triple("b", "s", "b")), ("a",))
    assert [schema.allows("a", "r", "b", d) for d in Direction] == [True, True, False]
    assert [schema.allows("b", "r", "a", d) for d in Direction] == [True, False, True]
    assert [schema.allows("a", "s", "a", d) for d in Direction] == [True, True, True]
    assert not any(schema.allows("a", "s", "b", d) for d in Direction)


@pytest.mark.parametrize("symmetric", [Triple("a", "r", "b"), Triple("a", "s", "a")])
def test_what_is_symmetric_is_declared_and_within_one_type(symmetric: Triple) -> None:
    with pytest.raises(ValueError, match="is symmetric, but no declared triple within one type"):
        GraphSchema(("a", "b"), (Triple("a", "r", "b"),), ("a",), (symmetric,))


@pytest.mark.parametrize(
    ("triples", "candidates", "message"),
    [((Triple("a", "r", "x"),), ("a",), "'x'"), ((), ("y",), "'y'"), ((), (), "candidate type")],
)
def test_unknown_types_are_refused(triples: tuple[Triple, ...], candidates: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphSchema(("a",), triples, candidates)
