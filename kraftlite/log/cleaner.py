"""Compaction of one log: which logs are due, and one pass over one of them, in pieces.

A pass reads the dirty part into a map from key to last offset, then rewrites the log group by group of segments, from its start
up to what the map knows. A group's new segment is written beside the old ones and takes their place at once, so that at any
time the log is what it was, or compacted up to the end of some group.

Source: LG-42 to LG-48; KIP-58, KIP-354 (lags), KIP-534 (delete horizons).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftlite.log.batch import HEADER_BYTES, MAGIC, MAX_RELATIVE_OFFSET, BatchHeader, check_crc, iter_records, parse_header
from kraftlite.log.cleaned import CleanedSegment
from kraftlite.log.compaction import BatchFilter, OffsetMap, TransactionView
from kraftlite.log.indexes import OFFSET_ENTRY
from kraftlite.log.log import Log
from kraftlite.log.retention import newest_ms
from kraftlite.log.segment import Appended, Segment
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import KIB
from kraftlite.runtime.ports import Disk

RECORDS_PER_STEP: Final = 500
BYTES_PER_STEP: Final = 256 * KIB
"""The bytes that one step of a pass reads: a few milliseconds. A single batch is written in one piece, however large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """A compacted log and what could be done: [first_dirty, up_to) is not compacted yet and may be, in closed segments."""

    log: Log
    first_dirty: int
    up_to: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """The first dirty segment is older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def due(self) -> bool:
        """True when compaction of this log is due (LG-43)."""
        if not self.dirty_bytes:
            return False
        return self.overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def look(log: Log, wall_ms: int) -> LogToClean:
    """Return what there is to compact in `log`, now.

    Not the active segment; nothing at or beyond the last stable offset, which lies below the HW and every undecided
    transaction; nothing from the first dirty segment on that has a record younger than `min.compaction.lag.ms`. A progress
    that the log contradicts is forgotten. Raises OSError, ApiError(CORRUPT_MESSAGE).
    """
    config, segments = log.config, log.segments
    start = log.clean_offset
    first_dirty = start if start is not None and log.log_start_offset <= start <= log.leo else log.log_start_offset
    bound = min(log.last_stable_offset, log.active_base_offset)
    clean_bytes = dirty_bytes = 0
    up_to = first_dirty
    earliest_ms: int | None = None
    for segment, following in itertools.pairwise(segments):
        end = following.base_offset
        if end <= first_dirty:
            clean_bytes += segment.size
            continue
        if end > bound or (config.min_compaction_lag_ms > 0 and newest_ms(segment) > wall_ms - config.min_compaction_lag_ms):
            break
        dirty_bytes += segment.size
        up_to = end
        first_ms = segment.rolling_timestamp
        if first_ms is not None and first_ms > 0:
            earliest_ms = first_ms if earliest_ms is None else min(earliest_ms, first_ms)
    return LogToClean(
        log=log,
        first_dirty=first_dirty,
        up_to=up_to,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        overdue=earliest_ms is not None and earliest_ms < wall_ms - config.max_compaction_lag_ms,
    )


class Source(NamedTuple):
    """A closed segment as it was when the pass began."""

    segment: Segment
    path: str
    size: int
    cuts: int
    base_offset: int
    end_offset: int
    """The offset at which the next segment begins."""


class Cleaning:
    """One pass over one log.

    Order: `index` to its end, then for each of `groups`: `rewrite` to its end, `swap`. The steps of `index` and `rewrite` only
    use files of their own and what was noted when the pass began, so that they may run off the loop; everything else belongs
    on it. Between any two the log may change: `intact` says whether it has not, and only then `swap` may be called.
    Raises OSError; ApiError(CORRUPT_MESSAGE) for a batch that cannot be read, ApiError(INVALID_RECORD) for one with more keys
    than the map holds.
    """

    def __init__(self, todo: LogToClean, disk: Disk, *, map_bytes: int, wall_ms: int) -> None:
        log = self.log = todo.log
        self.todo = todo
        self.offsets = OffsetMap(map_bytes)
        self.bytes_before = self.bytes_after = self.segments_before = self.segments_after = 0
        self._disk = disk
        self._config = log.config
        self._wall_ms = wall_ms
        self._directory = log.directory
        segments = log.segments
        self._sources = [
            Source(segment, segment.path, segment.size, segment.cuts, segment.base_offset, following.base_offset)
            for segment, following in itertools.pairwise(segments)
            if following.base_offset <= todo.up_to
        ]
        start = segments[0].base_offset
        self._indexed = TransactionView(log.aborted_between(todo.first_dirty, todo.up_to))
        self._filter = BatchFilter(
            self.offsets,
            TransactionView(log.aborted_between(start, todo.up_to)),
            log.last_words(),
            wall_ms=wall_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )
        self._cleaned: CleanedSegment | None = None
        self._swapped = 0
        self._swapping = False

    @property
    def end_offset(self) -> int:
        """The offset up to which the log is compacted when the pass is over."""
        return self.offsets.latest + 1

    # the map

    def index(self) -> Iterator[int]:
        """Fill the map from the dirty part, until that ends or the map is full. Yields the number of bytes read meanwhile."""
        read = seen = 0
        first_dirty = self.todo.first_dirty
        self.offsets.latest = first_dirty - 1
        for source in self._sources:
            if source.end_offset <= first_dirty:
                continue
            for header, batch in read_batches(self._disk, source):
                read += header.size_bytes
                if header.is_control:
                    self._indexed.read_control(header, batch, None)
                elif not self._indexed.read_batch(header) and header.last_offset >= first_dirty:
                    for record in iter_records(batch):
                        offset = header.base_offset + record.offset_delta
                        if record.key is not None and offset >= first_dirty and not self.offsets.put(record.key, offset):
                            self._check_progress(header)
                            return
                        seen += 1
                        if seen % RECORDS_PER_STEP == 0:
                            yield read
                            read = 0
                self.offsets.latest = max(self.offsets.latest, header.last_offset)
                if read >= BYTES_PER_STEP:
                    yield read
                    read = 0
            self.offsets.latest = source.end_offset - 1
        yield read

    def _check_progress(self, header: BatchHeader) -> None:
        if self.offsets.latest < self.todo.first_dirty:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"{self.log.tp}: log.cleaner.dedupe.buffer.size is too small for the batch at offset {header.base_offset}",
            )

    # rewriting

    def groups(self) -> list[list[Source]]:
        """The segments to rewrite, those that fit into one segment together."""
        found: list[list[Source]] = []
        size = entries = 0
        max_entries = self._config.segment_index_bytes // OFFSET_ENTRY.size
        for source in self._sources:
            if source.base_offset >= self.end_offset:
                break
            new_entries = source.size // max(self._config.index_interval_bytes, HEADER_BYTES) + 1
            fits = (
                found
                and size + source.size <= self._config.segment_bytes
                and entries + new_entries <= max_entries
                and source.end_offset - found[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
            if fits:
                found[-1].append(source)
                size, entries = size + source.size, entries + new_entries
            else:
                found.append([source])
                size, entries = source.size, new_entries
        return found

    def rewrite(self, group: Sequence[Source]) -> Iterator[int]:
        """Write the group's new segment and make it durable. Yields as `index`."""
        cleaned = CleanedSegment(
            self._disk, self._directory, group[0].base_offset, self._config, created_ms=group[0].segment.created_ms
        )
        try:
            same = yield from self._fill(cleaned, group)
            cleaned.seal()
            if cleaned.size and not (same and len(group) == 1):
                cleaned.sync()
                self._cleaned = cleaned
            else:
                cleaned.discard()
        finally:
            if self._cleaned is not cleaned:
                cleaned.close()

    def _fill(self, cleaned: CleanedSegment, group: Sequence[Source]) -> Generator[int, None, bool]:
        """Fill the next segment, and return whether every batch is as it was."""
        same = True
        parts: list[bytes | memoryview] = []
        notes: list[Appended] = []
        size = read = seen = 0
        for source in group:
            position = 0
            for header, batch in read_batches(self._disk, source):
                position += header.size_bytes
                read += header.size_bytes
                last = source is group[-1] and position >= source.size
                for kept in self._filter.steps(header, batch, cleaned.txn_index, last=last):
                    seen += 1
                    if seen % RECORDS_PER_STEP == 0:
                        yield read
                        read = 0
                    if kept is None:
                        continue
                    same = same and kept.same
                    if kept.data is not None:
                        parts.append(kept.data)
                        notes.append(_noted(kept.data))
                        size += len(kept.data)
                if size >= BYTES_PER_STEP or read >= BYTES_PER_STEP:
                    _write(cleaned, parts, notes)
                    size = 0
                    yield read
                    read = 0
        _write(cleaned, parts, notes)
        yield read
        return same

    # the loop's part

    def intact(self) -> bool:
        """Return whether the log still has what was read and is not swapped yet, neither cut nor dropped nor moved, and all of it
        flushed. That is more than the group that is next: what the map knows of the segments behind it decides what goes."""
        sources = self._sources[self._swapped :]
        if not sources:
            return False  # deleted between `look` and the beginning of the pass
        if sources[-1].end_offset > self.log.recovery_point:
            return False
        if any(source.segment.cuts != source.cuts for source in sources):
            return False  # it may have grown to its old size, with other records
        return self.log.directory == self._directory and self.log.holds(
            [source.segment for source in sources], [source.size for source in sources]
        )

    def swap(self, group: Sequence[Source]) -> bool:
        """The new segment takes the place of the group; False when there was nothing to change."""
        cleaned, self._cleaned = self._cleaned, None
        before = sum(source.size for source in group)
        if cleaned is not None:
            self._swapping = True
            self.log.replace_segments(cleaned, [source.segment for source in group])
            self._swapping = False
        self._swapped += len(group)
        self.segments_before += len(group)
        self.segments_after += 1
        self.bytes_before += before
        self.bytes_after += before if cleaned is None else cleaned.size
        return cleaned is not None

    def disturbed(self) -> bool:
        """Return, after an error, whether the log had changed, so that what the pass wanted to read may not be there any more."""
        return not self._swapping and self._swapped < len(self._sources) and not self.intact()

    def give_up(self) -> None:
        """The new segment that was written last is not wanted any more."""
        cleaned, self._cleaned = self._cleaned, None
        if cleaned is not None:
            cleaned.discard()


def _noted(data: bytes | memoryview) -> Appended:
    header = parse_header(data)
    return Appended(header.last_offset, header.size_bytes, header.max_timestamp)


def _write(cleaned: CleanedSegment, parts: list[bytes | memoryview], notes: list[Appended]) -> None:
    if parts:
        cleaned.append(b"".join(parts), notes)
        parts.clear()
        notes.clear()


def read_batches(disk: Disk, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a closed segment, through a file of its own. ApiError(CORRUPT_MESSAGE) for one that is not intact."""
    file = disk.open(source.path)
    try:
        position = start = 0
        chunk = memoryview(b"")
        while position < source.size:
            at = position - start
            if len(chunk) - at < HEADER_BYTES:
                chunk, start, at = memoryview(file.pread(min(BYTES_PER_STEP, source.size - position), position)), position, 0
            header = parse_header(chunk, at)
            size = header.size_bytes
            if header.magic != MAGIC or size < HEADER_BYTES or position + size > source.size:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{source.path}: no batch at byte {position}")
            if len(chunk) - at < size:
                wanted = min(max(size, BYTES_PER_STEP), source.size - position)
                chunk, start, at = memoryview(file.pread(wanted, position)), position, 0
            batch = chunk[at : at + size]
            if len(batch) < size or not check_crc(batch, header):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{source.path}: a wrong CRC at byte {position}")
            yield header, batch
            position += size
    finally:
        file.close()
