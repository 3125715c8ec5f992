"""How the page hears one node: by its stream, and without one; what comes late is not taken for new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from kraftlite.broker.introspection import MAX_WATCHES
from kraftlite.model.messages.introspection import GoneReplica, ReplicaStatesRequest, ReplicaStatesResponse, WatchRequest
from kraftlite.model.messages.methods import REPLICA_STATES, WATCH
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.ui.hear import Delay, Hearing, now_ms
from kraftlite.ui.words import ALIVE, MAX_REPLICAS, SILENT, NodeWords
from tests.harness.ui import replica
from tests.unit.rpc.test_watch import ANY, World


class Heard:
    """A node with a server that may be ended, and the words of it."""

    def __init__(self, transport: GrpcTransport) -> None:
        self.world = World()
        self.server: GrpcTransport | None = None
        self.endpoint = ANY
        self.words: NodeWords | None = NodeWords(id=4, roles=("broker",), process="running")
        self.news = list[bool]()
        self.lost = 0
        self.every_ms = 50
        self.hearing = Hearing(transport, lambda: self.words, lambda: self.every_ms)
        self.hearing.news, self.hearing.lost = self._news, self._lost

    def _news(self, urgent: bool) -> None:
        self.news.append(urgent)

    def _lost(self) -> None:
        self.lost += 1

    async def serve(self, *, old: bool = False) -> None:
        """`old`: as a version that has no Watch."""
        assert self.words is not None
        self.server = GrpcTransport(tracer=self.world)
        handlers = dict(self.world.introspection.handlers())
        if old:
            del handlers[WATCH]
            handlers[REPLICA_STATES] = self._states
        self.endpoint = await self.server.serve(self.endpoint, handlers)
        self.words.grpc = str(self.endpoint)

    async def _states(self, request: ReplicaStatesRequest) -> ReplicaStatesResponse:
        return ReplicaStatesResponse(replicas=(replica(leo=7),))

    async def end(self) -> None:
        assert self.server is not None
        await self.server.close()


@asynccontextmanager
async def hearing() -> AsyncIterator[Heard]:
    transport = GrpcTransport()
    found = Heard(transport)
    task = asyncio.create_task(found.hearing.run())
    try:
        yield found
    finally:
        found.words = None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await found.end()
        await transport.close()


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            if what():
                return
            await asyncio.sleep(0.01)


async def test_a_node_is_heard_by_its_stream_and_again_when_it_is_back() -> None:
    async with hearing() as it:
        words = it.words
        assert words is not None
        it.world.add(0, 1)
        await it.serve()
        await until(lambda: len(words.replicas) == 2)
        assert words.polled is None and words.status == it.world.status and words.life(now_ms()) == ALIVE
        it.world.held[TopicPartition("t", 1)].log.leo = 9
        await until(lambda: words.replicas["t", 1].leo == 9)
        assert it.news[0] and not it.news[-1], "an offset can wait"
        it.world.held[TopicPartition("t", 1)].leader_epoch = 3
        before = len(it.news)
        await until(lambda: words.replicas["t", 1].leader_epoch == 3)
        assert any(it.news[before:])
        it.news.clear()
        await it.end()
        await until(lambda: words.error)
        assert it.lost and any(it.news) and len(words.replicas) == 2, "its last words stay"
        await until(lambda: words.life(now_ms()) == SILENT)
        del it.world.held[TopicPartition("t", 0)]
        it.world.status = replace(it.world.status, raft_epoch=8)
        await it.serve()
        await until(lambda: words.status is not None and words.status.raft_epoch == 8 and set(words.replicas) == {("t", 1)})
        assert words.error is None and words.life(now_ms()) == ALIVE
        it.words = None
        await until(lambda: it.world.introspection.watches == 0)


async def test_a_node_of_an_earlier_version_is_asked_and_the_reason_is_told() -> None:
    async with hearing() as it:
        words = it.words
        assert words is not None
        await it.serve(old=True)
        await until(lambda: words.replicas)
        assert words.replicas["orders", 0].leo == 7 and words.status == it.world.status
        assert words.polled == "it is of a version without Introspection.Watch"
        await it.end()
        await until(lambda: words.error)
        words.process = "stopped"
        await until(lambda: words.polled is None)
        it.world.add(3)
        await it.serve()
        words.process = "running"
        await until(lambda: set(words.replicas) == {("t", 3)})
        assert words.polled is None, "the version that was started has one"


async def test_a_node_that_too_many_watch_is_asked_until_there_is_room() -> None:
    async with hearing() as it:
        it.hearing.full_s = 0.2
        words = it.words
        assert words is not None
        it.world.introspection.watches = MAX_WATCHES
        await it.serve()
        await until(lambda: words.polled)
        assert words.polled is not None and f"{MAX_WATCHES} watch this node already" in words.polled
        await until(lambda: words.status)
        it.world.introspection.watches = 0
        await until(lambda: words.polled is None)
        assert it.world.introspection.watches == 1


async def test_a_page_that_is_watched_hears_more_often() -> None:
    async with hearing() as it:
        it.every_ms = 300
        asked = list[int]()
        serve = it.world.introspection._watch

        async def watch(request: WatchRequest) -> Any:
            asked.append(request.interval_ms)
            return await serve(request)

        it.world.introspection._watch = watch  # type: ignore[method-assign]
        await it.serve()
        await until(lambda: asked == [300])
        it.every_ms = 50
        await until(lambda: asked == [300, 50])
        await until(lambda: it.world.introspection.watches == 1)


def test_what_is_read_late_is_as_old_as_it_is() -> None:
    delay = Delay()
    assert [delay.of(up, here) for up, here in ((0, 1_000), (100, 1_103), (200, 1_200), (300, 4_300), (3_300, 4_301))] == [
        0,
        3,
        0,
        3_000,
        1,
    ]


def test_the_last_words_stay_until_a_new_stream_has_told_all() -> None:
    words = NodeWords(id=4, roles=("broker",))
    words.hear_replicas([replica(), replica(partition=1)], 100)
    words.begin()
    words.hear_news([replica(leo=500)], (), None, 1)
    assert len(words.replicas) == 2 and words.replicas["orders", 0].leo == 100 and words.replicas_ms == 100
    words.hear_news([replica(partition=2)], (), 900, 2)
    assert set(words.replicas) == {("orders", 0), ("orders", 2)} and words.replicas["orders", 0].leo == 500
    assert words.replicas_ms == 900, "as old as the oldest look"
    version = words.version
    words.hear_news([], (), 1_000, 2)
    assert words.version == version and words.replicas_ms == 1_000
    words.hear_news([], [GoneReplica(topic="orders", partition=2), GoneReplica(topic="never", partition=0)], 1_100, 1)
    assert set(words.replicas) == {("orders", 0)} and words.version == version + 1


def test_the_replicas_of_a_node_are_bounded_and_counted() -> None:
    words = NodeWords(id=4, roles=("broker",))
    words.begin()
    words.hear_news([replica(partition=it) for it in range(MAX_REPLICAS + 3)], (), 1, MAX_REPLICAS + 3)
    assert (len(words.replicas), words.cut) == (MAX_REPLICAS, 3)
    words.hear_news([replica(partition=5, leo=9)], (), 2, MAX_REPLICAS + 3)
    assert words.replicas["orders", 5].leo == 9 and words.cut == 3
