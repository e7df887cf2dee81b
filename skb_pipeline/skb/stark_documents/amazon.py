"""Documents of products, brands, categories and colours in the format of STaRK-Amazon."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skb_pipeline.datasets.stark_names import AMAZON_RELATIONS
from skb_pipeline.skb.stark_documents.columns import Lists, concat, given, line, numerals
from skb_pipeline.skb.stark_documents.graph import load_names, load_neighbours
from skb_pipeline.skb.stark_documents.style import Style

MAX_ENTRIES = 25
"""Reviews, and questions, per product."""

_LISTS = ("description", "feature", "review", "qa")
_STRUCTURE = """{
    "brand": "VARCHAR", "description": ["VARCHAR"], "feature": ["VARCHAR"],
    "details": {"product_dimensions": "VARCHAR"},
    "review": [{"summary": "VARCHAR", "reviewText": "VARCHAR", "vote": "VARCHAR"}],
    "qa": [{"question": "VARCHAR", "answer": "VARCHAR"}]
}"""


class AmazonTexts:
    """Texts of nodes, batch by batch.

    ``counts`` grows with each batch. Counted are fields that are no list (they are left out), votes that are no
    number (taken as none), product dimensions that are not two parts (left out), and reviews and questions beyond the
    limit.
    """

    columns: ClassVar[str] = f"from_json(fields, '{_STRUCTURE}') AS f, " + ", ".join(
        f"CASE WHEN f['{name}'] IS NULL THEN json_exists(fields, '$.{name}') ELSE false END AS unread_{name}"
        for name in _LISTS
    )

    def __init__(self, con: duckdb.DuckDBPyConnection, style: Style) -> None:
        self.style = style
        self.counts: Counter[str] = Counter()
        self._names = load_names(con, style.types) if style.relations else None
        self._neighbours = load_neighbours(con, list(AMAZON_RELATIONS)) if style.relations else {}

    def texts(self, rows: pa.Table) -> np.ndarray:
        """Texts of the rows of a batch, object [rows]."""
        is_product = np.asarray(pc.equal(rows["node_type"], "product"))
        if is_product.all():
            return self._products(rows.combine_chunks()).to_numpy(zero_copy_only=False)
        texts = np.empty(len(rows), dtype=object)
        others = rows.filter(pa.array(~is_product)).combine_chunks()
        products = rows.filter(pa.array(is_product)).combine_chunks()
        if len(others):
            texts[~is_product] = np.asarray(
                concat(others["node_type"].combine_chunks(), " name: ", others["name"].combine_chunks())
            )
        if len(products):
            texts[is_product] = self._products(products).to_numpy(zero_copy_only=False)
        return texts

    def _products(self, rows: pa.Table) -> pa.Array:
        fields = dict(zip(*_unpacked(rows["f"].combine_chunks()), strict=True))
        for name in _LISTS:
            self.counts[f"{name} is no list"] += pc.sum(rows[f"unread_{name}"]).as_py()
        parts = [
            line("- product: ", rows["name"].combine_chunks(), "\n"),
            line("- brand: ", fields["brand"], "\n"),
            self._dimensions(pc.struct_field(fields["details"], "product_dimensions")),
            line("- description: ", _description(Lists.of(fields["description"])), "\n"),
            *self._features(Lists.of(fields["feature"])),
            *self._reviews(Lists.of(fields["review"])),
            *self._questions(Lists.of(fields["qa"])),
        ]
        if self._names is not None:
            parts.append(self._relations(np.asarray(rows["canonical"]), self._names.names))
        return concat(*parts)

    def _dimensions(self, sizes: pa.Array) -> pa.Array:
        parts = pc.split_pattern(sizes, " ; ")
        two = pc.equal(pc.list_value_length(parts), 2)
        self.counts["dimensions and weight not in the form 'dimensions ; weight'"] += (
            pc.sum(pc.invert(two)).as_py() or 0
        )
        text = line("- dimensions: ", pc.replace_substring(sizes, " ; ", "\n- weight: "), "\n")
        return pc.if_else(two, text, pa.scalar(None, pa.string()))

    def _features(self, features: Lists) -> tuple[pa.Array, pa.Array]:
        """Features under their places; what names the ASIN is skipped."""
        # STaRK also skips a feature with a word such as "increasing".
        pattern = "asin" if self.style.compat else r"\basin\b"
        skipped = pc.match_substring_regex(features.values, pattern, ignore_case=True)
        kept = pc.fill_null(pc.and_not(pc.not_equal(features.values, ""), skipped), False)
        entries = features.with_values(line("#", numerals(features.places + 1), ": ", features.values, "\n"))
        return _section("features", features.lengths, entries.keep(np.asarray(kept)))

    def _reviews(self, reviews: Lists) -> tuple[pa.Array, pa.Array]:
        """Reviews by falling votes, and by place where votes are equal."""
        votes = pc.replace_substring(pc.struct_field(reviews.values, "vote"), ",", "")
        readable = pc.match_substring_regex(votes, r"^[+-]?[0-9]{1,18}$")
        self.counts["votes that are no number"] += pc.sum(pc.invert(readable)).as_py() or 0
        numbers = pc.if_else(readable, votes, "0").cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        entries = self._entries(reviews, ("summary", "summary: ", "\n"), ("reviewText", 'text: "', '"\n'))
        if numbers.any() or self.style.compat:
            order = self._order(reviews, numbers)
            entries = entries.with_values(entries.values.take(pa.array(order)))
        return self._limited("reviews", entries)

    def _order(self, reviews: Lists, votes: np.ndarray) -> np.ndarray:
        if not self.style.compat:
            return np.lexsort((-votes, reviews.owners))
        # STaRK's sort is not stable: the order of equal votes depends on numpy's version and on the processor.
        bounds = zip(reviews.offsets[:-1].tolist(), reviews.offsets[1:].tolist(), strict=True)
        orders = [begin + np.argsort(-votes[begin:end]) for begin, end in bounds if begin < end]
        return np.concatenate([np.empty(0, dtype=np.int64), *orders])

    def _questions(self, questions: Lists) -> tuple[pa.Array, pa.Array]:
        """Questions in stored order."""
        entries = self._entries(questions, ("question", 'question: "', '"\n'), ("answer", 'answer: "', '"\n'))
        return self._limited("questions", entries, "Q&A")

    def _entries(self, items: Lists, first: tuple[str, str, str], second: tuple[str, str, str]) -> Lists:
        """Entries of two lines, each given by its key and the texts before and after it.

        STaRK writes ``nan`` for a missing value. Here its line is left out, and an entry without any line is null.
        """
        parts: list[pa.Array | str] = []
        given_values = []
        for key, before, after in (first, second):
            values = pc.struct_field(items.values, key)
            if self.style.compat:
                values = values.fill_null("nan")
            given_values.append(values.is_valid())
            # Joining with the rest spares a copy of nearly all text.
            parts += [line(before, values, after)] if values.null_count else [before, values, after]
        text = concat("#", numerals(items.places + 1), ":\n", *parts)
        some = pc.or_(*given_values)
        return items.with_values(text if pc.all(some).as_py() else pc.if_else(some, text, pa.scalar(None, pa.string())))

    def _limited(self, what: str, entries: Lists, title: str | None = None) -> tuple[pa.Array, pa.Array]:
        # STaRK stops behind the entry whose number, counted from 0, is above the limit: two entries too late.
        limit = MAX_ENTRIES + 2 if self.style.compat else MAX_ENTRIES
        present = entries.keep(np.asarray(entries.values.is_valid()))
        self.counts[f"{what} beyond the limit"] += int(np.maximum(present.lengths - limit, 0).sum())
        return _section(title or what, entries.lengths, present.first(limit))

    def _relations(self, positions: np.ndarray, names: pa.Array) -> pa.Array:
        found = {name: pairs.of(positions) for name, pairs in self._neighbours.items()}
        parts = []
        for relation, title in (("also_buy", "purchased"), ("also_view", "viewed")):
            products = found[relation].first(self.style.cap)
            entries = line("#", numerals(products.places + 1), ": ", names.take(products.values), "\n")
            parts.append(line(f"  products also {title}: \n", given(products.with_values(entries).joined())))
        brands = found["has_brand"].first(1)
        parts.append(given(brands.with_values(line("  brand: ", names.take(brands.values), "\n")).joined()))
        return line("- relations:\n", given(concat(*parts)))


def _unpacked(structs: pa.StructArray) -> tuple[list[str], list[pa.Array]]:
    return [structs.type.field(i).name for i in range(structs.type.num_fields)], structs.flatten()


def _description(items: Lists) -> pa.Array:
    return given(pc.utf8_trim(items.keep(np.asarray(items.values.is_valid())).joined(" "), " "))


def _section(title: str, lengths: np.ndarray, entries: Lists) -> tuple[pa.Array, pa.Array]:
    """A heading, null where the stored list is empty, and the entries below it."""
    return pc.if_else(pa.array(lengths > 0), f"- {title}: \n", pa.scalar(None, pa.string())), entries.joined()
