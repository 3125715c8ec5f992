"""All other messages by kio's schemas, imported one (api, version) at a time on first use.

Requests and responses are read here, by walking kio's dataclasses, and not by its native reader: that one refuses unknown tagged
fields (CP-05), and allocates what an array announces, so that five hostile bytes abort the process. What is sent is made of plain
dicts and written by kio: what a version does not have is left out, as Kafka's `ignorable` fields are.
"""

from __future__ import annotations

import datetime
import io
import struct
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

import kraftlite.protocol.kio_import  # noqa: F401
from kraftlite.model.errors import ErrorCode
from kraftlite.model.limits import MAX_RESPONSE_ITEMS
from kraftlite.model.shown import MAX_ERROR_TEXT, shown
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import (
    INT16,
    bounded,
    guarded,
    read_array_length,
    read_nullable_bytes,
    read_nullable_string,
    read_tags,
    read_uuid,
    skip_tags,
)

from kio.index import load_request_schema, load_response_schema  # isort: skip  # after kio_import
from kio.schema.errors import ErrorCode as KioErrorCode  # isort: skip
from kio.schema.index import api_key_map  # isort: skip
from kio.serial import entity_writer  # isort: skip
from kio.serial._implicit_defaults import get_tagged_field_default  # isort: skip
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional  # isort: skip

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_LONGEST_MS: Final = datetime.timedelta.max // _MILLISECOND
_SHORTEST_MS: Final = datetime.timedelta.min // _MILLISECOND
"""A timedelta ends before an int64 does, and sooner below zero than above: what is beyond counts as these, 2.7 million years."""
_TIMES: Final = ("timedelta_i32", "timedelta_i64")
_ERROR_TEXT: Final = "error text"
"""The type, in `_layout`, of a string that explains an error; other strings are written as they are."""
_MOMENT: Final = "datetime_i64"
_FIXED_SIZES: Final = {"int8": 1, "bool": 1, "int16": 2, "error_code": 2, "int32": 4, "int64": 8, _MOMENT: 8, "timedelta_i64": 8}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_request_schema: Final = cache(load_request_schema)
"""Looking a schema up by its name costs kio 7 to 20 microseconds each time."""
_response_schema: Final = cache(load_response_schema)

Reader = Callable[[memoryview, int], tuple[Any, int]]


@guarded
def decode_request(api_key: int, version: int, frame: memoryview, pos: int) -> Any:
    """kio's request dataclass of that version, from the body that begins at `pos`. Raises ProtocolViolation."""
    entity, _pos = _read_entity(_request_schema(api_key, version), frame, pos)
    return entity


def encode_request(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """The body of a request, without its header. Values as for `encode_response`."""
    return _written(_request_schema(api_key, version), values)


@bounded("response", MAX_RESPONSE_ITEMS)
def decode_response(api_key: int, version: int, frame: memoryview) -> Any:
    """kio's response dataclass of that version, from a frame that begins with the correlation id. Raises ProtocolViolation.

    Moments are ints (milliseconds): a datetime ends before an int64 does. An error code that nobody knows is
    UNKNOWN_SERVER_ERROR.
    """
    schema = _response_schema(api_key, version)
    flexible_header = int(cast(Any, schema).__header_schema__.__version__) >= 1
    entity, _pos = _read_entity(schema, frame, skip_tags(frame, 4) if flexible_header else 4)
    return entity


def api_name(api_key: int) -> str:
    """Kafka's name of an API, as `DescribeCluster`; a number that kio does not know stays one."""
    name = api_key_map.get(api_key)
    return f"API {api_key}" if name is None else "".join(part.capitalize() for part in str(name).split("_"))


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether a request of this version, and its header, have tagged fields (KIP-482)."""
    return bool(cast(Any, _request_schema(api_key, version)).__flexible__)


def encode_response(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """The body of a response, without its header. Arrays are lists of dicts, errors and times are ints (milliseconds)."""
    return _written(_response_schema(api_key, version), values)


def _written(schema: type[Any], values: Mapping[str, object]) -> bytes:
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, build_entity(schema, values))
    return buffer.getvalue()


# --- what is sent -----------------------------------------------------------------------------------------------------------


def refused_response(api_key: int, version: int, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> bytes | None:
    """The body of a response whose own error code is `code`, with nothing else in it. None: it has no such code."""
    schema = _response_schema(api_key, version)
    found: dict[str, object] = {}
    for field in fields(cast(Any, schema)):
        if field.default is MISSING:
            found[field.name] = _empty(field)
    if "error_code" not in {field.name for field in fields(cast(Any, schema))} or _NO_EMPTY in found.values():
        return None
    found["error_code"] = KioErrorCode(int(code))
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, schema(**found))
    return buffer.getvalue()


def encode_sparse_response(api_key: int, version: int, values: Mapping[str, Any]) -> bytes | None:
    """The same as `encode_response`; what is not in `values`, at any depth, says nothing. None: the version has no such field."""
    schema = _response_schema(api_key, version)
    if not any(field.name in values for field in fields(cast(Any, schema))):
        return None
    return _written(schema, _filled(schema, values))


def _filled(schema: Any, values: Mapping[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {**_blank(schema), **values}
    for name, _kind, nested, is_array in _layout(schema):
        if nested is not None and is_array and name in values:
            found[name] = [_filled(nested, it) for it in values[name]]
    return found


@cache
def _blank(schema: Hashable) -> Mapping[str, object]:
    """Plain values of the fields that have no default: they say nothing."""
    found: dict[str, object] = {}
    for field in fields(cast(Any, schema)):
        if field.default is MISSING:
            value = _empty(field)
            found[field.name] = 0 if isinstance(value, datetime.timedelta | datetime.datetime | KioErrorCode) else value
    return found


@cache
def throttle_place(api_key: int, version: int) -> int | None:
    """Return how many bytes of a response's body come before its throttle time. None: it has none, or has lists before it."""
    place = 0
    for field in fields(cast(Any, _response_schema(api_key, version))):
        if field.name == "throttle_time":
            return place
        size = _FIXED_SIZES.get(field.metadata["kafka_type"])
        if size is None:
            return None
        place += size
    return None


def entries_in(values: Any, limit: int) -> int:
    """Count the entries that the lists of a response have together; counting ends at `limit`."""
    count, left = 0, [values]
    while left and count < limit:
        value = left.pop()
        if isinstance(value, Mapping):
            left.extend(inner for inner in value.values() if isinstance(inner, list | tuple | Mapping))
        else:
            count += len(value)
            left.extend(inner for inner in value[:limit] if isinstance(inner, list | tuple | Mapping))
    return count


_NO_EMPTY: Final = object()
_EMPTY: Final[Mapping[str, object]] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "float64": 0.0,
    "uuid": None,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "error_code": KioErrorCode(0),
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
}


def _empty(field: Any) -> Any:
    """A value that says nothing."""
    kind = classify_field(field)
    if kind.is_array:
        return ()
    if is_optional(field):
        return None
    return _NO_EMPTY if isinstance(kind, EntityField) else _EMPTY.get(str(field.metadata.get("kafka_type", "")), _NO_EMPTY)


@cache
def _layout(schema: Hashable) -> tuple[tuple[str, str, type[Any] | None, bool], ...]:
    """Return, per field: name, Kafka type or `_ERROR_TEXT`, nested class or None, whether it is an array."""
    found = []
    for field in fields(cast(Any, schema)):
        kind = classify_field(field)
        nested = kind.type_ if isinstance(kind, EntityField | EntityTupleField) else None
        told = field.name.endswith("error_message")
        kafka_type = _ERROR_TEXT if told else str(field.metadata.get("kafka_type", ""))
        found.append((field.name, kafka_type, nested, kind.is_array))
    return tuple(found)


def build_entity(schema: type[Any], values: Mapping[str, object]) -> Any:
    """A kio dataclass from plain values; those that this version does not have are left out."""
    found: dict[str, object] = {}
    for name, kafka_type, nested, is_array in _layout(cast(Hashable, schema)):
        if name not in values:
            continue
        value: Any = values[name]
        if value is None:
            found[name] = None
        elif nested is not None:
            found[name] = tuple(build_entity(nested, item) for item in value) if is_array else build_entity(nested, value)
        elif is_array:
            found[name] = tuple(value)
        elif kafka_type == "error_code":
            found[name] = KioErrorCode(int(value))
        elif kafka_type in _TIMES:
            found[name] = value * _MILLISECOND
        elif kafka_type == _MOMENT:
            found[name] = _EPOCH + value * _MILLISECOND
        elif kafka_type == _ERROR_TEXT:  # it may quote a name of the request, which may be as long as a string can be
            found[name] = shown(value, MAX_ERROR_TEXT)
        else:
            found[name] = value
    return schema(**found)


_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 64, _MOMENT: 64}


def misfit(api_key: int, version: int, values: Mapping[str, object]) -> str | None:
    """The first number of a request's values that its field cannot hold, with what is allowed there; None: there is none."""
    return _misfit(_request_schema(api_key, version), values)


def _misfit(schema: type[Any], values: Mapping[str, object]) -> str | None:
    for name, kafka_type, nested, is_array in _layout(cast(Hashable, schema)):
        value: Any = values.get(name)
        for item in value or () if is_array else (value,):
            if item is not None and nested is not None:
                found = _misfit(nested, item)
            else:
                found = _beyond(name, item, _BITS.get(kafka_type, 0))
            if found is not None:
                return found
    return None


def _beyond(name: str, value: object, bits: int) -> str | None:
    least = -1 << bits - 1 if bits else 0
    if not bits or not isinstance(value, int) or least <= value < -least:
        return None
    return f"{name.replace('_', ' ')} {value}: allowed is a whole number from {least} to {-least - 1}"


# --- what is read ----------------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    tag: int | None
    read: Reader
    default: Any
    """The value of a tagged field that is not there."""


@cache
def _fields(schema: Hashable) -> tuple[_Field, ...]:
    found = []
    for field in fields(cast(Any, schema)):
        tag = get_field_tag(field)
        default = None
        if tag is not None:
            default = field.default if field.default is not MISSING else get_tagged_field_default(field)
        read = _field_reader(cast(Any, schema), field, tagged=tag is not None)
        found.append(_Field(field.name, None if tag is None else int(tag), read, default))
    return tuple(found)


def _read_entity(schema: type[Any], frame: memoryview, pos: int) -> tuple[Any, int]:
    known = _fields(cast(Hashable, schema))
    found: dict[str, object] = {}
    for field in known:
        if field.tag is None:
            found[field.name], pos = field.read(frame, pos)
        else:
            found[field.name] = field.default
    if schema.__flexible__:
        tags, pos = read_tags(frame, pos)
        for field in known:
            if field.tag is not None and field.tag in tags:
                found[field.name], _end = field.read(tags[field.tag], 0)
    return schema(**found), pos


def _field_reader(schema: type[Any], field: Any, *, tagged: bool) -> Reader:
    flexible = bool(schema.__flexible__)
    kind = classify_field(field)
    nullable = is_optional(field) and not tagged
    item: Reader
    if isinstance(kind, EntityField | EntityTupleField):
        item = partial(_read_entity, kind.type_)
    else:
        item = _primitive(field.metadata["kafka_type"], flexible, nullable and not kind.is_array)
    if kind.is_array:
        plain = _INTEGERS.get(str(field.metadata.get("kafka_type", "")))
        if plain is not None:
            return _array_of_integers(plain, field.name, flexible, nullable)
        return _array_of(item, field.name, flexible, nullable)
    if isinstance(kind, EntityField) and nullable:
        return _nullable_entity(item)
    return item


def _array_of(item: Reader, name: str, flexible: bool, nullable: bool) -> Reader:
    def read(frame: memoryview, pos: int) -> tuple[Any, int]:
        count, pos = read_array_length(frame, pos, flexible)
        if count is None:
            if not nullable:
                raise ProtocolViolation(f"null where {name} must be")
            return None, pos
        items = []
        for _ in range(count):
            value, pos = item(frame, pos)
            items.append(value)
        return tuple(items), pos

    return read


_INTEGERS: Final = {"int8": ("b", 1), "int16": ("h", 2), "int32": ("i", 4), "int64": ("q", 8)}


def _array_of_integers(plain: tuple[str, int], name: str, flexible: bool, nullable: bool) -> Reader:
    """All at once: most elements of a response about a cluster are ids of replicas."""
    kind, size = plain

    def read(frame: memoryview, pos: int) -> tuple[Any, int]:
        count, pos = read_array_length(frame, pos, flexible)
        if count is None:
            if not nullable:
                raise ProtocolViolation(f"null where {name} must be")
            return None, pos
        return struct.unpack_from(f">{count}{kind}", frame, pos), pos + count * size

    return read


def _nullable_entity(item: Reader) -> Reader:
    """Read a struct that may be absent: one byte says whether it is there (KIP-893)."""

    def read(frame: memoryview, pos: int) -> tuple[Any, int]:
        return (None, pos + 1) if frame[pos] >= 0x80 else item(frame, pos + 1)

    return read


_FIXED: Final = {
    name: struct.Struct(layout)
    for name, layout in (
        ("int8", ">b"),
        ("int16", ">h"),
        ("int32", ">i"),
        ("int64", ">q"),
        ("uint16", ">H"),
        ("float64", ">d"),
        ("bool", ">?"),
        ("timedelta_i32", ">i"),
        ("timedelta_i64", ">q"),
        ("datetime_i64", ">q"),
    )
}
_KIO_CODES: Final = {int(code): code for code in KioErrorCode}


def _read_error_code(frame: memoryview, pos: int) -> tuple[Any, int]:
    (number,) = INT16.unpack_from(frame, pos)
    return _KIO_CODES.get(number, KioErrorCode(-1)), pos + 2


def _primitive(kafka_type: str, flexible: bool, nullable: bool) -> Reader:
    if kafka_type == "uuid":
        return read_uuid
    if kafka_type == "error_code":
        return _read_error_code
    if kafka_type == "string":

        def read_text(frame: memoryview, pos: int) -> tuple[Any, int]:
            value, pos = read_nullable_string(frame, pos, flexible)
            if value is None and not nullable:
                raise ProtocolViolation("null where a string must be")
            return value, pos

        return read_text
    if kafka_type in ("bytes", "records"):

        def read_data(frame: memoryview, pos: int) -> tuple[Any, int]:
            value, pos = read_nullable_bytes(frame, pos, flexible)
            if value is None and not nullable:
                raise ProtocolViolation("null where bytes must be")
            return value, pos

        return read_data
    layout = _FIXED[kafka_type]
    is_time = kafka_type in _TIMES

    def read_fixed(frame: memoryview, pos: int) -> tuple[Any, int]:
        (value,) = layout.unpack_from(frame, pos)
        if is_time:
            value = max(_SHORTEST_MS, min(value, _LONGEST_MS)) * _MILLISECOND
        return value, pos + layout.size

    return read_fixed
