"""The form of a plan that a language model is asked for: its JSON schema, and plans written in that form.

What a dataset does not offer (negated hops, retrieval modes) is no part of the form, nor are optional hops and
conditions, which no prompt offers yet. Hops have a direction only where the schema has relations whose edges it can
filter. Properties come in one order in schema, examples and repair rounds, since
models write them in the order of the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.plans.plan import TARGET, Direction, MatchMode, Plan, RetrievalMode, RiskLevel
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import connected_variables, target_labels

MOST_ANCHORS = 6
MOST_HOPS = 6
"""Twice what any question of the public benchmarks needs."""

MOST_VAR = 24
MOST_TEXT = 400
"""Characters of an anchor's text and of ``relevance_text``: without a bound a model may write until it is cut off."""


class NotInFormError(ValueError):
    """A plan says something for which the form has no place."""


@dataclass(frozen=True)
class PlanForm:
    """The form for one schema.

    Attributes:
        schema: names that plans may use.
        negated_hops: hops have ``negated``.
        retrieval_modes: plans have ``retrieval_mode``.
    """

    schema: GraphSchema
    negated_hops: bool = False
    retrieval_modes: bool = False

    @property
    def directions(self) -> bool:
        """Whether hops have ``direction``: for a schema in which a direction filters some relation's edges."""
        return self.schema.has_directions

    @classmethod
    def from_spec(cls, spec: DatasetSpec) -> Self:
        """The form that ``spec.plans`` asks for."""
        return cls(GraphSchema.from_spec(spec), spec.plans.negated_hops, spec.plans.retrieval_modes)

    def json_schema(self) -> dict[str, Any]:
        """JSON schema of a plan, for structured output.

        It keeps to what llama.cpp, xgrammar and outlines (vLLM) and OpenAI's strict mode have in common: objects with
        all properties required and no others, arrays and strings with bounds, enums, booleans; no references, no
        alternatives, no defaults. A relation between two types that it does not join still fits: that is for
        validation to find.
        """
        types, candidates = list(self.schema.node_types), list(self.schema.candidate_types)
        anchor = {
            "var": _text(MOST_VAR),
            "text": _text(MOST_TEXT),
            "label": _one_of(types),
            "match_mode": _one_of([mode.value for mode in MatchMode]),
        }
        hop = {
            "from": _text(MOST_VAR),
            "rel": _one_of(list(self.schema.relations)),
            "to_var": _text(MOST_VAR),
            "to_label": _one_of([*types, ""]),  # empty for a target of several types
        }
        if self.directions:
            hop["direction"] = _one_of([Direction.OUT.value, Direction.IN.value, Direction.ANY.value])
        if self.negated_hops:
            hop["negated"] = {"type": "boolean"}
        target = {
            "var": _one_of([TARGET]),
            "labels": _list(_one_of(candidates), len(candidates)),
            "relevance_text": _text(MOST_TEXT, least=0),
        }
        plan = {
            "anchors": _list(_object(anchor), MOST_ANCHORS),
            "hops": _list(_object(hop), MOST_HOPS),
            "target": _object(target),
            "risk_level": _one_of([level.value for level in RiskLevel]),
        }
        # The mode comes first: it decides what the rest looks like.
        mode = {"retrieval_mode": _one_of(list(get_args(RetrievalMode)))} if self.retrieval_modes else {}
        return _object({**mode, **plan})

    def dump(self, plan: Plan) -> dict[str, Any]:
        """A plan as JSON value of this form, properties in the order of the schema.

        Where the form has modes and the plan has none, the one that fits its shape is filled in. A mode that the form
        does not have is left out, as engines do the same with and without it; but for the two modes that are a plan's
        only content.

        Raises:
            NotInFormError: the plan has a negated hop or a direction, or is a ``doc_search`` or ``skip``, and the form
                has no such thing; or it has an optional hop, a condition or several texts.
        """
        several = any(anchor.any_of for anchor in plan.anchors)
        if plan.where or several or any(hop.optional for hop in plan.hops):
            raise NotInFormError(
                "the plan has an optional hop or a condition, or an anchor of several texts; the form has none of them"
            )
        if not self.directions and any(hop.direction is not Direction.ANY for hop in plan.hops):
            raise NotInFormError("the plan has a direction, and no relation of the schema has any")
        if not self.negated_hops and any(hop.negated for hop in plan.hops):
            raise NotInFormError("the plan has a negated hop, and negated hops are off")
        if not self.retrieval_modes and plan.retrieval_mode in ("doc_search", "skip"):
            raise NotInFormError(f"the plan is a {plan.retrieval_mode}, and retrieval modes are off")
        dumped = plan.model_dump(mode="json", by_alias=True)
        mode = dumped.pop("retrieval_mode")
        for hop in dumped["hops"]:
            negated = hop.pop("negated")
            if self.directions:
                hop["direction"] = hop.pop("direction", Direction.ANY.value)
            if self.negated_hops:
                hop["negated"] = negated
        return {"retrieval_mode": mode or fitting_mode(plan, self.schema), **dumped} if self.retrieval_modes else dumped


def fitting_mode(plan: Plan, schema: GraphSchema) -> RetrievalMode:
    """The retrieval mode that a valid plan without one amounts to.

    ``graph_expand`` where a connected anchor has a type of the answers, else ``graph_filter_doc`` with a
    ``relevance_text`` and ``graph_strict`` without; ``skip`` for a plan without hops.
    """
    if not plan.hops:
        return "skip"
    connected, labels = connected_variables(plan), target_labels(plan, schema)
    if any(anchor.var in connected and anchor.label in labels for anchor in plan.anchors):
        return "graph_expand"
    return "graph_filter_doc" if plan.target.relevance_text.strip() else "graph_strict"


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


def _one_of(values: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _text(most: int, *, least: int = 1) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": most}
