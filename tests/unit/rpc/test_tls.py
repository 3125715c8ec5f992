"""Calls between nodes through TLS: who calls is known to handlers, and nobody gets around the certificate (SE-06)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc import aio

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.messages.introspection import NodeStatusRequest, NodeStatusResponse
from kraftlite.model.messages.methods import NODE_STATUS
from kraftlite.model.principal import Principal
from kraftlite.rpc.codec import path as path_of
from kraftlite.rpc.dialler import TlsDialler
from kraftlite.rpc.relay import Relay
from kraftlite.rpc.transport import GrpcTransport
from kraftlite.runtime.caller import caller
from kraftlite.runtime.ports import TransportError
from kraftlite.runtime.trace import ListTracer
from kraftlite.runtime.trace.tls import TlsPeerRefused
from kraftlite.tls.contexts import HTTP2
from kraftlite.tls.handshakes import Handshakes
from kraftlite.tls.settings import read_settings
from kraftlite.tls.source import TlsSource
from kraftlite.tls.transport import TlsTransport
from kraftlite.wire.shared_port import FirstBytes
from tests.harness.certificates import Authority, Stores

CA, STRANGER = Authority(), Authority("stranger")


def source(folder: Path, name: str, authority: Authority = CA, *, auth: str = "required", **more: str) -> TlsSource:
    given = {**Stores(folder / name).write(authority.issue(name), CA).as_kafka(), "ssl.client.auth": auth, **more}
    problems: list[str] = []
    found = TlsSource.of(read_settings(given.get, lambda key: key, problems), alpn=(HTTP2,))
    assert not problems
    return found


@dataclass
class Door:
    """A port with TLS in front of a node's gRPC, which answers with the principal that its handler finds."""

    endpoint: Endpoint
    relay: Relay
    refused: list[str]


async def who(_: NodeStatusRequest) -> NodeStatusResponse:
    return NodeStatusResponse(
        node_id=NodeId(1),
        cluster_id=str(caller()),
        roles=(),
        broker_state=None,
        broker_epoch=None,
        raft_state="",
        raft_epoch=0,
        leader_id=None,
        raft_high_watermark=None,
        raft_leo=0,
        metadata_offset=0,
        active_controller=False,
    )


@contextlib.asynccontextmanager
async def door(tls: TlsSource) -> AsyncIterator[Door]:
    transport, refused = GrpcTransport(), list[str]()
    relay = await transport.serve_behind(Endpoint("127.0.0.1", 0), {NODE_STATUS: who}, authenticates=True)

    class Owner:
        def welcome(self, connection: FirstBytes) -> None: ...

        def forget(self, connection: FirstBytes) -> None: ...

        def now_ms(self) -> int:
            return 0

        def decided(self, connection: FirstBytes, *, http2: bool) -> None:
            assert http2
            relay.carry(connection.transport, connection.taken())

    def secured(peer: TlsTransport) -> None:
        peer.set_extra_info("principal", tls.principal_of(peer))
        first = FirstBytes(Owner())  # type: ignore[arg-type]
        peer.set_protocol(first)
        first.connection_made(peer)

    shakes = Handshakes(lambda: 0, tls.server_context, secured, lambda _, reason: refused.append(reason))
    server = await asyncio.get_running_loop().create_server(shakes.transport, "127.0.0.1", 0)
    try:
        yield Door(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), relay, refused)
    finally:
        server.close()
        await transport.close()


@contextlib.asynccontextmanager
async def node(tls: TlsSource | None) -> AsyncIterator[tuple[GrpcTransport, ListTracer]]:
    tracer = ListTracer()
    transport = GrpcTransport(tracer=tracer)
    transport.protect(lambda service: tls)
    try:
        yield transport, tracer
    finally:
        await transport.close()


async def test_se_06_a_handler_knows_who_calls(tmp_path: Path) -> None:
    async with door(source(tmp_path, "one")) as there, node(source(tmp_path, "two")) as (two, _):
        answers = [await two.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 10_000) for _ in range(3)]
        assert {answer.cluster_id for answer in answers} == {str(Principal("User", "CN=two"))}
        async with node(source(tmp_path, "three")) as (three, _):
            found = await three.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 10_000)
            assert found.cluster_id == "User:CN=three"
    assert caller() is None


async def test_se_06_who_cannot_be_trusted_is_told_once_on_both_sides(tmp_path: Path) -> None:
    async with door(source(tmp_path, "one")) as there, node(source(tmp_path, "mallory", STRANGER)) as (mallory, tracer):
        for _ in range(3):
            with pytest.raises(TransportError):
                await mallory.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 5_000)
        told = [event.reason for event in tracer.events if isinstance(event, TlsPeerRefused)]
        assert told == ["the peer does not trust the authority of our certificate"]
        assert there.refused and "its authority is not trusted" in there.refused[0]


async def test_se_06_a_call_that_fails_says_why(tmp_path: Path) -> None:
    elsewhere = Stores(tmp_path / "elsewhere").write(CA.issue("x", ["elsewhere.example"]), CA)
    given = {**elsewhere.as_kafka(), "ssl.client.auth": "required"}
    tls = TlsSource.of(read_settings(given.get, lambda key: key, []), alpn=(HTTP2,))
    async with door(tls) as there:
        async with node(source(tmp_path, "two")) as (two, _):
            with pytest.raises(TransportError, match="IP address mismatch"):
                await two.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 5_000)
        unchecked = source(tmp_path, "three", **{"ssl.endpoint.identification.algorithm": ""})
        async with node(unchecked) as (three, _):
            assert (await three.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 10_000)).cluster_id == "User:CN=three"


async def test_se_06_a_node_in_plain_text_and_one_that_is_not_there_fail_at_once(tmp_path: Path) -> None:
    async with door(source(tmp_path, "one")) as there, node(None) as (plain, _):
        with pytest.raises(TransportError):
            await plain.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 5_000)
        assert there.refused and there.refused[0].startswith("it does not speak TLS")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with node(source(tmp_path, "two")) as (two, tracer):
        with pytest.raises(TransportError, match="refused"):
            await two.call(Endpoint("127.0.0.1", port), NODE_STATUS, NodeStatusRequest(), 5_000)
        assert not [event for event in tracer.events if isinstance(event, TlsPeerRefused)], "nobody refused anything"


async def test_se_06_the_first_calls_to_a_peer_may_come_together(tmp_path: Path) -> None:
    """As those of several fetchers of one leader do; and one that is given up in the middle costs no other."""
    async with door(source(tmp_path, "one")) as there, node(source(tmp_path, "two")) as (two, _):

        async def ask() -> str:
            return (await two.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 10_000)).cluster_id

        calls = [asyncio.ensure_future(ask()) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == ["User:CN=two"] * 2
        assert await ask() == "User:CN=two"


async def test_se_06_a_node_without_sockets_fails_the_call_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls knows TransportError alone: anything else would stop the node."""
    async with door(source(tmp_path, "one")) as there, node(source(tmp_path, "two")) as (two, _):

        def none_left(*_: object) -> socket.socket:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as patched:
            patched.setattr("kraftlite.rpc.dialler.socket.socket", none_left)
            with pytest.raises(TransportError, match="Too many open files"):
                await two.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 5_000)
        assert (await two.call(there.endpoint, NODE_STATUS, NodeStatusRequest(), 10_000)).cluster_id == "User:CN=two"


async def test_se_06_the_way_behind_the_listener_is_for_carried_connections_alone(tmp_path: Path) -> None:
    """Somebody on this machine who knows the address of the relay has shown no certificate."""
    async with door(source(tmp_path, "one")) as there, aio.insecure_channel(there.relay.listen) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary(path_of(NODE_STATUS))(b"", timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_se_06_the_door_to_the_outside_is_for_this_process_alone(tmp_path: Path) -> None:
    """Another process that dials it would speak with the certificate of this node."""
    async with door(source(tmp_path, "one")) as there:
        dialler = TlsDialler(there.endpoint, source(tmp_path, "two"), ListTracer())
        await dialler.open()
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({dialler.path!r}); print(s.recv(1))"
        other = await asyncio.create_subprocess_exec("python", "-c", code, stdout=-1, stderr=-1)
        out, err = await asyncio.wait_for(other.communicate(), 30)
        assert out == b"b''\n" or b"ConnectionResetError" in err
        assert dialler.carried == 0
        dialler.close()
