"""Kafka's primitive types as the records of `__consumer_offsets` use them, in the plain and in the "flexible" encoding."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from kraftlite.model.errors import ApiError, ErrorCode

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

T = TypeVar("T")


def corrupt(message: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record of __consumer_offsets: {message}")


# --- writing, plain ------------------------------------------------------------------------------------------------------


def string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return INT16.pack(len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    return INT16.pack(-1) if text is None else string(text)


def bytes_field(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


# --- writing, flexible ---------------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    raw = text.encode("utf-8", "surrogatepass")
    return uvarint(len(raw) + 1) + raw


def compact_bytes(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def compact_array(items: Sequence[bytes]) -> bytes:
    """Of items that are encoded already."""
    return uvarint(len(items) + 1) + b"".join(items)


def tagged(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """Tagged fields, ascending by tag."""
    parts = [uvarint(len(fields))]
    for tag, data in fields:
        parts += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(parts)


# --- reading -------------------------------------------------------------------------------------------------------------


class Reader:
    """Kafka's primitives in either encoding. What runs beyond the data is CORRUPT_MESSAGE."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self._pos = 0

    def _fixed(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._pos)
        except struct.error as error:
            raise corrupt(str(error)) from error
        self._pos += layout.size
        return int(value)

    def int16(self) -> int:
        return self._fixed(INT16)

    def int32(self) -> int:
        return self._fixed(INT32)

    def int64(self) -> int:
        return self._fixed(INT64)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            if self._pos >= len(self._data) or shift > 28:
                raise corrupt("a length runs beyond the record")
            byte = self._data[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, size: int) -> bytes:
        end = self._pos + size
        if size < 0 or end > len(self._data):
            raise corrupt(f"{size} bytes announced, {len(self._data) - self._pos} left")
        taken = self._data[self._pos : end]
        self._pos = end
        return taken

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self._flexible else self.int16()
        return None if size == -1 else self.take(size).decode("utf-8", "surrogatepass")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise corrupt("null where a string must be")
        return text

    def blob(self) -> bytes:
        return self.take(self.uvarint() - 1 if self._flexible else self.int32())

    def count(self) -> int:
        size = self.uvarint() - 1 if self._flexible else self.int32()
        if not 0 <= size <= len(self._data) - self._pos:
            raise corrupt(f"an array of {size} in {len(self._data) - self._pos} bytes")
        return size

    def int8(self) -> int:
        return self.take(1)[0]

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def array(self, item: Callable[[], T]) -> tuple[T, ...]:
        return tuple(item() for _ in range(self.count()))

    def tagged(self) -> dict[int, bytes]:
        """The tagged fields by tag, not read any further; none in the older encoding."""
        found: dict[int, bytes] = {}
        if self._flexible:
            for _ in range(self.uvarint()):
                tag = self.uvarint()
                found[tag] = self.take(self.uvarint())
        return found

    def tags(self) -> None:
        """Pass over the tagged fields, all unknown; there are none in the older encoding."""
        self.tagged()
