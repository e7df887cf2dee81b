"""What node types, relations and fields are called in a Cypher store: one table, made from the schema.

Labels, relationship types and property keys cannot be query parameters, so they become part of the query text. They
come from this table only, never from a plan, and always in back-ticks.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from skb_pipeline.plans.schema import GraphSchema

COMMON_LABEL = "_Entity_"
"""Every node has it beside the label of its type; ``nodeId`` is unique within it. A store that holds several graphs
has one such label for each, see :meth:`GraphNames.within`."""


PROPERTIES = ("nodeId", "externalId", "name", "canonical", "aliases")
"""Keys that nodes have beside their fields."""


@dataclass(frozen=True)
class Renaming:
    """A name that did not get what the convention would give: ``wanted`` is that, ``given`` the one it has."""

    name: str
    wanted: str
    given: str
    reason: str


@dataclass(frozen=True)
class GraphNames:
    """Labels by node type, relationship types by relation and property keys by name of a typed field; no two entries of
    the first two tables are equal, nor two of the third.

    Labels are CamelCase with ``/`` read as "or"; relationship types are upper case with ``_`` for blanks and hyphens,
    and of ``a___writes___b`` only the middle part is used. ``renamed`` lists the exceptions. The table depends on the
    set of names in the schema, not on their order. Labels and types never share a name, since some stores keep both
    in one name space. A property key is the field's own name, unless that is one of :data:`PROPERTIES` or has a mark
    that means something to the import tool. ``entity`` (not quoted) is the label that all nodes of the graph have and
    no others.
    """

    labels: Mapping[str, str]
    relation_types: Mapping[str, str]
    renamed: tuple[Renaming, ...]
    entity: str = COMMON_LABEL
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: GraphSchema) -> Self:
        """The table of a schema."""
        taken = {COMMON_LABEL: "the common label"}
        renamed: list[Renaming] = []
        labels = _give(schema.node_types, _camel_case, "Label_", "node type", taken, renamed)
        types = _give(schema.relations, _upper_case, "TYPE_", "relation", taken, renamed)
        taken = dict.fromkeys(PROPERTIES, "a property of every node")
        fields = dict.fromkeys(f.name for f in schema.fields)
        properties = _give(fields, _property_key, "field_", "field", taken, renamed)
        return cls(labels, types, tuple(renamed), properties=properties)

    def within(self, entity: str) -> Self:
        """The same names for a graph that shares its store with others and whose nodes have the label ``entity``.

        Queries look nodes up in ``entity`` and follow relationships from there, which never leave their graph; so
        they see that graph and no other.

        Raises:
            ValueError: the label cannot be quoted safely, or a type or relation is called so.
        """
        quote(entity)
        if entity in self._node_types or entity in self._relations:
            raise ValueError(f"{entity!r} is the name of a type or relation of the graph")
        return replace(self, entity=entity)

    @property
    def entity_label(self) -> str:
        """The label of all nodes of the graph, quoted."""
        return quote(self.entity)

    def label(self, node_type: str) -> str:
        """The label of a node type, quoted. KeyError: the schema has no such type."""
        return quote(self.labels[node_type])

    def relation_type(self, relation: str) -> str:
        """The relationship type of a relation, quoted. KeyError: the schema has no such relation."""
        return quote(self.relation_types[relation])

    def property_key(self, field: str) -> str:
        """The property key of a typed field, quoted. KeyError: the graph has no such property."""
        return quote(self.properties[field])

    def node_type_of(self, label: str) -> str:
        """The node type that has a label (not quoted). KeyError: none has."""
        return self._node_types[label]

    def relation_of(self, relation_type: str) -> str:
        """The relation that has a relationship type (not quoted). KeyError: none has."""
        return self._relations[relation_type]

    @cached_property
    def _node_types(self) -> dict[str, str]:
        return {label: name for name, label in self.labels.items()}

    @cached_property
    def _relations(self) -> dict[str, str]:
        return {given: name for name, given in self.relation_types.items()}


def quote(name: str) -> str:
    """A name in back-ticks, those inside it doubled.

    Raises:
        ValueError: the name is not safe inside back-ticks. A back-slash may start a Unicode escape, which Neo4j
            resolves before it reads quotes.
    """
    if not is_safe(name):
        raise ValueError(f"{name!r} cannot be quoted safely")
    return "`" + name.replace("`", "``") + "`"


def is_safe(name: str) -> bool:
    """Whether a name keeps its meaning inside back-ticks: not empty, no back-slash, control or surrogate character."""
    return bool(name) and "\\" not in name and not any(unicodedata.category(c) in ("Cc", "Cs") for c in name)


def _give(
    names: Iterable[str],
    convert: Callable[[str], str],
    prefix: str,
    kind: str,
    taken: dict[str, str],
    renamed: list[Renaming],
) -> dict[str, str]:
    """Give each name its own; ``taken`` (given name -> owner) and ``renamed`` are added to."""
    given = {}
    # Names that are already in the form go first and so keep it, whatever else the schema has.
    for name in sorted(names, key=lambda name: (convert(name) != name, name)):
        wanted, reason = convert(name), ""
        base = wanted
        if not is_safe(wanted):
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            base, reason = f"{prefix}{digest[:8]}", "cannot be quoted safely"
        chosen, number = base, 1
        while chosen in taken:
            reason = reason or f"taken by {taken[chosen]}"
            number += 1
            chosen = f"{base}_{number}"
        taken[chosen] = f"{kind} {name!r}"
        given[name] = chosen
        if reason:
            renamed.append(Renaming(name, wanted, chosen, reason))
    return given


def _camel_case(name: str) -> str:
    words = re.split(r"[\s_-]+", name.replace("/", " or "))
    return "".join(word[:1].upper() + word[1:] for word in words)


def _property_key(name: str) -> str:
    return re.sub(r"[:(){}]", "_", name)


def _upper_case(name: str) -> str:
    parts = name.split("___")
    middle = parts[1] if len(parts) == 3 and all(parts) else name
    return re.sub(r"[\s-]+", "_", middle.upper())
