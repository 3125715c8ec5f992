"""Reads a metadata record field by field: what `log dump` prints, and what is wrong with bytes that a reader refused.

The JSON is that of Kafka's own converters, so that `kafka-dump-log` says the same: tagged fields that have their default are left
out, uuids and bytes are base64.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from kraftlite.metadata.kafka_records import values
from kraftlite.metadata.kafka_records.layout import Field, Kind, Layout
from kraftlite.model.errors import Fault
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.java_text import java_double


def record_as_json(layout: Layout, version: int, data: bytes, pos: int) -> dict[str, Any]:
    """The fields of a record behind its version. Raises Fault that names the field which does not add up."""
    walk = _Walk(data, pos)
    try:
        found = walk.fields(layout.fields_of(version))
        if walk.pos != len(data):
            walk.at = []
            raise ValueError(f"{len(data) - walk.pos} bytes too many")
    except (IndexError, struct.error, ValueError) as error:
        where = f", field {'.'.join(walk.at)}" if walk.at else ""
        raise Fault(f"{_named(layout, version)}{where}, cannot be read: {_reason(error)}") from error
    return found


def unreadable(layout: Layout, version: int, data: bytes, pos: int, error: Exception) -> Fault:
    """The Fault of a record that the compiled reader refused with `error`."""
    try:
        record_as_json(layout, version, data, pos)
    except Fault as found:
        return found
    return Fault(f"{_named(layout, version)} cannot be read: {error}")


def _named(layout: Layout, version: int) -> str:
    return f"a {layout.name} (type {layout.api_key}), version {version}"


def _reason(error: Exception) -> str:
    return "it ends too early" if isinstance(error, IndexError | struct.error) else str(error)


class _Walk:
    """A position in bytes, and the names of the fields around it."""

    def __init__(self, data: bytes, pos: int) -> None:
        self.pos = pos
        self.at: list[str] = []
        self._data = data

    def fields(self, described: Sequence[Field]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in described:
            if field.tag is None:
                found[field.name] = self._named(field, self._field)
            else:
                tagged[field.tag] = field
        self.at.append("tagged fields")
        for _ in range(self._length()):
            tag, end = self._length(), self._length() + self.pos
            if end > len(self._data):
                raise IndexError
            known = tagged.get(tag)
            if known is None or known.own:
                self.pos = end
                continue
            value = self._named(known, self._field)
            if self.pos != end:
                self.at.append(known.name)
                raise ValueError("it has another size than its tag says")
            if value != _shown(known.default):
                found[known.name] = value
        self.at.pop()
        return {field.name: found[field.name] for field in described if field.name in found}

    def _named(self, field: Field, read: Callable[[Field], Any]) -> Any:
        self.at.append(field.name)
        value = read(field)
        self.at.pop()
        return value

    def _field(self, field: Field) -> Any:
        kind = field.kind
        if kind.layout is not None:
            layout = struct.Struct(">" + kind.layout)
            (value,) = layout.unpack_from(self._data, self.pos)
            self.pos += layout.size
            if kind is Kind.UUID:
                return uuid_to_str(UUID(bytes=value))
            return value if math.isfinite(value) else java_double(value)  # as a text, which JSON has no number for
        count = self._string_length() if kind is Kind.STRING else self._length()
        if not count:
            if not field.nullable:
                raise ValueError("it is null")
            return None
        return _SIZED[kind](self, field, count - 1)

    def text(self, _field: Field, size: int) -> str:
        return self._take(size).decode()

    def base64(self, _field: Field, size: int) -> str:
        return base64.b64encode(self._take(size)).decode()

    def numbers(self, _field: Field, count: int) -> list[int]:
        return list(struct.unpack(f">{count}i", self._take(4 * count)))

    def uuids(self, _field: Field, count: int) -> list[str]:
        raw = self._take(16 * count)
        return [uuid_to_str(UUID(bytes=raw[start : start + 16])) for start in range(0, len(raw), 16)]

    def texts(self, field: Field, count: int) -> list[str]:
        return [self._named(_TEXT, self._field) for _ in range(count)]

    def structs(self, field: Field, count: int) -> list[dict[str, Any]]:
        return [self.fields(field.parts) for _ in range(count)]

    def _take(self, size: int) -> bytes:
        end = self.pos + size
        if end > len(self._data):
            raise IndexError
        raw, self.pos = self._data[self.pos : end], end
        return raw

    def _length(self) -> int:
        value, self.pos = values.length(self._data, self.pos)
        return value

    def _string_length(self) -> int:
        value, self.pos = values.string_length(self._data, self.pos)
        return value


_TEXT: Final = Field(name="element", kind=Kind.STRING, attribute="element")
_SIZED: Final[dict[Kind, Callable[[_Walk, Field, int], Any]]] = {
    Kind.STRING: _Walk.text,
    Kind.BYTES: _Walk.base64,
    Kind.INT32S: _Walk.numbers,
    Kind.UUIDS: _Walk.uuids,
    Kind.STRINGS: _Walk.texts,
    Kind.STRUCTS: _Walk.structs,
}


def _shown(default: object) -> object:
    return [] if default == () else default
