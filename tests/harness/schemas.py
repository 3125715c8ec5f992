"""Whether a value is what a JSON Schema says, as far as the description of the page's API uses it."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
_KNOWN = {
    *("type", "enum", "const", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items"),
    *("minimum", "maximum", "maxLength", "minItems", "maxItems"),
}


def problems(value: Any, schema: dict[str, Any], at: str = "it") -> list[str]:
    """All that is wrong; none: the value is what the schema says. A schema that says what nobody checks is wrong, too."""
    found = [f"{at}: {word} is not checked" for word in set(schema) - _KNOWN]
    found += [
        f"{at} is {value!r}, which none of {word} is"
        for word in ("anyOf", "oneOf")
        if word in schema and all(problems(value, one, at) for one in schema[word])
    ]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at} is {value!r}, not one of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{at} is {value!r}, not {schema['const']!r}")
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return [*found, f"{at} is {value!r}, not of type {' or '.join(kinds)}"]
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{at} is {value}, out of its bounds")
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        found.append(f"{at} has {len(value)} characters")
    if isinstance(value, dict):
        found += _of_object(value, schema, at)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{at} has {len(value)} items")
        for number, one in enumerate(value if "items" in schema else ()):
            found += problems(one, schema["items"], f"{at}[{number}]")
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind != "integer" or not isinstance(value, bool))


def _of_object(value: dict[str, Any], schema: dict[str, Any], at: str) -> list[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{at} has no {name}" for name in schema.get("required", []) if name not in value]
    for name, one in value.items():
        if name in known:
            found += problems(one, known[name], f"{at}.{name}")
        elif more is False:
            found.append(f"{at} has {name}, which nobody describes")
        elif isinstance(more, dict):
            found += problems(one, more, f"{at}.{name}")
    return found
