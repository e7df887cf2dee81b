"""Plans as one Cypher statement for a graph whose names come from :class:`~skb_pipeline.plans.names.GraphNames`.

The store has nodes with two labels, ``names.entity`` and that of their type, and the properties ``nodeId`` (unique
within ``names.entity``) and ``canonical``, and one relationship per stored edge.

The statement starts from the cheapest anchor and follows one hop after another. The other anchors
are looked up in parameters when they are reached, so their candidates never multiply. After each hop what is no longer
needed is dropped and only the best score per rest is kept, which is exact: sums are monotone in each cosine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skb_pipeline.plans.names import GraphNames
from skb_pipeline.plans.plan import TARGET, Plan
from skb_pipeline.plans.results import Bindings
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import Course, Negation, course_of, negations, scored_anchors, variable_types
from skb_pipeline.plans.validation import check_executable

HEADER = "// Compiled from a plan; not run against a server."


@dataclass(frozen=True)
class CompiledCypher:
    """One statement and what it needs.

    Attributes:
        text: the statement; gives one record with ``n_cand`` (distinct answers before the cap) and ``answers``
            (list of [node id, score], at most ``$limit``, by score descending and then canonical order).
        anchors: anchor variables in plan order; the numbers below are positions in it.
        start: the anchor whose candidates the statement starts from: parameter ``candidates``, a list of
            ``{id, cosine}``.
        checked: anchors that are looked up when reached: ``ids_i`` (list) and ``cosines_i`` (map from id as text).
        forbidding: anchors in negated hops: ``ids_i``.
    """

    text: str
    anchors: tuple[str, ...]
    start: int
    checked: tuple[int, ...]
    forbidding: tuple[int, ...]

    def parameters(self, bindings: Bindings, limit: int) -> dict[str, object]:
        """Values of all parameters for one execution."""
        pairs = [dict(zip(*(x.tolist() for x in bindings[var]), strict=True)) for var in self.anchors]
        values: dict[str, object] = {
            "candidates": [{"id": node, "cosine": cosine} for node, cosine in pairs[self.start].items()],
            "limit": limit,
        }
        for i in {*self.checked, *self.forbidding}:
            values[f"ids_{i}"] = list(pairs[i])
        for i in self.checked:
            values[f"cosines_{i}"] = {str(node): cosine for node, cosine in pairs[i].items()}
        return values


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
        ValueError: the plan is not valid as it stands (see ``plans.validation``), or it is a ``doc_search``,
            which is no matter of the graph.
    """
    check_executable(plan, schema)
    compiler = _Compiler(plan, schema, names or GraphNames.of(schema), costs or {})
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
        # One column may be maximised for given values of the others.
        best, *rest = columns
        self.total = "score" if self.total else ""
        self.waiting = {i: f"s{i}" for i in self.waiting}
        items = [columns[name] if columns[name] == name else f"{columns[name]} AS {name}" for name in rest]
        return [*items, f"max({columns[best]}) AS {best}"]


class _Compiler:
    def __init__(self, plan: Plan, schema: GraphSchema, names: GraphNames, costs: Mapping[str, int]) -> None:
        self.plan, self.schema, self.names = plan, schema, names
        self.types = variable_types(plan, schema)
        self.numbers = {anchor.var: i for i, anchor in enumerate(plan.anchors)}
        self.scored = [self.numbers[var] for var in scored_anchors(plan)]
        self.start = min(self.scored, key=lambda i: (costs.get(plan.anchors[i].var, 0), i))
        self.negations = negations(plan)
        self.identifiers = self._identifiers()
        used = Counter(hop.rel for hop in plan.hops if not hop.negated)
        self.repeated = {relation for relation, n in used.items() if n > 1}

    def compile(self, header: bool) -> CompiledCypher:
        score = _Score(self.scored)
        var = self.plan.anchors[self.start].var
        start, label = self.identifiers[var], self.names.label(self.plan.anchors[self.start].label)
        lines = [HEADER] if header else []
        lines += [
            "UNWIND $candidates AS candidate",
            f"MATCH ({start}:{self.names.entity_label} {{nodeId: candidate.id}})",
            *_where([f"{start}:{label}", *self._negated_at(var)]),
        ]
        score.meet(self.start, "candidate.cosine")
        lines += self._follow_hops(score, [var])
        target = self.identifiers[TARGET]
        lines += [
            f"WITH {target}.nodeId AS id, {target}.canonical AS canonical, max({score.total}) AS score",
            "ORDER BY score DESC, canonical",
            "WITH collect([id, score]) AS answers",
            "RETURN size(answers) AS n_cand, answers[..$limit] AS answers",
        ]
        forbidding = sorted({self.numbers[n.other] for n in self.negations if n.other in self.numbers})
        return CompiledCypher(
            text="\n".join(lines),
            anchors=tuple(anchor.var for anchor in self.plan.anchors),
            start=self.start,
            checked=tuple(i for i in self.scored if i != self.start),
            forbidding=tuple(forbidding),
        )

    def _identifiers(self) -> dict[str, str]:
        """Names of variables in the text; a plan's own could be anything."""
        known = {TARGET: "t", **{var: f"a{i}" for var, i in self.numbers.items()}}
        ends = dict.fromkeys(var for hop in self.plan.hops for var in (hop.from_var, hop.to_var))
        free = (var for var in ends if var not in known)
        return {**known, **{var: f"v{i}" for i, var in enumerate(free)}}

    def _follow_hops(self, score: _Score, bound: list[str]) -> list[str]:
        """All positive hops, and a WITH after each that leaves something behind; the last WITH is the caller's."""
        lines: list[str] = []
        order, edges = self._order(bound[0]), list[int]()
        for place, i in enumerate(order):
            lines += self._match(i, edges, bound, score)
            rest = [self.plan.hops[j] for j in order[place + 1 :]]
            used = {TARGET, *(var for hop in rest for var in (hop.from_var, hop.to_var))}
            relations = {hop.rel for hop in rest}
            live = [var for var in bound if var in used], [j for j in edges if self.plan.hops[j].rel in relations]
            if rest and live != (bound, edges):
                bound, edges = live
                items = [*(self.identifiers[var] for var in bound), *(f"r{j}" for j in edges), *score.columns()]
                lines.append(f"WITH {', '.join(items)}")
        return lines

    def _match(self, i: int, edges: list[int], bound: list[str], score: _Score) -> list[str]:
        """Follow one positive hop. Adds to ``bound`` and ``score`` when it reaches a new variable, and to ``edges``
        (hops whose edges have a name) when its relation occurs more than once."""
        hop = self.plan.hops[i]
        near, far = (hop.from_var, hop.to_var) if hop.from_var in bound else (hop.to_var, hop.from_var)
        end, conditions = self.identifiers[far], []
        if far not in bound:
            if far in self.numbers:
                number = self.numbers[far]
                conditions.append(f"{end}.nodeId IN $ids_{number}")
                score.meet(number, f"$cosines_{number}[toString({end}.nodeId)]")
            conditions += self._negated_at(far)
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
            conditions += [f"{name} <> r{j}" for j in edges if self.plan.hops[j].rel == hop.rel]
            edges.append(i)
        edge = _edge(f"{name}:{self.names.relation_type(hop.rel)}", course, near)
        return [f"MATCH ({self.identifiers[near]}){edge}({end})", *_where(conditions)]

    def _negated_at(self, subject: str) -> list[str]:
        """Conditions of the negated hops whose subject was just reached."""
        conditions = []
        for negation in self.negations:
            if negation.subject != subject:
                continue
            course = course_of(self.plan.hops[negation.hop], self.types, self.schema)
            conditions.append(self._no_edge(negation, course))
            if course is not None and course.undirected is not None:
                label = self.names.label(course.undirected)
                conditions.append(f"(NOT {self.identifiers[subject]}:{label} OR {self._no_edge(negation, None)})")
        return conditions

    def _no_edge(self, negation: Negation, course: Course | None) -> str:
        relation = self.names.relation_type(self.plan.hops[negation.hop].rel)
        start = f"({self.identifiers[negation.subject]}){_edge(f':{relation}', course, negation.subject)}"
        labels = self._labels(negation.other)
        if negation.other not in self.numbers:
            return f"NOT EXISTS {{ {start}({labels}) }}"
        other = f"n{negation.hop}"
        bound = f"{other}.nodeId IN $ids_{self.numbers[negation.other]}"
        return f"NOT EXISTS {{ {start}({other}{labels}) WHERE {bound} }}"

    def _labels(self, var: str) -> str:
        return ":" + "|".join(self.names.label(label) for label in self.types[var])

    def _order(self, start: str) -> list[int]:
        """Positive hops, each with an end that is reached already.

        What can only remove rows comes first: hops between reached variables, then branches without the target, and
        among these anchors, then the branch begun last. The way to the target, which adds rows, comes after.
        """
        reached, order = [start], list[int]()
        rest = [i for i, hop in enumerate(self.plan.hops) if not hop.negated]
        while rest:
            chosen = min((self._cost(i, rest, reached), i) for i in rest if self._ends(i) & {*reached})[1]
            rest.remove(chosen)
            order.append(chosen)
            reached += sorted(self._ends(chosen) - {*reached})
        return order

    def _ends(self, i: int) -> set[str]:
        return {self.plan.hops[i].from_var, self.plan.hops[i].to_var}

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
