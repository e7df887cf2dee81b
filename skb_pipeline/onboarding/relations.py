"""Guesses on what joins the nodes: tables of edges, columns that point at nodes, triples, possible answers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from skb_pipeline.onboarding.fields import separator_of
from skb_pipeline.onboarding.guesses import (
    Edges,
    FieldGuess,
    Found,
    Nodes,
    TripleNames,
    copies,
    items_of,
    named,
    share,
    singular,
    words_of,
)
from skb_pipeline.onboarding.profiling import Column, Table

MOSTLY = 0.8
_SOME = 0.02
_RELATION_NAMES = ("relation", "rel", "predicate", "edge_type", "relationship", "relation_type", "property", "type",
                   "label", "display_relation")  # fmt: skip
_ENDS = (("src", "dst"), ("src", "tgt"), ("src", "dest"), ("source", "target"), ("source", "destination"),
         ("head", "tail"), ("h", "t"), ("from", "to"), ("subject", "object"), ("subj", "obj"), ("s", "o"),
         ("start", "end"), ("origin", "destination"), ("citing", "cited"), ("follower", "followee"), ("u", "v"),
         ("x", "y"), ("a", "b"), ("left", "right"), ("1", "2"))  # fmt: skip
"""Words that tell head and tail, in this order, whatever the order of the columns."""
_FILLERS = {"id", "ids", "node", "nodes", "key", "idx", "index", "ref", "entity", "uri", "curie", "item", "vertex"}
_POINTS = {"id", "ids", "ref", "refs"}
_PLAIN_STEMS = ("edges", "edge", "links", "link", "relations", "relation", "triples", "graph")


# ---------------------------------------------------------------------------------------------- tables of edges


def ends_by_name(table: Table) -> tuple[Column, Column] | None:
    """Head and tail, where names of columns tell them: ``from_id`` and ``to_id``, ``:START_ID`` and ``:END_ID``."""
    core: dict[str, Column] = {}
    for column in table.columns.values():
        # entity1 is entity 1; what is left of it without "entity" is "1".
        words = [word for name in words_of(column.name) for word in re.findall(r"[0-9]+|[^0-9]+", name)]
        rest = " ".join(word for word in words if word not in _FILLERS)
        pointing = len(words) > 1 and any(word in _FILLERS for word in words)
        if rest and (pointing or rest not in core):
            core[rest] = column
    return next(((core[a], core[b]) for a, b in _ENDS if a in core and b in core), None)


def edge_table(table: Table, tables: list[Table], doubts: list[str], *, node_like: bool) -> Edges | None:
    """The two ends, when two columns hold mostly ids of other tables and nothing else looks like a node."""
    known: set[str] = set().union(*(key.distinct for other in tables if other is not table for key in other.keys))
    candidates = [c for c in table.columns.values() if c.distinct and share(c.distinct, known) >= MOSTLY]
    by_name = ends_by_name(table)
    if by_name is not None and known:
        sure = all(end in candidates for end in by_name)
        if node_like and not sure:
            return None
        head, tail = by_name
        if not sure:
            doubts.append(f"{table.pattern}: {head.name} and {tail.name} look like ends of edges by name, but many "
                          "of their values are no ids of nodes")  # fmt: skip
    elif len(candidates) >= 2 and not node_like and not copies(candidates[0], candidates[1]):
        head, tail = candidates[:2]
        doubts.append(f"{table.pattern}: {head.name} and {tail.name} are taken for head and tail, in the order of the "
                      "file; exchange them if its edges run the other way")  # fmt: skip
    else:
        return None
    return edges_of(table, head, tail, doubts)


def edges_of(table: Table, head: Column, tail: Column, doubts: list[str]) -> Edges:
    """Edges from one column to another, with the column of the relation or a name for it."""
    rest = [c for c in table.columns.values() if c is not head and c is not tail]
    full = [c for c in rest if c.filled == table.rows and not c.is_list and not c.is_object]
    relation = named(table, _RELATION_NAMES, full) or next(
        (c for c in full if not c.is_number and len(c.distinct) <= min(200, table.rows / 20)), None
    )
    value = None
    if relation is None:
        value = "related to" if table.stem.lower() in _PLAIN_STEMS else table.stem
        doubts.append(f"{table.pattern}: no column names the relation; it is called {value!r}")
    found = Edges(table, head, tail, relation, value, separator=separator_of(tail))
    if found.separator is not None:
        doubts.append(f"{table.pattern}: {found.separator!r} is taken for the separator of a list in {tail.name}")
    ignored = [c.name for c in rest if c is not relation]
    if ignored:
        doubts.append(f"{table.pattern}: columns {ignored} are not used")
    return found


def edges_inside(nodes: Nodes, all_nodes: list[Nodes], doubts: list[str]) -> list[Edges]:
    """Columns of a node table that hold ids of nodes."""
    found = []
    for column in nodes.table.columns.values():
        if column is nodes.key or column is nodes.type_column or column.is_object or not items_of(column, None):
            continue
        if copies(column, nodes.key):
            doubts.append(f"{nodes.table.pattern}: {column.name} repeats the id in {nodes.key.name}, so it points at "
                          "nothing")  # fmt: skip
            continue
        separator = None if column.is_list else separator_of(column)
        values = items_of(column, separator)
        target = max(all_nodes, key=lambda n: share(values, n.key.distinct))
        if len(values) < 2 and not _speaks(column, [target]):
            continue
        known = share(values, target.key.distinct)
        listed = column.is_list or separator is not None
        speaks = _speaks(column, [target])
        plain_numbers = all(value.isdigit() for value in values)
        if not (known >= MOSTLY or ((listed or speaks) and known >= _SOME and (speaks or not plain_numbers))):
            continue
        if plain_numbers and not (speaks or column.is_list):
            continue
        relation = re.sub(r"_?(ids?|refs?)$", "", column.name.lower()) or column.name
        doubts.append(f"{nodes.table.pattern}: values of {column.name} are ids in {target.table.pattern}; they become "
                      f"edges {relation!r}")  # fmt: skip
        found.append(Edges(nodes.table, nodes.key, column, None, relation, separator, inside_nodes=True))
    return found


def _speaks(column: Column, targets: list[Nodes]) -> bool:
    """Whether the name of a column says that it holds ids."""
    name = column.name.lower()
    if (words_of(column.name) or [""])[-1] in _POINTS:
        return True
    return any(name in (t.key.name.lower(), singular(t.table.stem), t.table.stem.lower()) for t in targets)


def nodes_of_ends(table: Table, doubts: list[str]) -> tuple[list[Nodes], Edges] | None:
    """Nodes out of a table of edges to which there is no table of nodes: one for each end."""
    ends = ends_by_name(table)
    if ends is None or not all(end.can_be_id for end in ends):
        return None
    found = edges_of(table, *ends, [])
    nodes = []
    for which, end in zip(("head", "tail"), ends, strict=True):
        beside = _beside(table, end)
        type_column = next((beside[word] for word in ("type", "label", "kind") if word in beside), None)
        if type_column is not None and (type_column is found.relation or type_column.filled < table.rows):
            type_column = None
        types: list[str | None] = ["node"] * table.rows if type_column is None else type_column.texts
        nodes.append(Nodes(table, end, type_column, types))
        name = next((beside[word] for word in ("name", "title") if word in beside), None)
        nodes[-1].name = (name or end).name
        nodes[-1].fields = {nodes[-1].name: FieldGuess(name or end, "text")}
        setattr(found, f"{which}_type_column", type_column)
    doubts.append(f"{table.pattern}: there is no table of nodes, so the nodes are what its edges join, by "
                  f"{ends[0].name} and {ends[1].name}")  # fmt: skip
    return nodes, found


def _beside(table: Table, end: Column) -> dict[str, Column]:
    """Columns about one end: of ``x_id``, ``x_type`` by "type"."""
    own = [word for word in words_of(end.name) if word not in _FILLERS]
    found = {}
    for column in table.columns.values():
        words = words_of(column.name)
        if column is not end and words[: len(own)] == own and len(words) == len(own) + 1:
            found[words[-1]] = column
    return found


def nodes_of_values(nodes: Nodes, doubts: list[str]) -> tuple[Nodes, Edges] | None:
    """Nodes out of a column whose values several nodes share, such as a brand, where nothing else joins the nodes."""
    taken = {nodes.key.name, nodes.name, nodes.type_column.name if nodes.type_column else ""}
    shared = [
        f.column
        for name, f in nodes.fields.items()
        if name not in taken and f.shape == "text" and f.in_document and not (f.html or f.parse)
        and f.column.can_be_id and f.column.mean_length <= 40 and 2 <= len(f.column.distinct) <= f.column.filled / 2
    ]  # fmt: skip
    kinds = list(dict.fromkeys(kind for kind in nodes.types if kind is not None))
    if not shared or len(kinds) != 1:
        return None
    column = max(shared, key=lambda c: len(c.distinct))
    kind = column.name if column.name != kinds[0] else f"{column.name} value"
    made = Nodes(nodes.table, column, None, [kind] * nodes.table.rows, skip_empty_ids=True)
    made.name = column.name
    made.fields = {column.name: FieldGuess(column, "text")}
    del nodes.fields[column.name]
    found = Edges(nodes.table, nodes.key, column, None, f"has {column.name}", inside_nodes=True)
    found.head_type, found.tail_type = kinds[0], kind
    doubts.append(f"{nodes.table.pattern}: no column holds ids of nodes; the {len(column.distinct)} values of "
                  f"{column.name} are made nodes, so that something joins the others")  # fmt: skip
    return made, found


# ------------------------------------------------------------------------------------------------------ triples


def count_triples(found: Found, doubts: list[str]) -> None:
    """Fill ``triples``, ``bad_edges`` and ``edge_rows``, and say which type each end has where ids do not."""
    types_of = types_by_id(found.nodes)
    twice = any(len(types) > 1 for types in types_of.values())
    edges = list(found.edges)
    for one in edges:
        if twice and not _state_types(one, found, doubts):
            found.edges.remove(one)
    _shorten(found, types_of, doubts)
    counts: Counter[TripleNames] = Counter()
    pairs: dict[TripleNames, set[tuple[str, str]]] = defaultdict(set)
    for one in found.edges:
        dangling = unnamed = 0
        for head, relation, tail, head_type, tail_type in one.rows():
            found.edge_rows += 1
            triple = _triple(types_of, head, relation, tail, head_type, tail_type)
            if triple is None:
                dangling += 1
            elif not relation:
                unnamed += 1
            else:
                counts[triple] += 1
                if triple[0] == triple[2]:
                    pairs[triple].add((head, tail))
        if dangling:
            doubts.append(f"{one.table.pattern}: {dangling} edges have an end that is no node; they are quarantined")
        if unnamed:
            doubts.append(f"{one.table.pattern}: {unnamed} edges have no relation; they are quarantined")
        found.bad_edges += dangling + unnamed
    symmetric = {triple for triple, known in pairs.items() if _is_symmetric(triple, known, doubts)}
    found.triples = {triple: (n, triple in symmetric) for triple, n in counts.most_common()}


def types_by_id(nodes: list[Nodes]) -> dict[str, set[str]]:
    """The types of nodes of each id."""
    types_of: dict[str, set[str]] = defaultdict(set)
    for found in nodes:
        for key, node_type in zip(found.key.texts, found.types, strict=True):
            if key is not None and node_type is not None:
                types_of[key].add(node_type)
    return types_of


def _triple(
    types_of: dict[str, set[str]], head: str, relation: str, tail: str, head_type: str | None, tail_type: str | None
) -> TripleNames | None:
    ends = []
    for key, stated in ((head, head_type), (tail, tail_type)):
        types = types_of.get(key, set())
        if (stated is not None and stated not in types) or not types:
            return None
        ends.append(stated if stated is not None else min(types))
    return ends[0], relation, ends[1]


def _is_symmetric(triple: TripleNames, known: set[tuple[str, str]], doubts: list[str]) -> bool:
    open_pairs = {pair for pair in known if pair[0] != pair[1]}
    both = sum((tail, head) in open_pairs for head, tail in open_pairs)
    if not open_pairs or both < 0.9 * len(open_pairs):
        return False
    doubts.append(f"{triple[1]!r} within {triple[0]!r} is taken for symmetric: {both / len(open_pairs):.0%} of "
                  "its edges occur in both directions")  # fmt: skip
    return True


def _state_types(one: Edges, found: Found, doubts: list[str]) -> bool:
    """Ids are not unique over types, so each end says its type: by a column, or the one type that fits it best."""
    if one.head_type is not None and one.tail_type is not None:
        return True
    if one.head_type_column is not None and one.tail_type_column is not None:
        return True
    kinds = {kind for n in found.nodes for kind in n.types if kind is not None}
    columns = [c for c in one.table.columns.values() if c.filled == one.table.rows and c.distinct <= kinds]
    columns = [c for c in columns if c is not one.relation]
    if not one.inside_nodes and len(columns) == 2:
        one.head_type_column, one.tail_type_column = columns
        doubts.append(f"{one.table.pattern}: ids are used by several types; {columns[0].name} and {columns[1].name} "
                      "are taken for the types of head and tail")  # fmt: skip
        return True
    single = [n for n in found.nodes if n.type_column is None]
    best = {}
    for end, column in (("head", one.head), ("tail", one.tail)):
        values = items_of(column, one.separator if end == "tail" else None)
        best[end] = max(single, key=lambda n: (share(values, n.key.distinct), _alike(column, n)), default=None)
    head, tail = best["head"], best["tail"]
    if head is None or tail is None:
        doubts.append(f"{one.table.pattern}: is not used for edges ({one.head.name} to {one.tail.name}): ids of nodes "
                      "have several types each, and nothing says which is meant")  # fmt: skip
        return False
    one.head_type, one.tail_type = head.types[0], tail.types[0]
    doubts.append(f"{one.table.pattern}: ids are used by several types; its edges are taken to lead from "
                  f"{one.head_type!r} to {one.tail_type!r}")  # fmt: skip
    return True


def _alike(column: Column, nodes: Nodes) -> bool:
    return singular(nodes.table.stem) in column.name.lower() or column is nodes.key


# -------------------------------------------------------------------------------------- names that repeat types


def _shorten(found: Found, types_of: dict[str, set[str]], doubts: list[str]) -> None:
    """``author___writes___paper`` from author to paper is ``writes``: ends go where all edges have these types, and no
    two relations of the same types would be called alike."""
    for one in found.edges:
        if one.relation is None or not any(len(words_of(name)) > 2 for name in one.relation.distinct):
            continue
        ends: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for head, relation, tail, head_type, tail_type in one.rows():
            triple = _triple(types_of, head, relation, tail, head_type, tail_type)
            if triple is not None:
                ends[relation].add((triple[0], triple[2]))
        short = {}
        for relation, pairs in ends.items():
            if len(pairs) == 1 and (core := without_ends(relation, *next(iter(pairs)))) is not None:
                short[relation] = core
        meant = Counter((short.get(name, name), pair) for name, pairs in ends.items() for pair in pairs)
        one.renamed = {name: core for name, core in short.items() if all(meant[core, pair] == 1 for pair in ends[name])}
        if one.renamed:
            shown = ", ".join(f"{a!r} is {b!r}" for a, b in list(one.renamed.items())[:3])
            shown += ", …" * (len(one.renamed) > 3)
            doubts.append(f"{one.table.pattern}: names of relations that repeat the types they join are shortened: "
                          f"{shown}")  # fmt: skip


def without_ends(relation: str, head: str, tail: str) -> str | None:
    """What is left of a relation's name between the names of its types, in words; None where it repeats not both."""
    words, first, last = words_of(relation), words_of(head), words_of(tail)
    inner = words[len(first) : len(words) - len(last)]
    if not inner or not first or not last:
        return None
    if _same(words[: len(first)], first) and _same(words[len(words) - len(last) :], last):
        return " ".join(inner)
    return None


def _same(one: list[str], other: list[str]) -> bool:
    return [*one[:-1], singular(one[-1])] == [*other[:-1], singular(other[-1])]


# ------------------------------------------------------------------------------------------------------ answers


def guess_candidates(found: Found, doubts: list[str]) -> None:
    """Fill ``candidates`` and ``answers``: the types of the given answers; all types where there are none."""
    types = list(found.rows_by_type())
    found.candidates = types
    types_of = types_by_id(found.nodes)
    absent = unclear = 0
    for table in found.questions:
        for answer in table.answer_ids():
            of = types_of.get(answer, set())
            absent += not of
            unclear += len(of) > 1
            if len(of) == 1:
                found.answers[next(iter(of))] += 1
    if absent:
        doubts.append(f"{absent} answers of the questions are no ids of nodes; they can never be found, and count")
    if unclear:
        doubts.append(f"{unclear} answers of the questions have ids that several types use; `candidates` decides which "
                      "is meant, and all types are in it")  # fmt: skip
    elif found.answers:
        found.candidates = [name for name in types if found.answers[name]]
        found.by_answers = True
        told = ", ".join(f"{n} {name}" for name, n in found.answers.most_common())
        doubts.append(f"candidates are the types of the given answers ({told}); add a type if people look for it too")
