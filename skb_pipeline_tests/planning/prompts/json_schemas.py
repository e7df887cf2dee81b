"""The subset of JSON schema that plans are asked for in: a check of values against it, and values drawn from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

KEYWORDS = {
    "object": {"type", "properties", "required", "additionalProperties"},
    "array": {"type", "items", "maxItems"},
    "string": {"type", "enum", "minLength", "maxLength"},
    "boolean": {"type"},
}
"""What the converters of llama.cpp, xgrammar, outlines and OpenAI's strict mode all read."""


def misfits(value: Any, schema: dict[str, Any], at: str = "$") -> Iterator[str]:
    """Where ``value`` is not what the schema admits."""
    kind = schema["type"]
    if not isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool}[kind]):
        yield f"{at}: {value!r} is no {kind}"
    elif kind == "object":
        if list(value) != list(schema["properties"]):
            yield f"{at}: properties {list(value)}, not {list(schema['properties'])}"
        for name in value.keys() & schema["properties"].keys():
            yield from misfits(value[name], schema["properties"][name], f"{at}.{name}")
    elif kind == "array":
        if len(value) > schema["maxItems"]:
            yield f"{at}: {len(value)} items"
        for i, item in enumerate(value):
            yield from misfits(item, schema["items"], f"{at}[{i}]")
    elif kind == "string" and "enum" in schema:
        if value not in schema["enum"]:
            yield f"{at}: {value!r} is none of {schema['enum']}"
    elif kind == "string" and not schema["minLength"] <= len(value) <= schema["maxLength"]:
        yield f"{at}: {len(value)} characters"


def parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it."""
    yield schema
    for part in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        yield from parts(part)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Any value that the schema admits."""
    if schema["type"] == "object":
        return st.fixed_dictionaries({name: values(part) for name, part in schema["properties"].items()})
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), max_size=schema["maxItems"])
    if schema["type"] == "boolean":
        return st.booleans()
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return st.text(min_size=schema["minLength"], max_size=schema["maxLength"])
