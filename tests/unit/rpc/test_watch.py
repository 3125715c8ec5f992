"""`Introspection.Watch`: what changed at a node, over real gRPC, for readers of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlite.broker.introspection import MAX_WATCHES, Introspection
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.introspection import NodeStatusRequest, ReplicaState, WatchRequest, WatchResponse
from kraftlite.model.messages.methods import NODE_STATUS, WATCH
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.follower_progress import FollowerProgress
from kraftlite.replication.isr import IsrState
from kraftlite.replication.states import AT_ONCE, FIRST_AT_ONCE, Looks
from kraftlite.rpc import codec
from kraftlite.rpc.options import CHANNEL_OPTIONS
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import NotServed, TransportError
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.rpc import RpcRequestFailed
from tests.harness.ui import status
from tests.unit.rpc.test_transport import limits, until

ANY = Endpoint("127.0.0.1", 0)
ONE, FOUR = UUID(int=1), (NodeId(4),)
FAST = WatchRequest(interval_ms=50)


class LoopClock:
    """The times of the running loop."""

    def now_ms(self) -> int:
        return round(1_000 * asyncio.get_running_loop().time())

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1_000)


@dataclass
class FakeLog:
    leo: int = 0
    hw: int = 0
    log_start_offset: int = 0
    size_bytes: int = 0


@dataclass(eq=False)
class Held:
    """A replica, as far as introspection looks at it."""

    tp: TopicPartition
    log: FakeLog | None = field(default_factory=FakeLog)
    topic_id: UUID = ONE
    leader: object = None
    leader_epoch: int = 0
    partition_epoch: int = 0
    committed_isr: tuple[NodeId, ...] = FOUR
    leader_id: int | None = 4
    replicas: tuple[NodeId, ...] = FOUR
    min_isr: int = 1


@dataclass
class Leads:
    """What a leader knows, as far as introspection looks at it."""

    followers: dict[int, Any] = field(default_factory=dict)
    isr: IsrState = field(default_factory=lambda: IsrState(FOUR, recovering=False))
    epoch_start_offset: int = 0


class World:
    """A node that is watched."""

    def __init__(self) -> None:
        self.held: dict[TopicPartition, Any] = {}
        self.status = status(4)
        self.events: list[TraceEvent] = []
        self.made = 0
        """Looks at the status."""
        self.introspection = Introspection(self._status, lambda topics: (), self.looks, LoopClock())  # type: ignore[arg-type]

    def emit(self, event: TraceEvent) -> None:
        self.events.append(event)

    def _status(self) -> Any:
        self.made += 1
        return self.status

    def looks(self) -> Looks:
        return Looks(self.held.values, self.held.get)

    def add(self, *names: int) -> None:
        for number in names:
            tp = TopicPartition("t", number)
            self.held[tp] = Held(tp)


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[World, GrpcTransport, Endpoint, GrpcTransport]]:
    world = World()
    server, client = GrpcTransport(tracer=world), GrpcTransport()
    endpoint = await server.serve(ANY, world.introspection.handlers())
    try:
        yield world, client, endpoint, server
    finally:
        await client.close()
        await server.close()
        assert [it for it in world.events if isinstance(it, RpcRequestFailed)] == []


class Known:
    """What a reader knows."""

    def __init__(self) -> None:
        self.replicas: dict[tuple[str, int], ReplicaState] = {}
        self.status: Any = None

    def take(self, answer: WatchResponse) -> None:
        self.status = answer.status or self.status
        self.replicas |= {(it.topic, it.partition): it for it in answer.changed}
        for gone in answer.gone:
            del self.replicas[gone.topic, gone.partition]

    def leo(self, number: int) -> int:
        return self.replicas["t", number].leo


async def test_what_changes_is_told_and_what_does_not_change_is_not() -> None:
    async with watched() as (world, client, endpoint, _):
        world.add(0, 1)
        known = Known()
        async with asyncio.timeout(20), aclosing(client.watch(endpoint, WATCH, FAST, 5_000)) as answers:
            first = await anext(answers)
            known.take(first)
            assert (known.status, len(first.changed), first.looked_ms, first.replica_count) == (world.status, 2, 0, 2)
            quiet = await anext(answers)
            assert (quiet.status, quiet.changed, quiet.gone) == (None, (), ()), "it says at least that it is there"
            assert quiet.looked_ms > 0 and quiet.uptime_ms >= quiet.looked_ms
            world.held[TopicPartition("t", 1)].log.leo = 7
            while (answer := await anext(answers)) and not answer.changed:
                pass
            assert [(it.partition, it.leo) for it in answer.changed] == [(1, 7)] and answer.status is None
            world.status = replace(world.status, raft_epoch=9)
            del world.held[TopicPartition("t", 0)]
            while known.status.raft_epoch != 9 or ("t", 0) in known.replicas:
                known.take(await anext(answers))
            assert set(known.replicas) == {("t", 1)}
        await until(lambda: world.introspection.watches == 0, 30)


async def test_it_is_refused_what_it_does_not_serve() -> None:
    async with watched() as (world, client, endpoint, _):
        for interval_ms in (0, 49, 60_001):
            with pytest.raises(ApiError) as refused:
                await anext(client.watch(endpoint, WATCH, WatchRequest(interval_ms=interval_ms), 5_000))
            assert refused.value.code is ErrorCode.INVALID_REQUEST and "allowed is 50 to 60000" in str(refused.value)
        open_streams = [client.watch(endpoint, WATCH, FAST, 5_000) for _ in range(MAX_WATCHES)]
        for stream in open_streams:
            await anext(stream)
        with pytest.raises(ApiError) as full:
            await anext(client.watch(endpoint, WATCH, FAST, 5_000))
        assert full.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await open_streams[0].aclose()
        await until(lambda: world.introspection.watches < MAX_WATCHES, 30)
        late = client.watch(endpoint, WATCH, FAST, 5_000)
        assert (await anext(late)).status == world.status, "who leaves makes room"
        for stream in [*open_streams[1:], late]:
            await stream.aclose()
        await until(lambda: world.introspection.watches == 0, 30)


async def test_a_node_of_an_earlier_version_says_that_it_has_none() -> None:
    async with watched() as (world, client, _, _):
        old = GrpcTransport()
        handlers = dict(world.introspection.handlers())
        del handlers[WATCH]
        endpoint = await old.serve(ANY, handlers)
        with pytest.raises(NotServed, match="UNIMPLEMENTED"):
            await anext(client.watch(endpoint, WATCH, FAST, 5_000))
        assert (await client.call(endpoint, NODE_STATUS, NodeStatusRequest(), 5_000)).node_id == 4
        await old.close()


async def test_a_node_that_ends_or_says_nothing_ends_the_stream() -> None:
    async with watched() as (_, client, endpoint, _):
        with pytest.raises(TransportError, match="no answer within 200 ms"):
            stream = client.watch(endpoint, WATCH, WatchRequest(interval_ms=60_000), 200)
            async with asyncio.timeout(20):
                await anext(stream)
                await anext(stream)
    world = World()
    server, client = GrpcTransport(tracer=world), GrpcTransport()
    endpoint = await server.serve(ANY, world.introspection.handlers())
    stream = client.watch(endpoint, WATCH, FAST, 20_000)
    await anext(stream)
    await server.close()
    with pytest.raises(TransportError, match="Introspection/Watch to"):
        async with asyncio.timeout(10):
            while True:
                await anext(stream)
    await until(lambda: world.introspection.watches == 0, 30)
    await client.close()


async def test_who_does_not_read_is_left_behind_and_costs_nobody_else() -> None:
    """gRPC takes some answers for a reader that stands still; then no more is made for it, and it loses its place."""
    import grpc
    from grpc import aio

    with limits(RPC_STALLED_MS=1_000):
        async with watched() as (world, client, endpoint, server):
            world.add(*range(400))
            turn = 0

            def change() -> None:
                nonlocal turn
                turn += 1
                for it in world.held.values():
                    it.log.leo = turn
                    it.committed_isr = tuple(NodeId(turn * 1_000 + n) for n in range(60))

            channel = aio.insecure_channel(str(endpoint), options=CHANNEL_OPTIONS)
            deaf: Any = channel.unary_stream(codec.path(WATCH))(codec.MessageCodec(WATCH, WatchRequest).encode(FAST))
            await until(lambda: world.introspection.watches == 1, 30)
            known = Known()
            async with aclosing(client.watch(endpoint, WATCH, FAST, 10_000)) as answers:
                known.take(await anext(answers))
                assert world.introspection.watches == 2
                async with asyncio.timeout(60):
                    while world.introspection.watches == 2:
                        change()
                        known.take(await anext(answers))
                while known.leo(3) != turn:
                    known.take(await anext(answers))
            (serving,) = server._servers
            assert 0 < serving.unread_bytes < 1 << 20, "one answer waits for it"
            with pytest.raises(aio.AioRpcError) as lost:
                while await deaf.read() is not aio.EOF:  # type: ignore[attr-defined]
                    pass
            assert lost.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "it is told so when it reads again"
            assert serving.unread_bytes == 0
            await channel.close()
            assert (await client.call(endpoint, NODE_STATUS, NodeStatusRequest(), 5_000)).node_id == 4


def test_many_replicas_are_looked_at_in_parts() -> None:
    world = World()
    world.add(*range(FIRST_AT_ONCE + 10))
    looks, known = world.looks(), Known()
    sizes = []
    while looks.whole_ms < 0:
        changed, _ = looks.look(100 * len(sizes), 100)
        sizes.append(len(changed))
    assert sizes == [FIRST_AT_ONCE, 10] and looks.whole_ms == 0
    assert looks.count == FIRST_AT_ONCE + 10
    for it in world.held.values():
        it.log.leo = 5
    parts = []
    while looks.whole_ms == 0:
        changed, gone = looks.look(200 + len(parts), 100)
        assert gone == []
        parts.append(len(changed))
        known.replicas |= {(it.topic, it.partition): it for it in changed}
    assert max(parts) == AT_ONCE and sum(parts) == len(known.replicas) == FIRST_AT_ONCE + 10
    assert looks.whole_ms == 200, "each was looked at after that"


@given(st.lists(st.tuples(st.sampled_from(["add", "drop", "leo", "lead", "offline", "again", "look"]), st.integers(0, 5))))
def test_whoever_takes_all_news_knows_what_is(steps: list[tuple[str, int]]) -> None:
    """In whatever order replicas come, go, change, fail, and are made anew under the same name."""
    world, told = World(), dict[tuple[str, int], ReplicaState]()
    looks = world.looks()

    def look(now_ms: int) -> None:
        changed, gone = looks.look(now_ms, 50)
        told.update({(it.topic, it.partition): it for it in changed})
        for tp in gone:
            del told[tp.topic, tp.partition]

    for now_ms, (what, number) in enumerate(steps):
        tp = TopicPartition("t", number)
        it = world.held.get(tp)
        if what == "look":
            look(now_ms)
        elif what in ("add", "again"):
            if it is None or what == "again":
                world.held[tp] = Held(tp, topic_id=UUID(int=now_ms))
        elif it is not None:
            if what == "drop":
                del world.held[tp]
            elif what == "lead":
                it.leader, it.leader_epoch = Leads(), it.leader_epoch + 1
            elif what == "offline":
                it.log = None
            elif it.log is not None:
                it.log.leo += 1
    look(len(steps))
    look(len(steps) + 1)  # one look may have ended a round, the next one is a whole one
    online = {(tp.topic, tp.partition): it for tp, it in world.held.items() if it.log is not None}
    assert set(told) == set(online)
    for key, it in online.items():
        said = told[key]
        assert (said.leo, said.topic_id, said.leader_epoch, said.is_leader) == (
            it.log.leo,
            it.topic_id,
            it.leader_epoch,
            it.leader is not None,
        )


async def test_what_a_leader_knows_of_its_followers_is_told_when_it_changes() -> None:
    async with watched() as (world, client, endpoint, _):
        world.add(0)
        known = FollowerProgress(NodeId(5), None)
        isr = IsrState((NodeId(4), NodeId(5)), recovering=False)
        world.held[TopicPartition("t", 0)].leader = Leads({5: known}, isr)
        async with aclosing(client.watch(endpoint, WATCH, FAST, 5_000)) as answers:
            first = (await anext(answers)).changed[0]
            assert (first.followers, first.follower_leos, first.maximal_isr) == ((5,), (-1,), (4, 5))
            assert first.epoch_start_offset == 0, "0 is said, and is not the same as nothing"
            known.fetched(7, 0, 1, 9, 1_000)
            async for answer in answers:
                if answer.changed:
                    assert answer.changed[0].follower_leos == (7,)
                    break
            world.held[TopicPartition("t", 0)].leader = None
            async for answer in answers:
                if answer.changed:
                    assert (answer.changed[0].followers, answer.changed[0].maximal_isr) == ((), ())
                    assert answer.changed[0].epoch_start_offset is None
                    break
