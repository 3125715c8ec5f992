"""Events of the log layer. Nothing here is emitted per append or read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent(TraceEvent):
    """Base: which log."""

    level: ClassVar[str] = "debug"
    tp: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOpened(LogEvent):
    """Loaded: offsets [log_start_offset, leo)."""

    event: ClassVar[str] = "log.opened"
    log_start_offset: int
    leo: int
    recovery_point: int
    segments: int
    clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecovered(LogEvent):
    """An unclean start checked the segments from the recovery point on."""

    event: ClassVar[str] = "log.recovered"
    level: ClassVar[str] = "info"
    recovery_point: int
    leo: int
    checked_bytes: int
    dropped_bytes: int
    dropped_segments: int
    reason: str | None
    """The fault of the first bad byte; None when nothing was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRolled(LogEvent):
    event: ClassVar[str] = "log.rolled"
    base_offset: int
    """The base offset of the new active segment."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncated(LogEvent):
    """Everything from `offset` on was dropped; `removed` offsets of it."""

    event: ClassVar[str] = "log.truncated"
    level: ClassVar[str] = "info"
    offset: int
    old_leo: int
    leo: int
    hw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRestarted(LogEvent):
    """All data was dropped and the log starts anew, empty, at `offset`."""

    event: ClassVar[str] = "log.restarted"
    level: ClassVar[str] = "info"
    offset: int
    old_log_start_offset: int
    old_leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartAdvanced(LogEvent):
    event: ClassVar[str] = "log.start_advanced"
    old: int
    new: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDeleted(LogEvent):
    """Renamed to `.deleted`; unlinked after `file.delete.delay.ms`."""

    event: ClassVar[str] = "log.segment_deleted"
    base_offset: int
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEpochAssigned(LogEvent):
    event: ClassVar[str] = "log.epoch_assigned"
    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStateReloaded(LogEvent):
    event: ClassVar[str] = "log.producer_state_reloaded"
    snapshot_offset: int | None
    """None: no usable snapshot, everything was replayed."""
    leo: int
    producers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDoubted(LogEvent):
    """A log contradicts its recovery point or its clean shutdown: it is checked from this segment on."""

    event: ClassVar[str] = "log.doubted"
    level: ClassVar[str] = "warning"
    base_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSetAside(LogEvent):
    """A segment is kept in `file`, which nothing reads: the last one of a log that does not reach as far as was promised (it is
    fetched anew from others), or a compacted one that was damaged before it took its place."""

    event: ClassVar[str] = "log.segment_set_aside"
    level: ClassVar[str] = "warning"
    base_offset: int
    file: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsCollected(LogEvent):
    """`leader-epoch-checkpoint` contradicts the log or itself: the leader epochs are read from the batches."""

    event: ClassVar[str] = "log.epochs_collected"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRebuilt(LogEvent):
    event: ClassVar[str] = "log.index_rebuilt"
    level: ClassVar[str] = "warning"
    base_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaned(LogEvent):
    """Compaction went over the log: of each key only the newest record below `up_to` is left, tombstones aside."""

    event: ClassVar[str] = "log.cleaned"
    level: ClassVar[str] = "info"
    first_dirty: int
    up_to: int
    keys: int
    bytes_before: int
    bytes_after: int
    segments_before: int
    segments_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCleaningAborted(LogEvent):
    """The log changed under the cleaner: truncated, deleted, or its directory failed."""

    event: ClassVar[str] = "log.cleaning_aborted"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUncleanable(LogEvent):
    """The log cannot be compacted; it stays as it is until the node starts again."""

    event: ClassVar[str] = "log.uncleanable"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFailed(LogEvent):
    """Segments could not be looked at; the log stays as it is until it can."""

    event: ClassVar[str] = "log.retention_failed"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersExpired(LogEvent):
    event: ClassVar[str] = "log.producers_expired"
    count: int
