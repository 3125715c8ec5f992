"""The records of TLS in what comes from a socket, one at a time.

OpenSSL works on all that it has before it returns. Some records carry no data and still cost as much as others, as those that ask
for new keys. So it is given a record at a time. Source: RFC 8446, 5.1.
"""

from __future__ import annotations

from typing import Final

_HEAD: Final = 5
_TYPES: Final = range(20, 25)
_MAJOR: Final = 3
_MOST: Final = (1 << 14) + 2_048
"""The most that a record may have behind its head, in any version."""


class Records:
    """Bytes on their way into records. What is no TLS is handed on as it is: OpenSSL says what is wrong with it."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0

    def add(self, data: memoryview) -> None:
        self._data += data

    @property
    def is_whole(self) -> bool:
        """Whether `next` has one."""
        return self._size() > 0

    def next(self) -> bytes | None:
        """The next whole record; None: there is none yet."""
        size = self._size()
        if not size:
            return None
        found = bytes(memoryview(self._data)[self._at : self._at + size])
        self._at += size
        if self._at == len(self._data):
            self._data, self._at = bytearray(), 0
        elif self._at >= _MOST:
            del self._data[: self._at]
            self._at = 0
        return found

    def _size(self) -> int:
        """That of the next record with its head; 0: it is not whole."""
        data, at = self._data, self._at
        available = len(data) - at
        if available and data[at] not in _TYPES:
            return available
        if available < _HEAD:
            return 0
        size = (data[at + 3] << 8) + data[at + 4]
        if data[at + 1] != _MAJOR or size > _MOST:
            return available
        return _HEAD + size if available >= _HEAD + size else 0
