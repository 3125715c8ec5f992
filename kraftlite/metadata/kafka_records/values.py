"""The helpers of the compiled readers and writers: lengths, shared values, packed arrays.

A length that is announced is never allocated: everything is a slice of what is there, and a slice that comes out short is found
because the position is then behind the end.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kraftlite.metadata.kafka_records.table import PROTOCOLS
from kraftlite.model.limits import MAX_STRING_BYTES
from kraftlite.model.shown import shown
from kraftlite.protocol.primitives import uvarint

INTERN_LIMIT: Final = 65_536
"""Entries after which a table of shared values starts again, so that it cannot grow for ever."""
_INTERN_BYTES: Final = 1_024
"""Longer arrays are not shared."""
NO_TAGS: Final = b"\x00"
MAX_VARINT_BYTES: Final = 5

SIZES: Final = tuple(uvarint(size) for size in range(1 << 14))
"""Unsigned varints of what is usual."""


class _Uuids(dict[bytes, UUID]):
    """16 bytes to the one UUID for them: a large cluster repeats the same ids all over."""

    def __missing__(self, raw: bytes) -> UUID:
        if len(self) >= INTERN_LIMIT:
            self.clear()
        value = self[raw] = UUID(bytes=raw)
        return value


class _Ints(dict[bytes, tuple[int, ...]]):
    """The bytes of an array of int32 to the one tuple for them."""

    def __missing__(self, raw: bytes) -> tuple[int, ...]:
        value = struct.unpack(f">{len(raw) // 4}i", raw)
        if len(raw) <= _INTERN_BYTES:
            if len(self) >= INTERN_LIMIT:
                self.clear()
            self[raw] = value
        return value


class _UuidTuples(dict[bytes, tuple[UUID, ...]]):
    """The bytes of an array of uuids to the one tuple for them."""

    def __missing__(self, raw: bytes) -> tuple[UUID, ...]:
        value = tuple([UUIDS[raw[start : start + 16]] for start in range(0, len(raw), 16)])
        if len(raw) <= _INTERN_BYTES:
            if len(self) >= INTERN_LIMIT:
                self.clear()
            self[raw] = value
        return value


class _Packed(dict[tuple[int, ...], bytes]):
    """A tuple of int32 to the bytes of its array, length included."""

    def __missing__(self, values: tuple[int, ...]) -> bytes:
        raw = size(len(values) + 1) + struct.pack(f">{len(values)}i", *values)
        if len(raw) <= _INTERN_BYTES:
            if len(self) >= INTERN_LIMIT:
                self.clear()
            self[values] = raw
        return raw


UUIDS: Final = _Uuids()
INTS: Final = _Ints()
UUID_TUPLES: Final = _UuidTuples()
PACKED_INTS: Final = _Packed()

_NAMES: Final = {(number, 0): name for number, name in enumerate(PROTOCOLS)} | {(0, 1): "GRPC", (1, 1): "GRPC_TLS"}


class _ProtocolNames(dict[tuple[int, int], str]):
    def __missing__(self, key: tuple[int, int]) -> str:
        raise ValueError(f"{key[0]} is not the number of a security protocol")


PROTOCOL_NAMES: Final = _ProtocolNames(_NAMES)


class Table(dict[object, object]):
    """Values by number, or the other way round; what is not in it is refused by name."""

    def __init__(self, field: str, values: Mapping[Any, object]) -> None:
        super().__init__(values)
        self._field = field

    def __missing__(self, key: object) -> object:
        raise ValueError(f"{self._field} is {shown(str(key))}: allowed is one of {', '.join(map(str, self))}")


PROTOCOL_NUMBERS: Final = Table("security_protocol", {name: number for (number, _grpc), name in _NAMES.items()})
GRPC_NUMBERS: Final = Table("security_protocol", {name: grpc for (_number, grpc), name in _NAMES.items()})


def size(value: int) -> bytes:
    return SIZES[value] if value < len(SIZES) else uvarint(value)


def length(data: bytes, pos: int) -> tuple[int, int]:
    """An unsigned varint at `pos`, and the position behind it. Raises ValueError, IndexError."""
    value = shift = 0
    for position in range(pos, pos + MAX_VARINT_BYTES):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + 1
        shift += 7
    raise ValueError(f"a varint is longer than {MAX_VARINT_BYTES} bytes")


def string_length(data: bytes, pos: int) -> tuple[int, int]:
    value, pos = length(data, pos)
    if value - 1 > MAX_STRING_BYTES:
        raise ValueError(f"a string of {value - 1} bytes: allowed are {MAX_STRING_BYTES}")
    return value, pos


def tag_head(data: bytes, pos: int) -> tuple[int, int, int]:
    """The tag and the size of a tagged field, and the position behind them."""
    tag, pos = length(data, pos)
    field_size, pos = length(data, pos)
    return tag, field_size, pos


def some(items: Sequence[UUID]) -> Sequence[UUID]:
    """The items, of which there must be one: an empty array says that nothing changes."""
    if not items:
        raise ValueError("a change to an empty list cannot be written")
    return items


def string(value: str) -> bytes:
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(raw)} bytes: allowed are {MAX_STRING_BYTES}")
    return SIZES[len(raw) + 1] + raw if len(raw) < len(SIZES) - 1 else uvarint(len(raw) + 1) + raw


def nullable_string(value: str | None) -> bytes:
    return NO_TAGS if value is None else string(value)


def data_bytes(value: bytes) -> bytes:
    return size(len(value) + 1) + value


def uuids(values: Sequence[UUID]) -> bytes:
    return size(len(values) + 1) + b"".join([value.bytes for value in values])


def array(items: Sequence[bytes]) -> bytes:
    return size(len(items) + 1) + b"".join(items)
