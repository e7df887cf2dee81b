"""What a load of a dataset would do, before anything is loaded: ``skb-pipeline dataset check``.

The source is ingested into a temporary file with the limits of the spec lifted, by the same code as a real load; then
the file is asked what happened. So it takes as long as a load, and works for every adapter.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from skb_pipeline.datasets.records import RawNode, SourceAdapter
from skb_pipeline.datasets.spec import DatasetSpec
from skb_pipeline.questions.from_source import queries_from_source
from skb_pipeline.questions.templates import without_direction
from skb_pipeline.skb.ingest import LoadReport, ingest
from skb_pipeline.storage.duck import connect
from skb_pipeline.text.cleaning import clean_text

Rows = list[dict[str, Any]]
_UNDECLARED = "relation is not declared between these types"
_DANGLING = ("head and tail do not exist", "head does not exist", "tail does not exist")
_EXAMPLES = 3
_SHOWN = 160


@dataclass
class Inspection:
    """What was found. All values are plain JSON.

    Attributes:
        dataset, files, megabytes: what was read.
        stops: why a load of this source, or its questions, would stop; empty when it would not.
        warnings: what a person should look at.
        nodes, edges: rows in, stored, quarantined, duplicates dropped, nodes also merged (see
            ``skb.ingest.LoadReport``).
        types: nodes per declared type, and how many of them share their name with another node of the type.
        fields: per declared field: shape, share of nodes with a value, kinds of raw values, coercions.
        cleaned: texts changed by the cleaning step, by kind.
        html: per field declared as HTML: changed values, characters and pieces taken out, and the longest of these.
        relations: declared triples with stored edges.
        undeclared: triples that occur and are not declared, with rows.
        dangling_edges: rows with an end that is no node.
        quarantine: per reason: rows, and up to three examples ``file:row: content``.
        duplicate_ids: types and ids whose rows differ and are merged (up to five).
        conflicts: per field with different values in rows of one id: nodes, and up to three examples of what is kept.
        shared_names: the five names that most nodes of one type share.
        hubs: the five nodes with most edges.
        questions: counts of ``questions.from_source``; None when the source has none.
        out_of_scope: what the adapter leaves out by its rules.
    """

    dataset: str
    files: int = 0
    megabytes: float = 0.0
    stops: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    edges: dict[str, int] = field(default_factory=dict)
    types: Rows = field(default_factory=list)
    fields: Rows = field(default_factory=list)
    cleaned: dict[str, int] = field(default_factory=dict)
    html: Rows = field(default_factory=list)
    relations: Rows = field(default_factory=list)
    undeclared: Rows = field(default_factory=list)
    dangling_edges: int = 0
    quarantine: Rows = field(default_factory=list)
    duplicate_ids: list[str] = field(default_factory=list)
    conflicts: Rows = field(default_factory=list)
    shared_names: Rows = field(default_factory=list)
    hubs: Rows = field(default_factory=list)
    questions: dict[str, Any] | None = None
    out_of_scope: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain nested dict, in field order."""
        return asdict(self)

    def sections(self) -> list[tuple[str, Rows]]:
        """(title, rows) for a person, without empty ones; all rows of a section have the same keys."""
        lines = [{"rows": what, **numbers} for what, numbers in (("nodes", self.nodes), ("edges", self.edges))]
        common = ["rows", "rows_in", "stored", "quarantined", "duplicates_dropped", "merged"]
        conflicts = [
            {"field": c["field"], "nodes": c["nodes"], "example": example}
            for c in self.conflicts
            for example in c["examples"]
        ]
        questions = [{"questions": k.replace("_", " "), "": v} for k, v in (self.questions or {}).items()]
        quarantine = [
            {"reason": q["reason"], "rows": q["rows"], "example": example}
            for q in self.quarantine
            for example in q["examples"]
        ]
        found = [
            ("Rows", [{k: line.get(k, 0) for k in common} for line in lines if len(line) > 1]),
            ("Node types", self.types),
            ("Fields", [{**f, **{key: _counts_text(f[key]) for key in ("found", "coerced")}} for f in self.fields]),
            ("Cleaned", [{"what": kind.replace("_", " "), "texts": n} for kind, n in self.cleaned.items()]),
            ("HTML taken out", [{**h, "longest": " ".join(h["longest"]), "pieces": _counts_text(h["pieces"])}
                                for h in self.html]),
            ("Relations", self.relations),
            ("Triples that are not declared", self.undeclared),
            ("Would be quarantined", quarantine),
            ("Different values in rows of one id", conflicts),
            ("Left out by the adapter's rules", [{"what": k, "rows": n} for k, n in self.out_of_scope.items()]),
            ("Names shared by several nodes of a type", self.shared_names),
            ("Nodes with most edges", self.hubs),
            ("Questions of the source", questions),
        ]  # fmt: skip
        return [(title, rows) for title, rows in found if rows]


def inspect_source(spec: DatasetSpec, source: SourceAdapter) -> Inspection:
    """Load a source into a temporary file (in ``$TMPDIR``) and say what happened; nothing is kept.

    Raises:
        FileNotFoundError: source files are absent.
    """
    files = source.files()
    found = Inspection(spec.name, len(files), round(sum(path.stat().st_size for path in files) / 1e6, 1))
    watched = _Watched(source)
    lifted = spec.model_copy(
        update={"source": spec.source.model_copy(update={"max_bad_edge_rate": 1.0, "max_bad_node_rate": 1.0})}
    )
    with tempfile.TemporaryDirectory(prefix="skb-check-") as folder:
        path = Path(folder) / "check.duckdb"
        try:
            report = ingest(lifted, watched, path)
        except ValueError as error:
            # Adapters speak of faulty files so (SourceError is one), and ingest of unfit node ids.
            found.stops.append(str(error))
            return found
        with connect(path, read_only=True) as con:
            _fill(found, spec, report, watched, con)
            _ask_questions(found, spec, source, con)
    found.out_of_scope = dict(sorted(source.out_of_scope.items()))
    return found


class _Watched:
    """A source that notes which kinds of raw values pass by, per node type and field."""

    def __init__(self, source: SourceAdapter) -> None:
        self._source = source
        self.kinds: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def nodes(self) -> Iterator[RawNode]:
        for node in self._source.nodes():
            node_type = clean_text(str(node.node_type))
            for name, value in node.fields.items():
                if value is not None and value != "" and node.fault is None:
                    self.kinds[node_type, name][_kind(value)] += 1
            yield node


def _kind(value: Any) -> str:
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        return "digits" if digits.isascii() and digits.isdigit() else "text"
    if isinstance(value, list | tuple):
        return "list of objects" if any(isinstance(item, dict) for item in value) else "list"
    names = {bool: "boolean", int: "integer", float: "number", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _fill(
    found: Inspection, spec: DatasetSpec, report: LoadReport, watched: _Watched, con: duckdb.DuckDBPyConnection
) -> None:
    found.nodes, found.edges = report.nodes, report.edges
    shared = dict(con.execute(f"SELECT node_type, sum(n)::BIGINT FROM ({_SHARED}) GROUP BY 1").fetchall())
    found.types = [
        {"type": name, "nodes": n, "that share their name": shared.get(name, 0)}
        for name, n in report.nodes_by_type.items()
    ]
    found.fields = _fields(spec, report, watched)
    found.relations = _relations(spec, con)
    found.undeclared = _dicts(
        con,
        """SELECT raw->>'head_type' AS head, raw->>'relation' AS relation, raw->>'tail_type' AS tail, count(*) AS rows
           FROM quarantine WHERE reason = ? GROUP BY ALL ORDER BY rows DESC, head, relation, tail""",
        [_UNDECLARED],
    )
    found.cleaned = dict(report.cleaned)
    found.html = [{"field": name, **removed} for name, removed in report.html_removed.items()]
    found.dangling_edges = sum(report.quarantine_reasons.get(reason, 0) for reason in _DANGLING)
    found.quarantine = [
        {"reason": reason, "rows": rows, "examples": _examples(con, reason)}
        for reason, rows in report.quarantine_reasons.items()
    ]
    found.duplicate_ids = report.merged_nodes.examples
    found.conflicts = [
        {"field": name, "nodes": nodes, "examples": report.merged_nodes.conflict_examples[name]}
        for name, nodes in report.merged_nodes.conflicts.items()
    ]
    found.shared_names = _dicts(
        con, f"SELECT node_type AS type, name, n AS nodes FROM ({_SHARED}) ORDER BY n DESC, node_type, name LIMIT 5"
    )
    found.hubs = _dicts(
        con,
        """SELECT n.node_type AS type, n.external_id AS id, n.name, d.edges
           FROM (SELECT src, count(*) AS edges FROM adjacency GROUP BY src) d JOIN nodes n ON n.node_id = d.src
           ORDER BY d.edges DESC, n.canonical LIMIT 5""",
    )
    _judge(found, spec, report)


_SHARED = "SELECT node_type, name, count(*) AS n FROM nodes WHERE name <> '' GROUP BY ALL HAVING count(*) > 1"


def _fields(spec: DatasetSpec, report: LoadReport, watched: _Watched) -> Rows:
    coerced: dict[str, dict[str, int]] = defaultdict(dict)
    for key, n in report.coerced.items():
        name, _, kind = key.rpartition(": ")
        coerced[name][kind] = n
    rows = []
    for type_name, node_type in spec.node_types.items():
        for name, declared in node_type.fields.items():
            key = f"{type_name}.{name}"
            kinds = dict(watched.kinds.get((type_name, name), Counter()).most_common())
            rows.append(_field_row(key, declared.shape.value, report, kinds, coerced.pop(key, {})))
            parsed = f"from {name} as {declared.parse}"
            rows += [_field_row(f"{type_name}.{p}", parsed, report, {}, {}) for p in declared.parsed_names(name)]
    for key, counts in coerced.items():
        kinds = dict(watched.kinds.get(_split_key(key, spec), Counter()).most_common())
        rows.append({"field": key, "declared": "", "filled": 0.0, "found": kinds, "coerced": counts})
    return rows


def _field_row(
    key: str, declared: str, report: LoadReport, found: dict[str, int], coerced: dict[str, int]
) -> dict[str, Any]:
    return {"field": key, "declared": declared, "filled": report.fill_rate[key], "found": found, "coerced": coerced}


def _split_key(key: str, spec: DatasetSpec) -> tuple[str, str]:
    """Type and field of ``type.field``; a type's name may hold a dot."""
    type_name = max((t for t in spec.node_types if key.startswith(f"{t}.")), key=len)
    return type_name, key.removeprefix(f"{type_name}.")


def _relations(spec: DatasetSpec, con: duckdb.DuckDBPyConnection) -> Rows:
    counts = {
        (head, relation, tail): n
        for head, relation, tail, n in con.execute(
            """SELECT h.node_type, e.relation, t.node_type, count(*) FROM edges e
               JOIN nodes h ON h.node_id = e.head JOIN nodes t ON t.node_id = e.tail GROUP BY ALL"""
        ).fetchall()
    }
    return [
        {"head": r.head, "relation": r.name, "tail": r.tail, "symmetric": "yes" if r.symmetric else "",
         "edges": counts.get(r.triple, 0)}
        for r in spec.relations
    ]  # fmt: skip


def _examples(con: duckdb.DuckDBPyConnection, reason: str) -> list[str]:
    rows = con.execute(
        'SELECT source, "row", raw::VARCHAR FROM quarantine WHERE reason = ? ORDER BY ALL LIMIT ?', [reason, _EXAMPLES]
    ).fetchall()
    return [f"{source}:{row}: {raw[:_SHOWN]}" for source, row, raw in rows]


def _judge(found: Inspection, spec: DatasetSpec, report: LoadReport) -> None:
    for what, numbers, limit in [
        ("node", report.nodes, spec.source.max_bad_node_rate),
        ("edge", report.edges, spec.source.max_bad_edge_rate),
    ]:
        if numbers["quarantined"] > limit * numbers["rows_in"]:
            share = numbers["quarantined"] / numbers["rows_in"]
            found.stops.append(
                f"{numbers['quarantined']} of {numbers['rows_in']} {what} rows are bad ({share:.1%}), more than "
                f"source.max_bad_{what}_rate = {limit} allows"
            )
    warn = found.warnings.append
    for field_row in found.fields:
        if field_row["declared"] and not field_row["filled"]:
            warn(f"field {field_row['field']} has no value in any node")
    for type_row in found.types:
        if not type_row["nodes"]:
            warn(f"node type {type_row['type']!r} has no nodes")
    for relation in found.relations:
        if not relation["edges"]:
            warn(f"no edge of {relation['relation']!r} from {relation['head']!r} to {relation['tail']!r}")
    if report.nodes_without_name:
        warn(f"{report.nodes_without_name} nodes have no name")
    if found.dangling_edges:
        warn(f"{found.dangling_edges} edges have an end that is no node")
    if found.undeclared:
        total = sum(row["rows"] for row in found.undeclared)
        warn(f"{total} edges are of {len(found.undeclared)} triples that are not declared")
    if report.merged_nodes.nodes:
        differing = ", ".join(f"{name} in {n}" for name, n in report.merged_nodes.conflicts.items())
        warn(
            f"{report.merged_nodes.nodes} nodes have rows that differ and are merged, such as "
            f"{', '.join(found.duplicate_ids)}; different values: {differing or 'none'}"
        )


def _ask_questions(found: Inspection, spec: DatasetSpec, source: SourceAdapter, con: duckdb.DuckDBPyConnection) -> None:
    try:
        queries = source.queries()
        if queries is None:  # they are made from the graph
            found.warnings.extend(without_direction(spec))
            return
        _, report = queries_from_source(con, queries, spec.candidate_types)
    except ValueError as error:
        # Faults of a question's row, a repeated id, an answer that could be several nodes.
        found.stops.append(f"questions: {error}")
        return
    found.questions = report.metadata()
    if report.absent_answers:
        found.warnings.append(
            f"answers that are no candidate node, per split: {_counts_text(report.absent_answers)}, such as "
            f"{report.absent_examples}; they can never be found, and count"
        )
    if report.without_answers:
        found.warnings.append(f"{report.without_answers} questions have no answer; metrics leave them out")


def _dicts(con: duckdb.DuckDBPyConnection, query: str, parameters: list[Any] | None = None) -> Rows:
    found = con.execute(query, parameters or [])
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items())
