from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.linking.folding import fold, singular, stem, words
from skb_pipeline.linking.name_index import Match, NameIndex, Surface, node_surfaces
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline_tests.toy import ListSource, toy_spec

NAMES = [
    Surface(1, "gene", "WAS"),
    Surface(2, "gene", "AND"),
    Surface(3, "gene", "SET"),
    Surface(4, "gene", "CAT"),
    Surface(5, "animal", "cat"),
    Surface(6, "gene", "CYP3A4"),
    Surface(7, "gene", "TNF/α"),
    Surface(8, "duration", "1/2 day"),
    Surface(9, "drug", "2,3',4-PCB"),
    Surface(10, "drug", "2,3,4-PCB"),
    Surface(11, "place", "Café"),
    Surface(12, "disease", "Alzheimer disease"),
    Surface(13, "disease", "anemia, aplastic"),
    Surface(14, "disease", "lung cancer"),
    Surface(15, "disease", "small cell lung cancer"),
    Surface(16, "disease", "Hodgkin lymphoma"),
    Surface(17, "gene", "IL-2"),
    Surface(18, "gene", "F2"),
    Surface(18, "gene", "ER", is_alias=True),
    Surface(19, "disease", "panuveitis (disease)"),
    Surface(20, "drug", "glucose"),
    Surface(21, "person", "John Smith"),
    Surface(22, "person", "John Smith"),
    Surface(23, "disease", "arteritis"),
    Surface(24, "drug", "(2S)-3-[(9H-fluoren-9-ylideneamino)oxy]-2-methylpropanoic acid"),
    Surface(25, "gene", "protein IT", is_alias=True),
    Surface(26, "disease", "Gaucher disease"),
]
INDEX = NameIndex(NAMES, prose=["it was set on the mat", "a set was sold"])


def found(question: str, reserved: set[str] | frozenset[str] = frozenset()) -> dict[str, list[int]]:
    """Mention texts -> node ids over all types."""
    return {m.text: sorted(i for ids in m.nodes.values() for i in ids.tolist()) for m in INDEX.find(question, reserved)}


@pytest.mark.parametrize(("name", "node"), [("TNF/α", 7), ("1/2 day", 8), ("AND", 2), ("2,3',4-PCB", 9), ("Café", 11)])
def test_hostile_names_are_found_alone_and_in_a_question(name, node) -> None:
    hit = INDEX.lookup(name)
    assert hit is not None
    assert hit.match is Match.EXACT
    assert [i for ids in hit.nodes.values() for i in ids.tolist()] == [node]
    assert found(f"What goes with {name} here?") == {name: [node]}


def test_both_spellings_of_cafe_are_one_name() -> None:
    for form in ("NFC", "NFD"):
        hit = INDEX.lookup(unicodedata.normalize(form, "Café"))
        assert hit is not None
        assert hit.nodes["place"].tolist() == [11]


def test_prime_decides_between_names_of_one_key() -> None:
    assert INDEX.lookup("2,3,4-PCB").nodes["drug"].tolist() == [10]
    assert INDEX.lookup("2,3',4-PCB").nodes["drug"].tolist() == [9]
    assert INDEX.lookup("2 3 4 pcb").nodes["drug"].tolist() == [9, 10]


@pytest.mark.parametrize(
    ("text", "node", "match"),
    [
        ("alzheimer's disease", 12, Match.FOLDED),
        ("Alzheimer's diseases", 12, Match.PLURAL),
        ("IL2", 17, Match.PLURAL),
        ("il 2", 17, Match.FOLDED),
        ("TNF alpha", 7, Match.FOLDED),
        ("aplastic anemia", 13, Match.PLURAL),
        ("panuveitis", 19, Match.SHORT),
        ("Alzhiemer disease", 12, Match.FUZZY),
    ],
)
def test_lookup_grades(text, node, match) -> None:
    hit = INDEX.lookup(text)
    assert hit is not None
    assert ([i for ids in hit.nodes.values() for i in ids.tolist()], hit.match) == ([node], match)


@pytest.mark.parametrize("text", ["CYP3A5", "zzqx", "", "?!", "arthritiss", "lung", "Alzhiemerr diseese"])
def test_lookup_of_what_is_no_name(text) -> None:
    assert INDEX.lookup(text) is None


CODED = NameIndex(
    [
        Surface(1, "gene", "CYP2D6"),
        Surface(2, "band", "22q11.2"),
        Surface(3, "tool", "GTX 12-15"),
        Surface(4, "disease", "type 2 diabetes mellitus"),
        Surface(5, "antigen", "HLA-DRB5"),
    ]
)


@pytest.mark.parametrize(
    "text", ["cyp2c6", "22q1.12", "GTX 1-215", "GTX 121-5", "hla-dqb5", "type 1 diabetes mellitus"]
)
def test_another_code_is_no_name_however_it_is_written(text: str) -> None:
    assert CODED.lookup(text) is None
    assert CODED.find(f"what about {text} here") == []


@pytest.mark.parametrize(
    ("text", "node"),
    [("cyp-2d6", 1), ("22q 11 2", 2), ("GTX12-15", 3), ("type 2 diabetis mellitus", 4), ("HLA DRB-5", 5)],
)
def test_the_same_code_is_one_however_it_is_written(text: str, node: int) -> None:
    hit = CODED.lookup(text)
    assert hit is not None
    assert [i for ids in hit.nodes.values() for i in ids.tolist()] == [node]


def test_misspelling_links_with_the_right_spelling() -> None:
    (mention,) = INDEX.find("Who treats Alzhiemer disease?")
    assert mention.text == "Alzhiemer disease"
    assert dict(mention.surfaces) == {"disease": "Alzheimer disease"}
    assert dict(INDEX.find("genes of IL2")[0].surfaces) == {"gene": "IL2"}


def test_symbols_are_told_from_words_by_their_capitals() -> None:
    assert found("It was set here and there, was it?") == {}
    assert found("Which one of WAS and SET is it?") == {"WAS": [1], "SET": [3]}
    assert found("cyp3a4 substrates") == {"cyp3a4": [6]}


def test_where_capitals_tell_nothing_ordinary_words_are_no_symbols() -> None:
    assert found("WHAT WAS SET FOR CYP3A4") == {"CYP3A4": [6]}
    assert found("what was set for cyp3a4") == {"cyp3a4": [6]}


def test_ambiguity_is_kept() -> None:
    (cat,) = INDEX.find("Tell me about CAT please")
    assert {label: ids.tolist() for label, ids in cat.nodes.items()} == {"animal": [5], "gene": [4]}
    assert found("papers of John Smith") == {"John Smith": [21, 22]}
    (cat,) = INDEX.find("my cat Tom")
    assert list(cat.nodes) == ["animal"]


def test_longest_mention_wins_and_none_overlap() -> None:
    assert found("drugs for small cell lung cancer and lung cancer") == {
        "small cell lung cancer": [15],
        "lung cancer": [14],
    }


def test_parts_of_compounds_are_no_mentions() -> None:
    assert found("treats non-Hodgkin lymphoma") == {}
    assert found("binds glucose-6-phosphate") == {}
    assert found("a WAS-associated disorder, or an anti-WAS drug") == {"WAS": [1]}


def test_two_characters_must_be_a_name_as_written() -> None:
    assert found("drugs that target F2 in the ER ii") == {"F2": [18]}
    assert found("see f2 there, Sir") == {}


def test_function_words_at_the_edge_must_agree_exactly() -> None:
    assert found("the gene and the protein it makes") == {}
    assert found("the gene protein IT is") == {"protein IT": [25]}


def test_reserved_words_are_no_names_but_symbols_are() -> None:
    assert found("every cat, CAT", {"cat"}) == {"CAT": [4]}


def test_brackets_belong_to_the_mention() -> None:
    name = next(s.text for s in NAMES if s.node_id == 24)
    assert found(f"targets of {name} (a drug)") == {name: [24]}


def test_generic_words() -> None:
    many = [Surface(i, "disease", f"syndrome of {chr(97 + i % 26)}x{i}yz") for i in range(60)]
    index = NameIndex([*many, Surface(99, "disease", "Brunner syndrome"), Surface(98, "disease", "Syndrome", True)])
    assert [m.text for m in index.find("a syndrome of the eye")] == []
    assert [(m.text, m.match) for m in index.find("patients with Brunner, say")] == [("Brunner", Match.SHORT)]
    assert [m.text for m in index.find("the brunner house, Sir")] == []
    named = NameIndex([*many, Surface(98, "disease", "Syndrome")])
    assert [m.text for m in named.find("a syndrome here")] == ["syndrome"]


def test_the_beginning_of_one_nodes_name_names_it() -> None:
    texts = ["type 1 diabetes mellitus", "type 1 diabetes mellitus 10", "hepatitis C virus infection",
             "kidney cyst simple", "kidney cyst complex", "diabetes mellitus"]  # fmt: skip
    index = NameIndex([Surface(i, "disease", text) for i, text in enumerate(texts)])
    (mention,) = index.find("Who treats type 1 diabetes?")
    assert (mention.text, mention.match, mention.nodes["disease"].tolist()) == ("type 1 diabetes", Match.SHORT, [0])
    assert mention.surfaces == {"disease": "type 1 diabetes mellitus"}
    assert [m.nodes["disease"].tolist() for m in index.find("with type 1 diabetes mellitus")] == [[0]]
    # A beginning of two nodes' names says too little, and so does a single word.
    assert index.find("Who treats a kidney cyst or diabetes?") == []
    assert index.find("Who treats hepatitis C virus?")[0].nodes["disease"].tolist() == [2]
    assert index.find("Who treats hepatitis C?") == []


def test_surfaces_of_an_skb(tmp_path) -> None:
    nodes = [
        ("product", "2", {"title": "Tent", "aliases": ["Marquee", "Tent"], "feature": ["Big Top", "red"]}),
        ("product", "1", {"title": "Lamp"}),
        ("brand", "7", {"name": "Acme"}),
    ]
    path = tmp_path / "toy.duckdb"
    ingest(toy_spec(), ListSource(nodes), path)
    with connect(path, read_only=True) as con:
        external = dict(con.execute("SELECT node_id, external_id FROM nodes").fetchall())
        surfaces = [(external[s.node_id], s.text, s.is_alias) for s in node_surfaces(con, {"product": ["feature"]})]
        index = NameIndex.build(con)
    assert surfaces == [
        ("1", "Lamp", False),
        ("2", "Tent", False),
        ("2", "Marquee", True),
        ("2", "Big Top", True),
        ("2", "red", True),
        ("7", "Acme", False),
    ]
    assert len(index) == 4


def test_folding() -> None:
    assert fold("Straße ½ CD4+ C++ TNF-α") == "strasse 1 2 cd4+ c++ tnf alpha"
    assert [singular(w) for w in ("diseases", "arteries", "virus", "analysis", "mass", "boxes")] == [
        "disease", "artery", "virus", "analysis", "mass", "box",
    ]  # fmt: skip
    assert stem("treating") == stem("treats") == stem("treated") == "treat"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=60) | st.lists(
    st.sampled_from([*(s.text for s in NAMES), "and", "was", "the gene", "-", "(", "']", "ſ", "İ", "½"]), max_size=8
).map(" ".join)


@given(TEXTS)
def test_mentions_are_pieces_of_the_question_in_order(question) -> None:
    end = 0
    for mention in INDEX.find(question):
        assert end <= mention.start < mention.end
        assert question[mention.start : mention.end] == mention.text
        assert all(len(ids) for ids in mention.nodes.values())
        end = mention.end


@given(st.sampled_from(NAMES))
def test_every_surface_names_its_node(surface) -> None:
    hit = INDEX.lookup(surface.text, [surface.node_type])
    assert hit is not None
    assert surface.node_id in hit.nodes[surface.node_type]


@given(TEXTS)
def test_words_keep_their_places(text) -> None:
    end = 0
    for word in words(text):
        assert end <= word.start < word.end <= len(text)
        end = word.end
