"""``PromptSet``: the messages that ask a language model for a plan, and the schema of its reply.

The system message has GRASP's four parts (role, schema, plan definition, fusion control; Stage 1), then guidance for
the dataset. It is the same for all questions, so that a server can keep it; what changes stands in the user message.
The wording is in ``templates``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from skb_pipeline.datasets.spec import DatasetSpec, RelationSpec
from skb_pipeline.planning.engines.completions import Message
from skb_pipeline.planning.prompts.data_blocks import DataBlock, json_line, text_block
from skb_pipeline.planning.prompts.guidance import Guidance
from skb_pipeline.planning.prompts.plan_form import MOST_ANCHORS, MOST_HOPS, NotInFormError, PlanForm
from skb_pipeline.plans.plan import Direction, MatchMode, Plan, RiskLevel
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.storage.artifacts import stable_hash

MOST_QUESTION = 6_000
MOST_REPLY = 3_000
MOST_FAULTS = 12
MOST_FAULT = 1_500
MOST_ALLOWED = 60
MOST_LINKED = 5
MOST_NAME = 160
"""Bounds of what is repeated to the model: characters (escapes included), faults, triples, nodes per anchor."""

_DIRECTIONS = (Direction.OUT.value, Direction.IN.value, Direction.ANY.value)


class PromptSet:
    """Prompts of one dataset.

    Attributes:
        version: hash of all that decides the messages besides question, reply and faults, and of the JSON schema.
        form: what of a plan the model is offered.
        left_out: rules and examples of the guidance that need something the dataset's plans do not offer, each with
            the reason.
    """

    def __init__(self, spec: DatasetSpec, guidance: Guidance) -> None:
        """``spec`` gives the schema, what its nodes and relations are called, and the options of plans."""
        self.form = PlanForm.from_spec(spec)
        self.left_out: tuple[str, ...] = ()
        self._system = Message("system", self._render_system(spec, guidance))
        sources = {name: _template_source(name) for name in _environment().list_templates(extensions=["j2"])}
        self.version = stable_hash([sources, self._system.content, self.json_schema()])

    def messages(self, question: str) -> tuple[Message, ...]:
        """The conversation that asks for a plan: system and user.

        A question of more than ``MOST_QUESTION`` characters is cut, and the prompt says so.
        """
        return self._system, _user("question.j2", question=text_block(question, MOST_QUESTION))

    def repair(self, question: str, reply: str | None, faults: Sequence[str]) -> tuple[Message, ...]:
        """The conversation that asks for a plan without the faults of an earlier one.

        The earlier reply is shown once, cut to a fixed size, so that no number of rounds makes prompts grow.

        Args:
            question: as in :meth:`messages`.
            reply: the text of the reply; None or blank where there was none.
            faults: what is wrong with it, each with the values that would be allowed.
        """
        shown = [text_block(fault, MOST_FAULT).json for fault in faults[:MOST_FAULTS]]
        return self._system, _user(
            "repair.j2",
            question=text_block(question, MOST_QUESTION),
            reply=text_block(reply, MOST_REPLY) if reply and reply.strip() else None,
            faults=DataBlock("\n".join(shown)),
            more_faults=max(0, len(faults) - MOST_FAULTS),
            allowed=self._allowed(faults[:MOST_FAULTS]),
        )

    def empty_result(self, question: str, plan: Plan, links: Mapping[str, Sequence[str]]) -> tuple[Message, ...]:
        """The conversation that asks for a plan in place of one that nothing matches.

        Args:
            question: as in :meth:`messages`.
            plan: the plan that was executed.
            links: names of the nodes each anchor was linked to, by variable, best first; the first ``MOST_LINKED`` are
                shown, and how many more there were.
        """
        linked = {anchor.var: _shown_names(links.get(anchor.var, ())) for anchor in plan.anchors}
        return self._system, _user(
            "empty_result.j2",
            question=text_block(question, MOST_QUESTION),
            plan=_json_block(plan.model_dump(mode="json", by_alias=True, exclude_none=True)),
            links=_json_block(linked),
        )

    def json_schema(self) -> dict[str, Any]:
        """Schema of the reply, see :meth:`PlanForm.json_schema`."""
        return self.form.json_schema()

    def _render_system(self, spec: DatasetSpec, guidance: Guidance) -> str:
        rules, hints, examples, left_out = [], [], [], []
        for rule in guidance.rules:
            if rule.needs is None or getattr(self.form, rule.needs):
                rules.append(" ".join(rule.text.split()))
            else:
                left_out.append(f"rule {rule.text[:60]!r}: {rule.needs} are off")
        for hint in guidance.hints:
            skeleton = json_line(_skeleton(hint.skeleton, self.form.directions))
            hints.append({"path": hint.path, "signals": " ".join(hint.signals.split()), "skeleton": skeleton})
        for example in guidance.examples:
            try:
                plan = json_line(self.form.dump(example.plan))
            except NotInFormError as error:
                left_out.append(f"example {example.question[:60]!r}: {error}")
            else:
                examples.append({"question": json_line(example.question), "plan": plan})
        self.left_out = tuple(left_out)
        two_ways = self.form.schema.two_ways
        return _render(
            "system.j2",
            types=[_type_line(spec, name) for name in spec.node_types],
            candidates=", ".join(map(json_line, spec.candidate_types)),
            triples=[
                {"names": json_line(list(r.triple)), "gloss": _gloss(r, headings), "directed": two_ways(*r.triple)}
                for r, headings in zip(spec.relations, spec.headings, strict=True)
            ],
            form=_form_line(self.form),
            modes=self.form.retrieval_modes,
            negated=self.form.negated_hops,
            directed=self.form.directions,
            most_anchors=MOST_ANCHORS,
            most_hops=MOST_HOPS,
            rules=rules,
            hints=hints,
            examples=examples,
        )

    def _allowed(self, faults: Sequence[str]) -> list[str]:
        """Values and triples that the faults speak of."""
        schema, text = self.form.schema, "\n".join(faults)
        lines = []
        if "label" in text:
            lines.append("node types: " + ", ".join(map(json_line, schema.node_types)))
            lines.append("types of answers: " + ", ".join(map(json_line, schema.candidate_types)))
        for part, levels in (("risk_level", RiskLevel), ("match_mode", MatchMode)):
            if part in text:
                lines.append(f'values of "{part}": ' + ", ".join(json_line(level.value) for level in levels))
        if "retrieval_mode" in text and self.form.retrieval_modes:
            modes = self.json_schema()["properties"]["retrieval_mode"]["enum"]
            lines.append('values of "retrieval_mode": ' + ", ".join(map(json_line, modes)))
        if "direction" in text and self.form.directions:
            lines.append('values of "direction": ' + ", ".join(json_line(direction) for direction in _DIRECTIONS))
        triples = _triples_spoken_of(schema, text)
        lines += [f"[type, relation, type]: {json_line(list(triple))}" for triple in triples[:MOST_ALLOWED]]
        if len(triples) > MOST_ALLOWED:
            lines.append(f"{len(triples) - MOST_ALLOWED} more, as listed in the schema")
        return lines


def _triples_spoken_of(schema: GraphSchema, text: str) -> list[tuple[str, str, str]]:
    """Triples of relations that the faults name; all of them where a relation is not known."""
    if "not a known relation" in text:
        return list(schema.triples)
    return [triple for triple in schema.triples if repr(triple.relation) in text]


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__package__, "templates"),
        undefined=StrictUndefined,
        autoescape=False,  # prompts are no HTML; foreign text gets in as JSON only
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values).strip()


def _user(template: str, **values: Any) -> Message:
    return Message("user", _render(template, **values))


def _template_source(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _type_line(spec: DatasetSpec, name: str) -> dict[str, str]:
    node_type = spec.node_types[name]
    words = [node_type.plural or "", *spec.planner.type_words.get(name, ())]
    return {
        "name": json_line(name),
        "words": ", ".join(json_line(word) for word in dict.fromkeys(words) if word and word != name),
        "fields": ", ".join(map(json_line, node_type.document)),
    }


def _gloss(relation: RelationSpec, headings: tuple[str, str]) -> str:
    """Headings of the neighbours from both ends; empty where they are the relation's name."""
    return "" if headings == (relation.name, relation.name) else " / ".join(map(json_line, headings))


def _form_line(form: PlanForm) -> str:
    """The form of a plan with placeholders, in the order of the schema."""
    mode = '"retrieval_mode": …, ' if form.retrieval_modes else ""
    directed = ', "direction": …' if form.directions else ""
    negated = ', "negated": …' if form.negated_hops else ""
    return (
        f'{{{mode}"anchors": [{{"var": …, "text": …, "label": …, "match_mode": …}}, …], '
        f'"hops": [{{"from": …, "rel": …, "to_var": …, "to_label": …{directed}{negated}}}, …], '
        '"target": {"var": "T", "labels": […], "relevance_text": …}, "risk_level": …}'
    )


def _skeleton(plan: Plan, directions: bool) -> dict[str, Any]:
    """What of a plan a path decides."""
    anchors = [{"var": a.var, "text": a.text, "label": a.label} for a in plan.anchors]
    hops = [
        {"from": h.from_var, "rel": h.rel, "to_var": h.to_var, "to_label": h.to_label}
        | ({"direction": h.direction.value} if directions else {})
        for h in plan.hops
    ]
    return {"anchors": anchors, "hops": hops}


def _json_block(value: Any) -> DataBlock:
    """A JSON value; as the beginning of its text, where it is longer than a reply may be."""
    line = json_line(value)
    return DataBlock(line) if len(line) <= MOST_REPLY else text_block(line, MOST_REPLY)


def _shown_names(names: Sequence[str]) -> list[str]:
    shown = [name if len(name) <= MOST_NAME else name[:MOST_NAME] + "…" for name in names[:MOST_LINKED]]
    return shown + ([f"… and {len(names) - MOST_LINKED} more"] if len(names) > MOST_LINKED else [])
