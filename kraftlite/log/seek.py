"""Looking into one batch for a record: the first of a time, or the newest time behind an offset.

What a batch of a client holds was bounded by bytes alone: 0.8 MB unfold to a million records, or to 256 MiB. So who looks goes
in steps, and on the loop only so far: `Seeker`.

Source: LG-51; docs/ROBUSTNESS.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, cast

from kraftlite.log import codecs, scan
from kraftlite.log.batch import HEADER_BYTES, BatchHeader, iter_records, record_timestamp
from kraftlite.log.scan import BOUND_TIMES, NAMED_ERRORS
from kraftlite.log.validation import CHECK_IN_PLACE, WORK_PER_CHUNK
from kraftlite.model.errors import ApiError
from kraftlite.model.limits import MAX_INT64

SEEK_IN_PLACE: Final = CHECK_IN_PLACE // 16
"""The work of one lookup that is done on the loop: less than a millisecond."""
_PLAIN_DISCOUNT: Final = 8
_PER_RECORD: Final = 512
_PER_HEADER: Final = 512
_MIN_INT64: Final = -MAX_INT64 - 1

T = TypeVar("T")
Steps = Generator[int, None, T]
"""Yields the work of each step, in the unit of `BatchCheck.advance`."""


class TimestampOffset(NamedTuple):
    """A record found by time. `leader_epoch` None when the batch carries none."""

    timestamp: int
    offset: int
    leader_epoch: int | None


class Unfinished(Exception):
    """The lookup takes longer than the caller has time. It is to look up again: if `Seeker.begun`, when what was begun was
    brought to its end elsewhere, and else when others have had their turn."""


class Seeker:
    """The state of one lookup, over several attempts if need be. `work`: what may be done in each of them."""

    __slots__ = ("_known", "_left", "_steps", "_work", "walks")

    def __init__(self, work: int = MAX_INT64) -> None:
        self._left = self._work = work
        self.walks: dict[Hashable, Any] = {}
        """The place that each walk over the headers of a segment has come to, by its key."""
        self._known: dict[Hashable, object] = {}
        """The outcomes, by key: a value, or an ApiError."""
        self._steps: tuple[Hashable, Steps[Any]] | None = None

    def get(self, key: Hashable, make: Callable[[], Steps[T]]) -> T:
        """The outcome of the steps. `key`: of all that they depend on. Raises ApiError as they do; Unfinished."""
        if key not in self._known:
            if self._steps is None or self._steps[0] != key:
                self._steps = (key, make())
            self._left = self._advance(self._left)
            if key not in self._known:
                raise Unfinished
        found = self._known[key]
        if isinstance(found, ApiError):
            raise found
        return cast(T, found)

    @property
    def begun(self) -> bool:
        return self._steps is not None

    def walked(self, key: Hashable, at: object) -> None:
        """Count one header of a walk, which has come so far. Raises Unfinished."""
        self._left -= _PER_HEADER
        if self._left < 0:
            self.walks[key] = at
            raise Unfinished

    def renew(self) -> None:
        """Begin another attempt, with all the work that it may do."""
        self._left = self._work

    def finish(self) -> None:
        """Bring what was begun to its end, for `get` to return it. It changes nothing and reads no file, so that it may be done
        on another thread."""
        self._advance(MAX_INT64)

    def _advance(self, work: int) -> int:
        if self._steps is None:
            return work
        key, steps = self._steps
        try:
            while work > 0:
                work -= next(steps)
        except StopIteration as end:
            self._known[key], self._steps = end.value, None
        except ApiError as error:
            self._known[key], self._steps = error, None
        return work


def first_record(batch: bytes, header: BatchHeader, timestamp: int, start: int) -> Steps[TimestampOffset | None]:
    """The first record of a batch from offset `start` on with a timestamp >= `timestamp`, which is -1 or more."""
    epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
    first = max(start - header.base_offset, 0)
    yield len(batch) // (2 * _PLAIN_DISCOUNT)
    if header.count == header.last_offset_delta + 1:
        if header.is_log_append_time:
            newest = header.max_timestamp
            return TimestampOffset(newest, header.base_offset + first, epoch) if newest >= timestamp else None
        # To the scanner no timestamp, -1, is within all bounds.
        index, when = (None, 0) if timestamp < 0 else (yield from _scan(batch, header, timestamp, first))
        if index is not None:
            return TimestampOffset(when, header.base_offset + index, epoch) if index >= 0 else None
    for record in _records(batch, header):
        if record is None:
            yield 2 * CHECK_IN_PLACE  # nobody knows what comes before the first record is there
            continue
        when = record_timestamp(header, record)
        if record.offset_delta >= first and when >= timestamp:
            return TimestampOffset(when, header.base_offset + record.offset_delta, epoch)
        yield _PER_RECORD
    return None


def newest_from(batch: bytes, header: BatchHeader, start: int) -> Steps[int]:
    """The largest timestamp of a batch's records from offset `start` on; -1 without one."""
    newest = -1
    for record in _records(batch, header):
        if record is None:
            yield 2 * CHECK_IN_PLACE
            continue
        if header.base_offset + record.offset_delta >= start:
            newest = max(newest, record_timestamp(header, record))
        yield _PER_RECORD
    return newest


def _records(batch: bytes, header: BatchHeader) -> Iterator[Any]:
    """The records, behind a None where they are compressed."""
    if header.codec:
        yield None
    yield from iter_records(batch)


def _scan(batch: bytes, header: BatchHeader, timestamp: int, first: int) -> Steps[tuple[int | None, int]]:
    """(index, timestamp) of the record in a batch in which none is missing; index -1: there is none; None: this way does not
    tell. The scanner notes the records whose time is out of bounds: those that are looked for, if all before it is within."""
    scanner = scan.Scanner(header.count, header.base_timestamp, _MIN_INT64, timestamp - 1, BOUND_TIMES)
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    for chunk in codecs.unpacked(header.codec, body) if header.codec else _slices(body):
        if chunk and scanner.feed(chunk):
            return None, 0
        if scanner.refused:
            for index, _, when in scanner.errors:
                if index >= first:
                    return (index, when) if when >= timestamp else (None, 0)
            if scanner.refused >= NAMED_ERRORS:
                return None, 0
        yield max(len(chunk), WORK_PER_CHUNK) if header.codec else len(chunk) // _PLAIN_DISCOUNT
    return (None, 0) if scanner.finish() else (-1, -1)


def _slices(body: memoryview) -> Iterator[memoryview]:
    return (body[at : at + scan.BYTES_PER_STEP] for at in range(0, len(body), scan.BYTES_PER_STEP))
