"""The answers that one connection has to send: in the order of their requests, with records still in their files."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kraftlite.log.stored import StoredRecords
from kraftlite.model.limits import KIB, MIB

Buffer = bytes | bytearray | memoryview
Part = Buffer | StoredRecords

SLICE_BYTES: Final = 128 * KIB
"""The bytes that are read of a file at a time. They stay in the processor's cache between the file and the socket: 1 MiB in
one piece costs more than twice as much."""
TIGHT_SLICE_BYTES: Final = 16 * KIB
"""The same when the node holds too many unread answers."""
PUMP_BYTES: Final = MIB
"""The bytes that are handed to the socket before others have their turn."""
LARGE_WRITE_BYTES: Final = 64 * KIB


class Outbound:
    """Parts that wait for the socket. Nothing is read from a file before the socket has taken what was read before."""

    __slots__ = ("_at", "_parts", "_stored")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._stored = 0
        """The number of them that are stored records."""
        self._at = 0
        """The part of the first one that is sent, when it is stored."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def extend(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._parts.append(part)
            if isinstance(part, StoredRecords):
                self._stored += 1

    def in_memory(self) -> int:
        return sum(len(part) for part in self._parts if not isinstance(part, StoredRecords))

    def clear(self) -> None:
        self._parts.clear()
        self._stored = self._at = 0

    def take(self, size: int) -> list[Buffer]:
        """The next parts, about `size` bytes if any are stored. Raises OSError and RecordsGone."""
        parts = self._parts
        taken: list[Buffer] = []
        if not self._stored:
            taken.extend(parts)  # type: ignore[arg-type]
            parts.clear()
            return taken
        while parts and size > 0:
            part = parts[0]
            if isinstance(part, StoredRecords):
                count = min(size, len(part) - self._at)
                taken.append(part.read(self._at, count))
                self._at += count
                if self._at < len(part):
                    break
                self._at = 0
                self._stored -= 1
            else:
                count = len(part)
                taken.append(part)
            parts.popleft()
            size -= count
        return taken


def memory_of(parts: Sequence[Part]) -> int:
    """Return the bytes that are in memory."""
    return sum(len(part) for part in parts if not isinstance(part, StoredRecords))


def write_all(transport: asyncio.Transport, parts: list[Buffer], gathers: bool) -> None:
    """One write: uvloop gathers into one system call; asyncio joins (3.11), so there large parts are written by themselves."""
    if gathers:
        transport.writelines(parts)
    else:
        write_gathered(transport.write, parts)


def write_gathered(write: Callable[[Buffer], None], parts: Sequence[Buffer]) -> None:
    """Join what is small, write what is large by itself: no copy of records."""
    small: list[Buffer] = []
    for part in parts:
        if len(part) < LARGE_WRITE_BYTES:
            small.append(part)
            continue
        if small:
            write(b"".join(small))
            small = []
        write(part)
    if small:
        write(b"".join(small))
