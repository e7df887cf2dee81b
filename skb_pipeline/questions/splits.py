"""The one door to queries for steps that may see only some splits, such as training and tuning."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from skb_pipeline.questions.frame import queries_table
from skb_pipeline.storage.duck import frame_hash


def queries_for(frame: pd.DataFrame, allowed_splits: Iterable[str]) -> tuple[pd.DataFrame, str]:
    """The queries of the allowed splits, and the hash of just those rows.

    A step that reads queries through here and is keyed by the hash neither sees nor depends on other splits.

    Args:
        frame: columns of ``frame.QUERIES_SCHEMA``.
        allowed_splits: names of splits; one that no query has gives no rows.

    Returns:
        ``(rows, hash)``: rows in their order with a fresh index, and the content hash of all their columns.

    Raises:
        ValueError: no split is allowed, or a bare string was given.
        KeyError: a column is missing.
    """
    if isinstance(allowed_splits, str):
        raise ValueError(f"allowed_splits must be a collection of split names, not the string {allowed_splits!r}")
    allowed = set(allowed_splits)
    if not allowed:
        raise ValueError("no split is allowed: name at least one")
    rows = frame[frame["split"].isin(allowed)].reset_index(drop=True)
    return rows, frame_hash(queries_table(rows))
