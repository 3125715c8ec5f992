"""The interface of the metadata quorum to the state machines above it, and what it asks of them.

Source: Kafka's RaftClient; RF-28, RF-35 to RF-38, RF-42.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.raft import DescribeQuorumResponse, OffsetAndEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndEpoch:
    """The leader of the quorum and its epoch, as far as this node knows. `leader_id` None: not known."""

    leader_id: NodeId | None
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """One batch below the high watermark. A control batch has no records (raft consumed it) but moves the offset."""

    base_offset: int
    last_offset: int
    """Inclusive."""
    epoch: int
    append_timestamp_ms: int
    size_bytes: int
    records: tuple[Any, ...]


class LoadedSnapshot(Protocol):
    """A metadata snapshot to load; valid only during `handle_load_snapshot`."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    @property
    def last_contained_timestamp_ms(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """The data records, batch by batch; header, footer and voter control records are left out."""
        ...


class SnapshotWriter(Protocol):
    """Writes one metadata snapshot. Nothing is visible under its name until `freeze`."""

    def append(self, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> None:
        """`encoded`: as for `RaftClient.prepare_append`."""
        ...

    async def freeze(self) -> None:
        """Write the footer, make the file durable and give it its name. After it the snapshot exists. Raises ValueError when a
        newer one has replaced the log meanwhile; then it is to be abandoned."""
        ...

    def abandon(self) -> None: ...


class RaftListener(Protocol):
    """A state machine. Called on the node's loop, synchronously, in offset order; must not block and must not call back."""

    def holds_back(self) -> bool:
        """Return whether what it has been handed is urgent, and what was committed after that has time: not decoded yet, it
        takes nothing from the loop. Asked again at each turn of the loop, so it must end by itself."""
        ...

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None: ...

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Replace all state. Follows whenever the log no longer reaches back to what this listener has consumed."""
        ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Fires for "this node leads" once per epoch, and only after `handle_commit` delivered everything below the epoch's
        start (RF-37); for other leaders as soon as they are known."""
        ...


class RecordSerde(Protocol):
    """Record values <-> the state machine's record type (`metadata/codec`)."""

    def encode(self, record: Any) -> bytes: ...

    def decode(self, data: bytes | memoryview) -> Any: ...


class RaftClient(Protocol):
    """The quorum as seen by the state machines of this node. All calls are made on the node's loop."""

    @property
    def node_id(self) -> NodeId: ...

    def register(self, listener: RaftListener) -> None:
        """Deliver everything from the latest snapshot or the log start, then all that commits."""
        ...

    def leader_and_epoch(self) -> LeaderAndEpoch: ...

    def leader_endpoint(self) -> Endpoint | None:
        """Return where the current leader listens; None when no leader is known."""
        ...

    def high_watermark(self) -> int | None: ...

    def log_end_offset(self) -> int:
        """The end of the log, including what was prepared but not yet written."""
        ...

    def prepare_append(self, epoch: int, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> int:
        """Stage one atomic batch; returns the offset of its last record. Nothing leaves before `schedule_prepared_append`.

        `encoded`: each record's value in the log, by a caller that has many and takes turns for it, or that writes them in
        another version than this node's `RecordSerde` does.

        Raises ApiError(NOT_CONTROLLER) when this node does not lead in `epoch`, ApiError(RECORD_LIST_TOO_LARGE) beyond
        8 MiB, ValueError when `epoch` is newer than the quorum's (RF-35, RF-36).
        """
        ...

    def schedule_prepared_append(self) -> None: ...

    def kraft_version(self) -> int:
        """The level of the feature kraft.version, as this node's log says it last."""
        ...

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """Append what raises kraft.version to `level`, unless it has it. Records that are prepared next commit behind it.

        Raises ApiError: NOT_CONTROLLER unless this node leads `epoch`, INVALID_UPDATE_VERSION for a downgrade, and while a voter
        has not told this leader that it supports the level (DQ-40).
        """
        ...

    def resign(self, epoch: int) -> None:
        """Give up leadership of `epoch`; an older epoch is ignored (RF-38)."""
        ...

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_timestamp_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot; None when it exists already. ValueError when the id breaks RF-42."""
        ...

    def latest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def latest_snapshot_is_damaged(self) -> bool:
        """Return whether the latest snapshot was found to be damaged: another one is wanted soon."""
        ...

    def describe_quorum(self) -> DescribeQuorumResponse:
        """Raises ApiError(NOT_LEADER_OR_FOLLOWER) unless this node leads."""
        ...
