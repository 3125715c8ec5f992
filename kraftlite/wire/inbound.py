"""The receive buffer of one connection: requests are parsed in it, in place."""

from __future__ import annotations

from typing import Final

from kraftlite.model.limits import KIB, MIB
from kraftlite.protocol.errors import ProtocolViolation
from kraftlite.protocol.primitives import INT32

IDLE_BUFFER_BYTES: Final = 16 * KIB
"""The size of the buffer of a quiet connection."""
BUSY_BUFFER_BYTES: Final = 2 * MIB
"""The size to which the buffer grows for throughput alone, and which a connection keeps between its frames."""


class ReceiveBuffer:
    """Grows by what has really come: it doubles when it is full, up to what a frame announces; beyond `BUSY_BUFFER_BYTES` only
    for a frame. Does not grow by itself."""

    __slots__ = ("_data", "announced", "capacity", "end", "filled", "start")

    def __init__(self) -> None:
        self._data = memoryview(bytearray(IDLE_BUFFER_BYTES))
        self.capacity = IDLE_BUFFER_BYTES
        self.start = 0
        self.end = 0
        self.announced = 0
        """Bytes of the frame that is only partly here, its length prefix included; 0 when its size is not known."""
        self.filled = False
        """True when a read has filled it to its end."""

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def full(self) -> bool:
        return self.end - self.start == self.capacity

    def target(self) -> memoryview:
        """The place for the next bytes."""
        if self.start and (self.end == self.capacity or self.start + self.announced > self.capacity):
            self._move_to(self._data)
        return self._data[self.end :]

    def added(self, count: int) -> None:
        self.end += count
        if self.end == self.capacity:
            self.filled = True

    def has_frame(self) -> bool:
        """Return whether a whole frame is here, or one whose size can only be refused."""
        available = self.end - self.start
        if available < 4 or available < self.announced:
            return False
        size: int = INT32.unpack_from(self._data, self.start)[0]
        return size < 0 or available >= size + 4

    def has_two(self) -> bool:
        """Return whether something stands behind the first whole frame."""
        available = self.end - self.start
        return available >= 4 and available > INT32.unpack_from(self._data, self.start)[0] + 4

    def next_frame(self, most: int) -> memoryview | None:
        """The next whole frame, without its length prefix. ProtocolViolation for a length outside 0 to `most`."""
        start, available = self.start, self.end - self.start
        if available < 4:
            if not available:
                self.start = self.end = 0
            self.announced = 4
            return None
        (size,) = INT32.unpack_from(self._data, start)
        if size < 0 or size > most:
            raise ProtocolViolation(f"frame of {size} bytes: allowed is 0 to {most}")
        if available < size + 4:
            self.announced = size + 4
            return None
        self.announced = 0
        self.start = end = start + 4 + size
        return self._data[start + 4 : end]

    def greater(self) -> int:
        """The capacity that it should have for more of a frame that fills it."""
        return max(self.capacity + 4, min(2 * self.capacity, self.announced or 2 * self.capacity))

    def faster(self) -> int:
        """The capacity that it should have when a read has filled it; 0: as it is."""
        if not self.filled:
            return 0
        self.filled = False
        return 2 * self.capacity if self.capacity < BUSY_BUFFER_BYTES else 0

    def resize(self, capacity: int) -> None:
        self.filled = False
        self._move_to(memoryview(bytearray(max(capacity, self.end - self.start + 1))))

    def drop(self) -> None:
        self._data = memoryview(bytearray())
        self.capacity = 0
        self.start = self.end = 0

    def _move_to(self, target: memoryview) -> None:
        length = self.end - self.start
        target[:length] = self._data[self.start : self.end]
        self._data, self.start, self.end = target, 0, length
        self.capacity = len(target)
