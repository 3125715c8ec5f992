"""A listener that speaks TLS, on real sockets: who gets in, who does not and why, and what strangers cost (SE-01 to SE-05)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraftlite.model.principal import ANONYMOUS, Principal
from kraftlite.runtime.trace.tls import TlsHandshakeFailed
from kraftlite.tls.contexts import HTTP2
from kraftlite.tls.handshakes import HANDSHAKE_MS, Handshakes
from kraftlite.tls.settings import read_settings
from kraftlite.tls.source import TlsSource
from kraftlite.tls.transport import MAX_HANDSHAKE_BYTES
from kraftlite.wire.frames import Connection
from kraftlite.wire.listener import TOLD_PER_SECOND, KafkaListener, ListenerConfig
from kraftlite.wire.shared_port import HTTP2_PREFACE, SharedPortListener
from kraftlite.wire.sockets import bound_socket
from tests.harness.certificates import Authority, Certificate, Stores
from tests.harness.wire_fakes import LISTENER, Harness, until

API_VERSIONS = struct.pack(">ihhihs", 11, 18, 0, 77, 1, b"c")
CA, STRANGER = Authority(), Authority("stranger")
NODE, ALICE, OLD, FOREIGN = CA.issue("node"), CA.issue("alice"), CA.issue("late", expired=True), STRANGER.issue("mallory")
both = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def on(loop: str, scenario: Callable[[], Awaitable[None]]) -> None:
    running = pytest.importorskip("uvloop").new_event_loop() if loop == "uvloop" else asyncio.new_event_loop()
    try:
        running.run_until_complete(scenario())
    finally:
        running.close()


def source(folder: Path, crl: str = "", **values: str) -> TlsSource:
    stores = Stores(folder / "node").write(NODE, CA)
    given = {**stores.as_kafka(), **{f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}}
    given["kraftlite.ssl.crl.location"] = crl
    problems: list[str] = []
    settings = read_settings(given.get, lambda key: key, problems)
    assert not problems
    return TlsSource.of(settings)


class Secure(Harness):
    """A listener with TLS, and clients with certificates or without."""

    def __init__(self, folder: Path, *, options: Mapping[str, Any] | None = None, **values: str) -> None:
        super().__init__()
        self.folder = folder
        self.source = source(folder, **values)
        config = ListenerConfig(name=LISTENER, host="127.0.0.1", port=0, **(options or {}))
        self.listener = KafkaListener(self.context.ports, config, self.apis, tls=self.source)

    @property
    def port(self) -> int:
        assert self.listener.endpoint is not None
        return self.listener.endpoint.port

    @property
    def handshakes(self) -> Handshakes:
        found = self.listener.handshakes
        assert found is not None
        return found

    @property
    def connections(self) -> list[Connection]:
        return list(self.listener._connections)

    def failures(self) -> list[str]:
        return [event.reason for event in self.tracer.events if isinstance(event, TlsHandshakeFailed)]

    def context_of(self, certificate: Certificate | None, *trusted: Authority, **more: Any) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata="".join(it.pem for it in trusted or (CA,)))
        if certificate is not None:
            path = self.folder / "client.pem"
            path.write_text(certificate.both())
            context.load_cert_chain(path)
        for name, value in more.items():
            setattr(context, name, value)
        return context

    async def dial(
        self, certificate: Certificate | None = None, *trusted: Authority, host: str = "localhost", **more: Any
    ) -> Any:
        context = self.context_of(certificate, *trusted, **more)
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=host)

    async def plain(self) -> Any:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def served(self, certificate: Certificate | None = None, **more: Any) -> Principal:
        """Ask once; the principal that the connection has."""
        reader, writer = await self.dial(certificate, **more)
        writer.write(API_VERSIONS)
        assert await answered(reader) == 77
        (found,) = [it for it in self.connections if it.peer_port == writer.get_extra_info("sockname")[1]]
        writer.close()
        return found.principal

    async def refused(
        self, certificate: Certificate | None = None, *trusted: Authority, host: str = "localhost", **more: Any
    ) -> str:
        """What the listener tells of a client that gets no answer. The client waits on a thread: those of asyncio go without
        saying why."""
        before, context = len(self.failures()), self.context_of(certificate, *trusted, **more)

        def ask() -> bytes:
            plain = socket.create_connection(("127.0.0.1", self.port), 20)
            with context.wrap_socket(plain, server_hostname=host) as tls:
                tls.sendall(API_VERSIONS)
                return tls.recv(4)

        with contextlib.suppress(OSError):  # refused before, or told by an alert
            assert await asyncio.to_thread(ask) == b""
        await until(lambda: len(self.failures()) > before)
        assert len(self.failures()) == before + 1, "one event for one connection"
        return self.failures()[-1]


async def answered(reader: asyncio.StreamReader) -> int:
    """The correlation id of the next answer."""
    (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 20))
    return int(struct.unpack_from(">i", await reader.readexactly(size))[0])


@both
def test_se_03_without_client_auth_everybody_is_anonymous(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path) as h:
            assert await h.served() == ANONYMOUS and await h.served(ALICE) == ANONYMOUS
            assert not h.failures() and h.handshakes.done == 2

    on(loop, scenario)


@both
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_se_03_required_lets_in_who_is_known(loop: str, tmp_path: Path, version: ssl.TLSVersion) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path, client_auth="required") as h:
            only = {"minimum_version": version, "maximum_version": version}
            assert await h.served(ALICE, **only) == Principal("User", "CN=alice")
            assert "ssl.client.auth=required" in await h.refused(None, **only)
            assert "certificate has expired" in await h.refused(OLD, **only)
            assert "unable to get local issuer certificate" in await h.refused(FOREIGN, **only)
            assert await h.served(ALICE, **only) == Principal("User", "CN=alice")

    on(loop, scenario)


@both
def test_se_03_requested_lets_in_who_shows_nothing_and_nobody_who_shows_something_bad(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path, client_auth="requested", principal_mapping_rules="RULE:^CN=(.*)$/$1/U") as h:
            assert await h.served() == ANONYMOUS
            assert await h.served(ALICE) == Principal("User", "ALICE")
            assert "expired" in await h.refused(OLD)

    on(loop, scenario)


@both
def test_se_04_whose_name_no_rule_fits_is_refused(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path, client_auth="required", principal_mapping_rules="RULE:^CN=node$/node/") as h:
            assert "no rule of ssl.principal.mapping.rules fits the name of its certificate, CN=alice" in await h.refused(ALICE)
            assert not h.connections and h.listener.accepted == 0

    on(loop, scenario)


@both
def test_se_02_a_client_that_does_not_trust_the_node_says_so(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path) as h:
            assert "does not trust the authority" in await h.refused(None, STRANGER)
            assert await h.refused(None, host="elsewhere.example") == "the peer does not accept our certificate"
            h.source.replace(source(tmp_path, enabled_protocols="TLSv1.3").loaded)
            assert "no version of TLS in common" in await h.refused(None, maximum_version=ssl.TLSVersion.TLSv1_2)

    on(loop, scenario)


@both
def test_se_03_plain_text_at_a_port_of_tls_is_closed_at_once(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path) as h:
            for sent in (API_VERSIONS, b"GET / HTTP/1.1\r\n\r\n", HTTP2_PREFACE, b"\0"):
                reader, writer = await h.plain()
                writer.write(sent)
                assert await asyncio.wait_for(reader.read(), 10) == b""
                writer.close()
            assert len(h.failures()) == 4
            assert h.failures()[0] == "it does not speak TLS: what it sends begins with 0x0000000b"
            assert await h.served() == ANONYMOUS

    on(loop, scenario)


@both
def test_se_03_tls_at_a_plain_port_is_closed_at_once(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Harness() as h:
            assert h.listener.endpoint is not None
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with pytest.raises(OSError):
                async with asyncio.timeout(10):
                    await asyncio.open_connection("127.0.0.1", h.listener.endpoint.port, ssl=context, server_hostname="localhost")
            await until(lambda: h.listener.connection_count == 0)

    on(loop, scenario)


@both
def test_se_03_half_handshakes_are_bounded_and_hold_up_nobody(loop: str, tmp_path: Path) -> None:
    """Some say nothing, some begin and stop, some go on for ever; a good client is served among them, and time cuts them off."""

    async def scenario() -> None:
        async with Secure(tmp_path) as h:
            h.handshakes._most = 300
            hello = client_hello()
            halves = [await h.plain() for _ in range(500)]
            for number, (_, writer) in enumerate(halves):
                if number % 3:
                    writer.write(hello if number % 3 == 1 else hello[: len(hello) // 2])
            await until(lambda: len(h.handshakes) == 300)
            assert h.handshakes.refused == 200
            assert h.failures() == ["more than 300 handshakes are under way"] * TOLD_PER_SECOND, "the rest is a number"
            reader, writer = await h.dial()
            for _ in range(20):
                writer.write(API_VERSIONS)
                assert await answered(reader) == 77
            assert len(h.handshakes) == 299 and h.listener.connection_count == 1
            h.clock.advance(HANDSHAKE_MS + 1)
            h.handshakes.sweep()
            assert len(h.handshakes) == 0
            assert h.handshakes.refused == 500, "one more made room for the good client"
            late = [event for event in h.tracer.events if isinstance(event, TlsHandshakeFailed)][TOLD_PER_SECOND]
            assert (
                late.reason == f"the handshake was not done within {HANDSHAKE_MS} ms" and late.left_out == 201 - TOLD_PER_SECOND
            )
            writer.write(API_VERSIONS)
            assert await answered(reader) == 77, "who is known is not cut"
            for _, other in [*halves, (reader, writer)]:
                other.close()

    on(loop, scenario)


@both
def test_se_03_a_handshake_without_end_is_cut(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path) as h:
            reader, writer = await h.plain()
            record = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(0x4000 - 4)  # a hello of 16 MB, in records
            with pytest.raises(OSError):
                for _ in range(MAX_HANDSHAKE_BYTES):
                    writer.write(record)
                    await writer.drain()
                await reader.read()
                raise OSError
            await until(lambda: len(h.failures()) == 1)
            writer.close()

    on(loop, scenario)


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@both
def test_se_05_other_certificates_are_for_connections_from_then_on(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path, client_auth="required") as h:
            reader, writer = await h.dial(ALICE)
            first = writer.get_extra_info("ssl_object").getpeercert(True)
            stores, renewed = Stores(tmp_path / "node"), STRANGER.issue("node")
            assert not h.source.is_stale()
            stores.write(renewed, STRANGER)
            assert h.source.is_stale()
            h.source.replace(h.source.reload())
            assert not h.source.is_stale()
            writer.write(API_VERSIONS)
            assert await answered(reader) == 77, "who is connected stays"
            again, other = await h.dial(FOREIGN, STRANGER)
            other.write(API_VERSIONS)
            assert await answered(again) == 77
            assert other.get_extra_info("ssl_object").getpeercert(True) != first
            assert "unable to get local issuer" in await h.refused(ALICE, STRANGER)
            for it in (writer, other):
                it.close()

    on(loop, scenario)


@both
def test_se_07_a_revoked_certificate_is_refused_and_its_connections_are_closed(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        revoked = tmp_path / "ca.crl"
        revoked.write_text(CA.revoking())
        async with Secure(tmp_path, client_auth="required", crl=str(revoked)) as h:
            bob = CA.issue("bob")
            reader, writer = await h.dial(bob)
            others, other = await h.dial(ALICE)
            for it, at in ((reader, writer), (others, other)):
                at.write(API_VERSIONS)
                assert await answered(it) == 77
            Stores.replace(revoked, CA.revoking(bob))
            assert h.source.is_stale()
            h.source.replace(h.source.reload())
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 20) == b"", "it is closed"
            assert "certificate revoked" in await h.refused(bob)
            other.write(API_VERSIONS)
            assert await answered(others) == 77, "who is connected with another one stays"
            assert await h.served(ALICE) == Principal("User", "CN=alice")
            other.close()

    on(loop, scenario)


@both
def test_se_07_who_is_revoked_during_its_handshake_is_refused(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        revoked = tmp_path / "ca.crl"
        revoked.write_text(CA.revoking())
        async with Secure(tmp_path, client_auth="required", crl=str(revoked)) as h:
            Stores.replace(revoked, CA.revoking(ALICE))
            begun = h.source.server_context()
            h.source.replace(h.source.reload())
            h.handshakes._context = lambda: begun
            assert "is revoked" in await h.refused(ALICE)

    on(loop, scenario)


@both
def test_se_07_an_authority_without_a_list_is_not_trusted(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        revoked = tmp_path / "ca.crl"
        revoked.write_text(STRANGER.revoking())
        async with Secure(tmp_path, client_auth="required", crl=str(revoked)) as h:
            assert "unable to get certificate CRL" in await h.refused(ALICE)

    on(loop, scenario)


@both
def test_se_01_a_client_that_does_not_read_costs_no_more_than_in_plain_text(loop: str, tmp_path: Path) -> None:
    """Flow control is the socket's: answers wait in their slots, and requests in the socket, as without TLS."""

    async def scenario() -> None:
        async with Secure(tmp_path, options={"send_buffer_bytes": 16_384, "receive_buffer_bytes": 16_384}) as h:
            reader, writer = await h.dial()
            writer.transport.pause_reading()
            writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            count = 4_000
            writer.write(API_VERSIONS * count)
            await until(lambda: len(h.connections) == 1)
            (connection,) = h.connections
            await until(lambda: not connection._writable)
            held = connection._transport.get_write_buffer_size() if connection._transport is not None else 0
            assert held < 1 << 20 and not connection._reading
            writer.transport.resume_reading()
            for _ in range(count):
                assert await answered(reader) == 77
            writer.close()
            await until(lambda: h.listener.connection_count == 0)

    on(loop, scenario)


@both
def test_se_01_a_client_that_closes_politely_or_not_is_gone(loop: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secure(tmp_path) as h:
            for rude in (True, False):
                reader, writer = await h.dial()
                writer.write(API_VERSIONS)
                assert await answered(reader) == 77
                if rude:
                    writer.transport.abort()
                else:
                    writer.close()
                await until(lambda: h.listener.connection_count == 0)
            reader, writer = await h.dial()
            await until(lambda: h.listener.connection_count == 1)
            await h.listener.stop()
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()

    on(loop, scenario)


@both
def test_se_06_a_port_of_nodes_takes_both_protocols_through_tls(loop: str, tmp_path: Path) -> None:
    """Nodes always show a certificate; a client of a controller does as `ssl.client.auth` says."""

    async def scenario() -> None:
        h = Secure(tmp_path, client_auth="requested")
        carried: list[tuple[asyncio.Transport, bytes]] = []

        def carry(transport: asyncio.Transport, first: bytes) -> None:
            transport.pause_reading()
            carried.append((transport, first))

        async def loaded() -> Any:
            return h.apis

        config = ListenerConfig(name=LISTENER, host="127.0.0.1", port=0)
        loaded_source = h.source.reload()
        sock = bound_socket("127.0.0.1", 0)
        h.listener = SharedPortListener(h.context.ports, config, loaded, carry, h.listener.share, sock, tls=h.source)
        h.source.replace(loaded_source)
        async with h:
            assert await h.served() == ANONYMOUS and await h.served(ALICE) == Principal("User", "CN=alice")
            _, writer = await h.dial(ALICE)
            for byte in HTTP2_PREFACE:
                writer.write(bytes([byte]))
                await asyncio.sleep(0)
            await until(lambda: len(carried) == 1)
            transport, first = carried[0]
            assert first == HTTP2_PREFACE and transport.get_extra_info("principal") == Principal("User", "CN=alice")
            transport.abort()
            reader, nobody = await h.dial()
            nobody.write(HTTP2_PREFACE)
            assert await asyncio.wait_for(reader.read(), 10) == b"" and len(carried) == 1
            writer.close()
            nobody.close()

    on(loop, scenario)


def test_se_06_http2_is_agreed_on_where_nodes_connect(tmp_path: Path) -> None:
    found = source(tmp_path)
    assert found.settings.files
    problems: list[str] = []
    settings = read_settings(Stores(tmp_path / "node").as_kafka().get, lambda key: key, problems)
    tls = TlsSource.of(settings, alpn=(HTTP2,))
    ends = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=CA.pem)
    client.set_alpn_protocols([HTTP2])
    near = client.wrap_bio(ends[0], ends[1], server_hostname="localhost")
    far = tls.server_context().wrap_bio(ends[1], ends[0], server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert near.selected_alpn_protocol() == far.selected_alpn_protocol() == HTTP2
