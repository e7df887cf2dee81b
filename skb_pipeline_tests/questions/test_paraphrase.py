"""Questions in other words: what stays, what goes, and that none of it is known to a planner."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skb_pipeline
from skb_pipeline.datasets.catalogue import spec_files
from skb_pipeline.questions import paraphrase as telling
from skb_pipeline.questions import wording
from skb_pipeline.questions.paraphrase import paraphrase, parts_of, with_typo
from skb_pipeline_tests.examples import examples

ROOT = Path(skb_pipeline.__file__).parent


@pytest.mark.parametrize(
    ("question", "noun", "predicates"),
    [
        ("Which disease shows Seizure?", "disease", ["shows Seizure"]),
        ("What biological process is linked to TP53?", "biological process", ["is linked to TP53"]),
        ("Find a disease that shows Ataxia and is caused by BRCA1.", "disease", ["shows Ataxia", "is caused by BRCA1"]),
        ("Which disease not only shows A but also is due to B?", "disease", ["shows A", "is due to B"]),
        # A name that holds "and" stays whole.
        ("Name every product that is made by Acme and Sons.", "product", ["is made by Acme and Sons"]),
        ("Which gene is tied to a disease that shows Ataxia?", "gene", ["is tied to a disease that shows Ataxia"]),
    ],
)
def test_noun_and_predicates_are_told_apart(question: str, noun: str, predicates: list[str]) -> None:
    assert parts_of(question) == (noun, predicates)


@pytest.mark.parametrize(
    "question", ["disease with Seizure", "Of all diseases, which one shows X?", "Which of them? One. Two.", "", "?"]
)
def test_what_cannot_be_told_apart_is_left_whole(question: str) -> None:
    assert parts_of(question) is None


def test_names_and_quoted_words_stay() -> None:
    question = 'Which disease is linked to HLA-B27 and mentions "loss of hearing" in its description?'
    told = [paraphrase(question, f"syn-{n}") for n in range(300)]
    assert all("HLA-B27" in text and '"loss of hearing"' in text and "disease" in text for text in told)
    assert sum(text == question for text in told) == 0
    assert len(set(told)) > 40
    assert not any(re.match("which|find|name every|list", text, re.IGNORECASE) for text in told)
    assert paraphrase(question, "syn-1") == told[1], "the key decides"


def test_a_name_with_verbs_in_it_stays() -> None:
    told = [paraphrase("Which paper cites Learning what interacts with what?", f"syn-{n}") for n in range(60)]
    assert not any("acts together" in text for text in told)
    whole = sum("Learning what interacts with what" in text for text in told)
    assert whole > 60 * (1 - 2 * telling.TYPO_SHARE)  # but for those with two letters changed
    assert sum("cites" not in text for text in told) > 40


def test_a_share_has_two_letters_changed() -> None:
    question = "Which disease presents with abnormality of skeletal morphology?"
    changed = 0
    for n in range(500):
        told = paraphrase(question, f"syn-{n}")
        words = re.findall("[a-z]+", told)
        changed += not {"abnormality", "skeletal", "morphology"} <= set(words) or "disease" not in words
    assert 0.06 < changed / 500 < telling.TYPO_SHARE


@settings(max_examples=examples(200))
@given(st.text(max_size=60), st.text(max_size=5))
def test_any_text_can_be_retold(question: str, key: str) -> None:
    told = paraphrase(question, key)
    numbers, letters = (Counter(filter(str.isdigit, text)) for text in (question, told)), question.strip()
    before, after = numbers
    assert before == after
    assert told.strip() or not letters


@settings(max_examples=examples(200))
@given(st.text("abcdef \"'-XY1", max_size=40), st.text(max_size=3))
def test_a_typo_changes_two_letters_of_one_word(text: str, key: str) -> None:
    changed = with_typo(text, key)
    assert Counter(changed) == Counter(text)
    places = [i for i, (a, b) in enumerate(zip(text, changed, strict=True)) if a != b]
    assert not places or (len(places) == 2 and places[1] == places[0] + 1 and text[places[0]].islower())


def test_no_wording_of_a_paraphrase_is_known_elsewhere() -> None:
    """Neither to the planner, nor to the forms that training questions use, nor to phrasings of built-in specs."""
    forms = [*telling.OPENINGS, *telling.FACTS, *telling.FURTHER, *telling.CLEFTS, *telling.SETTINGS]
    fragments = {part.strip(" .,:?!").lower() for form in forms for part in re.split(r"\{\w+\}", form)}
    wordings = {fragment for fragment in fragments if len(fragment.split()) > 1} | set(telling.SYNONYMS.values())
    sources = [*(ROOT / "planning").rglob("*.py"), *(ROOT / "linking").rglob("*.py"), Path(wording.__file__)]
    known = {path: path.read_text().lower() for path in [*sources, *spec_files().values()]}
    assert len(wordings) > 40
    assert not [(text, path.name) for text in sorted(wordings) for path, content in known.items() if text in content]
