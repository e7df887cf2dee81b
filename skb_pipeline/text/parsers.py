"""Parsers of shop-like fields: values read out of text such as ``$12 - $19``, kept beside the text itself.

A field declared ``{shape: text, parse: price}`` keeps its raw text, and the parsed values are stored beside it under
``<field>_<suffix>``:

=============  ==================================================================  =========================
parse          suffixes                                                            reads
=============  ==================================================================  =========================
``price``      min, max                                                            ``$12 - $19``, ``$1,299.00``
``rank``       number, category                                                    ``950,041 in Sports & Outdoors (``
``rating``     mean, count                                                         reviews, ``4.5 out of 5 stars``
``dimensions`` length, width, height, unit, weight, weight_unit                    ``10 x 5 x 3 inches ; 2 pounds``
``weight``     number, unit, grams                                                 ``1.44 ounces``
``date``       date (ISO 8601), year                                               ``January 31, 2020``
=============  ==================================================================  =========================

What a parser does not understand gives no value and a counted reason; digits are never picked out of text that does
not fit as a whole. A missing value is no failure.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from skb_pipeline.text.cleaning import clean_text, storable
from skb_pipeline.text.markup import strip_html

Parsed = dict[str, str | int | float]
"""suffix -> value."""

_AMOUNT = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})(?:\.[0-9]+)?|\.[0-9]+"
_CURRENCY = r"(?:US\$|CA\$|A\$|[$€£¥₹]|USD|EUR|GBP|JPY|INR|CAD|AUD)"
_PRICE = re.compile(rf"(?:{_CURRENCY}\s*)?({_AMOUNT})(?:\s*{_CURRENCY})?")
_RANGE = re.compile(r"\s*(?:[-–—]|\bto\b)\s*")
_RANK = re.compile(r">?\s*#?\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})(?:\s+in\s+(\S.*?))?\s*(?:\(.*)?", re.DOTALL)
_RATING = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:/|out of)\s*([0-9]+)(?![0-9.]).*", re.DOTALL)
_WEIGHT_UNITS = {
    "pound": 453.59237, "lb": 453.59237, "ounce": 28.349523125, "oz": 28.349523125,
    "kilogram": 1000.0, "kg": 1000.0, "gram": 1.0, "g": 1.0, "milligram": 0.001, "mg": 0.001,
}  # fmt: skip
_LENGTH_UNITS = {"inch", "inches", "in", "feet", "foot", "ft", "cm", "centimeter", "mm", "millimeter", "meter", "m"}
_QUANTITY = re.compile(rf"({_AMOUNT})\s*([a-zA-Z]+)\.?\s*(?:\(.*)?", re.DOTALL)
_SIZE = re.compile(rf"({_AMOUNT})\s*[x×]\s*({_AMOUNT})(?:\s*[x×]\s*({_AMOUNT}))?\s*([a-zA-Z]+)\.?")
_DATE_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y")
_REVIEW_KEYS = ("rating", "overall", "stars", "score")


def parse_field(value: Any, parse: str, counts: Counter[str]) -> Parsed:
    """Parsed values of one raw field value; empty when it is missing or does not fit.

    Args:
        value: as the source has it: text, a number, a list, or such as JSON text.
        parse: a key of :data:`PARSED`.
        counts: gets ``<parse>_<reason>`` for each failure.
    """
    failures: Counter[str] = Counter()
    found = _PARSERS[parse](_unpacked(value), failures)
    for reason, n in failures.items():
        counts[f"{parse}_{reason}"] += n
    return found


def _unpacked(value: Any) -> Any:
    """Text that is a JSON list becomes that list, blank items are dropped, and a list of one becomes its item."""
    if isinstance(value, str):
        text = clean_text(value)
        if not text.startswith("["):
            return text or None
        # Cleaning joins the letter of an escape and a combining mark behind it, so JSON may be broken by it.
        for written in (text, storable(value).strip()):
            try:
                value = json.loads(written)
                break
            except (ValueError, RecursionError):
                continue
        else:
            return text
    if isinstance(value, list | tuple):
        value = [v for v in (_unpacked(item) for item in value) if v not in (None, "", [])]
        return value[0] if len(value) == 1 else value or None
    return None if value == "" else value


def _price(value: Any, failures: Counter[str]) -> Parsed:
    if value is None:
        return {}
    if (number := _plain_number(value)) is not None:
        return {"min": number, "max": number} if number >= 0 else _fail(failures, "negative")
    if not isinstance(value, str):
        return _fail(failures, "unparseable")
    ends = [_PRICE.fullmatch(part) for part in _RANGE.split(value)]
    if len(ends) > 2 or not all(ends):
        return _fail(failures, "unparseable")
    amounts = [_amount(end[1]) for end in ends if end]
    if amounts[0] > amounts[-1]:
        return _fail(failures, "range_reversed")
    return {"min": amounts[0], "max": amounts[-1]}


def _rank(value: Any, failures: Counter[str]) -> Parsed:
    """Of several ranks the first counts: shops list the main category first."""
    if isinstance(value, list):
        failures["further_ranks_left_out"] += len(value) - 1
        value = value[0]
    if value is None:
        return {}
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return {"number": value}
    found = _RANK.fullmatch(strip_html(value).strip()) if isinstance(value, str) else None
    if found is None:
        return _fail(failures, "unparseable")
    parsed: Parsed = {"number": int(found[1].replace(",", ""))}
    if found[2]:
        parsed["category"] = found[2]
    return parsed


def _rating(value: Any, failures: Counter[str]) -> Parsed:
    """Mean of all ratings that can be read; the others are counted."""
    if value is None:
        return {}
    items = value if isinstance(value, list) else [value]
    ratings = [rating for rating in map(_one_rating, items) if rating is not None]
    if len(ratings) < len(items):
        failures["unparseable"] += len(items) - len(ratings)
    return {"mean": math.fsum(ratings) / len(ratings), "count": len(ratings)} if ratings else {}


def _one_rating(item: Any) -> float | None:
    if isinstance(item, dict):
        item = next((item[key] for key in _REVIEW_KEYS if item.get(key) is not None), None)
    if (number := _plain_number(item)) is not None:
        return number if number >= 0 else None
    found = _RATING.fullmatch(item.strip()) if isinstance(item, str) else None
    if found is None or float(found[1]) > float(found[2]):
        return None
    return float(found[1])


def _dimensions(value: Any, failures: Counter[str]) -> Parsed:
    """Size and weight on both sides of `` ; ``. Without that mark nothing is read: what the text lists is unclear."""
    if value is None:
        return {}
    if not isinstance(value, str):
        return _fail(failures, "unparseable")
    parts = re.split(r"\s*;\s*", value)
    if len(parts) != 2:
        return _fail(failures, "without_separator" if len(parts) == 1 else "unparseable")
    size = _SIZE.fullmatch(parts[0])
    weight = _quantity(parts[1])
    if (
        size is None
        or size[4].lower().removesuffix("s") not in {u.removesuffix("s") for u in _LENGTH_UNITS}
        or not weight
    ):
        return _fail(failures, "unparseable")
    parsed: Parsed = {"length": _amount(size[1]), "width": _amount(size[2])}
    if size[3]:
        parsed["height"] = _amount(size[3])
    return parsed | {"unit": size[4].lower(), "weight": weight[0], "weight_unit": weight[1]}


def _weight(value: Any, failures: Counter[str]) -> Parsed:
    if value is None:
        return {}
    found = _quantity(value) if isinstance(value, str) else None
    if found is None:
        return _fail(failures, "unparseable")
    number, unit = found
    return {"number": number, "unit": unit, "grams": number * _grams(unit)}


def _date(value: Any, failures: Counter[str]) -> Parsed:
    """ISO dates and dates with the month's name. ``01/02/2020`` is refused: it is two days."""
    if value is None:
        return {}
    if isinstance(value, datetime | date):
        return {"date": value.strftime("%Y-%m-%d"), "year": value.year}
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if re.fullmatch(r"[0-9]{4}", text):
        return {"year": int(text)}
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(?:Z|[+-][0-9:]+)?", text):
        text = text[:10]
    for form in _DATE_FORMATS:
        try:
            day = datetime.strptime(text, form)
        except ValueError:
            continue
        return {"date": day.strftime("%Y-%m-%d"), "year": day.year}
    return _fail(
        failures, "ambiguous" if re.fullmatch(r"[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2,4}", text) else "unparseable"
    )


_PARSERS: dict[str, Callable[[Any, Counter[str]], Parsed]] = {
    "price": _price,
    "rank": _rank,
    "rating": _rating,
    "dimensions": _dimensions,
    "weight": _weight,
    "date": _date,
}
PARSED: dict[str, tuple[str, ...]] = {
    "price": ("min", "max"),
    "rank": ("number", "category"),
    "rating": ("mean", "count"),
    "dimensions": ("length", "width", "height", "unit", "weight", "weight_unit"),
    "weight": ("number", "unit", "grams"),
    "date": ("date", "year"),
}
"""Suffixes of the values each parser can give."""


def _fail(failures: Counter[str], reason: str) -> Parsed:
    failures[reason] += 1
    return {}


def _plain_number(value: Any) -> float | None:
    """A number, or text that is nothing but a number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) and abs(value) < 1e15 else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", value.strip()):
        return float(value)
    return None


def _amount(text: str) -> float:
    return float(text.replace(",", ""))


def _quantity(text: str) -> tuple[float, str] | None:
    """(number, unit as written, in small letters) of a weight."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or _unit_name(found[2]) not in _WEIGHT_UNITS:
        return None
    return _amount(found[1]), found[2].lower()


def _unit_name(unit: str) -> str:
    unit = unit.lower()
    return unit if unit in _WEIGHT_UNITS else unit.removesuffix("s")


def _grams(unit: str) -> float:
    return _WEIGHT_UNITS[_unit_name(unit)]
