"""Guidance for a dataset that has none of its own: hints from its schema, examples from its training questions.

Only questions of the split ``train`` are looked at, so that nothing of the questions that plans are judged by gets into
a prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from pydantic import ValidationError

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.planning.prompts.checking import TOP, CheckedGuidance, Run
from skb_pipeline.planning.prompts.guidance import Example, Guidance, Hint
from skb_pipeline.planning.prompts.plan_form import NotInFormError, PlanForm
from skb_pipeline.plans.plan import Direction, Plan, PlanStatus, RiskLevel, ValidatedPlan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate
from skb_pipeline.questions.templates import Shape, Step, Template, schema_steps
from skb_pipeline.questions.wording import plural, readable, with_article

VERSION = "4"
"""Also of the checking of examples."""
MOST_HINTS = 16
FEW, HUNDREDS = 20, 200
"""Answers up to which a plan may be called aggressive, and above which it is weak."""

MOST_QUESTION = 500
"""Characters of a question that is shown as example."""

_TRIES = 5
"""Plans executed per example wanted, at most."""


@dataclass(frozen=True)
class _Candidate:
    query_id: str
    question: str
    template: str
    checked: ValidatedPlan
    plan: Plan
    answers: frozenset[int]

    @property
    def relations(self) -> frozenset[str]:
        return frozenset(hop.rel for hop in self.plan.hops)


def generate_guidance(spec: DatasetSpec, schema: GraphSchema, questions: pd.DataFrame, run: Run) -> CheckedGuidance:
    """Make guidance from the schema and from training questions with gold plans.

    Hints are the paths of one and two hops that the schema allows, the templates of most training questions first, then
    the shorter ones. Examples come from as many templates as possible, among these the ones that bring in relations not
    shown yet. One is taken only if executing its gold plan puts one of its answers among the first ten; its risk level
    is set from what the plan leaves to text and from how much it finds, as the prompt explains the levels.

    Args:
        spec: of the dataset; ``spec.plans.examples`` is the most examples taken.
        schema: of the SKB.
        questions: columns ``query_id, query, split, answer_ids, template, gold_plan``. Rows of other splits than
            ``train`` change nothing.
        run: executes plans over the SKB.

    Returns:
        The guidance; as faults the training questions that were tried and not taken; as notes how many there were, and
        whether there are no examples for want of questions.

    Raises:
        KeyError: a column is missing.
    """
    train = questions.loc[questions["split"] == "train", ["query_id", "query", "answer_ids", "template", "gold_plan"]]
    hints = schema_hints(spec, Counter(name for name in train["template"] if isinstance(name, str)))
    wanted = spec.plans.examples
    if not wanted:
        return CheckedGuidance(Guidance("generated", hints), notes=("examples are switched off (plans.examples: 0)",))
    pool, faults = _candidates(train, PlanForm.from_spec(spec), schema)
    taken, tried = _verified(pool, wanted, run, faults)
    notes = [
        f"{len(train)} training questions, {len(pool)} of them with a gold plan that a prompt can show; "
        f"{tried} were executed and {len(taken)} taken as examples (at most {wanted})"
    ]
    if not pool:
        why = "the dataset has no training questions" if train.empty else "no training question has a usable gold plan"
        notes.append(f"no examples: {why}")
    examples = tuple(Example(candidate.question, plan) for candidate, plan in taken)
    return CheckedGuidance(Guidance("generated", hints, examples=examples), tuple(faults), tuple(notes))


def schema_hints(spec: DatasetSpec, frequency: Mapping[str, int]) -> tuple[Hint, ...]:
    """The ``MOST_HINTS`` first paths of one and two hops to a candidate type.

    Args:
        spec: gives triples and what types and neighbours are called.
        frequency: questions per template name; the most frequent come first.
    """
    steps = schema_steps(GraphSchema.from_spec(spec))
    near = [step for step in steps if step.target in spec.candidate_types]
    paths = [Template(Shape.ONE_HOP, (step,)) for step in near]
    paths += [Template(Shape.TWO_HOPS, (a, b)) for a in near for b in steps if b.target == a.anchor]
    # Questions without directions count for the path in both.
    asked = {path: frequency.get(path.name, 0) + _without_directions(path, frequency) for path in paths}
    paths.sort(key=lambda path: (-asked[path], len(path.steps), path.name))
    return tuple(_hint(spec, path) for path in paths[:MOST_HINTS])


def _without_directions(path: Template, frequency: Mapping[str, int]) -> int:
    undirected = Template(path.shape, tuple(step._replace(direction=Direction.ANY) for step in path.steps))
    return frequency.get(undirected.name, 0) if undirected != path else 0


def _hint(spec: DatasetSpec, path: Template) -> Hint:
    start = readable(path.steps[-1].anchor)
    asked = f"{with_article(start)} is named and {_nouns(spec, path.target)} are asked for"
    if path.shape is Shape.TWO_HOPS:
        asked += f", joined through {with_article(readable(path.steps[0].anchor))} that is not named"
    headings = ", then ".join(_headings(spec, step) for step in reversed(path.steps))
    return Hint(path.name, f"{asked}; words for it: {headings}", path.plan([start.upper()], None))


def _headings(spec: DatasetSpec, step: Step) -> str:
    """What the neighbours are called, seen from the anchor and from the target of a step."""
    for relation, headings in zip(spec.relations, spec.headings, strict=True):
        seen = [f'"{heading}"' for heading in headings]
        if relation.triple == (step.anchor, step.relation, step.target) and step.direction is not Direction.OUT:
            return _seen(step, seen)
        if relation.triple == (step.target, step.relation, step.anchor) and step.direction is not Direction.IN:
            return _seen(step, seen[::-1])
    raise KeyError(f"no triple of the schema is the step {step}")


def _seen(step: Step, headings: Sequence[str]) -> str:
    """Headings from the anchor and from the target. Where the direction counts, which is which counts too."""
    if step.direction is Direction.ANY:
        return " / ".join(dict.fromkeys(headings))
    return f"{headings[0]}, as seen from the {readable(step.anchor)} before it (the other way {headings[1]})"


def _nouns(spec: DatasetSpec, node_type: str) -> str:
    return spec.node_types[node_type].plural or plural(readable(node_type))


def _candidates(
    train: pd.DataFrame, form: PlanForm, schema: GraphSchema
) -> tuple[list[_Candidate], list[tuple[str, str]]]:
    """Questions whose gold plan a prompt can show, by id; and why others with a gold plan cannot be used."""
    found, faults = [], []
    for row in train.sort_values("query_id", kind="stable").itertuples(index=False):
        if not isinstance(row.gold_plan, str):
            continue
        question = str(row.query)
        if len(question) > MOST_QUESTION:
            faults.append((question, f"longer than {MOST_QUESTION} characters"))
            continue
        try:
            plan = Plan.model_validate_json(row.gold_plan)
            form.dump(plan)
        except (ValidationError, NotInFormError) as error:
            faults.append((question, f"its gold plan cannot be shown: {error}"))
            continue
        checked = validate(plan, schema)
        if checked.status is not PlanStatus.VALID:
            reasons = "; ".join(f"{d.part}: {d.reason}" for d in checked.faults)
            faults.append((question, f"its gold plan is not valid ({checked.status}): {reasons}"))
            continue
        template = row.template if isinstance(row.template, str) else _shape_of(plan)
        answers = frozenset(map(int, row.answer_ids))
        found.append(_Candidate(str(row.query_id), question, template, checked, plan, answers))
    return found, faults


def _shape_of(plan: Plan) -> str:
    """Stands for a template where questions have none."""
    return " ".join(sorted(f"{hop.rel}>{hop.to_label}" for hop in plan.hops))


def _verified(
    pool: Sequence[_Candidate], wanted: int, run: Run, faults: list[tuple[str, str]]
) -> tuple[list[tuple[_Candidate, Plan]], int]:
    """Examples with their plans, in the order chosen, and how many plans were executed; adds to ``faults``."""
    taken: list[tuple[_Candidate, Plan]] = []
    left, tried = list(pool), 0
    while left and len(taken) < wanted and tried < _TRIES * wanted:
        batch = _choose(left, [candidate for candidate, _ in taken], wanted - len(taken))
        tried += len(batch)
        ids = {candidate.query_id for candidate in batch}
        left = [candidate for candidate in left if candidate.query_id not in ids]
        for candidate, (n_cand, top) in zip(batch, run([c.checked for c in batch]), strict=True):
            if candidate.answers.isdisjoint(top[:TOP]):
                faults.append((candidate.question, f"none of its answers is among the first {TOP} of its gold plan"))
            else:
                plan = candidate.plan.model_copy(update={"risk_level": _risk_level(candidate.plan, n_cand)})
                taken.append((candidate, plan))
    return taken, tried


def _choose(pool: Sequence[_Candidate], taken: Sequence[_Candidate], n: int) -> list[_Candidate]:
    """``n`` candidates one by one: rarest template so far, most new relations, most frequent template, lowest id."""
    frequency = Counter(candidate.template for candidate in pool)
    shown = Counter(candidate.template for candidate in taken)
    relations = set().union(*(candidate.relations for candidate in taken))
    # In groups, so that a choice is quick however many questions there are.
    groups: dict[tuple[str, frozenset[str]], list[_Candidate]] = {}
    for candidate in pool:
        groups.setdefault((candidate.template, candidate.relations), []).append(candidate)
    chosen: list[_Candidate] = []
    while groups and len(chosen) < n:
        best = min(
            groups,
            key=lambda key: (shown[key[0]], -len(key[1] - relations), -frequency[key[0]], key[0], sorted(key[1])),
        )
        candidate = groups[best].pop(0)
        if not groups[best]:
            del groups[best]
        chosen.append(candidate)
        shown[candidate.template] += 1
        relations |= candidate.relations
    return chosen


def _risk_level(plan: Plan, n_cand: int) -> RiskLevel:
    """The level that the prompt's criteria give a plan with named anchors and fitting relations."""
    if n_cand > HUNDREDS:
        return RiskLevel.WEAK
    if n_cand > FEW or plan.target.relevance_text.strip():
        return RiskLevel.NORMAL
    return RiskLevel.AGGRESSIVE
