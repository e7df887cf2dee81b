"""Conditions on fields as people write them on a command line: ``price < 50``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import ValidationError

from skb_pipeline.errors import UserError
from skb_pipeline.plans.plan import TARGET, Condition
from skb_pipeline.plans.schema import FieldKind, GraphSchema
from skb_pipeline.plans.validation import field_faults, fits_comparison
from skb_pipeline.text.cleaning import clean_text

_COMPARED = r"\s*(?P<op><=|>=|!=|=|<|>|\s(?:in|contains)\s)\s*(?P<value>.+?)\s*"
_LISTED = re.compile(r"\s*(?P<one>\"[^\"]*\"|'[^']*'|[^,\"']+?)\s*(?:,|$)")
_QUOTED = re.compile(r"\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'")


class ConditionError(UserError, ValueError):
    """A text that is no condition on a field of the dataset's answers; the message says what would be one."""


def read_condition(text: str, schema: GraphSchema, types: Sequence[str]) -> Condition:
    """A condition on the answers.

    Args:
        text: ``FIELD OP VALUE`` with an operator of plans; the values of ``in`` are joined by commas. A value may stand
            in quotes.
        schema: of the dataset.
        types: node types of the answers.

    Raises:
        ConditionError: it cannot be read, there is no such field, or the operator or the value does not suit it.
    """
    fields = sorted(map(re.escape, schema.fields_of(types)), key=len, reverse=True)
    match = re.fullmatch(rf"\s*(?P<field>{'|'.join([*fields, '.+?'])}){_COMPARED}", text, re.DOTALL)
    if match is None:
        raise ConditionError(
            f"{text!r} is no condition; write FIELD OP VALUE, such as 'price < 50' ({_fields(schema, types)})"
        )
    field, op = match["field"], match["op"].strip()
    kind = schema.fields_of(types).get(field)
    parts = [one["one"] for one in _LISTED.finditer(match["value"])] if op == "in" else [match["value"]]
    if op == "in" and _LISTED.sub("", match["value"]):
        raise ConditionError(f"{text!r}: a list of values is joined by commas; one with a comma stands in quotes")
    values = [_value(part, kind) for part in parts]
    try:
        condition = Condition.model_validate(
            {"var": TARGET, "field": field, "op": op, "value": values if op == "in" else values[0]}
        )
    except ValidationError as error:
        raise ConditionError(f"{text!r}: {error.errors()[0]['msg']}") from error
    faults = [fault.reason for fault in field_faults("condition", condition, types, schema)]
    if not faults and not fits_comparison(condition):
        faults = [f"{op} needs a value"]
    if faults:
        raise ConditionError(f"{text!r}: {faults[0]}")
    return condition


def _value(text: str, kind: FieldKind | None) -> str | float:
    quoted = _QUOTED.fullmatch(text.strip())
    bare = clean_text(text.strip() if quoted is None else quoted["double"] or quoted["single"] or "")
    if kind is FieldKind.NUMBER:
        try:
            return float(bare)
        except ValueError:
            return bare
    return bare


def _fields(schema: GraphSchema, types: Sequence[str]) -> str:
    found = schema.fields_of(types)
    return "fields: " + (", ".join(f"{name!r} ({kind})" for name, kind in found.items()) or "none can be compared")
