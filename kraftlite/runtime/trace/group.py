"""Events of consumer groups and their coordinators. Nothing here is emitted per heartbeat or per commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoading(TraceEvent):
    """This broker now coordinates the groups of a partition of `__consumer_offsets`, and begins to read it."""

    event: ClassVar[str] = "group.loading"
    level: ClassVar[str] = "debug"
    tp: TopicPartition
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoaded(TraceEvent):
    event: ClassVar[str] = "group.loaded"
    level: ClassVar[str] = "debug"
    tp: TopicPartition
    leader_epoch: int
    end_offset: int
    groups: int
    offsets: int
    elapsed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoadFailed(TraceEvent):
    """The groups of this partition have no coordinator until another broker leads it."""

    event: ClassVar[str] = "group.load_failed"
    level: ClassVar[str] = "error"
    tp: TopicPartition
    leader_epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsUnloaded(TraceEvent):
    event: ClassVar[str] = "group.unloaded"
    level: ClassVar[str] = "debug"
    tp: TopicPartition
    leader_epoch: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStateChanged(TraceEvent):
    event: ClassVar[str] = "group.state_changed"
    group: str
    previous: str
    state: str
    generation: int
    members: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberRemoved(TraceEvent):
    event: ClassVar[str] = "group.member_removed"
    group: str
    member: str
    instance: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced(TraceEvent):
    """An instance came back under a new member id; there is no rebalance unless it wants other protocols."""

    event: ClassVar[str] = "group.static_member_replaced"
    group: str
    instance: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTypeChanged(TraceEvent):
    """A group was converted to the other protocol, in this epoch (or generation)."""

    event: ClassVar[str] = "group.type_changed"
    group: str
    type: str
    epoch: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted(TraceEvent):
    event: ClassVar[str] = "group.deleted"
    group: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsExpired(TraceEvent):
    event: ClassVar[str] = "group.offsets_expired"
    group: str
    count: int
