"""The gRPC implementation of the `Transport` port."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from kraftlite.model.ids import Endpoint
from kraftlite.model.method import Method, Req, Res
from kraftlite.rpc.addresses import hold, resolve
from kraftlite.rpc.coding import Coding
from kraftlite.runtime.ports import ChannelBytes, Handlers, Tracer, Transport, TransportError
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.rpc import RpcListening

if TYPE_CHECKING:
    from kraftlite.rpc.client import Peer
    from kraftlite.rpc.dialler import TlsDialler
    from kraftlite.rpc.relay import Relay
    from kraftlite.rpc.server import RpcServer
    from kraftlite.tls.source import TlsSource


def _report(error: BaseException, where: str) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": f"unhandled in {where}", "exception": error})


class GrpcTransport(Transport):
    """Request and response between nodes over gRPC (see `Transport` for the contract).

    One channel per peer, connected on first use and reconnected within 200 ms of the peer's return. Ordinary methods are unary
    calls; hot ones share one long-lived stream per peer and method. A dead peer (connection refused or reset) is a
    TransportError at once, a silent one after the caller's `timeout_ms`. Cancelling a call cancels its handler at the peer.
    `fault(error, where)` hears of a Fault in a handler; other exceptions there cost their request and are traced. `coding`: what
    makes and runs the codecs, and is closed with the transport. gRPC is imported on first use, so that a process may fork before.
    """

    def __init__(
        self,
        *,
        fault: Callable[[BaseException, str], None] = _report,
        tracer: Tracer | None = None,
        coding: Coding | None = None,
    ) -> None:
        self._fault = fault
        self._tracer = tracer or NullTracer()
        self._peers: dict[tuple[Endpoint, TlsSource | None], Peer] = {}
        self._tls: Callable[[str], TlsSource | None] | None = None
        self._servers: list[RpcServer] = []
        self._relays: list[Relay] = []
        self._held: dict[Endpoint, socket.socket] = {}
        self._closed = False
        self._coding = coding or Coding()
        self.channel_bytes: dict[str, ChannelBytes] = {}

    def protect(self, tls: Callable[[str], TlsSource | None]) -> None:
        """Dial through TLS from now on: `tls` gives the certificates for the peers of a service, None for plain text."""
        self._tls = tls

    async def call(self, peer: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        if asyncio.current_task() is None:
            await asyncio.sleep(0)  # its timeouts are those of a task
        return await self._peer(peer, method, request).call(method, request, timeout_ms)

    def watch(self, peer: Endpoint, method: Method[Req, Res], request: Req, timeout_ms: int) -> AsyncGenerator[Res]:
        """Ask a `streamed` method; it answers until the caller closes the generator. `timeout_ms`: at most between two answers.
        Raises TransportError (NotServed: the peer is of another version), or the ApiError that the handler raised."""
        return self._peer(peer, method, request).watch(method, request, timeout_ms)

    def _peer(self, peer: Endpoint, method: Method[Req, Res], request: Req) -> Peer:
        if not isinstance(request, method.request):
            raise TypeError(f"{method} takes {method.request.__name__}, not {type(request).__name__}")
        tls = None if self._tls is None else self._tls(method.service)
        found = self._peers.get((peer, tls))
        if found is None:
            if self._closed:
                raise TransportError(f"{method} to {peer}: transport is closed")
            from kraftlite.rpc.client import Peer

            found = self._peers[peer, tls] = Peer(peer, self._tracer, self._coding, self.channel_bytes, self._dialler(peer, tls))
        return found

    def _dialler(self, peer: Endpoint, tls: TlsSource | None) -> TlsDialler | None:
        if tls is None:
            return None
        from kraftlite.rpc.dialler import TlsDialler

        return TlsDialler(peer, tls, self._tracer)

    async def reserve(self, listen: Endpoint) -> None:
        """Raises OSError naming the endpoint when it is taken."""
        if listen.port == 0 or listen in self._held:
            return
        address = await resolve(listen)
        try:
            self._held[listen] = hold(address)
        except OSError as error:
            number = error.errno or 0
            raise OSError(number, f"cannot listen on {listen}: {os.strerror(number)}") from None

    async def serve(self, listen: Endpoint, handlers: Handlers) -> Endpoint:
        """Raises OSError naming the endpoint when it can not be bound, or is bound by anybody else."""
        from kraftlite.rpc.server import RpcServer

        server = RpcServer(handlers, self._fault, self._tracer, self._coding)
        if (held := self._held.pop(listen, None)) is not None:
            held.close()
        bound = await server.start(listen)
        self._servers.append(server)
        services = tuple(sorted({method.service for method in handlers}))
        self._tracer.emit(RpcListening(endpoint=str(bound), services=services))
        return bound

    async def serve_behind(self, listen: Endpoint, handlers: Handlers, *, authenticates: bool = False) -> Relay:
        """Answer on connections to `listen` that somebody else accepts there and hands to the relay. `authenticates`: only on
        those whose transports have a principal."""
        from kraftlite.rpc.relay import Relay
        from kraftlite.rpc.server import RpcServer

        server, relay = RpcServer(handlers, self._fault, self._tracer, self._coding), Relay()
        relay.authenticates = authenticates
        self._relays.append(relay)
        self._servers.append(server)
        await server.start_behind(relay)
        self._tracer.emit(RpcListening(endpoint=str(listen), services=tuple(sorted({method.service for method in handlers}))))
        return relay

    async def close(self, grace_ms: int = 0) -> None:
        """Close the transport. Handlers under way get `grace_ms` to finish; calls of this node fail."""
        self._closed = True
        held, self._held = self._held, {}
        for unused in held.values():
            unused.close()
        servers, self._servers = self._servers, []
        peers, self._peers = self._peers, {}
        await asyncio.gather(*[server.close(grace_ms) for server in servers], *[peer.close() for peer in peers.values()])
        for relay in self._relays:
            relay.close()
        self._coding.close()
