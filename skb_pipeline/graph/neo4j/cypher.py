"""Plans as one Cypher statement for a graph whose names come from :class:`~skb_pipeline.plans.names.GraphNames`.

The store has nodes with two labels, ``names.entity`` and that of their type, and the properties ``nodeId`` (unique
within ``names.entity``), ``canonical`` and one per typed field that has a value, and one relationship per stored edge.

Each part of a plan (``plans.structure.Parts``) is a statement that gives its target nodes; those of a plan with
optional conditions are joined by UNION ALL, and put together by the caller.

The statement starts from the cheapest anchor and follows one hop after another. The other anchors
are looked up in parameters when they are reached, so their candidates never multiply. After each hop what is no longer
needed is dropped and only the best score per rest is kept, which is exact: sums are monotone in each cosine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.plan import TARGET, Condition, Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.plans.structure import Course, Negation, Part, Parts, course_of, take_apart
from skb_pipeline.plans.validation import check_executable

HEADER = "// Compiled from a plan; not run against a server."


@dataclass(frozen=True)
class CompiledCypher:
    """One statement and what it needs.

    Attributes:
        text: the statement. Of a plan without optional conditions it gives one record with ``n_cand`` (distinct answers
            before the cap), ``answers`` (list of [node id, score], at most ``$limit``, by score descending and then
            canonical order) and, with conditions on T, ``lacking``. Else one record per part, in no order: ``part``,
            ``n`` (target nodes) and ``answers``, a list of [node id, score, canonical position, whether it has the
            values that conditions on T ask for, whether it meets them]. Part 0 is the required one, part i + 1 the
            optional condition i, and part -1 has in ``n`` all nodes of the target's types.
        anchors: anchor variables in plan order; the numbers below are positions in it.
        starts: the anchor that each part starts from: parameter ``candidates`` (of the required part) or
            ``candidates_p`` (of part p), a list of ``{id, cosine}``.
        checked: anchors that are looked up when reached: ``ids_i`` (list) and ``cosines_i`` (map from id as text).
        forbidding: anchors in negated hops: ``ids_i``.
        values: parameters that conditions compare with.
        parts: numbers of the parts whose target nodes the statement gives; empty for a plan without optional
            conditions. Without a positive hop in it, part 0 only filters, and is left out if it has no negations.
        n_optional: number of optional conditions.
        selects: whether part 0 has a positive hop.
    """

    text: str
    anchors: tuple[str, ...]
    starts: Mapping[int, int]
    checked: tuple[int, ...]
    forbidding: tuple[int, ...]
    values: Mapping[str, object]
    parts: tuple[int, ...] = ()
    n_optional: int = 0
    selects: bool = True

    def parameters(self, bindings: Bindings, limit: int) -> dict[str, object]:
        """Values of all parameters for one execution."""
        pairs = [dict(zip(*(x.tolist() for x in bindings[var]), strict=True)) for var in self.anchors]
        values: dict[str, object] = {**self.values, "limit": limit}
        for part, start in self.starts.items():
            candidates = [{"id": node, "cosine": cosine} for node, cosine in pairs[start].items()]
            values[_start_parameter(part)] = candidates
        for i in {*self.checked, *self.forbidding}:
            values[f"ids_{i}"] = list(pairs[i])
        for i in self.checked:
            values[f"cosines_{i}"] = {str(node): cosine for node, cosine in pairs[i].items()}
        return values


def _start_parameter(part: int) -> str:
    return f"candidates_{part}" if part else "candidates"


def compile_cypher(
    plan: Plan,
    schema: GraphSchema,
    costs: Mapping[str, int] | None = None,
    *,
    names: GraphNames | None = None,
    header: bool = False,
) -> CompiledCypher:
    """Compile a plan. The semantics are those of ``docs/plans.md``.

    Args:
        plan: valid as it stands, with hops.
        schema: the dataset's names.
        costs: rows to expect per anchor variable when the statement starts from it, such as the number of its
            candidates or, better, of their edges. It starts from the cheapest, and of equals from the first in the
            plan. None: from the first.
        names: the schema's table of names; None makes it.
        header: put a comment on top that says the text was not run; for texts that are shown or exported.

    Raises:
        ValueError: the plan is not valid as it stands (see ``plans.validation``), it is a ``doc_search``, which is no
            matter of the graph, or the table of names lacks a field that it compares.
    """
    check_executable(plan, schema)
    names = names or GraphNames.of(schema)
    lacking = sorted({c.field for c in plan.where} - {*names.properties})
    if lacking:
        raise ValueError(f"the graph was loaded without the fields {lacking}")
    parts = take_apart(plan, schema)
    numbers = {anchor.var: i for i, anchor in enumerate(plan.anchors)}
    compiler = _Compiler(plan, schema, names, numbers, costs or {}, parts)
    return compiler.compile(header)


def compile_candidate_check(plan: Plan, names: GraphNames) -> str:
    """A statement that looks at the candidates of all anchors of a valid plan (parameters ``ids_i``, see above).

    It gives one record per candidate that exists: ``anchor`` (position), ``id``, ``fits`` (whether it has the anchor's
    label) and ``edges`` (how many edges it has for the plan's positive hops at the anchor).
    """
    parts = []
    for i, anchor in enumerate(plan.anchors):
        hops = [hop for hop in plan.hops if not hop.negated and anchor.var in (hop.from_var, hop.to_var)]
        types = "|".join(names.relation_type(relation) for relation in dict.fromkeys(hop.rel for hop in hops))
        edges = f"COUNT {{ (n)-[:{types}]-() }}" if types else "0"
        parts.append(
            f"UNWIND $ids_{i} AS id\nMATCH (n:{names.entity_label} {{nodeId: id}})\n"
            f"RETURN {i} AS anchor, id, n:{names.label(anchor.label)} AS fits, {edges} AS edges"
        )
    return "\nUNION ALL\n".join(parts)


@dataclass
class _Score:
    """Cosines of the anchors met so far, as expressions.

    Leading anchors of the plan are added up as soon as they are known; a later one waits in a column of its own, as
    the sum has one fixed order so that engines agree to the last bit.
    """

    order: Sequence[int]
    added: int = 0
    total: str = ""
    waiting: dict[int, str] = field(default_factory=dict)

    def meet(self, anchor: int, cosine: str) -> None:
        self.waiting[anchor] = cosine
        while self.added < len(self.order) and self.order[self.added] in self.waiting:
            next_one = self.waiting.pop(self.order[self.added])
            self.total = f"{self.total} + {next_one}" if self.total else next_one
            self.added += 1

    def columns(self) -> list[str]:
        """Items of a WITH that keeps the best score per rest; afterwards the expressions are its columns."""
        columns = {f"s{i}": expression for i, expression in sorted(self.waiting.items())}
        if self.total:
            columns = {"score": self.total, **columns}
        if not columns:
            return []
        # One column may be maximised for given values of the others.
        best, *rest = columns
        self.total = "score" if self.total else ""
        self.waiting = {i: f"s{i}" for i in self.waiting}
        items = [columns[name] if columns[name] == name else f"{columns[name]} AS {name}" for name in rest]
        return [*items, f"max({columns[best]}) AS {best}"]


class _Compiler:
    """All parts of a plan in one statement."""

    def __init__(
        self,
        plan: Plan,
        schema: GraphSchema,
        names: GraphNames,
        numbers: Mapping[str, int],
        costs: Mapping[str, int],
        parts: Parts,
    ) -> None:
        self.plan, self.schema, self.names, self.numbers, self.costs = plan, schema, names, numbers, costs
        self.parts = parts
        self.values: dict[str, object] = {}

    def compile(self, header: bool) -> CompiledCypher:
        chosen = dict(enumerate([self.parts.required, *self.parts.optional]))
        if not self.parts.selects and not self.parts.required.negations:
            del chosen[0]
        compilers = {i: _PartCompiler(self, i, part) for i, part in chosen.items()}
        lines = [HEADER] if header else []
        if self.parts.optional:
            texts = ["\n".join(compiler.lines(partial(self._all_answers, i))) for i, compiler in compilers.items()]
            labels = " OR ".join(f"t:{self.names.label(label)}" for label in self.parts.labels)
            texts.append(
                f"MATCH (t:{self.names.entity_label})\nWHERE {labels}\nRETURN -1 AS part, count(t) AS n, [] AS answers"
            )
            lines.append("\nUNION ALL\n".join(texts))
        else:
            lines += compilers[0].lines(self._best_answers)
        negations = [n for part in chosen.values() for n in part.negations]
        starts = {i: compiler.start for i, compiler in compilers.items() if compiler.start is not None}
        checked = {self.numbers[v] for i, part in chosen.items() for v in part.anchors if self.numbers[v] != starts[i]}
        return CompiledCypher(
            text="\n".join(lines),
            anchors=tuple(anchor.var for anchor in self.plan.anchors),
            starts=starts,
            checked=tuple(sorted(checked)),
            forbidding=tuple(sorted({self.numbers[n.other] for n in negations if n.other in self.numbers})),
            values=self.values,
            parts=tuple(chosen) if self.parts.optional else (),
            n_optional=len(self.parts.optional),
            selects=self.parts.selects,
        )

    def _all_answers(self, part: int, best: str) -> list[str]:
        has, meets = self._where()
        items = "id, score, canonical, has, meets" if self.parts.where else "id, score, canonical, true, true"
        return [
            f"WITH t.nodeId AS id, t.canonical AS canonical{has}{meets}, {best} AS score",
            f"WITH collect([{items}]) AS answers",
            f"RETURN {part} AS part, size(answers) AS n, answers",
        ]

    def _best_answers(self, best: str) -> list[str]:
        has, meets = self._where()
        lines = [
            f"WITH t.nodeId AS id, t.canonical AS canonical{has}{meets}, {best} AS score",
            "ORDER BY score DESC, canonical",
        ]
        if not self.parts.where:
            return [
                *lines,
                "WITH collect([id, score]) AS answers",
                "RETURN size(answers) AS n_cand, answers[..$limit] AS answers",
            ]
        return [
            *lines,
            "WITH collect(CASE WHEN meets THEN [id, score] END) AS answers, "
            "sum(CASE WHEN has THEN 0 ELSE 1 END) AS lacking",
            "RETURN size(answers) AS n_cand, answers[..$limit] AS answers, lacking",
        ]

    def _where(self) -> tuple[str, str]:
        """Columns of whether a target node has the values that its conditions ask for, and whether it meets them."""
        if not self.parts.where:
            return "", ""
        keys = dict.fromkeys(self.names.property_key(condition.field) for condition in self.parts.where)
        has = " AND ".join(f"t.{key} IS NOT NULL" for key in keys)
        meets = " AND ".join(self.compared("t", self.parts.labels, condition) for condition in self.parts.where)
        return f", ({has}) AS has", f", coalesce({meets}, false) AS meets"

    def compared(self, identifier: str, types: Sequence[str], condition: Condition) -> str:
        """A condition on the node of an identifier; null without a value."""
        kind = next(k for t in types if (k := self.schema.kind_of(t, condition.field)) is not None)
        left = f"{identifier}.{self.names.property_key(condition.field)}"
        given = condition.value if isinstance(condition.value, list) else [condition.value]
        if kind is FieldKind.TEXT:
            # In a Java pattern (?i) takes capital and small letters A to Z as the same, and no others.
            inner = "|".join(re.escape(str(value)) for value in given)
            pattern = f"(?is).*(?:{inner}).*" if condition.op == "contains" else f"(?is)(?:{inner})"
            text = f"{left} =~ {self._value(pattern)}"
            return f"NOT ({text})" if condition.op == "!=" else f"({text})"
        values = [float(value) if kind is FieldKind.NUMBER else value for value in given]
        if condition.op == "in":
            return f"({' OR '.join(f'{left} = {self._value(value)}' for value in values)})"
        return f"{left} {'<>' if condition.op == '!=' else condition.op} {self._value(values[0])}"

    def _value(self, value: object) -> str:
        for name, known in self.values.items():
            if type(known) is type(value) and known == value:
                return f"${name}"
        name = f"value_{len(self.values)}"
        self.values[name] = value
        return f"${name}"


class _PartCompiler:
    """One part of a plan."""

    def __init__(self, whole: _Compiler, number: int, part: Part) -> None:
        self.whole, self.number, self.part = whole, number, part
        self.schema, self.names, self.numbers = whole.schema, whole.names, whole.numbers
        self.types, self.negations = part.types, part.negations
        self.scored = [self.numbers[var] for var in part.scored]
        anchors, costs = [self.numbers[var] for var in part.anchors], whole.costs
        self.start = min(anchors, key=lambda i: (costs.get(whole.plan.anchors[i].var, 0), i), default=None)
        self.identifiers = self._identifiers()
        used = Counter(hop.rel for hop in part.hops if not hop.negated)
        self.repeated = {relation for relation, n in used.items() if n > 1}

    def lines(self, answers: Callable[[str], list[str]]) -> list[str]:
        """The statement; ``answers`` gives the lines at its end, that make records of ``t`` and its best score, from
        the expression of that."""
        score = _Score(self.scored)
        if self.start is None:
            begun, start = TARGET, self.identifiers[TARGET]
            labels = " OR ".join(f"{start}:{self.names.label(label)}" for label in self.types[TARGET])
            lines = [f"MATCH ({start}:{self.names.entity_label})"]
            lines += _where([f"({labels})", *self._at(TARGET)])
        else:
            begun = self.whole.plan.anchors[self.start].var
            start, label = self.identifiers[begun], self.names.label(self.whole.plan.anchors[self.start].label)
            lines = [
                f"UNWIND ${_start_parameter(self.number)} AS candidate",
                f"MATCH ({start}:{self.names.entity_label} {{nodeId: candidate.id}})",
                *_where([f"{start}:{label}", *self._at(begun)]),
            ]
            if self.start in self.scored:
                score.meet(self.start, "candidate.cosine")
        lines += self._follow_hops(score, [begun])
        return [*lines, *answers(f"max({score.total or '1.0'})")]

    def _at(self, var: str) -> list[str]:
        """Conditions on a variable that was just reached: negated hops and fields."""
        identifier, types = self.identifiers[var], self.types[var]
        where = [self.whole.compared(identifier, types, condition) for condition in self.part.conditions_on(var)]
        return [*self._negated_at(var), *where]

    def _identifiers(self) -> dict[str, str]:
        """Names of variables in the text; a plan's own could be anything."""
        known = {TARGET: "t", **{var: f"a{i}" for var, i in self.numbers.items()}}
        ends = dict.fromkeys(var for hop in self.part.hops for var in (hop.from_var, hop.to_var))
        free = (var for var in ends if var not in known)
        return {**known, **{var: f"v{i}" for i, var in enumerate(free)}}

    def _follow_hops(self, score: _Score, bound: list[str]) -> list[str]:
        """All positive hops, and a WITH after each that leaves something behind; the last WITH is the caller's."""
        lines: list[str] = []
        order, edges = self._order(bound[0]), list[int]()
        for place, i in enumerate(order):
            lines += self._match(i, edges, bound, score)
            rest = [self.part.hops[j] for j in order[place + 1 :]]
            used = {TARGET, *(var for hop in rest for var in (hop.from_var, hop.to_var))}
            relations = {hop.rel for hop in rest}
            live = [var for var in bound if var in used], [j for j in edges if self.part.hops[j].rel in relations]
            if rest and live != (bound, edges):
                bound, edges = live
                scores = score.columns()
                items = [*(self.identifiers[var] for var in bound), *(f"r{j}" for j in edges), *scores]
                lines.append(f"WITH {'' if scores else 'DISTINCT '}{', '.join(items)}")
        return lines

    def _match(self, i: int, edges: list[int], bound: list[str], score: _Score) -> list[str]:
        """Follow one positive hop. Adds to ``bound`` and ``score`` when it reaches a new variable, and to ``edges``
        (hops whose edges have a name) when its relation occurs more than once."""
        hop = self.part.hops[i]
        near, far = (hop.from_var, hop.to_var) if hop.from_var in bound else (hop.to_var, hop.from_var)
        end, conditions = self.identifiers[far], []
        if far not in bound:
            if far in self.numbers:
                number = self.numbers[far]
                conditions.append(f"{end}.nodeId IN $ids_{number}")
                if number in self.scored:
                    score.meet(number, f"$cosines_{number}[toString({end}.nodeId)]")
            conditions += self._at(far)
            bound.append(far)
            end += self._labels(far)
        course, name = course_of(hop, self.types, self.schema), ""
        if course is not None and course.undirected is not None:
            name, head, label = f"r{i}", self.identifiers[course.head], self.names.label(course.undirected)
            conditions.append(f"(startNode({name}) = {head} OR {self.identifiers[TARGET]}:{label})")
            course = None
        if hop.rel in self.repeated:
            name = f"r{i}"
            # Each MATCH is on its own, so the store does not see to it that no edge is used twice.
            conditions += [f"{name} <> r{j}" for j in edges if self.part.hops[j].rel == hop.rel]
            edges.append(i)
        edge = _edge(f"{name}:{self.names.relation_type(hop.rel)}", course, near)
        return [f"MATCH ({self.identifiers[near]}){edge}({end})", *_where(conditions)]

    def _negated_at(self, subject: str) -> list[str]:
        """Conditions of the negated hops whose subject was just reached."""
        conditions = []
        for negation in self.negations:
            if negation.subject != subject:
                continue
            course = course_of(self.part.hops[negation.hop], self.types, self.schema)
            conditions.append(self._no_edge(negation, course))
            if course is not None and course.undirected is not None:
                label = self.names.label(course.undirected)
                conditions.append(f"(NOT {self.identifiers[subject]}:{label} OR {self._no_edge(negation, None)})")
        return conditions

    def _no_edge(self, negation: Negation, course: Course | None) -> str:
        relation = self.names.relation_type(self.part.hops[negation.hop].rel)
        start = f"({self.identifiers[negation.subject]}){_edge(f':{relation}', course, negation.subject)}"
        labels = self._labels(negation.other)
        other, on_it = f"n{negation.hop}", self.part.conditions_on(negation.other)
        bound = [self.whole.compared(other, self.types[negation.other], condition) for condition in on_it]
        if negation.other in self.numbers:
            bound.insert(0, f"{other}.nodeId IN $ids_{self.numbers[negation.other]}")
        if not bound:
            return f"NOT EXISTS {{ {start}({labels}) }}"
        return f"NOT EXISTS {{ {start}({other}{labels}) WHERE {' AND '.join(bound)} }}"

    def _labels(self, var: str) -> str:
        return ":" + "|".join(self.names.label(label) for label in self.types[var])

    def _order(self, start: str) -> list[int]:
        """Positive hops, each with an end that is reached already.

        What can only remove rows comes first: hops between reached variables, then branches without the target, and
        among these anchors, then the branch begun last. The way to the target, which adds rows, comes after.
        """
        reached, order = [start], list[int]()
        rest = [i for i, hop in enumerate(self.part.hops) if not hop.negated]
        while rest:
            chosen = min((self._cost(i, rest, reached), i) for i in rest if self._ends(i) & {*reached})[1]
            rest.remove(chosen)
            order.append(chosen)
            reached += sorted(self._ends(chosen) - {*reached})
        return order

    def _ends(self, i: int) -> set[str]:
        return {self.part.hops[i].from_var, self.part.hops[i].to_var}

    def _cost(self, i: int, rest: Sequence[int], reached: Sequence[str]) -> tuple[bool, bool, bool, int]:
        fresh = self._ends(i) - {*reached}
        if not fresh:
            return (False, False, False, 0)
        (far,) = fresh
        (near,) = self._ends(i) - fresh
        branch, grown = {far}, True
        while grown:
            ends = [self._ends(j) - {*reached} for j in rest]
            more = set[str]().union(*(e for e in ends if e & branch))
            grown = not more <= branch
            branch |= more
        has_anchor = not branch.isdisjoint(self.numbers)
        return (TARGET in branch, far not in self.numbers, not has_anchor, -reached.index(near))


def _edge(inner: str, course: Course | None, near: str) -> str:
    """A relationship pattern that goes on from ``near``, with an arrow where the direction filters."""
    left = "<-" if course is not None and course.tail == near else "-"
    right = "->" if course is not None and course.head == near else "-"
    return f"{left}[{inner}]{right}"


def _where(conditions: Sequence[str]) -> list[str]:
    return [f"WHERE {' AND '.join(conditions)}"] if conditions else []
