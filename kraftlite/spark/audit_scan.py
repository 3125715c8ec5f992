"""One segment read once: the headers of its batches, where there is none, and its index files. No pyspark; runs in tasks.

Files are read in chunks and never mapped, so that a segment that a running broker truncates is no crash. Index files are read
before the log: an index may lag behind a growing log, and must never be ahead of it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraftlite.log.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, check_crc, parse_header
from kraftlite.model.limits import MIB
from kraftlite.spark.scan import HEADERS, TORN, scan_batches
from kraftlite.spark.segments import SegmentFiles

CHUNK_BYTES: Final = 8 * MIB
MAX_BATCH_BYTES: Final = 256 * MIB
"""A batch that claims to be larger has a damaged length."""
RESUME_BYTES: Final = 64 * MIB
"""How far behind a byte that is no batch the next one is looked for."""
Headers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Bytes [position, end) in which there is no batch, and why."""

    position: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentScan:
    """What a segment holds. `headers`: of all batches, in file order, positions in the file. `tail`: what is no batch at its end.

    `index`, `time_index`: bytes of those files; None where there is none. `unread`: why the log could not be read.
    """

    segment: SegmentFiles
    headers: Headers
    holes: tuple[Hole, ...] = ()
    tail: Hole | None = None
    tail_is_zero: bool = False
    size: int = 0
    inode: int = 0
    index: bytes | None = None
    time_index: bytes | None = None
    unread: str | None = None


def scan_segment(segment: SegmentFiles) -> SegmentScan:
    """Read one segment. A file that cannot be read is reported in the result, not raised."""
    index = _read(segment.index_path)
    time_index = _read(segment.time_index_path)
    try:
        with Path(segment.log_path).open("rb", buffering=0) as file:
            found = _scan_file(segment, file)
    except OSError as error:
        found = SegmentScan(segment=segment, headers=np.empty(0, HEADERS), unread=error.strerror or str(error))
    return replace(found, index=index, time_index=time_index)


def _scan_file(segment: SegmentFiles, file: FileIO) -> SegmentScan:
    parts: list[Headers] = []
    holes: list[Hole] = []
    tail: Hole | None = None
    position, want = 0, CHUNK_BYTES
    while data := _pread(file, position, want):
        scanned = scan_batches(data, base_position=position)
        if len(scanned.headers):
            parts.append(scanned.headers)
        stop = scanned.stopped_at
        if scanned.why == "":
            position, want = stop, CHUNK_BYTES
        elif scanned.why == TORN and len(data) == want and want < MAX_BATCH_BYTES:
            # The batch goes on behind this chunk, or its length is damaged.
            position, want = (stop, CHUNK_BYTES) if stop > position else (position, want * 2)
        else:
            resumed = _resume(file, stop + 1, int(parts[-1]["base_offset"][-1]) if parts else segment.base_offset)
            if resumed is None:
                tail = Hole(position=stop, end=file.seek(0, 2), reason=scanned.why)
                break
            holes.append(Hole(position=stop, end=resumed, reason=scanned.why))
            position, want = resumed, CHUNK_BYTES
    return SegmentScan(
        segment=segment,
        headers=np.concatenate(parts) if parts else np.empty(0, HEADERS),
        holes=tuple(holes),
        tail=tail,
        tail_is_zero=tail is not None and not any(_pread(file, tail.position, min(tail.end - tail.position, CHUNK_BYTES))),
        size=position if tail is None else tail.end,
        inode=os.fstat(file.fileno()).st_ino,
    )


def _resume(file: FileIO, position: int, floor: int) -> int | None:
    """Where the next intact batch with an offset above `floor` begins, looking from `position`; None when there is none near."""
    data = _pread(file, position, RESUME_BYTES)
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


def _pread(file: FileIO, position: int, size: int) -> bytes:
    file.seek(position)
    data = file.read(size)
    while len(data) < size:  # an unbuffered read may be short
        more = file.read(size - len(data))
        if not more:
            break
        data += more
    return data


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


def read_again(scan: SegmentScan, position: int, size: int) -> bytes:
    """Bytes of a segment that was scanned, fewer at its end. Raises OSError, also when it is another file by now."""
    path = scan.segment.log_path
    with Path(path).open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_ino != scan.inode:
            raise OSError(errno.ESTALE, "replaced while it was read", path)
        return _pread(file, position, size)
