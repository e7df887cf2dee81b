"""Guidance checked against the SKB it is used for: what is not valid there or finds nothing is left out, with a reason.

GRASP (Stage 1) takes an example only if executing its plan puts a right answer among the first ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from skb_pipeline.planning.prompts.guidance import Example, Guidance, Hint
from skb_pipeline.plans.plan import PlanStatus, ValidatedPlan
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.validation import validate

TOP = 10
"""First answers among which a right one has to be."""

Run = Callable[[Sequence[ValidatedPlan]], Sequence[tuple[int, list[int]]]]
"""Executes valid plans, ``doc_search`` among them: for each the number of answers (``n_cand``) and the node ids of the
best (at least the first ten, where there are as many), best first."""


@dataclass(frozen=True)
class CheckedGuidance:
    """Guidance to use, and an account of what is not in it.

    Attributes:
        kept: the guidance.
        faults: (question of an example, path of a hint or ``rules``; why it was left out).
        notes: what else there is to say, in sentences.
    """

    kept: Guidance
    faults: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def check_examples(guidance: Guidance, schema: GraphSchema, run: Run) -> CheckedGuidance:
    """Keep the hints and examples whose plans are valid as they stand, and of examples those that find something.

    An example of ``skip`` is kept unseen, since there is nothing to execute. Rules cannot be checked; they are left out
    where hints and examples show that the guidance was written for another schema.

    Args:
        guidance: such as comes with the package.
        schema: of the SKB.
        run: executes plans over the SKB; called once, with the plans of all valid examples.
    """
    faults: list[tuple[str, str]] = []
    hints: list[Hint] = []
    for hint in guidance.hints:
        reason = _invalid(validate(hint.skeleton, schema))
        if reason is None:
            hints.append(hint)
        else:
            faults.append((hint.path, reason))
    runnable, reasons = _validated(guidance.examples, schema)
    rules = guidance.rules
    if rules and not hints and not runnable and (guidance.hints or guidance.examples):
        faults.append(("rules", "no hint and no example is valid here, so they are for another schema"))
        rules = ()
    results = run(list(runnable.values())) if runnable else []
    for i, (n_cand, top) in zip(runnable, results, strict=True):
        if not n_cand or not top:
            reasons[i] = "its plan finds nothing in this SKB"
    faults += [(guidance.examples[i].question, reasons[i]) for i in sorted(reasons)]
    examples = tuple(example for i, example in enumerate(guidance.examples) if i not in reasons)
    return CheckedGuidance(replace(guidance, hints=tuple(hints), rules=rules, examples=examples), tuple(faults))


def _validated(examples: Sequence[Example], schema: GraphSchema) -> tuple[dict[int, ValidatedPlan], dict[int, str]]:
    """By place: plans that can be executed, and why others are no plans here."""
    runnable: dict[int, ValidatedPlan] = {}
    reasons: dict[int, str] = {}
    for i, example in enumerate(examples):
        checked = validate(example.plan, schema)
        reason = _invalid(checked)
        if reason is None:
            runnable[i] = checked
        elif example.plan.retrieval_mode != "skip":
            reasons[i] = reason
    return runnable, reasons


def _invalid(checked: ValidatedPlan) -> str | None:
    if checked.status is PlanStatus.VALID:
        return None
    return f"its plan is not valid here ({checked.status}): " + "; ".join(
        f"{d.part}: {d.reason}" for d in checked.faults
    )
