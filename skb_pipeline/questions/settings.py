"""The spec's section ``questions``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from skb_pipeline.section import Section

Direction = Literal["out", "in", "any"]
"""Seen from the subject of the words: an edge with it as its head (``out``), as its tail (``in``), or either."""


class Phrasing(Section):
    """Surface forms of one triple seen from its target: predicates such as ``shows {x}``.

    Subject is the target in the singular; ``{x}`` stands for the other end: a name, or a clause such as ``a gene
    that ...`` (a form that ends with ``{x}`` is preferred then). ``held_out`` forms are used for test questions
    only. ``keywords`` stand behind the target's noun in keyword style: ``with {x}``.

    ``direction`` is that of the edge, seen from the target: ``out`` where the target is its head (``depends on {x}``
    of the relation *depends*), ``in`` where it is its tail (``is needed by {x}``), ``any`` where the words say neither
    (``is bought together with {x}``). None: as ``QuestionSpec.directions`` says. It matters only where edges between
    the two types run either way and the way means something.
    """

    relation: str
    target: str
    anchor: str
    direction: Direction | None = None
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
    paraphrased_share: float = Field(default=0.2, ge=0, le=1)
    """Share of validation and test questions that are retold in other words (``questions.paraphrase``)."""
    split: dict[str, float] = Field(default_factory=lambda: {"train": 0.5, "val": 0.2, "test": 0.3})
    phrasings: list[Phrasing] = Field(default_factory=list)
    directions: dict[str, Direction] = Field(default_factory=dict)
    """By relation: direction of its phrasings that give none."""

    @field_validator("split")
    @classmethod
    def _sums_to_one(cls, value: dict[str, float]) -> dict[str, float]:
        if set(value) != {"train", "val", "test"} or abs(sum(value.values()) - 1) > 1e-9 or min(value.values()) < 0:
            raise ValueError("split needs train, val and test shares that are not negative and sum to 1")
        return value

    @field_validator("phrasings")
    @classmethod
    def _phrased_once(cls, value: list[Phrasing]) -> list[Phrasing]:
        keys = [(p.target, p.relation, p.anchor, p.direction or "no direction") for p in value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"phrasings given twice for (target, relation, anchor, direction): {twice}")
        return value

    def direction_of(self, phrasing: Phrasing) -> Direction | None:
        """The direction that a phrasing states, or the default of its relation; None where neither is given."""
        return phrasing.direction or self.directions.get(phrasing.relation)
