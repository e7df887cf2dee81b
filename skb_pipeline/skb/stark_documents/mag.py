"""Documents of papers, authors, institutions and fields of study in the format of STaRK-MAG."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from skb_pipeline.datasets.stark_names import MAG_RELATIONS, mag_relation
from skb_pipeline.skb.stark_documents.style import Style, Texts

CAPPED = MAG_RELATIONS.index("paper___cites___paper")
"""The one relation whose neighbours STaRK limits."""

_TITLES = {"author": "- author name", "institution": " - institution", "field_of_study": " - field of study"}
_STRUCTURE = """{
    "abstract": "VARCHAR", "Date": "VARCHAR", "OriginalVenue": "VARCHAR", "JournalDisplayName": "VARCHAR",
    "ConferenceSeriesDisplayName": "VARCHAR", "ConferenceInstancesDisplayName": "VARCHAR",
    "PaperCount": "VARCHAR", "CitationCount": "VARCHAR"
}"""
_VENUES = {
    "OriginalVenue": "venue",
    "JournalDisplayName": "journal",
    "ConferenceSeriesDisplayName": "conference",
    "ConferenceInstancesDisplayName": "conference",
}


def texts(con: duckdb.DuckDBPyConnection, style: Style) -> Texts:
    """Texts of all candidates. Counted are nodes without a name, in whose place stands ``Unknown``."""
    con.register("stark_headings", _headings(con))
    rows = con.execute(
        f"""
        WITH parsed AS (
            SELECT node_id, node_type, {_known("name")} AS name, from_json(fields, '{_STRUCTURE}') AS f
            FROM nodes JOIN stark_types USING (node_type) WHERE candidate
        )
        SELECT node_id, CASE WHEN node_type = 'paper' THEN {_paper(style)} ELSE {_entity(style)} END AS document,
               (name IS NULL)::INT AS unnamed
        FROM parsed {f"LEFT JOIN ({_neighbours(style)}) USING (node_id)" if style.relations else ""}
        """
    ).fetchnumpy()
    con.unregister("stark_headings")
    return Texts(rows["node_id"], rows["document"], {"nodes without a name": int(rows["unnamed"].sum())})


def _known(column: str) -> str:
    """SQL: NULL for what MAG marks as missing, should the marker still be there."""
    return f"nullif(nullif({column}, '-1'), '')"


def _paper(style: Style) -> str:
    """SQL of a paper's text: the first known of its venues, journal and conferences is named."""
    parts = [
        r"' - paper title: ' || coalesce(name, 'Unknown') || E'\n'",
        r"coalesce(' - abstract: ' || rtrim(replace(f.abstract, E'\r', ''), E'\n') || E'\n', '')",
        rf"coalesce(' - publication date: ' || {_known('f.Date')} || E'\n', '')",
        "coalesce("
        + "".join(rf"' - {label}: ' || {_known(f'f.{name}')} || E'\n', " for name, label in _VENUES.items())
        + "'')",
    ]
    if style.relations:
        parts.append("coalesce(relations, '')")
    return "\n|| ".join(parts)


def _entity(style: Style) -> str:
    """SQL of the text of an author, an institution or a field of study."""
    titles = " ".join(f"WHEN '{name}' THEN '{title}'" for name, title in _TITLES.items())
    parts = [rf"CASE node_type {titles} END || ': ' || coalesce(name, 'Unknown') || E'\n'"]
    for what, name in (("paper", "PaperCount"), ("citation", "CitationCount")):
        label = rf"'- ' || split_part(node_type, '_', 1) || ' {what} count: '"
        parts.append(rf"coalesce({label} || {_known(f'f.{name}')} || E'\n', '')")
    text = "\n|| ".join(parts)
    # STaRK means missing values, and hits every -1 of the text.
    return f"replace({text}, '-1', 'Unknown')" if style.compat else text


def _headings(con: duckdb.DuckDBPyConnection) -> pa.Table:
    """The declared relations that STaRK has, with heading and place of each."""
    rows = [
        {"relation": name, "place": MAG_RELATIONS.index(full), "heading": full.replace("___", " ")}
        for (name,) in con.execute("SELECT relation FROM stark_relations").fetchall()
        if (full := mag_relation(name)) is not None
    ]
    types = {"relation": pa.string(), "place": pa.int64(), "heading": pa.string()}
    return pa.Table.from_pylist(rows, schema=pa.schema(types))


def _neighbours(style: Style) -> str:
    """SQL: ``node_id, relations`` of papers. Authors are followed by institutions; who has no name is left out."""
    labels = "labels" if style.cap is None else f"CASE place WHEN {CAPPED} THEN labels[1:{style.cap}] ELSE labels END"
    return rf"""
        WITH pairs AS (
            SELECT DISTINCT a.src, a.dst, h.place, h.heading
            FROM adjacency a JOIN stark_headings h USING (relation)
        ),
        affiliations AS (
            SELECT src AS author, string_agg(name, ', ' ORDER BY canonical) AS institutions
            FROM pairs JOIN nodes ON nodes.node_id = dst
            WHERE place = 0 AND node_type = 'institution' AND {_known("name")} IS NOT NULL
            GROUP BY src
        ),
        labelled AS (
            SELECT p.*, n.canonical, CASE
                WHEN n.node_type = 'paper' THEN '"' || n.name || '"'
                WHEN {_known("n.name")} IS NOT NULL THEN n.name || coalesce(' (' || institutions || ')', '')
            END AS label
            FROM pairs p JOIN nodes n ON n.node_id = p.dst JOIN nodes s ON s.node_id = p.src
            LEFT JOIN affiliations ON author = p.dst
            WHERE s.node_type = 'paper'
        ),
        grouped AS (
            SELECT src, place, heading, list(label ORDER BY canonical) FILTER (label IS NOT NULL) AS labels
            FROM labelled GROUP BY src, place, heading
        )
        SELECT src AS node_id, E'- relations:\n' || string_agg(
            E'\n' || heading || ': (' || coalesce(array_to_string({labels}, ', '), '') || '),',
            '' ORDER BY place) AS relations
        FROM grouped GROUP BY src
    """
