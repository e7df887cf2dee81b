"""Declarations of systems: what is read, refused, and what follows from them."""

from fractions import Fraction
from pathlib import Path

import pytest

from skb_pipeline.datasets.catalogue import get_spec
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.results import BUCKETS
from skb_pipeline.systems.kinds.rrf import RRFSystem
from skb_pipeline.systems.registry import BUILTIN, Registry, SystemsError, UnknownSystemError, load_registry


def registry(tmp_path: Path, text: str) -> Registry:
    (tmp_path / "systems.yaml").write_text(text)
    return load_registry(tmp_path)


def asking_for(*systems: str) -> DatasetSpec:
    return get_spec("demo").model_copy(update={"systems": list(systems)})


def test_the_built_in_systems(tmp_path: Path) -> None:
    built_in = load_registry(tmp_path)
    assert built_in.shown == ["bm25", "dense", "graph", "text", "fused"]
    fused, text = built_in["fused"], built_in["text"]
    assert isinstance(fused, RRFSystem)
    assert (fused.components, fused.weight_of, fused.k, fused.depth) == (
        ("graph", "bm25", "dense"), dict.fromkeys(("graph", "bm25", "dense"), Fraction(1)), 20, 100,
    )  # fmt: skip
    for level in ("weak", "normal", "aggressive"):
        factors = getattr(fused.trust["graph"], level)
        assert list(factors) == list(BUCKETS)
        assert list(factors.values()) == sorted(factors.values(), reverse=True), "the more candidates, the less"
    assert text.components == ("bm25", "dense")
    assert isinstance(text, RRFSystem)
    # Where no plan gave candidates, it is the ranking of text.
    without = {name: w * (fused.trust[name].factor(None, None) if name in fused.trust else 1)
               for name, w in fused.weight_of.items()}  # fmt: skip
    assert without["bm25"] == without["dense"]
    assert text.weight_of["bm25"] == text.weight_of["dense"]
    assert text.k == fused.k
    assert built_in.baselines_of("fused") == ["bm25", "dense", "graph", "text"]
    assert built_in.wanted(get_spec("demo")) == built_in.shown


def test_a_system_of_ones_own_is_one_entry(tmp_path: Path) -> None:
    own = registry(tmp_path, "text2: {kind: rrf, of: [bm25, dense], weights: [0.3, 0.9], k: 10, baselines: [text]}\n")
    assert own.shown[-1] == "text2"
    assert own.baselines_of("text2") == ["text", "bm25", "dense"], "and its parts"
    assert own["text2"].terms({"bm25": 2, "dense": None}, {}) == {"bm25": 0.025, "dense": 0.0}


def test_weights_by_name_are_those_in_order(tmp_path: Path) -> None:
    own = registry(
        tmp_path,
        "a: {kind: rrf, of: [bm25, dense], weights: {dense: 0.1, bm25: 2}}\n"
        "b: {kind: rrf, of: [bm25, dense], weights: [2, 0.1]}\n",
    )
    one, other = own["a"], own["b"]
    assert isinstance(one, RRFSystem)
    assert isinstance(other, RRFSystem)
    assert list(one.weight_of.items()) == list(other.weight_of.items()) == [("bm25", 2), ("dense", Fraction(1, 10))]


def test_one_named_like_a_built_in_takes_its_place_in_the_table(tmp_path: Path) -> None:
    own = registry(tmp_path, "fused: {kind: rrf, of: [graph, dense], weight: 0.25}\nlast: {kind: lexical}\n")
    assert own.shown == ["bm25", "dense", "graph", "text", "fused", "last"]
    fused = own["fused"]
    assert isinstance(fused, RRFSystem)
    assert fused.weight_of == {"graph": Fraction(1, 4), "dense": Fraction(3, 4)}


def test_parts_declared_in_place_are_made_and_not_shown(tmp_path: Path) -> None:
    text = "all: {kind: rrf, of: [graph, {kind: rrf, of: [bm25, {kind: dense}], k: 5}]}\n"
    own = registry(tmp_path, text)
    assert own["all"].components == ("graph", "all__2")
    assert own["all__2"].components == ("bm25", "all__2__2")
    assert own["all__2__2"].kind == "dense"
    assert own.shown[-1] == "all"
    assert own.order.index("all__2__2") < own.order.index("all__2") < own.order.index("all")
    assert set(own.wanted(asking_for("all"))) == {"all", "graph", "bm25", "all__2", "all__2__2"}


def test_parts_may_be_declared_later(tmp_path: Path) -> None:
    own = registry(tmp_path, "one: {kind: rrf, of: [two, bm25]}\ntwo: {kind: rrf, of: [dense, graph]}\n")
    assert own.order.index("two") < own.order.index("one")
    assert own.shown[-2:] == ["one", "two"], "the table keeps the declared order"


def test_a_dataset_asks_for_some(tmp_path: Path) -> None:
    built_in = load_registry(tmp_path)
    spec = asking_for("text")
    assert built_in.wanted(spec) == ["bm25", "dense", "text"]
    assert built_in.why_not("text", spec) is None
    assert built_in.why_not("graph", spec) == "not among the systems that the spec of demo asks for"
    with pytest.raises(UnknownSystemError, match=r"unknown system 'txt'; there are: bm25, .*; near to it: text"):
        built_in.wanted(asking_for("txt"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {kind: bm26}", r"systems.yaml:1: a: kind: unknown kind 'bm26'; there are: lexical, dense, plans, rrf"),
        ("a:\n  kind: rrf\n  of: [bm25, nope]", r"a: of: unknown system 'nope'; there are: bm25"),
        ("a:\n  kind: rrf\n  of: [bm25, dense]\n  weights: [1]", r"systems.yaml:1: a: weights: 1 for 2 lists"),
        ("a:\n  kind: rrf\n  of: [bm25]\n  weight: 0.5", r"weight is for two lists"),
        ("a:\n  kind: rrf\n  of: [bm25, bm25]", r"a system is named twice"),
        ("a:\n  kind: rrf\n  of: [bm25, dense]\n  weights: [0, 0]", r"nor all zero"),
        ("a:\n  kind: rrf\n  of: [bm25, dense]\n  weights: [.nan, 1]", r"they must be numbers"),
        ("a:\n  kind: rrf\n  of: [bm25, dense]\n  weights: {bm25: 1}", r"they name \['bm25'\], the lists are"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {dense: {weak: 1}}}", r"trust: 'dense' is none of the lists"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {bm25: {weak: 1}}}", r"trust: bm25 executes no plans"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {bm25: {by: dense}}}", r"trust.bm25.by: 'dense' is none of"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {graph: {by: bm25}}}", r"trust: bm25 executes no plans"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {graph: {strong: 1}}}", r"systems.yaml:1: a.trust.graph.strong"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {graph: {weak: {1-9: 1}}}}", r"weak.1-9: buckets are 1-10, 11-50"),
        ("a: {kind: rrf, of: [graph, bm25], trust: {graph: {weak: -0.1}}}", r"trust.graph: weak: a factor must be"),
        ("a:\n  kind: lexical\n  k: 3", r"systems.yaml:3: a.k: unknown key"),
        ("a:\n  kind: rrf\n  of: [{kind: lexical, k: 1}]", r"systems.yaml:3: a.of.0.k: unknown key"),
        ("a: {kind: rrf, of: [b]}\nb: {kind: rrf, of: [a]}", r"it is made of itself: a of b of a"),
        ("a: {kind: lexical, baselines: [fuse]}", r"baselines: unknown system 'fuse'.*near to it: fused"),
        ("A b: {kind: lexical}", r"systems.yaml:1: 'A b' may not name a system"),
        ("a__1: {kind: lexical}", r"'a__1' may not name a system"),
        ("graph_neo4j: {kind: lexical}", r"'graph_neo4j' may not name a system"),
        ("1: {kind: lexical}", r"1 may not name a system"),
        ("a: 5", r"systems.yaml:1: a: a system is a mapping with a kind"),
        ("- a", r"systems.yaml:1: systems are a mapping"),
        ("a: {kind: lexical}\na: {kind: dense}", r"systems.yaml:2: key 'a' is given twice"),
        ("a: !!python/object:os.system {}", r"systems.yaml:1"),
    ],
)
def test_faulty_declarations_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SystemsError, match=told):
        registry(tmp_path, text)


def test_an_empty_file_declares_nothing(tmp_path: Path) -> None:
    assert registry(tmp_path, "# nothing yet\n").shown == load_registry(tmp_path / "none").shown


def test_the_built_in_file_has_a_line_for_people() -> None:
    built_in = load_registry(BUILTIN.parent / "absent")
    assert all(len(built_in[name].describe()) > 30 for name in built_in)
