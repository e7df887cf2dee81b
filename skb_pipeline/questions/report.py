"""What became of every gold node that was drawn: nothing is dropped without being counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SPLITS = ("train", "val", "test")


class Reason(StrEnum):
    """Why an anchor was passed over, or a question dropped."""

    NO_ANCHOR = "no anchor can be reached"
    AMBIGUOUS = "ambiguous anchor name"
    TOO_MANY = "too many answers"
    TOO_MUCH_WORK = "too many edges to look at"
    ONLY_ANCHOR = "the only answer is an anchor"
    NO_CONDITION = "no textual condition narrows"
    DUPLICATE = "same question drawn twice"
    SAME_WORDS = "same words as another question"
    SHARED_ANSWER = "shares an answer with test"


@dataclass
class TemplateReport:
    """Counts of one template.

    Attributes:
        probability: share of the possible gold nodes that is drawn.
        drawn: gold nodes drawn; equals ``kept`` plus all of ``dropped``.
        kept: questions in the frame.
        dropped: questions by reason; a draw none of whose anchors will do counts under the commonest reason.
        retried: anchors passed over, by reason.
    """

    probability: float
    drawn: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)


@dataclass
class QuestionReport:
    """Counts of a whole run.

    Attributes:
        templates: by template name; those from which nothing was drawn are there too.
        splits: questions per split.
        answer_counts: per split, how many questions have how many answers.
        alias_possible: questions with an anchor that has a usable alias.
        uses_alias, held_out, paraphrased, keyword: questions worded so.
        without_direction: relations with a direction that no phrasing states, so that they were asked for in undirected
            words, with the answers of both directions; a sentence each.
    """

    templates: dict[str, TemplateReport] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    answer_counts: dict[str, Counter[int]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})
    alias_possible: int = 0
    uses_alias: int = 0
    held_out: int = 0
    paraphrased: int = 0
    keyword: int = 0
    without_direction: list[str] = field(default_factory=list)

    def dropped(self) -> dict[str, int]:
        """Dropped questions by reason, over all templates."""
        total: Counter[str] = Counter()
        for template in self.templates.values():
            total += template.dropped
        return {reason.value: total[reason] for reason in Reason if total[reason]}

    def metadata(self) -> dict[str, Any]:
        """The report as plain dictionaries, strings and numbers."""
        return {
            "drawn": sum(t.drawn for t in self.templates.values()),
            "kept": sum(t.kept for t in self.templates.values()),
            "dropped": self.dropped(),
            "splits": dict(self.splits),
            "answer_counts": {
                split: {str(n): count for n, count in sorted(counts.items())}
                for split, counts in self.answer_counts.items()
            },
            "alias_possible": self.alias_possible,
            "uses_alias": self.uses_alias,
            "held_out": self.held_out,
            "paraphrased": self.paraphrased,
            "keyword": self.keyword,
            "without_direction": list(self.without_direction),
            "templates": {
                name: {
                    "probability": t.probability,
                    "drawn": t.drawn,
                    "kept": t.kept,
                    "dropped": dict(sorted(t.dropped.items())),
                    "retried": dict(sorted(t.retried.items())),
                }
                for name, t in sorted(self.templates.items())
            },
        }
