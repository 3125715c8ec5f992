"""What a group coordinator is asked, and what it answers. Times in milliseconds; "" for a member id: it has none yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition


class Protocol(NamedTuple):
    """An assignment strategy that a member supports, with what it tells the leader; opaque to the coordinator."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """`protocols` in the member's order of preference. `require_known_member_id`: a dynamic member without an id is given one to
    come back with (KIP-394). `can_skip_assignment`: a static leader may be told to leave assignments alone (KIP-814)."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    require_known_member_id: bool
    can_skip_assignment: bool
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader sees it: `metadata` in the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """`members`: for the leader alone. `member_id` is set with MEMBER_ID_REQUIRED too."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """`assignments`: (member id, assignment), from the leader. None for a protocol: not said, not checked."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """`assignment` is empty with an error, and for a member that the leader forgot."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class LeavingMember(NamedTuple):
    """By member id, or, for a static member, by instance id with an empty member id."""

    member_id: str
    instance_id: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    group_id: str
    members: tuple[LeavingMember, ...]


class OffsetToCommit(NamedTuple):
    """`leader_epoch` None: not given."""

    tp: TopicPartition
    offset: int
    leader_epoch: int | None
    metadata: str


class Producer(NamedTuple):
    """A transactional producer."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """`generation` -1 and no member id: from outside of the group. `retention_ms` None: the broker's. `producer`: the offsets
    count once its transaction is committed. `group_must_exist_error`: what a generation of an unknown group is answered with."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None
    producer: Producer | None = None
    group_must_exist_error: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest:
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsRequest:
    group_id: str
    partitions: tuple[TopicPartition, ...]


Request = JoinRequest | SyncRequest | HeartbeatRequest | LeaveRequest | CommitRequest | DeleteGroupRequest | DeleteOffsetsRequest


class FetchedOffset(NamedTuple):
    """`offset` -1: none is committed, which is no error."""

    tp: TopicPartition
    error: ErrorCode
    offset: int = -1
    leader_epoch: int | None = None
    metadata: str = ""


class DescribedMember(NamedTuple):
    """`metadata` and `assignment` are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """`protocol_name` "" unless the group is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


class GroupOverview(NamedTuple):
    """A line of ListGroups. `group_type` is "classic" for all."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
