"""Slices: named subsets of the questions over which metrics are also reported."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from skb_pipeline.evaluation.metrics import distinct_answers

BoolArray = npt.NDArray[np.bool_]

_BY_VALUE = ("template", "wording", "style", "sample")
_BY_TRUTH = (("uses_alias", "alias"), ("seen_answer", "seen_answer"))
_BY_COUNT = (("answers=1", 1, 1), ("answers=2-5", 2, 5), ("answers=6-20", 6, 20), ("answers=>20", 21, np.inf))


def slice_masks(queries: pd.DataFrame) -> dict[str, BoolArray]:
    """Slice name -> bool [queries], non-empty slices only, always in the same order.

    ``all``; ``template=``, ``wording=``, ``style=`` and ``sample=`` followed by each value that occurs; ``alias=yes``
    and ``alias=no``; ``seen_answer=yes`` and ``=no`` (test questions whose answers training questions had, and the
    rest); and four ranges of the number of distinct answers. An absent column gives no slice, a null is in
    none of its column's slices, a query without answers in none of the ranges.

    Args:
        queries: ``query_id`` and ``answer_ids``; optionally ``template``, ``wording``, ``style``, ``sample`` (str) and
            ``uses_alias`` and ``seen_answer`` (bool).

    Raises:
        TypeError: answers are not integers, or ``uses_alias`` or ``seen_answer`` holds something else than booleans.
    """
    masks: dict[str, BoolArray] = {"all": np.ones(len(queries), dtype=bool)}
    for column in _BY_VALUE:
        if column in queries.columns:
            values = queries[column]
            for value in sorted(values.dropna().unique()):
                masks[f"{column}={value}"] = (values == value).to_numpy(dtype=bool, na_value=False)
    for column, name in _BY_TRUTH:
        if column in queries.columns:
            truth = queries[column].astype("boolean")
            masks[f"{name}=yes"] = truth.to_numpy(dtype=bool, na_value=False)
            masks[f"{name}=no"] = (~truth).to_numpy(dtype=bool, na_value=False)
    _, n_answers = distinct_answers(queries)
    for name, low, high in _BY_COUNT:
        masks[name] = (n_answers >= low) & (n_answers <= high)
    return {name: mask for name, mask in masks.items() if mask.any()}
