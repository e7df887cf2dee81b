"""Stop word lists, kept in one place so that documents and queries can never use different ones."""

from __future__ import annotations

from typing import Literal

StopwordList = Literal["en", "en_long", "none"]

_EN = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
"""The English default of Lucene's StandardAnalyzer."""

_FURTHER = (
    "about above after again against all am any because been before being below between both can cannot could did do "
    "does doing don down during each few from further had has have having he her here hers herself him himself his how "
    "i its itself just me more most my myself nor now off once only other ought our ours ourselves out over own s same "
    "she should so some t than theirs them themselves those through too under until up very we were what when where "
    "which while who whom why would you your yours yourself yourselves"
)
"""The function words of Snowball's English list that Lucene's lacks."""

STOPWORDS: dict[StopwordList, frozenset[str]] = {
    "en": frozenset(_EN.split()),
    "en_long": frozenset(f"{_EN} {_FURTHER}".split()),
    "none": frozenset(),
}
