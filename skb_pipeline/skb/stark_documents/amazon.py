"""Documents of products, brands, categories and colours in the format of STaRK-Amazon."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from skb_pipeline.skb.stark_documents.style import Style, Texts

MAX_ENTRIES = 25
"""Reviews, and questions, per product."""

_STRUCTURE = """{
    "brand": "VARCHAR", "description": ["VARCHAR"], "feature": ["VARCHAR"],
    "details": {"product_dimensions": "VARCHAR"},
    "review": [{"summary": "VARCHAR", "reviewText": "VARCHAR", "vote": "VARCHAR"}],
    "qa": [{"question": "VARCHAR", "answer": "VARCHAR"}]
}"""

_PARSED = f"""
    SELECT node_id, name, fields, from_json(fields, '{_STRUCTURE}') AS f
    FROM nodes JOIN stark_types USING (node_type) WHERE candidate AND node_type = 'product'
"""

_VOTES = "try_cast(replace(r.vote, ',', '') AS BIGINT)"
_SIZES = "f.details.product_dimensions"

_NEIGHBOURS = """
    SELECT src AS node_id,
           list(name ORDER BY canonical) FILTER (relation = 'also_buy') AS bought,
           list(name ORDER BY canonical) FILTER (relation = 'also_view') AS viewed,
           arg_min(name, canonical) FILTER (relation = 'has_brand') AS maker
    FROM (
        SELECT DISTINCT src, relation, dst FROM adjacency
        WHERE (relation IN ('also_buy', 'also_view') AND dst_type = 'product')
           OR (relation = 'has_brand' AND dst_type = 'brand')
    ) JOIN nodes ON nodes.node_id = dst
    GROUP BY src
"""

_COUNTS = {
    "dimensions and weight not in the form 'dimensions ; weight'":
        f"({_SIZES} IS NOT NULL AND len(string_split({_SIZES}, ' ; ')) <> 2)::INT",
    "votes that are no number": f"len(list_filter(f.review, lambda r: r.vote IS NOT NULL AND {_VOTES} IS NULL))",
    "reviews beyond the limit": "greatest(len(f.review) - {entries}, 0)",
    "questions beyond the limit": "greatest(len(f.qa) - {entries}, 0)",
    **{
        f"{name} is no list": f"(f.{name} IS NULL AND json_exists(fields, '$.{name}'))::INT"
        for name in ("description", "feature", "review", "qa")
    },
}  # fmt: skip


def texts(con: duckdb.DuckDBPyConnection, style: Style) -> Texts:
    """Texts of all candidates.

    Counted are fields that are no list (they are left out), votes that are no number (taken as none), product
    dimensions that are not two parts (left out), and reviews and questions beyond the limit.
    """
    counts = ", ".join(sql.format(entries=_entries(style)) for sql in _COUNTS.values())
    if style.compat:
        con.register("stark_places", _places_as_stark(con))
    products = con.execute(
        f"""
        WITH parsed AS ({_PARSED})
        SELECT node_id, {_product(style)} AS document, {counts}
        FROM parsed
        {"LEFT JOIN stark_places USING (node_id)" if style.compat else ""}
        {f"LEFT JOIN ({_NEIGHBOURS}) USING (node_id)" if style.relations else ""}
        """
    ).fetchnumpy()
    if style.compat:
        con.unregister("stark_places")
    others = con.execute(
        "SELECT node_id, node_type || ' name: ' || name AS document FROM nodes JOIN stark_types USING (node_type) "
        "WHERE candidate AND node_type <> 'product'"
    ).fetchnumpy()
    return Texts(
        np.concatenate([products["node_id"], others["node_id"]]),
        np.concatenate([products["document"], others["document"]]),
        {
            reason: int(np.ma.filled(column, 0).sum())
            for reason, column in zip(_COUNTS, list(products.values())[2:], strict=True)
        },
    )


def _product(style: Style) -> str:
    """SQL of a product's text. The positions of features, reviews and questions are those of the stored lists."""
    skipped = "contains(lower(x), 'asin')" if style.compat else r"regexp_matches(x, '\basin\b', 'i')"
    parts = [
        r"E'- product: ' || name || E'\n'",
        r"coalesce('- brand: ' || f.brand || E'\n', '')",
        rf"CASE WHEN len(string_split({_SIZES}, ' ; ')) = 2"
        rf" THEN '- dimensions: ' || replace({_SIZES}, ' ; ', E'\n- weight: ') || E'\n' ELSE '' END",
        r"coalesce('- description: ' || nullif(trim(array_to_string(f.description, ' '), ' '), '') || E'\n', '')",
        r"CASE WHEN len(f.feature) > 0 THEN E'- features: \n' || array_to_string(list_transform(f.feature, lambda x, i:"
        rf" CASE WHEN x <> '' AND NOT {skipped} THEN '#' || i || ': ' || x || E'\n' ELSE '' END), '') ELSE '' END",
        rf"CASE WHEN len(f.review) > 0 THEN E'- reviews: \n' || {_reviews(style)} ELSE '' END",
        rf"CASE WHEN len(f.qa) > 0 THEN E'- Q&A: \n' || {_questions(style)} ELSE '' END",
    ]
    if style.relations:
        parts.append(_relations(style))
    return "\n|| ".join(parts)


def _reviews(style: Style) -> str:
    """Reviews by falling votes, and by position where votes are equal."""
    place = "places[i]" if style.compat else f"-coalesce({_VOTES}, 0)"
    entry = _entry(("summary: ", "r.summary", ""), ('text: "', "r.reviewText", '"'), style)
    entries = f"list_transform(f.review, lambda r, i: {{'place': {place}, 'i': i, 'text': {entry}}})"
    return _joined(f"list_sort({entries})", style)


def _questions(style: Style) -> str:
    """Questions in stored order."""
    entry = _entry(('question: "', "r.question", '"'), ('answer: "', "r.answer", '"'), style)
    return _joined(f"list_transform(f.qa, lambda r, i: {{'text': {entry}}})", style)


def _joined(entries: str, style: Style) -> str:
    kept = f"list_filter({entries}, lambda e: e.text IS NOT NULL)[1:{_entries(style)}]"
    return f"array_to_string(list_transform({kept}, lambda e: e.text), '')"


def _entry(first: tuple[str, str, str], second: tuple[str, str, str], style: Style) -> str:
    """SQL of one entry of two lines, each given as text before, value and text after it.

    STaRK writes ``nan`` for a missing value. Here its line is left out, and an entry without any line too.
    """
    lines = []
    for before, value, after in (first, second):
        missing = rf"E'{before}nan{after}\n'" if style.compat else "''"
        lines.append(rf"coalesce('{before}' || {value} || E'{after}\n', {missing})")
    text = rf"'#' || i || E':\n' || {lines[0]} || {lines[1]}"
    return text if style.compat else f"CASE WHEN coalesce({first[1]}, {second[1]}) IS NOT NULL THEN {text} END"


def _relations(style: Style) -> str:
    cap = "" if style.cap is None else f"[1:{style.cap}]"
    lists = [
        rf"coalesce(E'  products also {title}: \n' || array_to_string(list_transform({column}{cap}, "
        rf"lambda x, i: '#' || i || ': ' || x || E'\n'), ''), '')"
        for title, column in (("purchased", "bought"), ("viewed", "viewed"))
    ]
    brand = r"coalesce('  brand: ' || maker || E'\n', '')"
    return rf"coalesce(E'- relations:\n' || nullif({lists[0]} || {lists[1]} || {brand}, ''), '')"


def _entries(style: Style) -> int:
    """STaRK stops behind the entry whose number, counted from 0, is above the limit: two entries too late."""
    return MAX_ENTRIES + 2 if style.compat else MAX_ENTRIES


def _places_as_stark(con: duckdb.DuckDBPyConnection) -> pa.Table:
    """Place of each review by numpy's unstable sort, the one STaRK uses.

    Among equal votes the order depends on numpy's version and on the processor, so it is not made anew in SQL.
    """
    rows = con.execute(f"""
        WITH parsed AS ({_PARSED})
        SELECT node_id, list_transform(f.review, lambda r: coalesce({_VOTES}, 0)) FROM parsed WHERE len(f.review) > 0
    """).fetchall()
    places = [np.argsort(np.argsort(-np.array(votes)), kind="stable") for _, votes in rows]
    return pa.table(
        {
            "node_id": pa.array([node_id for node_id, _ in rows], pa.int64()),
            "places": pa.array(places, pa.list_(pa.int64())),
        }
    )
