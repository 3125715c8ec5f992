"""A client listener: accepts connections, bounds them, and closes the idle ones. Source: CP-01, CP-02, CP-06."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraftlite.model.ids import Endpoint
from kraftlite.model.limits import MAX_IN_FLIGHT_PER_CONNECTION, MAX_INT32, MIB
from kraftlite.runtime.ports import Ports, TimerHandle
from kraftlite.runtime.ration import Ration
from kraftlite.runtime.trace.tls import TlsHandshakeFailed
from kraftlite.runtime.trace.wire import ConnectionClosed, ConnectionRefused, ListenerStarted, ListenerStopped
from kraftlite.security.listener_sasl import ListenerSasl
from kraftlite.wire.auth import SaslGate
from kraftlite.wire.doors import ConnectionRules, Door, Doors
from kraftlite.wire.frames import Connection, ConnectionLimits
from kraftlite.wire.share import NodeShare
from kraftlite.wire.sockets import bound_socket

if TYPE_CHECKING:
    from kraftlite.tls.handshakes import Handshakes
    from kraftlite.tls.source import TlsSource
    from kraftlite.tls.transport import TlsTransport
    from kraftlite.wire.apis import KafkaApis

MAX_SWEEP_MS: Final = 5_000
MIN_SWEEP_MS: Final = 20
RESERVED_FILES: Final = 256
"""File descriptors that clients leave to the node's own files, at most a quarter of what the process may have: without one, a
segment could not be opened, and its log directory would be given up."""


TOLD_PER_SECOND: Final = 20
"""Connections that a listener refused, closed, or did not shake hands with, of each kind, that are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """`host` "" listens on all addresses, `port` 0 picks one. `max_idle_ms` < 0: connections may idle for ever."""

    name: str
    host: str
    port: int
    max_request_bytes: int = 100 * MIB
    max_idle_ms: int = 600_000
    max_in_flight: int = MAX_IN_FLIGHT_PER_CONNECTION
    send_buffer_bytes: int = 102_400
    """The buffer of the kernel, for each connection; -1: as much as the system gives, which is megabytes for a client that
    does not read."""
    receive_buffer_bytes: int = 102_400
    backlog: int = 1024
    sasl: ListenerSasl | None = None
    """None: clients need not say who they are."""


class KafkaListener:
    """One Kafka listener of a broker. All methods run on the node's loop; `listen` and `start` raise OSError when the address is
    taken. `sock`: one that has the address already. `tls`: connections begin with a handshake, by the certificates that it has at
    that time.

    `stop` takes no further requests, lets those in flight be answered for up to `grace_ms`, and then closes every connection.
    """

    def __init__(
        self,
        ports: Ports,
        config: ListenerConfig,
        apis: KafkaApis | None,
        share: NodeShare | None = None,
        sock: socket.socket | None = None,
        tls: TlsSource | None = None,
        doors: Doors | None = None,
    ) -> None:
        self._ports = ports
        self._config = config
        self._apis = apis
        self._tls = tls
        self._handshakes = None if tls is None else self._take_handshakes(tls)
        self._limits = ConnectionLimits(max_request_bytes=config.max_request_bytes, max_in_flight=config.max_in_flight)
        self._socket = sock
        self._listening = False
        self._server: asyncio.Server | None = None
        self._connections: dict[Connection, None] = {}
        doors = Doors(ports.clock, ConnectionRules()) if doors is None else doors
        self._door = doors.door(config.name, config.backlog)
        self._sweep: TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._endpoint: Endpoint | None = None
        self._held = (False, False)
        self._refused = False
        self._share = NodeShare(ports.clock.now_ms) if share is None else share
        self._most_files = most_files()
        self._gate: SaslGate | None = None
        kinds = (TlsHandshakeFailed, ConnectionClosed, ConnectionRefused)
        self._rations = {kind: Ration(self.now_ms, TOLD_PER_SECOND) for kind in kinds}
        self.accepted = 0
        self.closed_count = 0

    @property
    def share(self) -> NodeShare:
        return self._share

    @property
    def gate(self) -> SaslGate | None:
        """Authentication at this listener; None where there is none, and before the first client."""
        return self._gate

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def apis(self) -> KafkaApis | None:
        """The APIs that it serves; None for one that is still to be told."""
        return self._apis

    @property
    def connections(self) -> Collection[Connection]:
        return self._connections

    @property
    def handshakes(self) -> Handshakes | None:
        """None: no connection has any."""
        return self._handshakes

    @property
    def door(self) -> Door:
        return self._door

    @property
    def endpoint(self) -> Endpoint | None:
        """The address at which it listens; None before `start`."""
        return self._endpoint

    async def start(self) -> Endpoint:
        loop = asyncio.get_running_loop()
        sock = self.listen()
        if self._apis is not None:
            self._open_gate()
        # Not served in the same step: whoever is cancelled meanwhile still knows what to close.
        self._server = await loop.create_server(self._accepted, sock=sock, backlog=self._config.backlog, start_serving=False)
        port = sock.getsockname()[1]
        self._endpoint = Endpoint(self._config.host or "0.0.0.0", port)
        await self._server.start_serving()
        self._schedule_sweep()
        self._ports.tracer.emit(ListenerStarted(listener=self._config.name, host=self._config.host, port=port))
        return self._endpoint

    def listen(self) -> socket.socket:
        """The address is ours from here on, and who connects waits for `start`."""
        if self._socket is None:
            self._socket = bound_socket(self._config.host, self._config.port)
        if not self._listening:
            # Connections inherit what is set here. TCP_NODELAY: asyncio sets it only on sockets that name their protocol, which
            # these do not, and two answers in a row would wait 40 ms for the client's delayed acknowledgement of the first. The
            # sizes of their buffers: what thousands of clients do not read would else fill the memory of the kernel for TCP.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._size_buffers(self._socket)
            self._socket.listen(self._config.backlog)
            self._listening = True
        return self._socket

    def _size_buffers(self, sock: socket.socket) -> None:
        sizes = ((socket.SO_SNDBUF, self._config.send_buffer_bytes), (socket.SO_RCVBUF, self._config.receive_buffer_bytes))
        for option, size in sizes:
            if size >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    async def stop(self, grace_ms: int = 0) -> None:
        if self._server is None:
            if self._socket is not None:
                self._socket.close()
            return
        server, self._server = self._server, None
        server.close()
        self._door.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._handshakes is not None:
            self._handshakes.abort()
        if self._gate is not None:
            self._gate.stop()
        for connection in list(self._connections):
            connection.stop_accepting()
        if grace_ms > 0:
            await self._answered(grace_ms)
        unanswered = sum(connection.in_flight for connection in self._connections)
        for connection in list(self._connections):
            connection.close()
        await self._gone()
        assert self._endpoint is not None
        self._ports.tracer.emit(ListenerStopped(listener=self._config.name, port=self._endpoint.port, unanswered=unanswered))

    def abort(self) -> None:
        """Cut the clients off as the death of the process would: nothing is answered any more. In the loop's next turn the
        address is free and clients see their connections end. Not on uvloop."""
        server, self._server = self._server, None
        if server is None and self._socket is not None:
            self._socket.close()
        if server is not None:
            loop = asyncio.get_running_loop()
            for sock in server.sockets:
                loop.remove_reader(sock)
            # Not before the connections that are being accepted: asyncio would leave their sockets open.
            loop.call_soon(server.close)
        self._door.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._handshakes is not None:
            self._handshakes.abort()
        if self._gate is not None:
            self._gate.stop()
        for connection in list(self._connections):
            connection.abort()

    def hold(self, *, requests: bool, responses: bool) -> None:
        """Hold bytes as when the network to clients is cut in one direction or both: nobody is told, and TCP delivers them in
        the end. Both False: everything flows again."""
        self._held = (requests, responses)
        for connection in list(self._connections):
            connection.hold(requests=requests, responses=responses)

    def refuse(self, refused: bool) -> None:
        """Cut the clients off and take no new ones until told otherwise: for the injection of faults."""
        self._refused = refused
        if refused:
            for connection in list(self._connections):
                connection.abort()

    # --- ConnectionOwner -----------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._ports.clock.now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self._ports.clock.call_later(delay_ms, callback)

    def opened(self, connection: Connection) -> bool:
        self.accepted += 1
        self._connections[connection] = None
        refusal: str | None
        if self._refused:
            refusal = "a fault that was injected refuses clients"
        elif connection.file_number >= self._most_files:
            refusal = f"file descriptor {connection.file_number}: those above {self._most_files} are for the node's own files"
        else:
            refusal = self._door.arrive(connection)
        if refusal is None and self._server is not None:
            if any(self._held):
                connection.hold(requests=self._held[0], responses=self._held[1])
            if self._gate is not None:
                self._gate.opened(connection)
            return True
        if refusal is not None:
            self._tell(ConnectionRefused, _peer(connection), refusal)
        return False

    def closed(self, connection: Connection, reason: str | None) -> None:
        if self._connections.pop(connection, False) is False:
            return
        self.closed_count += 1
        if self._gate is not None:
            self._gate.closed(connection)
        self._door.gone(connection)
        if reason is not None:
            self._tell(ConnectionClosed, _peer(connection), reason)
        if not self._connections and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # --- internals -----------------------------------------------------------------------------------------------------

    def _accepted(self) -> asyncio.BufferedProtocol:
        """The protocol of a connection that was accepted now."""
        return self._connection() if self._handshakes is None else self._handshakes.transport()

    def _take_handshakes(self, tls: TlsSource) -> Handshakes:
        from kraftlite.tls.handshakes import Handshakes

        return Handshakes(self.now_ms, tls.server_context, self._secured, self._handshake_failed)

    def _secured(self, transport: TlsTransport) -> None:
        """A peer has shown what it has to show: from here on it is a connection like any other."""
        assert self._tls is not None
        try:
            principal = self._tls.principal_of(transport)
        except ValueError as error:
            self._handshake_failed(transport, str(error))
            transport.close()
            return
        transport.set_extra_info("principal", principal)
        connection = self._connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)

    def _handshake_failed(self, transport: TlsTransport, reason: str) -> None:
        self._tell(TlsHandshakeFailed, transport.peer, reason)

    def _tell(self, kind: type[TlsHandshakeFailed | ConnectionClosed | ConnectionRefused], peer: str, reason: str) -> None:
        """Anybody can cause these, as often as the network carries it."""
        ration = self._rations[kind]
        if ration.admits():
            self._ports.tracer.emit(kind(listener=self._config.name, peer=peer, reason=reason, left_out=ration.left_out()))

    def _connection(self) -> asyncio.BufferedProtocol:
        return self._client()

    def _client(self) -> Connection:
        """A connection that speaks Kafka's protocol."""
        assert self._apis is not None
        if self._gate is not None:
            return self._gate.connection(self)
        return Connection(self, self._apis.handle_request, self._limits)

    def _open_gate(self) -> None:
        """Get ready to authenticate clients, where this listener does, before the first of them is served."""
        sasl = self._config.sasl
        if sasl is not None and self._gate is None:
            assert self._apis is not None
            self._gate = SaslGate(self._ports, sasl, self._apis, self._limits, self._most_files)
            self._gate.start()

    def _schedule_sweep(self) -> None:
        idle = self._config.max_idle_ms
        period = MAX_SWEEP_MS if idle < 0 else min(max(idle // 4, MIN_SWEEP_MS), MAX_SWEEP_MS)
        self._sweep = self._ports.clock.call_later(period, self._run_sweep)

    def _run_sweep(self) -> None:
        now_ms, idle = self._ports.clock.now_ms(), self._config.max_idle_ms
        for connection in list(self._connections):
            connection.sweep(now_ms, idle)
        if self._handshakes is not None:
            self._handshakes.sweep()
        if self._gate is not None:
            self._gate.sweep()
        self._share.sweep()
        self._schedule_sweep()

    async def _answered(self, grace_ms: int) -> None:
        """Wait until nothing is in flight, at most `grace_ms`."""
        deadline_ms = self._ports.clock.now_ms() + grace_ms
        while any(connection.in_flight for connection in self._connections):
            remaining = deadline_ms - self._ports.clock.now_ms()
            if remaining <= 0:
                return
            await self._ports.clock.sleep(min(10, remaining))

    async def _gone(self) -> None:
        """Until every transport has said goodbye; those that cannot write what they hold are cut."""
        if not self._connections:
            return
        self._drained = asyncio.get_running_loop().create_future()
        timer = self._ports.clock.call_later(200, self._cut)
        try:
            await self._drained
        finally:
            timer.cancel()

    def _cut(self) -> None:
        for connection in list(self._connections):
            connection.abort()


def most_files(reserved: int = RESERVED_FILES) -> int:
    """The file descriptor from which on none is left for clients: they are given out lowest first."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_INT32 if most == resource.RLIM_INFINITY else most - min(reserved, most * reserved // RESERVED_FILES // 4)


def _peer(connection: Connection) -> str:
    return f"{connection.peer_host}:{connection.peer_port}"
