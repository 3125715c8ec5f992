"""Requests at the edges of what a schema allows, written by hand: kio would not write most of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any
from uuid import UUID

from kio.index import load_request_schema
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from kraftlite.protocol.primitives import uvarint

LAYOUTS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
    "error_code": ">h",
}
LONG = "\x1b[31m" + "x" * 30_000


@dataclass(frozen=True, kw_only=True)
class Extreme:
    """How the fields of a request are filled. `number` gets the struct layout of an integer, and has one answer to each. `text`
    may be another one each time."""

    name: str
    number: Callable[[str], int]
    text: str | Callable[[], str]
    data: bytes
    float64: float
    flag: bool
    uuid: UUID
    entries: int
    """Of every array; -1: null where that is allowed, else none."""
    longest: tuple[str, ...] = ()
    """Names of fields on the way to one array: it has `entries`, those before it have one, and all others none."""
    nulls: bool = False
    """Null wherever that is allowed."""
    tags: bool = True


def low(layout: str) -> int:
    return 0 if layout == ">H" else -(1 << (struct.calcsize(layout) * 8 - 1))


def high(layout: str) -> int:
    return (1 << 16) - 1 if layout == ">H" else (1 << (struct.calcsize(layout) * 8 - 1)) - 1


NONE = UUID(int=0)
ODD = UUID(int=(1 << 128) - 1)
KNOWN = UUID(int=1000)
SMALL_AND_LARGE = struct.pack(">ii", 1, 2**31 - 1)
EXTREMES = (
    Extreme(name="lowest", number=low, text="", data=b"", float64=-1e308, flag=False, uuid=NONE, entries=1),
    Extreme(name="highest", number=high, text=LONG, data=b"\xff" * 70_000, float64=1e308, flag=True, uuid=ODD, entries=2),
    Extreme(name="longest", number=high, text="x" * 32_767, data=bytes(61), float64=0.0, flag=True, uuid=ODD, entries=1),
    Extreme(name="nothing", number=lambda _: 0, text="", data=b"", float64=float("nan"), flag=False, uuid=NONE, entries=0),
    Extreme(name="null", number=lambda _: -1, text="x", data=b"", float64=1e999, flag=True, uuid=ODD, entries=-1, nulls=True),
    Extreme(name="one", number=lambda _: 1, text="events", data=bytes(61), float64=0.0, flag=True, uuid=KNOWN, entries=1),
    Extreme(name="zero", number=lambda _: 0, text="events", data=bytes(61), float64=-0.0, flag=True, uuid=KNOWN, entries=3),
    Extreme(name="minus", number=lambda _: -2, text="1", data=SMALL_AND_LARGE, float64=-1.0, flag=False, uuid=KNOWN, entries=1),
)  # fmt: skip


def extreme_body(key: int, version: int, how: Extreme) -> bytes:
    return _entity(load_request_schema(key, version), how)


def extreme_request(key: int, version: int, how: Extreme, correlation_id: int, client_id: bytes = b"\x1b[2J\xff") -> bytes:
    """A whole request without its size prefix, of a client whose id is nothing to print."""
    head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id
    return head + (b"\x00" if load_request_schema(key, version).__flexible__ else b"") + extreme_body(key, version, how)


def arrays(schema: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every array in a request, as the names of the fields on the way to it."""
    for field in fields(schema):
        kind = classify_field(field)
        way = (*before, field.name)
        if kind.is_array:
            yield way
        if isinstance(kind, EntityField | EntityTupleField):
            yield from arrays(kind.type_, way)


@dataclass(frozen=True, slots=True)
class _Field:
    """What a schema says of a field."""

    name: str
    tag: int | None
    is_array: bool
    schema: Any
    """Of an entity; None: it is a primitive."""
    kafka_type: str
    optional: bool


@cache
def _fields(schema: Any) -> tuple[_Field, ...]:
    """In the order in which they are written: those with a tag come last, by their tags."""
    found = []
    for field in fields(schema):
        kind, tag = classify_field(field), get_field_tag(field)
        entity = kind.type_ if isinstance(kind, EntityField | EntityTupleField) else None
        kafka_type = str(field.metadata.get("kafka_type", ""))
        found.append(_Field(field.name, None if tag is None else int(tag), kind.is_array, entity, kafka_type, is_optional(field)))
    return tuple(sorted(found, key=lambda it: -1 if it.tag is None else it.tag))


def _entity(schema: Any, how: Extreme, before: tuple[str, ...] = ()) -> bytes:
    flexible = bool(schema.__flexible__)
    all_fields = _fields(schema)
    plain = b"".join(_field(it, flexible, how, it.optional, before) for it in all_fields if it.tag is None)
    if not flexible:
        return plain
    tagged = [(it.tag, _field(it, flexible, how, False, before)) for it in all_fields if it.tag is not None] if how.tags else []
    tagged.append((77, b"unknown"))
    section = uvarint(len(tagged)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in sorted(tagged))
    return plain + section


def _field(field: _Field, flexible: bool, how: Extreme, nullable: bool, before: tuple[str, ...]) -> bytes:
    way = (*before, field.name)

    def one() -> bytes:
        if field.schema is not None:
            return _entity(field.schema, how, way)
        return _value(field.kafka_type, flexible, how, nullable and not field.is_array)

    if field.is_array:
        if nullable and how.nulls:
            return b"\x00" if flexible else struct.pack(">i", -1)
        count = max(0, how.entries)
        if how.longest and way != how.longest:
            count = int(way == how.longest[: len(way)])
        head = uvarint(count + 1) if flexible else struct.pack(">i", count)
        if callable(how.text):
            return head + b"".join(one() for _ in range(count))
        return head + (one() * count if count else b"")  # they are equal
    if field.schema is not None and nullable:
        return b"\xff" if how.nulls else b"\x01" + one()
    return one()


def _value(kafka_type: str, flexible: bool, how: Extreme, nullable: bool) -> bytes:
    if kafka_type in LAYOUTS:
        layout = LAYOUTS[kafka_type]
        number = how.number(layout)
        return struct.pack(layout, number if layout.islower() else number % (1 << 8 * struct.calcsize(layout)))
    if kafka_type == "bool":
        return bytes([how.flag])
    if kafka_type == "float64":
        return struct.pack(">d", how.float64)
    if kafka_type == "uuid":
        return how.uuid.bytes
    if kafka_type == "string":
        raw, wide = (how.text() if callable(how.text) else how.text).encode(), ">h"
    else:
        assert kafka_type in ("bytes", "records"), kafka_type
        raw, wide = how.data, ">i"
    if nullable and how.nulls:
        return b"\x00" if flexible else struct.pack(wide, -1)
    return (uvarint(len(raw) + 1) if flexible else struct.pack(wide, len(raw))) + raw


def everything(ranges: Any) -> Iterator[tuple[int, int]]:
    """Every (API, version) that is offered."""
    for one in ranges:
        for version in range(one.min_version, one.max_version + 1):
            yield one.api_key, version
