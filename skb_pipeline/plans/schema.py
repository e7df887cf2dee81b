"""``GraphSchema``: what plans are checked against. Types, relations and the triples that join them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol, Self

from skb_pipeline.plans.plan import Comparison, Direction
from skb_pipeline.text.parsers import PARSED
from skb_pipeline.text.settings import FieldSpec, Shape


class Triple(NamedTuple):
    """An allowed (head type, relation, tail type)."""

    head: str
    relation: str
    tail: str


class FieldKind(StrEnum):
    """What the values of a field are, and so how they compare."""

    NUMBER = "number"
    """By size, as float64."""
    DATE = "date"
    """Text such as ``2020-01-31``, by time."""
    TEXT = "text"
    """Texts, which have no order; capital and small letters A to Z are the same."""

    @property
    def operators(self) -> tuple[Comparison, ...]:
        """Comparisons that suit it."""
        if self is FieldKind.TEXT:
            return ("=", "!=", "in", "contains")
        return ("=", "!=", "<", "<=", ">", ">=", "in")


class TypedField(NamedTuple):
    """A field of a node type whose values conditions can compare; ``name`` is its key in the store."""

    node_type: str
    name: str
    kind: FieldKind


_DATES = ("date_date",)
_WORDS = ("rank_category", "dimensions_unit", "dimensions_weight_unit", "weight_unit")


def typed_fields(node_type: str, declared: DeclaresFields) -> list[TypedField]:
    """The fields of a type that conditions can name, in declared order: of the shapes ``integer`` and ``number``, of
    the shape ``text`` where nothing is parsed out of it, and what is parsed out of a text. The name is for anchors."""
    found = []
    for name, spec in declared.fields.items():
        if spec.parse:
            for suffix in PARSED[spec.parse]:
                key = f"{spec.parse}_{suffix}"
                kind = FieldKind.DATE if key in _DATES else FieldKind.TEXT if key in _WORDS else FieldKind.NUMBER
                found.append(TypedField(node_type, f"{name}_{suffix}", kind))
        elif spec.shape in (Shape.INTEGER, Shape.NUMBER):
            found.append(TypedField(node_type, name, FieldKind.NUMBER))
        elif spec.shape is Shape.TEXT and name != declared.name_field:
            found.append(TypedField(node_type, name, FieldKind.TEXT))
    return found


class DeclaresFields(Protocol):
    """One node type of a dataset's spec."""

    @property
    def fields(self) -> Mapping[str, FieldSpec]:
        """Its fields, in declared order."""

    @property
    def name_field(self) -> str:
        """The field that is a node's name."""


class DeclaresRelation(Protocol):
    """One allowed triple of a dataset's spec."""

    @property
    def triple(self) -> Triple:
        """The triple."""

    @property
    def symmetric(self) -> bool:
        """Whether its edges have no direction."""


class DeclaresGraph(Protocol):
    """The part of a dataset's spec that a schema is made of."""

    @property
    def node_types(self) -> Mapping[str, DeclaresFields]:
        """Node types, in declared order."""

    @property
    def relations(self) -> Sequence[DeclaresRelation]:
        """Allowed triples, in declared order."""

    @property
    def candidate_types(self) -> Sequence[str]:
        """Types of possible answers, in declared order."""


@dataclass(frozen=True)
class GraphSchema:
    """Names a plan may use.

    Attributes:
        node_types: all node types, in declared order.
        triples: allowed (head type, relation, tail type), in declared order.
        candidate_types: types of possible answers, in declared order.
        symmetric: those of ``triples`` whose edges have no direction; which end of them is stored as the head means
            nothing.
        fields: what conditions can compare, each (type, name) once.

    Raises:
        ValueError: a triple, candidate type or field uses a type that is not in ``node_types``, there is no candidate
            type, a symmetric triple is not one of ``triples`` or joins two types, or a field is there twice.
    """

    node_types: tuple[str, ...]
    triples: tuple[Triple, ...]
    candidate_types: tuple[str, ...]
    symmetric: tuple[Triple, ...] = ()
    fields: tuple[TypedField, ...] = ()

    def __post_init__(self) -> None:
        used = [t for triple in self.triples for t in (triple.head, triple.tail)]
        for name in [*used, *self.candidate_types, *(field.node_type for field in self.fields)]:
            if name not in self.node_types:
                raise ValueError(f"type {name!r} is not one of the node types {list(self.node_types)}")
        if not self.candidate_types:
            raise ValueError("a schema needs at least one candidate type")
        for triple in self.symmetric:
            if triple not in self.triples or triple.head != triple.tail:
                raise ValueError(f"{tuple(triple)} is symmetric, but no declared triple within one type")
        if len(self._kinds) < len(self.fields):
            raise ValueError("a field is there twice")

    @classmethod
    def from_spec(cls, spec: DeclaresGraph) -> Self:
        """The schema part of a dataset's spec."""
        return cls(
            tuple(spec.node_types),
            tuple(relation.triple for relation in spec.relations),
            tuple(spec.candidate_types),
            tuple(relation.triple for relation in spec.relations if relation.symmetric),
            tuple(f for name, declared in spec.node_types.items() for f in typed_fields(name, declared)),
        )

    @cached_property
    def _kinds(self) -> Mapping[tuple[str, str], FieldKind]:
        return {(field.node_type, field.name): field.kind for field in self.fields}

    def kind_of(self, node_type: str, field: str) -> FieldKind | None:
        """The kind of a type's field; None where the type has no such field that conditions can compare."""
        return self._kinds.get((node_type, field))

    def fields_of(self, node_types: Sequence[str]) -> Mapping[str, FieldKind]:
        """Fields of one or more types by name, in declared order; of a name that several have, the first one's kind."""
        found: dict[str, FieldKind] = {}
        for field in self.fields:
            if field.node_type in node_types:
                found.setdefault(field.name, field.kind)
        return found

    @cached_property
    def relations(self) -> tuple[str, ...]:
        """Relation names without repetition, in declared order."""
        return tuple(dict.fromkeys(triple.relation for triple in self.triples))

    @cached_property
    def _by_relation(self) -> Mapping[str, tuple[Triple, ...]]:
        grouped: dict[str, list[Triple]] = defaultdict(list)
        for triple in self.triples:
            grouped[triple.relation].append(triple)
        return {relation: tuple(triples) for relation, triples in grouped.items()}

    @cached_property
    def _triple_set(self) -> frozenset[Triple]:
        return frozenset(self.triples)

    def triples_of(self, relation: str) -> tuple[Triple, ...]:
        """Triples of one relation; empty for an unknown one."""
        return self._by_relation.get(relation, ())

    def two_ways(self, one: str, relation: str, other: str) -> bool:
        """Whether edges of ``relation`` between the two types run either way and the way matters, so that a direction
        filters them: a relation within one type that is not symmetric, or one between two types declared both ways."""
        there, back = Triple(one, relation, other), Triple(other, relation, one)
        return {there, back} <= self._triple_set and there not in self.symmetric

    @cached_property
    def has_directions(self) -> bool:
        """Whether a direction filters the edges of any relation."""
        return any(self.two_ways(*triple) for triple in self.triples)

    def allows(self, one: str, relation: str, other: str, direction: Direction = Direction.ANY) -> bool:
        """Whether an edge of ``relation`` may join the two types: from ``one`` to ``other`` (``out``), from ``other``
        to ``one`` (``in``), or one of both."""
        out = direction is not Direction.IN and Triple(one, relation, other) in self._triple_set
        return out or (direction is not Direction.OUT and Triple(other, relation, one) in self._triple_set)
