"""The requests of simulated clients to a broker: its production handlers, called with domain types instead of Kafka's bytes.

The codec between the two is tested with hostile bytes and real clients; here it would only cost time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraftlite.broker.handlers import admin, reassignments
from kraftlite.broker.handlers.context import BrokerContext
from kraftlite.broker.handlers.fetch import CONSUMER, FetchAnswer, FetchCall, answer, must_wait, plan, wait
from kraftlite.broker.handlers.fetch_sessions import FINAL_EPOCH, NO_SESSION, SessionKey, SessionPartition
from kraftlite.broker.handlers.produce import ProduceCall, ProduceItem, produce
from kraftlite.broker.handlers.producer_ids import init_producer_id
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.controller import ConfigResourceType
from kraftlite.model.method import Method
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.node.build import Node
from kraftlite.replication.api import FetchResult, OffsetResult, ProduceResult
from kraftlite.runtime.ports import Handlers, route
from kraftlite.sim.services.catalog import ROUTES

CLIENT_LISTENER: Final = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class ProduceAsk:
    tp: TopicPartition
    acks: int
    timeout_ms: int
    batch: bytes


@dataclass(frozen=True, slots=True)
class FetchAsk:
    tp: TopicPartition
    offset: int
    leader_epoch: int | None
    max_wait_ms: int
    max_bytes: int
    read_committed: bool = False
    rack: str | None = None
    min_bytes: int = 1


@dataclass(frozen=True, slots=True)
class OffsetAsk:
    """`timestamp` -1: the latest, -2: the earliest."""

    tp: TopicPartition
    timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerIdAsk:
    pass


@dataclass(frozen=True, slots=True)
class ProducerIdAnswer:
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class MetadataAsk:
    """The metadata that a client needs to find leaders, and that a reader may compare: topics, their ids, partitions and
    configs."""


@dataclass(frozen=True, slots=True)
class MetadataAnswer:
    """`leaders`: partition → (leader or None, leader epoch); `configs`: topic → its dynamic configs."""

    offset: int
    brokers: Mapping[NodeId, Endpoint]
    leaders: Mapping[TopicPartition, tuple[NodeId | None, int]]
    topic_ids: Mapping[str, str]
    configs: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class AdminAsk:
    """`kind` names a function of `broker.handlers.admin` or `reassignments`."""

    kind: str
    request: Any


@dataclass(frozen=True, slots=True)
class AdminAnswer:
    response: Any


PRODUCE: Final = Method("Client", "Produce", ProduceAsk, ProduceResult)
FETCH: Final = Method("Client", "Fetch", FetchAsk, FetchResult)
OFFSETS: Final = Method("Client", "Offsets", OffsetAsk, OffsetResult)
PRODUCER_ID: Final = Method("Client", "ProducerId", ProducerIdAsk, ProducerIdAnswer)
METADATA: Final = Method("Client", "Metadata", MetadataAsk, MetadataAnswer)
ADMIN: Final = Method("Client", "Admin", AdminAsk, AdminAnswer)


def client_handlers(node: Node) -> Handlers:
    """The handlers of a started broker. They raise ApiError as the production handlers do."""
    assert node.broker is not None
    service = _Service(node.broker.context)
    handlers = dict(
        (
            route(PRODUCE, service.produce),
            route(FETCH, service.fetch),
            route(OFFSETS, service.offsets),
            route(PRODUCER_ID, service.producer_id),
            route(METADATA, service.metadata),
            route(ADMIN, service.admin),
        )
    )
    for routes in ROUTES:
        handlers.update(routes(node))
    return handlers


class _Service:
    def __init__(self, context: BrokerContext) -> None:
        self._ctx = context

    async def produce(self, ask: ProduceAsk) -> ProduceResult:
        done: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()
        item = ProduceItem(ask.tp.topic, None, ask.tp.partition, memoryview(bytearray(ask.batch)))
        call = ProduceCall(
            acks=ask.acks, timeout_ms=ask.timeout_ms, transactional_id=None, client_id=None, zstd_allowed=True, items=[item]
        )
        produce(self._ctx, call, lambda results: None if done.done() else done.set_result(results[0]))
        return await done

    async def fetch(self, ask: FetchAsk) -> FetchResult:
        """Answer a fetch as on the wire, without a session: looked for at once, and from then on whenever a partition has
        news."""
        epoch = -1 if ask.leader_epoch is None else ask.leader_epoch
        key = SessionKey(ask.tp.topic, None, ask.tp.partition)
        call = FetchCall(
            replica_id=CONSUMER,
            max_wait_ms=ask.max_wait_ms,
            min_bytes=ask.min_bytes,
            max_bytes=ask.max_bytes,
            isolation_level=int(ask.read_committed),
            read_committed=ask.read_committed,
            session_id=NO_SESSION,
            session_epoch=FINAL_EPOCH,
            uses_topic_ids=False,
            partitions=[SessionPartition(key, epoch, ask.offset, -1, ask.max_bytes)],
            forgotten=[],
            rack_id=ask.rack,
        )
        found = plan(self._ctx, call)
        results = self._ctx.replicas.fetch_now(found.params, found.entries)
        if must_wait(found, results):
            loop = asyncio.get_running_loop()
            done: asyncio.Future[FetchAnswer] = loop.create_future()

            def soon(look: Callable[[], None]) -> None:
                loop.call_soon(look)

            waiting = wait(self._ctx, found, soon, lambda it: None if done.done() else done.set_result(it))
            try:
                answered = await done
            finally:
                waiting.cancel()
        else:
            answered = answer(self._ctx, found, results)
        ((_, result),) = answered.items
        result.records = bytes(result.records)
        return result

    async def offsets(self, ask: OffsetAsk) -> OffsetResult:
        return self._ctx.replicas.list_offset(ask.tp, None, ask.timestamp, current_leader_epoch=None, read_committed=False)

    async def producer_id(self, ask: ProducerIdAsk) -> ProducerIdAnswer:
        identity = await init_producer_id(self._ctx, transactional_id=None, transaction_timeout_ms=60_000)
        return ProducerIdAnswer(identity.producer_id, identity.producer_epoch)

    async def metadata(self, ask: MetadataAsk) -> MetadataAnswer:
        cache = self._ctx.metadata
        image = cache.image
        leaders: dict[TopicPartition, tuple[NodeId | None, int]] = {}
        topic_ids: dict[str, str] = {}
        configs: dict[str, dict[str, str]] = {}
        for name in sorted(image.topics.by_name):
            topic = image.topics.by_name[name]
            topic_ids[name] = str(topic.topic_id)
            found = image.configs.get(ConfigResourceType.TOPIC, name)
            configs[name] = {key: found[key] for key in sorted(found)}
            for index, registration in sorted(topic.partitions.items()):
                leaders[TopicPartition(name, index)] = (registration.leader, registration.leader_epoch)
        brokers = {it.broker_id: Endpoint(it.host, it.port) for it in cache.alive_brokers(CLIENT_LISTENER)}
        return MetadataAnswer(image.offset, brokers, leaders, topic_ids, configs)

    async def admin(self, ask: AdminAsk) -> AdminAnswer:
        module = reassignments if ask.kind == "alter_reassignments" else admin
        return AdminAnswer(await getattr(module, ask.kind)(self._ctx, ask.request))
