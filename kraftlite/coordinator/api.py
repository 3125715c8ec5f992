"""The requests to a group coordinator, and its answers. Times in milliseconds; "" for a member id: the member has none yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from uuid import UUID

from kraftlite.log.guards import TransactionTerms
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry

Sees: TypeAlias = Callable[[str], bool]
"""Tells whether the client that asks may describe a topic; None in its place: everybody may."""


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
    sees: Sees | None = field(default=None, repr=False, compare=False)


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
    """A member that leaves, named by member id, or, for a static member, by instance id with an empty member id."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """`generation` -1 and no member id: from outside of the group. `retention_ms` None: the broker's. `producer`: the offsets
    count once its transaction is committed. `terms`: under which its transaction may write here. `group_must_exist_error`: what a
    generation of an unknown group is answered with. `generation` is a member epoch in a group of the new protocol;
    `knows_member_epochs`: the request is of a version for that."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None
    producer: Producer | None = None
    terms: TransactionTerms | None = None
    group_must_exist_error: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND
    knows_member_epochs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The marker that ends a transaction in the partition of its shard (KIP-98)."""

    marker: MarkerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupRequest:
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsRequest:
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatRequest:
    """A heartbeat of the new protocol (KIP-848). `member_epoch` 0 joins, -1 leaves, -2 leaves to come back as the same instance.
    None: not said, unchanged since the last one. `owned`: (topic id, partitions)."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int | None
    topics: tuple[str, ...] | None
    regex: str | None
    server_assignor: str | None
    owned: tuple[tuple[UUID, tuple[int, ...]], ...] | None
    client_id: str
    client_host: str
    sees: Sees | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatResult:
    """`assignment`: (topic id, partitions), all that the member may use now; None: nothing to tell."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: tuple[tuple[UUID, tuple[int, ...]], ...] | None = None


GroupRequest = (
    JoinRequest
    | SyncRequest
    | HeartbeatRequest
    | LeaveRequest
    | CommitRequest
    | DeleteGroupRequest
    | DeleteOffsetsRequest
    | ConsumerHeartbeatRequest
)
Request = GroupRequest | EndRequest


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
    """A line of ListGroups. `group_type`: "classic" or "consumer"."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class AssignedTopic(NamedTuple):
    """Partitions in ascending order."""

    topic_id: UUID
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberDescription:
    """`topics` are those named, not those that `regex` ("" for none) matches. `assignment`: with what it has yet to give up.
    `classic`: it speaks the classic protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str
    assignment: tuple[AssignedTopic, ...]
    target: tuple[AssignedTopic, ...]
    classic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """A group of the new protocol."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]
