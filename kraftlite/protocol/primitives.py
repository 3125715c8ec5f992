"""Kafka's primitive types, read from a frame in place and written as bytes.

A reader takes the frame and a position and returns the value and the position behind it. It raises IndexError, struct.error,
ValueError or `ProtocolViolation` when the frame ends early or makes no sense: `guarded` (for requests) and `bounded` (for
everything else) turn all of them into the last.

These forms are everybody's. Three modules keep varints of their own: `log/batch` and `log/scan` read those of records (zigzag) in
their inner loops, and `rpc/codec` reads protobuf's, of 64 bits.
"""

from __future__ import annotations

import datetime
import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Final, ParamSpec, TypeVar
from uuid import UUID

from kraftlite.model.limits import MAX_REQUEST_ITEMS, MAX_STRING_BYTES, MAX_TAGGED_FIELDS
from kraftlite.protocol.errors import ProtocolViolation

P = ParamSpec("P")
R = TypeVar("R")

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
NO_TAGS: Final = b"\x00"

Position = int


class _Allowance(threading.local):
    """The elements of arrays and tagged fields that the bytes that are being read in this thread may still have."""

    left = 0


_allowance = _Allowance()


def spend(items: int) -> None:
    """Count elements that a frame announces, before they are read. One element costs nothing: the usual request has no more,
    and a nest of such is bounded by what is around it. Raises ProtocolViolation."""
    if items > 1:
        _allowance.left -= items
        if _allowance.left < 0:
            raise _TooMany(items)


class _TooMany(ValueError):
    """More elements are announced than `bounded` allows."""


def bounded(
    what: str, max_items: int, error: Callable[[str], Exception] = ProtocolViolation
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a parser of a whole `what` raise `ProtocolViolation`, or another `error` made of the reason, whenever the bytes do not
    add up, and when its arrays have more elements together than `max_items`. Positional arguments only."""

    def decorate(parse: Callable[P, R]) -> Callable[P, R]:
        @wraps(parse)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            _allowance.left = max_items
            try:
                return parse(*args)  # type: ignore[call-arg]
            except (ProtocolViolation, IndexError, struct.error, ValueError) as found:
                if isinstance(found, _TooMany):
                    raise error(f"a {what} of more than {max_items} elements") from None
                if not isinstance(found, ProtocolViolation):
                    raise error(f"unreadable {what}: {found}") from found
                if error is ProtocolViolation:
                    raise
                raise error(found.reason) from found

        return checked

    return decorate


guarded: Final = bounded("request", MAX_REQUEST_ITEMS)
"""The bound for requests that a broker reads."""


def take(view: memoryview, pos: Position, length: int) -> tuple[memoryview, Position]:
    end = pos + length
    if length < 0 or end > len(view):
        raise ProtocolViolation(f"{length} bytes announced, {len(view) - pos} left")
    return view[pos:end], end


def read_uvarint(view: memoryview, pos: Position) -> tuple[int, Position]:
    value = view[pos]
    pos += 1
    if value < 0x80:
        return value, pos
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise ProtocolViolation("a varint is longer than 5 bytes")


def read_string(view: memoryview, pos: Position, flexible: bool) -> tuple[str, Position]:
    value, pos = read_nullable_string(view, pos, flexible)
    if value is None:
        raise ProtocolViolation("null where a string must be")
    return value, pos


def read_nullable_string(view: memoryview, pos: Position, flexible: bool) -> tuple[str | None, Position]:
    if flexible:
        length = view[pos]
        if length < 0x80:
            pos += 1
        else:
            length, pos = read_uvarint(view, pos)
        length -= 1
    else:
        (length,) = INT16.unpack_from(view, pos)
        pos += 2
    if length == -1:
        return None, pos
    end = pos + length
    if length < 0 or end > len(view):
        raise ProtocolViolation(f"a string of {length} bytes in {len(view) - pos}")
    if length > MAX_STRING_BYTES:
        raise ProtocolViolation(f"a string of {length} bytes: allowed are {MAX_STRING_BYTES}")
    return str(view[pos:end], "utf-8"), end


def read_nullable_bytes(view: memoryview, pos: Position, flexible: bool) -> tuple[bytes | None, Position]:
    """A copy: what is read outlives the frame."""
    if flexible:
        length, pos = read_uvarint(view, pos)
        length -= 1
    else:
        (length,) = INT32.unpack_from(view, pos)
        pos += 4
    if length == -1:
        return None, pos
    raw, pos = take(view, pos, length)
    return bytes(raw), pos


def read_uuid(view: memoryview, pos: Position) -> tuple[UUID, Position]:
    raw, pos = take(view, pos, 16)
    return _uuid(bytes(raw)), pos


@lru_cache(maxsize=4096)
def _uuid(raw: bytes) -> UUID:
    """The same few ids come with every request, and a UUID costs more than the rest of its partition."""
    return UUID(bytes=raw)


def read_array_length(view: memoryview, pos: Position, flexible: bool) -> tuple[int | None, Position]:
    """None for a null array. A count that the rest of the frame cannot hold is refused, which bounds every loop over it."""
    if flexible:
        count, pos = read_uvarint(view, pos)
        count -= 1
    else:
        (count,) = INT32.unpack_from(view, pos)
        pos += 4
    if count == -1:
        return None, pos
    if count < 0 or count > len(view) - pos:
        raise ProtocolViolation(f"an array of {count} in {len(view) - pos} bytes")
    spend(count)
    return count, pos


def read_count(view: memoryview, pos: Position, flexible: bool) -> tuple[int, Position]:
    """The length of an array that must not be null."""
    if flexible and 0 < (small := view[pos]) < 0x80 and small <= len(view) - pos:
        if small > 2:
            spend(small - 1)
        return small - 1, pos + 1
    count, pos = read_array_length(view, pos, flexible)
    if count is None:
        raise ProtocolViolation("null where an array must be")
    return count, pos


def _check_tags(count: int) -> None:
    if count > MAX_TAGGED_FIELDS:
        raise ProtocolViolation(f"a section of {count} tagged fields: allowed are {MAX_TAGGED_FIELDS}")
    spend(count)


def skip_tags(view: memoryview, pos: Position) -> Position:
    """Pass over a section of tagged fields, all unknown (CP-05)."""
    count = view[pos]
    pos += 1
    if count == 0:
        return pos
    if count >= 0x80:
        count, pos = read_uvarint(view, pos - 1)
    _check_tags(count)
    for _ in range(count):
        _tag, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        _value, pos = take(view, pos, size)
    return pos


def read_tags(view: memoryview, pos: Position) -> tuple[dict[int, memoryview], Position]:
    """The raw values of a section of tagged fields, by tag."""
    count, pos = read_uvarint(view, pos)
    _check_tags(count)
    found: dict[int, memoryview] = {}
    for _ in range(count):
        tag, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        found[tag], pos = take(view, pos, size)
    return found, pos


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str, flexible: bool) -> bytes:
    raw = value.encode()
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def nullable_string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    return string(value, flexible)


def array_length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def data(value: bytes, flexible: bool) -> bytes:
    """A field of bytes."""
    return (uvarint(len(value) + 1) if flexible else INT32.pack(len(value))) + value


def array(items: Sequence[bytes], flexible: bool) -> bytes:
    """An array of items that are encoded already."""
    return array_length(len(items), flexible) + b"".join(items)


def tagged(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields, which must ascend by tag."""
    parts = [uvarint(len(fields))]
    for tag, value in fields:
        parts += (uvarint(tag), uvarint(len(value)), value)
    return b"".join(parts)


def int32_array(values: Sequence[int], flexible: bool) -> bytes:
    return array_length(len(values), flexible) + struct.pack(f">{len(values)}i", *values)


def response_head(correlation_id: int, body_size: int, flexible_header: bool) -> bytes:
    """Size prefix and response header (v1, with its empty tag section, from the flexible versions on)."""
    if flexible_header:
        return struct.pack(">iiB", body_size + 5, correlation_id, 0)
    return struct.pack(">ii", body_size + 4, correlation_id)


def milliseconds(value: datetime.timedelta) -> int:
    """kio's durations as the house counts them."""
    return value // datetime.timedelta(milliseconds=1)
