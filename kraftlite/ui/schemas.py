"""Pieces of JSON Schema, of which the description of the page's API is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
MOMENT: Final[Schema] = {"type": "integer", "minimum": 0}
"""Wall milliseconds since 1970."""


def text(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def some(properties: Mapping[str, Schema]) -> Schema:
    """An object that has these, and more."""
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def obj(properties: Mapping[str, Schema], required: Sequence[str] | None = None) -> Schema:
    """An object that has these, or those `required`, and no others."""
    found = {**some(properties), "additionalProperties": False}
    return found if required is None else {**found, "required": list(required)}
