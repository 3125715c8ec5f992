"""One segment read once: the headers of its batches, where there is none, and its index files. No pyspark; runs in tasks.

Index files are read before the log: an index may lag behind a growing log, and must never be ahead of it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from io import FileIO

import numpy as np

from kraftlite.columns.scan import HEADERS
from kraftlite.host.files import MAX_INDEX_BYTES, read_bounded
from kraftlite.segments.directories import SegmentFiles
from kraftlite.segments.files import CHUNK_BYTES, Buffer, Headers, Hole, Stretch, open_log, pread, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentScan:
    """The content of a segment. `headers`: of all batches, in file order, positions in the file. `tail`: bytes at its end that
    are no batch.

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
    index, time_index = None, None
    try:
        index, time_index = _read(segment.index_path), _read(segment.time_index_path)
        with open_log(segment.log_path) as file:
            found = _scan_file(segment, file)
    except OSError as error:
        found = SegmentScan(segment=segment, headers=np.empty(0, HEADERS), unread=error.strerror or str(error))
    return replace(found, index=index, time_index=time_index)


def _scan_file(segment: SegmentFiles, file: FileIO) -> SegmentScan:
    parts: list[Headers] = []
    holes: list[Hole] = []
    tail: Hole | None = None
    size = 0
    for it in walk(file, Buffer(), floor=segment.base_offset):
        if isinstance(it, Stretch):
            parts.append(it.headers)
            size = it.position + len(it.data)
        elif it.tail:
            tail, size = it, it.end
        else:
            holes.append(it)
            size = it.end
    return SegmentScan(
        segment=segment,
        headers=np.concatenate(parts) if parts else np.empty(0, HEADERS),
        holes=tuple(holes),
        tail=tail,
        tail_is_zero=tail is not None and not any(pread(file, tail.position, min(tail.end - tail.position, CHUNK_BYTES))),
        size=size,
        inode=os.fstat(file.fileno()).st_ino,
    )


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return read_bounded(path, MAX_INDEX_BYTES)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise OSError(errno.EFBIG, str(error), path) from None


def read_again(scan: SegmentScan, position: int, size: int) -> bytes:
    """Bytes of a segment that was scanned, fewer at its end. Raises OSError, also when it is another file by now."""
    path = scan.segment.log_path
    with open_log(path) as file:
        if os.fstat(file.fileno()).st_ino != scan.inode:
            raise OSError(errno.ESTALE, "replaced while it was read", path)
        return pread(file, position, size)
