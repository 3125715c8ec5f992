"""The state that the parts of one log share: its place, its contents, its offsets, and the hooks of its owner.

Source: LG-01, LG-21, LG-23, LG-31.
"""

from __future__ import annotations

import itertools
import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from kraftlite.log.config import LogConfig
from kraftlite.log.epochs import LeaderEpochCache
from kraftlite.log.flushes import InFlightFlushes
from kraftlite.log.producer_reload import find_undecided
from kraftlite.log.producers import ProducerState
from kraftlite.log.promises import Promise
from kraftlite.log.segments import SegmentList
from kraftlite.model.limits import PRODUCER_BATCHES
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Disk, Tracer
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.log import ProducersExpired


class Entropy(Protocol):
    """The source of a log's jitter."""

    def randrange(self, stop: int, /) -> int: ...


class SeededLater:
    """A generator that is made at its first draw: one of Python's takes 2.5 KiB, and few logs draw (`segment.jitter.ms`)."""

    __slots__ = ("_random", "_seed")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random: random.Random | None = None

    def randrange(self, stop: int, /) -> int:
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random.randrange(stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """The parameters with which a log is opened or created."""

    disk: Disk
    directory: str
    tp: TopicPartition
    topic_id: UUID | None
    """None takes what `partition.metadata` says."""
    config: LogConfig
    log_start_offset: int = 0
    recovery_point: int = 0
    clean: bool = False
    """The last owner closed it; else everything from `recovery_point` on is checked."""
    wall_ms: int
    entropy: Entropy | None = None
    tracer: Tracer = field(default_factory=NullTracer)
    new: bool = False
    """The directory is hardly there already: it is made without a look."""
    names: Sequence[str] | None = None
    """The names that were found in the directory a moment ago, when its `partition.metadata` said `topic_id`: neither is read
    again."""
    sibling: str | None = None
    """The directory of another partition of that topic on the same disk, which makes a new one cheaper."""
    max_epoch: int | None = None
    """No batch can be of a later leader epoch, where the owner knows that."""
    promise: Promise | None = None
    """The promise that the log must keep; without one, the log ends where the damage begins."""
    producer_batches: int = PRODUCER_BATCHES


def draw_jitter(config: LogConfig, entropy: Entropy | None) -> int:
    """A new segment rolls so many milliseconds early: thousands must not roll at once."""
    bound = min(config.segment_jitter_ms, config.max_segment_ms)
    return entropy.randrange(bound) if entropy is not None and bound > 0 else 0


class Hooked(Protocol):
    """The log as its hooks know it."""

    on_roll: Callable[[Any], None] | None
    on_recovery_point_lowered: Callable[[Any], None] | None
    on_restated: Callable[[Any], None] | None


@dataclass(slots=True, kw_only=True, eq=False)
class LogContext:
    """Mutable state of one `Log`; only its parts touch it."""

    log: weakref.ref[Hooked]
    """The facade, for the hooks. The reference is weak, so that the files of a log that was let go of are closed at once."""
    disk: Disk
    tracer: Tracer
    entropy: Entropy | None
    tp: TopicPartition
    topic_id: UUID | None
    directory: str
    config: LogConfig
    wall_ms: int
    """The wall time of the latest append: what the age of a segment without timestamps is counted up to."""

    segments: SegmentList
    epochs: LeaderEpochCache
    producers: ProducerState
    log_start_offset: int
    hw: int
    leo: int
    recovery_point: int
    """Everything below it is durable."""
    clean_offset: int | None = None
    """Everything below it was compacted, never more than there is. None: nothing was. The owner keeps it over restarts."""

    in_flight: InFlightFlushes = field(default_factory=InFlightFlushes)
    settled: bool
    """Nothing has changed since the files were last made durable."""
    claimed: bool
    """The directory and whose it is are durable: data without a `partition.metadata` would be nobody's after a crash."""
    named: int = -1
    """Base offset of a segment whose name is durable; -1: none is known."""
    sync_dir_due: bool = True
    """A segment may have come whose name is not durable yet."""

    # taken from `config`, because every append asks for them
    append_time: bool = field(init=False)
    flush_every: int = field(init=False)
    max_segment_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.adopt_config(self.config)

    def adopt_config(self, config: LogConfig) -> None:
        """Takes effect at once, but for index sizes and intervals: those at the next segment."""
        self.config = config
        self.append_time = config.log_append_time
        self.flush_every = config.flush_messages
        self.max_segment_ms = config.max_segment_ms

    def draw_jitter(self) -> int:
        return draw_jitter(self.config, self.entropy)

    @property
    def segment_base_offsets(self) -> tuple[int, ...]:
        return tuple(segment.base_offset for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest transaction that is open or whose marker is not below the HW; the HW without one."""
        unstable = self.producers.first_unstable_offset()
        return self.hw if unstable is None or unstable >= self.hw else max(unstable, self.log_start_offset)

    def check(self, producers: bool) -> None:
        """Raise AssertionError when an invariant does not hold: this log must not be used any more.

        `producers`: also of what is remembered of each producer, of whom there may be very many.
        """
        start, hw, leo = self.log_start_offset, self.hw, self.leo
        assert 0 <= start <= hw <= leo, f"{self.tp}: not log start {start} <= HW {hw} <= LEO {leo}"
        assert 0 <= self.recovery_point <= leo, f"{self.tp}: recovery point {self.recovery_point} outside [0, LEO {leo}]"
        clean = self.clean_offset
        assert clean is None or clean <= leo, f"{self.tp}: compacted up to {clean}, the log ends at {leo}"
        segments = self.segments
        if len(segments) > 1:
            bases = self.segment_base_offsets
            assert all(one < other for one, other in itertools.pairwise(bases)), f"{self.tp}: segments {bases} do not ascend"
        first_base, last_base = segments.first.base_offset, segments.active.base_offset
        assert first_base <= start, f"{self.tp}: the first segment begins at {first_base}, the log at {start}"
        assert last_base <= leo, f"{self.tp}: the active segment begins at {last_base}, the log ends at {leo}"
        assert self.claimed or not segments.size_bytes, f"{self.tp}: records in a directory that is not durably its own"
        epochs = self.epochs.entries
        if epochs:
            assert epochs[-1][1] <= leo, f"{self.tp}: epoch {epochs[-1]} begins behind the log's end {leo}"
            assert epochs[0][1] >= start, f"{self.tp}: epoch {epochs[0]} begins before the log's start {start}"
            assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(epochs)), (
                f"{self.tp}: epochs {epochs} do not ascend"
            )
        if self.producers.has_transactions:
            first, marker = self.producers.last_transaction_offsets()
            assert first < leo, f"{self.tp}: an open transaction began at {first}, the log ends at {leo}"
            assert marker < leo, f"{self.tp}: a transaction was ended at {marker}, the log ends at {leo}"
        for producer_id, entry in self.producers.items() if producers else ():
            last = entry.batches[-1].last_offset if entry.batches else -1
            assert last < leo, f"{self.tp}: producer {producer_id} wrote offset {last}, the log ends at {leo}"

    def set_hw(self, hw: int) -> None:
        """Set the high watermark, bounded by [log_start_offset, leo]. The owner decides whether it may go back."""
        hw = max(self.log_start_offset, min(hw, self.leo))
        if hw != self.hw:
            self.hw = hw
            if hw < self.producers.decided_below:
                self._undecide()
            self.producers.on_hw_advanced(hw)

    def reloaded(self) -> None:
        """The producers are known anew: which of their transactions the HW has decided is not."""
        if self.hw < self.producers.decided_below:
            self._undecide()
        self.producers.on_hw_advanced(self.hw)

    def _undecide(self) -> None:
        end = min(self.producers.decided_below, self.leo)
        self.producers.undecide(find_undecided(self.disk, self.directory, self.segments, self.hw, end))

    def remove_expired_producers(self, wall_ms: int) -> int:
        """Forget idle producers (LG-21), and return how many."""
        count = self.producers.remove_expired(wall_ms, self.config.producer_id_expiration_ms)
        if count:
            self.settled = False
            self.tracer.emit(ProducersExpired(tp=self.tp, count=count))
        return count

    # telling the owner

    def tell_roll(self) -> None:
        log = self.log()
        if log is not None and log.on_roll is not None:
            log.on_roll(log)

    def tell_restated(self) -> None:
        log = self.log()
        if log is not None and log.on_restated is not None:
            log.on_restated(log)

    def tell_recovery_point_lowered(self) -> None:
        log = self.log()
        if log is not None and log.on_recovery_point_lowered is not None:
            log.on_recovery_point_lowered(log)
