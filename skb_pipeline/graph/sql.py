"""Plans as one SQL statement over ``adjacency``, ``nodes`` and ``edges`` of an SKB file, and its execution in DuckDB.
``edges`` is read where the direction of a hop filters, as the adjacency does not tell heads from tails.

The text depends on a plan's shape alone: labels, relations, node ids and cosines are parameters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np

from skb_pipeline.graph.fields import folded
from skb_pipeline.plans.plan import TARGET, Condition, Hop, Plan
from skb_pipeline.plans.results import (
    WEIGHT_DECIMALS,
    Bindings,
    ConditionCount,
    GraphOutcome,
    GraphResult,
    check_bindings,
    no_answers,
)
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.plans.structure import Part, Parts, course_of, take_apart
from skb_pipeline.plans.validation import check_executable

ROUTE = "sql"


@dataclass(frozen=True)
class CompiledSql:
    """One SELECT and what it needs.

    Attributes:
        text: the statement; gives ``node_id, score, n_cand`` in result order. Of a plan with optional conditions or
            conditions on T there is at least one row, with ``node_id`` NULL where nothing is a candidate, and the
            columns ``lacking``; per optional condition i ``nodes_i``, ``candidates_i``, ``weight_i``; and ``met_k``.
        fixed: parameter name -> label, relation, path of a field or value of a condition.
        anchors: anchor variables in plan order; anchor i has the parameter ``ids_i`` (BIGINT[]).
        scored: positions of those that also have ``cosines_i`` (DOUBLE[]); others occur in negated hops only.
        n_optional: number of optional conditions.
        counted: whether there is a row without a node.
    """

    text: str
    fixed: Mapping[str, object]
    anchors: tuple[str, ...]
    scored: tuple[int, ...]
    n_optional: int = 0
    counted: bool = False

    def parameters(self, bindings: Bindings, limit: int) -> dict[str, object]:
        """Values of all named parameters for one execution."""
        values: dict[str, object] = {**self.fixed, "limit": limit}
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
    parts, values = take_apart(plan, schema), _Values()
    anchors = tuple(anchor.var for anchor in plan.anchors)
    numbers = {var: i for i, var in enumerate(anchors)}
    every = [*([parts.required] if parts.selects else []), *parts.optional]
    scored = tuple(sorted({numbers[var] for part in every for var in part.scored}))
    ctes = [_candidates(i, i in scored) for i in range(len(anchors))]

    def select(part: Part, score: str) -> str:
        return _PartCompiler(part, schema, numbers, values).compile(score)

    if parts.optional or parts.where:
        ctes += [f"best AS (\n{select(parts.required, 'score')}\n)"] if parts.selects else []
        ctes += [f"c{i} AS MATERIALIZED (\n{select(part, 'value')}\n)" for i, part in enumerate(parts.optional)]
        rest = _counted(parts, schema, numbers, values)
    else:
        ctes.append(f"best AS (\n{select(parts.required, 'score')}\n)")
        rest = (
            "\nSELECT b.node_id, b.score, count(*) OVER () AS n_cand\n"
            "FROM best b JOIN nodes n ON n.node_id = b.node_id\n"
            "ORDER BY b.score DESC, n.canonical\nLIMIT $limit"
        )
    text = "WITH " + ",\n".join(ctes) + rest
    return CompiledSql(text, values.known, anchors, scored, len(parts.optional), bool(parts.optional or parts.where))


def _candidates(i: int, scored: bool) -> str:
    cosine = f", unnest($cosines_{i}::DOUBLE[]) AS cosine" if scored else ""
    return f"a{i} AS (SELECT unnest($ids_{i}::BIGINT[]) AS node_id{cosine})"


def _counted(parts: Parts, schema: GraphSchema, numbers: Mapping[str, int], values: _Values) -> str:
    """What follows the parts ``best`` (required) and ``c0``, ``c1``, ... (optional): candidates, scores and counts."""
    every = range(len(parts.optional))
    target = _PartCompiler(parts.required, schema, numbers, values)
    if parts.selects:
        base = "SELECT node_id, score FROM best"
    else:
        meeting = " UNION ".join(f"SELECT node_id FROM c{i}" for i in every)
        base = f"SELECT node_id, 0.0::DOUBLE AS score FROM ({meeting}) u"
        target.columns[TARGET] = "u.node_id"
        target.negate()
        base += f" WHERE {' AND '.join(target.conditions)}" if target.conditions else ""
    has, meets = ["TRUE"], ["TRUE"]
    for condition in parts.where:
        kinds = {t: kind for t in parts.labels if (kind := schema.kind_of(t, condition.field)) is not None}
        of_type = f"n.node_type IN ({', '.join(values.name(t) for t in kinds)})"
        value, meets_it = _comparison("n.fields", condition, next(iter(kinds.values())), values)
        has.append(f"({of_type} AND {value} IS NOT NULL)")
        meets.append(f"({of_type} AND coalesce({meets_it}, FALSE))")
    total = values.labels_in("node_type", parts.labels)
    weights = [
        f"coalesce(round(ln((SELECT count(*) FROM nodes WHERE {total})::DOUBLE "
        f"/ nullif((SELECT count(*) FROM c{i}), 0)), {WEIGHT_DECIMALS}), 0.0::DOUBLE) AS weight_{i}"
        for i in every
    ]
    sizes = [f"(SELECT count(*) FROM c{i}) AS nodes_{i}" for i in every]
    joins = [f"LEFT JOIN c{i} ON c{i}.node_id = k.node_id" for i in every]
    # One sum in a fixed order, so that engines agree to the last bit.
    score = " + ".join(["k.score", *(f"coalesce(w.weight_{i} * c{i}.value, 0.0::DOUBLE)" for i in every)])
    met = " + ".join(f"(c{i}.node_id IS NOT NULL)::INTEGER" for i in every)
    flags = [f"(c{i}.node_id IS NOT NULL) AS met_by_{i}" for i in every]
    scored = ["k.node_id", "k.canonical", f"{score} AS score", *([f"{met} AS met"] if every else []), *flags]
    counts = ["count(*) AS n_cand", *(f"count(*) FILTER (met_by_{i}) AS candidates_{i}" for i in every)]
    counts += [f"count(*) FILTER (met = {k}) AS met_{k}" for k in range(len(every) + 1)] if every else []
    return (
        f",\nweights AS (SELECT {', '.join([*weights, *sizes, '0 AS nothing'])}),\n"
        f"base AS ({base}),\n"
        "kept AS MATERIALIZED (\n"
        f"  SELECT b.node_id, b.score, n.canonical, {' AND '.join(has)} AS has, {' AND '.join(meets)} AS meets\n"
        "  FROM base b JOIN nodes n ON n.node_id = b.node_id\n),\n"
        f"scored AS MATERIALIZED (\n  SELECT {', '.join(scored)}\n"
        f"  FROM kept k CROSS JOIN weights w {' '.join(joins)}\n  WHERE k.meets\n),\n"
        f"counts AS (SELECT {', '.join(counts)} FROM scored),\n"
        "lacks AS (SELECT count(*) AS lacking FROM kept WHERE NOT has),\n"
        "top AS (SELECT node_id, score, canonical FROM scored ORDER BY score DESC, canonical LIMIT $limit)\n"
        "SELECT top.node_id, top.score, counts.*, weights.*, lacks.lacking\n"
        "FROM counts CROSS JOIN weights CROSS JOIN lacks LEFT JOIN top ON TRUE\n"
        "ORDER BY top.score DESC, top.canonical"
    )


_FOLD = "translate({}, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
"""Small letters, of A to Z alone: what every engine can do alike."""


def _comparison(fields: str, condition: Condition, kind: FieldKind, values: _Values) -> tuple[str, str]:
    """(expression of the value, expression of the comparison; both NULL without a value) for a column of fields."""
    text = f"json_extract_string({fields}, {values.path(condition.field)})"
    raw = condition.value if isinstance(condition.value, list) else [condition.value]
    if kind is FieldKind.NUMBER:
        value = f"TRY_CAST({text} AS DOUBLE)"
        given = [f"{values.value(float(v))}::DOUBLE" for v in raw]
    elif kind is FieldKind.DATE:
        value, given = text, [values.value(v) for v in raw]
    else:
        value = text
        text = _FOLD.format(text)
        given = [values.value(folded(str(v))) for v in raw]
    compared = text if kind is FieldKind.TEXT else value
    if condition.op == "in":
        return value, f"{compared} IN ({', '.join(given)})"
    if condition.op == "contains":
        return value, f"contains({compared}, {given[0]})"
    return value, f"{compared} {'<>' if condition.op == '!=' else condition.op} {given[0]}"


@dataclass
class _Values:
    """Parameters of a statement; equal values share one."""

    known: dict[str, object] = field(default_factory=dict)

    def name(self, value: str) -> str:
        """Placeholder of a label or relation."""
        return self._of("name", value)

    def path(self, name: str) -> str:
        """Placeholder of the path of a field."""
        return self._of("path", "/" + name.replace("~", "~0").replace("/", "~1"))

    def value(self, value: object) -> str:
        """Placeholder of a value to compare with."""
        return self._of("value", value)

    def labels_in(self, column: str, labels: Sequence[str]) -> str:
        """That a column has one of some labels."""
        return f"{column} IN ({', '.join(self.name(label) for label in labels)})"

    def _of(self, kind: str, value: object) -> str:
        same = [name for name in self.known if name.startswith(f"{kind}_")]
        for name in same:
            if type(self.known[name]) is type(value) and self.known[name] == value:
                return f"${name}"
        name = f"{kind}_{len(same)}"
        self.known[name] = value
        return f"${name}"


@dataclass
class _PartCompiler:
    part: Part
    schema: GraphSchema
    numbers: Mapping[str, int]
    values: _Values
    conditions: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.types = self.part.types
        self.columns = {var: f"a{self.numbers[var]}.node_id" for var in self.part.anchors}

    def compile(self, score: str) -> str:
        """A SELECT of the part's target nodes and their best match, in a column called ``score``."""
        positive = self.part.positive
        self.sources += [f"a{self.numbers[var]}" for var in self.part.anchors]
        if not self.part.anchors:
            self.sources.append("nodes t")
            self.columns[TARGET] = "t.node_id"
            self.conditions.append(self.values.labels_in("t.node_type", self.types[TARGET]))
        distance = self._distances(positive)
        self.sources += [f"adjacency h{i}" for i in positive]
        for i in positive:
            self._join(i, distance)
        self._use_edges_once(positive)
        self.negate()
        for number, (var, column) in enumerate(self.columns.items()):
            self._where(var, column, f"w{number}")
        # The sum has one fixed order, that of the plan's anchors, so that engines agree to the last bit.
        total = " + ".join(f"a{self.numbers[var]}.cosine" for var in self.part.scored) or "1.0::DOUBLE"
        target = self.columns[TARGET]
        return (
            f"  SELECT {target} AS node_id, max({total}) AS {score}\n  FROM {', '.join(self.sources)}\n"
            f"  WHERE {' AND '.join(self.conditions)}\n  GROUP BY {target}"
        )

    def _where(self, var: str, column: str, alias: str) -> None:
        """The conditions on the fields of a variable that ``column`` has the node of."""
        of_var = self.part.conditions_on(var)
        if of_var:
            self.sources.append(f"nodes {alias}")
            self.conditions += [f"{alias}.node_id = {column}", *self._compared(var, alias)]

    def _compared(self, var: str, alias: str) -> list[str]:
        (kind_of,) = self.types[var]
        compared = []
        for condition in self.part.conditions_on(var):
            kind = self.schema.kind_of(kind_of, condition.field)
            assert kind is not None
            compared.append(_comparison(f"{alias}.fields", condition, kind, self.values)[1])
        return compared

    def _distances(self, positive: Sequence[int]) -> dict[str, int]:
        """Positive hops from the nearest anchor, or from T where there is none, per variable."""
        distance = dict.fromkeys(self.part.anchors or (TARGET,), 0)
        frontier = list(distance)
        for var in frontier:  # grows while it is read: breadth first
            for i in positive:
                hop = self.part.hops[i]
                for one, other in ((hop.from_var, hop.to_var), (hop.to_var, hop.from_var)):
                    if one == var and other not in distance:
                        distance[other] = distance[var] + 1
                        frontier.append(other)
        return distance

    def _join(self, i: int, distance: Mapping[str, int]) -> None:
        """One positive hop. ``src`` is the end nearer to an anchor: the table is sorted for look-ups by src."""
        hop = self.part.hops[i]
        near, far = sorted((hop.from_var, hop.to_var), key=lambda var: distance[var])
        self.conditions.append(f"h{i}.relation = {self.values.name(hop.rel)}")
        if far not in self.part.anchors:
            self.conditions.append(self.values.labels_in(f"h{i}.dst_type", self.types[far]))
        for var, column in ((near, f"h{i}.src"), (far, f"h{i}.dst")):
            known = self.columns.setdefault(var, column)
            if known != column:
                self.conditions.append(f"{column} = {known}")
        runs = self._runs(hop, f"h{i}", f"e{i}", near)
        if runs:
            self.sources.append(f"edges e{i}")
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
            of_type = f"SELECT node_id FROM nodes WHERE node_type = {self.values.name(course.undirected)}"
            condition = f"({condition} OR {target} IN ({of_type}))"
        # The relation lets zone maps skip edges, which are sorted by it.
        return [f"{edge}.relation = {self.values.name(hop.rel)}", f"{edge}.edge_id = {entry}.edge_id", condition]

    def _use_edges_once(self, positive: Sequence[int]) -> None:
        for place, i in enumerate(positive):
            for j in positive[place + 1 :]:
                if self.part.hops[i].rel == self.part.hops[j].rel:
                    self.conditions.append(f"h{i}.edge_id <> h{j}.edge_id")

    def negate(self) -> None:
        """Add the conditions of the negated hops; the columns of their subjects are known."""
        for negation in self.part.negations:
            hop, subject = self.part.hops[negation.hop], self.columns[negation.subject]
            sources, conditions = ["adjacency x"], [f"x.relation = {self.values.name(hop.rel)}"]
            anchored = negation.other in self.numbers
            if anchored:
                sources.insert(0, f"a{self.numbers[negation.other]} AS c")
                conditions += ["x.src = c.node_id", f"x.dst = {subject}"]
            else:
                of_type = self.values.labels_in("x.dst_type", self.types[negation.other])
                conditions += [of_type, f"x.src = {subject}"]
            runs = self._runs(hop, "x", "e", negation.other if anchored else negation.subject)
            if runs:
                sources.append("edges e")
            if self.part.conditions_on(negation.other):
                sources.append("nodes w")
                conditions += [f"w.node_id = x.{'src' if anchored else 'dst'}", *self._compared(negation.other, "w")]
            text = f"SELECT 1 FROM {', '.join(sources)} WHERE {' AND '.join([*conditions, *runs])}"
            self.conditions.append(f"NOT EXISTS ({text})")


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
    n_cand = int(np.asarray(rows["n_cand"])[0])
    counts = _counts_of(rows, compiled)
    if not n_cand:
        return replace(no_answers(GraphOutcome.EMPTY, ROUTE, _since(start)), **counts)
    return GraphResult(
        node_ids=np.asarray(rows["node_id"], dtype=np.int64),
        scores=np.asarray(rows["score"], dtype=np.float64),
        n_cand=n_cand,
        outcome=GraphOutcome.OK,
        route=ROUTE,
        milliseconds=_since(start),
        **counts,
    )


def _counts_of(rows: Mapping[str, Any], compiled: CompiledSql) -> dict[str, Any]:
    """What the first row tells beside its node; nothing for a statement without counts."""
    if not compiled.counted:
        return {}
    every = range(compiled.n_optional)
    optional = [
        ConditionCount(int(rows[f"nodes_{i}"][0]), int(rows[f"candidates_{i}"][0]), float(rows[f"weight_{i}"][0]))
        for i in every
    ]
    met = [int(rows[f"met_{k}"][0]) for k in range(compiled.n_optional + 1)] if every else []
    return {"optional": tuple(optional), "met": tuple(met), "lacking": int(rows["lacking"][0])}


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
