"""A Kafka listener on a port that nodes use, too: the first bytes of a connection tell which of the two it is (ADR 16).

A connection of HTTP/2 begins with 24 bytes that Kafka's protocol cannot begin with: as the length of a request they are more than
a gigabyte. Such a connection is handed on before it counts as a client's, so that clients never take the place of nodes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

from kraftlite.model.limits import KIB
from kraftlite.model.principal import ANONYMOUS
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.wire import ConnectionRefused
from kraftlite.wire.doors import Doors
from kraftlite.wire.listener import RESERVED_FILES, KafkaListener, ListenerConfig, most_files
from kraftlite.wire.share import NodeShare

if TYPE_CHECKING:
    from kraftlite.tls.source import TlsSource
    from kraftlite.wire.apis import KafkaApis

HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FIRST_BYTES_MS: Final = 10_000
"""The time in which a connection has to say what it is; the time that gRPC gives it, too."""
MAX_UNDECIDED: Final = 1_024
"""Connections that have not said yet what they are; beyond them the oldest is cut."""
FIRST_READ_BYTES: Final = KIB
Carry = Callable[[asyncio.Transport, bytes], None]
"""Takes over a connection that speaks HTTP/2, and what it has sent so far."""


class SharedPortListener(KafkaListener):
    """A `KafkaListener` whose port speaks HTTP/2, too. `carry` gets those connections.

    With `tls`, nodes have to show a certificate; clients as the settings say. `load` makes the APIs; None: nodes alone are
    served here. It is awaited when the first client comes, so that a node without clients does not pay for them.
    Clients wait until it is done, at most `FIRST_BYTES_MS`.
    """

    def __init__(
        self,
        ports: Ports,
        config: ListenerConfig,
        load: Callable[[], Awaitable[KafkaApis]] | None,
        carry: Carry,
        share: NodeShare,
        sock: socket.socket,
        *,
        most_undecided: int = MAX_UNDECIDED,
        tls: TlsSource | None = None,
        doors: Doors | None = None,
    ) -> None:
        super().__init__(ports, config, None, share, sock, tls, doors)
        self._load = load
        self._most_undecided = most_undecided
        self._carry = carry
        self._loading: TaskHandle | None = None
        self._undecided: dict[FirstBytes, None] = {}
        self._most_files_of_nodes = most_files(RESERVED_FILES // 2)

    @property
    def undecided(self) -> int:
        """The connections that have not said what they are, or that wait for the APIs."""
        return len(self._undecided)

    # --- for connections that have not said what they are

    def welcome(self, connection: FirstBytes) -> None:
        if len(self._undecided) >= self._most_undecided:
            self._refuse(next(iter(self._undecided)), f"more than {self._most_undecided} connections have not said what they are")
        self._undecided[connection] = None
        if connection.file_number >= self._most_files_of_nodes:
            self._refuse(connection, f"file descriptor {connection.file_number}: those above are for the node's own files")

    def forget(self, connection: FirstBytes) -> None:
        self._undecided.pop(connection, None)

    def decided(self, connection: FirstBytes, *, http2: bool) -> None:
        if http2 and self._tls is not None and connection.transport.get_extra_info("principal", ANONYMOUS) is ANONYMOUS:
            self._refuse(connection, "a node has to show a certificate, and this one shows none")
        elif http2:
            del self._undecided[connection]
            self._carry(connection.transport, connection.taken())
        elif self._load is None:
            self._refuse(connection, "it does not speak HTTP/2, and this port is for nodes")
        elif self._apis is not None:
            self._adopt(connection)
        else:
            connection.pause()
            if self._loading is None:
                self._loading = self._ports.tasks.spawn(self._load_apis(), name=f"kafka-apis-{self._config.name}")

    async def _load_apis(self) -> None:
        assert self._load is not None
        self._apis = await self._load()
        self._open_gate()
        for connection in list(self._undecided):
            if connection.is_kafka:
                self._adopt(connection)

    def _adopt(self, first: FirstBytes) -> None:
        """Make a client's connection of it."""
        del self._undecided[first]
        transport, data = first.transport, first.taken()
        if self._server is None or transport.is_closing():
            transport.abort()
            return
        super()._size_buffers(transport.get_extra_info("socket"))
        connection = self._client()
        transport.set_protocol(connection)
        if first.paused:
            transport.resume_reading()  # before the connection is known: it may have to wait, unread
        connection.connection_made(transport)
        while data and not transport.is_closing():
            room = connection.get_buffer(len(data))
            size = min(len(room), len(data))
            room[:size] = data[:size]
            connection.buffer_updated(size)
            data = data[size:]

    def _refuse(self, connection: FirstBytes, reason: str) -> None:
        del self._undecided[connection]
        self._tell(ConnectionRefused, connection.peer, reason)
        connection.transport.abort()

    # --- KafkaListener

    def _connection(self) -> asyncio.BufferedProtocol:
        return FirstBytes(self)

    def _size_buffers(self, sock: socket.socket) -> None:
        """Not here: connections of nodes have the sizes that the system finds, and clients get theirs when they are known."""

    def _run_sweep(self) -> None:
        now_ms = self.now_ms()
        for connection in list(self._undecided):
            if now_ms - connection.since_ms >= FIRST_BYTES_MS:
                self._refuse(connection, f"not served within {FIRST_BYTES_MS} ms")
        super()._run_sweep()

    async def stop(self, grace_ms: int = 0) -> None:
        self._cut_undecided()
        await super().stop(grace_ms)
        self._cut_undecided()

    def abort(self) -> None:
        self._cut_undecided()
        super().abort()

    def _cut_undecided(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        for connection in list(self._undecided):
            del self._undecided[connection]
            connection.transport.abort()


class FirstBytes(asyncio.BufferedProtocol):
    """A connection until it has sent enough to tell what it is."""

    transport: asyncio.Transport

    def __init__(self, owner: SharedPortListener) -> None:
        self._owner = owner
        self._data = bytearray(FIRST_READ_BYTES)
        self._length = 0
        self.is_kafka = False
        self.paused = False
        self.since_ms = 0
        self.file_number = -1
        self.peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses
        self.since_ms = self._owner.now_ms()
        sock = transport.get_extra_info("socket")
        self.file_number = -1 if sock is None else sock.fileno()
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        self._owner.welcome(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._data)[self._length :]

    def buffer_updated(self, nbytes: int) -> None:
        self._length += nbytes
        if self.is_kafka:
            if self._length == len(self._data):
                self.pause()
            return
        begun = self._data[: min(self._length, len(HTTP2_PREFACE))]
        if not HTTP2_PREFACE.startswith(begun):
            self.is_kafka = True
            self._owner.decided(self, http2=False)
        elif len(begun) == len(HTTP2_PREFACE):
            self._owner.decided(self, http2=True)

    def pause(self) -> None:
        if not self.paused:
            self.paused = True
            self.transport.pause_reading()

    def taken(self) -> bytes:
        """Return what has come so far."""
        return bytes(self._data[: self._length])

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.forget(self)
