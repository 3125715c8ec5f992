"""Events of data replication: leadership, ISR, high watermarks, divergence, fetchers.

`HwAdvanced`, `ProduceParked` and `ProduceCompleted` happen per produce; they are emitted only where the replica manager was
told to trace its hot path (scenarios, the simulator).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvent(TraceEvent):
    """Base: which partition."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderStarted(PartitionEvent):
    """This broker leads from here on, in a new leader epoch that starts at `epoch_start_offset`."""

    event: ClassVar[str] = "partition.leader_started"
    leader_epoch: int
    partition_epoch: int
    isr: tuple[NodeId, ...]
    min_isr: int
    epoch_start_offset: int
    hw: int
    recovering: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerStarted(PartitionEvent):
    """This broker follows `leader_id` (None: nobody leads) in a new leader epoch."""

    event: ClassVar[str] = "partition.follower_started"
    leader_id: NodeId | None
    leader_epoch: int
    partition_epoch: int
    leo: int
    hw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRemoved(PartitionEvent):
    """This broker no longer has a replica."""

    event: ClassVar[str] = "partition.removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffline(PartitionEvent):
    """The replica cannot be used: its log could not be opened, or its log directory failed."""

    event: ClassVar[str] = "partition.offline"
    level: ClassVar[str] = "error"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipPutOff(PartitionEvent):
    """The log knows of a later leader epoch than the one that this broker is to lead in: it waits for the metadata to follow.
    When that does not come, the log is wrong; a restart reads the epochs from the batches."""

    event: ClassVar[str] = "partition.leadership_put_off"
    level: ClassVar[str] = "warning"
    leader_epoch: int
    log_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrShrinkProposed(PartitionEvent):
    """The leader asks the controller to remove `out`. The HW waits for `maximal_isr` until that is committed (RP-12).

    For each of `out`, None where the leader does not know: how long ago it fetched last and was caught up last (since it became
    the leader, for one that never was), and how many records it lacks.
    """

    event: ClassVar[str] = "partition.isr_shrink_proposed"
    out: tuple[NodeId, ...]
    maximal_isr: tuple[NodeId, ...]
    fetched_ago_ms: tuple[int | None, ...]
    caught_up_ago_ms: tuple[int | None, ...]
    behind: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrExpandProposed(PartitionEvent):
    """The leader asks the controller to add `added`. From now on the HW waits for it, too (RP-12)."""

    event: ClassVar[str] = "partition.isr_expand_proposed"
    added: tuple[NodeId, ...]
    maximal_isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrCommitted(PartitionEvent):
    """The controller's answer, or a newer metadata image, says what the ISR is."""

    event: ClassVar[str] = "partition.isr_committed"
    isr: tuple[NodeId, ...]
    partition_epoch: int
    min_isr: int
    """The number of replicas that an acks=all produce needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrShrunk(PartitionEvent):
    event: ClassVar[str] = "partition.isr_shrunk"
    out: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrExpanded(PartitionEvent):
    event: ClassVar[str] = "partition.isr_expanded"
    added: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChangeRefused(PartitionEvent):
    """The controller refused the proposed ISR. `then`: reverted, kept (until metadata arrives) or retried (RP-23)."""

    event: ClassVar[str] = "partition.isr_change_refused"
    level: ClassVar[str] = "warning"
    error: str
    then: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstProduceAcknowledged(PartitionEvent):
    """The partition takes writes in this leader epoch: its first batch, at `offset`, was acknowledged after `waited_ms`."""

    event: ClassVar[str] = "partition.first_produce_acknowledged"
    leader_epoch: int
    offset: int
    hw: int
    waited_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HwStalled(PartitionEvent):
    """The HW has stood at `hw` for `stalled_ms` although there are records up to `leo`. `cause`: a fetch of `held_by` is awaited,
    or there are fewer in-sync replicas than `min.insync.replicas`."""

    event: ClassVar[str] = "partition.hw_stalled"
    level: ClassVar[str] = "warning"
    hw: int
    leo: int
    stalled_ms: int
    held_by: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HwResumed(PartitionEvent):
    """The HW moves again after `stalled_ms`. `cause`: a fetch of `held_by`, or the ISR changed, by which `held_by` left it."""

    event: ClassVar[str] = "partition.hw_resumed"
    old: int
    new: int
    stalled_ms: int
    held_by: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HwAdvanced(PartitionEvent):
    event: ClassVar[str] = "partition.hw_advanced"
    level: ClassVar[str] = "debug"
    old: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceParked(PartitionEvent):
    """An acks=all produce waits until the HW reaches `until_hw`."""

    event: ClassVar[str] = "partition.produce_parked"
    level: ClassVar[str] = "debug"
    id: str
    until_hw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceCompleted(PartitionEvent):
    """A parked produce got its verdict."""

    event: ClassVar[str] = "partition.produce_completed"
    level: ClassVar[str] = "debug"
    id: str
    base: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged(PartitionEvent):
    """The leader does not have what follows `end_offset` of `epoch` in this follower's log: cut it off (RP-31)."""

    event: ClassVar[str] = "partition.diverged"
    level: ClassVar[str] = "warning"
    epoch: int
    end_offset: int
    old_leo: int
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset(PartitionEvent):
    """The follower's position was out of the leader's range (RP-35)."""

    event: ClassVar[str] = "partition.offset_reset"
    level: ClassVar[str] = "warning"
    leader_log_start_offset: int
    leader_leo: int
    old_leo: int
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPaused(PartitionEvent):
    """A partition is left out of its fetcher: for `delay_ms`, or until metadata says otherwise (None)."""

    event: ClassVar[str] = "fetcher.partition_paused"
    level: ClassVar[str] = "warning"
    leader_id: NodeId
    error: str
    delay_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed(TraceEvent):
    """A whole fetch failed; the next one opens a new session. Emitted for the first of a row of failures."""

    event: ClassVar[str] = "fetcher.request_failed"
    level: ClassVar[str] = "warning"
    leader_id: NodeId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(TraceEvent):
    """A leader keeps a fetch session for a follower."""

    event: ClassVar[str] = "fetcher.session_opened"
    level: ClassVar[str] = "debug"
    replica_id: NodeId
    session_id: int
    partitions: int
