"""The events of a leader's epoch: the first acknowledged produce, a HW that stood still, why and how the ISR changed.

It decides nothing. Per produce it costs comparisons and a store, no event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.follower_progress import FollowerProgress
from kraftlite.replication.isr import IsrState
from kraftlite.runtime.ports import Tracer
from kraftlite.runtime.trace.partition import (
    FirstProduceAcknowledged,
    HwResumed,
    HwStalled,
    IsrCommitted,
    IsrExpanded,
    IsrShrinkProposed,
    IsrShrunk,
)

HW_STALL_MS: Final = 1_000
"""The HW moves on within milliseconds of an append; one that took longer than this is worth telling."""


class PartitionTrace:
    """The trace of one leader epoch that begins at `start_offset`. Times are monotonic milliseconds."""

    __slots__ = (
        "acknowledged",
        "first_append_ms",
        "leader_epoch",
        "pending_since_ms",
        "stall_told",
        "start_offset",
        "tp",
        "tracer",
    )

    def __init__(self, tracer: Tracer, tp: TopicPartition, leader_epoch: int, start_offset: int, now_ms: int) -> None:
        self.tracer = tracer
        self.tp = tp
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.pending_since_ms = now_ms
        """Since when the HW has something to move over: the append that it still has to pass, or its last move."""
        self.first_append_ms: int | None = None
        self.acknowledged = False
        self.stall_told = False

    def appended(self, nothing_waited: bool, now_ms: int) -> None:
        if nothing_waited:
            self.pending_since_ms = now_ms
        if self.first_append_ms is None:
            self.first_append_ms = now_ms

    def acknowledge(self, hw: int, now_ms: int) -> None:
        """A produce of this epoch was acknowledged, for the first time when `acknowledged` is not set."""
        if self.acknowledged or self.first_append_ms is None:
            return
        self.acknowledged = True
        waited_ms = now_ms - self.first_append_ms
        self.tracer.emit(
            FirstProduceAcknowledged(
                tp=self.tp, leader_epoch=self.leader_epoch, offset=self.start_offset, hw=hw, waited_ms=waited_ms
            )
        )

    def hw_moved(self, old: int, new: int, leo: int, now_ms: int, cause: str, held_by: tuple[NodeId, ...]) -> None:
        """`held_by`: whose fetch, or whose leaving the ISR, let it go on."""
        stalled_ms = now_ms - self.pending_since_ms
        if stalled_ms > HW_STALL_MS:
            self.stall_told = False
            self.tracer.emit(HwResumed(tp=self.tp, old=old, new=new, stalled_ms=stalled_ms, held_by=held_by, cause=cause))
        if new < leo:
            self.pending_since_ms = now_ms
        if not self.acknowledged and new > self.start_offset:
            self.acknowledge(new, now_ms)

    def look(
        self, hw: int, leo: int, isr: IsrState, followers: Mapping[NodeId, FollowerProgress], min_isr: int, now_ms: int
    ) -> None:
        """Tell of a HW that stands still now, once."""
        stalled_ms = now_ms - self.pending_since_ms
        if hw >= leo or stalled_ms <= HW_STALL_MS or self.stall_told:
            return
        self.stall_told = True
        behind = (followers.get(member) for member in isr.maximal)
        held_by = tuple(f.broker_id for f in behind if f is not None and (f.leo is None or f.leo <= hw))
        missing = min_isr - len(isr.committed)
        cause = f"min.insync.replicas={min_isr}" if missing > 0 else "fetch"
        self.tracer.emit(HwStalled(tp=self.tp, hw=hw, leo=leo, stalled_ms=stalled_ms, held_by=held_by, cause=cause))

    def shrink_proposed(self, maximal_isr: tuple[NodeId, ...], out: Sequence[FollowerProgress], leo: int, now_ms: int) -> None:
        """The leader proposes to remove `out`, and why."""
        self.tracer.emit(
            IsrShrinkProposed(
                tp=self.tp,
                out=tuple(f.broker_id for f in out),
                maximal_isr=maximal_isr,
                fetched_ago_ms=tuple(None if f.last_fetch_ms is None else now_ms - f.last_fetch_ms for f in out),
                caught_up_ago_ms=tuple(None if f.last_caught_up_ms is None else now_ms - f.last_caught_up_ms for f in out),
                behind=tuple(None if f.leo is None else leo - f.leo for f in out),
            )
        )

    def isr_committed(
        self, old: tuple[NodeId, ...], new: tuple[NodeId, ...], partition_epoch: int, min_isr: int, cause: str | None
    ) -> None:
        """The controller has settled what the ISR is."""
        tracer, tp = self.tracer, self.tp
        tracer.emit(IsrCommitted(tp=tp, isr=new, partition_epoch=partition_epoch, min_isr=min_isr, cause=cause))
        out = tuple(member for member in old if member not in new)
        added = tuple(member for member in new if member not in old)
        if out:
            tracer.emit(IsrShrunk(tp=tp, out=out, cause=cause))
        if added:
            tracer.emit(IsrExpanded(tp=tp, added=added, cause=cause))
