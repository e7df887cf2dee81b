"""Surface forms: grammar, slots, held-out forms."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from skb_pipeline.questions.templates import Shape, Step, Template
from skb_pipeline.questions.wording import (
    GENERIC,
    Forms,
    Wordings,
    bare_slot,
    ending_in_slot,
    fill,
    plural,
    readable,
    with_article,
)
from skb_pipeline_tests.questions.small_skb import SPEC_DATA, shop_spec

MADE_BY = Step("product", "made_by", "brand")
BOUGHT = Step("product", "also bought", "product")


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("disease", "a disease"),
        ("effect or phenotype", "an effect or phenotype"),
        ("university", "a university"),
        ("unusual finding", "an unusual finding"),
        ("hour", "an hour"),
        ("house", "a house"),
        ("European city", "a European city"),
        ("mRNA", "an mRNA"),
        ("DNA region", "a DNA region"),
        ("RNA", "an RNA"),
        ("user", "a user"),
        ("umbrella", "an umbrella"),
    ],
)
def test_article_by_sound(noun: str, expected: str) -> None:
    assert with_article(noun) == expected


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("disease", "diseases"),
        ("category", "categories"),
        ("pathway", "pathways"),
        ("box", "boxes"),
        ("class", "classes"),
    ],
)
def test_plural(noun: str, expected: str) -> None:
    assert plural(noun) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HAS_BRAND", "has brand"),
        ("made_by", "made by"),
        ("fieldOfStudy", "field of study"),
        ("Product", "product"),
        ("off-label use", "off-label use"),
        ("mRNA", "mRNA"),
        ("PPI", "PPI"),
    ],
)
def test_readable_names(name: str, expected: str) -> None:
    assert readable(name) == expected


def test_fill_leaves_braces_of_values_alone() -> None:
    assert fill("shows {x} and {y}", {"x": "{y} {0}", "y": "b\\1"}) == "shows {y} {0} and b\\1"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("is due to the gene {x}", "is due to {x}"),
        ('shows "{x}"', "shows {x}"),
        ("comes with gene {x} altered", "comes with {x} altered"),
        ("has oxygene {x}", "has oxygene {x}"),
    ],
)
def test_slot_for_a_clause(form: str, expected: str) -> None:
    assert bare_slot(form, ("gene", "genes")) == expected


def test_forms_that_end_with_the_slot_are_preferred_for_clauses() -> None:
    forms = Forms(("has {x} in it", "holds {x}"), ("keeps {x} inside",))
    assert ending_in_slot(forms) == Forms(("holds {x}",), ())
    assert ending_in_slot(Forms(("has {x} in it",), ("keeps {x} inside",))) == Forms(
        ("has {x} in it",), ("keeps {x} inside",)
    )


def _all(template: Template, mentions: list[str], phrase: str | None = None, **settings: object) -> set[str]:
    wordings = Wordings(shop_spec(**settings))
    options = {"phrase_in_name": False, "held_out": False}
    return {wordings.word(template, mentions, phrase, query_id=str(i), **options).text for i in range(400)}


def test_one_hop_sentences() -> None:
    texts = _all(Template(Shape.ONE_HOP, (MADE_BY,)), ["Acme"], keyword_share=0)
    assert "Which product comes from Acme?" in texts
    assert "Find a product that is made by the brand Acme." in texts
    assert len(texts) == 16  # two forms in eight frames


def test_two_hop_sentences_nest_a_clause() -> None:
    texts = _all(Template(Shape.TWO_HOPS, (MADE_BY, Step("brand", "made_by", "product"))), ["Lamp"], keyword_share=0)
    assert any("comes from a brand that is linked with Lamp" in text for text in texts)
    assert any("is made by some brand that" in text for text in texts)
    assert not any("the brand a brand" in text for text in texts)


def test_two_constraints_in_both_orders() -> None:
    texts = _all(Template(Shape.JOIN, (MADE_BY, BOUGHT)), ["Acme", "Lamp"], keyword_share=0)
    assert {text.index("Acme") < text.index("Lamp") for text in texts} == {True, False}
    same = _all(Template(Shape.JOIN, (MADE_BY, MADE_BY)), ["Acme", "Bolt"], keyword_share=0)
    assert "Which product comes from Acme and Bolt?" in same
    assert "Which product comes from Bolt and comes from Acme?" in same


def test_condition_first_last_and_never_in_doubt() -> None:
    texts = _all(Template(Shape.ONE_HOP, (MADE_BY,)), ["Acme"], "blue enamel", keyword_share=0)
    assert 'Which product described with the words "blue enamel" comes from Acme?' in texts
    assert 'Which product comes from Acme and mentions "blue enamel" in its description?' in texts
    template = Template(Shape.TWO_HOPS, (MADE_BY, Step("brand", "made_by", "product")))
    for text in _all(template, ["Lamp"], "blue", keyword_share=0):
        after = text.index("blue") > text.index("Lamp")
        # Behind the clause about the brand, the condition is a sentence of its own about the product.
        assert not after or text.split(". " if ". " in text else "? ")[1].count("product") == 1


def test_keywords_put_the_noun_first() -> None:
    texts = _all(Template(Shape.ONE_HOP, (MADE_BY,)), ["Acme"], keyword_share=1)
    assert texts == {"product by Acme", "products by Acme"}
    nested = _all(Template(Shape.TWO_HOPS, (MADE_BY, Step("brand", "made_by", "product"))), ["Lamp"], keyword_share=1)
    assert "product by brand made by Lamp" in nested


def test_held_out_forms_only_on_request() -> None:
    wordings = Wordings(shop_spec(keyword_share=0))
    template = Template(Shape.ONE_HOP, (MADE_BY,))
    for i in range(50):
        worded = {
            held_out: wordings.word(template, ["Acme"], None, phrase_in_name=False, query_id=str(i), held_out=held_out)
            for held_out in (True, False)
        }
        assert worded[True].held_out
        assert "leaves the works of Acme" in worded[True].text
        assert not worded[False].held_out
        assert "leaves the works" not in worded[False].text


def test_generic_forms_where_the_spec_has_none() -> None:
    forms = Wordings(shop_spec()).forms(Step("product", "IN_CATEGORY", "category"))
    assert len(forms.known) >= 4
    assert len(forms.held_out) >= 2
    assert all('"in category"' in form and form.count("{x}") == 1 for form in forms.known + forms.held_out)
    assert not set(GENERIC.known) & set(GENERIC.held_out)


def test_spec_refuses_forms_that_are_known_and_held_out() -> None:
    phrasing = {**SPEC_DATA["questions"]["phrasings"][0], "held_out": ["comes from {x}"]}
    with pytest.raises(ValidationError, match="held_out forms must not be among the known forms"):
        shop_spec(phrasings=[phrasing])


def test_spec_refuses_a_triple_phrased_twice() -> None:
    phrasing = SPEC_DATA["questions"]["phrasings"][0]
    with pytest.raises(ValidationError, match="phrasings given twice"):
        shop_spec(phrasings=[phrasing, phrasing])
