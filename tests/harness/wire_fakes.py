"""What stands behind a Kafka listener in tests: replicas, a controller, an image, and a client that speaks frames."""

from __future__ import annotations

import asyncio
import inspect
import io
import random
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.metadata_cache import MetadataCache
from kraftlite.broker.telemetry import ClientTelemetry
from kraftlite.log.batch import Record, build_batch, parse_header
from kraftlite.log.config import LogConfig
from kraftlite.log.log import ActiveProducer
from kraftlite.log.seek import Seeker
from kraftlite.metadata.image import (
    ClientQuotasImage,
    ClusterImage,
    ConfigurationsImage,
    FeaturesImage,
    MetadataImage,
    MetadataProvenance,
    ProducerIdsImage,
    QuotaEntity,
    ScramImage,
    TopicImage,
    TopicsImage,
)
from kraftlite.metadata.pmap import PMap
from kraftlite.metadata.records import UserScramCredentialRecord
from kraftlite.metadata.registrations import BrokerRegistration, PartitionRegistration
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.model.messages.introspection import ReplicaState
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.obs.client_metrics import ClientMetrics
from kraftlite.protocol import kio_codec
from kraftlite.protocol.kio_codec import build_entity
from kraftlite.raft.client import RaftClient
from kraftlite.replication.api import (
    DeleteRecordsResult,
    FetchEntry,
    FetchParams,
    FetchResult,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from kraftlite.replication.consume import FetchRoom
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.wire import RequestFailed
from kraftlite.wire.apis import KafkaApis
from kraftlite.wire.doors import ConnectionRules, Doors
from kraftlite.wire.listener import KafkaListener, ListenerConfig
from tests.harness.clock import FakeClock
from tests.harness.disk import MemDisk
from tests.harness.log_dirs_fakes import FakeLogDirs
from tests.harness.transaction_fakes import FakeEnroller, FakeMarkers, FakeProducerIds, FakeTransactions

CLUSTER_ID = "kraftlite-test-cluster"
LISTENER = "PLAINTEXT"


def topic_uuid(number: int) -> UUID:
    return UUID(int=1000 + number)


def broker(
    broker_id: int, *, fenced: bool = False, listeners: Mapping[str, int] | None = None, rack: str | None = None
) -> BrokerRegistration:
    ports = {LISTENER: 9000 + broker_id} if listeners is None else listeners
    return BrokerRegistration(
        broker_id=NodeId(broker_id),
        broker_epoch=broker_id * 10,
        incarnation_id=UUID(int=broker_id),
        listeners=tuple(
            ListenerInfo(name=name, host="127.0.0.1", port=port, security_protocol="PLAINTEXT") for name, port in ports.items()
        ),
        features=(),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


def partition(
    replicas: Sequence[int], *, leader: int | None = -1, isr: Sequence[int] | None = None, leader_epoch: int = 0
) -> PartitionRegistration:
    """`leader` -1: the first replica."""
    return PartitionRegistration(
        replicas=tuple(NodeId(replica) for replica in replicas),
        isr=tuple(NodeId(member) for member in (replicas if isr is None else isr)),
        leader=NodeId(replicas[0]) if leader == -1 else None if leader is None else NodeId(leader),
        leader_epoch=leader_epoch,
        partition_epoch=0,
    )


def image(
    brokers: Sequence[BrokerRegistration],
    topics: Mapping[str, Sequence[PartitionRegistration]],
    *,
    offset: int = 100,
    configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None,
    features: Mapping[str, int] | None = None,
    quotas: Mapping[QuotaEntity, Mapping[str, str]] | None = None,
    scram: Sequence[UserScramCredentialRecord] = (),
) -> MetadataImage:
    """Topic ids are `topic_uuid(n)` in name order, from 0."""
    found = [
        TopicImage(name=name, topic_id=topic_uuid(number), partitions=dict(enumerate(topics[name])))
        for number, name in enumerate(sorted(topics))
    ]
    return MetadataImage(
        provenance=MetadataProvenance(
            last_contained_offset=offset, last_contained_epoch=1, last_contained_log_time_ms=0, is_offset_batch_aligned=True
        ),
        features=FeaturesImage(finalized=dict(features or {"metadata.version": 30})),
        cluster=ClusterImage(brokers={registration.broker_id: registration for registration in brokers}, controllers={}),
        topics=TopicsImage(by_id={topic.topic_id: topic for topic in found}, by_name={topic.name: topic for topic in found}),
        configs=ConfigurationsImage(resources=dict(configs or {})),
        client_quotas=ClientQuotasImage(entities=PMap({key: PMap(found) for key, found in (quotas or {}).items()})),
        scram=ScramImage(credentials=PMap({(one.name, one.mechanism): one for one in scram})),
        producer_ids=ProducerIdsImage(),
    )


def batch(*values: bytes, base_offset: int = 0, **options: Any) -> bytearray:
    records = [Record(key=None, value=value, timestamp_delta=0, offset_delta=at) for at, value in enumerate(values)]
    return bytearray(build_batch(records, base_offset=base_offset, timestamp_ms=1_700_000_000_000, **options))


class FakeWait:
    """A fetch that waits for the next append, or its time."""

    def __init__(self, replicas: FakeReplicas, params: FetchParams, ready: Callable[[], None]) -> None:
        self._replicas = replicas
        self._ready = ready
        self._waiter: asyncio.Future[None] | None = None
        self._timer = replicas.clock.call_later(params.max_wait_ms, self._expire)
        self.expired = False

    def watch(self, entries: Sequence[FetchEntry]) -> None:
        del entries
        self._waiter = asyncio.get_running_loop().create_future()
        self._replicas._waiters.append(self._waiter)
        self._waiter.add_done_callback(lambda it: None if it.cancelled() else self._ready())

    def _expire(self) -> None:
        self.expired = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def done(self) -> bool:
        return self._waiter is None

    def cancel(self) -> None:
        self._timer.cancel()
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None


class FakeReplicas:
    """Logs in memory. acks=all waits for `release`. A partition in `errors` answers with that error."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.logs: dict[TopicPartition, list[bytes]] = {}
        self.leo: dict[TopicPartition, int] = {}
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.parked: list[Callable[[], None]] = []
        self.appended: list[tuple[TopicPartition, int, int]] = []
        self.fetches: list[tuple[FetchParams, tuple[FetchEntry, ...]]] = []
        self.offsets: dict[tuple[TopicPartition, int], OffsetResult] = {}
        self.offset_calls: list[dict[str, Any]] = []
        self.epochs: dict[TopicPartition, tuple[ErrorCode, int, int]] = {}
        self.results: dict[TopicPartition, FetchResult] = {}
        self.producers: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        self.deletions: list[tuple[dict[TopicPartition, int], int]] = []
        self.enroller = FakeEnroller()
        self._waiters: list[asyncio.Future[None]] = []

    def append(
        self,
        entries: Sequence[ProduceEntry],
        *,
        acks: int,
        timeout_ms: int,
        on_done: Callable[[list[ProduceResult]], None],
        **options: Any,
    ) -> None:
        self.options = options
        if acks not in (-1, 0, 1):
            on_done([ProduceResult(tp=entry.tp, error=ErrorCode.INVALID_REQUIRED_ACKS) for entry in entries])
            return
        results = [self._append(entry, acks) for entry in entries]
        if acks == -1 and any(result.error is ErrorCode.NONE for result in results):
            self.parked.append(lambda: on_done(results))
        else:
            on_done(results)

    def _append(self, entry: ProduceEntry, acks: int) -> ProduceResult:
        error = self.errors.get(entry.tp)
        if error is not None:
            return ProduceResult(tp=entry.tp, error=error)
        base = self.leo.get(entry.tp, 0)
        records = entry.records
        count = parse_header(records).count
        struct.pack_into(">q", records, 0, base)  # stamped in place, as the log does
        self.logs.setdefault(entry.tp, []).append(bytes(records))
        self.leo[entry.tp] = base + count
        self.appended.append((entry.tp, base, acks))
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return ProduceResult(tp=entry.tp, error=ErrorCode.NONE, base_offset=base, log_start_offset=0)

    def release(self) -> None:
        parked, self.parked = self.parked, []
        for done in parked:
            done()

    def fetch_now(self, params: FetchParams, partitions: Sequence[FetchEntry]) -> list[FetchResult]:
        self.fetches.append((params, tuple(partitions)))
        return [self._read(entry, params) for entry in partitions]

    def _read(self, entry: FetchEntry, params: FetchParams) -> FetchResult:
        if entry.tp in self.results:
            return self.results[entry.tp]
        error = self.errors.get(entry.tp)
        if error is not None:
            return FetchResult(
                tp=entry.tp, error=error, hw=-1, last_stable_offset=-1, log_start_offset=-1, records=b"",
                aborted=None, diverging=None, leader=None, preferred_read_replica=None,
            )  # fmt: skip
        leo = self.leo.get(entry.tp, 0)
        found = [data for data in self.logs.get(entry.tp, []) if parse_header(data).next_offset > entry.fetch_offset]
        return FetchResult(
            tp=entry.tp, error=ErrorCode.NONE, hw=leo, last_stable_offset=leo, log_start_offset=0, records=b"".join(found),
            aborted=() if params.read_committed else None, diverging=None, leader=None, preferred_read_replica=None,
        )  # fmt: skip

    def fetch_some(self, room: FetchRoom, partitions: Sequence[FetchEntry]) -> list[FetchResult]:
        self.fetches.append((room.params, tuple(partitions)))
        return [self._read(entry, room.params) for entry in partitions]

    def fetch_wait(self, params: FetchParams, ready: Callable[[], None]) -> FakeWait:
        return FakeWait(self, params, ready)

    @property
    def waiting(self) -> int:
        return len([waiter for waiter in self._waiters if not waiter.done()])

    def list_offset(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        timestamp: int,
        *,
        current_leader_epoch: int | None,
        read_committed: bool,
        debug: bool = False,
        version5_plus: bool = True,
        seeker: Seeker | None = None,
    ) -> OffsetResult:
        self.offset_calls.append(
            {
                "tp": tp,
                "timestamp": timestamp,
                "epoch": current_leader_epoch,
                "read_committed": read_committed,
                "debug": debug,
                "version5_plus": version5_plus,
            }
        )
        offset = 0 if timestamp == -2 else self.leo.get(tp, 0)
        return self.offsets.get((tp, timestamp), OffsetResult(error=ErrorCode.NONE, offset=offset, timestamp=-1, leader_epoch=0))

    def offset_for_leader_epoch(
        self, tp: TopicPartition, *, current_leader_epoch: int | None, leader_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        return self.epochs.get(tp, (ErrorCode.NONE, leader_epoch, self.leo.get(tp, 0)))

    async def delete_records(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> list[DeleteRecordsResult]:
        self.deletions.append((dict(offsets), timeout_ms))
        answers = [(tp, offset, self.errors.get(tp, ErrorCode.NONE)) for tp, offset in offsets.items()]
        return [
            DeleteRecordsResult(tp=tp, error=error, low_watermark=offset if error is ErrorCode.NONE else -1)
            for tp, offset, error in answers
        ]

    def active_producers(self, tp: TopicPartition) -> tuple[ActiveProducer, ...]:
        if tp not in self.producers:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker 1 does not lead {tp}")
        return self.producers[tp]

    def replica_states(self, topics: tuple[str, ...] | None) -> tuple[ReplicaState, ...]:
        return ()


class FakeController:
    """Answers per method with what a test put there; without it, nobody is there and the call times out."""

    def __init__(self) -> None:
        self.calls: list[tuple[Method, Any, int]] = []
        self.answers: dict[Method, Callable[[Any], Any]] = {}

    async def call(self, method: Method, request: Any, timeout_ms: int) -> Any:
        self.calls.append((method, request, timeout_ms))
        found = self.answers.get(method)
        if found is None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered")
        answer = found(request)
        return await answer if inspect.isawaitable(answer) else answer


class LoopTasks:
    """The `Tasks` port on the running loop; remembers what failed."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        self.failures: list[BaseException] = []
        self.spawned: list[str] = []

    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.spawned.append(name)
        self.running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(task.exception())  # type: ignore[arg-type]

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        return function()

    async def cancel_all(self) -> None:
        for task in list(self.running):
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)


class NoTransport:
    async def call(self, peer: Endpoint, method: Method, request: Any, timeout_ms: int) -> Any:
        raise AssertionError("nothing here calls other nodes")

    async def reserve(self, listen: Endpoint) -> None:
        pass

    async def serve(self, listen: Endpoint, handlers: Mapping[Method, Callable[[Any], Awaitable[Any]]]) -> Endpoint:
        raise AssertionError("nothing here serves other nodes")

    async def close(self, grace_ms: int = 0) -> None:
        return None


@dataclass(kw_only=True)
class Values:
    values: Mapping[str, str] = field(default_factory=dict)


class Harness:
    """A listener on a loopback port, with fakes behind it. Use as an async context manager.

    `brokers` default to three live ones; this one is broker 1. Time stands still unless a test moves `clock`.
    """

    def __init__(
        self,
        topics: Mapping[str, Sequence[PartitionRegistration]] | None = None,
        *,
        brokers: Sequence[BrokerRegistration] | None = None,
        config: Mapping[str, str] | None = None,
        listener: Mapping[str, Any] | None = None,
        rules: ConnectionRules | None = None,
        **image_options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.tracer = ListTracer()
        self.tasks = LoopTasks()
        self.faults: list[tuple[BaseException, str]] = []
        self.replicas = FakeReplicas(self.clock)
        self.controller = FakeController()
        self.producer_ids = FakeProducerIds()
        self.log_dirs = FakeLogDirs()
        self.transactions = FakeTransactions()
        self.markers = FakeMarkers()
        self.metadata = MetadataCache(CLUSTER_ID)
        self.brokers = [broker(1), broker(2), broker(3)] if brokers is None else list(brokers)
        self.topics = dict(topics if topics is not None else {"events": [partition([1, 2, 3])]})
        self.metadata.set_image(image(self.brokers, self.topics, **image_options))
        ports = Ports(
            node_id=NodeId(1),
            clock=self.clock,
            disk=MemDisk(),
            transport=NoTransport(),
            tracer=self.tracer,
            tasks=self.tasks,
            entropy=random.Random(1),
            fault=lambda error, where: self.faults.append((error, where)),
        )
        self.kraft_version = 0
        self.context = BrokerContext(
            node_id=NodeId(1),
            cluster_id=CLUSTER_ID,
            config=Values(values=dict(config or {})),
            metadata=self.metadata,
            replicas=self.replicas,
            controller=self.controller,
            producer_ids=self.producer_ids,
            raft=cast(RaftClient, SimpleNamespace(kraft_version=lambda: self.kraft_version)),
            log_config_for=lambda topic: LogConfig(),
            ports=ports,
            log_dirs=self.log_dirs,
            transactions=self.transactions,
            markers=self.markers,
        )
        self.client_metrics = ClientMetrics(most_series=100, now_ms=self.clock.now_ms)
        self.context.telemetry = ClientTelemetry(
            lambda: self.metadata.image.configs,
            self.client_metrics,
            max_bytes=10_000,
            now_ms=self.clock.now_ms,
            entropy=random.Random(2),
        )
        self.apis = KafkaApis(self.context, LISTENER)
        options = {"name": LISTENER, "host": "127.0.0.1", "port": 0, **(listener or {})}
        self.doors = Doors(self.clock, ConnectionRules() if rules is None else rules)
        self.listener = KafkaListener(ports, ListenerConfig(**options), self.apis, doors=self.doors)
        self.clients: list[RawClient] = []

    async def __aenter__(self) -> Harness:
        await self.listener.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        for client in self.clients:
            client.close()
        await self.listener.stop()
        await self.tasks.cancel_all()
        assert not self.faults, self.faults
        assert not self.bugs, self.bugs
        assert not self.tasks.failures, self.tasks.failures

    @property
    def bugs(self) -> list[RequestFailed]:
        """Requests that ended in an exception which nobody expects."""
        return [event for event in self.tracer.events if isinstance(event, RequestFailed)]

    def set_image(self, brokers: Sequence[BrokerRegistration] | None = None, **options: Any) -> None:
        self.brokers = list(brokers) if brokers is not None else self.brokers
        self.metadata.set_image(image(self.brokers, options.pop("topics", self.topics), **options))

    async def client(self) -> RawClient:
        endpoint = self.listener.endpoint
        assert endpoint is not None
        client = RawClient(*await asyncio.open_connection("127.0.0.1", endpoint.port))
        self.clients.append(client)
        return client


class RawClient:
    """Frames over a socket. `call` goes through kio; `send_frame` and `read_frame` are the bytes themselves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 100

    def close(self) -> None:
        self._writer.close()

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    def send_frame(self, payload: bytes) -> None:
        self._writer.write(struct.pack(">i", len(payload)) + payload)

    def send(self, api_key: int, version: int, values: Mapping[str, Any], *, client_id: str | None = "raw") -> int:
        self._correlation_id += 1
        self.send_frame(request_bytes(api_key, version, values, self._correlation_id, client_id))
        return self._correlation_id

    async def read_frame(self, timeout: float = 5) -> bytes:
        (size,) = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), timeout))
        return await asyncio.wait_for(self._reader.readexactly(size), timeout)

    async def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        return decode_response(api_key, version, await self.read_frame(), correlation_id)

    async def call(self, api_key: int, version: int, values: Mapping[str, Any], *, client_id: str | None = "raw") -> Any:
        return await self.receive(api_key, version, self.send(api_key, version, values, client_id=client_id))

    async def closed(self, timeout: float = 5) -> bool:
        """Wait until the broker closes; True when it did so without another byte."""
        try:
            return await asyncio.wait_for(self._reader.read(), timeout) == b""
        except ConnectionError:
            return True


def encode_body(api_key: int, version: int, values: Mapping[str, Any]) -> bytes:
    schema = load_request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, build_entity(schema, values))
    return buffer.getvalue()


def request_bytes(
    api_key: int, version: int, values: Mapping[str, Any], correlation_id: int, client_id: str | None = "raw"
) -> bytes:
    """A whole request without its size prefix."""
    flexible = bool(load_request_schema(api_key, version).__flexible__)
    raw = None if client_id is None else client_id.encode()
    head = struct.pack(">hhih", api_key, version, correlation_id, -1 if raw is None else len(raw)) + (raw or b"")
    return head + (b"\x00" if flexible else b"") + encode_body(api_key, version, values)


def decode_response(api_key: int, version: int, frame: bytes, correlation_id: int | None = None) -> Any:
    if api_key == 38:  # whose times are -1 where there are none, which kio does not read
        return kio_codec.decode_response(api_key, version, memoryview(frame))
    schema = load_response_schema(api_key, version)
    (found,) = struct.unpack_from(">i", frame)
    assert correlation_id is None or found == correlation_id, (found, correlation_id)
    pos = 4
    if schema.__flexible__ and api_key != 18:
        assert frame[4] == 0
        pos = 5
    entity, size = entity_reader(schema)(frame, pos)
    assert pos + size == len(frame), "bytes left over"
    return entity


async def until(condition: Callable[[], bool], *, turns: int = 2000) -> None:
    """Give the loop turns until `condition` holds."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition did not come true")
