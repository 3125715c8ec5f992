"""A gRPC server that others accept connections for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kraftlite.model.ids import Endpoint
from kraftlite.model.messages.methods import RAFT_FETCH, VOTE
from kraftlite.model.principal import Principal
from kraftlite.rpc import relay as relaying
from kraftlite.rpc.relay import Relay
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.ports import SharesPorts, TransportError
from tests.unit.rpc.test_transport import ANY, Node, fetch_request, until, vote_request


class _Door(asyncio.Protocol):
    """Hands every connection on with its first bytes."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._relay.carry(self._transport, data)


class _Certified:
    """A connection on which a certificate was shown."""

    def __init__(self, transport: asyncio.Transport, principal: Principal) -> None:
        self._transport = transport
        self._principal = principal

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._principal if name == "principal" else self._transport.get_extra_info(name, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@asynccontextmanager
async def carried() -> AsyncIterator[tuple[GrpcTransport, Endpoint, Node, GrpcTransport, Relay]]:
    node = Node()
    server, client = GrpcTransport(tracer=node), GrpcTransport()
    assert isinstance(server, SharesPorts)
    relay = await server.serve_behind(ANY, node.handlers())
    assert isinstance(relay, Relay)
    door = await asyncio.get_running_loop().create_server(lambda: _Door(relay), "127.0.0.1", 0)
    try:
        yield client, Endpoint("127.0.0.1", door.sockets[0].getsockname()[1]), node, server, relay
    finally:
        door.close()
        await client.close()
        await server.close()


async def test_calls_of_all_sizes_go_through() -> None:
    async with carried() as (client, endpoint, _node, _server, relay):
        answer = await client.call(endpoint, VOTE, vote_request(5), 10_000)
        assert answer.leader_epoch == 5
        for size in (0, 100, 70_000, 3 << 20):
            fetched = await client.call(endpoint, RAFT_FETCH, fetch_request(max_bytes=size), 20_000)
            assert fetched.payload == b"x" * size
        many = [client.call(endpoint, RAFT_FETCH, fetch_request(2 * n, max_bytes=200_000), 20_000) for n in range(20)]
        assert [it.high_watermark for it in await asyncio.gather(*many)] == [2 * n for n in range(20)]
        assert relay.carried == 1


async def test_a_peer_that_goes_away_takes_its_requests_with_it() -> None:
    async with carried() as (client, endpoint, node, _server, _relay):
        waiting = asyncio.ensure_future(client.call(endpoint, RAFT_FETCH, fetch_request(1), 20_000))
        await until(lambda: node.waiting == 1)
        await client.close()
        await until(lambda: node.cancelled == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_server_that_closes_lets_go_of_its_peers() -> None:
    async with carried() as (client, endpoint, node, server, relay):
        waiting = asyncio.ensure_future(client.call(endpoint, RAFT_FETCH, fetch_request(1), 20_000))
        await until(lambda: node.waiting == 1)
        await server.close()
        with pytest.raises(TransportError):
            await waiting
        await until(lambda: relay.carried == 0)
        with pytest.raises(TransportError):
            await client.call(endpoint, VOTE, vote_request(1), 3_000)
        assert relay.carried == 0


async def test_connections_beyond_the_most_are_cut() -> None:
    relay = Relay(most=2)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(relay.path)
    listening.listen()
    door = await asyncio.get_running_loop().create_server(lambda: _Door(relay), "127.0.0.1", 0)
    streams = []
    for _ in range(4):
        streams.append(await asyncio.open_connection(*door.sockets[0].getsockname()))
        streams[-1][1].write(b"first")
        await until(lambda: relay.carried == min(len(streams), 2))
    for reader, _ in streams[2:]:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
    streams[0][1].close()
    await until(lambda: relay.carried == 1)
    streams[1][1].close()
    await until(lambda: relay.carried == 0)
    door.close()
    relay.close()
    listening.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_bytes_arrive_whole_and_wait_for_a_slow_peer(loop: str) -> None:
    """No gRPC here, which serves one loop of a process alone: a server that says more than its peer takes."""

    async def scenario() -> None:
        relay = Relay()
        said = bytes(range(256)) * 256 * 1024
        heard = bytearray()
        speaking: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            speaking.append(writer)
            writer.write(said)
            while data := await reader.read(100_000):
                heard.extend(data)
            writer.close()

        listening = socket.socket(socket.AF_UNIX)
        listening.bind(relay.path)
        listening.listen()
        server = await asyncio.start_unix_server(serve, sock=listening)
        door = await asyncio.get_running_loop().create_server(lambda: _Door(relay), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*door.sockets[0].getsockname(), limit=10_000)
        question = b"q" * 5_000_000
        writer.write(question)
        await until(lambda: len(heard) == len(question))
        assert bytes(heard) == question
        assert speaking[0].transport.get_write_buffer_size() > len(said) // 2
        assert relay.unsent_bytes() < 2 * relaying.BUFFER_BYTES
        assert await asyncio.wait_for(reader.readexactly(len(said)), 30) == said
        writer.close()
        await until(lambda: relay.carried == 0)
        door.close()
        server.close()
        relay.close()

    running = asyncio.new_event_loop() if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop()
    try:
        running.run_until_complete(scenario())
    finally:
        running.close()


async def test_without_a_server_the_peer_is_cut() -> None:
    relay = Relay()
    door = await asyncio.get_running_loop().create_server(lambda: _Door(relay), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*door.sockets[0].getsockname())
    writer.write(b"anything")
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), 20)
    await until(lambda: relay.carried == 0)
    writer.close()
    door.close()
    relay.close()


async def test_a_peer_that_goes_before_it_is_dialled_leaves_nothing_behind() -> None:
    async with carried() as (_client, endpoint, _node, _server, relay):
        principal = Principal("User", "CN=two")
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, endpoint.host, endpoint.port)
        relay.carry(cast(asyncio.Transport, _Certified(transport, principal)), b"")
        (peer,) = relay._carried
        peer.connection_lost(None)
        await asyncio.sleep(0.05)
        assert not relay._callers and not relay.carried
        transport.abort()
