"""Texts put together column by column: Arrow does the work for all nodes of a batch at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def concat(*parts: pa.Array | str) -> pa.Array:
    """Texts joined row by row; a missing part is left out. At least one part is an array of strings."""
    # "skip" would drop a row whose parts are all missing, and shift the rows behind it.
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")


def line(*parts: pa.Array | str) -> pa.Array:
    """Texts joined row by row; null where any part is missing."""
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def numerals(numbers: np.ndarray) -> pa.Array:
    """Integers as texts."""
    return pa.array(numbers).cast(pa.string())


def given(texts: pa.Array, marker: str = "") -> pa.Array:
    """The texts, null instead of empty ones and of ``marker``."""
    missing = pc.equal(texts, "")
    if marker:
        missing = pc.or_(missing, pc.equal(texts, marker))
    if not pc.any(missing).as_py():
        return texts  # spares a copy
    return pc.if_else(missing, pa.scalar(None, pa.string()), texts)


def without(texts: pa.Array, byte: str) -> pa.Array:
    """The texts without an ASCII character."""
    _, offsets, data = texts.buffers()
    if data is None:
        return texts
    begin, end = np.frombuffer(offsets, dtype=np.int32)[[texts.offset, texts.offset + len(texts)]]
    # Looking for it costs a fraction of a replacement that has nothing to replace.
    found = (np.frombuffer(data, dtype=np.uint8)[begin:end] == ord(byte)).any()
    return pc.replace_substring(texts, byte, "") if found else texts


@dataclass(frozen=True)
class Lists:
    """Values in groups, one group per row.

    Attributes:
        values: Arrow array [m], group after group.
        offsets: int64 [rows + 1], where each group begins; the last is m.
    """

    values: pa.Array
    offsets: np.ndarray

    @classmethod
    def of(cls, column: pa.ListArray) -> Lists:
        """The groups of a column of lists; a missing list is an empty group."""
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        return cls(pc.list_flatten(column), offsets_of(lengths))

    @property
    def lengths(self) -> np.ndarray:
        """int64 [rows]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> np.ndarray:
        """Row of each value, int64 [m]."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.lengths)

    @property
    def places(self) -> np.ndarray:
        """Place of each value within its group, int64 [m], from 0 on."""
        return np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], self.lengths)

    def with_values(self, values: pa.Array) -> Lists:
        """Other values in the same groups."""
        return replace(self, values=values)

    def keep(self, mask: np.ndarray) -> Lists:
        """Only the values under ``mask``, bool [m]."""
        if mask.all():
            return self
        kept = np.concatenate([[0], np.cumsum(mask)])[self.offsets]
        return Lists(self.values.filter(pa.array(mask)), kept)

    def first(self, n: int | None) -> Lists:
        """The first ``n`` values of each group; None: all."""
        return self if n is None or self.lengths.max(initial=0) <= n else self.keep(self.places < n)

    def joined(self, separator: str = "") -> pa.Array:
        """One text per row, empty for an empty group; values must not be null."""
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), self.values), separator)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """int64 [rows + 1] from lengths [rows]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
