"""Versions of the rows of each split, for steps that may see only some of them, such as training and tuning."""

from __future__ import annotations

import duckdb
import pandas as pd

from skb_pipeline.questions.frame import SPLITS, queries_hash


def versions_by_split(frame: pd.DataFrame, con: duckdb.DuckDBPyConnection) -> tuple[str, dict[str, str]]:
    """Content hash of all queries, and of those of each split.

    A step that reads the rows of some splits and is keyed by their hashes neither sees nor depends on the others.

    Args:
        frame: columns of ``frame.QUERIES``.
        con: connection on the SKB that ``frame`` belongs to.
    """
    by_split = {split: queries_hash(frame[frame["split"] == split], con) for split in SPLITS}
    return queries_hash(frame, con), by_split
