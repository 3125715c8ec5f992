"""The raft service: quorum RPCs between controllers, metadata fetches by controllers and brokers, and changes of the voters.

Source: KIP-595, KIP-630 (snapshots), KIP-853 (changes), KIP-996 (pre-vote); RF-01 to RF-49, RF-57, DQ-30 to DQ-38.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import Endpoint, NodeId, VoterEndpoint


@dataclass(frozen=True, slots=True, order=True)
class OffsetAndEpoch:
    """A position in the metadata log. As a snapshot id: exclusive end offset and the epoch of the record before it.

    Order is by (epoch, offset), as raft compares logs.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    cluster_id: str | None
    voter_id: NodeId
    """The node that is asked; INVALID_VOTER_KEY when that is not us (RF-06)."""
    voter_directory_id: UUID | None
    candidate_id: NodeId
    candidate_directory_id: UUID | None
    candidate_epoch: int
    last_epoch: int
    last_epoch_end_offset: int
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int
    leader_endpoint: Endpoint | None
    vote_granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    cluster_id: str | None
    voter_id: NodeId
    voter_directory_id: UUID | None
    leader_id: NodeId
    leader_epoch: int
    leader_endpoint: Endpoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    cluster_id: str | None
    leader_id: NodeId
    leader_epoch: int
    preferred_successors: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class RaftFetchRequest:
    cluster_id: str | None
    replica_id: NodeId
    replica_directory_id: UUID | None
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    max_bytes: int


@dataclass(slots=True, kw_only=True)
class RaftFetchResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int
    leader_endpoint: Endpoint | None
    high_watermark: int | None
    log_start_offset: int
    diverging_epoch: OffsetAndEpoch | None
    """Largest epoch the leader knows at or below the fetched one, and its end offset: truncate and retry (RF-30)."""
    snapshot_id: OffsetAndEpoch | None
    """Fetch this snapshot instead (RF-43)."""
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    cluster_id: str | None
    replica_id: NodeId
    replica_directory_id: UUID | None
    current_leader_epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int
    snapshot_id: OffsetAndEpoch | None
    size: int
    position: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """One line of `quorum describe --replication`. Offsets and times are None before the first fetch (Kafka: -1)."""

    replica_id: NodeId
    directory_id: UUID | None
    log_end_offset: int | None
    last_fetch_timestamp_ms: int | None
    last_caught_up_timestamp_ms: int | None
    endpoint: Endpoint | None
    listeners: tuple[VoterEndpoint, ...] = ()
    """All controller listeners of a voter, as far as the leader knows them; none of an observer (DQ-42)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeQuorumResponse:
    """Only the leader answers; others raise ApiError(NOT_LEADER_OR_FOLLOWER). `high_watermark` None: not yet known."""

    leader_id: NodeId
    leader_epoch: int
    high_watermark: int | None
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """Add a controller to the voters; for the leader (DQ-30). `cluster_id` None: not checked."""

    cluster_id: str | None
    voter_id: NodeId
    voter_directory_id: UUID | None
    listeners: tuple[VoterEndpoint, ...]
    ack_when_committed: bool
    """Answer when the new set is committed; False: when it is in the leader's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterResponse:
    error: ErrorCode
    message: str | None
    leader_id: NodeId | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """Remove a voter, which need not be there any more; for the leader (DQ-33)."""

    cluster_id: str | None
    voter_id: NodeId
    voter_directory_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterResponse:
    error: ErrorCode
    message: str | None
    leader_id: NodeId | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """A voter tells the leader its listeners and the range of kraft.version that its software supports (DQ-36)."""

    cluster_id: str | None
    current_leader_epoch: int
    voter_id: NodeId
    voter_directory_id: UUID | None
    listeners: tuple[VoterEndpoint, ...]
    min_kraft_version: int
    max_kraft_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int
    leader_endpoint: Endpoint | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVersionsRequest:
    """The leader asks a controller that is to become a voter who it is and what it supports (DQ-31)."""

    cluster_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVersionsResponse:
    error: ErrorCode
    leader_id: NodeId | None
    leader_epoch: int
    node_id: NodeId
    directory_id: UUID | None
    min_kraft_version: int
    max_kraft_version: int


RaftRequest: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | RaftFetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ProbeVersionsRequest
)
"""The requests that members of the quorum send each other. DescribeQuorum is asked by others, of the leader's driver."""
RaftResponse: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | RaftFetchResponse
    | FetchSnapshotResponse
    | AddVoterResponse
    | RemoveVoterResponse
    | UpdateVoterResponse
    | ProbeVersionsResponse
)
