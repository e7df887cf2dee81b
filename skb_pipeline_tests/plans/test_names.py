import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.plans.names import COMMON_LABEL, GraphNames, is_safe, quote
from skb_pipeline.plans.schema import GraphSchema, Triple


def _schema(types: list[str], relations: list[str]) -> GraphSchema:
    return GraphSchema(tuple(types), tuple(Triple(types[0], r, types[0]) for r in relations), (types[0],))


def _names(types: list[str], relations: list[str]) -> GraphNames:
    return GraphNames.of(_schema(types, relations))


@pytest.mark.parametrize(
    ("node_type", "label"),
    [
        ("gene/protein", "GeneOrProtein"),
        ("effect/phenotype", "EffectOrPhenotype"),
        ("field_of_study", "FieldOfStudy"),
        ("biological process", "BiologicalProcess"),
        ("product", "Product"),
        ("DNA-part", "DNAPart"),
        ('12" skillet', '12"Skillet'),
    ],
)
def test_labels_are_camel_case_with_or_for_a_slash(node_type: str, label: str) -> None:
    names = _names([node_type], [])
    assert names.labels == {node_type: label}
    assert names.node_type_of(label) == node_type
    assert names.renamed == ()


@pytest.mark.parametrize(
    ("relation", "given_type"),
    [
        ("off-label use", "OFF_LABEL_USE"),
        ("parent-child", "PARENT_CHILD"),
        ("has_brand", "HAS_BRAND"),
        ("author___affiliated_with___institution", "AFFILIATED_WITH"),
        ("paper___has_topic___field_of_study", "HAS_TOPIC"),
        ("a___b", "A___B"),
        ("line\nbreak", "LINE_BREAK"),
        ("X]->(n) DETACH DELETE n //", "X]_>(N)_DETACH_DELETE_N_//"),
    ],
)
def test_relation_types_are_upper_case_and_of_three_parts_the_middle(relation: str, given_type: str) -> None:
    names = _names(["t"], [relation])
    assert names.relation_types == {relation: given_type}
    assert names.relation_of(given_type) == relation


def test_names_that_meet_are_numbered_and_reported() -> None:
    names = _names(["a b", "AB", "_Entity_", "P"], ["x y", "x-y", "X_Y", "p", "a___w___b", "c___w___d"])
    # The one that is in the form already keeps it; the others follow in order.
    assert names.labels == {"AB": "AB", "a b": "AB_2", "_Entity_": "Entity", "P": "P"}
    assert names.relation_types == {
        "X_Y": "X_Y",
        "x y": "X_Y_2",
        "x-y": "X_Y_3",
        "p": "P_2",
        "a___w___b": "W",
        "c___w___d": "W_2",
    }
    assert {(r.name, r.wanted, r.given, r.reason) for r in names.renamed} == {
        ("a b", "AB", "AB_2", "taken by node type 'AB'"),
        ("x y", "X_Y", "X_Y_2", "taken by relation 'X_Y'"),
        ("x-y", "X_Y", "X_Y_3", "taken by relation 'X_Y'"),
        ("p", "P", "P_2", "taken by node type 'P'"),
        ("c___w___d", "W", "W_2", "taken by relation 'a___w___b'"),
    }


@pytest.mark.parametrize("name", ["a\\", "a\\u0060b", "nul\x00", "half \ud83d", "", "-", "bell\x07"])
def test_names_that_cannot_be_quoted_get_one_that_can(name: str) -> None:
    names = _names([name, "other"], [name])
    label, given_type = names.labels[name], names.relation_types[name]
    assert label.startswith("Label_")
    assert given_type.startswith("TYPE_") or (name == "-" and given_type == "_")
    assert (names.node_type_of(label), names.relation_of(given_type)) == (name, name)
    assert {(r.name, r.reason) for r in names.renamed} == {(name, "cannot be quoted safely")}
    # It depends on the name alone, so that another schema calls it the same.
    assert _names(["zebra", name], [name, "zebra"]).labels[name] == label
    assert is_safe(label)
    assert names.label("other") == "`Other`"


@pytest.mark.parametrize("name", ["a\\", "nul\x00", "half \ud83d", "", "a\nb"])
def test_quoting_refuses_what_back_ticks_do_not_hold(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be quoted safely"):
        quote(name)


def test_back_ticks_are_doubled() -> None:
    names = _names(["back`tick"], ["b`]-() DELETE n //`"])
    assert names.label("back`tick") == "`Back``tick`"
    assert names.relation_type("b`]-() DELETE n //`") == "`B``]_()_DELETE_N_//```"


def test_a_name_that_the_schema_lacks_has_none_here() -> None:
    names = _names(["paper"], ["cites"])
    with pytest.raises(KeyError):
        names.label("Paper")
    with pytest.raises(KeyError):
        names.relation_type("CITES")


NAME = st.text(st.sampled_from("aAbB_- /`\\1é\n\x00]") | st.characters(), max_size=6) | st.just(COMMON_LABEL)


@given(st.lists(NAME, min_size=1, unique=True), st.lists(NAME, unique=True), st.randoms())
def test_the_table_is_bijective_safe_and_independent_of_order(types: list[str], relations: list[str], rng) -> None:
    names = _names(types, relations)
    given_names = [*names.labels.values(), *names.relation_types.values()]
    assert (set(names.labels), set(names.relation_types)) == (set(types), set(relations))
    assert len({*given_names, COMMON_LABEL}) == len(types) + len(relations) + 1
    assert all(names.node_type_of(names.labels[t]) == t for t in types)
    assert all(names.relation_of(names.relation_types[r]) == r for r in relations)
    for name in given_names:
        inside = quote(name)[1:-1]
        assert "`" not in inside.replace("``", "")
        assert inside.replace("``", "`") == name
    rng.shuffle(types)
    rng.shuffle(relations)
    shuffled = _names(types, relations)
    assert (shuffled.labels, shuffled.relation_types) == (names.labels, names.relation_types)
