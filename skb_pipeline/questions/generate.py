"""Questions with exact answers, made from any SKB.

A gold node and a template give at most one question; everything about it follows from the hash of the two. See
``docs/questions.md`` for the method, and for what such questions are good for.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.questions.conditions import TextStore, candidate_phrases, only_named
from skb_pipeline.questions.frame import QUERIES, seen_answers
from skb_pipeline.questions.mentions import Mention, Mentions, surface_key
from skb_pipeline.questions.paraphrase import paraphrase
from skb_pipeline.questions.report import SPLITS, QuestionReport, Reason, TemplateReport
from skb_pipeline.questions.settings import QuestionSpec
from skb_pipeline.questions.templates import Shape, Template, enumerate_templates, without_direction
from skb_pipeline.questions.topology import Topology, load_nodes
from skb_pipeline.questions.wording import Wordings
from skb_pipeline.text.hashing import happens, key_hash, mix

VERSION = "6"


ANCHOR_TRIES = 32
"""Anchors (or pairs of anchors) tried per draw."""
TEXT_TRIES = 4
"""Of these, graph questions for which a textual condition is looked for."""
PHRASE_TRIES = 64
"""Phrases tried per graph question."""
TEXT_POOL = 10
"""A condition may narrow a graph question with up to ``TEXT_POOL * max_answers`` answers."""
FAN_OUT = 8
"""Neighbours taken per constraint of a join and per hop of a path when pairs or paths are put together."""
MAX_WORK = 20_000
"""Edges looked at for one question; middle nodes of a higher degree are not walked through."""


@dataclass(frozen=True)
class _Draw:
    """A gold node drawn for a template. ``query_id`` is the draw's hash; anchors are tried by ``hashes``."""

    template: Template
    gold: int
    query_id: str
    hash: int
    with_text: bool

    @property
    def template_name(self) -> str:
        return self.template.name + ("+text" if self.with_text else "")


@dataclass(frozen=True)
class _Question:
    """A question before it is worded; nodes by position."""

    draw: _Draw
    anchors: tuple[int, ...]
    mentions: tuple[Mention, ...]
    answers: tuple[int, ...]
    phrase: str | None = None


def generate_questions(con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> tuple[pd.DataFrame, QuestionReport]:
    """Make questions from an SKB, as ``spec.questions`` says.

    Args:
        con: connection on an SKB file with its ``adjacency`` table; it is only read.
        spec: the dataset's spec.

    Returns:
        ``(frame, report)``: the columns of ``frame.QUERIES``, one row per question, sorted by ``query_id``;
        and what became of every draw.
    """
    return _Generator(con, spec).run()


def draw_probability(n_nodes: int, per_template: int) -> float:
    """Largest power of two (at most 1) with which an expected ``per_template`` of ``n_nodes`` at most is drawn.

    As it moves in steps, a few nodes more or fewer mostly leave it alone; and as a node is drawn where its hash is
    below it, a smaller probability draws a subset.
    """
    return 2.0 ** -max(0, math.ceil(math.log2(n_nodes / per_template))) if n_nodes else 1.0


class _Generator:
    def __init__(self, con: duckdb.DuckDBPyConnection, spec: DatasetSpec) -> None:
        self.spec = spec
        self.settings: QuestionSpec = spec.questions
        self.nodes = load_nodes(con, self.settings.seed)
        self.topology = Topology(con, self.nodes)
        self.mentions = Mentions(con, self.nodes)
        self.texts = TextStore(con, self.nodes, spec.node_types)
        self.wordings = Wordings(spec)
        self.plain: dict[str, str] = {}
        """Words of each question before it is retold."""
        self.report = QuestionReport(without_direction=without_direction(spec))

    def run(self) -> tuple[pd.DataFrame, QuestionReport]:
        questions: list[_Question] = []
        for template in enumerate_templates(self.spec):
            questions += self._of_template(template)
        questions = self._drop_duplicates(questions, self._meaning, Reason.DUPLICATE, keep_smallest=True)
        rows = {question.draw.query_id: self._row(question) for question in questions}

        def words(question: _Question) -> str:
            return surface_key(self.plain[question.draw.query_id])

        # Words that fit two questions do not say which answers are right: neither is kept.
        questions = self._drop_duplicates(questions, words, Reason.SAME_WORDS, keep_smallest=False)
        questions = self._drop_leaks(questions, rows)
        questions.sort(key=lambda question: question.draw.query_id)
        for question in questions:
            self._count(question, rows[question.draw.query_id])
        kept = [rows[question.draw.query_id] for question in questions]
        frame = pd.DataFrame(kept, columns=QUERIES.names)
        frame["seen_answer"] = pd.Series(seen_answers(frame["split"], frame["answer_ids"]), dtype=object)
        return frame, self.report

    # -- draws ---------------------------------------------------------------------------------------------------

    def _of_template(self, template: Template) -> list[_Question]:
        draws, probability = self._draw(template)
        for with_text in (False, True):
            name = _Draw(template, 0, "", 0, with_text).template_name
            self.report.templates[name] = TemplateReport(probability)
        viable: list[tuple[_Draw, list[_Question]]] = []
        for draw in draws:
            counts = self.report.templates[draw.template_name]
            counts.drawn += 1
            failures: Counter[Reason] = Counter()
            found = list(islice(self._graph_questions(draw, failures), TEXT_TRIES if draw.with_text else 1))
            counts.retried.update({reason.value: n for reason, n in failures.items()})
            if found:
                viable.append((draw, found))
            else:
                self._drop(draw, _commonest(failures))
        return self._with_conditions(viable)

    def _draw(self, template: Template) -> tuple[list[_Draw], float]:
        possible = self.nodes.types == template.target
        for step in template.target_steps:
            possible = possible & (np.diff(self.topology.step(step).indptr) > 0)
        positions = np.flatnonzero(possible)
        probability = draw_probability(len(positions), self.settings.per_template)
        hashes = mix(key_hash(self.settings.seed, template.name), self.nodes.hashes[positions])
        drawn = hashes / 2.0**64 < probability
        draws = [
            _Draw(template, position, f"syn-{number:016x}", number, with_text=False)
            for position, number in zip(positions[drawn].tolist(), hashes[drawn].tolist(), strict=True)
        ]
        return self._want_text(sorted(draws, key=lambda draw: draw.hash)), probability

    def _want_text(self, draws: list[_Draw]) -> list[_Draw]:
        """Which draws shall get a textual condition: a share of all, as far as the gold node has words for one."""
        share = self.settings.text_condition_share
        wanted = [draw for draw in draws if happens(share, draw.query_id, "with text")]
        self.texts.load(draw.gold for draw in wanted)
        able = {draw.query_id for draw in wanted if self._phrases(draw, ())}
        return [replace(draw, with_text=draw.query_id in able) for draw in draws]

    def _phrases(self, draw: _Draw, anchors: tuple[int, ...]) -> list[str]:
        taken = [*self.wordings.type_words(draw.template.target)]
        for anchor in anchors:
            taken += self.mentions.surfaces(anchor)
        text = self.texts.load([draw.gold])[draw.gold]
        return candidate_phrases(text, self._in_name(draw.template), taken, draw.query_id)[:PHRASE_TRIES]

    # -- graph part ----------------------------------------------------------------------------------------------

    def _graph_questions(self, draw: _Draw, failures: Counter[Reason]) -> Iterator[_Question]:
        """Graph questions the gold node answers, best anchor first; counts what stood in the way of the others."""
        limit = self.settings.max_answers * (TEXT_POOL if draw.with_text else 1)
        want_alias = happens(self.settings.alias_share, draw.query_id, "alias")
        proposals = self._proposals(draw)
        if not proposals:
            failures[Reason.NO_ANCHOR] += 1
        for anchors in proposals:
            mentions = [self.mentions.choose(anchor, want_alias, draw.query_id) for anchor in anchors]
            named = tuple(mention for mention in mentions if mention is not None)
            if len(named) < len(anchors):
                failures[Reason.AMBIGUOUS] += 1
                continue
            answers = self.topology.answers(draw.template, anchors, MAX_WORK)
            if answers is None:
                failures[Reason.TOO_MUCH_WORK] += 1
            elif len(answers) > limit:
                failures[Reason.TOO_MANY] += 1
            elif set(answers.tolist()) <= set(anchors):
                failures[Reason.ONLY_ANCHOR] += 1
            else:
                yield _Question(draw, anchors, named, tuple(answers.tolist()))

    def _proposals(self, draw: _Draw) -> list[tuple[int, ...]]:
        """Anchors from which the gold node can be reached, ordered by hash, at most ``ANCHOR_TRIES``."""
        template = draw.template
        found: set[tuple[int, ...]]
        if template.shape is Shape.TWO_HOPS:
            found = {(anchor,) for anchor in self._anchors_two_hops(draw)}
        elif template.shape is Shape.ONE_HOP:
            neighbours, _ = self.topology.step(template.steps[0]).of(draw.gold)
            found = {(anchor,) for anchor in self._by_hash(draw, neighbours, ANCHOR_TRIES)}
        else:
            first, second = (
                self._by_hash(draw, self.topology.step(step).of(draw.gold)[0], FAN_OUT) for step in template.steps
            )
            same = template.steps[0] == template.steps[1]
            pairs = ((a, b) for a in first for b in second if a != b)
            found = {self._ordered(pair) if same else pair for pair in pairs}
        return sorted(found, key=lambda anchors: (self._hash_of(draw, anchors), anchors))[:ANCHOR_TRIES]

    def _anchors_two_hops(self, draw: _Draw) -> set[int]:
        near, far = (self.topology.step(step) for step in draw.template.steps)
        middles, edges = near.of(draw.gold)
        edges_to: dict[int, set[int]] = {}
        for middle, edge in zip(middles.tolist(), edges.tolist(), strict=True):
            edges_to.setdefault(middle, set()).add(edge)
        anchors: set[int] = set()
        for middle in self._by_hash(draw, middles, FAN_OUT):
            others, far_edges = far.of(middle)
            if len(others) > MAX_WORK:
                continue
            if draw.template.one_relation and len(edges_to[middle]) == 1:
                # The one edge that leads to the middle node must not lead back.
                others = others[far_edges != next(iter(edges_to[middle]))]
            anchors.update(self._by_hash(draw, others, FAN_OUT))
        return anchors

    def _by_hash(self, draw: _Draw, positions: np.ndarray, count: int) -> list[int]:
        """Up to ``count`` distinct nodes, in an order of their own for each draw."""
        distinct = np.unique(positions)
        return distinct[np.argsort(mix(draw.hash, self.nodes.hashes[distinct]))[:count]].tolist()

    def _hash_of(self, draw: _Draw, anchors: tuple[int, ...]) -> int:
        return key_hash(draw.query_id, *(int(self.nodes.hashes[anchor]) for anchor in anchors))

    def _ordered(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Two anchors of one step in an order that depends on their keys only."""
        a, b = sorted(pair, key=lambda position: int(self.nodes.hashes[position]))
        return a, b

    # -- textual part --------------------------------------------------------------------------------------------

    def _with_conditions(self, viable: list[tuple[_Draw, list[_Question]]]) -> list[_Question]:
        """Add the textual condition to draws that want one; texts are read once for the whole template."""
        needed = {answer for draw, found in viable if draw.with_text for q in found for answer in q.answers}
        self.texts.load(needed)
        questions = []
        for draw, found in viable:
            if not draw.with_text:
                questions.append(found[0])
                continue
            narrowed = next((n for n in map(self._narrow, found) if n is not None), None)
            if narrowed is None:
                self._drop(draw, Reason.NO_CONDITION)
            else:
                questions.append(narrowed)
        return questions

    def _narrow(self, question: _Question) -> _Question | None:
        """The question with a condition that at most half of its answers meet, or None."""
        draw = question.draw
        texts = self.texts.load(question.answers)
        for phrase in self._phrases(draw, question.anchors):
            answers = tuple(answer for answer in question.answers if texts[answer].contains(phrase))
            narrows = 2 * len(answers) <= len(question.answers) and len(answers) <= self.settings.max_answers
            if narrows and not set(answers) <= set(question.anchors):
                return _Question(draw, question.anchors, question.mentions, answers, phrase)
        return None

    def _in_name(self, template: Template) -> bool:
        return only_named(self.spec.node_types[template.target])

    # -- rows ----------------------------------------------------------------------------------------------------

    def _row(self, question: _Question) -> dict[str, Any]:
        draw = question.draw
        split = self._split(draw.gold)
        mentions = [mention.text for mention in question.mentions]
        plan = draw.template.plan(mentions, question.phrase)
        retold = split != "train" and happens(self.settings.paraphrased_share, draw.query_id, "paraphrased")
        worded = self.wordings.word(
            draw.template,
            mentions,
            question.phrase,
            phrase_in_name=self._in_name(draw.template),
            query_id=draw.query_id,
            held_out=split == "test"
            and not retold
            and happens(self.settings.held_out_share, draw.query_id, "held out"),
        )
        self.plain[draw.query_id] = worded.text
        return {
            "query_id": draw.query_id,
            "query": paraphrase(worded.text, draw.query_id) if retold else worded.text,
            "split": split,
            "answer_ids": [int(self.nodes.node_ids[answer]) for answer in question.answers],
            "origin": "synthetic",
            "template": draw.template_name,
            "gold_plan": plan.model_dump_json(by_alias=True),
            "anchor_ids": [
                {"var": anchor.var, "node_id": int(self.nodes.node_ids[position])}
                for anchor, position in zip(plan.anchors, question.anchors, strict=True)
            ],
            "wording": "paraphrased" if retold else "held_out" if worded.held_out else "known",
            "style": worded.style,
            "uses_alias": any(mention.is_alias for mention in question.mentions),
            "gold_key": json.dumps(
                [self.nodes.types[draw.gold], self.nodes.external_ids[draw.gold]], ensure_ascii=False
            ),
        }

    def _split(self, gold: int) -> str:
        """By the gold node alone, so that all questions made from one node are in one split."""
        place = key_hash("split", int(self.nodes.hashes[gold])) / 2.0**64
        bound = 0.0
        for split in SPLITS:
            bound += self.settings.split[split]
            if place < bound:
                return split
        return next(split for split in reversed(SPLITS) if self.settings.split[split] > 0)

    # -- drops and counts ----------------------------------------------------------------------------------------

    @staticmethod
    def _meaning(question: _Question) -> object:
        return (question.draw.template_name, question.anchors, question.phrase)

    def _drop_duplicates(
        self, questions: list[_Question], key: Callable[[_Question], object], reason: Reason, *, keep_smallest: bool
    ) -> list[_Question]:
        groups: dict[object, list[_Question]] = {}
        for question in sorted(questions, key=lambda question: question.draw.query_id):
            groups.setdefault(key(question), []).append(question)
        kept = []
        for group in groups.values():
            keep = group[:1] if keep_smallest or len(group) == 1 else []
            for question in group[len(keep) :]:
                self._drop(question.draw, reason)
            kept += keep
        return kept

    def _drop_leaks(self, questions: list[_Question], rows: dict[str, dict[str, Any]]) -> list[_Question]:
        """Drop train and validation questions that share an answer with a test question."""
        in_test = {q.draw.query_id: rows[q.draw.query_id]["split"] == "test" for q in questions}
        tested = {answer for q in questions if in_test[q.draw.query_id] for answer in q.answers}
        kept = []
        for question in questions:
            if in_test[question.draw.query_id] or tested.isdisjoint(question.answers):
                kept.append(question)
            else:
                self._drop(question.draw, Reason.SHARED_ANSWER)
        return kept

    def _drop(self, draw: _Draw, reason: Reason) -> None:
        self.report.templates[draw.template_name].dropped[reason.value] += 1

    def _count(self, question: _Question, row: dict[str, Any]) -> None:
        report, split = self.report, str(row["split"])
        report.templates[question.draw.template_name].kept += 1
        report.splits[split] += 1
        report.answer_counts[split][len(question.answers)] += 1
        with_alias = (self.mentions.choose(anchor, True, "") for anchor in question.anchors)
        report.alias_possible += any(mention is not None and mention.is_alias for mention in with_alias)
        report.uses_alias += bool(row["uses_alias"])
        report.held_out += row["wording"] == "held_out"
        report.paraphrased += row["wording"] == "paraphrased"
        report.keyword += row["style"] == "keyword"


def _commonest(failures: Counter[Reason]) -> Reason:
    """The commonest reason; among equals the one declared first."""
    return max(Reason, key=lambda reason: failures[reason])
