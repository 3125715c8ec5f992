"""One segment: a `.log` file and its indexes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kraftlite.log.batch import HEADER_BYTES, MAGIC, MAX_RELATIVE_OFFSET, BatchHeader, check_crc, implausible, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.indexes import CorruptIndex, OffsetIndex, TimeIndex, TransactionIndex
from kraftlite.log.stored import Extent, Scan, SegmentFile, StoredRecords
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import KIB, MIB
from kraftlite.runtime.ports import Disk, File

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_TAIL_BATCHES: Final = 4096
"""The number of the newest batches that are known by exact position, so that reads near the end need no lookup on disk."""
_SCAN_BYTES: Final = 8 * KIB
_RECOVER_BYTES: Final = MIB


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class Appended(NamedTuple):
    """One batch of an append: what the segment keeps of it."""

    last_offset: int
    size_bytes: int
    max_timestamp: int


class Segment:
    """Batches with offsets in [base_offset, next segment's base). Reads and writes go to the page cache.

    Raises OSError; ApiError(CORRUPT_MESSAGE) when a header on the way does not make sense.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, config: LogConfig, *, created_ms: int, jitter_ms: int = 0
    ) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.size = 0
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.retired = False
        """Its files are renamed or gone: only an open handle may still be used."""
        self.rolling_timestamp: int | None = None
        """Largest timestamp of the first batch: what `segment.ms` counts from; None while empty."""
        self.txn_index = TransactionIndex(segment_path(directory, base_offset, TXN_INDEX_SUFFIX))
        self._disk = disk
        self._file: File | None = None
        self._open: SegmentFile | None = None
        self._deferred = False
        """The file is made when it is first opened."""
        self._interval = config.index_interval_bytes
        index_bytes = config.segment_index_bytes
        self._offset_index = OffsetIndex(segment_path(directory, base_offset, INDEX_SUFFIX), base_offset, index_bytes)
        self._time_index = TimeIndex(segment_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self._indexes_loaded = True
        self.first: BatchHeader | None = None
        """Header of the first batch when it was loaded; None when it was empty, or is a new one."""
        self._max_timestamp = -1
        self._offset_of_max = -1
        self._since_index = 0
        self._tail_last = array("q")
        self._tail_positions = array("q")
        self._tail_floor = base_offset - 1
        """Offsets above it are covered by the tail lists."""

    @classmethod
    def create(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        jitter_ms: int,
        deferred: bool = False,
    ) -> Segment:
        """A new, empty one. What a crash may have left under its name is emptied.

        `deferred`: for a directory without segments. The files are made by the first append: a topic of thousands of
        partitions would else make many thousands at once, and those cost more than everything else about it.
        """
        segment = cls(disk, directory, base_offset, config, created_ms=created_ms, jitter_ms=jitter_ms)
        segment._deferred = True
        segment._distrust_indexes()
        if not deferred:
            if segment.file.size():
                segment.file.truncate(0)
            segment.write_indexes()
        return segment

    @classmethod
    def load(
        cls, disk: Disk, directory: str, base_offset: int, config: LogConfig, *, size: int, created_ms: int, jitter_ms: int
    ) -> Segment:
        """An existing one, trusted: its indexes are read when they are first needed, those of an empty one never."""
        segment = cls(disk, directory, base_offset, config, created_ms=created_ms, jitter_ms=jitter_ms)
        segment.size = size
        segment._indexes_loaded = size == 0
        segment._distrust_indexes()
        if size >= HEADER_BYTES:
            first = parse_header(segment.file.pread(HEADER_BYTES, 0))
            segment.first = first
            segment.rolling_timestamp = first.max_timestamp
        segment.forget_tail()
        return segment

    @property
    def path(self) -> str:
        return segment_path(self.directory, self.base_offset)

    @property
    def file(self) -> File:
        return self._file if self._file is not None else self._open_file(create=self._deferred)

    def _open_file(self, *, create: bool) -> File:
        self._file = self._disk.open(self.path, create=create)
        self._open = SegmentFile(self._file)
        self._deferred = False
        return self._file

    @property
    def cuts(self) -> int:
        """So many times it was truncated since its file was opened: a position from before may be none of a batch."""
        return 0 if self._open is None else len(self._open.cuts)

    @property
    def offset_index(self) -> OffsetIndex:
        if not self._indexes_loaded:
            self.load_indexes()
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if not self._indexes_loaded:
            self.load_indexes()
        return self._time_index

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment; -1 when no record has one."""
        if not self._indexes_loaded:
            self.load_indexes()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the first batch that has `max_timestamp`; -1 when none has one."""
        if not self._indexes_loaded:
            self.load_indexes()
        return self._offset_of_max

    @property
    def indexes_full(self) -> bool:
        return self._offset_index.full or self._time_index.full

    # appending

    def append(self, data: bytes | bytearray | memoryview, batches: Sequence[Appended]) -> None:
        """Write whole batches at the end. On OSError nothing is changed but bytes beyond `size`."""
        position = self.size
        self.file.pwritev([data], position)
        if position == 0:
            self.rolling_timestamp = batches[0].max_timestamp
        for last_offset, size_bytes, max_timestamp in batches:
            self._note(last_offset, position, size_bytes, max_timestamp)
            self._tail_last.append(last_offset)
            self._tail_positions.append(position)
            position += size_bytes
        self.size = position
        if len(self._tail_last) > 2 * _TAIL_BATCHES:
            self._tail_floor = self._tail_last[_TAIL_BATCHES - 1]
            del self._tail_last[:_TAIL_BATCHES], self._tail_positions[:_TAIL_BATCHES]

    def _note(self, last_offset: int, position: int, size_bytes: int, max_timestamp: int) -> None:
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max = last_offset
        if self._since_index > self._interval:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(self._max_timestamp, self._offset_of_max)
            self._since_index = 0
        self._since_index += size_bytes

    def forget_tail(self) -> None:
        """Stop keeping exact positions: nothing more is appended, or they are unknown."""
        del self._tail_last[:], self._tail_positions[:]
        self._tail_floor = self.base_offset + MAX_RELATIVE_OFFSET

    def seal(self) -> None:
        """The log has rolled: close the time index with the segment's largest timestamp and write the indexes."""
        self.time_index.maybe_append(self._max_timestamp, self._offset_of_max)
        self.write_indexes()
        self.forget_tail()

    # finding

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from the batch boundary `position` on. Raises ApiError(CORRUPT_MESSAGE), also where
        the offsets go back: an index made of such batches would lead behind those that come twice."""
        size, next_offset = self.size, -1
        while position < size:
            chunk = self.file.pread(min(_SCAN_BYTES, size - position), position)
            at = 0
            while len(chunk) - at >= HEADER_BYTES:
                header = parse_header(chunk, at)
                if header.size_bytes < HEADER_BYTES or position + at + header.size_bytes > size:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: no batch at byte {position + at}")
                if header.base_offset < next_offset:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: the offsets go back at byte {position + at}")
                next_offset = header.next_offset
                yield position + at, header
                at += header.size_bytes
            if at == 0:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: {size - position} stray bytes at {position}")
            position += at

    def position_of(self, offset: int) -> int | None:
        """Position of the first batch whose last offset is >= `offset`; None when there is none."""
        if offset > self._tail_floor:
            index = bisect_left(self._tail_last, offset)
            return self._tail_positions[index] if index < len(self._tail_last) else None
        for position, header in self.headers(self.start_for(offset)):
            if header.last_offset >= offset:
                return position
        return None

    def start_for(self, offset: int) -> int:
        """A batch boundary from which to look for `offset`. An index entry that its batch contradicts rebuilds the index."""
        if not self._confirms(self.offset_index.entry_at_or_below(offset)):
            self.rebuild_indexes()
        return self._offset_index.position_at_or_below(offset)

    def _confirms(self, entry: tuple[int, int] | None) -> bool:
        """Return whether the log has the batch that an index entry (offset, position) speaks of."""
        if entry is None:
            return True
        raw = self.file.pread(HEADER_BYTES, entry[1])
        return len(raw) == HEADER_BYTES and (header := parse_header(raw)).magic == MAGIC and header.last_offset == entry[0]

    def boundary_at_or_below(self, limit: int, start: int) -> int:
        """The greatest end of a batch <= `limit`, looking from the boundary `start` on."""
        if limit >= self.size:
            return self.size
        positions = self._tail_positions
        if positions and limit >= positions[0]:
            return max(start, positions[bisect_right(positions, limit) - 1])
        if not self._confirms(self.offset_index.entry_before(limit)):
            self.rebuild_indexes()
        found = max(start, self.offset_index.boundary_at_or_below(limit))
        for position, header in self.headers(found):
            found = position
            if position + header.size_bytes > limit:
                break
        return found

    def find(self, offset: int, max_bytes: int, up_to: int | None, min_one: bool) -> Extent | None:
        """Whole batches from the one that holds `offset` (or follows it), all with offsets < `up_to` (None: no bound).

        At most `max_bytes`, but with `min_one` at least one batch. None when nothing is at or behind `offset` here.
        """
        start = self.position_of(offset)
        if start is None:
            return None
        bound = None if up_to is None else self.position_of(up_to)
        end = self.size if bound is None else bound
        readable = max(0, end - start)
        if 0 < readable > max_bytes:
            end = self.boundary_at_or_below(start + max_bytes, start)
            if end <= start and min_one:
                end = start + parse_header(self.file.pread(HEADER_BYTES, start)).size_bytes
        return Extent(start, max(start, end), readable)

    def stored(self, found: Extent, on_error: Callable[[OSError], None] | None = None) -> StoredRecords:
        """Return the found records, to be read later: as they are now, or not at all."""
        assert self._open is not None
        return StoredRecords(self._open, found.start, found.end - found.start, on_error)

    def last_header(self) -> BatchHeader | None:
        """Return the header of the last batch; None when empty."""
        found = None
        start = self.offset_index.boundary_at_or_below(self.size)
        for _, header in self.headers(start):
            found = header
        return found

    def check_tail(self, *, crc: bool) -> BatchHeader | None:
        """`last_header`; with `crc`, of batches whose content was looked at. Raises ApiError(CORRUPT_MESSAGE)."""
        found = None
        for position, header in self.headers(self.offset_index.boundary_at_or_below(self.size)):
            if header.magic != MAGIC or header.last_offset < self.base_offset:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: no batch at byte {position}")
            if crc and not check_crc(self.file.pread(header.size_bytes, position), header):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.path}: the CRC of the batch at byte {position} does not match")
            found = header
        return found

    # changing

    def truncate(self, size: int, offset: int) -> None:
        """End at the batch boundary `size`, which is where `offset` would come."""
        self.load_indexes()
        self.file.truncate(size)
        if self._open is not None:
            self._open.cuts.append(size)
        self.size = size
        self._offset_index.truncate(size)
        self._time_index.truncate(offset)
        self.txn_index.truncate(offset)
        keep = bisect_left(self._tail_positions, size)
        del self._tail_last[keep:], self._tail_positions[keep:]
        if self._tail_floor >= offset:
            # The positions that remain are unknown; the tail starts anew behind them.
            self._tail_floor = offset - 1
        if size == 0:
            self.rolling_timestamp = None
        self._remember_timestamps()
        self.write_indexes()

    def _remember_timestamps(self) -> None:
        """Largest timestamp and distance to the last index entry, from the indexes and the batches behind them."""
        last = self._time_index.last
        self._max_timestamp, self._offset_of_max = last if last is not None else (-1, -1)
        start = self._offset_index.boundary_at_or_below(self.size)
        self._since_index = self.size - start
        for _, header in self.headers(start):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._offset_of_max = header.max_timestamp, header.last_offset

    def load_indexes(self) -> None:
        """Read the index files; rebuild what is missing or corrupt (LG-28). Idempotent."""
        if self._indexes_loaded:
            return
        self._indexes_loaded = True
        try:
            self._offset_index.load(self._disk, self.size)
            self._time_index.load(self._disk, self.size)
            self._remember_timestamps()
        except (CorruptIndex, ApiError):
            # ApiError: no batch where the last entry has one. If it is the log that is damaged, the rebuilding says so.
            self.rebuild_indexes()
            self.sync_indexes()

    def start_tail(self, next_offset: int) -> None:
        """Keep exact positions from here on: the segment is the active one and ends before `next_offset`."""
        del self._tail_last[:], self._tail_positions[:]
        self._tail_floor = next_offset - 1

    def index_problem(self) -> str | None:
        """A cheap look at the index files: None when they may be trusted until they are read."""
        for path, entry in ((self._offset_index.path, 8), (self._time_index.path, 12)):
            stat = self._disk.stat(path)
            if stat is None:
                return f"{path} is missing"
            if stat.size % entry or (stat.size == 0 and self.size > 0 and entry == 12):
                return f"{path} has {stat.size} bytes"
        return None

    def rebuild_indexes(self) -> None:
        """Offset and time index anew from the headers; the transaction index is the recovery's business."""
        self._reset_indexes()
        for position, header in self.headers():
            self._note(header.last_offset, position, header.size_bytes, header.max_timestamp)
        self._time_index.maybe_append(self._max_timestamp, self._offset_of_max)
        self.write_indexes()

    def rewrite_indexes(self) -> None:
        """Replace the index files by what is in memory."""
        self._indexes_loaded = True
        self._distrust_indexes()
        self.write_indexes()

    def _distrust_indexes(self) -> None:
        """Ignore the content of the index files."""
        self._offset_index.rewrite()
        self._time_index.rewrite()

    def scan(self, expected_offset: int, accept: Callable[[BatchHeader], str | None]) -> Scan:
        """Check every batch of the file: magic, size, CRC, offsets that grow, and what `accept` says (None is good).

        Rebuilds offset and time index on the way and stops at the first bad byte; the file is left as it is.
        """
        self._reset_indexes()
        self.rolling_timestamp = None
        if self._deferred:
            return Scan(0, expected_offset, None)
        file, total, position, next_offset = self.file, self.file.size(), 0, expected_offset
        chunk, start = b"", 0
        reason: str | None = None
        while position < total:
            at = position - start
            if len(chunk) - at < HEADER_BYTES:
                if total - position < HEADER_BYTES:
                    reason = "partial batch header"
                    break
                chunk, start, at = file.pread(_RECOVER_BYTES, position), position, 0
            header = parse_header(chunk, at)
            size = header.size_bytes
            reason = implausible(header, total - position, next_offset, self.base_offset)
            if reason is not None:
                break
            if len(chunk) - at < size:
                chunk, start, at = file.pread(max(size, _RECOVER_BYTES), position), position, 0
            reason = None if check_crc(memoryview(chunk)[at : at + size], header) else "CRC does not match"
            reason = reason or accept(header)
            if reason is not None:
                break
            if position == 0:
                self.rolling_timestamp = header.max_timestamp
            self._note(header.last_offset, position, size, header.max_timestamp)
            position += size
            next_offset = header.next_offset
        self.size = position
        self._time_index.maybe_append(self._max_timestamp, self._offset_of_max)
        return Scan(position, next_offset, reason)

    def _reset_indexes(self) -> None:
        self._indexes_loaded = True
        self._offset_index.truncate(0)
        self._time_index.truncate(self.base_offset)
        self._distrust_indexes()
        self._max_timestamp = self._offset_of_max = -1
        self._since_index = 0

    # files

    def write_indexes(self) -> None:
        """Bring the index files up to date in the page cache. An empty segment needs none."""
        if self._indexes_loaded:
            self._offset_index.write(self._disk, create=self.size > 0)
            self._time_index.write(self._disk, create=self.size > 0)
        self.txn_index.write(self._disk)

    def sync_indexes(self) -> None:
        if self._indexes_loaded:
            self._offset_index.sync(self._disk)
            self._time_index.sync(self._disk)
        self.txn_index.sync(self._disk)

    async def flush_indexes(self) -> None:
        """`sync_indexes` off the loop."""
        self.write_indexes()
        for path in (self._offset_index.path, self._time_index.path, self.txn_index.path):
            if self.retired or self._disk.stat(path) is None:
                continue
            file = self._disk.open(path)
            try:
                await file.flush()
            finally:
                file.close()

    def close(self) -> None:
        """The file closes with the last who reads from it."""
        self._file = self._open = None

    def move(self, directory: str) -> None:
        """The directory was renamed. Open files stay open."""
        self.directory = directory
        self._offset_index.path = segment_path(directory, self.base_offset, INDEX_SUFFIX)
        self._time_index.path = segment_path(directory, self.base_offset, TIME_INDEX_SUFFIX)
        self.txn_index.path = segment_path(directory, self.base_offset, TXN_INDEX_SUFFIX)

    def modified_ms(self) -> int:
        """The time when its file was last written to, in wall time."""
        stat = self._disk.stat(self.path)
        return self.created_ms if stat is None else stat.mtime_ms

    def rename_deleted(self) -> list[str]:
        """Give every file the suffix `.deleted`; their new paths."""
        paths = [segment_path(self.directory, self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
        found = [path for path in paths if self._disk.stat(path) is not None]
        for path in found:
            self._disk.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX for path in found]

    def unlink(self) -> None:
        """Remove its files; an open handle stays usable until `close`."""
        self.retired = True
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment_path(self.directory, self.base_offset, suffix)
            if self._disk.stat(path) is not None:
                self._disk.unlink(path)
