"""Conditions on fields that a question states in words: ``under $50``, ``after 2019``, ``at least 4 stars``.

A condition is read only where kind, comparison and value all stand in the question, and one field of that kind is
meant: the only one, or the one that the question calls by its name. A price that is a range meets a bound if one of its
ends does.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from skb_pipeline.datasets.spec import NodeTypeSpec
from skb_pipeline.linking.folding import fold, singular
from skb_pipeline.plans.plan import Comparison
from skb_pipeline.text.settings import Shape


class Kind(StrEnum):
    """What the values of a field are."""

    PRICE = "price"
    """Parsed as ``<field>_min`` and ``<field>_max``."""
    RATING = "rating"
    """Parsed as ``<field>_mean``."""
    DATE = "date"
    """Parsed as ``<field>_date`` (ISO) and ``<field>_year``."""
    YEAR = "year"
    """An integer field that is called so."""
    NUMBER = "number"
    """Any other integer or number."""


class FieldOfKind(NamedTuple):
    """A field as it is declared, with its kind."""

    name: str
    kind: Kind


class Stated(NamedTuple):
    """A condition, and the piece ``question[start:end]`` that states it.

    ``field`` is the name under which values are stored (``price_min``); ``value`` is a number, or an ISO date.
    """

    field: str
    op: Comparison
    value: float | int | str
    start: int
    end: int


_FLAGS = re.IGNORECASE | re.ASCII
"""Without ASCII, other letters than i pass for it."""
_NUMBER = (
    r"(?:\d{1,3}(?:,\d{3}){1,4}(?:\.\d{1,6})?|\d{1,15}(?:\.\d{1,6})?)"
    r"(?!\d|[.,]\d)(?!\s?(?:(?:k|m|bn|thousand|million|billion)\b|%))"
)
_DENIED = re.compile(
    r"(?:\b(?:not|no|nothing|never|without|except|neither|nor|none|unless)|n['’]t)\s+"
    r"(?:(?:be|being|cost|costs|costing|priced|rated|published|made|released|any|those|ones|from)\s+)?$",
    _FLAGS,
)
_OR_BEFORE, _OR_BEHIND = re.compile(r"\bor\s+$", _FLAGS), re.compile(r"\s*,?\s*or\b", _FLAGS)
_MONTHS = {name.casefold(): n for n in range(1, 13) for name in (calendar.month_name[n], calendar.month_abbr[n])}
_DATE = (
    r"\d{4}-\d{2}-\d{2}"
    rf"|(?:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.? (?:\d{{1,2}}(?:st|nd|rd|th)?,? )?\d{{4}}"
    r"|(?:1[5-9]|20)\d{2}"
)
_BOUNDS: dict[str, Comparison] = {
    **dict.fromkeys(
        ("under", "below", "less than", "cheaper than", "lower than", "fewer than", "smaller than", "beneath"),
        "<",
    ),
    **dict.fromkeys(("at most", "up to", "no more than", "not more than", "a maximum of", "no higher than"), "<="),
    **dict.fromkeys(
        ("over", "above", "more than", "greater than", "higher than", "exceeding", "better than", "pricier than"),
        ">",
    ),
    **dict.fromkeys(("at least", "no less than", "not less than", "no fewer than", "a minimum of", "from"), ">="),
}
_TIMES: dict[str, Comparison] = {
    **dict.fromkeys(("before", "prior to", "earlier than", "older than"), "<"),
    **dict.fromkeys(("until", "up to", "no later than", "not later than"), "<="),
    **dict.fromkeys(("after", "later than", "newer than"), ">"),
    **dict.fromkeys(("since", "no earlier than", "from", "as of"), ">="),
    **dict.fromkeys(("in", "of", "during"), "="),
}


def _one_of(phrases: Sequence[str]) -> str:
    return "|".join(sorted((re.escape(phrase) for phrase in phrases), key=len, reverse=True))


_CURRENCY = r"(?:US)?[$€£]\s?"
_CURRENCY_BEHIND = r"\s?(?:dollars?|USD|euros?|EUR|pounds|GBP|bucks|[$€£])(?!\w)"
_STARS = r"[\s-]?(?:stars?|/5|out of (?:5|five))(?!\w)"
_BOUND = _one_of(list(_BOUNDS))
_TIME = _one_of(list(_TIMES))
_RANGE = r"(?:between|from) (?P<low>{0}) (?:and|to|until) (?P<high>{1})"

_PRICES = [
    re.compile(rf"\b(?P<bound>{_BOUND}) (?:{_CURRENCY}(?P<a>{_NUMBER})|(?P<b>{_NUMBER}){_CURRENCY_BEHIND})", _FLAGS),
    re.compile(
        r"\b" + _RANGE.format(rf"{_CURRENCY}(?:{_NUMBER})", rf"(?:{_CURRENCY})?(?:{_NUMBER})(?:{_CURRENCY_BEHIND})?"),
        _FLAGS,
    ),
    re.compile(r"\b" + _RANGE.format(rf"(?:{_NUMBER})", rf"(?:{_NUMBER}){_CURRENCY_BEHIND}"), _FLAGS),
]
_RATINGS = [
    re.compile(rf"\b(?P<bound>{_BOUND}) (?P<a>{_NUMBER}){_STARS}", _FLAGS),
    re.compile(rf"\brat(?:ed|ings?)(?: (?:of|is|are))? (?P<bound>{_BOUND}) (?P<a>{_NUMBER})(?:{_STARS})?", _FLAGS),
    re.compile(
        rf"(?<![\w.])(?P<atleast>{_NUMBER})(?:\+{_STARS}|{_STARS} (?:or|and) (?:more|better|higher|above|up)\b)", _FLAGS
    ),
    re.compile(r"\b" + _RANGE.format(rf"(?:{_NUMBER})", rf"(?:{_NUMBER}){_STARS}"), _FLAGS),
]
_DATES = [
    re.compile(r"\b" + _RANGE.format(rf"(?:{_DATE})", rf"(?:{_DATE})") + r"(?![\w$-])", _FLAGS),
    re.compile(rf"\b(?P<bound>{_TIME})(?: the)?(?: years?| early| late)? (?P<a>{_DATE})(?![\w-]|\.\d)", _FLAGS),
]


def fields_of(node_type: NodeTypeSpec) -> list[FieldOfKind]:
    """Fields of a type that conditions may speak of, in the order of the spec."""
    found = []
    for name, field in node_type.fields.items():
        if field.parse in (Kind.PRICE, Kind.RATING, Kind.DATE):
            found.append(FieldOfKind(name, Kind(field.parse)))
        elif field.parse is None and field.shape in (Shape.INTEGER, Shape.NUMBER):
            is_year = field.shape is Shape.INTEGER and "year" in fold(name.replace("_", " ")).split()
            found.append(FieldOfKind(name, Kind.YEAR if is_year else Kind.NUMBER))
    return found


def stated_conditions(question: str, fields: Sequence[FieldOfKind]) -> list[Stated]:
    """Conditions that a question states on fields of one type, in order; no piece of the question states two fields.

    Args:
        question: any text.
        fields: those of the type, as :func:`fields_of` gives them.
    """
    found: list[Stated] = []
    for field in _meant(question, fields, Kind.PRICE):
        found += _of_prices(question, field)
    for field in _meant(question, fields, Kind.RATING):
        found += _of_ratings(question, field)
    for field in (field for field in fields if field.kind is Kind.NUMBER):
        found += _of_numbers(question, field)
    for field in _meant(question, fields, Kind.DATE, Kind.YEAR):
        found += _of_dates(question, field)
    kept: list[Stated] = []
    for one in found:  # in the order of how sure a kind is
        if all((one.start, one.end) == (o.start, o.end) or one.end <= o.start or o.end <= one.start for o in kept):
            kept.append(one)
    sure = (one for one in kept if not _is_left_open(question, one))
    return sorted(sure, key=lambda s: (s.start, s.field, s.op))


def _is_left_open(question: str, one: Stated) -> bool:
    """Whether a condition is denied (``not over $100``) or one of several (``in 2019 or in 2020``), and so would say
    something else as it stands."""
    before, behind = question[: one.start], question[one.end :]
    return bool(_DENIED.search(before) or _OR_BEFORE.search(before) or _OR_BEHIND.match(behind))


def _meant(question: str, fields: Sequence[FieldOfKind], *kinds: Kind) -> list[FieldOfKind]:
    """The only field of some kinds, or the only one that the question calls by its name; none where that is open."""
    of_kind = [field for field in fields if field.kind in kinds]
    if len(of_kind) > 1:
        said = {singular(word) for word in fold(question).split()}
        of_kind = [f for f in of_kind if said.issuperset(map(singular, fold(f.name.replace("_", " ")).split()))]
    return of_kind if len(of_kind) == 1 else []


def _of_prices(question: str, field: FieldOfKind) -> Iterator[Stated]:
    """A bound from above is met by the least price, one from below by the highest."""
    ends = {True: f"{field.name}_min", False: f"{field.name}_max"}
    for pattern in _PRICES:
        for match in pattern.finditer(question):
            for op, value in _bounds_of(match):
                above = op in ("<", "<=")
                yield Stated(ends[above], op, value, match.start(), match.end())


def _of_ratings(question: str, field: FieldOfKind) -> Iterator[Stated]:
    for pattern in _RATINGS:
        for match in pattern.finditer(question):
            for op, value in _bounds_of(match):
                yield Stated(f"{field.name}_mean", op, value, match.start(), match.end())


def _of_numbers(question: str, field: FieldOfKind) -> Iterator[Stated]:
    """A number is stated with the field's name behind it (``fewer than 300 pages``) or before (``pages below 300``)."""
    name = re.escape(" ".join(singular(word) for word in fold(field.name.replace("_", " ")).split()))
    word = rf"{name}(?:s|es)?"
    patterns = (
        rf"\b(?P<bound>{_BOUND}) (?P<a>{_NUMBER}) {word}\b",
        rf"\b{word}(?: (?:of|is|are|was))? (?P<bound>{_BOUND}) (?P<a>{_NUMBER})(?![\w%]|\.\d)",
        r"\b" + _RANGE.format(rf"(?:{_NUMBER})", rf"(?:{_NUMBER})") + rf" {word}\b",
        rf"\b{word}(?: (?:of|is|are|was))? " + _RANGE.format(rf"(?:{_NUMBER})", rf"(?:{_NUMBER})") + r"(?![\w%]|\.\d)",
    )
    for pattern in patterns:
        for match in re.finditer(pattern, question, _FLAGS):
            for op, value in _bounds_of(match):
                yield Stated(field.name, op, value, match.start(), match.end())


def _bounds_of(match: re.Match[str]) -> list[tuple[Comparison, float | int]]:
    groups = match.groupdict()
    if groups.get("low") is not None:
        low, high = _number(groups["low"]), _number(groups["high"])
        return [(">=", low), ("<=", high)] if low <= high else []
    if groups.get("atleast") is not None:
        return [(">=", _number(groups["atleast"]))]
    return [(_BOUNDS[groups["bound"].casefold()], _number(groups["a"] or groups["b"]))]


def _number(text: str) -> float | int:
    plain = re.sub(r"[^\d.]", "", text).rstrip(".")
    return float(plain) if "." in plain else int(plain)


def _of_dates(question: str, field: FieldOfKind) -> Iterator[Stated]:
    for pattern in _DATES:
        for match in pattern.finditer(question):
            groups = match.groupdict()
            asked: list[tuple[Comparison, str]]
            if groups.get("low") is not None:
                asked = [(">=", groups["low"]), ("<=", groups["high"])]
            else:
                asked = [(_TIMES[groups["bound"].casefold()], groups["a"])]
            stated = [part for op, text in asked for part in _of_date(field, op, text)]
            if len({part.op for part in stated}) >= len(asked):
                yield from (part._replace(start=match.start(), end=match.end()) for part in stated)


def _of_date(field: FieldOfKind, op: Comparison, text: str) -> Iterator[Stated]:
    """What a bound says of a field; nothing where the field is coarser than the date, or there is no such day."""
    if re.fullmatch(r"\d{4}", text):
        yield Stated(f"{field.name}_year" if field.kind is Kind.DATE else field.name, op, int(text), 0, 0)
        return
    days = _days(text)
    if field.kind is not Kind.DATE or days is None:
        return
    first, last = (day.isoformat() for day in days)
    name = f"{field.name}_date"
    if op == "=" and first != last:
        yield Stated(name, ">=", first, 0, 0)
        yield Stated(name, "<=", last, 0, 0)
    else:
        yield Stated(name, op, last if op in (">", "<=") else first, 0, 0)


def _days(text: str) -> tuple[datetime.date, datetime.date] | None:
    """First and last day of ``2020-05-31``, ``May 31, 2020`` or ``May 2020``."""
    try:
        if text[:4].isdigit():
            day = datetime.date.fromisoformat(text)
            return day, day
        month = _MONTHS[re.match(r"[a-z]+", text.casefold()).group()]  # type: ignore[union-attr]
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if len(numbers) == 2:
            day = datetime.date(numbers[1], month, numbers[0])
            return day, day
        last = calendar.monthrange(numbers[0], month)[1]
        return datetime.date(numbers[0], month, 1), datetime.date(numbers[0], month, last)
    except ValueError:
        return None
