"""Configuration of the metadata quorum on one node.

Source: docs/spec/defaults.md; RF-08, RF-17, RF-35, RF-47, RF-58, DQ-24.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from kraftlite.log.config import LogConfig
from kraftlite.model.ids import Endpoint, NodeId, VoterEndpoint
from kraftlite.model.limits import MIB, RAFT_MAX_BATCH_BYTES
from kraftlite.model.tuning import Tuning
from kraftlite.raft.voters import ReplicaKey, Voter, VoterSet, listener_of, parse_voters

__all__ = ["QuorumConfig", "Voter", "metadata_log_config", "parse_voters"]


def metadata_log_config(segment_bytes: int = 1024 * MIB, segment_ms: int = 7 * 24 * 3_600_000) -> LogConfig:
    """The log config of `__cluster_metadata-0`: raft's own batch limit, and no retention but by snapshots."""
    base = LogConfig()
    return replace(
        base, segment_bytes=segment_bytes, segment_ms=segment_ms, max_message_bytes=RAFT_MAX_BATCH_BYTES, preallocate=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """A node's knowledge of the quorum before it starts. Times in milliseconds.

    Raises ValueError for values that no quorum can run with.
    """

    node_id: NodeId
    cluster_id: str
    directory_id: UUID | None = None
    voters: tuple[Voter, ...]
    """controller.quorum.voters, which counts while the log says nothing of voters; empty where the log has to say it."""
    bootstrap_servers: tuple[Endpoint, ...] = ()
    """Addresses at which the leader can be asked for, of nodes whose ids are not known (DQ-15)."""
    listeners: tuple[VoterEndpoint, ...] = ()
    """The controller listeners of this node, as others reach them; none on a mere broker."""
    listener_name: str | None = None
    """The listener at which this node reaches controllers: the first of controller.listener.names."""
    metadata_dir: str
    """Absolute path of `__cluster_metadata-0`."""
    must_be_voter: bool | None = None
    """True for a node with the controller role, False for a mere broker; None does not check (RF-58)."""
    may_become_voter: bool = False
    """A controller that others may add to the voters: what it acknowledges counts from then on, so it must be durable before."""
    auto_join: bool = False
    """A controller that is not a voter asks the leader to add it, and to remove an entry of its id with another directory."""
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    max_retention_bytes: int = 100 * MIB
    max_retention_ms: int = 7 * 24 * 3_600_000
    cleaning_interval_ms: int = 60_000
    file_delete_delay_ms: int = 60_000
    log_config: LogConfig = field(default_factory=metadata_log_config)
    tuning: Tuning = field(default_factory=Tuning)

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise ValueError(f"node.id {self.node_id} is negative; allowed is 0 and above")
        if not self.voters and not self.bootstrap_servers:
            raise ValueError(
                "controller.quorum.voters is empty; name at least one voter as id@host:port, or controllers of a dynamic quorum "
                "in controller.quorum.bootstrap.servers as host:port"
            )
        for name in ("election_timeout_ms", "fetch_timeout_ms", "request_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        for name in ("election_backoff_max_ms", "append_linger_ms", "retry_backoff_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must not be negative")
        ids = VoterSet(self.voters).ids  # also refuses duplicates
        if self.must_be_voter is True and ids and self.node_id not in ids:
            raise ValueError(f"node.id {self.node_id} has the controller role but is not in controller.quorum.voters {ids}")
        if self.must_be_voter is False and self.node_id in ids:
            raise ValueError(f"node.id {self.node_id} has only the broker role but is in controller.quorum.voters {ids}")

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def own_endpoint(self) -> Endpoint | None:
        """The address at which other nodes reach this controller; None when the configuration of the quorum says it."""
        if not self.listeners:
            return None
        found = listener_of(self.listeners, self.listener_name)
        return Endpoint(found.host, found.port)

    @property
    def is_voter(self) -> bool:
        """Return whether this node is a configured voter."""
        return VoterSet(self.voters).contains(self.key)
