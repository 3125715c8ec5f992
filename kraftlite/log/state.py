"""The state of a log, and what can be asked of it. `log.Log` is the whole."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kraftlite.log import checkpoints, reads
from kraftlite.log.compaction import LastWord
from kraftlite.log.config import LogConfig
from kraftlite.log.flushes import InFlightFlushes
from kraftlite.log.indexes import AbortedTransaction
from kraftlite.log.promises import LogDamaged, Promise
from kraftlite.log.reads import TimestampOffset
from kraftlite.log.recovery import Loader
from kraftlite.log.segment import Segment
from kraftlite.log.statements import Statement
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import ZERO_UUID
from kraftlite.model.messages.replica import EpochEndOffset
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace.log import LogOpened


class ActiveProducer(NamedTuple):
    """For DescribeProducers. `txn_start_offset` None: no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int | None


class DeletedSegment(NamedTuple):
    """Renamed files that wait to be unlinked."""

    paths: tuple[str, ...]
    due_ms: int | None
    """None until the owner's first `purge_deleted`."""


class LogState:
    """Offsets, segments, epochs and producers of one open log; the questions that change nothing."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        tp: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
        wall_ms: int,
        entropy: random.Random | None,
        tracer: Tracer,
        sibling: str | None,
        max_epoch: int | None,
        promise: Promise | None,
    ) -> None:
        self.tp = tp
        self.directory = directory
        self.config = config
        self.on_roll: Callable[[Any], None] | None = None
        self.on_recovery_point_lowered: Callable[[Any], None] | None = None
        self.on_restated: Callable[[Any], None] | None = None
        self._disk = disk
        self._entropy = entropy
        self._tracer = tracer
        self._wall_ms = wall_ms
        self._new_directory = False
        self.topic_id = self._claim_directory(topic_id, sibling, promise)
        loader = Loader(
            disk=disk,
            directory=directory,
            tp=tp,
            config=config,
            wall_ms=wall_ms,
            jitter=self._draw_jitter,
            tracer=tracer,
            max_epoch=max_epoch,
            promise=promise,
        )
        clean = clean or self._new_directory
        if self._new_directory:
            loaded = loader.create(log_start_offset)
        else:
            loaded = loader.load(log_start_offset=log_start_offset, recovery_point=recovery_point, clean=clean)
        self._segments = loaded.segments
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self.leo = loaded.leo
        self.log_start_offset = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self.hw = loaded.log_start_offset
        self._in_flight = InFlightFlushes()
        self._deleted = [DeletedSegment(loaded.deleted, None)] if loaded.deleted else []
        self._sync_dir_due = True
        self._claimed = self.topic_id is None or self._segments.size_bytes > 0
        """The directory and whose it is are durable: data without a `partition.metadata` would be nobody's after a crash."""
        self._named = -1
        """Base offset of a segment whose name is durable; -1: none is known."""
        self.clean_offset: int | None = None
        """What compaction has come to: everything below it was compacted. None: nothing. The owner keeps it over restarts."""
        self._settled = clean and not self._new_directory
        """Nothing has changed since the files were last made durable."""
        self._epochs_durable = clean and not self._epochs.dirty
        self._epochs_filed = loaded.epochs_filed
        self._adopt_config()
        tracer.emit(self._opened(clean))

    def _opened(self, clean: bool) -> LogOpened:
        return LogOpened(
            tp=self.tp,
            log_start_offset=self.log_start_offset,
            leo=self.leo,
            recovery_point=self.recovery_point,
            segments=len(self._segments),
            clean=clean,
        )

    def _claim_directory(self, topic_id: UUID | None, sibling: str | None, promise: Promise | None) -> UUID | None:
        if topic_id == ZERO_UUID:
            topic_id = None
        if self._disk.stat(self.directory) is None:
            self._new_directory = True
            self._make_directory(durable=topic_id is None)
            if topic_id is not None:
                checkpoints.write_partition_metadata(self._disk, self.directory, topic_id, sibling=sibling)
            return topic_id
        try:
            found = checkpoints.read_partition_metadata(self._disk, self.directory)
        except checkpoints.MalformedCheckpoint as error:
            if self._holds_records() and not (promise is not None and promise.accept_loss):
                if promise is not None:
                    raise LogDamaged(str(error)) from error
                raise OSError(errno.EIO, str(error), self.directory) from error
            found = None  # torn, because nothing was written that it had to be durable for
        if topic_id is None:
            return found
        if found is None:
            checkpoints.write_partition_metadata(self._disk, self.directory, topic_id)
        elif found != topic_id and not self._holds_records():
            checkpoints.write_partition_metadata(self._disk, self.directory, topic_id)  # an id that nobody relied on yet
        elif found != topic_id:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.directory} belongs to topic id {found}, not {topic_id}")
        return topic_id

    def _make_directory(self, *, durable: bool) -> None:
        if not durable:
            try:
                self._disk.mkdir(self.directory)
            except FileNotFoundError:
                pass  # nor is there one above it
            else:
                return
        self._disk.makedirs(self.directory)

    def _holds_records(self) -> bool:
        stats = (
            self._disk.stat(f"{self.directory}/{name}") for name in self._disk.listdir(self.directory) if name.endswith(".log")
        )
        return any(stat is not None and stat.size for stat in stats)

    @property
    def _parent(self) -> str:
        return self.directory.rpartition("/")[0] or "/"

    # state

    @property
    def latest_epoch(self) -> int | None:
        """The newest leader epoch that the log knows; None when it knows none."""
        return self._epochs.latest_epoch

    @property
    def epoch_entries(self) -> tuple[tuple[int, int], ...]:
        """(leader epoch, start offset), ascending."""
        return self._epochs.entries

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """For retention and compaction, which leave changing them to the log. The last one is active."""
        return tuple(self._segments)

    @property
    def active_base_offset(self) -> int:
        return self._segments.active.base_offset

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest transaction that is open or whose marker is not below the HW; the HW without one."""
        unstable = self._producers.first_unstable_offset()
        return self.hw if unstable is None or unstable >= self.hw else max(unstable, self.log_start_offset)

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        return tuple(
            ActiveProducer(
                producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for producer_id, entry in self._producers.items()
        )

    def holds(self, segments: Sequence[Segment], sizes: Sequence[int]) -> bool:
        """Whether these are its segments, one behind the other, closed, of these sizes."""
        return self._segments.holds(segments) and all(segment.size == size for segment, size in zip(segments, sizes, strict=True))

    def last_words(self) -> dict[int, LastWord]:
        """What each live producer wrote last, for compaction."""
        return {
            producer_id: LastWord(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
            for producer_id, entry in self._producers.items()
        }

    def aborted_between(self, start: int, up_to: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start, up_to), wherever their markers are."""
        return [
            entry
            for segment in self._segments
            for entry in segment.txn_index
            if entry.last_offset >= start and entry.first_offset < up_to
        ]

    @property
    def has_records(self) -> bool:
        """It was written to once: the directory and whose it is are durable."""
        return self._claimed

    def statement(self, old: Statement | None = None, *, gaps_below: int = 0) -> Statement:
        """What may be stated of it for a start after a power cut: no more than is durable. `old`: what was stated last.

        A segment's name is durable when something in it was flushed, or the directory was since the segment came.
        """
        bound = self.recovery_point - 1 if self._sync_dir_due else self.recovery_point
        bases = self.segment_base_offsets
        active = max((base for base in bases if base <= bound), default=-1)
        named = self._named if old is None else max(self._named, old.active)
        if active < named and named in bases:
            active = named
        if old is not None:
            gaps_below = max(gaps_below, old.gaps_below)
        return Statement(self.log_start_offset, self.recovery_point, active, max(gaps_below, self.clean_offset or 0))

    def _restated(self) -> None:
        if self.on_restated is not None:
            self.on_restated(self)

    def _draw_jitter(self) -> int:
        bound = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        return self._entropy.randrange(bound) if self._entropy is not None and bound > 0 else 0

    def update_config(self, config: LogConfig) -> None:
        """Takes effect at once, but for index sizes and intervals: those at the next segment."""
        self.config = config
        self._adopt_config()

    def _adopt_config(self) -> None:
        config = self.config
        self._append_time = config.log_append_time
        self._flush_every = config.flush_messages
        self._max_segment_ms = config.max_segment_ms

    def update_hw(self, hw: int) -> None:
        """Set the high watermark, bounded by [log_start_offset, leo]. The owner decides whether it may go back."""
        hw = max(self.log_start_offset, min(hw, self.leo))
        if hw != self.hw:
            self.hw = hw
            self._producers.on_hw_advanced(hw)

    # reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> bytes:
        """Whole batches from the one that holds `offset`, all below `up_to` (exclusive), from one segment.

        At most `max_bytes`, but at least one batch with `min_one`. Empty at `up_to`. ApiError(OFFSET_OUT_OF_RANGE) outside
        [log_start_offset, leo].
        """
        found = self.find(offset, max_bytes, up_to=up_to, min_one=min_one)
        return b"" if found is None else found.read()

    def find(self, offset: int, max_bytes: int, *, up_to: int, min_one: bool = True) -> reads.Found | None:
        """Where `read` would read; None where it returns nothing, at `up_to`."""
        if not self.log_start_offset <= offset <= self.leo:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp}: offset {offset} is outside [{self.log_start_offset}, {self.leo}]"
            )
        up_to = min(up_to, self.leo)
        if offset >= up_to:
            return None
        return reads.find(self._segments, offset, max_bytes, up_to, min_one)

    def offset_for_timestamp(self, ts: int, *, up_to: int) -> TimestampOffset | None:
        """The first record below `up_to` with a timestamp >= `ts` (LG-51)."""
        return reads.offset_for_timestamp(self._segments, ts, self.log_start_offset, up_to)

    def offset_of_max_timestamp(self, *, up_to: int | None = None) -> TimestampOffset | None:
        """The first record with the largest timestamp, below `up_to` (default: the LEO)."""
        bound = self.leo if up_to is None else min(up_to, self.leo)
        return reads.offset_of_max_timestamp(self._segments, self.log_start_offset, bound, self.leo)

    def aborted_transactions(self, start: int, up_to: int) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of the aborted transactions that overlap [start, up_to)."""
        return reads.aborted_transactions(self._segments, start, up_to)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        """The largest epoch <= `epoch` that the log knows and where it ends; None when undefined (RP-29)."""
        return self._epochs.end_offset_for(epoch, self.leo)

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of `offset`; None when it lies before the first known epoch."""
        return self._epochs.epoch_at(offset)
