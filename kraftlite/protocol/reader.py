"""Kafka's primitive types read one after the other, for records and metadata that are not worth a codec by hand.

Source: Kafka protocol guide, "Protocol primitive types"; KIP-482 (the flexible encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar
from uuid import UUID

from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import (
    INT16,
    INT32,
    INT64,
    read_array_length,
    read_count,
    read_nullable_bytes,
    read_nullable_string,
    read_string,
    read_tags,
    read_uuid,
)

T = TypeVar("T")
_UINT16: Final = struct.Struct(">H")


class Reader:
    """A position in bytes, and the encoding that they are in: `flexible` or the older one.

    To be used below a function that is `bounded`: methods raise what the functions of `primitives` raise.
    """

    __slots__ = ("_flexible", "_pos", "_view")

    def __init__(self, data: bytes | memoryview, *, flexible: bool) -> None:
        self._view = memoryview(data)
        self._flexible = flexible
        self._pos = 0

    def _fixed(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._view, self._pos)
        self._pos += layout.size
        return int(value)

    def uint8(self) -> int:
        value = self._view[self._pos]
        self._pos += 1
        return value

    def uint16(self) -> int:
        return self._fixed(_UINT16)

    def int16(self) -> int:
        return self._fixed(INT16)

    def int32(self) -> int:
        return self._fixed(INT32)

    def int64(self) -> int:
        return self._fixed(INT64)

    def string(self) -> str:
        value, self._pos = read_string(self._view, self._pos, self._flexible)
        return value

    def nullable_string(self) -> str | None:
        value, self._pos = read_nullable_string(self._view, self._pos, self._flexible)
        return value

    def nullable_bytes(self) -> bytes | None:
        value, self._pos = read_nullable_bytes(self._view, self._pos, self._flexible)
        return value

    def bytes(self) -> bytes:
        value = self.nullable_bytes()
        if value is None:
            raise ProtocolViolation("null where bytes must be")
        return value

    def uuid(self) -> UUID:
        value, self._pos = read_uuid(self._view, self._pos)
        return value

    def count(self) -> int:
        """The length of an array that must not be null."""
        value, self._pos = read_count(self._view, self._pos, self._flexible)
        return value

    def array(self, item: Callable[[], T]) -> tuple[T, ...]:
        return tuple([item() for _ in range(self.count())])

    def nullable_array(self, item: Callable[[], T]) -> tuple[T, ...] | None:
        count, self._pos = read_array_length(self._view, self._pos, self._flexible)
        return None if count is None else tuple([item() for _ in range(count)])

    def tagged(self) -> dict[int, memoryview]:
        """The tagged fields by tag, not read any further; none in the older encoding."""
        if not self._flexible:
            return {}
        found, self._pos = read_tags(self._view, self._pos)
        return found

    def skip_tags(self) -> None:
        """Pass over the tagged fields, all unknown; there are none in the older encoding."""
        self.tagged()
