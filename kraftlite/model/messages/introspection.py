"""The introspection service of every node: what it is and what it holds. Read-only; for the CLI, health checks and tests."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final
from uuid import UUID

from kraftlite.model.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatusResponse:
    """One look at a node. Offsets are -1 and roles empty where the node does not have the part in question."""

    node_id: NodeId
    cluster_id: str
    roles: tuple[str, ...]
    broker_state: str | None
    """NOT_RUNNING, STARTING, RECOVERY, RUNNING, PENDING_CONTROLLED_SHUTDOWN, SHUTTING_DOWN; None on a mere controller."""
    broker_epoch: int | None
    raft_state: str
    """unattached, follower, prospective, candidate, leader, resigned, observer."""
    raft_epoch: int
    leader_id: NodeId | None
    raft_high_watermark: int | None
    raft_leo: int
    metadata_offset: int
    """Offset of the last metadata record in the published image, -1 when none."""
    active_controller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatesRequest:
    topics: tuple[str, ...] | None
    """None: all topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One online replica, in the words of its node."""

    topic: str
    topic_id: UUID
    partition: int
    is_leader: bool
    leader_epoch: int
    partition_epoch: int
    isr: tuple[NodeId, ...]
    log_start_offset: int
    hw: int
    leo: int
    size_bytes: int
    leader_id: NodeId | None = None
    """The leader that this node knows of; None: nobody leads, or the node is of a version that does not say."""
    replicas: tuple[NodeId, ...] = ()
    min_isr: int = 0
    """0: the node does not say."""
    followers: tuple[NodeId, ...] = ()
    """The followers of which a leader knows how far they are; empty where it does not lead, or is of a version that does not say
    it."""
    follower_leos: tuple[int, ...] = ()
    """In the order of `followers`, by their fetches in this leader epoch; -1: it has not fetched in it."""
    maximal_isr: tuple[NodeId, ...] = ()
    """Committed and proposed members: the high watermark waits for each of them."""
    epoch_start_offset: int | None = None
    """The end of a leader's log when it began to lead in this epoch; None where it does not lead, or is of a version that does
    not say it."""


REPLICA_FIELDS: Final = tuple(it.name for it in fields(ReplicaState) if it.name not in ("topic", "partition"))
"""All that is said of a replica but its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatesResponse:
    replicas: tuple[ReplicaState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    interval_ms: int
    """The time between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneReplica:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResponse:
    """The news of a node since the answer before. The first ones have everything, over as many as it takes."""

    uptime_ms: int
    """Since the stream began, by the node's own monotonic clock: who reads late can tell by how much."""
    status: NodeStatusResponse | None
    """None: as before."""
    changed: tuple[ReplicaState, ...]
    gone: tuple[GoneReplica, ...]
    looked_ms: int
    """The uptime after which every replica was looked at; -1: not all were yet."""
    replica_count: int
