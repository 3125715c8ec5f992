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


EVENT: Final = some({"ts": MOMENT, "node": WHOLE, "event": TEXT})
ROWS: Final = array(some({"name": TEXT, "topic": TEXT, "partition": WHOLE, "isr": array(WHOLE), "standing": TEXT}))
NODE: Final = some(
    {
        "id": WHOLE,
        "roles": array(TEXT),
        "process": {"enum": ["running", "paused", "stopped", "unknown"]},
        "life": {"enum": ["alive", "silent", "paused", "dead", "unknown"]},
        "heard_ms": maybe(MOMENT),
        "status": maybe(some({})),
    }
)
STATE: Final = some(
    {
        "t": MOMENT,
        "nodes": array(NODE),
        "quorum": some(
            {"verdict": some({"kind": TEXT, "leader": maybe(WHOLE), "epoch": maybe(WHOLE)}), "claims": array(some({}))}
        ),
        "partitions": some({}),
        "faults": array(some({})),
        "headlines": array(some({"level": TEXT, "text": TEXT})),
        "clients": array(some({"client": TEXT, "topic": TEXT, "acked": WHOLE})),
        "matching": WHOLE,
        "rows": ROWS,
    }
)
