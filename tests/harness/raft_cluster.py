"""A metadata quorum without a loop: RaftCores over MemDisks and a network whose messages a test delivers, loses or doubles.

Every node has its own monotonic clock. Nothing happens unless the test asks for it: `advance`, `deliver`, `settle`, `run`.
Flushes complete at once unless `auto_flush` is off.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.methods import PROBE_VERSIONS
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.model.method import Method
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
from kraftlite.raft.config import QuorumConfig, Voter
from kraftlite.raft.core import RaftCore
from kraftlite.raft.delivery import Delivery
from kraftlite.raft.events import (
    AppendScheduled,
    Event,
    LogFlushed,
    Output,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Tick,
)
from kraftlite.runtime.trace import TraceEvent
from tests.harness.disk import MemDisk

CLUSTER_ID = "raft-test"
DIRECTORY = "/data/__cluster_metadata-0"
WALL_MS = 1_700_000_000_000


class TextSerde:
    """Records are strings."""

    def encode(self, record: Any) -> bytes:
        return str(record).encode()

    def decode(self, data: bytes | memoryview) -> Any:
        return bytes(data).decode()


@dataclass
class Recorder:
    """A state machine that notes down what it is told, and insists on order."""

    node: SimNode | None = None
    records: list[str] = field(default_factory=list)
    next_offset: int = 0
    leaders: list[LeaderAndEpoch] = field(default_factory=list)
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)
    claimed_epoch: int | None = None
    offset_at_claim: int | None = None
    batches: list[CommittedBatch] = field(default_factory=list)

    def holds_back(self) -> bool:
        return False

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset, (batch.base_offset, self.next_offset)
            self.batches.append(batch)
            self.records.extend(batch.records)
            self.next_offset = batch.last_offset + 1
        assert self.node is not None
        committed = self.node.core.committed_offset
        assert committed is not None and self.next_offset <= committed, "applied above the high watermark"

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        assert self.claimed_epoch is None, "a leader was asked to load a snapshot"
        self.snapshots.append(snapshot.snapshot_id)
        self.records = [record for batch in snapshot.batches() for record in batch]
        self.next_offset = snapshot.snapshot_id.offset

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        assert self.node is not None
        assert leader.leader_id is None or leader not in self.leaders, f"told twice: {leader}"
        self.leaders.append(leader)
        if leader.leader_id == self.node.id:
            self.claimed_epoch, self.offset_at_claim = leader.epoch, self.next_offset
            start = self.node.core.epoch_start_offset
            assert start is not None and self.next_offset >= start, "leadership claimed before the past was consumed"
        else:
            self.claimed_epoch = None


@dataclass(eq=False)
class Message:
    """In flight. `kind` req, resp or fail; `token` is the asker's correlation id, `incarnation` the asker's process."""

    source: NodeId
    target: NodeId
    kind: str
    method: Method
    token: int
    body: Any
    incarnation: int


class NodeTracer:
    def __init__(self, node: SimNode, sink: Callable[[SimNode, TraceEvent], None]) -> None:
        self._node = node
        self._sink = sink

    def emit(self, event: TraceEvent) -> None:
        self._sink(self._node, event)


class SimNode:
    """One node: its disk survives `crash`, its core does not."""

    def __init__(self, cluster: RaftCluster, node_id: NodeId, voters: tuple[Voter, ...], overrides: dict[str, Any]) -> None:
        self.cluster = cluster
        self.id = node_id
        self.disk = MemDisk(wall_ms=lambda: self.wall_ms)
        self.disk.makedirs("/data")
        self.config = cluster.config_of(node_id, voters, overrides)
        self.now_ms = 0
        self.wall_offset = WALL_MS
        self.alive = False
        self.entropy = random.Random(1_000 * cluster.seed + node_id)
        self._core: RaftCore | None = None
        self.delivery: Delivery | None = None
        self.recorder = Recorder(self)
        self.incarnation = 0
        self.requests: dict[int, Message] = {}
        self.next_request = 1
        self.flush_wanted = False

    @property
    def core(self) -> RaftCore:
        assert self._core is not None, f"node {self.id} is down"
        return self._core

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.wall_offset

    def start(self) -> None:
        assert not self.alive
        self.alive = True
        self.incarnation += 1
        self.recorder = Recorder(self)
        self._core = RaftCore(
            config=self.config,
            disk=self.disk,
            serde=TextSerde(),
            entropy=self.entropy,
            tracer=NodeTracer(self, self.cluster.on_trace),
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
            trace_appends=True,
        )
        self.delivery = Delivery(self._core, TextSerde(), NodeTracer(self, self.cluster.on_trace))
        self.delivery.register(self.recorder)
        self.step(Tick())

    def kill(self) -> None:
        """The process ends without a word; what it wrote is there, synced or not."""
        self.alive = False
        self._core = None
        self.delivery = None
        self.requests.clear()
        self.flush_wanted = False

    def crash(self, rng: random.Random | None = None) -> None:
        """Power cut: unsynced bytes are gone (or partly gone, with `rng`)."""
        self.kill()
        self.disk.crash(rng)

    def wipe(self) -> None:
        """A new, empty disk."""
        assert not self.alive
        self.disk = MemDisk(wall_ms=lambda: self.wall_ms)
        self.disk.makedirs("/data")

    def step(self, event: Event) -> None:
        if not self.alive:
            return
        output = self.core.step(event, self.now_ms, self.wall_ms)
        self.core.check()
        self.perform(output)
        self.cluster.after_step(self)

    def perform(self, output: Output) -> None:
        for request in output.requests:
            target = NodeId(request.peer.port - 9000)
            # A probe goes wherever a caller says that the candidate is.
            assert request.peer_id in (target, *self.core._ctx.bootstrap) or request.method is PROBE_VERSIONS
            self.cluster.post(
                Message(self.id, target, "req", request.method, request.correlation_id, request.request, self.incarnation)
            )
        if output.flush:
            self.flush_wanted = True
        for reply in output.replies:
            asked = self.requests.pop(reply.request_id)
            self.cluster.post(
                Message(self.id, asked.source, "resp", asked.method, asked.token, reply.response, asked.incarnation)
            )
        if self.flush_wanted and self.cluster.auto_flush:
            self.flush()
        self.pump()

    def flush(self) -> None:
        """Complete the flush that was asked for."""
        if self.alive and self.flush_wanted:
            self.flush_wanted = False
            self.step(LogFlushed(leo=self.core.metalog.log.flush_sync()))

    def pump(self) -> None:
        while self.alive and self.delivery is not None and self.cluster.auto_pump and self.delivery.pump():
            pass

    def receive(self, message: Message) -> None:
        if not self.alive:
            return
        if message.kind == "req":
            request_id = self.next_request
            self.next_request += 1
            self.requests[request_id] = message
            self.step(RequestReceived(request_id=request_id, request=message.body))
        elif message.incarnation != self.incarnation:
            return  # for a process that is gone
        elif message.kind == "resp":
            self.step(ResponseReceived(correlation_id=message.token, response=message.body))
        else:
            self.step(RequestFailed(correlation_id=message.token))

    def advance(self, delta_ms: int) -> None:
        """Let this node's clock run, stopping at each of its deadlines."""
        end = self.now_ms + delta_ms
        while self.alive and self.core.next_deadline_ms() <= end:
            self.now_ms = max(self.now_ms + 1, self.core.next_deadline_ms()) if self.now_ms < end else end
            self.step(Tick())
            if self.now_ms >= end:
                break
        self.now_ms = end

    def append(self, *records: str) -> int:
        """Prepare and schedule; returns the offset of the last record."""
        last = self.core.prepare_append(self.core.epoch, records, self.wall_ms)
        self.step(AppendScheduled())
        return last

    def resign(self) -> None:
        self.step(ResignRequested(epoch=self.core.epoch))

    def shut_down(self) -> None:
        self.step(ShutdownRequested())

    def snapshot(self, offset: int, records: Sequence[str], *, timestamp_ms: int | None = None) -> OffsetAndEpoch | None:
        """Create a metadata snapshot that ends at `offset`."""
        epoch = self.core.metalog.log.epoch_at(offset - 1)
        snapshot_id = OffsetAndEpoch(epoch=epoch if epoch is not None else 0, offset=offset)
        writer = self.core.create_snapshot(snapshot_id, self.wall_ms if timestamp_ms is None else timestamp_ms)
        if writer is None:
            return None
        writer.append(records)
        run_now(writer.freeze())
        return snapshot_id


def run_now(coro: Any) -> Any:
    """Run a coroutine that never really waits."""
    try:
        coro.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits for something")


class RaftCluster:
    """Nodes and the network between them."""

    def __init__(
        self,
        voters: Sequence[int] = (1, 2, 3),
        observers: Sequence[int] = (),
        *,
        seed: int = 1,
        start: bool = True,
        **overrides: Any,
    ) -> None:
        self.seed = seed
        self.auto_flush = True
        self.auto_pump = True
        self.network: list[Message] = []
        self.events: list[tuple[NodeId, TraceEvent]] = []
        self.cuts: set[tuple[int, int]] = set()
        self.sent: list[Message] = []
        self.on_event: Callable[[SimNode, TraceEvent], None] | None = None
        self.on_post: Callable[[Message], None] | None = None
        self.on_step: Callable[[SimNode], None] | None = None
        voter_set = tuple(Voter(id=NodeId(i), endpoint=Endpoint(f"node{i}", 9000 + i)) for i in voters)
        self.voter_ids = tuple(voters)
        self.nodes = {i: SimNode(self, NodeId(i), voter_set, overrides) for i in (*voters, *observers)}
        if start:
            for node in self.nodes.values():
                node.start()

    def config_of(self, node_id: NodeId, voters: tuple[Voter, ...], overrides: dict[str, Any]) -> QuorumConfig:
        return QuorumConfig(node_id=node_id, cluster_id=CLUSTER_ID, voters=voters, metadata_dir=DIRECTORY, **overrides)

    def __getitem__(self, node_id: int) -> SimNode:
        return self.nodes[node_id]

    # hooks

    def on_trace(self, node: SimNode, event: TraceEvent) -> None:
        self.events.append((node.id, event))
        if self.on_event is not None:
            self.on_event(node, event)

    def after_step(self, node: SimNode) -> None:
        if self.on_step is not None:
            self.on_step(node)

    def post(self, message: Message) -> None:
        self.sent.append(message)
        if self.on_post is not None:
            self.on_post(message)
        if (message.source, message.target) not in self.cuts:
            self.network.append(message)

    # the network

    def cut(self, a: int, b: int) -> None:
        """Lose everything between a and b, also what is in flight."""
        self.cuts |= {(a, b), (b, a)}
        self.network = [m for m in self.network if (m.source, m.target) not in self.cuts]

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            if other != node_id:
                self.cut(node_id, other)

    def heal(self) -> None:
        self.cuts.clear()

    def in_flight(self, source: int | None = None, target: int | None = None) -> list[Message]:
        return [m for m in self.network if (source is None or m.source == source) and (target is None or m.target == target)]

    def deliver(self, message: Message) -> None:
        self.network.remove(message)
        target = self.nodes[message.target]
        if target.alive:
            target.receive(message)
        elif message.kind == "req":
            self.nodes[message.source].receive(
                Message(message.target, message.source, "fail", message.method, message.token, None, message.incarnation)
            )

    def deliver_link(self, source: int, target: int) -> int:
        messages = self.in_flight(source, target)
        for message in messages:
            self.deliver(message)
        return len(messages)

    def drop_link(self, source: int, target: int) -> int:
        messages = self.in_flight(source, target)
        for message in messages:
            self.network.remove(message)
        return len(messages)

    def settle(self, limit: int = 10_000) -> None:
        """Deliver until nothing is in flight; no time passes. (Fetches that the leader parks are not in flight.)"""
        for _ in range(limit):
            if not self.network:
                return
            self.deliver(self.network[0])
        raise AssertionError(f"the network does not settle: {self.network[0]}")

    def run(self, duration_ms: int, *, step_ms: int = 5, until: Callable[[], bool] | None = None) -> bool:
        """Let all clocks run together, delivering at once; whether `until` became true."""
        self.settle()
        for _ in range(0, duration_ms, step_ms):
            if until is not None and until():
                return True
            for node in self.nodes.values():
                node.advance(step_ms)
            self.settle()
        return until is not None and until()

    # what there is

    @property
    def leaders(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.alive and node.core.state.name == "leader"]

    def leader(self) -> SimNode:
        """The leader of the newest epoch; elects one if need be."""
        self.run(30_000, until=self.has_leader)
        return max(self.leaders, key=lambda node: node.core.epoch)

    def has_leader(self) -> bool:
        """A leader that has committed something of its epoch."""
        return any(node.core.high_watermark is not None for node in self.leaders)

    def has_agreed(self) -> bool:
        """A leader that has committed something of its epoch, and that every live node knows."""
        live = [node.core for node in self.nodes.values() if node.alive]
        leaders = [node.core for node in self.leaders if node.core.high_watermark is not None]
        return any(all(core.leader == leader.leader for core in live) for leader in leaders)

    def elect(self, node_id: int) -> SimNode:
        """Make this node the leader by letting its clock alone run out, and settle."""
        node = self.nodes[node_id]
        for _ in range(20):
            node.advance(500)
            self.settle()
            if node.core.state.name == "leader":
                return node
        raise AssertionError(f"node {node_id} was not elected; it is {node.core.state}")

    def elect_without_replication(self, node_id: int) -> SimNode:
        """Make this node the leader with votes alone: what it would send or be sent beyond them is lost."""
        node = self.nodes[node_id]
        for _ in range(200):
            node.advance(50)
            while self.network:
                message = self.network[0]
                if message.method.name == "Vote" and node.core.state.name != "leader":
                    self.deliver(message)
                else:
                    self.network.remove(message)
            if node.core.state.name == "leader":
                return node
        raise AssertionError(f"node {node_id} was not elected; it is {node.core.state}")

    def events_of(self, kind: type[TraceEvent], node_id: int | None = None) -> list[Any]:
        return [event for who, event in self.events if isinstance(event, kind) and node_id in (None, who)]
