"""Record batches that stay in their segment's file until they are wanted, slice by slice.

What a client fetched is sent as its socket takes it: an answer that nobody reads holds no records in memory.

Source: docs/PERFORMANCE.md, "Fetches"; LG-50.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraftlite.runtime.ports import File


class Extent(NamedTuple):
    """Whole batches in a segment's file, from byte `start` to `end`. `readable`: the bytes that there were without a maximum."""

    start: int
    end: int
    readable: int


class Scan(NamedTuple):
    """The result of a scan of the whole file: it is good up to `valid_bytes`; `reason` is why not further."""

    valid_bytes: int
    next_offset: int
    reason: str | None


class SegmentFile:
    """A segment's open file. It is closed when nobody can read from it any more: the segment lets go of it when it is retired,
    stored records when they are sent or dropped. Retention, compaction and a roll therefore do not disturb a reader."""

    __slots__ = ("cuts", "file")

    def __init__(self, file: File) -> None:
        self.file = file
        self.cuts: list[int] = []
        """The places at which the file was truncated since it was opened. What is below the HW is cut only by an unclean
        election."""

    def __del__(self) -> None:
        self.file.close()


class RecordsGone(Exception):
    """The bytes were truncated before they were read; others may stand in their place."""


class StoredRecords:
    """Whole batches in a segment's file: `len()` bytes of them. `bytes()` reads all, `read` a part.

    Reading raises OSError, which `on_error` has heard of by then, and RecordsGone.
    """

    __slots__ = ("_cuts", "_file", "_length", "_on_error", "_position")

    def __init__(self, file: SegmentFile, position: int, length: int, on_error: Callable[[OSError], None] | None = None) -> None:
        self._file = file
        self._position = position
        self._length = length
        self._cuts = len(file.cuts)
        self._on_error = on_error

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return self.read(0, self._length)

    def read(self, start: int, length: int) -> bytes:
        """`length` bytes from byte `start` on; both must lie inside."""
        file = self._file
        if len(file.cuts) > self._cuts and min(file.cuts[self._cuts :]) < self._position + self._length:
            raise RecordsGone(f"{file.file.path} was truncated below byte {self._position + self._length}")
        try:
            data = file.file.pread(length, self._position + start)
        except OSError as error:
            if self._on_error is not None:
                self._on_error(error)
            raise
        if len(data) != length:
            raise RecordsGone(f"{file.file.path} ends before byte {self._position + start + length}")
        return data
