"""Message dataclasses to bytes and back, for unary calls and for the frames of hot methods.

The layout of frames is in proto/kraftlite/v1/common.proto: they are protobuf messages, but put together and taken apart by hand,
so that `payload` is never copied into or parsed by protobuf.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kraftlite.model.errors import ApiError, error_code
from kraftlite.model.ids import UNCHANGED
from kraftlite.model.limits import RPC_LONG_ITEMS, RPC_MAX_ANSWER_ITEMS, RPC_MAX_REQUEST_ITEMS
from kraftlite.model.messages.bounds import OutOfRange, checker, split_hint
from kraftlite.model.method import AnyMethod
from kraftlite.rpc.pbmap import MalformedMessage, Mapper, mapper

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from google.protobuf.message import Message

M = TypeVar("M", bound="DataclassInstance")

PAYLOAD: Final = "payload"
_ITEMS_AT_ONCE: Final = 256
"""Elements of a long list that protobuf takes over in one call, which nothing interrupts."""
_MODULES: Final = {
    "Raft": "raft_pb2",
    "Controller": "controller_pb2",
    "Replica": "replica_pb2",
    "Transactions": "transactions_pb2",
    "Introspection": "introspection_pb2",
    "Faults": "faults_pb2",
}

# Tags of the frame fields: (field number << 3) | wire type.
_CORRELATION: Final = 0x09
_CANCEL: Final = 0x10
_HEAD: Final = 0x1A
_REFUSAL: Final = 0x12
_PAYLOAD: Final = 0x22
_FAILURE: Final = 0x2A
_FIXED64: Final = struct.Struct("<BQ")
_NO_BYTES: Final = b""


def path(method: AnyMethod) -> str:
    """The gRPC path of a method."""
    return f"/kraftlite.v1.{method.service}/{method.name}"


def pb_class(method: AnyMethod, cls: type[object]) -> type[Message]:
    """The protobuf class that carries `cls` in this method's service."""
    for module_name in (_MODULES[method.service], "controller_pb2"):
        found: type[Message] | None = getattr(import_module(f"kraftlite._pb.{module_name}"), cls.__name__, None)
        if found is not None:
            return found
    raise TypeError(f"{cls.__name__} has no protobuf message of that name")


class MessageCodec(Generic[M]):
    """One message class of one method. `encode` and `decode` are whole messages, the `head` is one without its payload.

    What is decoded is within the bounds of `model/messages/bounds`: OutOfRange otherwise, also when its lists are too long.
    """

    def __init__(self, method: AnyMethod, cls: type[M]) -> None:
        self.cls = cls
        self._with_payload = method.hot and any(field.name == PAYLOAD for field in fields(cls))
        left_out = frozenset({PAYLOAD}) if self._with_payload else frozenset()
        self._mapper: Mapper[M] = mapper(cls, pb_class(method, cls), leave_out=left_out)
        self._count = _counter(cls)
        self._items = _counter(cls, of_pb=False)
        self._lists = _plain_lists(cls)
        self._max_items = RPC_MAX_REQUEST_ITEMS if cls is method.request else RPC_MAX_ANSWER_ITEMS
        self._check = checker(cls)

    def is_long(self, message: M) -> bool:
        """Return whether its lists have so many elements that it should not be encoded on the loop."""
        return self._items is not None and self._items(message) > RPC_LONG_ITEMS

    def encode(self, message: M) -> bytes:
        return self._mapper.encode(message)

    def encode_long(self, message: M) -> bytes:
        """The same message in pieces, head only: protobuf joins lists that are serialized one behind the other."""
        pieces: list[bytes] = []
        for name in self._lists:
            items = getattr(message, name)
            for start in range(0, len(items), _ITEMS_AT_ONCE):
                piece = {**dict.fromkeys(self._lists, ()), name: items[start : start + _ITEMS_AT_ONCE]}
                pieces.append(self._mapper.encode(replace(message, **piece)))
        return b"".join(pieces) if pieces else self._mapper.encode(message)

    def decode(self, data: bytes) -> M:
        """Raises MalformedMessage, OutOfRange."""
        return self._read(data)

    def split(self, message: M) -> tuple[bytes, bytes]:
        """Split a message into head and payload."""
        return self._mapper.encode(message), self.payload(message)

    def payload(self, message: M) -> bytes:
        """Return the bytes that travel raw behind the head."""
        return message.payload if self._with_payload else _NO_BYTES  # type: ignore[attr-defined]

    def join(self, head: bytes, payload: bytes | memoryview) -> M:
        """Raises MalformedMessage, OutOfRange."""
        return self._read(head, payload) if self._with_payload else self._read(head)

    def _read(self, data: bytes, *payload: bytes | memoryview) -> M:
        message = self._mapper.pb()
        try:
            message.MergeFromString(data)
            if self._count is not None and self._count(message) > self._max_items:
                raise OutOfRange(f"{self.cls.__name__} has more than {self._max_items} items in its lists")
            found = self._mapper.from_pb(message, *payload)
        except OutOfRange:
            raise
        except Exception as error:
            # protobuf has its own error type per implementation; UUID and enums raise ValueError
            raise MalformedMessage(f"{len(data)} bytes are not a {self.cls.__name__}: {error}") from error
        if self._check is not None:
            self._check(found)
        return found


def _counter(cls: type[Any], *, of_pb: bool = True) -> Callable[[Any], int] | None:
    """Count the elements that the lists of a message of `cls` have, at all depths; None when it has no lists. With `of_pb` it
    counts a protobuf message, and long lists by their length, before anything is made of them; else a dataclass, before it is
    encoded."""
    hints = typing.get_type_hints(cls)
    terms: list[str] = []
    names: dict[str, Any] = {"len": len, "sum": sum, "ABSENT": (None, UNCHANGED)}
    for field in fields(cls):
        inner, optional, many = split_hint(hints[field.name])
        nested = _counter(typing.cast("type[Any]", inner), of_pb=of_pb) if is_dataclass(inner) else None
        at = f"m.{field.name}.values" if of_pb and many and optional else f"m.{field.name}"
        term = ""
        if nested is not None:
            names[f"count_{field.name}"] = nested
        if many:
            term = f"len({at})"
            if nested is not None:
                term += f" + (sum([count_{field.name}(e) for e in {at}]) if len({at}) < {RPC_MAX_ANSWER_ITEMS} else 0)"
        elif nested is not None:
            term = f"count_{field.name}({at})"
        if term:
            terms.append(term if of_pb or not optional else f"(0 if {at} in ABSENT else {term})")
    if not terms:
        return None
    exec(compile(f"def count(m):\n    return {' + '.join(terms)}\n", f"<items {cls.__name__}>", "exec"), names)
    found: Callable[[Any], int] = names["count"]
    return found


def _plain_lists(cls: type[Any]) -> tuple[str, ...]:
    """The lists of a message whose other fields are plain values, so that it may be encoded in pieces; none when it has parts
    that would be there twice."""
    found: list[str] = []
    hints = typing.get_type_hints(cls)
    for field in fields(cls):
        inner, optional, many = split_hint(hints[field.name])
        if many and not optional:
            found.append(field.name)
        elif many or is_dataclass(inner):
            return ()
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a hot method, taken apart. Exactly one of `cancel`, `refusal`, `failure` and the head counts."""

    correlation_id: int
    head: bytes | None = None
    payload: bytes | memoryview = _NO_BYTES
    cancel: bool = False
    refusal: ApiError | None = None
    failure: str | None = None


def encode_head_frame(correlation_id: int, head: bytes, payload: bytes | bytearray | memoryview = _NO_BYTES) -> bytes:
    start = _FIXED64.pack(_CORRELATION, correlation_id)
    if not payload:
        return b"".join((start, _length(_HEAD, len(head)), head))
    return b"".join((start, _length(_HEAD, len(head)), head, _length(_PAYLOAD, len(payload)), payload))


def encode_cancel_frame(correlation_id: int) -> bytes:
    return _FIXED64.pack(_CORRELATION, correlation_id) + bytes((_CANCEL, 1))


def encode_refusal_frame(correlation_id: int, error: ApiError) -> bytes:
    from kraftlite._pb import common_pb2

    body: bytes = common_pb2.Refusal(error=error.code.value, message=error.message).SerializeToString()
    return _FIXED64.pack(_CORRELATION, correlation_id) + _length(_REFUSAL, len(body)) + body


def encode_failure_frame(correlation_id: int, reason: str) -> bytes:
    body = reason.encode()
    return _FIXED64.pack(_CORRELATION, correlation_id) + _length(_FAILURE, len(body)) + body


def decode_frame(data: bytes) -> Frame:
    """Raises MalformedMessage. Fields may come in any order; unknown ones are refused."""
    correlation_id, head, cancel = -1, None, False
    payload: bytes | memoryview = _NO_BYTES
    refusal, failure = None, None
    position, size = 0, len(data)
    try:
        while position < size:
            tag = data[position]
            if tag == _CORRELATION:
                correlation_id = _FIXED64.unpack_from(data, position)[1]
                position += 9
                continue
            value, position = _varint(data, position + 1)
            if tag == _CANCEL:
                cancel = bool(value)
                continue
            end = position + value
            if end > size:
                raise MalformedMessage(f"a frame of {size} bytes has a field that ends at byte {end}")
            if tag == _HEAD:
                head = data[position:end]
            elif tag == _PAYLOAD:
                payload = memoryview(data)[position:end]  # a copy would cost as much as the kernel's
            elif tag == _REFUSAL:
                refusal = _refusal(data[position:end])
            elif tag == _FAILURE:
                failure = data[position:end].decode()
            else:
                raise MalformedMessage(f"a frame has the unknown tag {tag:#x}")
            position = end
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"a frame of {size} bytes is cut short") from error
    if correlation_id < 0:
        raise MalformedMessage("a frame has no correlation id")
    if head is None and not cancel and refusal is None and failure is None:
        head = _NO_BYTES
    return Frame(correlation_id, head, payload, cancel, refusal, failure)


def _refusal(data: bytes) -> ApiError:
    from kraftlite._pb import common_pb2

    message = common_pb2.Refusal()
    try:
        message.MergeFromString(data)
    except Exception as error:
        raise MalformedMessage("a frame has a refusal that is not one") from error
    return ApiError(error_code(message.error), message.message if message.HasField("message") else None)


def _length(tag: int, value: int) -> bytes:
    if value < 0x80:
        return bytes((tag, value))
    out = bytearray((tag,))
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise MalformedMessage("a frame has a length of more than 64 bits")
