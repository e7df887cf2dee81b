"""Metapath templates: the shapes of question a schema allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.plan import TARGET, Anchor, Hop, Plan, Target
from skb_pipeline.plans.schema import Triple


class Step(NamedTuple):
    """A relation as seen from ``target``: ``anchor`` is the type at its other end, whichever end that is stored as."""

    target: str
    relation: str
    anchor: str


class Shape(StrEnum):
    """How anchors and target are joined."""

    ONE_HOP = "one_hop"
    TWO_HOPS = "two_hops"
    JOIN = "join"


@dataclass(frozen=True)
class Template:
    """One shape over concrete types and relations.

    Attributes:
        shape: see :class:`Shape`.
        steps: one step for one hop; target side first, then anchor side for two hops; the two constraints of a join.
    """

    shape: Shape
    steps: tuple[Step, ...]

    @property
    def target(self) -> str:
        """Type of the answers."""
        return self.steps[0].target

    @property
    def target_steps(self) -> tuple[Step, ...]:
        """Steps that touch the target."""
        return self.steps if self.shape is Shape.JOIN else self.steps[:1]

    @property
    def one_relation(self) -> bool:
        """Both hops go over one relation, so that an edge could be used twice."""
        return len(self.steps) == 2 and self.steps[0].relation == self.steps[1].relation

    @property
    def name(self) -> str:
        """Readable name, read from the answers: ``disease <-shows- phenotype <-linked- gene``, joins with ``&``."""
        arrows = [f"<-{step.relation}- {step.anchor}" for step in self.steps]
        return f"{self.target} " + (" & " if self.shape is Shape.JOIN else " ").join(arrows)

    def plan(self, mentions: Sequence[str], phrase: str | None) -> Plan:
        """The plan of one question.

        Args:
            mentions: text of each anchor, in the order of ``steps`` (one for two hops).
            phrase: words of the textual condition, or None.
        """
        target = Target(labels=[self.target], relevance_text=phrase or "")
        if self.shape is Shape.TWO_HOPS:
            near, far = self.steps
            hops = [
                _hop("a1", far, "m1"),
                _hop("m1", near, TARGET),
            ]
            return Plan(anchors=[Anchor(var="a1", text=mentions[0], label=far.anchor)], hops=hops, target=target)
        anchors, hops = [], []
        for i, (step, mention) in enumerate(zip(self.steps, mentions, strict=True), start=1):
            anchors.append(Anchor(var=f"a{i}", text=mention, label=step.anchor))
            hops.append(_hop(f"a{i}", step, TARGET))
        return Plan(anchors=anchors, hops=hops, target=target)


def _hop(from_var: str, step: Step, to_var: str) -> Hop:
    return Hop.model_validate({"from": from_var, "rel": step.relation, "to_var": to_var, "to_label": step.target})


def enumerate_steps(triples: Sequence[Triple]) -> list[Step]:
    """Every triple from both of its ends, sorted; a relation within one type gives one step."""
    return sorted(
        {Step(t.head, t.relation, t.tail) for t in triples} | {Step(t.tail, t.relation, t.head) for t in triples}
    )


def enumerate_templates(spec: DatasetSpec) -> list[Template]:
    """All templates of a dataset's schema whose answers are of a candidate type, sorted by name.

    Raises:
        ValueError: two templates have the same name (type or relation names that look like part of a path).
    """
    steps = enumerate_steps(spec.triples)
    templates = []
    for target in sorted(set(spec.candidate_types)):
        near = [step for step in steps if step.target == target]
        templates += [Template(Shape.ONE_HOP, (step,)) for step in near]
        templates += [Template(Shape.TWO_HOPS, (a, b)) for a in near for b in steps if b.target == a.anchor]
        templates += [Template(Shape.JOIN, pair) for pair in combinations_with_replacement(near, 2)]
    templates.sort(key=lambda template: template.name)
    for a, b in pairwise(templates):
        if a.name == b.name:
            raise ValueError(f"two templates are both named {a.name!r}: rename a node type or a relation")
    return templates
