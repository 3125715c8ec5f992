"""Records of a byte each, and records without data: everybody else has turns in between, and nothing is lost. SE-03."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from kraftlite.tls.handshakes import Handshakes
from kraftlite.tls.transport import MAX_RECORDS_WITHOUT_DATA, READ_BYTES, RECORDS_AT_ONCE, TlsTransport
from tests.harness.certificates import Authority, Stores
from tests.harness.wire_fakes import until

BYTES = 2_000


class Kernel:
    """What a transport says of its socket."""

    def __init__(self) -> None:
        self.options: list[tuple[int, int, int]] = []

    def fileno(self) -> int:
        return -1

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.options.append((level, name, value))


class Socket:
    """The transport below: it holds back what comes while it is paused, as asyncio's does."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.kernel = Kernel()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.kernel if name == "socket" else default

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close


class Reader:
    """The protocol above. `wants`: after so many bytes it reads no more."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.times = 0
        self.wants: Callable[[], bool] = lambda: True
        self.transport: TlsTransport | None = None
        self._room = bytearray(8_192)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._room)

    def buffer_updated(self, count: int) -> None:
        self.times += 1
        self.received += self._room[:count]
        if not self.wants() and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        pass


class Updates:
    """Records that ask the peer for new keys, as one makes them who knows this side's first key (RFC 8446, 4.6.3 and 7.2)."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, count: int, data: bytes = b"") -> bytes:
        """So many, each with data before it if there is some. All of them are to be sent, in this order."""
        return b"".join(self._next(data) for _ in range(count))

    def _next(self, data: bytes) -> bytes:
        """KeyUpdate, update_requested, in a record of the handshake; and new keys from then on."""
        inner = [data + b"\x17"] if data else []
        inner.append(bytes([24, 0, 0, 1, 1]) + b"\x16")
        records = b"".join(self._record(number, it) for number, it in enumerate(inner))
        self._secret = self._expanded(b"traffic upd", 48)
        return records

    def _record(self, number: int, inner: bytes) -> bytes:
        head = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (int.from_bytes(self._expanded(b"iv", 12)) ^ number).to_bytes(12)
        return head + AESGCM(self._expanded(b"key", 32)).encrypt(nonce, inner, head)

    def _expanded(self, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = struct.pack(">HB", size, len(label)) + label + b"\0"
        return HKDFExpand(SHA384(), size, info).derive(self._secret)


class Pair:
    """A client and the server's side of its connection, whose handshake is done."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        stores = Stores(folder).write(authority.issue("node"), authority)
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(stores.keys)
        trusting = ssl.create_default_context(cafile=str(stores.trust))
        trusting.keylog_filename = str(folder / "secrets")
        self._secrets = folder / "secrets"
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = trusting.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.handshakes = Handshakes(lambda: 0, lambda: served, self._secured, lambda _transport, _reason: None)
        self.socket, self.reader = Socket(), Reader()
        self.transport = self.reader.transport = self.handshakes.transport()
        self.transport.connection_made(cast(asyncio.Transport, self.socket))
        self.secured = False

    def _secured(self, transport: TlsTransport) -> None:
        self.secured = True
        transport.set_protocol(cast(asyncio.BaseProtocol, self.reader))

    async def shake_hands(self, more: Callable[[], bytes] = bytes) -> None:
        """`more`: what follows the client's last message in the same read."""
        while not self.secured:
            done = True
            try:
                self._client.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            self.arrive(self._outgoing.read() + (more() if done else b""))
            await asyncio.sleep(0)
            self._incoming.write(bytes(self.socket.sent))
            self.socket.sent.clear()
        await asyncio.sleep(0)

    def updates(self) -> Updates:
        """Before the client has sent anything else."""
        assert self._client.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        lines = [line.split() for line in self._secrets.read_text().splitlines()]
        return Updates(next(bytes.fromhex(secret) for name, *_, secret in lines if name == "CLIENT_TRAFFIC_SECRET_0"))

    def encrypted(self, data: bytes, record: int) -> bytes:
        for at in range(0, len(data), record):
            self._client.write(data[at : at + record])
        return self._outgoing.read()

    def arrive(self, data: bytes) -> None:
        assert self.socket.reading and len(data) <= READ_BYTES
        self.handshakes.buffer[: len(data)] = data
        if data:
            self.transport.buffer_updated(len(data))


@pytest.fixture
async def pair(tmp_path: Path) -> Pair:
    found = Pair(tmp_path)
    await found.shake_hands()
    return found


DATA = bytes(range(200)) * (BYTES // 200)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux has it")
async def test_the_end_of_a_handshake_is_acknowledged_at_once(pair: Pair) -> None:
    """No ticket answers it: a client that sends nothing small before it is acknowledged would wait for 40 ms."""
    assert pair.socket.kernel.options == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)]


async def test_others_have_turns_between_small_records(pair: Pair) -> None:
    pair.arrive(pair.encrypted(DATA, 1))
    assert pair.reader.times <= RECORDS_AT_ONCE and not pair.socket.reading, "the rest waits, and no more is taken meanwhile"
    await until(lambda: pair.socket.reading)
    assert pair.reader.received == DATA
    pair.arrive(pair.encrypted(b"more", 4))
    assert pair.reader.received == DATA + b"more"


async def test_full_records_are_read_at_once(pair: Pair) -> None:
    data = bytes(100_000)
    pair.arrive(pair.encrypted(data, 16_384))
    assert pair.reader.received == data and pair.socket.reading


async def test_who_reads_no_more_is_given_no_more(pair: Pair) -> None:
    """It stops in the middle of records that wait, and goes on later."""
    pair.reader.wants = lambda: len(pair.reader.received) < 40
    pair.arrive(pair.encrypted(DATA, 1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(pair.reader.received) == 40 and not pair.socket.reading
    pair.reader.wants = lambda: True
    pair.transport.resume_reading()
    await until(lambda: len(pair.reader.received) == BYTES and pair.socket.reading)
    assert pair.reader.received == DATA and pair.socket.reading


async def test_a_connection_that_is_cut_in_between_is_left_alone(pair: Pair) -> None:
    pair.arrive(pair.encrypted(DATA, 1))
    pair.transport.abort()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(pair.reader.received) <= RECORDS_AT_ONCE


async def test_keys_may_be_changed_now_and_then(pair: Pair) -> None:
    pair.arrive(pair.updates().make(MAX_RECORDS_WITHOUT_DATA))
    await until(lambda: pair.socket.reading)
    assert not pair.socket.closed and len(pair.socket.sent) >= 20 * MAX_RECORDS_WITHOUT_DATA, "each is answered"


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "behind the handshake"])
async def test_who_only_asks_for_new_keys_is_cut(tmp_path: Path, at_once: bool) -> None:
    """Before anybody has logged in, one read of such records cost 100 ms of the loop, and answers as long as itself."""
    pair = Pair(tmp_path)
    if at_once:
        await pair.shake_hands(lambda: pair.updates().make(3_000))
    else:
        await pair.shake_hands()
        pair.arrive(pair.updates().make(3_000))
    for _ in range(300):
        await asyncio.sleep(0)
    assert pair.socket.closed and len(pair.socket.sent) < 4_096
    assert "without data" in pair.transport.get_extra_info("tls_failure")


async def test_answers_that_nobody_reads_are_not_heaped_up(pair: Pair) -> None:
    """Not even when there is data between."""
    updates = pair.updates()
    pair.transport.pause_writing()
    times = 0
    while not pair.socket.closed:
        pair.arrive(updates.make(1, data=b"x"))
        times += 1
        assert times <= 2 * MAX_RECORDS_WITHOUT_DATA
    assert times > MAX_RECORDS_WITHOUT_DATA and len(pair.reader.received) >= MAX_RECORDS_WITHOUT_DATA
