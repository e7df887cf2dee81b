"""Persons are found whichever way their names are written; abbreviations and other names are read off names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skb_pipeline.linking.abbreviations import further_names, is_abbreviation, says_the_same
from skb_pipeline.linking.anchors import AnchorIndex, LinkGrade
from skb_pipeline.linking.name_index import Match, Mention, NameIndex, Surface
from skb_pipeline.linking.persons import Person, looks_like_a_person, readings
from skb_pipeline.plans.plan import Anchor
from skb_pipeline.retrieval.encoder import Encoder
from skb_pipeline.skb.ingest import ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline.storage.rows.arrays import ArrayRows
from skb_pipeline_tests.linking.test_anchors import make_spec
from skb_pipeline_tests.toy import ListSource

NAMES = [
    Surface(1, "author", "Turing, A. M."),
    Surface(2, "author", "Alan Turing"),
    Surface(3, "author", "Turing, Ada"),
    Surface(4, "author", "Church, Alonzo"),
    Surface(5, "author", "Van Rijsbergen, C.J."),
    Surface(6, "paper", "Turing machines"),
    Surface(7, "paper", "Computing machinery and intelligence"),
    Surface(8, "paper", "On computable numbers"),
]
INDEX = NameIndex(NAMES)


def seen(mention: Mention | None) -> tuple[str, list[int]] | None:
    if mention is None:
        return None
    return mention.match.name, sorted(i for ids in mention.nodes.values() for i in ids.tolist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Alan Turing", ("EXACT", [2])),
        ("Turing, Alan", ("PLURAL", [2])),
        ("A. M. Turing", ("PLURAL", [1])),
        ("Turing A M", ("FOLDED", [1])),
        ("Turing AM", ("PLURAL", [1])),
        ("Turing, A.", ("INITIALS", [1, 2, 3])),
        ("A. Turing", ("INITIALS", [1, 2, 3])),
        ("Alan M. Turing", ("INITIALS", [1, 2])),
        ("C. J. van Rijsbergen", ("PLURAL", [5])),
        ("Cornelis van Rijsbergen", ("INITIALS", [5])),
        ("Turing, Bob", None),
        ("M. Turing", None),
        ("Turing", None),
        ("C. Machines", None),
    ],
)
def test_a_person_is_looked_up_in_every_order(text, expected) -> None:
    assert seen(INDEX.lookup(text, fuzzy=False)) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which papers did A. M. Turing write?", {"A. M. Turing": [1]}),
        ("papers of Turing A M, please", {"Turing A M": [1]}),
        ("Find work by Turing, A., and by A. Church.", {"Turing, A": [1, 2, 3], "A. Church": [4]}),
        ("Recommend Alonzo C. Church", {"Alonzo C. Church": [4]}),
        ("A Turing machine is what?", {"Turing machine": [6]}),
        ("I met Turing. A Church was near.", {}),
        ("in Turing I trust", {}),
        ("turing, a.", {}),
    ],
)
def test_persons_are_found_in_questions(question, expected) -> None:
    found = {m.text: sorted(i for ids in m.nodes.values() for i in ids.tolist()) for m in INDEX.find(question)}
    assert found == expected


def test_types_without_persons_have_none() -> None:
    """Two of three titles have the form of a person's name; that is no type of persons."""
    index = NameIndex([Surface(1, "x", "Information Retrieval"), Surface(2, "x", "Library Networks"),
                       Surface(3, "x", "the use of titles")])  # fmt: skip
    assert index.lookup("I. Retrieval", fuzzy=False) is None


def test_initials_keep_the_text_as_written_so_that_all_are_linked() -> None:
    mention = INDEX.lookup("A. Turing", fuzzy=False)
    assert mention is not None
    assert mention.match is Match.INITIALS
    assert mention.surfaces == {"author": "A. Turing"}


def test_all_persons_who_may_be_called_so_are_linked_as_a_guess(tmp_path: Path) -> None:
    spec = make_spec()
    people = ["Turing, A. M.", "Alan Turing", "Turing, Bob", "Church, Alonzo"]
    ingest(spec, ListSource([("place", name, {"name": name}) for name in people]), tmp_path / "s.duckdb")
    encoder = Encoder(spec.encoder, tmp_path / "hashes.json")
    cache = ArrayRows(tmp_path / "vectors", encoder.model_fingerprint)
    with connect(tmp_path / "s.duckdb", read_only=True) as con:
        names = dict(con.execute("SELECT node_id, name FROM nodes").fetchall())
        index = AnchorIndex.build(con, spec, cache, encoder)
        anchors = [[Anchor(var="a", text=text, label="place")] for text in ("A. Turing", "Church A", "Turing, Alan")]
        guess, single, sure = (found["a"] for found in index.link_anchors(anchors))
    assert ({names[n] for n in guess.node_ids.tolist()}, guess.grade) == (set(people[:2]), LinkGrade.NEAR)
    assert set(guess.cosines.tolist()) == {1.0}
    assert ([names[n] for n in single.node_ids.tolist()], single.grade) == ([people[3]], LinkGrade.NEAR)
    assert ([names[n] for n in sure.node_ids.tolist()], sure.grade) == ([people[1]], LinkGrade.FOLDED)


GIVEN = st.lists(st.sampled_from(["Alan", "Mathison", "Jean", "A.", "M."]), min_size=1, max_size=2)


@given(given=GIVEN, surname=st.sampled_from(["Turing", "O'Neill", "Müller", "Smith-Jones"]))
def test_both_orders_of_a_name_have_a_reading_in_common(given, surname) -> None:
    straight, turned = f"{' '.join(given)} {surname}", f"{surname}, {' '.join(given)}"
    assert set(readings(straight)) & set(readings(turned))


@pytest.mark.parametrize(
    "text", ["NLP", "Turing", "asthma", "type II", "Which is it", "The Art of War", "Alan, A., B."]
)
def test_other_texts_are_no_persons(text) -> None:
    assert not looks_like_a_person(text)


def test_readings() -> None:
    assert readings("Turing, A.M.") == [Person("turing", ("a", "m"))]
    assert Person("sparck jones", ("karen",)) in readings("Karen Sparck Jones")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tumor necrosis factor (TNF)", ["TNF"]),
        ("human immunodeficiency virus (HIV) infection", ["HIV"]),
        ("panuveitis (disease)", []),
        ("Ebola (EBOV)", []),
        ("vitamin B3, also known as niacin", ["vitamin B3", "niacin"]),
        ("Acme (formerly known as Ace Tools)", ["Acme", "Ace Tools"]),
        ("also known as", []),
    ],
)
def test_names_that_a_name_holds(text, names) -> None:
    assert further_names(text) == names


def test_names_said_to_be_the_same() -> None:
    assert says_the_same(" (", ") genes", "tumor necrosis factor", "TNF")
    assert says_the_same(", also known as ", "?", "Acme", "Ace")
    assert not says_the_same(" (", ") genes", "migraine", "TNF")
    assert not says_the_same(" and ", "", "tumor necrosis factor", "TNF")
    assert not is_abbreviation("NT", "tumor necrosis")


def test_a_further_name_is_found_unless_it_is_another_nodes_own() -> None:
    surfaces = [("gene", "tumor necrosis factor (TNF)"), ("disease", "multiple sclerosis (MS)"), ("method", "MS")]
    index = NameIndex(Surface(n, node_type, text) for n, (node_type, text) in enumerate(surfaces, start=1))
    assert seen(index.lookup("TNF", fuzzy=False)) == ("EXACT", [1])
    assert seen(index.lookup("MS", fuzzy=False)) == ("EXACT", [3])
    assert len(index) == 3


def test_people_in_a_list_with_commas_are_those_that_stand_there() -> None:
    """And nobody else whose surname and given name happen to meet at a comma."""
    names = ["Maria Chen", "Wei Liu", "Wei Chen", "Tom Berg", "Ann Park"]
    index = NameIndex([Surface(n, "author", name) for n, name in enumerate(names)])
    found = index.find("Which papers are written by Maria Chen, Wei Liu and Ann Park?")
    assert [mention.text for mention in found] == ["Maria Chen", "Wei Liu", "Ann Park"]
    # Also where the name before the comma is nobody's.
    diseases = NameIndex(
        [Surface(n, "disease", f"{organ} Disease") for n, organ in enumerate(["Heart", "Lung", "Liver"])]
    )
    assert not diseases.find("Which of them go with Kidney Disease, Heart Failure?")


def test_many_commas_take_no_time() -> None:
    assert further_names("a" + ", " * 100_000 + "also known as bcd") == ["bcd"]
