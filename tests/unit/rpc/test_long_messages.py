"""Long messages are decoded and encoded on a thread; others are answered meanwhile, and each stream keeps its order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.limits import RPC_LONG_ITEMS
from kraftlite.model.messages import controller as c
from kraftlite.model.messages import replica as p
from kraftlite.model.messages.methods import ALTER_PARTITION, CREATE_TOPICS, REPLICA_FETCH
from kraftlite.rpc import codec
from kraftlite.rpc.coding import Coding
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import TransportError

PATIENCE_S = 30
CONFIGS = tuple(c.TopicConfigValue(name=f"key.{n}", value="v", read_only=False, source=5, is_sensitive=False) for n in range(30))


def created(count: int) -> c.CreateTopicsResponse:
    results = (
        c.CreatableTopicResult(name=f"t{n}", error=ErrorCode.NONE, topic_id=UUID(int=n), configs=CONFIGS) for n in range(count)
    )
    return c.CreateTopicsResponse(topics=tuple(results))


def alter(count: int) -> c.AlterPartitionRequest:
    isr = (c.IsrMember(broker_id=NodeId(1), broker_epoch=5), c.IsrMember(broker_id=NodeId(2), broker_epoch=None))
    items = (
        c.AlterPartitionItem(topic_id=UUID(int=7), partition=n, leader_epoch=1, partition_epoch=2, new_isr=isr, recovering=False)
        for n in range(count)
    )
    return c.AlterPartitionRequest(broker_id=NodeId(1), broker_epoch=5, partitions=tuple(items))


def fetch(count: int, session_epoch: int = 0) -> p.ReplicaFetchRequest:
    return p.ReplicaFetchRequest(
        replica_id=NodeId(2),
        replica_epoch=1,
        cluster_id="c",
        session_id=1,
        session_epoch=session_epoch,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        partition_max_bytes=1,
        partitions=tuple(
            p.ReplicaFetchPartition(
                topic_id=UUID(int=7),
                partition=n,
                current_leader_epoch=1,
                fetch_offset=n,
                last_fetched_epoch=None,
                log_start_offset=0,
            )
            for n in range(count)
        ),
        forgotten=tuple(p.ForgottenPartition(topic_id=UUID(int=8), partition=n) for n in range(count // 2)),
    )


def fetched(count: int) -> p.ReplicaFetchResponse:
    diverging = p.EpochEndOffset(leader_epoch=1, end_offset=2)
    return p.ReplicaFetchResponse(
        error=ErrorCode.NONE,
        session_id=3,
        partitions=tuple(
            p.ReplicaFetchResult(
                topic_id=UUID(int=7), partition=n, error=ErrorCode.NONE, diverging_epoch=diverging if n % 2 else None
            )
            for n in range(count)
        ),
        payload=b"records" * (count > 0),
    )


class Node:
    def __init__(self) -> None:
        self.asked: list[int] = []

    async def create(self, request: c.CreateTopicsRequest) -> c.CreateTopicsResponse:
        return created(request.timeout_ms)

    async def alter(self, request: c.AlterPartitionRequest) -> c.AlterPartitionResponse:
        if request.broker_id == 9:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, "old")
        self.asked.append(len(request.partitions))
        return c.AlterPartitionResponse(partitions=())

    async def fetch(self, request: p.ReplicaFetchRequest) -> p.ReplicaFetchResponse:
        self.asked.append(request.session_epoch)
        return fetched(len(request.partitions))

    def handlers(self) -> dict[Any, Any]:
        return {CREATE_TOPICS: self.create, ALTER_PARTITION: self.alter, REPLICA_FETCH: self.fetch}


@asynccontextmanager
async def pair(watch: Watch) -> AsyncIterator[tuple[GrpcTransport, Endpoint, Node]]:
    node, server, client = Node(), GrpcTransport(coding=WatchedCoding(watch)), GrpcTransport(coding=WatchedCoding(watch))
    endpoint = await server.serve(Endpoint("127.0.0.1", 0), node.handlers())
    try:
        yield client, endpoint, node
    finally:
        await client.close()
        await server.close()


def create(count: int) -> c.CreateTopicsRequest:
    """The handler above answers with so many topics."""
    return c.CreateTopicsRequest(topics=(), timeout_ms=count, validate_only=False)


class Watch:
    """Which messages were read and written on the loop, and which elsewhere. `hold`: what is elsewhere waits for `release`."""

    def __init__(self) -> None:
        self.on_loop: list[str] = []
        self.elsewhere: list[str] = []
        self.hold = False
        self.held = threading.Event()
        self.release = threading.Event()
        self._loop_thread = threading.current_thread()

    def see(self, what: str, coder: codec.MessageCodec[Any]) -> None:
        here = threading.current_thread() is self._loop_thread
        (self.on_loop if here else self.elsewhere).append(f"{what} {coder.cls.__name__}")
        if not here and self.hold:
            self.held.set()
            assert self.release.wait(PATIENCE_S)

    async def until_held(self) -> None:
        assert await asyncio.to_thread(self.held.wait, PATIENCE_S), "nothing is coded off the loop"


class WatchedCodec(codec.MessageCodec[Any]):
    """Shows its watch each message before it is read or written."""

    def __init__(self, method: Any, cls: type[Any], watch: Watch) -> None:
        super().__init__(method, cls)
        self._watch = watch

    def encode(self, message: Any) -> bytes:
        self._watch.see("encode", self)
        return super().encode(message)

    def encode_long(self, message: Any) -> bytes:
        self._watch.see("encode", self)
        return super().encode_long(message)

    def split(self, message: Any) -> tuple[bytes, bytes]:
        self._watch.see("split", self)
        return super().split(message)

    def decode(self, data: bytes) -> Any:
        self._watch.see("decode", self)
        return super().decode(data)

    def join(self, head: bytes, payload: bytes | memoryview) -> Any:
        self._watch.see("join", self)
        return super().join(head, payload)


class WatchedCoding(Coding):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def codec(self, method: Any, cls: type[Any]) -> codec.MessageCodec[Any]:
        return WatchedCodec(method, cls, self._watch)


@pytest.fixture
async def watch() -> Watch:
    """Made on the loop whose thread it tells from others."""
    return Watch()


async def test_a_long_unary_answer_and_a_long_unary_request_leave_the_loop_free(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, node):
        assert await client.call(endpoint, CREATE_TOPICS, create(1_000), 60_000) == created(1_000)
        assert watch.elsewhere == ["encode CreateTopicsResponse", "decode CreateTopicsResponse"]
        assert watch.on_loop == ["encode CreateTopicsRequest", "decode CreateTopicsRequest"]
        watch.elsewhere.clear()
        await client.call(endpoint, ALTER_PARTITION, alter(10_000), 60_000)
        assert watch.elsewhere == ["encode AlterPartitionRequest", "decode AlterPartitionRequest"]
        assert node.asked == [10_000]


async def test_short_messages_stay_on_the_loop(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, _):
        await client.call(endpoint, CREATE_TOPICS, create(10), 60_000)
        assert await client.call(endpoint, REPLICA_FETCH, fetch(500), 60_000) == fetched(500)
        assert watch.elsewhere == [] and len(watch.on_loop) == 8


async def test_both_directions_of_a_stream_leave_the_loop_free(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, _):
        assert await client.call(endpoint, REPLICA_FETCH, fetch(10_000), 60_000) == fetched(10_000)
        assert watch.on_loop == []
        assert len(watch.elsewhere) == 4


async def test_others_are_answered_while_a_long_message_is_coded(watch: Watch) -> None:
    """On the loop the held message would let nothing else through, and this would end with the patience of `hold`."""
    async with pair(watch) as (client, endpoint, _):
        watch.hold = True
        long = asyncio.create_task(client.call(endpoint, CREATE_TOPICS, create(1_000), 60_000))
        await watch.until_held()
        assert await client.call(endpoint, CREATE_TOPICS, create(2), 60_000) == created(2)
        assert not long.done()
        watch.release.set()
        assert len((await long).topics) == 1_000


async def test_requests_of_a_stream_keep_their_order(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, node):
        watch.hold = True
        calls = [asyncio.create_task(client.call(endpoint, REPLICA_FETCH, fetch(10_000, 0), 60_000))]
        await watch.until_held()
        for number, count in ((1, 1), (2, 10_000), (3, 1)):
            calls.append(asyncio.create_task(client.call(endpoint, REPLICA_FETCH, fetch(count, number), 60_000)))
        await asyncio.sleep(0)
        watch.release.set()
        answers = await asyncio.gather(*calls)
        assert node.asked == [0, 1, 2, 3]
        assert [len(answer.partitions) for answer in answers] == [10_000, 1, 10_000, 1]


async def test_who_waits_for_the_thread_has_its_own_time(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, _):
        watch.hold = True
        with pytest.raises(TransportError, match="within 50 ms"):
            await client.call(endpoint, ALTER_PARTITION, alter(10_000), 50)
        with pytest.raises(TransportError, match="within 50 ms"):
            await client.call(endpoint, REPLICA_FETCH, fetch(10_000), 50)
        watch.release.set()
        watch.hold = False
        assert await client.call(endpoint, REPLICA_FETCH, fetch(10_000), 60_000) == fetched(10_000)


async def test_long_messages_that_are_refused(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, _):
        request = c.AlterPartitionRequest(broker_id=NodeId(9), broker_epoch=1, partitions=alter(10_000).partitions)
        with pytest.raises(ApiError, match="old"):
            await client.call(endpoint, ALTER_PARTITION, request, 60_000)
        with pytest.raises(ApiError, match="more than 100000 items"):
            await client.call(endpoint, ALTER_PARTITION, alter(40_000), 60_000)
        assert watch.on_loop == []


async def test_a_transport_that_closes_fails_what_waits(watch: Watch) -> None:
    async with pair(watch) as (client, endpoint, _):
        watch.hold = True
        calls = [
            asyncio.create_task(client.call(endpoint, method, request, 60_000))
            for method, request in (
                (ALTER_PARTITION, alter(10_000)),
                (ALTER_PARTITION, alter(10_000)),
                (REPLICA_FETCH, fetch(10_000)),
            )
        ]
        await watch.until_held()
        await client.close()
        watch.release.set()
        for it in calls:
            with pytest.raises(TransportError, match=r"closed|CANCELLED"):
                await it


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (CREATE_TOPICS, created(600)),
        (ALTER_PARTITION, alter(3_000)),
        (ALTER_PARTITION, alter(0)),
        (REPLICA_FETCH, fetch(1_000)),
        (REPLICA_FETCH, fetch(0)),
        (REPLICA_FETCH, fetched(1_000)),
    ],
)
def test_a_message_in_pieces_is_the_same_message(method: Any, message: Any) -> None:
    coder: codec.MessageCodec[Any] = codec.MessageCodec(method, type(message))
    assert coder.join(coder.encode_long(message), coder.payload(message)) == message
    assert len(coder.encode_long(message)) < 1.05 * len(coder.encode(message)) + 64


def test_how_long_a_message_is_counts_all_its_lists() -> None:
    nested: codec.MessageCodec[Any] = codec.MessageCodec(CREATE_TOPICS, c.CreateTopicsResponse)
    assert not nested.is_long(created(RPC_LONG_ITEMS // 31)) and nested.is_long(created(RPC_LONG_ITEMS // 31 + 1))
    flat: codec.MessageCodec[Any] = codec.MessageCodec(REPLICA_FETCH, p.ReplicaFetchResponse)
    assert not flat.is_long(fetched(RPC_LONG_ITEMS)) and flat.is_long(fetched(RPC_LONG_ITEMS + 1))
