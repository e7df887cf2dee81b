"""Names in scripts whose vowels are marks: different names are different nodes, equal ones meet."""

from __future__ import annotations

import unicodedata

import pytest

from skb_pipeline.linking.name_index import Match, NameIndex, Surface

PAIRS = {
    "Devanagari": ("सीता देवी", "सोता देवी", "सीतादेवीकुमारी", "सोतादेवीकुमारी"),
    "Thai": ("มานี", "มานะ", "สมศักดิ์ใจดี", "สมศักดาใจดี"),
    "Arabic": ("كَتَبَ", "كُتِبَ", "عبدالرحمنالكاتب", "عبدالرحيمالكاتب"),
    "Bengali": ("রবীন", "রবিন", "রবীন্দ্রনাথ", "রবিন্দ্রনাথ"),
    "Hebrew": ("דָּוִד", "דּוֹד", "אברהםיצחקי", "אברהםיצחקו"),
    "Tamil": ("கவிதா", "கவிதை", "கவிதாதேவி", "கவிதைதேவி"),
    "Khmer": ("សុខា", "សុខី", "សុខាវណ្ណា", "សុខីវណ្ណា"),
    "Hangul": ("김민수", "김만수", "남궁민수한별", "남궁만수한별"),
    "Han": ("王小明", "王小朋", "中华人民共和国", "中华人民共和图"),
}


def named(index: NameIndex, text: str, kind: str) -> list[int]:
    hit = index.lookup(text)
    assert hit is not None
    ids: list[int] = hit.nodes[kind].tolist()
    return ids


@pytest.mark.parametrize("names", PAIRS.values(), ids=PAIRS)
def test_each_name_is_one_node_and_no_other(names: tuple[str, ...]) -> None:
    for left_out in range(len(names)):
        kept = [i for i in range(len(names)) if i != left_out]
        index = NameIndex([Surface(i, "person", names[i]) for i in kept], prose=["some text"])
        for i in kept:
            for form in ("NFC", "NFD"):
                hit = index.lookup(unicodedata.normalize(form, names[i]))
                assert hit is not None
                assert (hit.nodes["person"].tolist(), hit.match <= Match.FOLDED) == ([i], True)
            (mention,) = index.find(f"What did {names[i]} write?")
            assert mention.nodes["person"].tolist() == [i]
        assert index.lookup(names[left_out]) is None
        assert index.find(f"What did {names[left_out]} write?") == []


def test_joiners_and_soft_hyphens_do_not_split_a_name() -> None:
    index = NameIndex([Surface(1, "person", "می\u200cرود خانه"), Surface(2, "word", "Donaudampfschiff")])
    assert named(index, "میرود خانه", "person") == [1]
    assert named(index, "Donau\u00addampf\u200cschiff", "word") == [2]


def test_a_part_of_a_compound_is_no_name_in_any_script() -> None:
    index = NameIndex([Surface(1, "person", "गीता")])
    assert index.find("सीता-गीता कौन है?") == []
    assert [m.text for m in index.find("कौन है गीता?")] == ["गीता"]


def test_latin_names_meet_without_their_accents() -> None:
    index = NameIndex([Surface(1, "town", "Łódź"), Surface(2, "town", "Diyarbakır"), Surface(3, "town", "Málaga")])
    for written, node in (("lodz", 1), ("DIYARBAKIR", 2), ("Malaga", 3), ("Ｍálaga", 3)):
        assert named(index, written, "town") == [node]
