"""Checks whether a metadata log that nobody else has was damaged by more than a crash.

A crash leaves a torn end, which recovery cuts off. A log that goes on behind a bad spot, or ends before what was flushed to it
(`flush_mark.py`), lost records that were promised. A voter among others fetches them again; the only voter must not quietly begin
without them: its brokers would have to truncate below their high watermark, which is the end of each.
A batch's offset and epoch are outside of its CRC. In this log they are checked by what raft writes: offsets without gaps, and a
new epoch only with the leader's own control batch.

What was flushed decides: a power cut may spoil or take the first of several batches or segments that were not flushed yet, and
that is cut off like any torn end, though intact ones are behind it. Only where no mark says how far that came, an intact batch
behind a bad spot is damage.

A node among others, and a broker, fetches again what recovery cuts off. What recovery cannot see, because no CRC covers it, is a
leader epoch that is not what the leader wrote: a log with a later epoch than the quorum's never hears from its leader again.

Source: RF-31, RF-46. Departs: Kafka cuts such a log off, and believes every epoch in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kraftlite.log.batch import HEADER_BYTES, MAGIC, BatchHeader, check_crc, parse_header
from kraftlite.model.errors import Fault
from kraftlite.model.limits import MAX_INT32, MIB
from kraftlite.raft.flush_mark import FILE_NAME as FLUSH_MARK
from kraftlite.raft.flush_mark import read_flush_mark
from kraftlite.raft.snapshots import parse_snapshot_name
from kraftlite.runtime.ports import Disk, File

_MAGIC_AT: Final = 16
_MAX_STEP: Final = 1 << 31
_MAX_BATCH_BYTES: Final = 64 * MIB
"""A batch that claims to be larger is no batch: no controller writes one."""
_MAX_SEGMENT_BYTES: Final = MAX_INT32 + _MAX_BATCH_BYTES
"""A file that is larger was not written by a node: `metadata.log.segment.bytes` is a 32-bit number."""
_PIECE_BYTES: Final = MIB


def check_only_copy(disk: Disk, directory: str) -> None:
    """Raises Fault, naming file and byte, when records are missing that a crash cannot have taken.

    That is: segments are missing, a bad spot has intact batches behind it, or the log ends before what was flushed, and no
    snapshot reaches as far.
    """
    if disk.stat(directory) is None:
        return
    names = disk.listdir(directory)
    snapshots = [parsed[0].offset for name in names if (parsed := parse_snapshot_name(name)) is not None and not parsed[1]]
    mark = read_flush_mark(disk, directory)
    flushed = mark or 0
    if flushed <= max(snapshots, default=0):
        flushed = 0  # a crash while the log is started anew at the end of a snapshot loses nothing
    bases = _bases(names)
    for name in names:
        stem = name.removesuffix(".index")
        lost = name.endswith(".index") and stem.isdecimal() and int(stem) not in bases and (not bases or int(stem) > bases[0])
        if lost and (mark is None or int(stem) < flushed):
            raise Fault(f"{directory}/{stem}.log is missing, and this controller has the only copy of the metadata: restore it")
    expected, epoch = bases[0] if bases else 0, None
    for base in bases:
        path = f"{directory}/{base:020d}.log"
        if base > expected and mark is not None and expected >= flushed:
            return  # of several segments that were not flushed yet, a power cut has taken the first
        if base > expected:
            raise Fault(
                f"{directory}: the records from offset {expected} to {base - 1} are missing before {path}, "
                "and this controller has the only copy of the metadata: restore them"
            )
        with _opened(disk, path) as segment:
            expected, epoch, end = _walk(segment, expected, epoch)
            if end == segment.size:
                continue
            known = mark is not None or (base == bases[-1] and not _intact_behind(segment, end, expected))
        if expected < flushed or not known:
            raise Fault(
                f"{path} is damaged at byte {end}: the records from offset {expected} on are lost, "
                "and this controller has the only copy of the metadata. Restore the file; "
                f"to go on without them, cut it at byte {end} and remove {FLUSH_MARK} and later .log files"
            )
        break
    if expected < flushed:
        raise Fault(
            f"{directory}: the log ends at offset {expected}, the records from there to {flushed - 1} were flushed and are lost, "
            "and this controller has the only copy of the metadata. Restore its .log files; "
            f"to go on without the records, remove {FLUSH_MARK}"
        )


def wrong_epoch_from(disk: Disk, directory: str, latest_epoch: int | None) -> int | None:
    """The offset from which on the epochs in this log cannot be what its leaders wrote; None when all of them can.

    A new epoch begins with its leader's control batch, epochs do not go back, and none is later than `latest_epoch` (None: not
    known), which a node writes to `quorum-state` before it takes a record of it. Looks at headers only.
    """
    if disk.stat(directory) is None:
        return None
    walk = _EpochWalk(latest_epoch)
    for base in _bases(disk.listdir(directory)):
        with _opened(disk, f"{directory}/{base:020d}.log") as segment:
            position = 0
            while segment.size - position >= HEADER_BYTES:
                header = parse_header(segment.at(position, HEADER_BYTES))
                if header.magic != MAGIC or header.size_bytes < HEADER_BYTES:
                    return None  # recovery ends the log here, if not before
                wrong = walk.wrong_from(header)
                if wrong is not None:
                    return wrong
                position += header.size_bytes
    return None


class _EpochWalk:
    def __init__(self, latest_epoch: int | None) -> None:
        self._latest_epoch = latest_epoch
        self._last: BatchHeader | None = None
        self._began: int | None = None

    def wrong_from(self, header: BatchHeader) -> int | None:
        """Look at the next batch, and return what `wrong_epoch_from` returns."""
        last, epoch = self._last, header.partition_leader_epoch
        if self._latest_epoch is not None and epoch > self._latest_epoch:
            return header.base_offset
        if not _follows(header, last.partition_leader_epoch if last is not None else None):
            # Of two that contradict each other, a first batch of an epoch that nothing confirms may be the wrong one.
            return self._began if self._began is not None else header.base_offset
        self._began = header.base_offset if last is None or epoch > last.partition_leader_epoch else None
        self._last = header
        return None


class _Segment:
    """A file of the log, of which a piece at a time is in memory."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._begin, self._piece = 0, memoryview(b"")
        self.size = file.size()

    def at(self, position: int, length: int) -> memoryview:
        """`length` bytes from `position`, fewer at the end of the file."""
        if position < self._begin or position + length > self._begin + len(self._piece):
            self._begin, self._piece = position, memoryview(self._file.pread(max(length, _PIECE_BYTES), position))
        begin = position - self._begin
        return self._piece[begin : begin + length]


@contextmanager
def _opened(disk: Disk, path: str) -> Iterator[_Segment]:
    file = disk.open(path)
    try:
        yield _Segment(file)
    finally:
        file.close()


def _bases(names: Sequence[str]) -> list[int]:
    """Return the base offsets of the segments, sorted."""
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdecimal())


def _walk(segment: _Segment, expected: int, epoch: int | None) -> tuple[int, int | None, int]:
    """(next offset, epoch, position) where the intact batches from the start on end, each following the one before it."""
    position = 0
    while (header := _batch_at(segment, position)) is not None:
        if header.base_offset != expected or not _follows(header, epoch):
            break
        expected, epoch = header.next_offset, header.partition_leader_epoch
        position += header.size_bytes
    return expected, epoch, position


def _follows(header: BatchHeader, epoch: int | None) -> bool:
    """Return whether this batch can come after one of `epoch` (None: it is the first)."""
    found = header.partition_leader_epoch
    return epoch is None or found == epoch or (found > epoch and header.is_control)


def _batch_at(segment: _Segment, position: int) -> BatchHeader | None:
    """The header of the batch at this position if it is whole and its CRC fits."""
    header = _header_at(segment, position)
    return header if header is not None and check_crc(segment.at(position, header.size_bytes), header) else None


def _header_at(segment: _Segment, position: int) -> BatchHeader | None:
    """Return the header of the batch there, if the file is long enough for the batch that it tells of."""
    left = segment.size - position
    if left < HEADER_BYTES:
        return None
    header = parse_header(segment.at(position, HEADER_BYTES))
    plausible = header.magic == MAGIC and HEADER_BYTES <= header.size_bytes <= min(left, _MAX_BATCH_BYTES)
    return header if plausible and header.last_offset_delta >= 0 else None


def _intact_behind(segment: _Segment, position: int, expected: int) -> bool:
    """Not at the position itself: a torn write may leave a batch there of which nothing but the offset is wrong. A file that is
    larger than any segment is not searched: no crash has made it so, whatever is in it."""
    if segment.size > _MAX_SEGMENT_BYTES:
        return True
    magic = bytes([MAGIC])
    begin = position + 1 + _MAGIC_AT
    while begin < segment.size:
        piece = bytes(segment.at(begin, _PIECE_BYTES))
        found = piece.find(magic)
        while found >= 0:
            at = begin + found - _MAGIC_AT
            header = _header_at(segment, at)
            if (
                header is not None
                and expected <= header.base_offset < expected + _MAX_STEP
                and _batch_at(segment, at) is not None
            ):
                return True
            found = piece.find(magic, found + 1)
        begin += len(piece)
    return False
