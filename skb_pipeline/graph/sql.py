"""Plans as one SQL statement over ``adjacency``, ``nodes`` and ``edges`` of an SKB file, and its execution in DuckDB.
``edges`` is read where the direction of a hop filters, as the adjacency does not tell heads from tails.

The text depends on a plan's shape alone: labels, relations, node ids and cosines are parameters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb
import numpy as np

from skb_pipeline.plans.plan import TARGET, Hop, Plan
from skb_pipeline.plans.results import Bindings, GraphOutcome, GraphResult, check_bindings, no_answers
from skb_pipeline.plans.schema import GraphSchema
from skb_pipeline.plans.structure import course_of, negations, scored_anchors, variable_types
from skb_pipeline.plans.validation import check_executable

ROUTE = "sql"


@dataclass(frozen=True)
class CompiledSql:
    """One SELECT and what it needs.

    Attributes:
        text: the statement; gives ``node_id, score, n_cand`` in result order.
        names: parameter name -> label or relation.
        anchors: anchor variables in plan order; anchor i has the parameter ``ids_i`` (BIGINT[]).
        scored: positions of those that also have ``cosines_i`` (DOUBLE[]); others occur in negated hops only.
    """

    text: str
    names: Mapping[str, str]
    anchors: tuple[str, ...]
    scored: tuple[int, ...]

    def parameters(self, bindings: Bindings, limit: int) -> dict[str, object]:
        """Values of all named parameters for one execution."""
        values: dict[str, object] = {**self.names, "limit": limit}
        for i, var in enumerate(self.anchors):
            ids, cosines = bindings[var]
            values[f"ids_{i}"] = ids.tolist()
            if i in self.scored:
                values[f"cosines_{i}"] = cosines.tolist()
        return values


def compile_sql(plan: Plan, schema: GraphSchema) -> CompiledSql:
    """Compile a plan. The semantics are those of ``docs/plans.md``.

    Raises:
        ValueError: the plan is not valid as it stands (see ``plans.validation``), or it is a ``doc_search``,
            which is no matter of the graph.
    """
    check_executable(plan, schema)
    return _Compiler(plan, schema).compile()


@dataclass
class _Compiler:
    plan: Plan
    schema: GraphSchema
    names: dict[str, str] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)
    directed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.types = variable_types(self.plan, self.schema)
        self.numbers = {anchor.var: i for i, anchor in enumerate(self.plan.anchors)}
        self.scored = [self.numbers[var] for var in scored_anchors(self.plan)]
        self.columns = {self.plan.anchors[i].var: f"a{i}.node_id" for i in self.scored}

    def compile(self) -> CompiledSql:
        positive = [i for i, hop in enumerate(self.plan.hops) if not hop.negated]
        distance = self._distances(positive)
        for i in positive:
            self._join(i, distance)
        self._use_edges_once(positive)
        self._negate()
        sources = [*(f"a{i}" for i in self.scored), *(f"adjacency h{i}" for i in positive), *self.directed]
        # The sum has one fixed order, that of the plan's anchors, so that engines agree to the last bit.
        score = " + ".join(f"a{i}.cosine" for i in self.scored)
        target = self.columns[TARGET]
        ctes = ",\n".join(self._candidates(i) for i in range(len(self.plan.anchors)))
        text = (
            f"WITH {ctes},\n"
            f"best AS (\n  SELECT {target} AS node_id, max({score}) AS score\n  FROM {', '.join(sources)}\n"
            f"  WHERE {' AND '.join(self.conditions)}\n  GROUP BY {target}\n)\n"
            "SELECT b.node_id, b.score, count(*) OVER () AS n_cand\n"
            "FROM best b JOIN nodes n ON n.node_id = b.node_id\n"
            "ORDER BY b.score DESC, n.canonical\nLIMIT $limit"
        )
        anchors = tuple(anchor.var for anchor in self.plan.anchors)
        return CompiledSql(text, self.names, anchors, tuple(self.scored))

    def _candidates(self, i: int) -> str:
        cosine = f", unnest($cosines_{i}::DOUBLE[]) AS cosine" if i in self.scored else ""
        return f"a{i} AS (SELECT unnest($ids_{i}::BIGINT[]) AS node_id{cosine})"

    def _distances(self, positive: Sequence[int]) -> dict[str, int]:
        """Positive hops from the nearest anchor, per variable."""
        distance = {self.plan.anchors[i].var: 0 for i in self.scored}
        frontier = list(distance)
        for var in frontier:  # grows while it is read: breadth first
            for i in positive:
                hop = self.plan.hops[i]
                for one, other in ((hop.from_var, hop.to_var), (hop.to_var, hop.from_var)):
                    if one == var and other not in distance:
                        distance[other] = distance[var] + 1
                        frontier.append(other)
        return distance

    def _join(self, i: int, distance: Mapping[str, int]) -> None:
        """One positive hop. ``src`` is the end nearer to an anchor: the table is sorted for look-ups by src."""
        hop = self.plan.hops[i]
        near, far = sorted((hop.from_var, hop.to_var), key=lambda var: distance[var])
        self.conditions.append(f"h{i}.relation = {self._name(hop.rel)}")
        if far not in self.numbers:
            self.conditions.append(self._type_is(f"h{i}.dst_type", far))
        for var, column in ((near, f"h{i}.src"), (far, f"h{i}.dst")):
            known = self.columns.setdefault(var, column)
            if known != column:
                self.conditions.append(f"{column} = {known}")
        runs = self._runs(hop, f"h{i}", f"e{i}", near)
        if runs:
            self.directed.append(f"edges e{i}")
            self.conditions += runs

    def _runs(self, hop: Hop, entry: str, edge: str, near: str) -> list[str]:
        """Conditions on an adjacency entry whose ``src`` is of variable ``near``, and on its edge; none where the hop's
        direction filters nothing."""
        course = course_of(hop, self.types, self.schema)
        if course is None:
            return []
        condition = f"{edge}.head = {entry}.{'src' if course.head == near else 'dst'}"
        if course.undirected is not None:
            target = f"{entry}.{'src' if near == TARGET else 'dst'}"
            of_type = f"SELECT node_id FROM nodes WHERE node_type = {self._name(course.undirected)}"
            condition = f"({condition} OR {target} IN ({of_type}))"
        # The relation lets zone maps skip edges, which are sorted by it.
        return [f"{edge}.relation = {self._name(hop.rel)}", f"{edge}.edge_id = {entry}.edge_id", condition]

    def _use_edges_once(self, positive: Sequence[int]) -> None:
        for place, i in enumerate(positive):
            for j in positive[place + 1 :]:
                if self.plan.hops[i].rel == self.plan.hops[j].rel:
                    self.conditions.append(f"h{i}.edge_id <> h{j}.edge_id")

    def _negate(self) -> None:
        for negation in negations(self.plan):
            hop, subject = self.plan.hops[negation.hop], self.columns[negation.subject]
            sources, conditions = ["adjacency x"], [f"x.relation = {self._name(hop.rel)}"]
            anchored = negation.other in self.numbers
            if anchored:
                sources.insert(0, f"a{self.numbers[negation.other]} AS c")
                conditions += ["x.src = c.node_id", f"x.dst = {subject}"]
            else:
                conditions += [self._type_is("x.dst_type", negation.other), f"x.src = {subject}"]
            runs = self._runs(hop, "x", "e", negation.other if anchored else negation.subject)
            if runs:
                sources.append("edges e")
            text = f"SELECT 1 FROM {', '.join(sources)} WHERE {' AND '.join([*conditions, *runs])}"
            self.conditions.append(f"NOT EXISTS ({text})")

    def _type_is(self, column: str, var: str) -> str:
        return f"{column} IN ({', '.join(self._name(label) for label in self.types[var])})"

    def _name(self, value: str) -> str:
        """Placeholder of a label or relation; equal values share one."""
        for name, known in self.names.items():
            if known == value:
                return f"${name}"
        name = f"name_{len(self.names)}"
        self.names[name] = value
        return f"${name}"


def execute_sql(
    con: duckdb.DuckDBPyConnection,
    plan: Plan,
    schema: GraphSchema,
    bindings: Bindings,
    *,
    limit: int = 1000,
    timeout_s: float | None = None,
) -> GraphResult:
    """Run a plan in DuckDB.

    Args:
        con: connection to an SKB file with its adjacency; no other thread may use it meanwhile.
        plan: valid as it stands, with hops.
        bindings: candidates per anchor (:data:`~skb_pipeline.plans.results.Bindings`).
        limit: most answers returned; ``n_cand`` counts all of them.
        timeout_s: seconds after which the statement is interrupted (outcome ``timeout``, no answers); the
            connection stays usable. None: no limit.

    Raises:
        ValueError: plan not executable, bindings malformed, a bound node absent or not of its anchor's label,
            ``limit`` below 1, or ``timeout_s`` not positive.
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if timeout_s is not None and not timeout_s > 0:
        raise ValueError(f"timeout_s must be positive, not {timeout_s}")
    start = time.perf_counter()
    compiled = compile_sql(plan, schema)
    checked = check_bindings(plan, bindings)
    check_labels(con, plan, checked)
    try:
        with _interrupted_after(con, timeout_s) as expired:
            rows = con.execute(compiled.text, compiled.parameters(checked, limit)).fetchnumpy()
    except duckdb.InterruptException:
        if not expired.is_set():
            raise
        return no_answers(GraphOutcome.TIMEOUT, ROUTE, _since(start))
    if not len(rows["node_id"]):
        return no_answers(GraphOutcome.EMPTY, ROUTE, _since(start))
    return GraphResult(
        node_ids=np.asarray(rows["node_id"], dtype=np.int64),
        scores=np.asarray(rows["score"], dtype=np.float64),
        n_cand=int(np.asarray(rows["n_cand"])[0]),
        outcome=GraphOutcome.OK,
        route=ROUTE,
        milliseconds=_since(start),
    )


def check_labels(con: duckdb.DuckDBPyConnection, plan: Plan, bindings: Bindings) -> None:
    """Raise ValueError unless every bound node exists and has its anchor's label."""
    for anchor in plan.anchors:
        ids = bindings[anchor.var][0]
        found = con.execute(
            "SELECT n.node_id FROM (SELECT unnest($ids::BIGINT[]) AS node_id) b "
            "JOIN nodes n ON n.node_id = b.node_id WHERE n.node_type = $label",
            {"ids": ids.tolist(), "label": anchor.label},
        ).fetchnumpy()["node_id"]
        if len(found) != len(ids):
            wrong = np.setdiff1d(ids, found)[:5].tolist()
            raise ValueError(f"anchor {anchor.var!r}: nodes {wrong} are not of its label {anchor.label!r}")


@contextmanager
def _interrupted_after(con: duckdb.DuckDBPyConnection, timeout_s: float | None) -> Iterator[threading.Event]:
    """Interrupt what runs on ``con`` inside the block after some seconds; the event tells that it happened."""
    expired, done = threading.Event(), threading.Event()
    if timeout_s is None:
        yield expired
        return

    def watch() -> None:
        # An interrupt between two statements has no effect, so it is repeated until the block is left.
        wait = timeout_s
        while not done.wait(wait):
            expired.set()
            con.interrupt()
            wait = 0.02

    watcher = threading.Thread(target=watch, name="skb-sql-timeout", daemon=True)
    watcher.start()
    try:
        yield expired
    finally:
        done.set()
        watcher.join()


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1000
