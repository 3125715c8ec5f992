"""Reading: offsets to bytes, timestamps to offsets, and which transactions were aborted.

Source: LG-23, LG-41, LG-49 to LG-51.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftlite.log.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, parse_header
from kraftlite.log.context import LogContext
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.log.seek import Seeker, Steps, TimestampOffset, first_record, newest_from
from kraftlite.log.segment import Segment
from kraftlite.log.segments import SegmentList
from kraftlite.log.stored import Extent
from kraftlite.model.errors import ApiError, ErrorCode


class Found(NamedTuple):
    """The end of a read. `more`: there is more in later segments, whatever `extent.readable` says."""

    segment: Segment
    extent: Extent
    more: bool

    @property
    def size(self) -> int:
        return self.extent.end - self.extent.start

    def read(self) -> bytes:
        start, end, _ = self.extent
        return self.segment.file.pread(end - start, start) if end > start else b""

    def next_offset(self) -> int:
        """The offset behind the last batch of what was found, which is not nothing: one lookup, however many batches there are.
        ApiError(CORRUPT_MESSAGE) where they cannot be told apart."""
        start, end, _ = self.extent
        last = self.segment.boundary_at_or_below(end - 1, start)
        return parse_header(self.segment.file.pread(HEADER_BYTES, last)).next_offset


class Reader:
    """Answers from the log's segments; nothing of it changes anything."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: LogContext) -> None:
        self._ctx = ctx

    def read(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> bytes:
        """Whole batches from the one that holds `offset`, all below `up_to` (exclusive), from one segment.

        At most `max_bytes`, but at least one batch with `min_one`. Empty at `up_to`. ApiError(OFFSET_OUT_OF_RANGE) outside
        [log_start_offset, leo].
        """
        found = self.find(offset, max_bytes, up_to, min_one)
        return b"" if found is None else found.read()

    def find(self, offset: int, max_bytes: int, up_to: int, min_one: bool) -> Found | None:
        """The place that `read` would read, in the first segment that has anything there; None where it returns nothing."""
        ctx = self._ctx
        start, leo, segments = ctx.log_start_offset, ctx.leo, ctx.segments
        if not start <= offset <= leo:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{ctx.tp}: offset {offset} is outside [{start}, {leo}]")
        if up_to > leo:
            up_to = leo
        if offset >= up_to:
            return None
        index = segments.index_of(offset)
        while index < len(segments):
            end = segments[index + 1].base_offset if index + 1 < len(segments) else None
            more = end is not None and up_to > end
            bound = None if end is not None and up_to >= end else up_to
            extent = segments[index].find(offset, max_bytes, bound, min_one)
            if extent is not None:
                return Found(segments[index], extent, more)
            index += 1
        return None

    def offset_for_timestamp(self, timestamp: int, up_to: int, seeker: Seeker) -> TimestampOffset | None:
        """The first record below `up_to` with a timestamp >= `timestamp` (LG-51). Raises Unfinished when the seeker has no time
        for it."""
        return offset_for_timestamp(self._ctx.segments, timestamp, self._ctx.log_start_offset, up_to, seeker)

    def offset_of_max_timestamp(self, seeker: Seeker) -> TimestampOffset | None:
        """The first record of all with the largest timestamp (LG-51). Raises as `offset_for_timestamp`."""
        return offset_of_max_timestamp(self._ctx.segments, self._ctx.log_start_offset, self._ctx.leo, seeker)

    def aborted_transactions(self, start: int, up_to: int) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of the aborted transactions that overlap [start, up_to), for a consumer."""
        return aborted_transactions(self._ctx.segments, start, up_to)

    def has_aborted_from(self, start: int) -> bool:
        """Return whether a transaction that ends at or behind `start` was aborted: without, there is nothing to look up."""
        return any(segment.txn_index.ends_from(start) for segment in self._ctx.segments.from_offset(start))

    def aborted_between(self, start: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start, up_to), wherever their markers are, for compaction."""
        return [
            entry
            for segment in self._ctx.segments
            for entry in segment.txn_index
            if entry.last_offset >= start and entry.first_offset < up_to
        ]


def offset_for_timestamp(segments: SegmentList, timestamp: int, start: int, up_to: int, seeker: Seeker) -> TimestampOffset | None:
    """The first record in [start, up_to) with a timestamp >= `timestamp`."""
    for segment in segments:
        if segment.base_offset >= up_to:
            return None
        if segment.max_timestamp < timestamp:
            continue
        found = _search(segment, timestamp, start, up_to, seeker)
        if found is not None:
            return found
    return None


def _search(segment: Segment, timestamp: int, start: int, up_to: int, seeker: Seeker) -> TimestampOffset | None:
    key = ("by time", segment, segment.cuts, timestamp, start)
    first = max(segment.time_index.offset_at_or_below(timestamp), start)
    for position, header in segment.headers(seeker.walks.get(key) or segment.start_for(first)):
        if header.base_offset >= up_to:
            return None
        seeker.walked(key, position)
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            found = _first_record(segment, position, header, timestamp, start, seeker)
            if found is not None:
                return found if found.offset < up_to else None
    seeker.walks[key] = segment.size
    return None


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start: int, seeker: Seeker
) -> TimestampOffset | None:
    def make() -> Steps[TimestampOffset | None]:
        return first_record(segment.file.pread(header.size_bytes, position), header, timestamp, start)

    return seeker.get((segment, position, header, timestamp, start), make)


def offset_of_max_timestamp(segments: SegmentList, start: int, leo: int, seeker: Seeker) -> TimestampOffset | None:
    """The first record from `start` on that has the largest timestamp there; where none has one, -1 is the largest.

    Of a batch that compaction has emptied the timestamp is still there, the record is not: then all headers are looked at.
    """
    found, misled = _max_record(segments, start, leo, seeker, scan=False)
    if misled:
        found, _ = _max_record(segments, start, leo, seeker, scan=True)
    return offset_for_timestamp(segments, NO_TIMESTAMP, start, leo, seeker) if found is None else found


def _max_record(
    segments: SegmentList, start: int, leo: int, seeker: Seeker, *, scan: bool
) -> tuple[TimestampOffset | None, bool]:
    """The record, and whether there is none though a segment's time index says so."""
    best, best_offset, best_segment = -1, -1, None
    for index, segment in enumerate(segments):
        if segments.end_of(index, leo) <= start:
            continue
        if not scan and start <= segment.base_offset:
            latest, offset = segment.max_timestamp, segment.offset_of_max_timestamp
        else:
            latest, offset = _scan_max(segment, start, seeker)
        if latest > best:
            best, best_offset, best_segment = latest, offset, segment
    if best_segment is None:
        return None, False
    position = best_segment.position_of(best_offset)
    if position is None:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{best_segment.path}: the time index names offset {best_offset}")
    at, header = next(best_segment.headers(position))
    return _first_record(best_segment, at, header, best, start, seeker), header.count == 0


def _scan_max(segment: Segment, start: int, seeker: Seeker) -> tuple[int, int]:
    key = ("newest", segment, segment.cuts, start)
    at, latest, offset = seeker.walks.get(key) or (segment.start_for(start), -1, -1)
    for position, header in segment.headers(at):
        seeker.walked(key, (position, latest, offset))
        if header.count and header.last_offset >= start and header.max_timestamp > latest:
            newest = header.max_timestamp
            if header.base_offset < start:
                newest = _newest_from(segment, position, header, start, seeker)
            if newest > latest:
                latest, offset = newest, header.last_offset
    seeker.walks[key] = segment.size, latest, offset
    return latest, offset


def _newest_from(segment: Segment, position: int, header: BatchHeader, start: int, seeker: Seeker) -> int:
    """Return the largest timestamp of a batch's records from `start` on: what comes before it was deleted."""

    def make() -> Steps[int]:
        return newest_from(segment.file.pread(header.size_bytes, position), header, start)

    return seeker.get((segment, position, header, start), make)


def aborted_transactions(segments: SegmentList, start: int, up_to: int) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of every aborted transaction that overlaps [start, up_to)."""
    found: list[tuple[int, int]] = []
    for segment in segments.from_offset(start):
        for entry in segment.txn_index.ending_from(start):
            if entry.first_offset < up_to:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= up_to:
                return tuple(found)
    return tuple(found)
