"""Metapath templates: the shapes of question a schema allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.plan import TARGET, Anchor, Direction, Hop, Plan, Target
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.questions.settings import Phrasing


class Step(NamedTuple):
    """A relation as seen from ``target``: ``anchor`` is the type at its other end.

    ``direction`` is that of the edge, with the target as its head (``out``), as its tail (``in``) or as either. Where
    the types imply it or it means nothing (a symmetric relation) it is ``any``.
    """

    target: str
    relation: str
    anchor: str
    direction: Direction = Direction.ANY

    @property
    def back(self) -> Step:
        """The same edges seen from the anchor."""
        return Step(self.anchor, self.relation, self.target, self.direction.opposite)

    @property
    def edge(self) -> str:
        """Relation and, if there is one, direction: ``depends, out``."""
        return self.relation if self.direction is Direction.ANY else f"{self.relation}, {self.direction}"


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
        """Readable name, read from the answers: ``disease <-shows- phenotype <-linked- gene``, joins with ``&``; where
        an edge has a direction, as seen from the answers' side: ``package <-depends, out- package``."""
        arrows = [f"<-{step.edge}- {step.anchor}" for step in self.steps]
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
    # The hop is written from the anchor's side, the step is seen from the answers'.
    ends = {"from": from_var, "rel": step.relation, "to_var": to_var, "to_label": step.target}
    return Hop.model_validate({**ends, "direction": step.direction.opposite})


def schema_steps(schema: GraphSchema) -> list[Step]:
    """Every triple from both of its ends, sorted; where edges run either way, one step per direction."""
    found = set()
    for head, relation, tail in schema.triples:
        for step in (Step(head, relation, tail), Step(tail, relation, head)):
            ways = (Direction.OUT, Direction.IN) if schema.two_ways(*step[:3]) else (Direction.ANY,)
            found |= {step._replace(direction=way) for way in ways}
    return sorted(found)


def phrased_steps(spec: DatasetSpec) -> dict[Step, Phrasing]:
    """The phrasings that questions are worded with, by step.

    Where edges run either way and the way means something, a phrasing that does not say its direction is none of them:
    its words may mean one direction, and its answers would be those of both.
    """
    schema, found = GraphSchema.from_spec(spec), {}
    for p in spec.questions.phrasings:
        direction = spec.questions.direction_of(p) if schema.two_ways(p.target, p.relation, p.anchor) else Direction.ANY
        if direction is not None:
            found[Step(p.target, p.relation, p.anchor, Direction(direction))] = p
    return found


def enumerate_steps(spec: DatasetSpec) -> list[Step]:
    """The steps that questions are made of, sorted: every triple from both of its ends.

    Where edges run either way, one step per direction that phrasings state; without any, one for both directions.
    """
    schema, phrased = GraphSchema.from_spec(spec), phrased_steps(spec)
    stated = {step[:3] for step in phrased}
    steps = set()
    for step in schema_steps(schema):
        undirected = step._replace(direction=Direction.ANY)
        steps |= {s for s in phrased if s[:3] == step[:3]} if step[:3] in stated else {undirected}
    return sorted(steps)


def without_direction(spec: DatasetSpec) -> list[str]:
    """For each step whose edges run either way, and of which no phrasing says which way its words run: what that means
    and what to do, in a sentence."""
    schema, told = GraphSchema.from_spec(spec), []
    stated = {step[:3] for step in phrased_steps(spec)}
    for target, relation, anchor in sorted({step[:3] for step in schema_steps(schema)} - stated):
        if not schema.two_ways(target, relation, anchor):
            continue
        within = target == anchor
        ends = f"within {target!r}" if within else f"between {target!r} and {anchor!r}, asked for {target!r},"
        unused = sum((p.target, p.relation, p.anchor) == (target, relation, anchor) for p in spec.questions.phrasings)
        told.append(
            f"relation {relation!r} {ends} has a direction, but no phrasing says which way its words run: it is asked "
            f'for in undirected words ("is linked by {relation} with"), with the answers of both directions; give '
            f"phrasings with direction: out and in{', or declare it symmetric' if within else ''}"
            + (f" (its phrasings without a direction are not used: {unused})" if unused else "")
        )
    return told


def enumerate_templates(spec: DatasetSpec) -> list[Template]:
    """All templates of a dataset's schema whose answers are of a candidate type, sorted by name.

    Raises:
        ValueError: two templates have the same name (type or relation names that look like part of a path).
    """
    steps = enumerate_steps(spec)
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
