"""The events of the quorum: elections, leadership, the high watermark, truncation, snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.ids import NodeId
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(TraceEvent):
    """This node plays another role, or the same one in another epoch. `cause`: why it stands for election."""

    event: ClassVar[str] = "raft.state_changed"
    state: str
    raft_epoch: int
    leader_id: NodeId | None = None
    voted_id: NodeId | None = None
    """Whom this node gave its vote of this epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswered(TraceEvent):
    event: ClassVar[str] = "raft.vote_answered"
    candidate_id: NodeId
    raft_epoch: int
    pre_vote: bool
    granted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRefused(TraceEvent):
    """A peer said what cannot be, or what contradicts what this node knows. It had no effect."""

    event: ClassVar[str] = "raft.peer_refused"
    level: ClassVar[str] = "error"
    message: str
    peer_id: NodeId
    raft_epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionLost(TraceEvent):
    """A round that did not find a majority; `backoff_ms` is the pause before the next one."""

    event: ClassVar[str] = "raft.election_lost"
    raft_epoch: int
    pre_vote: bool
    reason: str
    backoff_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElected(TraceEvent):
    """This node won. `cause`: why it stood for election."""

    event: ClassVar[str] = "raft.leader_elected"
    leader_id: NodeId
    raft_epoch: int
    epoch_start_offset: int
    granting_voters: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderResigned(TraceEvent):
    event: ClassVar[str] = "raft.leader_resigned"
    level: ClassVar[str] = "warning"
    raft_epoch: int
    reason: str
    preferred_successors: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersChanged(TraceEvent):
    """The log of this node says who votes from here on, committed or not. `offset`: of the record; -1 of the bootstrap snapshot,
    None when only the configuration says it (again)."""

    event: ClassVar[str] = "raft.voters_changed"
    offset: int | None
    voters: tuple[NodeId, ...]
    kraft_version: int
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterDirectoryReplaced(TraceEvent):
    """The voters know this controller by another directory than it has: its disk was replaced. It does not vote.
    Source: DQ-25, DQ-44."""

    event: ClassVar[str] = "raft.voter_directory_replaced"
    level: ClassVar[str] = "warning"
    voter_directory_id: str
    directory_id: str
    way_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersLeapt(TraceEvent):
    """A record of the log adds or removes more than one voter at once: two majorities may not overlap there."""

    event: ClassVar[str] = "raft.voters_leapt"
    level: ClassVar[str] = "error"
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTimedOut(TraceEvent):
    """The leader did not answer a fetch successfully for `silent_ms`, which is the fetch timeout or a little more."""

    event: ClassVar[str] = "raft.fetch_timed_out"
    level: ClassVar[str] = "warning"
    leader_id: NodeId
    raft_epoch: int
    silent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkAdvanced(TraceEvent):
    event: ClassVar[str] = "raft.hw_advanced"
    level: ClassVar[str] = "debug"
    old: int | None
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAppended(TraceEvent):
    """Debug level, and only emitted when the core was asked to trace appends."""

    event: ClassVar[str] = "raft.batch_appended"
    level: ClassVar[str] = "debug"
    base_offset: int
    leo: int
    raft_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncated(TraceEvent):
    event: ClassVar[str] = "raft.log_truncated"
    level: ClassVar[str] = "warning"
    old_leo: int
    new_leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendsDiscarded(TraceEvent):
    """Prepared records that never left this node, because it no longer leads."""

    event: ClassVar[str] = "raft.appends_discarded"
    records: int
    raft_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCreated(TraceEvent):
    event: ClassVar[str] = "raft.snapshot_created"
    end_offset: int
    last_epoch: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFetchStarted(TraceEvent):
    event: ClassVar[str] = "raft.snapshot_fetch_started"
    leader_id: NodeId
    end_offset: int
    last_epoch: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFetchFailed(TraceEvent):
    event: ClassVar[str] = "raft.snapshot_fetch_failed"
    level: ClassVar[str] = "warning"
    end_offset: int
    last_epoch: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotInstalled(TraceEvent):
    """A downloaded snapshot is complete; the log was replaced by an empty one that starts at its end."""

    event: ClassVar[str] = "raft.snapshot_installed"
    end_offset: int
    last_epoch: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDamaged(TraceEvent):
    """A metadata snapshot of this node has bytes that are not what was written. It is not handed on."""

    event: ClassVar[str] = "raft.snapshot_damaged"
    level: ClassVar[str] = "error"
    end_offset: int
    last_epoch: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDeleted(TraceEvent):
    event: ClassVar[str] = "raft.snapshot_deleted"
    end_offset: int
    last_epoch: int
    reason: str
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDelivered(TraceEvent):
    """A state machine of this node replaced its state by a metadata snapshot."""

    event: ClassVar[str] = "raft.snapshot_delivered"
    listener: str
    end_offset: int
