"""The replica service: followers pull partitions from leaders, many partitions in one message, in sessions.

Source: KIP-101, KIP-227 (sessions), KIP-595 (diverging epochs), KIP-903 (replica epoch); RP-11, RP-27 to RP-39.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId


@dataclass(slots=True, kw_only=True)
class ReplicaFetchPartition:
    topic_id: UUID
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int | None
    """Epoch of the last batch in the follower's log; None when its log has no epochs."""
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenPartition:
    topic_id: UUID
    partition: int


@dataclass(slots=True, kw_only=True)
class ReplicaFetchRequest:
    """A pull. Session epoch 0 opens a session with all partitions; epoch n+1 names only those that changed since n."""

    replica_id: NodeId
    replica_epoch: int
    """The follower's broker epoch: the leader uses it for ISR eligibility (CM-31)."""
    cluster_id: str
    session_id: int
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    partitions: tuple[ReplicaFetchPartition, ...]
    forgotten: tuple[ForgottenPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffset:
    leader_epoch: int
    end_offset: int


@dataclass(slots=True, kw_only=True)
class ReplicaFetchResult:
    """One partition of the answer; its records are the next `records_length` bytes of the response's `payload`."""

    topic_id: UUID
    partition: int
    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    records_length: int = 0


@dataclass(slots=True, kw_only=True)
class ReplicaFetchResponse:
    """Only partitions with records, an error, a divergence, or a moved HW or log start. `session_id` 0: no session kept."""

    error: ErrorCode
    session_id: int
    partitions: tuple[ReplicaFetchResult, ...]
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOffsetsPartition:
    topic_id: UUID
    partition: int
    current_leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOffsetsRequest:
    """Asks where the leader's log starts and ends, after OFFSET_OUT_OF_RANGE (RP-35)."""

    replica_id: NodeId
    partitions: tuple[ReplicaOffsetsPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOffsets:
    topic_id: UUID
    partition: int
    error: ErrorCode
    log_start_offset: int
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOffsetsResponse:
    partitions: tuple[ReplicaOffsets, ...]
