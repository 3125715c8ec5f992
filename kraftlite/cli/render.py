"""Control records as plain JSON values."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from kraftlite.model.ids import Unchanged, uuid_to_str


def control_as_json(control: Any) -> dict[str, object]:
    value = as_json(control)
    assert isinstance(value, dict)
    return value


def as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: as_json(content) for name, content in pairs if not isinstance(content, Unchanged)}
    if isinstance(value, UUID):
        return uuid_to_str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return text_of(value)
    return value


def text_of(data: bytes | None) -> str | None:
    """UTF-8 where it is, escapes where it is not."""
    return None if data is None else data.decode("utf-8", "backslashreplace")
