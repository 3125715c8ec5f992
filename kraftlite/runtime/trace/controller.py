"""Events of the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerClaimed(TraceEvent):
    """This node became the active controller."""

    event: ClassVar[str] = "controller.claimed"
    raft_epoch: int
    write_offset: int
    stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerActivated(TraceEvent):
    """The activation records were applied; periodic tasks run from here on."""

    event: ClassVar[str] = "controller.activated"
    raft_epoch: int
    records: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRenounced(TraceEvent):
    event: ClassVar[str] = "controller.renounced"
    level: ClassVar[str] = "warning"
    raft_epoch: int
    reverted_to: int
    failed_operations: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAppended(TraceEvent):
    """A record was applied on the active controller and given to raft; `detail` says what it changes.

    `first_offset` is the same for all records of one operation. `cause` names the operation and what it was done for:
    `operation:maybe_fence_stale_broker broker=2 silent_ms=9010`.
    """

    event: ClassVar[str] = "controller.record_appended"
    record: str
    offset: int
    detail: str
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecordAppended(RecordAppended):
    """A `RecordAppended` of a partition: what the partition was (None: it is new) and what it is now. Leader None: nobody
    leads. `old_elr` and `elr`: the eligible leader replicas, None where there are none. `unclean`: the new leader may have lost
    records."""

    tp: TopicPartition
    old_leader: NodeId | None
    leader: NodeId | None
    old_leader_epoch: int | None
    leader_epoch: int
    old_isr: tuple[NodeId, ...] | None
    isr: tuple[NodeId, ...]
    old_elr: tuple[NodeId, ...] | None = None
    elr: tuple[NodeId, ...] | None = None
    unclean: bool | None = None
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsAppended(TraceEvent):
    """Many records of one operation: all but the first ones and the last one are not traced one by one."""

    event: ClassVar[str] = "controller.records_appended"
    operation: str
    count: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingNotApplied(TraceEvent):
    """A dynamic configuration was stored that has no effect here. `setting` is `key=value`, of `resource`."""

    event: ClassVar[str] = "controller.setting_not_applied"
    level: ClassVar[str] = "warning"
    setting: str
    resource: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StableAdvanced(TraceEvent):
    event: ClassVar[str] = "controller.stable_advanced"
    level: ClassVar[str] = "debug"
    stable_offset: int
    committed_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFailed(TraceEvent):
    event: ClassVar[str] = "controller.operation_failed"
    level: ClassVar[str] = "error"
    operation: str
    error: str
    message: str | None
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowEvent(TraceEvent):
    """One event of the controller took longer than `controller.performance.always.log.threshold.ms`."""

    event: ClassVar[str] = "controller.slow_event"
    level: ClassVar[str] = "error"
    operation: str
    took_ms: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPerformance(TraceEvent):
    """The events of the last `controller.performance.sample.period.ms`, and the slowest of them; times in microseconds."""

    event: ClassVar[str] = "controller.performance"
    message: str
    events: int
    average_us: int | None = None
    slowest: str | None = None
    slowest_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSessionExpired(TraceEvent):
    """No heartbeat of this incarnation came for `silent_ms`."""

    event: ClassVar[str] = "controller.broker_session_expired"
    level: ClassVar[str] = "warning"
    broker_id: NodeId
    broker_epoch: int
    silent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStateChanged(TraceEvent):
    """A heartbeat moved a broker: fenced, unfenced, controlled_shutdown, shutdown_now."""

    event: ClassVar[str] = "controller.broker_state_changed"
    broker_id: NodeId
    broker_epoch: int
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoaded(TraceEvent):
    event: ClassVar[str] = "controller.snapshot_loaded"
    end_offset: int
    raft_epoch: int
    records: int
