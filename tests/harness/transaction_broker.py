"""A broker with a transaction coordinator over a log in memory, and what it reaches: replicas, groups, other brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kraftlite.broker.transactions import Enrolling, MarkerWriting, Peers
from kraftlite.coordinator.core.placement import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kraftlite.coordinator.transactions.config import TransactionConfig
from kraftlite.coordinator.transactions.coordinator import TransactionCoordinator
from kraftlite.coordinator.transactions.markers_driver import MarkerSender
from kraftlite.coordinator.transactions.records import record_of
from kraftlite.coordinator.transactions.states import Transaction
from kraftlite.log.batch import Record, build_batch
from kraftlite.metadata.image import MetadataImage
from kraftlite.metadata.registrations import PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.api import MarkerEntry
from kraftlite.runtime.ports import Ports
from tests.harness.broker_ports import ScriptedTransport, TestBed
from tests.harness.offsets_log import LedPartition, OffsetsLogFake, topics_delta
from tests.harness.wire_fakes import LISTENER, broker, image, partition

E = ErrorCode
A, B = TopicPartition("a", 0), TopicPartition("a", 1)
CLUSTER = "the-cluster"


class TransactionLogFake(OffsetsLogFake):
    def at(self, index: int) -> LedPartition:
        return self.partitions.setdefault(TopicPartition(TRANSACTION_TOPIC, index), LedPartition())


class Ids:
    def __init__(self) -> None:
        self.next = 100
        self.blocks = 1
        """How many more `arrival`s bring one."""
        self.empty = False

    def take(self) -> int | None:
        if self.empty:
            return None
        self.next += 1
        return self.next

    async def arrival(self) -> bool:
        if self.blocks:
            self.blocks -= 1
            self.empty = False
        return not self.empty


class LocalMarkers:
    """The replicas and the groups of this broker, as far as markers go."""

    def __init__(self) -> None:
        self.written: list[MarkerEntry] = []
        self.completed: list[MarkerEntry] = []
        self.answers: dict[TopicPartition, ErrorCode] = {}
        self.timeouts: list[int] = []

    def write_markers(self, markers: Sequence[MarkerEntry], *, timeout_ms: int, on_done: Any) -> None:
        self.written += markers
        self.timeouts.append(timeout_ms)
        on_done([self.answers.get(it.tp, E.NONE) for it in markers])

    async def complete_transaction(self, tp: TopicPartition, marker: MarkerEntry) -> ErrorCode:
        self.completed.append(marker)
        return self.answers.get(tp, E.NONE)


class Coordinating:
    """A broker 1 with a coordinator over a log in memory."""

    def __init__(self, config: Mapping[str, str] | None = None, *, automatic: bool = True, partitions: int = 1) -> None:
        self.transport = ScriptedTransport()
        self.bed = TestBed(transport=self.transport)
        self.topics: dict[str, Sequence[PartitionRegistration]] = {
            TRANSACTION_TOPIC: [partition([1, 2])] * partitions,
            "a": [partition([1, 2])] * 3,
            OFFSETS_TOPIC: [partition([1])],
        }
        self.brokers = [broker(1), broker(2)]
        self.features = {"transaction.version": 2}
        self.log = TransactionLogFake(automatic=automatic)
        self.ids = Ids()
        self.local = LocalMarkers()
        self.peers = Peers(NodeId(1), CLUSTER, LISTENER, self.image)
        self.applied = MetadataImage.EMPTY
        self.make(self.bed.ports, config or {})

    def make(self, ports: Ports, config: Mapping[str, str]) -> None:
        """The coordinator and what it needs, on these ports."""
        self.writing = MarkerWriting(ports, self.peers, self.local, self.local, 3_000)
        sender = MarkerSender(ports, self.writing, self.image)
        settings = TransactionConfig.from_values(dict(config))
        self.coordinator = TransactionCoordinator(ports, settings, self.log, self.ids, sender, self.image)
        self.gate = Enrolling(ports, self.peers, self.coordinator, 3_000)

    def image(self) -> MetadataImage:
        return image(self.brokers, self.topics, features=self.features)

    async def apply(self, topics: Mapping[str, Sequence[PartitionRegistration]] | None = None) -> None:
        if topics is not None:
            self.topics = dict(topics)
        after = self.image()
        found = after.topics.topic(TRANSACTION_TOPIC)
        for index, registration in ({} if found is None else found.partitions).items():
            self.log.at(index).leader_epoch = registration.leader_epoch
        before, self.applied = self.applied, after
        self.coordinator.replicas_applied(topics_delta(before, after), after)
        await self.run(1)

    async def run(self, ms: int = 0) -> None:
        await self.bed.clock.run_for(ms)
        assert not self.bed.faults

    async def init(self, name: str = "t", **asked: Any) -> Producer:
        return await self.coordinator.init_producer_id(name, **{"timeout_ms": 60_000, "expected": None, **asked})

    async def begun(self, *tps: TopicPartition, name: str = "t") -> Producer:
        producer = await self.init(name)
        await self.coordinator.add_partitions(name, producer, frozenset(tps), version=2)
        return producer

    def store(self, name: str, state: Transaction, index: int = 0) -> None:
        record = record_of(name, state, transaction_version=2)
        self.log.write(index, build_batch([Record(record.key, record.value)], timestamp_ms=1))

    async def close(self) -> None:
        self.coordinator.close()
        await self.bed.tasks.cancel_all()
        assert not self.bed.faults


async def code(asked: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await asked
    return caught.value.code
