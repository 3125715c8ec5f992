"""A port on which nodes speak HTTP/2 and clients speak Kafka's protocol: the first bytes tell which (CB-01; ADR 16)."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraftlite.wire.apis import KafkaApis
from kraftlite.wire.doors import ConnectionRules, Doors
from kraftlite.wire.listener import ListenerConfig
from kraftlite.wire.share import NodeShare
from kraftlite.wire.shared_port import FIRST_BYTES_MS, HTTP2_PREFACE, MAX_UNDECIDED, SharedPortListener
from kraftlite.wire.sockets import bound_socket
from tests.harness.wire_fakes import LISTENER, Harness, until

API_VERSIONS = struct.pack(">ihhihs", 11, 18, 0, 77, 1, b"c")


class Shared(Harness):
    """`carried`: the connections that were handed on as a node's, with what they had sent."""

    def __init__(
        self,
        *,
        loaded: bool = True,
        most_undecided: int = MAX_UNDECIDED,
        rules: ConnectionRules | None = None,
        **options: Any,
    ) -> None:
        super().__init__(listener=options, rules=rules)
        self.carried: list[tuple[asyncio.Transport, bytes]] = []
        self.may_load = asyncio.Event()
        if loaded:
            self.may_load.set()
        config = ListenerConfig(**{"name": LISTENER, "host": "127.0.0.1", "port": 0, **options})
        share = NodeShare(self.clock.now_ms)
        self.shared = SharedPortListener(
            self.context.ports,
            config,
            self.load,
            self.carry,
            share,
            bound_socket("127.0.0.1", 0),
            most_undecided=most_undecided,
            doors=Doors(self.clock, ConnectionRules() if rules is None else rules),
        )
        self.listener = self.shared

    async def load(self) -> KafkaApis:
        await self.may_load.wait()
        return self.apis

    def carry(self, transport: asyncio.Transport, first: bytes) -> None:
        transport.pause_reading()
        self.carried.append((transport, first))

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self.shared.endpoint is not None
        return await asyncio.open_connection("127.0.0.1", self.shared.endpoint.port)


def on(loop: str, scenario: Callable[[], Awaitable[None]]) -> None:
    if loop == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        running = uvloop.new_event_loop()
    else:
        running = asyncio.new_event_loop()
    try:
        running.run_until_complete(scenario())
    finally:
        running.close()


both = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


async def answered(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next answer."""
    (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 20))
    return int(struct.unpack_from(">i", await reader.readexactly(size))[0])


@both
def test_cb_01_one_port_takes_both_protocols_however_their_bytes_come(loop: str) -> None:
    async def scenario() -> None:
        rng = random.Random(3)
        async with Shared() as h:
            for cuts in range(12):
                for sent, http2 in ((HTTP2_PREFACE + b"\0\0\0\x04\0\0\0\0\0", True), (API_VERSIONS, False)):
                    reader, writer = await h.dial()
                    before, at = len(h.carried), 0
                    for end in [*sorted(rng.sample(range(1, len(sent)), min(cuts, len(sent) - 1))), len(sent)]:
                        writer.write(sent[at:end])
                        await asyncio.sleep(0.001)
                        at = end
                    if http2:
                        await until(lambda known=before: len(h.carried) > known)  # type: ignore[misc]
                        assert h.carried[-1][1][: len(HTTP2_PREFACE)] == HTTP2_PREFACE
                        h.carried[-1][0].abort()
                    else:
                        assert await answered(reader) == 77
                    writer.close()
            assert len(h.carried) == 12 and h.shared.accepted == 12

    on(loop, scenario)


@both
def test_cb_01_clients_wait_until_the_controller_can_answer(loop: str) -> None:
    async def scenario() -> None:
        async with Shared(loaded=False) as h:
            streams = [await h.dial() for _ in range(5)]
            for _, writer in streams:
                writer.write(API_VERSIONS + API_VERSIONS)
            _, node = await h.dial()
            node.write(HTTP2_PREFACE)
            await until(lambda: len(h.carried) == 1)  # nodes do not wait
            assert h.shared.connection_count == 0
            h.may_load.set()
            for reader, writer in streams:
                assert [await answered(reader), await answered(reader)] == [77, 77]
                writer.write(API_VERSIONS)
                assert await answered(reader) == 77
                writer.close()
            h.carried[0][0].abort()

    on(loop, scenario)


async def test_cb_01_a_request_longer_than_the_first_read_is_taken_whole() -> None:
    async with Shared(loaded=False) as h:
        reader, writer = await h.dial()
        for _ in range(200):
            writer.write(API_VERSIONS)
            await asyncio.sleep(0)
        h.may_load.set()
        for _ in range(200):
            assert await answered(reader) == 77
        writer.close()


async def test_cb_01_who_does_not_say_what_it_is_is_cut() -> None:
    async with Shared() as h:
        silent, hesitant = await h.dial(), await h.dial()
        hesitant[1].write(HTTP2_PREFACE[:20])
        await until(lambda: h.shared.undecided == 2)
        h.clock.advance(FIRST_BYTES_MS // 2)
        assert h.shared.undecided == 2
        h.clock.advance(2 * FIRST_BYTES_MS)
        for reader, _ in (silent, hesitant):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 20)
        assert h.shared.undecided == 0


async def test_cb_01_silent_connections_are_bounded() -> None:
    async with Shared(most_undecided=8) as h:
        streams = [await h.dial() for _ in range(20)]
        await until(lambda: h.shared.undecided == 8)
        streams[-1][1].write(API_VERSIONS)
        assert await answered(streams[-1][0]) == 77
        for _, writer in streams:
            writer.close()


async def test_cb_01_clients_never_take_the_place_of_nodes() -> None:
    async with Shared(rules=ConnectionRules(most=1)) as h:
        first, second = await h.dial(), await h.dial()
        for _, writer in (first, second):
            writer.write(API_VERSIONS)
        assert await answered(first[0]) == 77
        await until(lambda: h.shared.door.waiting == 1)
        nodes = [await h.dial() for _ in range(5)]
        for _, writer in nodes:
            writer.write(HTTP2_PREFACE)
        await until(lambda: len(h.carried) == 5)
        for transport, _ in h.carried:
            transport.abort()


async def test_cb_01_file_descriptors_run_out_for_clients_before_nodes() -> None:
    async with Shared() as h:
        h.shared._most_files = 0
        client, node = await h.dial(), await h.dial()
        client[1].write(API_VERSIONS)
        node[1].write(HTTP2_PREFACE)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(client[0].readexactly(1), 20)
        await until(lambda: len(h.carried) == 1)
        h.carried[0][0].abort()
        h.shared._most_files_of_nodes = 0
        late = await h.dial()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(late[0].readexactly(1), 20)


async def test_cb_01_no_first_bytes_end_the_listener() -> None:
    rng = random.Random(11)
    async with Shared() as h:
        for _ in range(300):
            _, writer = await h.dial()
            kind = rng.randrange(4)
            data = rng.randbytes(rng.randrange(1, 40))
            if kind == 1:
                data = HTTP2_PREFACE[: rng.randrange(24)] + data
            elif kind == 2:
                data = API_VERSIONS[: rng.randrange(len(API_VERSIONS))]
            writer.write(data)
            if rng.randrange(2):
                await asyncio.sleep(0)
            writer.close()
        for transport, _ in h.carried:
            transport.abort()
        reader, writer = await h.dial()
        writer.write(API_VERSIONS)
        assert await answered(reader) == 77
        writer.close()


async def test_cb_01_stopping_cuts_who_waits() -> None:
    h = Shared(loaded=False)
    await h.shared.start()
    undecided, waiting = await h.dial(), await h.dial()
    waiting[1].write(API_VERSIONS)
    await until(lambda: h.shared.undecided == 2)
    await h.shared.stop()
    for reader, _ in (undecided, waiting):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
    await h.tasks.cancel_all()
