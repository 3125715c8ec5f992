"""The bytes of segment files: batches in the order of the file, what between them is no batch, and where an offset is.

Files are read in chunks into one buffer and never mapped, so that a segment that a running broker truncates is no crash. No
pyspark; runs in tasks.

Source: LG-01, LG-02, LG-05; the layout is that of `kraftlite.log.batch` and `kraftlite.log.indexes`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kraftlite.columns.scan import TORN, next_offsets, scan_batches
from kraftlite.host.files import MAX_INDEX_BYTES
from kraftlite.log.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, BatchHeader, check_crc, parse_header
from kraftlite.model.limits import MAX_INT32, MAX_INT64, MIB
from kraftlite.segments.directories import SegmentFiles

CHUNK_BYTES: Final = 4 * MIB
"""Larger ones are slower: they do not stay in the processor's cache between reading, CRC and parsing."""
MAX_BATCH_BYTES: Final = 256 * MIB
"""A batch that claims to be larger has a damaged length."""
MAX_SEGMENT_BYTES: Final = MAX_INT32
"""Kafka's `segment.bytes` is an int, as the positions in an index are. A task keeps the headers of one segment at a time."""
RESUME_BYTES: Final = 64 * MIB
"""The distance behind a byte that is no batch in which the next batch is looked for."""
_OFFSET_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("time", ">i8"), ("offset", ">i4")])
Headers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Bytes [position, end) in which there is no batch, and why. `tail`: no batch was found behind them, as in a torn end."""

    position: int
    end: int
    reason: str
    tail: bool = False


class Stretch(NamedTuple):
    """Whole batches one after the other, from `position` of the file. `data` is good until the next stretch; `headers`
    (`scan.HEADERS`), which stay good, count positions from the file's start."""

    position: int
    data: memoryview
    headers: Headers


class Buffer:
    """Memory that is used again for every chunk: a new one costs a page fault for each of its pages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def read(self, file: FileIO, position: int, size: int) -> memoryview:
        """Up to `size` bytes, fewer at the file's end. What was read before is overwritten."""
        size = max(0, min(size, os.fstat(file.fileno()).st_size - position))
        if size > len(self._bytes):
            self._bytes = bytearray(size)
        view = memoryview(self._bytes)[:size]
        done = 0
        while done < size:
            found = os.preadv(file.fileno(), [view[done:]], position + done)
            if not found:
                break
            done += found
        return view[:done]


def open_log(path: str) -> FileIO:
    """Raises OSError, also for a file that is too large to be a segment."""
    file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the caller closes it
    if (size := os.fstat(file.fileno()).st_size) > MAX_SEGMENT_BYTES:
        file.close()
        raise OSError(errno.EFBIG, f"the file has {size} bytes; a segment has at most {MAX_SEGMENT_BYTES}", path)
    return file


def pread(file: FileIO, position: int, size: int) -> bytes:
    """Fewer bytes at the file's end."""
    return bytes(Buffer().read(file, position, size))


def walk(
    file: FileIO,
    buffer: Buffer,
    *,
    floor: int,
    position: int = 0,
    stop: int = MAX_INT64,
    end: int = MAX_INT64,
    crc: bool = True,
) -> Iterator[Stretch | Hole]:
    """Everything from `position`, where a batch begins, up to the first batch that begins at or behind byte `stop`, or that
    has an offset >= `end`.

    `floor`: an offset that no batch is below. Without `crc`, `crc_ok` is true everywhere. Raises OSError.
    """
    want, beyond = CHUNK_BYTES, False
    while position < stop:
        ask = want if beyond else min(want, stop - position)
        data = buffer.read(file, position, ask)
        if not data:
            return
        scan = scan_batches(data, base_position=position, check_crc=crc, end=end)
        used, headers = scan.stopped_at - position, scan.headers
        if scan.stopped_at > stop:
            headers = headers[headers["position"] < stop]
        if headers.size:
            floor = int(headers["base_offset"][-1])
            yield Stretch(position, data[:used], headers)
        if scan.why == "":
            if used < len(data):
                return
            position, want, beyond = position + used, CHUNK_BYTES, False
        elif scan.why == TORN and len(data) == ask and ask < MAX_BATCH_BYTES:
            # The batch goes on behind this chunk, or its length is damaged.
            position, want, beyond = (position + used, CHUNK_BYTES, False) if used else (position, want * (1 + beyond), True)
        else:
            position += used
            resumed = _resume(file, position + 1, floor)
            size = os.fstat(file.fileno()).st_size
            yield Hole(position=position, end=size if resumed is None else resumed, reason=scan.why, tail=resumed is None)
            if resumed is None:
                return
            position, want, beyond = resumed, CHUNK_BYTES, False


def _resume(file: FileIO, position: int, floor: int) -> int | None:
    """Find where the next intact batch with an offset above `floor` begins, looking from `position`; None when there is none
    near."""
    data = pread(file, position, RESUME_BYTES)
    if len(data) < HEADER_BYTES:
        return None
    view = memoryview(data)
    marks = np.flatnonzero(np.frombuffer(data, np.uint8)[MAGIC_POSITION:] == MAGIC)
    for at in marks.tolist():
        if len(data) - at < HEADER_BYTES:
            return None
        header = parse_header(view, at)
        if not HEADER_BYTES <= header.size_bytes <= len(data) - at or not floor <= header.base_offset < floor + 2**31:
            continue
        if header.last_offset_delta < 0 or header.count < 0:
            continue
        if check_crc(view[at : at + header.size_bytes], header):
            return position + int(at)
    return None


def position_of(file: FileIO, buffer: Buffer, segment: SegmentFiles, offset: int) -> int:
    """Find where the first batch begins that ends behind `offset`, or bytes that are no batch and lie before it; the end of
    the batches when all end before it. The index is a hint: it may be damaged, or behind the log."""
    if offset <= segment.base_offset:
        return 0
    start = 0
    entries = _entries(segment.index_path, _OFFSET_ENTRY)
    at = int(np.searchsorted(entries["offset"], offset - segment.base_offset, "right"))
    if at and begins(file, segment, int(entries["position"][at - 1]), offset):
        start = int(entries["position"][at - 1])
    for it in walk(file, buffer, floor=segment.base_offset, position=start, crc=False):
        if isinstance(it, Hole):
            return it.position
        behind = np.flatnonzero(next_offsets(it.headers) > offset)
        if behind.size:
            return int(it.headers["position"][behind[0]])
        start = it.position + len(it.data)
    return start


def boundaries(file: FileIO, segment: SegmentFiles, every: int) -> list[int]:
    """Positions in the log at which batches begin, about `every` bytes apart, 0 left out, as far as the index knows."""
    entries = _entries(segment.index_path, _OFFSET_ENTRY)
    found: list[int] = []
    for wanted in range(every, segment.log_bytes - every // 2, every):
        at = int(np.searchsorted(entries["position"], wanted, "right")) - 1
        if at < 0:
            continue
        position, last = int(entries["position"][at]), segment.base_offset + int(entries["offset"][at])
        if position > (found[-1] if found else 0) and begins(file, segment, position, last):
            found.append(position)
    return found


def last_boundary(file: FileIO, segment: SegmentFiles) -> int:
    """The position of the last whole batch that the index knows, or 0."""
    entries = _entries(segment.index_path, _OFFSET_ENTRY)
    for position, last in zip(entries["position"][::-1].tolist(), entries["offset"][::-1].tolist(), strict=True):
        if begins(file, segment, position, segment.base_offset + last):
            return int(position)
    return 0


def newest_ms(segment: SegmentFiles) -> int | None:
    """The largest timestamp by the time index; None when there is no such file or entry."""
    entries = _entries(segment.time_index_path, _TIME_ENTRY)
    return int(entries["time"][-1]) if entries.size else None


def begins(file: FileIO, segment: SegmentFiles, position: int, offset: int) -> bool:
    """Return whether a batch of this segment begins there, at or below `offset`, and ends before the file does."""
    head = pread(file, position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return False
    header: BatchHeader = parse_header(head)
    sane = header.magic == MAGIC and HEADER_BYTES <= header.size_bytes <= os.fstat(file.fileno()).st_size - position
    return sane and segment.base_offset <= header.base_offset <= offset


def _entries(path: str | None, kind: np.dtype[Any]) -> Headers:
    """An index file's entries, as far as they increase: brokers lay out zeros behind those of a segment they write to.
    What is behind `MAX_INDEX_BYTES` can be nothing else."""
    data = b""
    if path is not None:
        with contextlib.suppress(FileNotFoundError), Path(path).open("rb") as file:
            data = file.read(MAX_INDEX_BYTES)
    found = np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], kind)
    if found.size > 1:
        first, second = (found[name] for name in kind.names or ())
        fine = (first[1:] > first[:-1]) & (second[1:] >= second[:-1])
        found = found if fine.all() else found[: int(np.argmin(fine)) + 1]
    return found
