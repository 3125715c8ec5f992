"""Fakes around the metadata loader, and valid metadata logs made from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from kraftlite.metadata.delta import MetadataDelta
from kraftlite.metadata.image import MetadataImage, MetadataProvenance
from kraftlite.metadata.publisher import Manifest
from kraftlite.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    FeatureRange,
    ListenerInfo,
)
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.model.messages.security import (
    QuotaEntityPart,
)
from kraftlite.raft.client import CommittedBatch, LeaderAndEpoch
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace import ListTracer
from tests.harness.clock import FakeClock
from tests.harness.transport import MemNetwork

T = TypeVar("T")


class LoopTasks:
    """The Tasks port on the running loop; faults are kept in `faults`."""

    def __init__(self) -> None:
        self.faults: list[tuple[BaseException, str]] = []
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> TaskHandle:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.faults.append((task.exception() or RuntimeError(), task.get_name()))

    async def run_blocking(self, function: Callable[[], T]) -> T:
        return function()

    async def cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass
class MetadataWorld:
    """Everything a loader needs, and what it did with it."""

    clock: FakeClock = field(default_factory=FakeClock)
    tracer: ListTracer = field(default_factory=ListTracer)
    faults: list[tuple[BaseException, str]] = field(default_factory=list)
    tasks: LoopTasks = field(default_factory=LoopTasks)

    @property
    def ports(self) -> Ports:
        return Ports(
            node_id=NodeId(1),
            clock=self.clock,
            disk=None,  # type: ignore[arg-type]  # nothing here touches files
            transport=MemNetwork().transport("one"),
            tracer=self.tracer,
            tasks=self.tasks,
            entropy=random.Random(0),
            fault=lambda error, where: self.faults.append((error, where)),
        )

    def events(self, name: str) -> list[Any]:
        return [event for event in self.tracer.events if event.event == name]


class FakeWriter:
    def __init__(self, raft: FakeRaft, snapshot_id: OffsetAndEpoch) -> None:
        self._raft = raft
        self.snapshot_id = snapshot_id
        self.records: list[Any] = []
        self.state = "open"

    def append(self, records: Sequence[Any], encoded: Sequence[bytes] | None = None) -> None:
        assert encoded is not None and len(encoded) == len(records)
        self.records.extend(records)

    async def freeze(self) -> None:
        if self._raft.hold_freeze is not None:
            await self._raft.hold_freeze.wait()
        if self._raft.freeze_error is not None:
            raise self._raft.freeze_error
        self.state = "frozen"

    def abandon(self) -> None:
        self.state = "abandoned"


class FakeRaft:
    """The quorum as the loader sees it. `commit` appends and delivers; the high watermark is what the test says."""

    def __init__(self) -> None:
        self.node_id = NodeId(1)
        self.hw: int | None = None
        self.leader = LeaderAndEpoch(leader_id=None, epoch=0)
        self.listener: Any = None
        self.next_offset = 0
        self.writers: list[FakeWriter] = []
        self.freeze_error: OSError | None = None
        self.latest_is_damaged = False
        self.hold_freeze: asyncio.Event | None = None

    def register(self, listener: Any) -> None:
        self.listener = listener

    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self.leader

    def high_watermark(self) -> int | None:
        return self.hw

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_timestamp_ms: int) -> FakeWriter | None:
        if any(writer.snapshot_id == snapshot_id and writer.state == "frozen" for writer in self.writers):
            return None
        self.writers.append(FakeWriter(self, snapshot_id))
        return self.writers[-1]

    def latest_snapshot_is_damaged(self) -> bool:
        return self.latest_is_damaged

    def batch(self, *records: MetadataRecord, size_bytes: int = 100) -> CommittedBatch:
        """The next batch; without records a control batch."""
        base = self.next_offset
        self.next_offset += max(1, len(records))
        return CommittedBatch(
            base_offset=base,
            last_offset=self.next_offset - 1,
            epoch=1,
            append_timestamp_ms=1000 + base,
            size_bytes=size_bytes,
            records=records,
        )

    def deliver(self, *batches: CommittedBatch) -> None:
        self.listener.handle_commit(batches)

    def commit(self, *records: MetadataRecord, size_bytes: int = 100) -> None:
        """One batch, delivered by itself, with the high watermark right behind it."""
        batch = self.batch(*records, size_bytes=size_bytes)
        self.hw = self.next_offset
        self.deliver(batch)


class FakeSnapshot:
    def __init__(self, snapshot_id: OffsetAndEpoch, records: Sequence[Any], *, batch: int = 3) -> None:
        self.snapshot_id = snapshot_id
        self.last_contained_timestamp_ms = 5
        self.size_bytes = 100
        self._records = list(records)
        self._batch = batch

    def batches(self) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(self._records), self._batch):
            yield tuple(self._records[start : start + self._batch])


class RecordingPublisher:
    """Notes everything; with `error` set it raises it on every update, after having noted it."""

    def __init__(self, name: str, log: list[tuple[str, str]] | None = None, error: Exception | None = None) -> None:
        self.name = name
        self.updates: list[tuple[MetadataDelta, MetadataImage, Manifest]] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.closed = False
        self.error = error
        self._log = log if log is not None else []

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
        self.updates.append((delta, image, manifest))
        self._log.append((self.name, f"image@{image.offset}"))
        if self.error is not None:
            raise self.error

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self._log.append((self.name, f"leader={leader.leader_id}"))

    def close(self) -> None:
        self.closed = True
        self._log.append((self.name, "close"))


def provenance(offset: int = 0) -> MetadataProvenance:
    return MetadataProvenance(
        last_contained_offset=offset, last_contained_epoch=1, last_contained_log_time_ms=offset, is_offset_batch_aligned=True
    )


def image_of(records: Sequence[MetadataRecord], base: MetadataImage = MetadataImage.EMPTY) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(provenance(base.offset + len(records)))


def nodes(*ids: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(value) for value in ids)


def broker(broker_id: int, epoch: int = 1, *, fenced: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=NodeId(broker_id),
        incarnation_id=UUID(int=1000 + broker_id),
        broker_epoch=epoch,
        listeners=(ListenerInfo(name="PLAINTEXT", host="h", port=9092 + broker_id, security_protocol="PLAINTEXT"),),
        features=(FeatureRange(name="metadata.version", min_level=7, max_level=30),),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        log_dirs=(UUID(int=2000 + broker_id),),
    )


def partition(topic_id: UUID, index: int, replicas: Sequence[int] = (1, 2, 3), **changes: Any) -> PartitionRecord:
    ids = nodes(*replicas)
    record = PartitionRecord(
        topic_id=topic_id,
        partition=index,
        replicas=ids,
        isr=ids,
        leader=ids[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(UUID(int=2000 + broker_id) for broker_id in ids),
    )
    return replace(record, **changes)


def topic(name: str, topic_id: int, partitions: int = 1, replicas: Sequence[int] = (1, 2, 3)) -> list[MetadataRecord]:
    uuid = UUID(int=topic_id)
    return [TopicRecord(name=name, topic_id=uuid), *[partition(uuid, index, replicas) for index in range(partitions)]]


class LogMaker:
    """Valid metadata records of every kind, drawn from a seed: each fits the state that those before it left."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._topics: dict[str, UUID] = {}
        self._partitions: dict[UUID, int] = {}
        self._brokers: dict[int, int] = {}
        self._acls: list[UUID] = []
        self._next = 100

    def take(self, count: int) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        while len(records) < count:
            records.extend(self._step())
        return records

    def _step(self) -> list[MetadataRecord]:
        rng = self._rng
        steps = [
            self._feature,
            self._broker,
            self._broker,
            self._broker_change,
            self._controller,
            self._topic,
            self._topic,
            self._topic,
            self._partition_change,
            self._partition_change,
            self._partition_change,
            self._remove_topic,
            self._config,
            self._config,
            self._quota,
            self._scram,
            self._producer_ids,
            self._acl,
            self._token,
            self._unregister,
            self._fence,
            lambda: [ClearElrRecord(topic_name=self._rng.choice(["", *sorted(self._topics)]))],
            lambda: [ZkMigrationStateRecord(state=2)],
            lambda: [NoOpRecord()],
        ]
        return rng.choice(steps)()

    def _feature(self) -> list[MetadataRecord]:
        name = self._rng.choice(["metadata.version", "a.version", "b.version"])
        level = self._rng.randint(7, 30) if name == "metadata.version" else self._rng.randint(0, 2)
        return [FeatureLevelRecord(name=name, level=level)]

    def _broker(self) -> list[MetadataRecord]:
        self._next += 1
        broker_id = self._rng.randint(1, 5)
        self._brokers[broker_id] = self._next
        return [replace(broker(broker_id, self._next), rack=self._rng.choice([None, "", "r1"]))]

    def _broker_change(self) -> list[MetadataRecord]:
        if not self._brokers:
            return []
        broker_id = self._rng.choice(sorted(self._brokers))
        change = BrokerRegistrationChangeRecord(broker_id=NodeId(broker_id), broker_epoch=self._brokers[broker_id])
        options: list[dict[str, Any]] = [{"fenced": False}, {"in_controlled_shutdown": True}, {"log_dirs": (UUID(int=9),)}, {}]
        return [replace(change, **self._rng.choice(options))]

    def _unregister(self) -> list[MetadataRecord]:
        if not self._brokers:
            return []
        broker_id = self._rng.choice(sorted(self._brokers))
        return [UnregisterBrokerRecord(broker_id=NodeId(broker_id), broker_epoch=self._brokers.pop(broker_id))]

    def _controller(self) -> list[MetadataRecord]:
        controller_id = self._rng.randint(90, 92)
        self._next += 1
        return [
            RegisterControllerRecord(
                controller_id=NodeId(controller_id), incarnation_id=UUID(int=self._next), listeners=(), features=()
            )
        ]

    def _topic(self) -> list[MetadataRecord]:
        free = [name for name in ("t1", "t2", "t3", "t4") if name not in self._topics]
        if not free:
            return []
        self._next += 1
        name, topic_id = self._rng.choice(free), UUID(int=self._next)
        self._topics[name] = topic_id
        self._partitions[topic_id] = self._rng.choice([1, 3, 40])
        return topic(name, self._next, self._partitions[topic_id])

    def _partition_change(self) -> list[MetadataRecord]:
        if not self._topics:
            return []
        topic_id = self._topics[self._rng.choice(sorted(self._topics))]
        index = self._rng.randrange(self._partitions[topic_id])
        change = PartitionChangeRecord(topic_id=topic_id, partition=index)
        options: list[dict[str, Any]] = [
            {},
            {"isr": nodes(1)},
            {"leader": None, "isr": ()},
            {"leader": NodeId(2)},
            {"replicas": nodes(1, 2), "isr": nodes(1)},
            {"adding_replicas": nodes(4), "removing_replicas": nodes(1)},
            {"elr": nodes(3), "last_known_elr": nodes(2)},
            {"recovering": True, "directories": ()},
        ]
        return [replace(change, **self._rng.choice(options))]

    def _remove_topic(self) -> list[MetadataRecord]:
        if not self._topics:
            return []
        return [RemoveTopicRecord(topic_id=self._topics.pop(self._rng.choice(sorted(self._topics))))]

    def _config(self) -> list[MetadataRecord]:
        kind, name = self._rng.choice([(4, ""), (4, "1"), *[(2, name) for name in sorted(self._topics)]])
        value = self._rng.choice([None, "", "1", "2"])
        return [ConfigRecord(resource_type=kind, resource_name=name, name=self._rng.choice(["x", "y"]), value=value)]

    def _scram(self) -> list[MetadataRecord]:
        name, mechanism = self._rng.choice(["u", "v"]), self._rng.choice([1, 2])
        if self._rng.random() < 0.3:
            return [RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)]
        key = bytes([self._rng.randrange(256)])
        return [
            UserScramCredentialRecord(name=name, mechanism=mechanism, salt=key, stored_key=key, server_key=key, iterations=4096)
        ]

    def _fence(self) -> list[MetadataRecord]:
        if not self._brokers:
            return []
        broker_id = self._rng.choice(sorted(self._brokers))
        kind = self._rng.choice([FenceBrokerRecord, UnfenceBrokerRecord])
        return [kind(broker_id=NodeId(broker_id), broker_epoch=self._brokers[broker_id])]

    def _acl(self) -> list[MetadataRecord]:
        if self._acls and self._rng.random() < 0.3:
            return [RemoveAccessControlEntryRecord(id=self._acls.pop(self._rng.randrange(len(self._acls))))]
        self._next += 1
        self._acls.append(UUID(int=self._next))
        return [
            AccessControlEntryRecord(
                id=self._acls[-1],
                resource_type=2,
                resource_name=f"t{self._next}",
                pattern_type=3,
                principal="User:a",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]

    def _token(self) -> list[MetadataRecord]:
        token_id = self._rng.choice(["a", "b"])
        if self._rng.random() < 0.3:
            return [RemoveDelegationTokenRecord(token_id=token_id)]
        self._next += 1
        return [
            DelegationTokenRecord(
                owner="User:a",
                requester="User:a",
                renewers=self._rng.choice([(), ("User:b",)]),
                issue_timestamp_ms=self._next,
                max_timestamp_ms=self._next,
                expiration_timestamp_ms=self._next,
                token_id=token_id,
            )
        ]

    def _quota(self) -> list[MetadataRecord]:
        user, client = QuotaEntityPart(type="user", name="u"), QuotaEntityPart(type="client-id", name=None)
        entity = self._rng.choice([(user,), (client,), (client, user)])
        value = self._rng.choice([None, "1.0", "2.5"])
        return [ClientQuotaRecord(entity=entity, key=self._rng.choice(["x", "y"]), value=value)]

    def _producer_ids(self) -> list[MetadataRecord]:
        self._next += 1000
        return [ProducerIdsRecord(broker_id=NodeId(1), broker_epoch=1, next_producer_id=self._next)]
