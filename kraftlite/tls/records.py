"""The records of TLS in what comes from a socket, a few at a time.

OpenSSL works on all that it has before it returns. Some records carry no data and still cost as much as others, as those that ask
for new keys. So it is given so many records, and not so many bytes. Source: RFC 8446, 5.1.
"""

from __future__ import annotations

import ssl
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
        """Return whether there is a whole record."""
        return self._end_of(self._at) > self._at

    def feed(self, bio: ssl.MemoryBIO, most: int) -> int:
        """Hand on as many whole records as there are, at most `most`. Returns their number."""
        end, count = self._at, 0
        while count < most:
            following = self._end_of(end)
            if following == end:
                break
            end, count = following, count + 1
        if not count:
            return 0
        with memoryview(self._data) as data:
            bio.write(data[self._at : end])
        if end == len(self._data):
            self._data, self._at = bytearray(), 0
        elif end >= _MOST:
            del self._data[:end]
            self._at = 0
        else:
            self._at = end
        return count

    def _end_of(self, at: int) -> int:
        """The end of the record that begins there; `at` itself: it is not whole."""
        data, size = self._data, len(self._data)
        if at < size and data[at] not in _TYPES:
            return size
        if size - at < _HEAD:
            return at
        length = (data[at + 3] << 8) + data[at + 4]
        if data[at + 1] != _MAJOR or length > _MOST:
            return size
        end = at + _HEAD + length
        return end if end <= size else at
