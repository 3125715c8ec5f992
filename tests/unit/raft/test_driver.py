"""The driver over in-memory ports: elections, appends, deliveries, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from kraftlite.model.errors import ApiError, ErrorCode, Fault, StorageFault
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.methods import DESCRIBE_QUORUM, VOTE
from kraftlite.model.messages.raft import DescribeQuorumRequest, OffsetAndEpoch
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
from kraftlite.raft.config import QuorumConfig, Voter
from kraftlite.raft.driver import RaftDriver
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace import ListTracer
from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk
from tests.harness.raft_cluster import DIRECTORY, TextSerde
from tests.harness.raft_requests import vote
from tests.harness.transport import MemNetwork


class LoopTasks:
    """The `Tasks` port on the running loop."""

    def __init__(self, fault: Callable[[BaseException, str], None]) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        self._fault = fault

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault(error, task.get_name())

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        return function()

    async def cancel_all(self) -> None:
        for task in list(self.running):
            task.cancel()


class Machine:
    holding_back = False

    def __init__(self) -> None:
        self.records: list[str] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.snapshots: list[OffsetAndEpoch] = []

    def holds_back(self) -> bool:
        return self.holding_back

    def handle_commit(self, batches: list[CommittedBatch]) -> None:
        for batch in batches:
            self.records.extend(batch.records)

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.snapshots.append(snapshot.snapshot_id)
        self.records = [record for batch in snapshot.batches() for record in batch]

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)


class Node:
    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum = quorum
        self.id = NodeId(node_id)
        self.disk = MemDisk()
        self.disk.makedirs("/data")
        self.faults: list[tuple[BaseException, str]] = []
        self.build()

    def build(self) -> None:
        quorum = self.quorum
        self.machine = Machine()
        self.tasks = LoopTasks(lambda error, where: self.faults.append((error, where)))
        self.transport = quorum.network.transport(str(self.id))
        ports = Ports(
            node_id=self.id,
            clock=quorum.clock,
            disk=self.disk,
            transport=self.transport,
            tracer=ListTracer(),
            tasks=self.tasks,
            entropy=random.Random(self.id),
            fault=lambda error, where: self.faults.append((error, where)),
        )
        config = QuorumConfig(node_id=self.id, cluster_id="raft-test", voters=quorum.voters, metadata_dir=DIRECTORY)
        self.driver = RaftDriver(ports, config, TextSerde())
        self.driver.register(self.machine)

    async def start(self) -> None:
        await self.driver.start()
        endpoint = next((voter.endpoint for voter in self.quorum.voters if voter.id == self.id), None)
        if endpoint is not None:
            await self.transport.serve(endpoint, self.driver.handlers())


class Quorum:
    def __init__(self, voters: int = 3, observers: int = 0) -> None:
        self.clock = FakeClock()
        self.network = MemNetwork(self.clock)
        self.voters = tuple(Voter(id=NodeId(i), endpoint=Endpoint(f"node{i}", 9000 + i)) for i in range(1, voters + 1))
        self.nodes = [Node(self, i) for i in range(1, voters + observers + 1)]

    async def until(self, condition: Callable[[], bool], limit_ms: int = 30_000) -> None:
        for _ in range(limit_ms // 10):
            if condition():
                return
            await self.clock.run_for(10, settle=10)
        raise AssertionError("the condition did not come true")

    def leader(self) -> Node | None:
        return next(
            (
                node
                for node in self.nodes
                if node.machine.leaders[-1:] == [node.driver.leader_and_epoch()] and node.driver.state_name == "leader"
            ),
            None,
        )


@pytest.fixture
async def quorum() -> AsyncIterator[Quorum]:
    quorum = Quorum(observers=1)
    for node in quorum.nodes:
        await node.start()
    await quorum.until(lambda: quorum.leader() is not None)
    yield quorum
    for node in quorum.nodes:
        await node.driver.stop(graceful=False)
        assert all(task.done() for task in node.tasks.running)


async def append(quorum: Quorum, *records: str) -> int:
    leader = quorum.leader()
    assert leader is not None
    last = leader.driver.prepare_append(leader.driver.raft_epoch, records)
    leader.driver.schedule_prepared_append()
    await quorum.until(lambda: (leader.driver.high_watermark() or 0) > last)
    return last


async def test_what_is_appended_is_delivered_everywhere(quorum: Quorum) -> None:
    await append(quorum, "a", "b")
    await append(quorum, "c")
    await quorum.until(lambda: all(node.machine.records == ["a", "b", "c"] for node in quorum.nodes))
    leader = quorum.leader()
    assert leader is not None and quorum.nodes[3].driver.state_name == "observer"
    assert quorum.nodes[3].driver.leader_endpoint() == Endpoint(f"node{leader.id}", 9000 + leader.id)
    assert not any(node.faults for node in quorum.nodes)


async def test_describe_quorum_over_the_wire(quorum: Quorum) -> None:
    leader = quorum.leader()
    assert leader is not None
    caller = quorum.network.transport("caller")
    for voter in quorum.voters:
        call = caller.call(voter.endpoint, DESCRIBE_QUORUM, DescribeQuorumRequest(), 1_000)
        if voter.id == leader.id:
            assert (await call).leader_id == leader.id
        else:
            with pytest.raises(ApiError) as refused:
                await call
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("part", ["step", "next_deadline_ms", "what the step asks for"])
async def test_a_step_that_breaks_off_ends_the_node_though_a_peer_asked_for_it(quorum: Quorum, part: str) -> None:
    """As it was, a bug in what follows a step (sending, flushing, the next timer) cost the peer's call, and the node went on
    without: with no timer it never stood for election again."""
    leader = quorum.leader()
    assert leader is not None
    core = leader.driver.core
    step, bug = core.step, KeyError("a bug")

    def broken(*_args: object) -> Any:
        raise bug

    class BrokenOutput:
        def __init__(self, *_args: object) -> None: ...

        requests = property(broken)

    if part == "step":
        core.step = broken  # type: ignore[method-assign]
    elif part == "next_deadline_ms":
        core.next_deadline_ms = broken  # type: ignore[method-assign]
    else:
        core.step = BrokenOutput  # type: ignore[method-assign,assignment]
    with contextlib.suppress(ApiError):  # the answer may have been sent already
        await asyncio.wait_for(leader.driver.handlers()[VOTE](vote(leader.driver.raft_epoch, to=leader.id)), 5)
    assert leader.faults == [(bug, "raft")]
    core.step = step  # type: ignore[method-assign]


async def test_a_graceful_stop_hands_leadership_over_quickly(quorum: Quorum) -> None:
    await append(quorum, "a")
    leader = quorum.leader()
    assert leader is not None
    began = quorum.clock.now_ms()
    stopping = asyncio.create_task(leader.driver.stop(graceful=True))
    await quorum.until(lambda: quorum.leader() not in (None, leader))
    await quorum.until(stopping.done)
    assert quorum.clock.now_ms() - began < 1_000
    quorum.network.kill(str(leader.id))
    await append(quorum, "b")


async def test_a_snapshot_is_written_and_a_new_state_machine_starts_from_it(quorum: Quorum) -> None:
    last = await append(quorum, "a", "b")
    leader = quorum.leader()
    assert leader is not None
    snapshot_id = OffsetAndEpoch(epoch=leader.driver.raft_epoch, offset=last + 1)
    writer = leader.driver.create_snapshot(snapshot_id, 5)
    assert writer is not None
    writer.append(["A", "B"])
    await writer.freeze()
    assert leader.driver.latest_snapshot_id() == snapshot_id
    assert leader.driver.create_snapshot(snapshot_id, 5) is None
    await append(quorum, "c")
    late = Machine()
    leader.driver.register(late)
    await quorum.until(lambda: late.records == ["A", "B", "c"])
    assert late.snapshots == [snapshot_id] and leader.machine.records == ["a", "b", "c"]


async def test_a_fault_in_the_core_stops_the_node_and_refuses_its_callers(quorum: Quorum) -> None:
    node = next(node for node in quorum.nodes if node is not quorum.leader() and node.driver.state_name == "follower")
    node.disk.inject("write_file", times=None)
    caller = quorum.network.transport("caller")
    endpoint = quorum.voters[node.id - 1].endpoint
    for _ in range(2):
        with pytest.raises(ApiError) as refused:
            candidate = next(other.id for other in quorum.nodes if other is not node)
            await caller.call(endpoint, VOTE, vote(99, to=node.id, candidate=candidate), 1_000)
        assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    ((fault, where),) = node.faults
    assert where == "raft"
    assert isinstance(fault, StorageFault), "a disk that fails is no bug: no stack"
    assert re.fullmatch(r"the metadata log in (\S+) has failed: .*'\1/quorum-state'", str(fault)), fault


async def test_a_flush_that_fails_ends_the_node_and_names_the_log(quorum: Quorum) -> None:
    leader = quorum.leader()
    assert leader is not None
    leader.disk.inject("flush", times=None)
    appending = asyncio.ensure_future(append(quorum, "a"))
    await quorum.until(lambda: bool(leader.faults))
    appending.cancel()
    ((fault, where),) = leader.faults
    assert where == "raft" and isinstance(fault, StorageFault)
    assert re.match(r"the metadata log in (\S+) has failed: .*'\1/0+\.log'", str(fault)), fault


async def test_replay_is_delivered_in_slices() -> None:
    quorum = Quorum(voters=1)
    node = quorum.nodes[0]
    await node.start()
    await quorum.until(lambda: quorum.leader() is not None)
    for start in range(0, 5_000, 250):
        await append(quorum, *(f"r{i}" for i in range(start, start + 250)))
    await node.driver.stop(graceful=True)
    quorum.network.kill(str(node.id))
    node.build()
    sizes: list[int] = []
    original = node.machine.handle_commit

    def handle_commit(batches: list[CommittedBatch]) -> None:
        sizes.append(sum(len(batch.records) for batch in batches))
        original(batches)

    node.machine.handle_commit = handle_commit  # type: ignore[method-assign]
    await node.start()
    await quorum.until(lambda: len(node.machine.records) == 5_000)
    assert max(sizes) <= 500 and len(sizes) >= 10
    await node.driver.stop(graceful=False)


async def test_before_start_and_after_stop() -> None:
    quorum = Quorum(voters=1)
    driver = quorum.nodes[0].driver
    assert driver.leader_and_epoch() == LeaderAndEpoch(leader_id=None, epoch=0) and driver.high_watermark() is None
    assert driver.log_end_offset() == 0
    with pytest.raises(Fault):
        driver.prepare_append(1, ["x"])
    await quorum.nodes[0].start()
    await driver.stop(graceful=False)
    await driver.stop(graceful=True)
    with pytest.raises(ApiError):
        driver.prepare_append(1, ["x"])


async def test_a_large_batch_is_decoded_in_turns_and_once_for_all_state_machines() -> None:
    quorum = Quorum(voters=1)
    node = quorum.nodes[0]
    await node.start()
    await quorum.until(lambda: quorum.leader() is not None)
    await append(quorum, *(f"r{i}" for i in range(5_000)))
    await node.driver.stop(graceful=True)
    quorum.network.kill(str(node.id))
    node.build()
    other = Machine()
    node.driver.register(other)
    decoded = 0
    at_each_turn: list[int] = []

    class Counting(TextSerde):
        def decode(self, data: bytes | memoryview) -> str:
            nonlocal decoded
            decoded += 1
            return super().decode(data)

    node.driver._serde = Counting()
    await node.start()
    assert node.driver._delivery is not None
    pump = node.driver._delivery.pump

    def counting_pump() -> bool:
        before = decoded
        more = pump()
        at_each_turn.append(decoded - before)
        return more

    node.driver._delivery.pump = counting_pump  # type: ignore[method-assign]
    await quorum.until(lambda: len(node.machine.records) == len(other.records) == 5_000)
    assert node.machine.records == other.records
    assert decoded == 5_000
    assert max(at_each_turn) <= 2 * 250
    await node.driver.stop(graceful=False)


async def test_what_is_committed_waits_undecoded_while_a_state_machine_holds_it_back_and_news_of_the_leader_does_not() -> None:
    quorum = Quorum(voters=1)
    node = quorum.nodes[0]
    await node.start()
    await quorum.until(lambda: quorum.leader() is not None)
    await append(quorum, "a", "b")
    await quorum.until(lambda: node.machine.records == ["a", "b"])
    delivery = node.driver._delivery
    assert delivery is not None
    other = Machine()
    other.holding_back = True
    feed = delivery.register(other)
    for _ in range(3):
        assert feed.step(), "it is to be asked again"
    assert other.leaders and other.records == [] and not delivery._decodings
    other.holding_back = False
    while feed.step():
        pass
    assert other.records == ["a", "b"]
    await node.driver.stop(graceful=False)
