"""Whole nodes in one process: network, disks and clock in memory, moved by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from kraftlite.config.server import ServerConfig, load
from kraftlite.log.batch import Record, build_batch
from kraftlite.metadata.features import METADATA_VERSION
from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import uuid_to_str
from kraftlite.model.messages.controller import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, TopicSelector
from kraftlite.model.messages.methods import CREATE_TOPICS, DELETE_TOPICS
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node, build_node
from kraftlite.node.forming import formation
from kraftlite.node.storage import format_directories
from kraftlite.obs.explain_events import Recorded, from_trace
from kraftlite.replication.manager import FetchEntry, FetchParams, ProduceEntry
from kraftlite.runtime.trace import ListTracer, TraceEvent
from tests.harness.broker_ports import TestBed
from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk
from tests.harness.transport import MemNetwork

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
QUICK = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
}


class ClusterTracer(ListTracer):
    """Of one incarnation of a node; the cluster keeps what all of them told, with times."""

    def __init__(self, cluster: MemCluster, node_id: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._node_id = node_id

    def emit(self, event: TraceEvent) -> None:
        super().emit(event)
        self._cluster.recorded.append(from_trace(self._cluster.clock.now_ms(), self._node_id, event))


class MemNode:
    """One node over its incarnations. `disk` and configuration stay, everything else is new at each `boot`."""

    def __init__(self, cluster: MemCluster, node_id: int, config: ServerConfig) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.config = config
        self.disk = MemDisk()
        self.boots = 0
        self.node: Node | None = None
        self.starting: asyncio.Task[None] | None = None

    def boot(self) -> None:
        self.boots += 1
        transport = self.cluster.network.transport(f"n{self.node_id}")
        self.bed = TestBed(
            seed=self.node_id * 1000 + self.boots,
            transport=transport,
            disk=self.disk,
            node_id=self.node_id,
            clock=self.cluster.clock,
            tracer=ClusterTracer(self.cluster, self.node_id),
        )
        self.node = build_node(self.config, self.bed.ports, serve_clients=False)
        self.starting = asyncio.ensure_future(self.node.start())

    @property
    def up(self) -> bool:
        return self.starting is not None and self.starting.done() and self.node is not None

    async def crash(self) -> None:
        """Power cut: nothing runs any more, and what was not synced is gone."""
        assert self.node is not None and self.starting is not None
        self.cluster.network.kill(f"n{self.node_id}")
        self.starting.cancel()
        await self.bed.tasks.cancel_all()
        self.node._locks.release()
        self.disk.crash()
        self.node = None

    async def stop(self) -> None:
        assert self.node is not None
        stopping = asyncio.ensure_future(self.node.stop(graceful=True))
        await self.cluster.until(stopping.done, f"n{self.node_id} to stop")
        await stopping


class MemCluster:
    """Nodes with a common clock and network. All waiting is `until` a condition holds, in virtual time."""

    def __init__(
        self,
        directory: Path,
        *,
        controllers: int = 0,
        brokers: int = 0,
        combined: int = 0,
        level: int | None = None,
        initial: Sequence[int] = (),
        **config: str,
    ) -> None:
        """`initial`: the voters are in the log, and these controllers are formatted as the first ones; none: they are static.

        `level`: the metadata.version of the cluster; None: the latest."""
        self.clock = FakeClock()
        self.network = MemNetwork(self.clock)
        self.recorded: list[Recorded] = []
        """Every event of every node, in virtual milliseconds."""
        plan = ["broker,controller"] * combined + ["controller"] * controllers + ["broker"] * brokers
        ids = list(enumerate(plan, start=1))
        voters = ",".join(f"{node_id}@n{node_id}:9093" for node_id, roles in ids if "controller" in roles)
        servers = ",".join(f"n{node_id}:9093" for node_id, roles in ids if "controller" in roles)
        quorum = {"controller.quorum.bootstrap.servers": servers} if initial else {"controller.quorum.voters": voters}
        listed = ",".join(f"{node_id}@n{node_id}:9093:{uuid_to_str(UUID(int=1_000 + node_id))}" for node_id in initial)
        self.nodes: dict[int, MemNode] = {}
        for node_id, roles in ids:
            listeners = []
            if "broker" in roles:
                listeners += [f"PLAINTEXT://n{node_id}:9092", f"REPLICATION://n{node_id}:9192"]
            if "controller" in roles:
                listeners.append(f"CONTROLLER://n{node_id}:9093")
            values = {
                "process.roles": roles,
                "node.id": str(node_id),
                **quorum,
                "controller.listener.names": "CONTROLLER",
                "listeners": ",".join(listeners),
                "log.dirs": "/data",
                **({"inter.broker.listener.name": "REPLICATION"} if "broker" in roles else {}),
                **QUICK,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
            path = directory / f"n{node_id}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            node = self.nodes[node_id] = MemNode(self, node_id, load(path))
            forming = None
            if initial:
                waits = node_id not in initial
                options = {"no_initial_controllers": True} if waits else {"initial_controllers": listed}
                forming = formation(node.config, **options, entropy=random.Random(node_id))  # type: ignore[arg-type]
            features = None if level is None else {METADATA_VERSION: level}
            format_directories(node.disk, node.config, CLUSTER, features=features, wall_ms=0, forming=forming)

    def boot(self) -> None:
        for node in self.nodes.values():
            node.boot()

    async def until(self, condition: Callable[[], Any], what: str, limit_ms: int = 60_000) -> Any:
        deadline = self.clock.now_ms() + limit_ms
        while not (found := condition()):
            assert self.clock.now_ms() < deadline, f"not within {limit_ms} ms: {what}"
            await self.clock.run_for(10, settle=30)
            self.check()
        return found

    def check(self) -> None:
        for node in self.nodes.values():
            if node.node is None:
                continue
            if node.bed.faults:
                raise node.bed.faults[0][0]
            if node.starting is not None and node.starting.done() and not node.starting.cancelled() and node.starting.exception():
                raise node.starting.exception()  # type: ignore[misc]

    async def up(self) -> None:
        self.boot()
        await self.until(lambda: all(node.up for node in self.nodes.values()), "all nodes to be up")

    async def call(self, future: Any, what: str) -> Any:
        task = asyncio.ensure_future(future)
        await self.until(task.done, what)
        return task.result()

    def a_broker(self) -> Node:
        return next(node.node for node in self.nodes.values() if node.node is not None and node.node.broker is not None)

    async def create_topic(self, name: str, partitions: int = 1, replicas: int = 1) -> None:
        broker = self.a_broker().broker
        assert broker is not None
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=())
        request = CreateTopicsRequest(topics=(topic,), validate_only=False, timeout_ms=20_000)
        response = await self.call(broker.channel.call(CREATE_TOPICS, request, 20_000), f"topic {name}")
        assert response.topics[0].error is ErrorCode.NONE, response
        await self.until(lambda: self.leader(name) is not None, f"a leader of {name}-0")

    def leader(self, topic: str, index: int = 0) -> MemNode | None:
        """The live node that is and knows that it is the leader."""
        for node in self.nodes.values():
            broker = None if node.node is None else node.node.broker
            partition = None if broker is None else broker.replicas.partition(TopicPartition(topic, index))
            if partition is not None and partition.leader is not None:
                return node
        return None

    def isr(self, topic: str, index: int = 0) -> tuple[int, ...]:
        leader = self.leader(topic, index)
        if leader is None or leader.node is None or leader.node.broker is None:
            return ()
        found = leader.node.broker.cache.partition(topic, index)
        return () if found is None else tuple(sorted(found.isr))

    async def produce(self, topic: str, value: str, *, acks: int = -1) -> ErrorCode:
        node = self.leader(topic)
        assert node is not None and node.node is not None and node.node.broker is not None
        batch = bytearray(build_batch([Record(key=None, value=value.encode())], timestamp_ms=self.clock.wall_ms()))
        results: list[Any] = []
        entry = ProduceEntry(tp=TopicPartition(topic, 0), topic_id=None, records=batch)
        node.node.broker.replicas.append([entry], acks=acks, timeout_ms=5_000, on_done=results.extend)
        await self.until(lambda: results, f"{value} to be acknowledged")
        return ErrorCode(results[0].error)

    def readable(self, topic: str) -> int:
        """The HW at the leader."""
        node = self.leader(topic)
        assert node is not None and node.node is not None and node.node.broker is not None
        params = FetchParams(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, read_committed=False)
        entry = FetchEntry(
            tp=TopicPartition(topic, 0),
            topic_id=None,
            fetch_offset=0,
            current_leader_epoch=None,
            last_fetched_epoch=None,
            max_bytes=1 << 20,
        )
        (result,) = node.node.broker.replicas.fetch_now(params, [entry])
        return int(result.hw)

    async def delete_topic(self, name: str) -> None:
        broker = self.a_broker().broker
        assert broker is not None
        request = DeleteTopicsRequest(topics=(TopicSelector(name=name, topic_id=None),), timeout_ms=20_000)
        response = await self.call(broker.channel.call(DELETE_TOPICS, request, 20_000), f"{name} to be deleted")
        assert response.topics[0].error is ErrorCode.NONE, response
        await self.until(lambda: broker.cache.partition(name, 0) is None, f"{name} to be gone")
