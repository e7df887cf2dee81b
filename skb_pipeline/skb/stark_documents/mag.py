"""Documents of papers, authors, institutions and fields of study in the format of STaRK-MAG."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.datasets.stark_names import MAG_RELATIONS, mag_relation
from skb_pipeline.skb.stark_documents.columns import concat, given, line, without
from skb_pipeline.skb.stark_documents.graph import Neighbours, NodeNames, load_names, load_neighbours
from skb_pipeline.skb.stark_documents.style import Style

AFFILIATIONS, CITATIONS = MAG_RELATIONS[:2]
MISSING = "-1"
"""MAG's mark of a missing value, should it still be there."""

_TITLES = {"author": "- author name", "institution": " - institution", "field_of_study": " - field of study"}
_VENUES = {
    "OriginalVenue": "venue",
    "JournalDisplayName": "journal",
    "ConferenceSeriesDisplayName": "conference",
    "ConferenceInstancesDisplayName": "conference",
}
_FIELDS = ("abstract", "Date", *_VENUES, "PaperCount", "CitationCount")


class MagTexts:
    """Texts of nodes, batch by batch. ``counts`` grows with each: nodes without a name, who are called ``Unknown``."""

    columns: ClassVar[str] = "from_json(fields, '{" + ", ".join(f'"{name}": "VARCHAR"' for name in _FIELDS) + "}') AS f"

    def __init__(self, con: duckdb.DuckDBPyConnection, style: Style) -> None:
        self.style = style
        self.counts: Counter[str] = Counter()
        self._neighbours: dict[str, Neighbours] = {}
        if style.relations:
            names = {full: name for name in style.relation_names if (full := mag_relation(name)) is not None}
            found = load_neighbours(con, list(names.values()))
            self._neighbours = {full: found[names[full]] for full in MAG_RELATIONS if full in names}
            self._labels = self._neighbour_labels(load_names(con, style.types))

    def _neighbour_labels(self, nodes: NodeNames) -> pa.Array:
        """What each node is called as a neighbour: titles quoted, authors with their institutions; null if unknown."""
        names = given(nodes.names, MISSING)
        labels = names
        if AFFILIATIONS in self._neighbours:
            places = self._neighbours[AFFILIATIONS].of(np.arange(len(names)))
            known = np.asarray(names.take(places.values).is_valid())
            places = places.keep(known)
            places = places.with_values(names.take(places.values))
            labels = pc.if_else(names.is_null(), names, concat(names, line(" (", given(places.joined(", ")), ")")))
        of_type = nodes.types
        is_author = pa.array(of_type == self.style.types.get("author", -1))
        is_paper = pa.array(of_type == self.style.types.get("paper", -1))
        return pc.if_else(is_paper, line('"', nodes.names, '"'), pc.if_else(is_author, labels, names))

    def texts(self, rows: pa.Table) -> np.ndarray:
        """Texts of the rows of a batch, object [rows]."""
        stored = rows["f"].combine_chunks()
        fields = {name: given(stored.field(name), MISSING) for name in _FIELDS}
        names = given(rows["name"].combine_chunks(), MISSING)
        self.counts["nodes without a name"] += names.null_count
        names = names.fill_null("Unknown")
        kinds = rows["node_type"].combine_chunks()
        is_paper = pc.equal(kinds, "paper")
        n_papers = pc.sum(is_paper).as_py()
        if not n_papers:
            texts = self._entities(kinds, names, fields)
        else:
            texts = self._papers(names, fields, np.asarray(rows["canonical"]))
            if n_papers < len(rows):
                texts = pc.if_else(is_paper, texts, self._entities(kinds, names, fields))
        return texts.to_numpy(zero_copy_only=False)

    def _papers(self, names: pa.Array, fields: dict[str, pa.Array], positions: np.ndarray) -> pa.Array:
        """The first known of venue, journal and conferences is named."""
        abstract = without(fields["abstract"], "\r")
        if pc.any(pc.ends_with(abstract, "\n")).as_py():
            abstract = pc.utf8_rtrim(abstract, "\n")
        parts = [
            line(" - paper title: ", names, "\n"),
            line(" - abstract: ", abstract, "\n"),
            line(" - publication date: ", fields["Date"], "\n"),
            pc.coalesce(*(line(f" - {label}: ", fields[name], "\n") for name, label in _VENUES.items())),
        ]
        if self.style.relations:
            parts.append(self._relations(positions))
        return concat(*parts)

    def _entities(self, kinds: pa.Array, names: pa.Array, fields: dict[str, pa.Array]) -> pa.Array:
        titles = kinds
        for kind, title in _TITLES.items():
            titles = pc.if_else(pc.equal(kinds, kind), title, titles)
        short = pc.replace_substring(kinds, "_of_study", "")
        text = concat(
            line(titles, ": ", names, "\n"),
            line("- ", short, " paper count: ", fields["PaperCount"], "\n"),
            line("- ", short, " citation count: ", fields["CitationCount"], "\n"),
        )
        # STaRK means missing values, and hits every -1 of the text.
        return pc.replace_substring(text, MISSING, "Unknown") if self.style.compat else text

    def _relations(self, positions: np.ndarray) -> pa.Array:
        """Of neighbours by relation; who is unknown is left out. STaRK limits only the papers cited or citing."""
        parts = []
        for relation, pairs in self._neighbours.items():
            others = pairs.of(positions).first(self.style.cap if relation == CITATIONS else None)
            labels = self._labels.take(others.values)
            known = others.with_values(labels).keep(np.asarray(labels.is_valid()))
            text = line(f"\n{relation.replace('___', ' ')}: (", known.joined(", "), "),")
            parts.append(pc.if_else(pa.array(others.lengths > 0), text, pa.scalar(None, pa.string())))
        return line("- relations:\n", given(concat(*parts)))
