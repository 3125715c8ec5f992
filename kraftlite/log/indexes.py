"""The three indexes of a segment, in memory as sorted arrays, on disk in Kafka's formats.

Entries are appended to memory and written behind, at flush, roll and close: until then an unclean start rebuilds them from the
log, so nothing is lost. An index holds no open file.

Source: LG-05, LG-06; KIP-33 (time index), KIP-98 (transaction index).
"""

from __future__ import annotations

import itertools
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from kraftlite.log.batch import HEADER_BYTES
from kraftlite.model.limits import MAX_INT32, MIB
from kraftlite.runtime.ports import Disk

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
TXN_ENTRY: Final = struct.Struct(">hqqqq")
MAX_TXN_INDEX_BYTES: Final = 64 * MIB
"""Two million aborted transactions in one segment."""


class CorruptIndex(Exception):
    """The file contradicts itself or its segment; the message says how. It is rebuilt, never trusted."""


def _replace_tail(disk: Disk, path: str, data: bytes, position: int) -> None:
    """Write `data` at `position` and end the file there."""
    file = disk.open(path, create=True)
    try:
        if data:
            file.pwritev([data], position)
        if file.size() != position + len(data):
            file.truncate(position + len(data))
    finally:
        file.close()


def _sync(disk: Disk, path: str) -> None:
    file = disk.open(path, create=True)
    try:
        file.sync()
    finally:
        file.close()


class OffsetIndex:
    """(last offset of a batch - base offset, position of that batch): i32, i32. Sparse; both columns increase."""

    __slots__ = ("_base", "_max_entries", "_offsets", "_positions", "_written", "path")

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._base = base_offset
        self._max_entries = max_bytes // OFFSET_ENTRY.size
        self._offsets = array("q")
        self._positions = array("q")
        self._written = 0

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self._max_entries

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(offset, position), for tools and tests."""
        return [(self._base + offset, position) for offset, position in zip(self._offsets, self._positions, strict=True)]

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self._base)
        self._positions.append(position)

    def entry_at_or_below(self, offset: int) -> tuple[int, int] | None:
        """The greatest entry (offset, position) <= `offset`."""
        index = bisect_right(self._offsets, offset - self._base)
        return (self._base + self._offsets[index - 1], self._positions[index - 1]) if index else None

    def entry_before(self, position: int) -> tuple[int, int] | None:
        """The greatest entry (offset, position) whose position is <= `position`."""
        index = bisect_right(self._positions, position)
        return (self._base + self._offsets[index - 1], self._positions[index - 1]) if index else None

    def position_at_or_below(self, offset: int) -> int:
        """Return where to start looking for `offset`: the position of the greatest entry <= it, or 0."""
        index = bisect_right(self._offsets, offset - self._base)
        return self._positions[index - 1] if index else 0

    def boundary_at_or_below(self, position: int) -> int:
        """The greatest indexed batch boundary <= `position`, or 0."""
        index = bisect_right(self._positions, position)
        return self._positions[index - 1] if index else 0

    def truncate(self, size: int) -> None:
        """Drop entries for batches at or beyond position `size`."""
        keep = bisect_left(self._positions, size)
        del self._offsets[keep:], self._positions[keep:]
        if keep < self._written:
            self._written = -1

    def load(self, disk: Disk, log_size: int) -> None:
        """Raises CorruptIndex when the file is absent, empty though the log is not, or not an index of this segment."""
        data = _read(disk, self.path, _most(log_size))
        if not data and log_size > 0:
            raise CorruptIndex("empty")
        if len(data) % OFFSET_ENTRY.size:
            raise CorruptIndex(f"size {len(data)} is not a multiple of {OFFSET_ENTRY.size}")
        flat = array("i", data)
        _to_native(flat)
        offsets, positions = array("q", flat[::2]), array("q", flat[1::2])
        if offsets and not (_increasing(offsets) and _increasing(positions) and offsets[0] >= 0 and positions[-1] < log_size):
            raise CorruptIndex("entries do not increase or lie outside the segment")
        self._offsets, self._positions, self._written = offsets, positions, len(offsets)

    def write(self, disk: Disk, *, create: bool = True) -> None:
        """Bring the file up to date (page cache). Without `create` no file is made for an empty index."""
        start = max(self._written, 0)
        if self._written == len(self._offsets):
            return
        if not create and not self._offsets and disk.stat(self.path) is None:
            return
        flat = array("i", [0]) * (2 * (len(self._offsets) - start))
        flat[::2] = array("i", self._offsets[start:])
        flat[1::2] = array("i", self._positions[start:])
        _to_native(flat)
        _replace_tail(disk, self.path, flat.tobytes(), start * OFFSET_ENTRY.size)
        self._written = len(self._offsets)

    def rewrite(self) -> None:
        """Distrust the file: the next `write` replaces it."""
        self._written = -1

    def sync(self, disk: Disk) -> None:
        self.write(disk)
        _sync(disk, self.path)


class TimeIndex:
    """(largest timestamp so far, last offset of the batch that has it - base offset): i64, i32. Timestamps increase."""

    __slots__ = ("_base", "_max_entries", "_offsets", "_times", "_written", "path")

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._base = base_offset
        self._max_entries = max_bytes // TIME_ENTRY.size
        self._times = array("q")
        self._offsets = array("q")
        self._written = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def full(self) -> bool:
        """One entry is kept free for the one that closes the segment."""
        return len(self._times) >= self._max_entries - 1

    @property
    def entries(self) -> list[tuple[int, int]]:
        return [(time, self._base + offset) for time, offset in zip(self._times, self._offsets, strict=True)]

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        return (self._times[-1], self._base + self._offsets[-1]) if self._times else None

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Add an entry. Only a timestamp above all before it, and not -1, makes one."""
        if timestamp < 0 or (self._times and timestamp <= self._times[-1]):
            return False
        self._times.append(timestamp)
        self._offsets.append(offset - self._base)
        return True

    def offset_at_or_below(self, timestamp: int) -> int:
        """No record before this offset has a timestamp >= `timestamp` (the base offset when no entry is smaller)."""
        index = bisect_right(self._times, timestamp)
        return self._base + (self._offsets[index - 1] if index else 0)

    def truncate(self, offset: int) -> None:
        """Drop entries for offsets at or beyond `offset`."""
        keep = bisect_left(self._offsets, offset - self._base)
        del self._times[keep:], self._offsets[keep:]
        if keep < self._written:
            self._written = -1

    def load(self, disk: Disk, log_size: int) -> None:
        """Raises CorruptIndex as `OffsetIndex.load`."""
        data = _read(disk, self.path, _most(log_size))
        if not data and log_size > 0:
            raise CorruptIndex("empty")
        if len(data) % TIME_ENTRY.size:
            raise CorruptIndex(f"size {len(data)} is not a multiple of {TIME_ENTRY.size}")
        times, offsets = array("q"), array("q")
        for time, offset in TIME_ENTRY.iter_unpack(data):
            times.append(time)
            offsets.append(offset)
        if times and not (_increasing(times) and all(a <= b for a, b in itertools.pairwise(offsets))):
            raise CorruptIndex("timestamps or offsets decrease")
        if offsets and offsets[0] < 0:
            raise CorruptIndex("offset before the segment's base")
        self._times, self._offsets, self._written = times, offsets, len(times)

    def write(self, disk: Disk, *, create: bool = True) -> None:
        """Write the entries, as `OffsetIndex.write` does."""
        if self._written == len(self._times):
            return
        if not create and not self._times and disk.stat(self.path) is None:
            return
        start = max(self._written, 0)
        pairs = zip(self._times[start:], self._offsets[start:], strict=True)
        data = b"".join(TIME_ENTRY.pack(time, offset) for time, offset in pairs)
        _replace_tail(disk, self.path, data, start * TIME_ENTRY.size)
        self._written = len(self._times)

    def rewrite(self) -> None:
        self._written = -1

    def sync(self, disk: Disk) -> None:
        self.write(disk)
        _sync(disk, self.path)


class AbortedTransaction(NamedTuple):
    """Inclusive offsets; `last_stable_offset` is the LSO when the transaction ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_END: Final = attrgetter("last_offset")


class TransactionIndex:
    """The aborted transactions whose marker lies in this segment, in order of last offset. No file while there are none."""

    __slots__ = ("_entries", "_written", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] = []
        self._written = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._entries)

    def ending_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the transactions that end at or behind `offset`. What comes before them costs nothing."""
        entries = self._entries
        for index in range(bisect_left(entries, offset, key=_END), len(entries)):
            yield entries[index]

    def ends_from(self, offset: int) -> bool:
        """Return whether a transaction ends at or behind `offset`."""
        return bool(self._entries) and self._entries[-1].last_offset >= offset

    def append(self, entry: AbortedTransaction) -> None:
        self._entries.append(entry)

    def truncate(self, offset: int) -> None:
        """Drop transactions that end at or beyond `offset`."""
        keep = sum(1 for entry in self._entries if entry.last_offset < offset)
        del self._entries[keep:]
        if keep < self._written:
            self._written = -1

    def load(self, disk: Disk) -> None:
        """An absent file is an empty index. Raises CorruptIndex."""
        if disk.stat(self.path) is None:
            return
        data = _read(disk, self.path, MAX_TXN_INDEX_BYTES)
        if len(data) % TXN_ENTRY.size:
            raise CorruptIndex(f"size {len(data)} is not a multiple of {TXN_ENTRY.size}")
        entries: list[AbortedTransaction] = []
        for version, producer_id, first, last, stable in TXN_ENTRY.iter_unpack(data):
            if version != 0 or first > last or (entries and last < entries[-1].last_offset):
                raise CorruptIndex(f"entry {len(entries)} (version {version}, offsets {first} to {last}) is out of order")
            entries.append(AbortedTransaction(producer_id, first, last, stable))
        self._entries, self._written = entries, len(entries)

    def write(self, disk: Disk) -> None:
        if self._written == len(self._entries):
            return
        if not self._entries and disk.stat(self.path) is None:
            self._written = 0
            return
        start = max(self._written, 0)
        data = b"".join(TXN_ENTRY.pack(0, *entry) for entry in self._entries[start:])
        _replace_tail(disk, self.path, data, start * TXN_ENTRY.size)
        self._written = len(self._entries)

    def rewrite(self) -> None:
        self._written = -1

    def sync(self, disk: Disk) -> None:
        self.write(disk)
        if disk.stat(self.path) is not None:
            _sync(disk, self.path)


def _most(log_size: int) -> int:
    """Every entry is of a batch, which is longer, and one more closes the time index. No segment outgrows a 32-bit number, but
    for a batch: a file that is larger, as one with a hole, has no larger index for that."""
    return (min(log_size, MAX_INT32) // HEADER_BYTES + 2) * TIME_ENTRY.size


def _read(disk: Disk, path: str, most: int) -> bytes:
    """A file of more than `most` bytes is not read at all."""
    stat = disk.stat(path)
    if stat is None or stat.is_dir:
        raise CorruptIndex("missing")
    if stat.size > most:
        raise CorruptIndex(f"{stat.size} bytes, expected at most {most}")
    return disk.read_file(path)


def _to_native(values: array[int]) -> None:
    """Convert between big-endian and this machine's order, either way."""
    if struct.pack("=i", 1) != struct.pack(">i", 1):
        values.byteswap()


def _increasing(values: array[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))
