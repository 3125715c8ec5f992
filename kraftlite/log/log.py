"""One log: the ordered record batches of one partition, or of the cluster metadata.

Source: LG-01 to LG-35, LG-41, LG-49 to LG-52; RP-27 to RP-29, RP-36.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

from kraftlite.log.appends import Appender, AppendInfo, UnexpectedAppend
from kraftlite.log.batch import BatchHeader
from kraftlite.log.cleaned import CleanedSegment
from kraftlite.log.compaction import LastWord
from kraftlite.log.config import LogConfig
from kraftlite.log.context import OpenLog
from kraftlite.log.deletion import Deletion
from kraftlite.log.directory import DirectoryClaim
from kraftlite.log.flusher import Flusher
from kraftlite.log.guards import Guard, TransactionTerms
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.log.opening import open_files
from kraftlite.log.producers import ActiveProducer
from kraftlite.log.reads import Found, Reader
from kraftlite.log.rolling import Roller
from kraftlite.log.seek import Seeker, TimestampOffset
from kraftlite.log.segment import Segment
from kraftlite.log.statements import Statement
from kraftlite.log.truncation import Truncation
from kraftlite.log.validation import AppendOrigin, RecordsRejected, Verdict
from kraftlite.model.messages.replica import EpochEndOffset

__all__ = ["ActiveProducer", "AppendInfo", "AppendOrigin", "Log", "OpenLog", "RecordsRejected", "UnexpectedAppend"]

Hook = Callable[[Any], None]


class Log:
    """Offsets [log_start_offset, leo). One owner, on one loop; every method but `flush` is synchronous and on the page cache.

    A facade: its parts share a `LogContext`, and each method's contract stands at the method of the part that it calls.
    Raises ApiError for a refusal (nothing has changed then) and OSError when the disk fails; after an OSError from a write
    the owner must take the directory offline. Opening raises ApiError(INCONSISTENT_TOPIC_ID) when the directory belongs to
    another topic of that name, OSError when the directory or a file in it is unusable, and LogDamaged when the files contradict
    the promise.
    """

    def __init__(self, opening: OpenLog) -> None:
        self.on_roll: Hook | None = None
        """Called synchronously with the log after a roll: flush up to `active_base_offset` soon."""
        self.on_recovery_point_lowered: Hook | None = None
        """Called after a truncation below the recovery point: write the checkpoint before returning (LG-31)."""
        self.on_restated: Hook | None = None
        """Called when the log got its first record, and when what was stated of it (`statement`) may not hold any more."""
        ctx, epochs, deleted = open_files(opening, weakref.ref(self))
        self._ctx, self._epochs = ctx, epochs
        self.tp, self.topic_id = ctx.tp, ctx.topic_id
        self.deleted = deleted
        """The files of deleted segments: the owner has them unlinked."""

    # Parts, made when they are first needed: a broker has tens of thousands of logs that nobody writes to. See `exchange`.

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self._ctx)

    @cached_property
    def _roller(self) -> Roller:
        return Roller(self._ctx)

    @cached_property
    def _claim(self) -> DirectoryClaim:
        return DirectoryClaim(self._ctx, self._epochs)

    @cached_property
    def _flusher(self) -> Flusher:
        return Flusher(self._ctx, self._epochs, self._roller)

    @cached_property
    def _truncation(self) -> Truncation:
        return Truncation(self._ctx, self._epochs, self._roller)

    @cached_property
    def _deletion(self) -> Deletion:
        return Deletion(self._ctx, self._epochs, self._roller, self.deleted)

    @cached_property
    def _appender(self) -> Appender:
        return Appender(self._ctx, self._claim, self._epochs, self._roller, self._truncation, self._flusher)

    # state

    @property
    def log_start_offset(self) -> int:
        return self._ctx.log_start_offset

    @property
    def hw(self) -> int:
        return self._ctx.hw

    @property
    def leo(self) -> int:
        return self._ctx.leo

    @property
    def recovery_point(self) -> int:
        return self._ctx.recovery_point

    @property
    def last_stable_offset(self) -> int:
        return self._ctx.last_stable_offset

    @property
    def clean_offset(self) -> int | None:
        return self._ctx.clean_offset

    @clean_offset.setter
    def clean_offset(self, offset: int | None) -> None:
        self._ctx.clean_offset = offset

    @property
    def directory(self) -> str:
        return self._ctx.directory

    @property
    def config(self) -> LogConfig:
        return self._ctx.config

    @property
    def latest_epoch(self) -> int | None:
        return self._ctx.epochs.latest_epoch

    @property
    def epoch_entries(self) -> tuple[tuple[int, int], ...]:
        return self._ctx.epochs.entries

    @property
    def size_bytes(self) -> int:
        return self._ctx.segments.size_bytes

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return self._ctx.segment_base_offsets

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, for retention and compaction, which leave changing them to the log. The last one is active."""
        return tuple(self._ctx.segments)

    @property
    def active_base_offset(self) -> int:
        return self._ctx.segments.active.base_offset

    @property
    def has_records(self) -> bool:
        return self._ctx.claimed

    def check(self, *, producers: bool = False) -> None:
        self._ctx.check(producers)

    def check_guards(self, leader_epoch: int) -> None:
        """Raise AssertionError when a guard was not made under this leadership."""
        self._ctx.producers.guards.check_leadership(leader_epoch)

    def statement(self, old: Statement | None = None, *, gaps_below: int = 0) -> Statement:
        return self._flusher.statement(old, gaps_below)

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        return self._ctx.producers.active()

    def has_late_transaction(self, wall_ms: int, limit_ms: int) -> bool:
        return self._ctx.producers.has_late_transaction(wall_ms, limit_ms)

    def last_words(self) -> dict[int, LastWord]:
        return self._ctx.producers.last_words()

    def remove_expired_producers(self, wall_ms: int) -> int:
        return self._ctx.remove_expired_producers(wall_ms)

    def holds(self, segments: Sequence[Segment], sizes: Sequence[int]) -> bool:
        return self._ctx.segments.holds(segments, sizes)

    def update_config(self, config: LogConfig) -> None:
        self._ctx.adopt_config(config)

    def update_hw(self, hw: int) -> None:
        self._ctx.set_hw(hw)

    # reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> bytes:
        return self._reader.read(offset, max_bytes, up_to, min_one)

    def find(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> Found | None:
        return self._reader.find(offset, max_bytes, up_to, min_one)

    def offset_for_timestamp(self, ts: int, *, up_to: int, seeker: Seeker | None = None) -> TimestampOffset | None:
        return self._reader.offset_for_timestamp(ts, up_to, seeker or Seeker())

    def offset_of_max_timestamp(self, *, seeker: Seeker | None = None) -> TimestampOffset | None:
        return self._reader.offset_of_max_timestamp(seeker or Seeker())

    def aborted_transactions(self, start: int, up_to: int) -> tuple[tuple[int, int], ...]:
        return self._reader.aborted_transactions(start, up_to)

    def has_aborted_from(self, start: int) -> bool:
        return self._reader.has_aborted_from(start)

    def aborted_between(self, start: int, up_to: int) -> list[AbortedTransaction]:
        return self._reader.aborted_between(start, up_to)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        return self._ctx.epochs.end_offset_for(epoch, self._ctx.leo)

    def epoch_at(self, offset: int) -> int | None:
        return self._ctx.epochs.epoch_at(offset)

    # growing

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        wall_ms: int,
        origin: AppendOrigin,
        verdict: Verdict | None = None,
        terms: TransactionTerms | None = None,
    ) -> AppendInfo:
        return self._appender.append_as_leader(batch, leader_epoch, wall_ms, origin, verdict, terms)

    def begin_verification(self, header: BatchHeader, *, leader_epoch: int, wall_ms: int, adds: bool) -> Guard | None:
        return self._ctx.producers.begin_verification(header, leader_epoch, wall_ms, adds=adds)

    def drop_guard(self, producer_id: int, guard: Guard) -> None:
        self._ctx.producers.guards.drop(producer_id, guard)

    def drop_guards(self) -> None:
        """Forget what was asked under an earlier leadership (TP-04)."""
        self._ctx.producers.guards.clear()

    def append_as_follower(
        self,
        data: bytes | memoryview,
        *,
        leader_epoch: int | None = None,
        allow_gaps: bool | None = None,
        gaps_below: int = 0,
        wall_ms: int | None = None,
    ) -> AppendInfo | None:
        return self._appender.append_as_follower(data, leader_epoch, allow_gaps, gaps_below, wall_ms)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        self._epochs.assign_start(epoch, offset)

    def maybe_roll(self, wall_ms: int) -> bool:
        return self._roller.maybe_roll(wall_ms)

    def roll(self) -> bool:
        return self._roller.roll()

    # shrinking

    def truncate_to(self, offset: int, *, allow_below_hw: bool = False) -> bool:
        return self._truncation.truncate_to(offset, allow_below_hw=allow_below_hw)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._truncation.truncate_fully_and_start_at(offset)

    def increment_log_start(self, offset: int, reason: str) -> bool:
        return self._deletion.increment_log_start(offset, reason)

    def delete_segments_before(self, offset: int, *, reason: str = "below log start") -> int:
        return self._deletion.delete_segments_before(offset, reason=reason)

    def replace_segments(self, new: CleanedSegment, old: Sequence[Segment]) -> None:
        self._deletion.replace_segments(new, old)

    # durability

    async def flush(self, up_to: int | None = None) -> int:
        return await self._flusher.flush(up_to)

    def flush_sync(self) -> int:
        return self._flusher.flush_sync()

    def close(self) -> None:
        self._flusher.close()

    def close_files(self) -> None:
        self._flusher.close_files()

    def exchange(self, other: Log) -> None:
        """Go on with the files of `other`, which has the same records, and leave ours to it. The HW, how far compaction has come,
        what is known of producers, what coordinators are being asked about, the tracer and the owner's hooks stay with each of
        the two. Departs: Kafka's copy knows nothing of a producer whose records were deleted before it was made.

        When a start finds that a crash has left less of our files than of the other's, it is theirs that know the producers."""
        hw, clean_offset = self.hw, self.clean_offset
        ours, theirs = self._ctx.producers, other._ctx.producers
        if self.leo != other.leo:
            ours.guards, theirs.guards = theirs.guards, ours.guards
            ours, theirs = theirs, ours
        self._ctx, other._ctx = other._ctx, self._ctx
        self._epochs, other._epochs = other._epochs, self._epochs
        self.deleted, other.deleted = other.deleted, self.deleted
        for log in (self, other):
            for name in _PARTS:
                log.__dict__.pop(name, None)  # it is made again, of what the log has now
        self._ctx.log, other._ctx.log = weakref.ref(self), weakref.ref(other)
        self._ctx.tracer, other._ctx.tracer = other._ctx.tracer, self._ctx.tracer
        self._ctx.producers, other._ctx.producers = ours, theirs
        self._ctx.clean_offset = clean_offset
        self.update_hw(hw)

    def rename_directory(self, new: str) -> None:
        """Move the log, for instance to `<name>.<uuid>-delete`. Open files follow."""
        self._claim.rename(new)
        self.deleted.move(new)


_PARTS: Final = tuple(name for name, found in vars(Log).items() if isinstance(found, cached_property))
"""They have no state of their own."""
