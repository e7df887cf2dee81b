"""The spec's section ``questions``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from skb_pipeline.section import Section


class Phrasing(Section):
    """Surface forms of one triple seen from its target: predicates such as ``shows {x}``.

    Subject is the target in the singular; ``{x}`` stands for the other end: a name, or a clause such as ``a gene
    that ...`` (a form that ends with ``{x}`` is preferred then). ``held_out`` forms are used for test questions
    only. ``keywords`` stand behind the target's noun in keyword style: ``with {x}``.
    """

    relation: str
    target: str
    anchor: str
    forms: list[str] = Field(min_length=1)
    held_out: list[str] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list)

    @field_validator("forms", "held_out", "keywords")
    @classmethod
    def _one_slot(cls, value: list[str]) -> list[str]:
        bad = [form for form in value if form.count("{x}") != 1]
        if bad:
            raise ValueError(f"each form needs {{x}} exactly once; wrong: {bad}")
        return value

    @model_validator(mode="after")
    def _held_out_unseen(self) -> Self:
        both = sorted(set(self.forms) & set(self.held_out))
        if both:
            raise ValueError(f"held_out forms must not be among the known forms; in both: {both}")
        return self


class QuestionSpec(Section):
    """Questions with exact answers, made from the SKB (see ``docs/questions.md``)."""

    seed: int = 13
    per_template: int = Field(default=60, ge=1)
    """Upper bound on the expected number of gold nodes drawn per template."""
    max_answers: int = Field(default=20, ge=1)
    alias_share: float = Field(default=0.3, ge=0, le=1)
    keyword_share: float = Field(default=0.25, ge=0, le=1)
    text_condition_share: float = Field(default=0.3, ge=0, le=1)
    held_out_share: float = Field(default=0.5, ge=0, le=1)
    """Share of test questions worded with held-out forms."""
    split: dict[str, float] = Field(default_factory=lambda: {"train": 0.5, "val": 0.2, "test": 0.3})
    phrasings: list[Phrasing] = Field(default_factory=list)

    @field_validator("split")
    @classmethod
    def _sums_to_one(cls, value: dict[str, float]) -> dict[str, float]:
        if set(value) != {"train", "val", "test"} or abs(sum(value.values()) - 1) > 1e-9 or min(value.values()) < 0:
            raise ValueError("split needs train, val and test shares that are not negative and sum to 1")
        return value

    @field_validator("phrasings")
    @classmethod
    def _phrased_once(cls, value: list[Phrasing]) -> list[Phrasing]:
        keys = [(p.target, p.relation, p.anchor) for p in value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"phrasings given twice for (target, relation, anchor): {twice}")
        return value
