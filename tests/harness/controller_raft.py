"""A RaftClient for tests: one shared log, commits when told to, can lose what is not committed.

`FakeQuorum` holds the log and the nodes; `FakeRaft` is one node's RaftClient. Everything is synchronous: `commit()` delivers to
the listeners of every node. Records are kept as objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.raft import DescribeQuorumResponse, OffsetAndEpoch
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, RaftListener, SnapshotWriter


class FakeSnapshot:
    """A metadata snapshot of given records."""

    def __init__(self, snapshot_id: OffsetAndEpoch, batches: Sequence[tuple[Any, ...]]) -> None:
        self.snapshot_id = snapshot_id
        self.last_contained_timestamp_ms = 0
        self.size_bytes = 0
        self._batches = tuple(batches)

    def batches(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._batches)


class FakeQuorum:
    """The metadata log as all nodes will see it. `batches[i]` ends at `batches[i].last_offset`."""

    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []
        self.high_watermark = 0
        self.epoch = 0
        self.leader_id: NodeId | None = None
        self.nodes: dict[NodeId, FakeRaft] = {}
        self.now_ms = 0

    def node(self, node_id: int) -> FakeRaft:
        raft = FakeRaft(self, NodeId(node_id))
        self.nodes[raft.node_id] = raft
        return raft

    @property
    def leo(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def elect(self, node_id: int | None) -> None:
        """A new epoch. What was not committed is lost; the new leader's control batch starts the epoch and commits at once."""
        self.batches = [batch for batch in self.batches if batch.last_offset < self.high_watermark]
        self.epoch += 1
        self.leader_id = None if node_id is None else NodeId(node_id)
        for raft in self.nodes.values():
            raft.drop_prepared()
        if node_id is not None:
            self._append(())
        leader = LeaderAndEpoch(leader_id=self.leader_id, epoch=self.epoch)
        for raft in self.nodes.values():
            raft.deliver()
            for listener in raft.listeners:
                listener.handle_leader_change(leader)
        if node_id is not None:
            self.commit()

    def _append(self, records: tuple[Any, ...]) -> CommittedBatch:
        base = self.leo
        batch = CommittedBatch(
            base_offset=base,
            last_offset=base + max(1, len(records)) - 1,
            epoch=self.epoch,
            append_timestamp_ms=self.now_ms,
            size_bytes=0,
            records=records,
        )
        self.batches.append(batch)
        return batch

    def commit(self, count: int | None = None) -> None:
        """Commit all appended batches, or the next `count` of them, and deliver them everywhere."""
        waiting = [batch for batch in self.batches if batch.last_offset >= self.high_watermark]
        chosen = waiting if count is None else waiting[:count]
        if chosen:
            self.high_watermark = chosen[-1].last_offset + 1
        for raft in self.nodes.values():
            raft.deliver()

    @property
    def uncommitted(self) -> int:
        return sum(batch.last_offset >= self.high_watermark for batch in self.batches)

    def records(self) -> list[Any]:
        """Every record in the log, committed or not, in order."""
        return [record for batch in self.batches for record in batch.records]

    def load(self, batches: Sequence[Sequence[Any]], epoch: int = 1) -> None:
        """Start from a log with these committed batches; before any node registers."""
        self.epoch = epoch
        for records in batches:
            self._append(tuple(records))
        self.high_watermark = self.leo


class FakeRaft:
    """One node's view of a `FakeQuorum`; a RaftClient. `calls` lists what the state machine asked for, in order.

    `auto_commit`: what the leader schedules is committed at once. `fail_prepare`: raised by the next `prepare_append`.
    """

    def __init__(self, quorum: FakeQuorum, node_id: NodeId) -> None:
        self.quorum = quorum
        self._node_id = node_id
        self.listeners: list[RaftListener] = []
        self._delivered = 0
        self._prepared: list[tuple[Any, ...]] = []
        self.calls: list[str] = []
        self.encoded: list[bytes] = []
        """The values of all records that were prepared, as they would be in the log."""
        self.auto_commit = False
        self.fail_prepare: Exception | None = None
        self.paused = False
        self.kraft_level = 0
        self.fail_upgrade: ApiError | None = None

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def register(self, listener: RaftListener) -> None:
        self.listeners.append(listener)
        self.deliver()

    def deliver(self) -> None:
        if self.paused:
            return
        hw = self.quorum.high_watermark
        found = [batch for batch in self.quorum.batches if self._delivered <= batch.base_offset and batch.last_offset < hw]
        if found and self.listeners:
            self._delivered = found[-1].last_offset + 1
            for listener in self.listeners:
                listener.handle_commit(found)

    def load_snapshot(self, snapshot: FakeSnapshot) -> None:
        self._delivered = snapshot.snapshot_id.offset
        for listener in self.listeners:
            listener.handle_load_snapshot(snapshot)

    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(leader_id=self.quorum.leader_id, epoch=self.quorum.epoch)

    def leader_endpoint(self) -> Endpoint | None:
        leader = self.quorum.leader_id
        return None if leader is None else Endpoint(f"node{leader}", 9093)

    def high_watermark(self) -> int | None:
        return self.quorum.high_watermark

    def log_end_offset(self) -> int:
        return self.quorum.leo + sum(len(records) for records in self._prepared)

    def prepare_append(self, epoch: int, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> int:
        self.calls.append("prepare_append")
        if self.fail_prepare is not None:
            error, self.fail_prepare = self.fail_prepare, None
            raise error
        if epoch > self.quorum.epoch:
            raise ValueError(f"epoch {epoch} is newer than the quorum's {self.quorum.epoch}")
        if self.quorum.leader_id != self._node_id or epoch != self.quorum.epoch:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"node {self._node_id} does not lead in epoch {epoch}")
        self._prepared.append(tuple(records))
        assert encoded is not None and len(encoded) == len(records)
        self.encoded += encoded
        return self.log_end_offset() - 1

    def drop_prepared(self) -> None:
        self._prepared.clear()

    def schedule_prepared_append(self) -> None:
        self.calls.append("schedule_prepared_append")
        prepared, self._prepared = self._prepared, []
        for records in prepared:
            self.quorum._append(records)
        if self.auto_commit:
            self.quorum.commit()

    def kraft_version(self) -> int:
        return self.kraft_level

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        """A control record of its own, as the quorum appends it; `fail_upgrade` is raised instead."""
        assert epoch == self.quorum.epoch, (epoch, self.quorum.epoch)
        if self.fail_upgrade is not None:
            raise self.fail_upgrade
        if not validate_only and level != self.kraft_level:
            self.kraft_level = level
            self.quorum._append(())

    def resign(self, epoch: int) -> None:
        self.calls.append(f"resign {epoch}")
        if epoch == self.quorum.epoch and self.quorum.leader_id == self._node_id:
            self.quorum.leader_id = None

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_timestamp_ms: int) -> SnapshotWriter | None:
        return None

    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return None

    def latest_snapshot_is_damaged(self) -> bool:
        return False

    def describe_quorum(self) -> DescribeQuorumResponse:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not modelled")
