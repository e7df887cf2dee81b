"""Stop word lists, kept in one place so that documents and queries can never use different ones."""

from __future__ import annotations

from typing import Literal

StopwordList = Literal["en", "none"]

_EN = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
"""The English default of Lucene's StandardAnalyzer."""

STOPWORDS: dict[StopwordList, frozenset[str]] = {"en": frozenset(_EN.split()), "none": frozenset()}
