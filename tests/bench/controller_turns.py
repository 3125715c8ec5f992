"""How long the largest operations hold a controller's loop at a time, in CPU time, on the active controller and on a standby."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from kraftlite.controller.config import ControllerConfig
from kraftlite.controller.driver import ControllerDriver
from kraftlite.host.clock import HostClock
from kraftlite.host.disk import HostDisk
from kraftlite.host.memory import tune_gc
from kraftlite.host.tasks import HostTasks
from kraftlite.metadata.codec import MetadataSerde
from kraftlite.metadata.features import SUPPORTED_FEATURES
from kraftlite.metadata.loader import MetadataLoader
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.metadata.snapshotter import SnapshotGenerator
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages import controller as m
from kraftlite.model.messages import methods
from kraftlite.raft.config import QuorumConfig, Voter
from kraftlite.raft.driver import RaftDriver
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace import NullTracer
from tests.harness.controller_world import BOOTSTRAP, CLUSTER_ID
from tests.harness.transport import MemNetwork

PARTITIONS: Final = 9_990
MANY: Final = 4_900
"""Topics with one partition each: two records a topic."""
CALLER: Final = "bench"
TIMEOUT_MS: Final = 60_000
_SESSION_MS: Final = 3_600_000


class Turns:
    """The longest callback of an asyncio loop, by who ran it: a callback is what nothing else runs within."""

    def __init__(self) -> None:
        self.longest_ms: dict[str, float] = {}

    def note(self, who: str, took_s: float) -> None:
        self.longest_ms[who] = max(self.longest_ms.get(who, 0.0), took_s * 1e3)

    def take(self) -> dict[str, float]:
        found, self.longest_ms = self.longest_ms, {}
        return found


@contextmanager
def measured() -> Iterator[Turns]:
    """Every callback of every asyncio loop is measured in CPU time of its thread: load beside it does not count."""
    turns = Turns()
    run = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        turns.note(_who(handle), time.thread_time() - began)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield turns
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]


def _who(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    inner = getattr(owner, "_callback", None)
    if inner is not None:
        return inner.__qualname__
    return getattr(callback, "__qualname__", repr(callback))


class Node:
    """A controller with raft, its own metadata image and snapshots, without listeners."""

    def __init__(self, node_id: int, voters: tuple[Voter, ...], folder: str, network: MemNetwork) -> None:
        clock = HostClock()
        self.ports = Ports(
            node_id=NodeId(node_id),
            clock=clock,
            disk=HostDisk(),
            transport=network.transport(f"c{node_id}"),
            tracer=NullTracer(),
            tasks=_Named(_fault, f"c{node_id} "),
            entropy=random.Random(node_id),
            fault=_fault,
        )
        directory = f"{folder}/c{node_id}/__cluster_metadata-0"
        config = QuorumConfig(node_id=NodeId(node_id), cluster_id=CLUSTER_ID, voters=voters, metadata_dir=directory)
        self.endpoint = voters[node_id - 1].endpoint
        self.raft = RaftDriver(self.ports, config, MetadataSerde())
        controller = ControllerConfig(node_id=NodeId(node_id), cluster_id=CLUSTER_ID, session_timeout_ms=_SESSION_MS)
        self.driver = ControllerDriver(self.ports, controller, self.raft, BOOTSTRAP)
        self.loader = MetadataLoader(self.ports, self.raft)
        self.snapshots = SnapshotGenerator(self.ports, self.raft)
        self.loader.install_publishers([self.snapshots])

    async def start(self) -> None:
        await self.ports.transport.serve(self.endpoint, {**self.raft.handlers(), **self.driver.handlers()})
        await self.driver.start()
        self.loader.start()
        await self.raft.start()

    async def stop(self) -> None:
        await self.loader.stop()
        await self.driver.stop()
        await self.raft.stop(graceful=False)
        await self.ports.transport.close()


class _Named(HostTasks):
    def __init__(self, fault: Callable[[BaseException, str], None], prefix: str) -> None:
        super().__init__(fault)
        self._prefix = prefix

    def spawn(self, coro: Any, *, name: str) -> Any:
        return super().spawn(coro, name=self._prefix + name)


def _fault(error: BaseException, where: str) -> None:
    import traceback

    traceback.print_exception(error)
    raise RuntimeError(where) from error


async def _until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.perf_counter() + timeout_s
    while not condition():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not within {timeout_s} s")
        await asyncio.sleep(0.005)


class Story:
    """The operations, one after the other, each as large as one may be."""

    def __init__(self, nodes: list[Node], turns: Turns) -> None:
        self.nodes = nodes
        self.turns = turns
        self.longest_ms: dict[str, float] = {}
        self.epochs: dict[int, int] = {}

    @property
    def active(self) -> Node:
        return next(node for node in self.nodes if node.driver.active)

    @property
    def state(self) -> Any:
        return self.active.driver.core.state

    async def ask(self, method: Any, request: Any) -> Any:
        return await self.active.driver.handlers()[method](request)

    async def settled(self) -> None:
        end = self.active.raft.log_end_offset() - 1
        await _until(
            lambda: all(
                node.loader.image.offset >= end and node.driver.core.offsets.committed_offset >= end for node in self.nodes
            )
        )

    async def step(self, name: str, method: Any, request: Any) -> Any:
        await self.settled()
        self.turns.take()
        answer = await self.ask(method, request)
        await self.settled()
        found = self.turns.take()
        found.pop(CALLER, None)
        self.longest_ms[name] = max(self.longest_ms.get(name, 0.0), *found.values())
        return answer

    # the operations

    async def brokers(self, *ids: int) -> None:
        for broker_id in ids:
            request = m.BrokerRegistrationRequest(
                broker_id=NodeId(broker_id),
                cluster_id=CLUSTER_ID,
                incarnation_id=UUID(int=broker_id),
                listeners=(m.ListenerInfo(name="PLAINTEXT", host="b", port=9092, security_protocol="PLAINTEXT"),),
                features=SUPPORTED_FEATURES,
                rack=None,
                log_dirs=(UUID(int=1_000_000 + broker_id),),
                previous_broker_epoch=None,
            )
            self.epochs[broker_id] = (await self.ask(methods.REGISTER_BROKER, request)).broker_epoch
            await self.settled()
            await self.ask(methods.BROKER_HEARTBEAT, self.beat(broker_id))

    def beat(self, broker_id: int, *, fence: bool = False, shut_down: bool = False) -> m.BrokerHeartbeatRequest:
        return m.BrokerHeartbeatRequest(
            broker_id=NodeId(broker_id),
            broker_epoch=self.epochs[broker_id],
            current_metadata_offset=self.active.raft.log_end_offset() - 1,
            want_fence=fence,
            want_shut_down=shut_down,
            offline_log_dirs=(),
        )

    def create(self, name: str, count: int, brokers: tuple[int, ...] = ()) -> m.CreatableTopic:
        manual = tuple(
            m.ReplicaAssignment(partition=index, broker_ids=tuple(map(NodeId, brokers)))
            for index in range(count if brokers else 0)
        )
        return m.CreatableTopic(
            name=name,
            num_partitions=-1 if brokers else count,
            replication_factor=-1 if brokers else 3,
            assignments=manual,
            configs=(),
        )

    async def create_topics(self, step: str, *topics: m.CreatableTopic) -> None:
        request = m.CreateTopicsRequest(topics=topics, validate_only=False, timeout_ms=TIMEOUT_MS)
        answer = await self.step(step, methods.CREATE_TOPICS, request)
        assert all(topic.error == 0 for topic in answer.topics), answer.topics[:1]

    async def delete_topics(self, step: str, *names: str) -> None:
        selectors = tuple(m.TopicSelector(name=name, topic_id=None) for name in names)
        answer = await self.step(step, methods.DELETE_TOPICS, m.DeleteTopicsRequest(topics=selectors, timeout_ms=TIMEOUT_MS))
        assert all(topic.error == 0 for topic in answer.topics), answer.topics[:1]

    def partition(self, name: str, index: int) -> PartitionRegistration:
        found: PartitionRegistration = self.state.replication.topic(name).partitions[index]
        return found

    async def tell(self) -> None:
        await self.topics()
        await self.leaders()
        await self.moves()
        await self.step("controlled shutdown", methods.BROKER_HEARTBEAT, self.beat(1, shut_down=True))
        for broker_id, what in ((3, "unregister a follower"), (2, "unregister the last replica")):
            gone = m.UnregisterBrokerRequest(broker_id=NodeId(broker_id), timeout_ms=TIMEOUT_MS)
            await self.step(what, methods.UNREGISTER_BROKER, gone)

    async def topics(self) -> None:
        await self.create_topics("create a topic, assigned", self.create("one", PARTITIONS, (1, 2, 3)))
        await self.create_topics("create a topic, placed", self.create("two", PARTITIONS))
        await self.create_topics("create many topics", *(self.create(f"many-{number}", 1) for number in range(MANY)))
        await self.create_topics("create a small topic", self.create("grows", 1))
        more = m.CreatePartitionsTopic(name="grows", count=PARTITIONS, assignments=None)
        request = m.CreatePartitionsRequest(topics=(more,), validate_only=False, timeout_ms=TIMEOUT_MS)
        await self.step("create partitions", methods.CREATE_PARTITIONS, request)
        await self.delete_topics("delete a topic", "grows")
        await self.delete_topics("delete a topic", "two")
        await self.alter_configs()
        await self.delete_topics("delete many topics", *(f"many-{number}" for number in range(MANY)))

    async def leaders(self) -> None:
        await self.alter_isr("alter partitions", (1, 2))
        await self.alter_isr("alter partitions", (1, 2, 3))
        await self.step("fence a leader", methods.BROKER_HEARTBEAT, self.beat(1, fence=True))
        await self.step("unfence it", methods.BROKER_HEARTBEAT, self.beat(1))
        await self.alter_isr("alter partitions", (1, 2, 3))
        request = m.ElectLeadersRequest(election_type=0, partitions=None, timeout_ms=TIMEOUT_MS)
        await self.step("elect all leaders", methods.ELECT_LEADERS, request)

    async def moves(self) -> None:
        for target in ((1, 2, 4), (1, 2, 3)):
            moves = tuple(
                m.ReassignablePartition(topic="one", partition=index, replicas=tuple(map(NodeId, target)))
                for index in range(PARTITIONS)
            )
            request = m.AlterPartitionReassignmentsRequest(
                partitions=moves, allow_replication_factor_change=False, timeout_ms=TIMEOUT_MS
            )
            await self.step("reassign partitions", methods.ALTER_PARTITION_REASSIGNMENTS, request)
        listed = m.ListPartitionReassignmentsRequest(partitions=None, timeout_ms=TIMEOUT_MS)
        await self.step("list reassignments", methods.LIST_PARTITION_REASSIGNMENTS, listed)

    async def alter_configs(self) -> None:
        resources = tuple(
            m.ConfigResourceChange(
                resource_type=2,
                resource_name=f"many-{number}",
                changes=(
                    m.ConfigChange(name="retention.ms", op=0, value=str(number)),
                    m.ConfigChange(name="max.message.bytes", op=0, value=str(number + 1)),
                ),
            )
            for number in range(MANY)
        )
        request = m.IncrementalAlterConfigsRequest(resources=resources, validate_only=False, timeout_ms=TIMEOUT_MS)
        answer = await self.step("alter configs", methods.INCREMENTAL_ALTER_CONFIGS, request)
        assert all(one.error == 0 for one in answer.resources), answer.resources[:1]

    async def alter_isr(self, step: str, isr: tuple[int, ...]) -> None:
        info = self.state.replication.topic("one")
        by_leader: dict[int, list[m.AlterPartitionItem]] = {}
        for index, current in info.partitions.items():
            members = tuple(m.IsrMember(broker_id=NodeId(one), broker_epoch=self.epochs[one]) for one in isr)
            by_leader.setdefault(current.leader, []).append(
                m.AlterPartitionItem(
                    topic_id=info.topic_id,
                    partition=index,
                    leader_epoch=current.leader_epoch,
                    partition_epoch=current.partition_epoch,
                    new_isr=members,
                    recovering=False,
                )
            )
        for leader, items in by_leader.items():
            request = m.AlterPartitionRequest(broker_id=NodeId(leader), broker_epoch=self.epochs[leader], partitions=tuple(items))
            answer = await self.step(step, methods.ALTER_PARTITION, request)
            assert all(one.error == 0 for one in answer.partitions), answer.partitions[:1]


async def _run(turns: Turns, controllers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kraftlite-bench-") as folder:
        tune_gc()
        network = MemNetwork(HostClock())
        voters = tuple(Voter(id=NodeId(number), endpoint=Endpoint(f"c{number}", 9093)) for number in range(1, controllers + 1))
        nodes = [Node(number, voters, folder, network) for number in range(1, controllers + 1)]
        for node in nodes:
            await node.start()
        await _until(lambda: any(node.driver.active and node.driver.core.activated for node in nodes))
        story = Story(nodes, turns)
        await story.brokers(1, 2, 3, 4)
        await story.tell()
        for node in nodes:
            await node.stop()
        return {f"longest turn of a controller, ms: {name}": round(found, 1) for name, found in story.longest_ms.items()}


def controller_turns() -> dict[str, Any]:
    """Each operation with as many records as one may have, on an active controller and a standby that share one loop."""
    with measured() as turns:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(loop.create_task(_run(turns, 2), name=CALLER))
        finally:
            loop.close()
